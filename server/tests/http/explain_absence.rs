//! Why a job is not running: a worker that was revoked or is too small, and a definition that is gone.

use std::sync::Arc;

use protocol::Timestamp;
use scheduler::explain::{Obstacle, PlacementVerdict, WorkerVerdict};
use scheduler::job::State;
use scheduler::reservation::ResourceKind;
use scheduler::snapshot::WorkerState;
use scheduler::step::PendingReason;

use crate::explain::{explanation, worker};
use crate::support::Server;
use crate::support::facts::{change_worker, snapshot};

#[tokio::test]
async fn a_revoked_worker_is_said_to_be_revoked() {
    let server = Server::start().await;
    for _ in 0..2 {
        server.post("/api/jobs/resize", "").await;
    }
    server.stand.world().start(1);
    let mut facts = snapshot();
    let at = Timestamp(60_000);
    change_worker(&mut facts, |worker| {
        (worker.session, worker.state) = (None, WorkerState::Revoked);
        (worker.since, worker.revoked_at) = (at, Some(at));
    });
    server.snapshot.send_replace(Arc::new(facts));
    let listed = server.get("/api/jobs?state=running").await.json()[0].clone();
    let reason = &listed["pending_reason"];
    assert_eq!(reason["code"], "worker_unreachable");
    let text = reason["text"].as_str().unwrap();
    assert!(text.starts_with("its worker was revoked at 1970-01-01T00:01:00.000Z; about "), "{text}");
    assert!(text.ends_with("Z its attempt is given up, and the job is tried again"), "{text}");
    assert!(listed["worker_unreachable_since"].is_string(), "{listed}");

    // Until its attempts are lost, it counts as unreachable.
    for obstacle in [Obstacle::Unreachable, Obstacle::Offline] {
        let away = PlacementVerdict::Unable(vec![obstacle]);
        let revoked = WorkerVerdict { revoked_at: Some(at), ..worker(1, "w1", away) };
        server.stand.world().explanation =
            Some(explanation(State::Queued, Some(PendingReason::NoWorker), vec![revoked]));
        let why = server.get("/api/jobs/2/explain").await.json();
        assert_eq!(
            why["workers"][0]["text"],
            "it was revoked at 1970-01-01T00:01:00.000Z, and can only join as a new worker"
        );
    }

    let page = server.get("/workers/1").await.body;
    assert!(page.contains("1970-01-01T00:01:00.000Z") && page.contains("Revoked "), "{page}");
    for action in ["cordon", "uncordon", "drain", "revoke"] {
        assert!(!page.contains(&format!("/workers/1/{action}\"")), "{action}: {page}");
    }
}

#[tokio::test]
async fn a_waiting_job_without_a_definition_in_the_file_is_said_to_have_none() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    server.stand.world().explanation =
        Some(explanation(State::Queued, Some(PendingReason::Busy), Vec::new()));
    let reason = async || server.get("/api/jobs/1/explain").await.json()["reason"].clone();
    let before = reason().await;
    std::fs::write(&server.jobs_file, "jobs: { other: { image: x } }").expect("a place for jobs.yaml");
    assert_eq!(server.ask("POST", "/api/definitions/reload", &[], "").await.status, 200);
    let after = reason().await;
    assert_eq!(after["code"], "busy");
    let added = "; its definition is not in jobs.yaml any more, and the job keeps its revision: \
                 cancel it with 'longshore cancel 1', or put the definition back";
    assert_eq!(after["text"], format!("{}{added}", before["text"].as_str().expect("a text")));
    let shown = server.get("/api/jobs/1").await.json()["pending_reason"]["text"].clone();
    assert!(shown.as_str().is_some_and(|text| text.ends_with(added)), "{shown}");
}

#[tokio::test]
async fn too_little_memory_is_told_in_binary_units() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    let mut told = explanation(
        State::Queued,
        Some(PendingReason::TooLarge),
        vec![worker(1, "w1", PlacementVerdict::Unable(vec![Obstacle::TooLarge(ResourceKind::Memory)]))],
    );
    Arc::make_mut(&mut told.definition).container.resources.memory_bytes = Some(500 << 30);
    server.stand.world().explanation = Some(told);
    let mut facts = snapshot();
    change_worker(&mut facts, |worker| worker.offer.memory_bytes = Some(24 << 30));
    server.snapshot.send_replace(Arc::new(facts));
    let why = server.get("/api/jobs/1/explain").await.json();
    assert_eq!(
        why["workers"][0]["text"],
        "it offers too little memory (the job needs 500 GiB, it offers 24.0 GiB)"
    );
}
