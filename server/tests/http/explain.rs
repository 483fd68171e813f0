//! Why a job is not running, over HTTP.

use std::sync::Arc;
use std::time::Duration;

use longshore_server::store::AttemptRow;
use protocol::report::Availability;
use protocol::report::Outcome;
use protocol::{AttemptNo, JobId, Revision, RuntimeKind, Timestamp, WorkerId};
use scheduler::definition::Definition;
use scheduler::explain::{Explanation, JobsBefore, Obstacle, PlacementVerdict, WorkerVerdict};
use scheduler::job::State;
use scheduler::limits::{LimitFacts, LimitId, LimitKind};
use scheduler::origin::Intervention;
use scheduler::pauses::PauseTarget;
use scheduler::placement::exclusion::Excluded;
use scheduler::placement::rules::{Condition, LabelRule};
use scheduler::reservation::ResourceKind;
use scheduler::step::{Note, PendingReason};
use serde_json::{Value, json};

use crate::support::Server;
use crate::support::facts::{attempt, change_worker, definitions, snapshot};

pub(crate) fn worker(id: u64, name: &str, verdict: PlacementVerdict) -> WorkerVerdict {
    WorkerVerdict {
        worker: WorkerId(id),
        name: name.into(),
        revoked_at: None,
        cordon: None,
        member: None,
        verdict,
    }
}

pub(crate) fn explanation(
    state: State,
    pending: Option<PendingReason>,
    workers: Vec<WorkerVerdict>,
) -> Explanation {
    let mut definition = Definition::clone(&definitions()[0].definition);
    let condition = Condition::In(vec!["a".to_owned()]);
    definition.placement.requires = vec![LabelRule { label: "gpu".to_owned(), condition }];
    Explanation {
        narrowing: None,
        state,
        pending,
        definition: Arc::new(definition),
        limits: Vec::new(),
        pauses: Vec::new(),
        before: None,
        lane_jobs: None,
        other_jobs: None,
        lane_has_all: false,
        aged_steps: None,
        parent: None,
        workers,
    }
}

#[tokio::test]
async fn a_condition_that_a_worker_does_not_meet_is_said_with_what_it_has() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    let obstacles = vec![Obstacle::NotListed, Obstacle::Requirement(0), Obstacle::Exclusive];
    let unable = PlacementVerdict::Unable(obstacles);
    let told = explanation(State::Queued, Some(PendingReason::NoMatch), vec![worker(1, "w1", unable)]);
    server.stand.world().explanation = Some(told);
    let mut facts = snapshot();
    change_worker(&mut facts, |worker| {
        worker.set_labels = vec![("exclusive".to_owned(), "team".to_owned())];
        worker.own_labels = vec![("gpu".to_owned(), "b".to_owned())];
    });
    server.snapshot.send_replace(Arc::new(facts));
    let why = server.get("/api/jobs/1/explain").await.json();
    assert_eq!(why["reason"]["code"], "no_match");
    let texts: Vec<&Value> =
        why["workers"][0]["obstacles"].as_array().expect("a list").iter().map(|it| &it["text"]).collect();
    assert_eq!(
        texts,
        [
            "the definition lists other workers: ",
            "needs gpu=a, has gpu=b",
            "it takes only jobs that require each of its exclusive labels: team"
        ]
    );
}

#[tokio::test]
async fn a_worker_that_may_fit_and_is_not_connected_is_named() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    let unfit = PlacementVerdict::Unable(vec![Obstacle::Requirement(0)]);
    let away = PlacementVerdict::Unable(vec![Obstacle::Offline, Obstacle::Cordoned]);
    let of_other_labels = PlacementVerdict::Unable(vec![Obstacle::Offline, Obstacle::Requirement(0)]);
    for (second, expected) in [
        (away, "no connected worker is allowed to run it; w2 may be, and is not connected"),
        (
            of_other_labels,
            "no connected worker is allowed to run it: its labels or name do not fit the definition, or it is too old for a key of it",
        ),
    ] {
        let workers = vec![worker(1, "w1", unfit.clone()), worker(2, "w2", second)];
        let told = explanation(State::Queued, Some(PendingReason::NoMatch), workers);
        server.stand.world().explanation = Some(told);
        let why = server.get("/api/jobs/1/explain").await.json();
        assert_eq!(why["reason"]["code"], "no_match");
        assert_eq!(why["reason"]["text"], expected);
    }
}

#[tokio::test]
async fn a_paused_job_is_told_by_which_pause_and_since_when() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    let mut told = explanation(State::Queued, Some(PendingReason::Paused), Vec::new());
    told.pauses = vec![
        (PauseTarget::Server, Timestamp(1_000).into()),
        (
            PauseTarget::Group("db-main".into()),
            Intervention { until: Some(Timestamp(7_000)), ..crate::reasons::of_anna(2_000) },
        ),
    ];
    server.stand.world().explanation = Some(told);
    let why = server.get("/api/jobs/1/explain").await.json();
    assert_eq!(why["reason"]["code"], "paused");
    assert_eq!(
        why["reason"]["text"],
        "the whole server is paused since 1970-01-01T00:00:01.000Z; the group db-main is paused since 1970-01-01T00:00:02.000Z until 1970-01-01T00:00:07.000Z by anna: disk swap"
    );
    assert_eq!(
        why["pauses"][1],
        json!({ "of": "group", "name": "db-main", "since": "1970-01-01T00:00:02.000Z", "until": "1970-01-01T00:00:07.000Z",
            "by": "anna", "reason": "disk swap" })
    );
}

#[tokio::test]
async fn each_worker_has_its_obstacles_to_a_waiting_job() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    let until = longshore_server::clock::now().up + Duration::from_secs(90);
    let excluded = [
        Obstacle::Excluded(Excluded::Revision(Revision(1)), Some(until)),
        Obstacle::Excluded(Excluded::Revision(Revision(1)), None),
    ];
    let unable = |obstacles: &[Obstacle]| PlacementVerdict::Unable(obstacles.to_vec());
    let told = explanation(
        State::Queued,
        Some(PendingReason::Busy),
        vec![
            worker(1, "w1", unable(&[Obstacle::RuntimeUnavailable, Obstacle::Busy])),
            worker(2, "w2", unable(&[Obstacle::PinnedElsewhere(WorkerId(1)), Obstacle::Offline])),
            worker(3, "", unable(&excluded)),
            worker(4, "w4", PlacementVerdict::Able),
            worker(5, "w5", PlacementVerdict::LastResort),
        ],
    );
    server.stand.world().explanation = Some(told);
    let mut facts = snapshot();
    let runtimes = vec![(RuntimeKind::Docker, Availability::Unavailable("no such socket".to_owned()))];
    change_worker(&mut facts, |worker| (worker.runtimes, worker.queued) = (runtimes, worker.backlog));
    server.snapshot.send_replace(Arc::new(facts));

    let why = server.get("/api/jobs/1/explain").await.json();
    assert_eq!((&why["id"], &why["name"], &why["state"]), (&json!(1), &json!("resize"), &json!("queued")));
    assert_eq!(why["reason"]["code"], "busy");
    assert_eq!(
        why["workers"][0],
        json!({ "worker": { "id": 1, "name": "w1" }, "verdict": "unable",
            "text": "its runtime docker does not work: no such socket; its slots (4) and its backlog (4) are taken",
            "obstacles": [
                { "code": "runtime_unavailable", "text": "its runtime docker does not work: no such socket" },
                { "code": "busy", "text": "its slots (4) and its backlog (4) are taken" },
            ] })
    );
    let codes: Vec<&Value> =
        why["workers"][1]["obstacles"].as_array().unwrap().iter().map(|it| &it["code"]).collect();
    assert_eq!(codes, ["pinned_elsewhere", "offline"]);
    let pinned = why["workers"][1]["obstacles"][0]["text"].as_str().unwrap();
    assert!(pinned.starts_with("the job may only run on w1: its last attempt was there"), "{pinned}");
    let excluded = &why["workers"][2]["obstacles"];
    let end = excluded[0]["until"].as_str().unwrap();
    assert!(excluded[0]["text"].as_str().unwrap().ends_with(&format!("until {end}")), "{excluded}");
    assert!(excluded[1]["text"].as_str().unwrap().ends_with("until it starts anew"), "{excluded}");
    assert_eq!(excluded[1].get("until"), None);
    let verdicts: Vec<&Value> = why["workers"].as_array().unwrap().iter().map(|it| &it["verdict"]).collect();
    assert_eq!(verdicts, ["unable", "unable", "unable", "able", "last_resort"]);
}

#[tokio::test]
async fn a_job_that_does_not_wait_in_line_has_a_reason_of_its_own() {
    let server = Server::start().await;
    for _ in 0..2 {
        server.post("/api/jobs/resize", "").await;
    }
    server.stand.world().start(1);
    server.stand.world().explanation =
        Some(explanation(State::Running, None, vec![worker(1, "w1", PlacementVerdict::Holding)]));
    let held = server.get("/api/jobs/1/explain").await.json();
    assert_eq!(held["reason"], json!({ "code": "running", "text": "it is running on w1, as its attempt 1" }));
    assert_eq!(held["workers"][0]["verdict"], "has_it");

    server.stand.world().record(2).row.state = State::Quarantined;
    server.stand.world().explanation =
        Some(explanation(State::Quarantined, Some(PendingReason::Quarantined), Vec::new()));
    assert_eq!(server.get("/api/jobs/2/explain").await.json()["reason"]["code"], "quarantined");

    server.stand.world().end(1, State::Failed, 3);
    let ended = server.get("/api/jobs/1/explain").await.json();
    assert_eq!(ended["reason"], json!({ "code": "ended", "text": "it has ended: failed, exit code 3" }));
    assert_eq!(ended["workers"], json!([]), "whatever the scheduler had said: nobody will take it any more");
    {
        let mut world = server.stand.world();
        let row = &mut world.record(1).row;
        (row.state, row.reason) = (State::Cancelled, "cancelled".to_owned());
    }
    let cancelled = server.get("/api/jobs/1/explain").await.json();
    assert_eq!(cancelled["reason"], json!({ "code": "ended", "text": "it has ended: cancelled" }));
    let note = Note::CancelRequested { by: "ann".to_owned() };
    server.stand.world().record(1).notes.push((Timestamp(9_000), note));
    let cancelled = server.get("/api/jobs/1/explain").await.json();
    assert_eq!(cancelled["reason"]["text"], "it has ended: cancelled, requested by ann");
    server.get("/api/jobs/9/explain").await.is_problem(404, "job_not_found");
    server.get("/api/jobs/1/explain?x=1").await.is_problem(400, "invalid_query");
    server.post("/api/jobs/1/explain", "").await.is_problem(405, "method_not_allowed");
}

#[tokio::test]
async fn a_job_pinned_to_a_disconnected_worker_has_that_reason() {
    let server = Server::start().await;
    for _ in 0..2 {
        server.post("/api/jobs/resize", "").await;
    }
    {
        let mut world = server.stand.world();
        for (job, holder) in [(1, 1), (2, 2)] {
            let row = &mut world.record(job).row;
            row.attempts = AttemptNo(1);
            row.attempt = Some(attempt(1, 100 + job));
            let last = row.attempt.as_mut().unwrap();
            (last.worker, last.ended_at) = (WorkerId(holder), Some(protocol::Timestamp(2_000)));
        }
    }
    let shown =
        async |job: u64| server.get(&format!("/api/jobs/{job}")).await.json()["pending_reason"].clone();
    let reason = async |job: u64| shown(job).await["code"].clone();
    assert_eq!(reason(1).await, "busy", "nobody is pinned to worker 1");
    assert_eq!(reason(2).await, "pinned_worker_away");
    server.stand.world().record(2).row.attempt.as_mut().unwrap().worker_name = "rack-2".into();
    let text =
        "it may only run on rack-2, which is not connected: its last attempt was there (retry.on: same)";
    assert_eq!(shown(2).await["text"], text);
    let away = vec![worker(2, "rack-2", PlacementVerdict::Unable(vec![Obstacle::Offline]))];
    server.stand.world().explanation =
        Some(explanation(State::Queued, Some(PendingReason::PinnedWorkerAway), away));
    assert_eq!(server.get("/api/jobs/2/explain").await.json()["reason"]["text"], text);
    server.stand.world().record(2).row.attempt.as_mut().unwrap().outcome = Some(Outcome::Lost);
    assert_eq!(reason(2).await, "busy", "who was lost there is not pinned to it");
}

#[tokio::test]
async fn an_excluded_worker_is_told_with_the_message_of_its_refusal() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    {
        let mut world = server.stand.world();
        let record = world.record(1);
        let refused = |number, worker, message: &str| AttemptRow {
            worker: WorkerId(worker),
            ended_at: Some(Timestamp(4_000)),
            outcome: Some(Outcome::Released),
            message: message.to_owned(),
            ..attempt(number, 100 + u64::from(number))
        };
        record.row.attempts = AttemptNo(3);
        record.row.attempt = Some(refused(3, 2, "the secret db is not there"));
        record.past = vec![refused(1, 1, "too old"), refused(2, 1, "the image evil:1 is not allowed")];
    }
    let unable = || PlacementVerdict::Unable(vec![Obstacle::Excluded(Excluded::Revision(Revision(1)), None)]);
    let workers = vec![worker(1, "w1", unable()), worker(2, "w2", unable()), worker(3, "w3", unable())];
    server.stand.world().explanation =
        Some(explanation(State::Queued, Some(PendingReason::Excluded), workers));
    let why = server.get("/api/jobs/1/explain").await.json();
    let text = |worker: usize| why["workers"][worker]["text"].as_str().expect("a text").to_owned();
    assert!(text(0).ends_with("; attempt 2 ended here: the image evil:1 is not allowed"), "{why}");
    assert!(text(1).ends_with("; attempt 3 ended here: the secret db is not there"), "{why}");
    assert!(text(2).ends_with("until it starts anew"), "{why}");
    assert_eq!(
        why["reason"]["text"], "the workers that could run it have refused it, or failed to start it",
        "an explanation does not point at itself"
    );
}

#[tokio::test]
async fn a_suspect_worker_is_told_with_the_thresholds() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    let obstacles = vec![Obstacle::Excluded(Excluded::Suspect, None), Obstacle::Probing];
    let unable = PlacementVerdict::Unable(obstacles);
    let told = explanation(State::Queued, Some(PendingReason::Excluded), vec![worker(1, "w1", unable)]);
    server.stand.world().explanation = Some(told);
    let why = server.get("/api/jobs/1/explain").await.json();
    let rule = "(a worker that fails to start jobs of 3 definitions in a row is suspect: it gets nothing for 1m 0s, twice as long after each failed probe, at most 1h 0m)";
    for obstacle in why["workers"][0]["obstacles"].as_array().expect("a list") {
        assert!(obstacle["text"].as_str().is_some_and(|text| text.ends_with(rule)), "{obstacle}");
    }
    assert!(why["estimate"].is_null() && why["before"].is_null(), "{why}");
}

#[tokio::test]
async fn a_worker_that_is_set_aside_says_for_which_job() {
    let server = Server::start().await;
    for _ in 0..2 {
        server.post("/api/jobs/resize", "").await;
    }
    let mut facts = snapshot();
    change_worker(&mut facts, |worker| worker.set_aside_for = Some(JobId(1)));
    server.snapshot.send_replace(Arc::new(facts));
    let text = async |obstacle, reason, job: u64| {
        let unable = PlacementVerdict::Unable(vec![obstacle]);
        let told = explanation(State::Queued, Some(reason), vec![worker(1, "w1", unable)]);
        server.stand.world().explanation = Some(told);
        let why = server.get(&format!("/api/jobs/{job}/explain")).await.json();
        why["workers"][0]["obstacles"][0].clone()
    };
    let passed = text(Obstacle::SetAside(JobId(1)), PendingReason::SetAside, 2).await;
    assert_eq!(passed["code"], "set_aside");
    assert_eq!(passed["text"], "it is set aside for job 1, which goes first once there is room for it");
    let first = text(Obstacle::Resources(ResourceKind::Cpus), PendingReason::Resources, 1).await;
    let told = first["text"].as_str().unwrap_or_default();
    assert!(
        told.ends_with("; it is set aside for this job: later ones get nothing that it needs"),
        "{first}"
    );

    assert_eq!(server.get("/api/workers").await.json()[0]["set_aside_for"], 1);
    let page = server.get("/workers/1").await.body;
    assert!(page.contains("Set aside for <a href=\"/jobs/1\">job 1</a>"), "{page}");
}

#[tokio::test]
async fn more_jobs_before_another_than_are_counted_are_told_as_such_and_give_no_estimate() {
    let server = Server::start().await;
    for job in 1..=5 {
        server.post("/api/jobs/resize", "").await;
        if job < 5 {
            server.stand.world().start(job);
            server.stand.world().end(job, State::Succeeded, 0);
        }
    }
    let id = LimitId { kind: LimitKind::Definition, name: "resize".into(), key: None };
    let limit = LimitFacts {
        id,
        permits: Some(1),
        rate: None,
        in_use: 1,
        waiting: 30_000,
        holders: vec![JobId(4)],
        next_start: None,
    };
    let waits = async |before| {
        server.stand.world().explanation = Some(Explanation {
            limits: vec![limit.clone()],
            before: Some(before),
            lane_jobs: Some(30_000),
            ..explanation(State::Queued, Some(PendingReason::Limited), Vec::new())
        });
        let page = server.get("/jobs/5").await.body;
        (server.get("/api/jobs/5/explain").await.json(), page)
    };
    let (why, page) = waits(JobsBefore::Exactly(10_000)).await;
    assert_eq!((&why["before"], &why["before_at_least"]), (&json!(10_000), &Value::Null), "{why}");
    assert!(why["estimate"]["wait_ms"].is_u64(), "{why}");
    assert!(page.contains("Position 10001 of 30000, among"), "{page}");

    let (why, page) = waits(JobsBefore::MoreThan(10_000)).await;
    assert_eq!((&why["before"], &why["before_at_least"]), (&json!(10_000), &json!(true)), "{why}");
    assert_eq!(why["estimate"], Value::Null, "{why}");
    let text = why["reason"]["text"].as_str().unwrap();
    assert!(text.ends_with("; more than 10000 jobs of its kind go before it"), "{text}");
    assert!(page.contains("Position beyond 10001 of 30000, among"), "{page}");
}
