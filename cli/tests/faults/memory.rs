//! A container killed for its memory limit gets a higher limit, and the job shows the limit of each attempt.

use serde_json::Value;

use crate::support::docker::{self, DefinitionContainers};
use crate::support::{Api, Cluster, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn job_killed_for_its_memory_limit_is_retried_with_a_higher_limit() {
    if !docker::is_required() {
        return;
    }
    let cluster = Cluster::new("");
    let name = format!("hungry-{}", cluster.port());
    std::fs::write(cluster.path("jobs.yaml"), jobs(&name)).unwrap();
    let containers = DefinitionContainers::new(&name);
    let mut server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let mut worker = cluster.start_worker("only", &["--slots", "1"]);
    api.wait_for_ready_worker("only").await;

    let job = api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap();
    let_go(&api, &containers, job, 0).await;
    api.wait_for_job(job, |job| job["attempts"][0]["outcome"] == "oom_killed").await;
    // The raised limit survives a restart of the server.
    server.kill();
    let _server = cluster.start_server(&[]).await;
    let_go(&api, &containers, job, 1).await;
    let job = api.wait_for_job(job, |job| job["state"] == "succeeded").await;

    assert_eq!(outcomes(&job), ["oom_killed", "succeeded"], "{job}");
    // The peak follows, where the engine told it in time.
    let message = job["attempts"][0]["message"].as_str().unwrap();
    assert!(message.starts_with("killed for its memory limit of 16 MiB"), "{job}");
    worker.terminate().await;
}

/// Lets the running attempt take its memory as soon as its worker measures it.
async fn let_go(api: &Api, containers: &DefinitionContainers, job: u64, attempt: usize) {
    api.wait_for_job(job, |job| job["attempts"][attempt]["usage"].is_object()).await;
    wait_until("the container has the file", async || containers.touch(job, "/dev/shm/go")).await;
}

fn outcomes(job: &Value) -> Vec<&str> {
    job["attempts"].as_array().into_iter().flatten().filter_map(|it| it["outcome"].as_str()).collect()
}

/// The program asks for 64 MB at once. With small steps the kernel would first take the program's own pages away again and again, which can
/// last for minutes.
fn jobs(name: &str) -> String {
    format!(
        "version: 1
jobs:
  {name}:
    image: busybox
    command: [sh, -c, 'until [ -e /dev/shm/go ]; do sleep 0.1; done; exec dd if=/dev/zero of=/dev/null bs=64M count=1']
    network: none
    pull_policy: never
    resources: {{ memory: 16m }}
    retry: {{ max: 1, memory_factor: 16, backoff: {{ initial: 5s, kind: fixed }} }}
"
    )
}
