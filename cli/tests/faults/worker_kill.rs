//! `kill -9` of the worker, of the server, or of both, while jobs run: no outcome and no byte of output is lost, and nothing runs twice.
//! Each job writes to a file that Longshore knows nothing of when it starts and when it ends: the truth to compare with.

mod lost;
mod story;

use rustix::process::Signal;

use crate::support::{Stage, docker, eventually, holds, was_told};
use story::{Runtime, Story};

#[tokio::test(flavor = "multi_thread")]
async fn processes_outlive_their_worker() {
    worker_is_killed_again_and_again(Story::begin(Runtime::Process).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn docker_containers_outlive_their_worker() {
    if docker::is_wanted() {
        worker_is_killed_again_and_again(Story::begin(Runtime::Docker).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_end_while_nobody_watches_are_told_of_later() {
    all_are_away_when_jobs_end(Story::begin(Runtime::Process).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn docker_containers_that_end_while_nobody_watches_are_told_of_later() {
    if docker::is_wanted() {
        all_are_away_when_jobs_end(Story::begin(Runtime::Docker).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_go_on_when_their_worker_detaches() {
    worker_detaches(Story::begin(Runtime::Process).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn docker_containers_go_on_when_their_worker_detaches() {
    if docker::is_wanted() {
        worker_detaches(Story::begin(Runtime::Docker).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_goes_on_listening_to_docker_for_a_worker_that_was_killed() {
    if !docker::is_wanted() {
        return;
    }
    let stage = Stage::new("version: 1\njobs:\n  idle: { image: busybox }\n");
    let _server = stage.server(&[]).await;
    let mut worker = stage.worker("only", &["--slots", "1"]);
    stage.api().worker_ready("only").await;
    let listeners = eventually("it listens to the engine", async || {
        Some(worker.children("events")).filter(|found| !found.is_empty())
    })
    .await;
    worker.kill();
    holds("what listened ends by itself", async || !listeners.iter().any(|pid| was_told(*pid, "events")))
        .await;
}

async fn worker_is_killed_again_and_again(mut story: Story) {
    for _ in 0..3 {
        story.worker.kill();
        story.start_worker().await;
    }
    story.all_is_told().await;
}

/// The server dies first, so what the worker has to say has nowhere to go; then the worker dies with it unsaid.
async fn all_are_away_when_jobs_end(mut story: Story) {
    story.server.kill();
    story.one_has_ended().await;
    story.worker.kill();
    story.all_have_ended().await;
    story.start_server().await;
    story.start_worker().await;
    story.all_is_told().await;
}

async fn worker_detaches(mut story: Story) {
    story.worker.signal(Signal::TERM);
    let status = story.worker.ended().await;
    assert!(status.success(), "{status}:\n{}", story.worker.said());
    assert!(!story.have_all_ended(), "it has not waited for its jobs");
    story.start_worker().await;
    story.all_is_told().await;
}
