//! A container killed for its memory limit gets a higher limit, and the job shows the limit of each attempt.

use serde_json::Value;

use crate::support::Cluster;
use crate::support::docker::{self, DefinitionContainers};

#[tokio::test(flavor = "multi_thread")]
async fn job_killed_for_its_memory_limit_is_retried_with_a_higher_limit() {
    if !docker::is_required() {
        return;
    }
    let cluster = Cluster::new("");
    let name = format!("hungry-{}", cluster.port());
    std::fs::write(cluster.path("jobs.yaml"), jobs(&name)).unwrap();
    let _containers = DefinitionContainers::new(&name);
    let mut server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let mut worker = cluster.start_worker("only", &["--slots", "1"]);
    api.wait_for_ready_worker("only").await;

    let job = api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap();
    let has_been_killed = |job: &Value| ends(job).contains(&"oom_killed");
    api.wait_for_job(job, has_been_killed).await;
    // The raised limit survives a restart of the server.
    server.kill();
    let _server = cluster.start_server(&[]).await;
    let job = api.wait_for_job(job, |job| job["state"] == "succeeded").await;

    // Engines sometimes do not report the out-of-memory kill; then the limit stays.
    let ends = ends(&job);
    let (before, last) = ends.split_at(ends.len() - 2);
    assert!(last == ["oom_killed", "succeeded"] && before.iter().all(|it| *it == "failed"), "{job}");
    // The peak follows, where the engine told it in time.
    let message = job["attempts"][before.len()]["message"].as_str().unwrap();
    assert!(message.starts_with("killed for its memory limit of 16 MiB"), "{job}");
    worker.terminate().await;
}

fn ends(job: &Value) -> Vec<&str> {
    job["attempts"].as_array().into_iter().flatten().filter_map(|it| it["outcome"].as_str()).collect()
}

/// The program reads one line of 32 MB into memory.
fn jobs(name: &str) -> String {
    format!(
        "version: 1
jobs:
  {name}:
    image: busybox
    command: [sh, -c, 'head -c 32000000 /dev/zero | tail -n 1 >/dev/null']
    network: none
    pull_policy: never
    resources: {{ memory: 16m }}
    retry: {{ max: 9, memory_factor: 16, backoff: {{ initial: 4s, max: 4s }} }}
"
    )
}
