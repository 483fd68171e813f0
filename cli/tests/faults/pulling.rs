//! A slow or refused image pull: the job shows its progress and the number of failures.

use serde_json::{Value, json};

use crate::support::Cluster;
use crate::support::docker::write_fake_docker;

#[tokio::test(flavor = "multi_thread")]
async fn assigned_job_shows_the_progress_of_its_image_pull() {
    let cluster = Cluster::new(JOBS);
    let _server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let docker = write_fake_docker(&cluster.path(""), ENGINE);
    let _worker = cluster.start_worker("only", &["--docker", docker.to_str().unwrap(), "--slots", "2"]);
    let worker = api.wait_for_ready_worker("only").await;
    assert_eq!(worker["engine_id"], "NXOD:D27L", "{worker}");

    let told = async |name: &str, phase: Value| {
        let job = api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap();
        api.wait_for_job(job, |job| job["phase"] == phase).await;
        let (code, shown) = cluster.run_cli(&["show", &job.to_string(), "--server", &cluster.address()]);
        assert_eq!(code, 0, "{shown}");
        shown
    };
    let shown = told("large", json!({ "name": "pulling", "percent": 50 })).await;
    assert!(shown.contains("assigned (pulling 50 %)"), "{shown}");
    let shown = told("withheld", json!({ "name": "pulling", "failures": 1 })).await;
    assert!(shown.contains("assigned (pulling, failed once)"), "{shown}");
}

/// A docker that pulls one of two layers of `large`, and fails to pull `withheld`.
const ENGINE: &str = r#"
case "$1" in
  version) echo 28.0.0 ;;
  info) echo NXOD:D27L ;;
  ps) ;;
  events) sleep 30 ;;
  pull)
    case "$*" in *withheld*)
      [ -e "$0.failed" ] && exec sleep 30
      touch "$0.failed"; echo "manifest unknown" >&2; exit 1 ;;
    esac
    printf '%s\n' 'a: Pulling fs layer' 'b: Pulling fs layer' 'b: Download complete' 'b: Pull complete'
    exec sleep 30 ;;
  *) echo "Error: no such thing" >&2; exit 1 ;;
esac
"#;

const JOBS: &str = "\
jobs:
  large: {image: large}
  withheld: {image: withheld}
";

#[tokio::test(flavor = "multi_thread")]
async fn jobs_without_their_registry_leave_places_to_a_job_whose_image_is_there() {
    let cluster = Cluster::new(AWAY);
    let _server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let docker = write_fake_docker(&cluster.path(""), AWAY_ENGINE);
    let flags = ["--docker", docker.to_str().unwrap(), "--slots", "3", "--backlog", "2"];
    let _worker = cluster.start_worker("only", &flags);
    api.wait_for_ready_worker("only").await;

    // As many as the worker takes, with two images. One registry is not there, the other one does not answer.
    let waiting = api.post("/api/jobs/absent", Some(&json!({ "count": 3 }))).await["first"].as_u64().unwrap();
    api.post("/api/jobs/silent", Some(&json!({ "count": 2 }))).await;
    let here = api.post("/api/jobs/here", None).await["id"].as_u64().unwrap();
    let launched = docker.with_file_name("launched");
    api.wait_for_job(here, |_| launched.exists()).await;
    let job = api.wait_for_job(waiting, |job| job["attempts"][0]["outcome"] == "released").await;
    assert!(job["attempts"][0]["message"].as_str().unwrap().contains("no such host"), "{job}");
    assert!(job["state"] == "queued" || job["state"] == "assigned", "it costs the job nothing: {job}");
}

/// A docker that has one image, and reaches no registry.
const AWAY_ENGINE: &str = r#"
case "$1" in
  version) echo 28.0.0 ;;
  info) echo NXOD:D27L ;;
  ps) ;;
  events) sleep 30 ;;
  image) case "$*" in *here*) touch "${0%/*}/launched"; echo sha256:1 ;; *) exit 1 ;; esac ;;
  pull)
    case "$*" in *silent*) exec sleep 600 ;; esac
    echo "dial tcp: lookup absent.example: no such host" >&2; exit 1 ;;
  run) exec sleep 600 ;;
  *) echo "Error: no such thing" >&2; exit 1 ;;
esac
"#;

const AWAY: &str = "\
jobs:
  absent: {image: absent.example/app}
  silent: {image: silent.example/app, pull_timeout: 1s}
  here: {image: here}
";
