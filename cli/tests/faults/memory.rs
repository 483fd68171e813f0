//! A container that needs more memory than its definition gives: killed for that, it gets more, and the story tells how much each one had.

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
    api.job(job, |job| job["attempts"][0]["outcome"] == "oom_killed").await;
    // What it has behind it is no secret of one server's life.
    server.kill();
    let _server = stage.server(&[]).await;
    let job = api.job(job, |job| job["state"] == "succeeded").await;

    let ends: Vec<_> =
        job["attempts"].as_array().unwrap().iter().map(|it| it["outcome"].as_str().unwrap()).collect();
    assert_eq!(ends, ["oom_killed", "succeeded"], "{job}");
    let message = &job["attempts"][0]["message"];
    assert_eq!(message, "killed for its memory limit of 16 MiB", "{job}");
    worker.leave().await;
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
    retry: {{ max: 3, memory_factor: 16, backoff: {{ initial: 1s, max: 1s }} }}
"
    )
}
