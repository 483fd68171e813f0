//! Cancel of a job whose worker is unreachable: the job ends unconfirmed, until the worker returns and reports that the container is gone.

use std::time::Duration;

use protocol::order::ReconcileVerdict;
use protocol::report::{Failed, Numbered, Outcome, OutputLengths, Started, Timing};
use protocol::{Report, ReportNo, Token};
use serde_json::{Value, json};

use crate::support::peer::Peer;
use crate::support::{Api, Cluster};

#[tokio::test(flavor = "multi_thread")]
async fn cancel_is_confirmed_when_the_worker_reconnects_after_a_server_restart() {
    let cluster = Cluster::new(JOBS);
    let mut server = cluster.start_server(QUICK_LEASE).await;
    let api = cluster.api();
    let mut peer = Peer::join(cluster.port(), "first", 1).await;
    let told = run(&api, &mut peer, ReportNo(1)).await;
    let listed = run(&api, &mut peer, ReportNo(2)).await;
    let jobs = [told.job.0, listed.job.0];
    drop(peer);
    for job in jobs {
        api.wait_for_job(job, |job| job["worker_unreachable_since"].is_string()).await;
        api.post(&format!("/api/jobs/{job}/cancel"), None).await;
    }
    for job in jobs {
        let ended = api.wait_for_job(job, |job| job["state"] == "cancelled").await;
        assert_eq!((&ended["confirmed"], confirmations(&ended)), (&json!(false), 0), "{ended}");
    }
    let (_, shown) = cluster.run_cli(&["show", "--server", &cluster.address(), &told.job.to_string()]);
    assert!(shown.contains("confirmed    no"), "{shown}");
    server.kill();
    let _server = cluster.start_server(QUICK_LEASE).await;

    let (mut peer, verdicts) = Peer::join_with(cluster.port(), "first", 1, vec![told]).await;
    assert_eq!(verdicts, [(told, ReconcileVerdict::Stop)]);
    let shown = api.wait_for_job(jobs[1], |job| job["confirmed"] == true).await;
    assert_eq!((&shown["state"], confirmations(&shown)), (&json!("cancelled"), 1), "{shown}");
    let shown = api.get(&format!("/api/jobs/{}", jobs[0])).await;
    assert_eq!(shown["confirmed"], false, "it still runs: {shown}");

    for number in [3, 4] {
        peer.say(&Report::Failure(Numbered { first: ReportNo(number), list: vec![stopped(told)] })).await;
        let shown = api.wait_for_job(jobs[0], |job| job["confirmed"] == true).await;
        assert_eq!((&shown["state"], confirmations(&shown)), (&json!("cancelled"), 1), "{shown}");
    }
}

async fn run(api: &Api, peer: &mut Peer, first: ReportNo) -> Token {
    let job = api.post("/api/jobs/long", None).await["id"].as_u64().unwrap();
    let token = peer.enqueued().await;
    let started = Started { token, container: String::new(), ago: Duration::ZERO };
    peer.say(&Report::Running(Numbered { first, list: vec![started] })).await;
    api.wait_for_job(job, |job| job["state"] == "running").await;
    token
}

fn stopped(token: Token) -> Failed {
    Failed {
        token,
        outcome: Outcome::Cancelled,
        exit_code: Some(143),
        message: String::new(),
        timing: Timing::default(),
        output: OutputLengths::default(),
        usage: Default::default(),
    }
}

fn confirmations(job: &Value) -> usize {
    let timeline = job["timeline"].as_array().unwrap();
    timeline.iter().filter(|event| event["event"] == "cancel_confirmed").count()
}

const QUICK_LEASE: &[&str] = &["--heartbeat", "500ms", "--lease", "3s"];
const JOBS: &str = "\
version: 1
jobs:
  long: { runtime: fake, stop_grace_period: 1s, lost_after: 4s, on_lost: wait }
";
