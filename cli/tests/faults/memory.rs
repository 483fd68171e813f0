//! A container that needs more memory than its definition gives: killed for that, it gets more, and the story tells how much each one had.

use serde_json::Value;

use crate::support::Stage;
use crate::support::docker::{self, Containers};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_killed_for_its_memory_is_tried_with_more_of_it() {
    if !docker::is_wanted() {
        return;
    }
    let stage = Stage::new("");
    let name = format!("hungry-{}", stage.port());
    std::fs::write(stage.path("jobs.yaml"), jobs(&name)).unwrap();
    let _containers = Containers::of(&name);
    let mut server = stage.server(&[]).await;
    let api = stage.api();
    let mut worker = stage.worker("only", &["--slots", "1"]);
    api.worker_ready("only").await;

    let job = api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap();
    let has_been_killed = |job: &Value| ends(job).contains(&"oom_killed");
    api.job(job, has_been_killed).await;
    // What it has behind it is no secret of one server's life.
    server.kill();
    let _server = stage.server(&[]).await;
    let job = api.job(job, |job| job["state"] == "succeeded").await;

    // Engines miss now and then that it was the memory: then it is tried with as much as before.
    let ends = ends(&job);
    let (before, last) = ends.split_at(ends.len() - 2);
    assert!(last == ["oom_killed", "succeeded"] && before.iter().all(|it| *it == "failed"), "{job}");
    let message = &job["attempts"][before.len()]["message"];
    assert_eq!(message, "killed for its memory limit of 16 MiB", "{job}");
    worker.leave().await;
}

fn ends(job: &Value) -> Vec<&str> {
    job["attempts"].as_array().into_iter().flatten().filter_map(|it| it["outcome"].as_str()).collect()
}

/// Its one line of 32 MB is read into memory as a whole.
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
