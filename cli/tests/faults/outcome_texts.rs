//! Texts about jobs on the terminal and in JSON: how each attempt ended, what prevented it, and who requested a change.

use serde_json::{Value, json};

use crate::support::docker::write_fake_docker;
use crate::support::{Api, Cluster};

#[tokio::test(flavor = "multi_thread")]
async fn every_outcome_of_an_attempt_has_a_text() {
    let cluster = Cluster::new(JOBS);
    let _server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let docker = write_fake_docker(&cluster.path(""), ENGINE);
    let flags = ["--docker", docker.to_str().unwrap(), "--allow-process", "--on-term", "drain"];
    let mut worker = cluster.start_worker("only", &flags);
    api.wait_for_ready_worker("only").await;

    let job = ended(&api, "flaky", "failed").await;
    assert_eq!(ends(&job), ["failed: exit code 3", "failed: exit code 3"], "{job}");
    assert_eq!(told(&job).last().unwrap(), "failed: exit code 3", "{job}");

    let job = ended(&api, "slow", "failed").await;
    let timed_out = "timed out: stopped because it ran for too long; it ended with exit code 143 (signal 15)";
    assert_eq!(ends(&job), [timed_out], "{job}");

    let job = ended(&api, "nowhere", "failed").await;
    assert_eq!(ends(&job), ["pull failed: no matching manifest for linux/amd64"], "{job}");

    // A worker that refuses an attempt gives the reason, and the job waits.
    let job = make(&api, "mounts").await;
    let job = api.wait_for_job(job, |job| job["pending_reason"]["code"] == "excluded").await;
    assert_eq!(
        ends(&job),
        ["given back: this worker does not allow to mount `/etc` (--allow-mount)"],
        "{job}"
    );
    let id = job["id"].to_string();
    let (code, shown) = cluster.run_cli(&["show", &id, "--server", &cluster.address()]);
    let in_the_way = "given back: this worker does not allow to mount `/etc` (--allow-mount)";
    assert!(code == 0 && shown.contains("attempt ended") && shown.contains(in_the_way), "{shown}");

    let (code, why) = cluster.run_cli(&["explain", &id, "--server", &cluster.address()]);
    let in_the_way =
        "it is not offered this revision, which it could not start or does not allow, until it starts anew";
    assert!(code == 0 && why.contains("(mounts) is queued") && why.contains(in_the_way), "{why}");

    let job = make(&api, "long").await;
    api.wait_for_job(job, |job| job["state"] == "running").await;
    let (_, why) = cluster.run_cli(&["explain", &job.to_string(), "--server", &cluster.address()]);
    assert!(why.contains("it is running on only, as its attempt 1") && why.contains("has it"), "{why}");
    api.post(&format!("/api/jobs/{job}/cancel"), None).await;
    let job = api.wait_for_job(job, |job| job["state"] == "cancelled").await;
    let told = told(&job);
    let place =
        |line: &str| told.iter().position(|it| it == line).unwrap_or_else(|| panic!("{line}: {told:?}"));
    assert!(
        place("cancel_requested: by http 127.0.0.1") < place("cancelled: cancelled by http 127.0.0.1"),
        "{told:?}"
    );
    assert_eq!(ends(&job), ["cancelled; it ended with exit code 143 (signal 15)"], "{job}");
    worker.terminate().await;
}

async fn make(api: &Api, name: &str) -> u64 {
    api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap()
}

async fn ended(api: &Api, name: &str, state: &str) -> Value {
    let job = make(api, name).await;
    api.wait_for_job(job, |job| job["state"] == json!(state)).await
}

/// All events with their texts.
fn told(job: &Value) -> Vec<String> {
    let events = job["timeline"].as_array().unwrap().iter();
    let line = |event: &Value| {
        format!("{}: {}", event["event"].as_str().unwrap(), event["text"].as_str().unwrap_or_default())
    };
    events.map(line).collect()
}

/// The outcomes of the attempts.
fn ends(job: &Value) -> Vec<String> {
    let ends =
        told(job).into_iter().filter_map(|line| line.strip_prefix("attempt_ended: ").map(str::to_owned));
    ends.collect()
}

/// A fake docker without images whose registry has none for this machine.
const ENGINE: &str = r#"
case "$1" in
  version) echo 28.0.0 ;;
  info) echo engine ;;
  ps) ;;
  events) sleep 30 ;;
  pull) echo "Error response from daemon: no matching manifest for linux/amd64" >&2; exit 1 ;;
  *) echo "Error: no such thing" >&2; exit 1 ;;
esac
"#;

const JOBS: &str = "\
version: 1
jobs:
  flaky:
    runtime: process
    command: [sh, -c, 'exit 3']
    retry: {max: 1, backoff: {initial: 1s, max: 1s}}
  slow:
    runtime: process
    command: [sleep, '600']
    timeout: 1s
  nowhere:
    image: nowhere
  mounts:
    image: nowhere
    volumes: ['/etc:/x:ro']
  long:
    runtime: process
    command: [sleep, '600']
";
