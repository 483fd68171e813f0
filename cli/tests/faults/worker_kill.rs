//! `kill -9` of the worker, the server, or both while jobs run: no outcome and no output is lost, and no job runs twice. Each job records
//! its start and end in a file outside of Longshore.

mod counting_jobs;
mod lost;

use rustix::process::Signal;

use crate::support::{Cluster, docker, has_argument, wait_for, wait_until};
use counting_jobs::{CountingJobs, Runtime};

#[tokio::test(flavor = "multi_thread")]
async fn processes_outlive_their_worker() {
    worker_is_killed_again_and_again(CountingJobs::begin(Runtime::Process).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn docker_containers_outlive_their_worker() {
    if docker::is_required() {
        worker_is_killed_again_and_again(CountingJobs::begin(Runtime::Docker).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_end_while_the_worker_is_down_are_reported_later() {
    server_and_worker_are_down_when_jobs_end(CountingJobs::begin(Runtime::Process).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn docker_containers_that_end_while_the_worker_is_down_are_reported_later() {
    if docker::is_required() {
        server_and_worker_are_down_when_jobs_end(CountingJobs::begin(Runtime::Docker).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_continue_when_their_worker_detaches() {
    worker_detaches(CountingJobs::begin(Runtime::Process).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn docker_containers_continue_when_their_worker_detaches() {
    if docker::is_required() {
        worker_detaches(CountingJobs::begin(Runtime::Docker).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn docker_commands_end_with_a_killed_worker() {
    if !docker::is_required() {
        return;
    }
    let cluster = Cluster::new("version: 1\njobs:\n  idle: { image: busybox }\n");
    let _server = cluster.start_server(&[]).await;
    let mut worker = cluster.start_worker("only", &["--slots", "1"]);
    cluster.api().wait_for_ready_worker("only").await;
    let listeners = wait_for("it listens to the engine", async || {
        Some(worker.children_with_argument("events")).filter(|found| !found.is_empty())
    })
    .await;
    worker.kill();
    wait_until("what listened ends by itself", async || {
        !listeners.iter().any(|pid| has_argument(*pid, "events"))
    })
    .await;
}

async fn worker_is_killed_again_and_again(mut jobs: CountingJobs) {
    for _ in 0..3 {
        jobs.worker.kill();
        jobs.start_worker().await;
    }
    jobs.all_is_told().await;
}

/// The server is killed first, so the worker cannot report; then the worker is killed with unsent reports.
async fn server_and_worker_are_down_when_jobs_end(mut jobs: CountingJobs) {
    jobs.server.kill();
    jobs.one_has_ended().await;
    jobs.worker.kill();
    jobs.all_have_ended().await;
    jobs.start_server().await;
    jobs.start_worker().await;
    jobs.all_is_told().await;
}

async fn worker_detaches(mut jobs: CountingJobs) {
    jobs.worker.signal(Signal::TERM);
    let status = jobs.worker.wait_for_exit().await;
    assert!(status.success(), "{status}:\n{}", jobs.worker.log());
    assert!(!jobs.have_all_ended(), "it has not waited for its jobs");
    jobs.start_worker().await;
    jobs.all_is_told().await;
}
