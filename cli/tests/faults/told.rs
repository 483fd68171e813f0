//! What became of a job is told in words, in JSON and on the terminal: how each attempt ended and what was in the way, by what the job
//! goes on, and who wanted what.

use serde_json::{Value, json};

use crate::support::docker::stand_in;
use crate::support::{Api, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn each_end_of_an_attempt_is_told_in_words() {
    let stage = Stage::new(JOBS);
    let _server = stage.server(&[]).await;
    let api = stage.api();
    let docker = stand_in(&stage.path(""), ENGINE);
    let flags = ["--docker", docker.to_str().unwrap(), "--allow-process", "--on-term", "drain"];
    let mut worker = stage.worker("only", &flags);
    api.worker_ready("only").await;

    let job = ended(&api, "flaky", "failed").await;
    assert_eq!(ends(&job), ["failed: exit code 3", "failed: exit code 3"], "{job}");
    assert_eq!(told(&job).last().unwrap(), "failed: exit code 3", "{job}");

    let job = ended(&api, "slow", "failed").await;
    let timed_out = "timed out: stopped because it ran for too long; it ended with exit code 143 (signal 15)";
    assert_eq!(ends(&job), [timed_out], "{job}");

    let job = ended(&api, "nowhere", "failed").await;
    assert_eq!(ends(&job), ["pull failed: no matching manifest for linux/amd64"], "{job}");

    // Whoever refuses says what is in the way, and the job goes on waiting.
    let job = make(&api, "mounts").await;
    let job = api.job(job, |job| job["pending_reason"]["code"] == "excluded").await;
    assert_eq!(
        ends(&job),
        ["given back: this worker does not allow to mount `/etc` (--allow-mount)"],
        "{job}"
    );
    let id = job["id"].to_string();
    let (code, shown) = stage.verb(&["show", &id, "--server", &stage.address()]);
    let in_the_way = "given back: this worker does not allow to mount `/etc` (--allow-mount)";
    assert!(code == 0 && shown.contains("attempt ended") && shown.contains(in_the_way), "{shown}");

    let (code, why) = stage.verb(&["explain", &id, "--server", &stage.address()]);
    let in_the_way =
        "it is not offered this revision, which it could not start or does not allow, until it starts anew";
    assert!(code == 0 && why.contains("(mounts) is queued") && why.contains(in_the_way), "{why}");

    let job = make(&api, "long").await;
    api.job(job, |job| job["state"] == "running").await;
    let (_, why) = stage.verb(&["explain", &job.to_string(), "--server", &stage.address()]);
    assert!(why.contains("it is running on only, as its attempt 1") && why.contains("has it"), "{why}");
    api.post(&format!("/api/jobs/{job}/cancel"), None).await;
    let job = api.job(job, |job| job["state"] == "cancelled").await;
    let told = told(&job);
    let place =
        |line: &str| told.iter().position(|it| it == line).unwrap_or_else(|| panic!("{line}: {told:?}"));
    assert!(place("cancel_requested: by http 127.0.0.1") < place("cancelled: cancelled"), "{told:?}");
    assert_eq!(ends(&job), ["cancelled; it ended with exit code 143 (signal 15)"], "{job}");
    worker.leave().await;
}

async fn make(api: &Api, name: &str) -> u64 {
    api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap()
}

async fn ended(api: &Api, name: &str, state: &str) -> Value {
    let job = make(api, name).await;
    api.job(job, |job| job["state"] == json!(state)).await
}

/// Every event with its words.
fn told(job: &Value) -> Vec<String> {
    let events = job["timeline"].as_array().unwrap().iter();
    let line = |event: &Value| {
        format!("{}: {}", event["event"].as_str().unwrap(), event["text"].as_str().unwrap_or_default())
    };
    events.map(line).collect()
}

/// How its attempts ended.
fn ends(job: &Value) -> Vec<String> {
    let ends =
        told(job).into_iter().filter_map(|line| line.strip_prefix("attempt_ended: ").map(str::to_owned));
    ends.collect()
}

/// It is there, has no image, and its registry has none for this machine.
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
