//! A job whose attempt is on a worker and has not started.

use std::sync::Arc;

use protocol::report::Phase;
use protocol::{AttemptNo, JobId};
use scheduler::explain::PlacementVerdict;
use scheduler::job::State;

use crate::explain::{explanation, worker};
use crate::support::Server;
use crate::support::facts::{attempt, snapshot};

#[tokio::test]
async fn a_job_that_is_starting_tells_its_worker_its_age_and_its_phase() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    {
        let mut world = server.stand.world();
        let row = &mut world.record(1).row;
        let mut given = attempt(3, 101);
        given.started_at = None;
        (row.state, row.attempts, row.attempt) = (State::Assigned, AttemptNo(3), Some(given));
        world.explanation =
            Some(explanation(State::Assigned, None, vec![worker(1, "w1", PlacementVerdict::Holding)]));
    }
    for (phase, lead, step) in [
        (Phase::Unknown, "starting on w1 for ", "pulls its image or waits for Docker"),
        (Phase::Pulling { percent: Some(40), failures: 0 }, "starting on w1 for ", "pulls its image, 40 %"),
        (Phase::Starting, "starting on w1 for ", "waits for Docker"),
        (Phase::Backlog, "in the backlog of w1 for ", "waits for a slot there"),
    ] {
        let mut facts = snapshot();
        facts.phases = vec![(JobId(1), phase)];
        server.snapshot.send_replace(Arc::new(facts));
        let reason = &server.get("/api/jobs/1/explain").await.json()["reason"];
        assert_eq!(reason["code"], "assigned");
        let text = reason["text"].as_str().expect("a text");
        assert!(text.starts_with(lead) && text.ends_with(&format!(" ({step}), as its attempt 3")), "{text}");
        // The dashboard tells it, too.
        let page = server.get("/jobs").await.body;
        assert!(page.contains(lead) && page.contains(step), "{page}");
    }
    let listed = &server.get("/api/jobs").await.json()[0];
    assert_eq!(listed["assigned_at"], "1970-01-01T00:00:02.000Z");

    server.stand.world().start(1);
    assert!(server.get("/api/jobs").await.json()[0].get("assigned_at").is_none());
}
