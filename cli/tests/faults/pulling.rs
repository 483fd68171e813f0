//! An image that is long in coming, or is not given: its job says how far the pull is, and how often it has failed.

use serde_json::{Value, json};

use crate::support::Stage;
use crate::support::docker::stand_in;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_for_its_image_says_how_the_pull_goes() {
    let stage = Stage::new(JOBS);
    let _server = stage.server(&[]).await;
    let api = stage.api();
    let docker = stand_in(&stage.path(""), ENGINE);
    let _worker = stage.worker("only", &["--docker", docker.to_str().unwrap(), "--slots", "2"]);
    let worker = api.worker_ready("only").await;
    assert_eq!(worker["engine_id"], "NXOD:D27L", "{worker}");

    let told = async |name: &str, phase: Value| {
        let job = api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap();
        api.job(job, |job| job["phase"] == phase).await;
        let (code, shown) = stage.verb(&["show", &job.to_string(), "--server", &stage.address()]);
        assert_eq!(code, 0, "{shown}");
        shown
    };
    let shown = told("large", json!({ "name": "pulling", "percent": 50 })).await;
    assert!(shown.contains("assigned (pulling 50 %)"), "{shown}");
    let shown = told("withheld", json!({ "name": "pulling", "failures": 1 })).await;
    assert!(shown.contains("assigned (pulling, failed once)"), "{shown}");
}

/// It fetches one of the two layers of `large`, fails once to fetch `withheld`, and gets nothing else.
const ENGINE: &str = r#"
case "$1" in
  version) echo 28.0.0 ;;
  info) echo NXOD:D27L ;;
  ps) ;;
  events) sleep 30 ;;
  pull)
    case "$*" in *withheld*)
      [ -e "$0.failed" ] && exec sleep 30
      touch "$0.failed"; echo "received unexpected HTTP status: 500" >&2; exit 1 ;;
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
