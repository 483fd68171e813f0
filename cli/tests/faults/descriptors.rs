//! A worker that has no file descriptor left for a while: its jobs lose neither their output nor their end.

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;

use crate::support::{Api, Cluster, Process, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn worker_without_a_free_descriptor_loses_no_output() {
    let cluster = Cluster::new("");
    let go = cluster.path("go");
    std::fs::write(cluster.path("jobs.yaml"), jobs_file(&go.display().to_string())).unwrap();
    let _server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let worker = cluster.start_worker("only", &["--no-docker", "--allow-process"]);
    api.wait_for_ready_worker("only").await;
    let running = submit(&api).await;
    api.wait_for_job(running, |job| job["state"] == "running").await;

    let before = limit_descriptors(&worker, Some(FEWER_THAN_ARE_OPEN));
    std::fs::write(&go, "").unwrap();
    let late = submit(&api).await;
    api.wait_for_job(late, is_given_back_for_descriptors).await;
    limit_descriptors(&worker, before);

    for job in [running, late] {
        api.wait_for_job(job, |job| job["state"] == "succeeded").await;
        // Output may arrive after the end.
        wait_until("all output is there", async || output(&api, job).await == ["one", "three", "two"]).await;
    }
}

async fn submit(api: &Api) -> u64 {
    api.post("/api/jobs/words", None).await["id"].as_u64().unwrap()
}

fn is_given_back_for_descriptors(job: &Value) -> bool {
    let tells_why =
        |it: &Value| it["message"].as_str().is_some_and(|text| text.contains("Too many open files"));
    job["attempts"].as_array().is_some_and(|all| all.iter().any(tells_why))
}

/// The lines of both streams, sorted.
async fn output(api: &Api, job: u64) -> Vec<String> {
    let bytes = api.get_bytes(&format!("/api/jobs/{job}/logs")).await;
    let mut lines: Vec<String> = String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// A soft limit below this refuses each new descriptor, and closes none.
const FEWER_THAN_ARE_OPEN: u64 = 8;

/// Sets the limit of a process, and returns the one before.
fn limit_descriptors(of: &Process, soft: Option<u64>) -> Option<u64> {
    let pid = Pid::from_raw(of.id().try_into().unwrap());
    let before = prlimit(pid, Resource::Nofile, Rlimit { current: soft, maximum: HARD_LIMIT }).unwrap();
    before.current.min(HARD_LIMIT)
}

/// No test needs more.
const HARD_LIMIT: Option<u64> = Some(4_096);

fn jobs_file(go: &str) -> String {
    format!(
        "jobs:
  words:
    runtime: process
    command: [sh, -c, 'while [ ! -e {go} ]; do sleep 0.05; done; echo one; echo two >&2; echo three']
"
    )
}
