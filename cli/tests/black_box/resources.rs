//! Reserved resources through the real program: each GPU belongs to one job at a time, and a job tells in its environment which it has.

use std::fs;

use serde_json::{Value, json};
use testkit::{Cluster, wait_for};

const JOBS: &str = "version: 1
defaults: { runtime: process }
jobs:
  train:
    command: [sh, -c, 'echo \"$LONGSHORE_GPUS\" >gpus.tmp; mv gpus.tmp gpus; sleep 600']
    working_dir: DIRECTORY
    resources: { gpus: 1, custom: { license: 1 } }
  huge: { command: [\"true\"], resources: { gpus: 3 } }
";

async fn submit(cluster: &Cluster, name: &str) -> (u64, Value) {
    let job = cluster.api().post(&format!("/api/jobs/{name}"), None).await;
    (job["id"].as_u64().expect("an id"), job)
}

/// Waits until the job has written the ids of its GPUs, and takes the file away for the next job.
async fn gpus(cluster: &Cluster) -> String {
    let file = cluster.path("gpus");
    let text = wait_for("the job writes its GPUs", async || fs::read_to_string(&file).ok()).await;
    fs::remove_file(&file).expect("it was there");
    text.trim().to_owned()
}

#[tokio::test]
async fn each_gpu_belongs_to_one_job_at_a_time_and_goes_to_the_next_one_at_its_end() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let directory = cluster.path("jobs.yaml").parent().expect("a directory").display().to_string();
    fs::write(cluster.path("jobs.yaml"), JOBS.replace("DIRECTORY", &directory)).expect("written");
    let _server = cluster.start_server(&[]).await;
    let flags =
        ["--no-docker", "--allow-process", "--slots", "4", "--gpus", "0,1", "--resource", "license=2"];
    let _worker = cluster.start_worker("w1", &[&flags[..], &["--cpus", "3.5", "--memory", "0"]].concat());
    let api = cluster.api();
    let worker = api.wait_for_ready_worker("w1").await;
    let offered = json!({ "cpus_milli": 3_500, "gpus": ["0", "1"], "custom": { "license": 2 } });
    assert_eq!(worker["resources"]["offered"], offered, "memory is not counted");

    let (first, _) = submit(&cluster, "train").await;
    let first_gpus = gpus(&cluster).await;
    let (second, _) = submit(&cluster, "train").await;
    let second_gpus = gpus(&cluster).await;
    assert_eq!((&*first_gpus, &*second_gpus), ("0", "1"));
    let (third, job) = submit(&cluster, "train").await;
    assert_eq!(job["pending_reason"]["code"], "resources", "{job}");
    let why = api.get(&format!("/api/jobs/{third}/explain")).await;
    let text = "other jobs have reserved too much of its gpus (the job needs 1, it offers 2, 2 reserved)";
    assert_eq!(why["workers"][0]["text"], text, "{why}");
    let (_, job) = submit(&cluster, "huge").await;
    assert_eq!(job["pending_reason"]["code"], "no_worker_fits", "{job}");
    assert_eq!(job["warning"]["code"], "no_worker_matches", "{job}");

    let worker = api.wait_for_worker("w1", |it| it["busy"] == 2).await;
    let reserved =
        json!({ "cpus_milli": 0, "memory_bytes": 0, "gpus": ["0", "1"], "custom": { "license": 2 } });
    assert_eq!(worker["resources"]["reserved"], reserved);
    let (code, text) = cluster.run_cli(&["workers", "--server", &cluster.address(), "-o", "wide"]);
    assert!(code == 0 && text.contains("cpus 0/3.5 gpus 2/2 license 2/2"), "{text}");

    api.post(&format!("/api/jobs/{second}/cancel"), None).await;
    assert_eq!(gpus(&cluster).await, second_gpus, "the next job gets what the cancelled one had");
    for id in [first, third] {
        api.post(&format!("/api/jobs/{id}/cancel"), None).await;
        api.wait_for_job(id, |job| job["state"] == "cancelled").await;
    }
}
