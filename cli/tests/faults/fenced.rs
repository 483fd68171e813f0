//! Jobs that must not run twice at once: where the server is gone, the worker itself stops them in time, also one that was killed
//! and started again meanwhile.

use serde_json::json;

use crate::support::{Process, Stage, holds};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_its_server_stops_what_must_not_outlive_that() {
    let stage = stage();
    let (mut server, worker) = (stage.server(QUICK_LEASE).await, start(&stage));
    let jobs = begin(&stage).await;
    server.kill();
    ends_as_it_should(&stage, jobs, worker).await;
    let left = ["patient", "count"].map(|name| truth(&stage, &format!("{name}.pid")));
    drop(stage);
    for pid in left {
        let place = std::path::PathBuf::from(format!("/proc/{}", pid.trim()));
        holds("a test leaves nothing behind", async || !place.exists()).await;
    }
}

/// There is nobody whom it could ask: what the process before it has kept is all that it knows.
#[tokio::test(flavor = "multi_thread")]
async fn so_does_one_that_was_killed_and_finds_no_server_when_it_is_back() {
    let stage = stage();
    let (mut server, mut worker) = (stage.server(QUICK_LEASE).await, start(&stage));
    let jobs = begin(&stage).await;
    server.kill();
    worker.kill();
    ends_as_it_should(&stage, jobs, start(&stage)).await;
}

/// Its jobs end with this process too, should it be killed before it can clean up.
fn stage() -> Stage {
    Stage::new(&JOBS.replace("TEST", &std::process::id().to_string()))
}

fn start(stage: &Stage) -> Process {
    stage.worker("only", &["--no-docker", "--allow-process", "--slots", "3", "--on-term", "detach"])
}

/// One that must not outlive the contact for long, one that must not do so for ever, and one that may.
async fn begin(stage: &Stage) -> [u64; 3] {
    let api = stage.api();
    let mut jobs = [0; 3];
    for (job, name) in jobs.iter_mut().zip(NAMES) {
        let body = json!({ "environment": { "TRUTH": stage.path(name) } });
        *job = api.post(&format!("/api/jobs/{name}"), Some(&body)).await["id"].as_u64().unwrap();
    }
    for name in NAMES {
        holds("it has begun", async || truth(stage, name) == "begun\n").await;
    }
    jobs
}

async fn ends_as_it_should(stage: &Stage, [pay, others @ ..]: [u64; 3], mut worker: Process) {
    holds("its worker has stopped it", async || truth(stage, "pay") == "begun\nstopped\n").await;
    for name in ["patient", "count"] {
        assert_eq!(truth(stage, name), "begun\n", "nobody wants {name} to stop now");
    }
    let _server = stage.server(QUICK_LEASE).await;
    let api = stage.api();
    let shown = api.job(pay, |job| job["state"] == "succeeded").await;
    let attempts = shown["attempts"].as_array().unwrap();
    // The server was away, and that is held against no job: only what the server itself gives up is lost.
    assert_eq!((attempts.len(), &attempts[0]["outcome"]), (2, &json!("interrupted")), "{shown}");
    assert!(attempts[0]["message"].as_str().unwrap().contains("self_fence"), "{shown}");
    for job in others {
        let shown = api.get(&format!("/api/jobs/{job}")).await;
        assert_eq!((&shown["state"], &shown["attempt_count"]), (&json!("running"), &json!(1)), "{shown}");
    }
    worker.leave().await;
}

fn truth(stage: &Stage, name: &str) -> String {
    std::fs::read_to_string(stage.path(name)).unwrap_or_default()
}

const NAMES: [&str; 3] = ["pay", "patient", "count"];
const QUICK_LEASE: &[&str] = &["--heartbeat", "500ms", "--lease", "3s"];
const JOBS: &str = r#"
version: 1
defaults:
  runtime: process
  command: [sh, -c, 'grep -qs stopped "$$TRUTH" && exit 0; trap "echo stopped >> $$TRUTH; exit 0" TERM; echo $$$$ > "$$TRUTH.pid"; echo begun >> "$$TRUTH"; while [ -d /proc/TEST ]; do sleep 0.1; done']
  stop_grace_period: 1s
jobs:
  pay: { self_fence: true, lost_after: 20s, lost_limit: 1 }
  patient: { self_fence: true }
  count: {}
"#;
