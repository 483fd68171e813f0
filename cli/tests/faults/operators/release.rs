//! Release of a job that was quarantined, or whose attempt has an unknown outcome.

use std::time::Duration;

use protocol::order::{ReconcileVerdict, StopCause};
use protocol::report::{Availability, Condition, Numbered, OutputLengths, Started, Succeeded, Timing};
use protocol::{JobId, Order, Report, ReportNo, RuntimeKind, Token};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::peer::Peer;
use crate::support::{Api, Cluster};

#[tokio::test(flavor = "multi_thread")]
async fn released_job_has_a_fresh_lost_limit_after_a_kill() {
    let cluster = Cluster::new(JOBS);
    let mut server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let _workers = [cluster.start_worker("one", FAKE), cluster.start_worker("two", FAKE)];
    let job = api.post("/api/jobs/poison", None).await["id"].as_u64().unwrap();
    let held = api.wait_for_job(job, |job| job["state"] == "quarantined").await;
    assert_eq!(held["attempt_count"], 2, "{held}");
    let path = format!("/api/jobs/{job}/release");
    api.post(&path, None).await;
    server.kill();
    let _server = cluster.start_server(&[]).await;
    let held = api.wait_for_job(job, |job| job["state"] == "quarantined").await;
    assert_eq!(held["attempt_count"], 4, "two more losses were allowed: {held}");
    assert_eq!(events(&held, "released").len(), 1, "{held}");
    api.post(&format!("/api/jobs/{job}/cancel"), None).await;
    let late = api.request(Method::POST, &path, None, None).await.unwrap();
    assert_eq!((late.status, &late.body["state"]), (409, &json!("cancelled")), "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn attempt_on_a_silent_engine_gets_a_successor_only_after_release() {
    let cluster = Cluster::new(JOBS);
    let _server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let mut first = Peer::join(cluster.port(), "first", 1).await;
    let (job, old) = run(&api, &mut first).await;
    let path = format!("/api/jobs/{job}/release");
    let refused = api.request(Method::POST, &path, None, None).await.unwrap();
    assert_eq!((refused.status, &refused.body["code"]), (409, &json!("nothing_to_release")), "{refused:?}");
    let silent = vec![(RuntimeKind::Fake, Availability::Unavailable("it hangs".to_owned()))];
    first.say(&Report::Condition(Condition { runtimes: silent, slots: 1, draining: false })).await;
    api.wait_for_worker("first", |worker| worker["runtimes"][0]["available"] == false).await;
    let mut second = Peer::join(cluster.port(), "second", 2).await;
    api.post(&path, None).await;
    let stop = first.order(|order| matches!(order, Order::Cancel(_))).await;
    assert!(matches!(stop, Order::Cancel(it) if it.token == old && it.cause == StopCause::Superseded));
    let new = second.enqueued().await;
    assert!(new.job == JobId(job) && new.fence > old.fence);

    first.say(&Report::Success(Numbered { first: ReportNo(2), list: vec![success(old)] })).await;
    let shown =
        api.wait_for_job(job, |job| job["late_reports"].as_array().is_some_and(|all| !all.is_empty())).await;
    assert_eq!(shown["state"], "assigned", "{shown}");
    second.say(&Report::Success(Numbered { first: ReportNo(1), list: vec![success(new)] })).await;
    let shown = api.wait_for_job(job, |job| job["state"] == "succeeded").await;
    let outcomes: Vec<_> = shown["attempts"].as_array().unwrap().iter().map(|it| &it["outcome"]).collect();
    assert_eq!(outcomes, ["lost", "succeeded"], "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn release_of_a_job_that_waits_for_its_worker_is_final() {
    let cluster = Cluster::new(JOBS);
    let mut server = cluster.start_server(QUICK_LEASE).await;
    let api = cluster.api();
    let mut first = Peer::join(cluster.port(), "first", 1).await;
    let (job, old) = run(&api, &mut first).await;
    drop(first);
    api.wait_for_job(job, |job| job["worker_unreachable_since"].is_string()).await;
    let released = api.post(&format!("/api/jobs/{job}/release"), None).await;
    assert_eq!((&released["state"], &released["outcome"]), (&json!("queued"), &json!("lost")), "{released}");
    server.kill();
    let _server = cluster.start_server(QUICK_LEASE).await;
    let mut second = Peer::join(cluster.port(), "second", 2).await;
    let new = second.enqueued().await;
    assert!(new.job == JobId(job) && new.fence > old.fence);
    let (_first, verdicts) = Peer::join_with(cluster.port(), "first", 1, vec![old]).await;
    assert_eq!(verdicts, [(old, ReconcileVerdict::Stop)]);
    let shown = api.get(&format!("/api/jobs/{job}")).await;
    assert_eq!((&shown["state"], shown["attempt_count"].as_u64()), (&json!("assigned"), Some(2)), "{shown}");
}

/// A job with `on_lost: wait` runs on this worker.
async fn run(api: &Api, peer: &mut Peer) -> (u64, Token) {
    let job = api.post("/api/jobs/patient", None).await["id"].as_u64().unwrap();
    let token = peer.enqueued().await;
    let started = Started { token, container: String::new(), ago: Duration::ZERO };
    peer.say(&Report::Running(Numbered { first: ReportNo(1), list: vec![started] })).await;
    api.wait_for_job(job, |job| job["state"] == "running").await;
    (job, token)
}

fn success(token: Token) -> Succeeded {
    let (timing, output) = (Timing::default(), OutputLengths::default());
    Succeeded { token, timing, output, usage: Default::default(), result: None, note: None }
}

fn events<'j>(job: &'j Value, name: &str) -> Vec<&'j Value> {
    job["timeline"].as_array().unwrap().iter().filter(|event| event["event"] == name).collect()
}

/// The shortest lease that the server accepts.
const QUICK_LEASE: &[&str] = &["--heartbeat", "1s", "--lease", "10s"];
const FAKE: &[&str] = &["--no-docker", "--allow-fake"];
const JOBS: &str = "\
version: 1
jobs:
  poison: { runtime: fake, lost_limit: 2, environment: { FAKE_FAIL: host } }
  patient: { runtime: fake, lost_limit: 1, on_lost: wait }
";
