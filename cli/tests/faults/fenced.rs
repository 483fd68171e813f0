//! Jobs with `self_fence`: without contact to the server, the worker stops them in time, even if it was killed and restarted meanwhile.

use serde_json::json;

use crate::support::{Cluster, Process, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn worker_without_a_server_stops_self_fenced_jobs() {
    let cluster = cluster();
    let (mut server, worker) = (cluster.start_server(QUICK_LEASE).await, start(&cluster));
    let jobs = begin(&cluster).await;
    server.kill();
    assert_fenced_end(&cluster, jobs, worker).await;
    let left = ["patient", "count"].map(|name| truth(&cluster, &format!("{name}.pid")));
    drop(cluster);
    for pid in left {
        let place = std::path::PathBuf::from(format!("/proc/{}", pid.trim()));
        wait_until("a test leaves nothing behind", async || !place.exists()).await;
    }
}

/// The restarted worker cannot ask a server, so it relies on its state directory.
#[tokio::test(flavor = "multi_thread")]
async fn restarted_worker_without_a_server_stops_self_fenced_jobs() {
    let cluster = cluster();
    let (mut server, mut worker) = (cluster.start_server(QUICK_LEASE).await, start(&cluster));
    let jobs = begin(&cluster).await;
    server.kill();
    worker.kill();
    assert_fenced_end(&cluster, jobs, start(&cluster)).await;
}

/// The jobs end with this process if it is killed before it cleans up.
fn cluster() -> Cluster {
    Cluster::new(&JOBS.replace("TEST", &std::process::id().to_string()))
}

fn start(cluster: &Cluster) -> Process {
    cluster.start_worker("only", &["--no-docker", "--allow-process", "--slots", "3", "--on-term", "detach"])
}

/// A job with a short fence, a job with a long fence, and a job without one.
async fn begin(cluster: &Cluster) -> [u64; 3] {
    let api = cluster.api();
    let mut jobs = [0; 3];
    for (job, name) in jobs.iter_mut().zip(NAMES) {
        let body = json!({ "environment": { "TRUTH": cluster.path(name) } });
        *job = api.post(&format!("/api/jobs/{name}"), Some(&body)).await["id"].as_u64().unwrap();
    }
    for name in NAMES {
        wait_until("it has begun", async || truth(cluster, name) == "begun\n").await;
    }
    jobs
}

async fn assert_fenced_end(cluster: &Cluster, [pay, others @ ..]: [u64; 3], mut worker: Process) {
    wait_until("its worker has stopped it", async || truth(cluster, "pay") == "begun\nstopped\n").await;
    for name in ["patient", "count"] {
        assert_eq!(truth(cluster, name), "begun\n", "nobody wants {name} to stop now");
    }
    let _server = cluster.start_server(QUICK_LEASE).await;
    let api = cluster.api();
    let shown = api.wait_for_job(pay, |job| job["state"] == "succeeded").await;
    let attempts = shown["attempts"].as_array().unwrap();
    // The loss of contact is no job failure: only attempts that the server gave up are lost.
    assert_eq!((attempts.len(), &attempts[0]["outcome"]), (2, &json!("interrupted")), "{shown}");
    assert!(attempts[0]["message"].as_str().unwrap().contains("self_fence"), "{shown}");
    for job in others {
        let shown = api.get(&format!("/api/jobs/{job}")).await;
        assert_eq!((&shown["state"], &shown["attempt_count"]), (&json!("running"), &json!(1)), "{shown}");
    }
    worker.terminate().await;
}

fn truth(cluster: &Cluster, name: &str) -> String {
    std::fs::read_to_string(cluster.path(name)).unwrap_or_default()
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
