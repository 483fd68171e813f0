//! Explanations of members: of a batch with its own limit, and of a job on several workers.

use std::time::Duration;

use protocol::JobId;
use scheduler::explain::{Explanation, JobsBefore, Obstacle, PlacementVerdict, WorkerVerdict};
use scheduler::job::State;
use scheduler::limits::{LimitFacts, LimitId, LimitKind};
use scheduler::run_on::ParentFacts;
use scheduler::step::PendingReason;
use serde_json::{Value, json};

use crate::explain::{explanation, worker};
use crate::support::Server;

#[tokio::test]
async fn a_member_of_a_batch_with_its_own_concurrency_is_not_expected_earlier_than_that_allows() {
    let server = Server::start().await;
    for job in 1..=5 {
        server.post("/api/jobs/resize", "").await;
        if job < 5 {
            server.stand.world().start(job);
            server.stand.world().end(job, State::Succeeded, 0);
        }
    }
    let limit = |kind, permits, in_use| LimitFacts {
        id: LimitId { kind, name: "resize".into(), key: None },
        permits: Some(permits),
        rate: None,
        in_use,
        waiting: 10,
        holders: vec![JobId(4)],
        next_start: None,
    };
    let wait = async |limits: Vec<LimitFacts>| {
        server.stand.world().explanation = Some(Explanation {
            limits,
            before: Some(JobsBefore::Exactly(9)),
            lane_jobs: Some(10),
            ..explanation(State::Queued, Some(PendingReason::Limited), Vec::new())
        });
        server.get("/api/jobs/5/explain").await.json()["estimate"].clone()
    };
    let of_definition = limit(LimitKind::Definition, 10, 10);
    let alone = wait(vec![of_definition.clone()]).await;
    assert_eq!(alone["wait_ms"], 6_000, "{alone}");
    let with_batch = wait(vec![of_definition, limit(LimitKind::Batch, 2, 1)]).await;
    assert_eq!(with_batch["wait_ms"], 30_000, "{with_batch}");
    assert!(with_batch["text"].as_str().unwrap().contains("2 run at once"), "{with_batch}");
}

#[tokio::test]
async fn a_job_on_all_workers_says_which_of_them_have_a_member_and_what_it_waits_for() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    let workers = || {
        let with_member = WorkerVerdict {
            member: Some(JobId(2)),
            ..worker(1, "w1", PlacementVerdict::Unable(vec![Obstacle::Busy]))
        };
        let left_out = worker(2, "w2", PlacementVerdict::Unable(vec![Obstacle::Cordoned]));
        vec![with_member, left_out, worker(3, "w3", PlacementVerdict::Able)]
    };
    let explain = async |parent: ParentFacts| {
        let told = explanation(State::Queued, Some(PendingReason::Members), workers());
        server.stand.world().explanation = Some(Explanation { parent: Some(parent), ..told });
        server.get("/api/jobs/1/explain").await.json()
    };
    let parent = ParentFacts { is_complete: true, is_for_all: true, settling_until: None, total: 1 };
    let made = explain(parent).await;
    let text = made["reason"]["text"].as_str().unwrap();
    assert!(text.starts_with("none of its members has started yet"), "{made}");
    let verdicts: Vec<Value> =
        made["workers"].as_array().unwrap().iter().map(|it| json!([it["verdict"], it["text"]])).collect();
    assert_eq!(
        verdicts,
        [
            json!(["has_member", "its member is job 2"]),
            json!(["unable", "it is cordoned"]),
            json!(["unable", "the members were made before it could take one"]),
        ]
    );
    let until = longshore_server::clock::now().up + Duration::from_secs(20);
    let waits =
        explain(ParentFacts { is_complete: false, settling_until: Some(until), total: 0, ..parent }).await;
    let text = waits["reason"]["text"].as_str().unwrap();
    assert!(
        text.starts_with(
            "its members are made once workers that have just lost their connection are back, at 20"
        ),
        "{waits}"
    );
    assert_eq!(waits["workers"][2]["verdict"], "able");
    let being_made = explain(ParentFacts { is_complete: false, total: 0, ..parent }).await;
    assert_eq!(being_made["reason"]["text"], "its members are being made");
}
