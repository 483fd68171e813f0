//! Traces of jobs by the real program, to a collector that works, is away, hangs, or refuses. Built with the feature `otel` only.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

mod collector;
mod parents;
mod settings;
mod trouble;

use collector::Collector;
use serde_json::{Value, json};
use testkit::{Api, Cluster, Process};

const JOBS: &str = "
version: 1
defaults: { runtime: process }
jobs:
  # Fails once, then succeeds.
  flaky:
    command: [sh, -c, 'test -e $$MARK || { touch $$MARK; exit 3; }']
    params: { mark: { type: string, required: true } }
    environment: { MARK: '${params.mark}' }
    retry: { max: 1, backoff: { initial: 10ms } }
  fails: { command: [sh, -c, 'exit 4'], hooks: { on_failure: [tell] } }
  tell: { command: ['true'] }
  shows: { command: [sh, -c, 'echo parent $$TRACEPARENT state $$TRACESTATE'] }
  gated: { command: [sh, -c, 'while ! test -e $$GATE; do sleep 0.05; done'], environment: { GATE: '${params.gate}' }, params: { gate: { type: string, required: true } } }
  nowhere: { command: ['true'], requires: { rack: none } }
  everywhere: { command: ['true'], run_on: all }
";

/// A cluster whose server exports traces, with a worker.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) api: Api,
    pub(crate) server: Process,
    _worker: Process,
}

impl Stage {
    /// Starts a server with these variables.
    pub(crate) async fn start(environment: &[(String, String)]) -> Self {
        let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
        let server = start_server(&cluster, environment).await;
        let worker = cluster.start_worker("only", &["--no-docker", "--allow-process", "--slots", "4"]);
        let api = cluster.api();
        api.wait_for_ready_worker("only").await;
        Self { cluster, api, server, _worker: worker }
    }

    /// Makes a job, and waits for its end.
    pub(crate) async fn run(&self, name: &str, body: Option<&Value>) -> u64 {
        let job = self.api.post(&format!("/api/jobs/{name}"), body).await["id"].as_u64().unwrap();
        self.ended(job).await;
        job
    }

    pub(crate) async fn ended(&self, job: u64) -> Value {
        self.api.wait_for_job(job, |job| job["ended_at"].is_string()).await
    }
}

pub(crate) async fn start_server(cluster: &Cluster, environment: &[(String, String)]) -> Process {
    let mut spec = cluster.server_spec(&["--public-url", "https://jobs.example/"]);
    spec.environment.extend(environment.iter().cloned());
    let server = spec.start();
    cluster.api().wait_until_ready().await;
    server
}

/// Milliseconds since 1970 of a time in the API.
fn millis(time: &Value) -> u64 {
    let at: jiff::Timestamp = time.as_str().unwrap().parse().unwrap();
    at.as_millisecond().try_into().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_a_trace_with_its_waits_and_attempts() {
    let collector = Collector::start(collector::Answer::Ok).await;
    let stage = Stage::start(&[collector.endpoint()]).await;
    let body = json!({
        "params": { "mark": stage.cluster.path("planted-mark") },
        "environment": { "SECRET": "planted-value" },
        "input": { "key": "planted-input" },
        "args": ["planted-arg"],
    });
    let job = stage.run("flaky", Some(&body)).await;
    let (root, children) = collector.wait_for_job(job).await;
    let shown = stage.api.get(&format!("/api/jobs/{job}")).await;
    let attempt = |index: usize, field: &str| millis(&shown["attempts"][index][field]);
    assert_eq!(root.name, "job flaky");
    assert_eq!(root.times, (millis(&shown["created_at"]), millis(&shown["ended_at"])));
    assert_eq!((root.parent.as_str(), &root.error), ("", &None), "a trace of its own");
    for (name, value) in [
        ("longshore.job.name", "flaky"),
        ("longshore.job.state", "succeeded"),
        ("longshore.job.attempts", "2"),
        ("longshore.attempt.outcome", "succeeded"),
        ("process.exit.code", "0"),
        ("longshore.job.url", &format!("https://jobs.example/jobs/{job}")),
    ] {
        assert_eq!(root.attribute(name), Some(value), "{root:?}");
    }
    let names: Vec<&str> = children.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["wait", "attempt", "wait", "attempt"], "{children:?}");
    assert_eq!(children[0].times, (millis(&shown["created_at"]), attempt(0, "assigned_at")));
    assert_eq!(children[1].times, (attempt(0, "assigned_at"), attempt(0, "ended_at")));
    assert_eq!(children[2].times, (attempt(0, "ended_at"), attempt(1, "assigned_at")));
    assert_eq!(children[3].times, (attempt(1, "assigned_at"), attempt(1, "ended_at")));
    assert_eq!(children[1].error.as_deref(), Some("exit code 3"));
    assert_eq!(children[1].attribute("process.exit.code"), Some("3"));
    assert_eq!(children[1].attribute("longshore.worker.name"), Some("only"));
    assert_eq!(children[3].error, None);
    assert_eq!(children[3].events, [("started".to_owned(), attempt(1, "started_at"))]);
    assert!(children.iter().all(|span| span.trace == root.trace), "{children:?}");
    let mut ids: Vec<&str> = children.iter().chain([&root]).map(|span| span.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 5, "each span has its own id");
    let planted = collector.bytes().windows(7).any(|bytes| bytes == b"planted");
    assert!(!planted, "overrides and parameters are not in a span");
    assert!(collector.head().starts_with("post /v1/traces http/1.1\r\n"), "{}", collector.head());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_an_error_and_a_job_without_attempts_waits_until_its_end() {
    let collector = Collector::start(collector::Answer::Ok).await;
    let stage = Stage::start(&[collector.endpoint()]).await;
    let failed = stage.run("fails", None).await;
    let (root, _) = collector.wait_for_job(failed).await;
    assert_eq!(root.error.as_deref(), Some("exit 4"));
    assert_eq!(root.attribute("longshore.job.reason"), Some("exit 4"));
    let waiting = stage.api.post("/api/jobs/nowhere", None).await["id"].as_u64().unwrap();
    stage.api.post(&format!("/api/jobs/{waiting}/cancel"), None).await;
    let (root, children) = collector.wait_for_job(waiting).await;
    let [wait] = children.as_slice() else { panic!("{children:?}") };
    assert_eq!((wait.name.as_str(), wait.times), ("wait", root.times));
    assert_eq!((root.attribute("longshore.job.state"), &root.error), (Some("cancelled"), &None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_in_between_leaves_the_trace_whole() {
    let collector = Collector::start(collector::Answer::Ok).await;
    let mut stage = Stage::start(&[collector.endpoint()]).await;
    let gate = stage.cluster.path("gate");
    let body = json!({ "params": { "gate": gate } });
    let job = stage.api.post("/api/jobs/gated", Some(&body)).await["id"].as_u64().unwrap();
    stage.api.wait_for_job(job, |job| job["state"] == "running").await;
    stage.server.kill();
    stage.server = start_server(&stage.cluster, &[collector.endpoint()]).await;
    std::fs::write(&gate, "").unwrap();
    let shown = stage.ended(job).await;
    let (root, children) = collector.wait_for_job(job).await;
    assert_eq!(root.times, (millis(&shown["created_at"]), millis(&shown["ended_at"])));
    let names: Vec<&str> = children.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["wait", "attempt"], "{children:?}");
    assert_eq!(children[1].times.0, millis(&shown["attempts"][0]["assigned_at"]));
}
