//! Pauses: what their answers tell, and where jobs, schedules and pages name them.

use std::sync::Arc;

use protocol::Timestamp;
use scheduler::explain::{Obstacle, PlacementVerdict};
use scheduler::job::State;
use scheduler::origin::{Intervention, Origin};
use scheduler::pauses::{PauseTarget, Pauses};
use scheduler::placement::narrowing::Narrowing;
use scheduler::placement::rules::WorkerSelector;
use scheduler::schedule::ScheduleId;
use scheduler::step::PendingReason;
use serde_json::{Value, json};

use crate::dashboard::form;
use crate::explain::{explanation, worker};
use crate::reasons::of_anna;
use crate::support::Server;
use crate::support::facts::snapshot;

/// A server that knows these pauses.
async fn server_with(pauses: impl IntoIterator<Item = (PauseTarget, Intervention)>) -> Server {
    let server = Server::start().await;
    pause(&server, pauses);
    server
}

fn pause(server: &Server, pauses: impl IntoIterator<Item = (PauseTarget, Intervention)>) {
    let pauses: Vec<_> = pauses.into_iter().collect();
    server.stand.world().schedules.paused = pauses.clone();
    let mut facts = snapshot();
    facts.pauses = Pauses::of(pauses).into();
    server.snapshot.send_replace(Arc::new(facts));
}

fn definition(name: &str) -> PauseTarget {
    PauseTarget::Definition(name.into())
}

fn group(name: &str) -> PauseTarget {
    PauseTarget::Group(name.into())
}

fn schedule(name: &str, id: &str) -> PauseTarget {
    PauseTarget::Schedule(name.into(), ScheduleId::named(id))
}

fn until(pause: Intervention, at: i64) -> Intervention {
    Intervention { until: Some(Timestamp(at)), ..pause }
}

/// The sentence about a pause of `resize` that is `of_anna(1_000)` until the ninth second.
const BY_ANNA: &str = "the definition resize is paused since 1970-01-01T00:00:01.000Z until 1970-01-01T00:00:09.000Z by anna: disk swap";

const PREFER: (&str, &str) = ("prefer", "wait=5, return=representation");

/// The targets of the other pauses that a resume tells.
async fn others_after(server: &Server, path: &str) -> Vec<String> {
    let answer = server.ask("POST", path, &[PREFER], "").await.json();
    let of = |pause: &Value| {
        let parts = ["of", "name", "schedule"].into_iter().filter_map(|key| pause[key].as_str());
        parts.collect::<Vec<_>>().join(" ")
    };
    answer["others"].as_array().into_iter().flatten().map(of).collect()
}

#[tokio::test]
async fn a_client_may_ask_which_pause_the_command_replaced() {
    let server = server_with([(definition("resize"), until(of_anna(1_000), 9_000))]).await;
    let headers = [PREFER, ("content-type", "application/json")];
    let path = "/api/definitions/resize/pause";
    let answer = server.ask("POST", path, &headers, r#"{"reason":" a  move "}"#).await;
    assert_eq!((answer.status, answer.header("preference-applied")), (200, "return=representation"));
    let former = json!({ "of": "definition", "name": "resize", "since": "1970-01-01T00:00:01.000Z",
        "until": "1970-01-01T00:00:09.000Z", "by": "anna", "reason": "disk swap" });
    let pause = json!({ "of": "definition", "name": "resize", "since": "1970-01-01T00:00:07.000Z",
        "reason": "a  move" });
    assert_eq!(answer.json(), json!({ "changed": true, "pause": pause, "former": former }));
    let resumed = server.ask("POST", "/api/definitions/resize/resume", &[PREFER], "").await.json();
    assert_eq!(resumed, json!({ "changed": true, "former": former }));
    let other = server.ask("POST", "/api/definitions/backup/resume", &[PREFER], "").await;
    assert_eq!((other.json(), other.header("pause-unchanged")), (json!({ "changed": false }), "true"));
    let unasked = server.ask("POST", path, &[], "").await;
    assert_eq!((unasked.status, unasked.body.as_str()), (204, ""));
}

#[tokio::test]
async fn a_resume_tells_the_pauses_that_still_hold_a_part_of_it() {
    let jobs = "jobs:
  report: {image: r, concurrency: {limit: 1, group: db}, schedule: [{id: day, cron: '0 0 * * *'}, {id: hour, cron: '0 * * * *'}]}
  plain: {image: r, concurrency: {limit: 1, group: db}}
  other: {image: r, schedule: {id: day, cron: '0 0 * * *'}}\n";
    let all = [
        PauseTarget::Server,
        PauseTarget::Schedules,
        group("db"),
        group("web"),
        definition("report"),
        definition("plain"),
        definition("other"),
        schedule("report", "day"),
        schedule("report", "hour"),
    ];
    let server = server_with(all.map(|target| (target, Timestamp(1).into()))).await;
    std::fs::write(&server.jobs_file, jobs).expect("a place for jobs.yaml");
    assert_eq!(server.ask("POST", "/api/definitions/reload", &[], "").await.status, 200);
    for (path, expected) in [
        (
            "/api/definitions/report/resume",
            &["server", "schedules", "group db", "schedule report day", "schedule report hour"][..],
        ),
        ("/api/definitions/plain/resume", &["server", "group db"]),
        (
            "/api/definitions/report/resume?schedule=day",
            &["server", "schedules", "group db", "definition report"],
        ),
        (
            "/api/schedules/resume",
            &[
                "server",
                "group db",
                "definition other",
                "definition report",
                "schedule report day",
                "schedule report hour",
            ],
        ),
        (
            "/api/resume?group=db",
            &[
                "server",
                "schedules",
                "definition plain",
                "definition report",
                "schedule report day",
                "schedule report hour",
            ],
        ),
        ("/api/resume?group=web", &["server"]),
    ] {
        assert_eq!(others_after(&server, path).await, expected, "{path}");
    }
    assert_eq!(others_after(&server, "/api/resume").await.len(), all_but_the_server(&server));
    assert!(others_after(&server, "/api/definitions/report/pause").await.is_empty(), "only a resume");
}

fn all_but_the_server(server: &Server) -> usize {
    server.snapshot.borrow().pauses.iter().count() - 1
}

#[tokio::test]
async fn a_job_of_a_paused_definition_names_the_pause() {
    let server = server_with([(definition("resize"), until(of_anna(1_000), 9_000))]).await;
    server.stand.world().pending = Some(PendingReason::Paused);
    let expected = json!({ "code": "paused", "text": BY_ANNA });
    let made = server.post("/api/jobs/resize", "").await.json();
    assert_eq!((&made["warning"], &made["pending_reason"]), (&expected, &expected));
    for (path, body) in [
        ("/api/jobs/resize", r#"{"count":2}"#),
        ("/api/jobs", r#"[{"name":"resize"},{"name":"backup"}]"#),
        ("/api/jobs", r#"[{"name":"backup"},{"name":"resize"}]"#),
    ] {
        assert_eq!(server.post(path, body).await.json()["warning"], expected, "{path} {body}");
    }
    server.stand.world().pending = Some(PendingReason::Soon);
    let mixed = r#"[{"name":"backup"},{"name":"resize"}]"#;
    assert_eq!(
        server.post("/api/jobs", mixed).await.json()["warning"],
        expected,
        "only the second is paused"
    );
    // The job itself waits for its members, or for its time, and the pause holds it back as well.
    for reason in [PendingReason::Members, PendingReason::NotDue] {
        server.stand.world().pending = Some(reason);
        assert_eq!(server.post("/api/jobs/resize", "").await.json()["warning"], expected, "{reason:?}");
        assert!(server.post("/api/jobs/backup", "").await.json().get("warning").is_none(), "{reason:?}");
    }
    server.stand.world().pending = Some(PendingReason::Paused);
    for (path, body) in
        [("/api/jobs/resize?require_worker=1", ""), ("/api/jobs?require_worker=1", r#"[{"name":"resize"}]"#)]
    {
        let refused = server.post(path, body).await.is_problem(503, "no_worker");
        assert_eq!(refused["detail"], BY_ANNA, "{path}");
        assert!(refused["hint"].as_str().unwrap().contains("leave require_worker out"), "{refused}");
    }

    let mut facts = snapshot();
    facts.waiting = vec![crate::support::facts::waiting(None, PendingReason::Paused, 5)];
    let origin = Origin { by: "anna".into(), reason: Some("x".repeat(300).into()) };
    let long = Intervention { origin, ..of_anna(1_000) };
    facts.pauses = Pauses::of([(PauseTarget::Server, long), (definition("resize"), of_anna(2_000))]).into();
    server.snapshot.send_replace(Arc::new(facts));
    let expected = format!(
        "the whole server is paused since 1970-01-01T00:00:01.000Z by anna: {}…; \
         the definition resize is paused since 1970-01-01T00:00:02.000Z by anna: disk swap",
        "x".repeat(80)
    );
    for shown in
        [server.get("/api/jobs/1").await.json(), server.get("/api/jobs?name=resize").await.json()[0].clone()]
    {
        assert_eq!(shown["pending_reason"]["text"], expected, "{shown}");
    }
}

#[tokio::test]
async fn an_explanation_names_the_pause_of_a_job_that_is_not_due() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", r#"{"run_at":"2037-03-01T09:30:00Z"}"#).await;
    server.stand.world().jobs[0].row.state = State::Scheduled;
    let workers = || vec![worker(1, "w1", PlacementVerdict::Able)];
    let mut told = explanation(State::Scheduled, Some(PendingReason::NotDue), workers());
    let explain = async |told: &_| {
        server.stand.world().explanation = Some(Clone::clone(told));
        let why = server.get("/api/jobs/1/explain").await.json();
        (why["reason"]["text"].as_str().unwrap().to_owned(), why["workers"][0]["text"].clone())
    };
    let (text, able) = explain(&told).await;
    assert!(text.starts_with("it is not due before ") && !text.contains(';'), "{text}");
    assert_eq!(able, "it could take the job, which waits for something else");

    told.pauses = vec![(definition("resize"), until(of_anna(1_000), 9_000))];
    let (text, able) = explain(&told).await;
    assert!(text.starts_with("it is not due before ") && text.ends_with(&format!("; {BY_ANNA}")), "{text}");
    assert_eq!(able, "it could take the job once the pause ends");

    server.stand.world().jobs[0].row.state = State::Queued;
    let soon = explanation(State::Queued, Some(PendingReason::Soon), workers());
    assert_eq!(explain(&soon).await.1, "it could take the job now");
    let running = explanation(State::Running, None, workers());
    assert_eq!(explain(&running).await.1, "it could take the job, which is placed already");
}

#[tokio::test]
async fn a_job_that_only_one_worker_may_run_names_it_and_its_obstacle() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    let unable = |obstacles: &[Obstacle]| PlacementVerdict::Unable(obstacles.to_vec());
    let told = |first, other| {
        let workers = vec![worker(1, "w1", first), worker(2, "w2", other)];
        explanation(State::Queued, Some(PendingReason::Busy), workers)
    };
    let headline = async |told| {
        server.stand.world().explanation = Some(told);
        server.get("/api/jobs/1/explain").await.json()["reason"]["text"].as_str().unwrap().to_owned()
    };
    let asked = Narrowing::new(vec![WorkerSelector::Name("w1".to_owned())], Vec::new());
    let mut by_job = told(unable(&[Obstacle::Busy]), unable(&[Obstacle::NotAskedFor]));
    by_job.narrowing = Some(Arc::new(asked.clone()));
    let expected = "this job asks for worker w1, which does not take it: its slots (4) are taken";
    assert_eq!(headline(by_job).await, expected);

    let pinned = told(unable(&[Obstacle::Busy]), unable(&[Obstacle::PinnedElsewhere(protocol::WorkerId(1))]));
    let expected = "it may only run on w1, which does not take it: its slots (4) are taken";
    assert_eq!(headline(pinned).await, expected);

    let mut by_definition = told(unable(&[Obstacle::Busy]), unable(&[Obstacle::NotListed]));
    Arc::make_mut(&mut by_definition.definition).placement.workers = asked.workers.clone();
    let expected = "its definition lists worker w1, which does not take it: its slots (4) are taken";
    assert_eq!(headline(by_definition).await, expected);

    let any = told(unable(&[Obstacle::Busy]), unable(&[Obstacle::Busy]));
    assert_eq!(headline(any).await, "all slots of the workers that could run it are taken");

    // Lists do not ask the workers.
    server.stand.world().jobs[0].row.narrowing = Some(Arc::new(asked.clone()));
    let mut facts = snapshot();
    let waiting = crate::support::facts::waiting(None, PendingReason::Busy, 1);
    facts.waiting = vec![scheduler::snapshot::Waiting { narrowing: Some(Arc::new(asked)), ..waiting }];
    server.snapshot.send_replace(Arc::new(facts));
    let shown = server.get("/api/jobs/1").await.json();
    assert_eq!(shown["pending_reason"]["text"], "this job asks for worker w1: all its slots are taken");
}

#[tokio::test]
async fn the_pages_of_definitions_tell_and_change_a_pause() {
    let server = server_with([
        (PauseTarget::Server, until(of_anna(1_000), 9_000)),
        (group("db"), of_anna(2_000)),
        (definition("resize"), until(of_anna(3_000), 8_000)),
    ])
    .await;
    let list = server.get("/definitions").await.body;
    for text in [
        "<p class=\"reason\">Pause of the whole server ",
        "1970-01-01T00:00:09.000Z",
        "<p class=\"reason\">Pause of the group db ",
        "1970-01-01T00:00:08.000Z",
        "<span class=\"muted\"> by anna: disk swap</span>",
        "Change the pause",
    ] {
        assert!(list.contains(text), "no {text} in {list}");
    }
    let page = server.get("/definitions/resize").await.body;
    assert!(page.contains("value=\"disk swap\"") && page.contains("Change the pause"), "{page}");
    let changed = form(&server, "/definitions/resize/pause", "reason=disk+swap&for=2h").await;
    assert_eq!((changed.status, changed.header("location")), (303, "/definitions/resize"));
    let target = definition("resize");
    assert_eq!(server.stand.world().pauses, [(target, true)]);
    assert!(server.stand.world().pause_ends[0].is_some());
}

#[tokio::test]
async fn a_form_changes_the_pause_that_it_shows_and_no_other() {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970");
    let end = i64::try_from(now.as_millis()).expect("a time of this age") + 3_600_000;
    let server = server_with([(definition("resize"), until(of_anna(3_000), end))]).await;
    let page = server.get("/definitions/resize").await.body;
    let hidden = |name: &str| {
        let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\"")).expect("a hidden field");
        rest.split('"').next().expect("a value").to_owned()
    };
    assert_eq!(hidden("since"), "1970-01-01T00:00:03.000Z");
    let shown = format!("since={}&until={}", hidden("since"), hidden("until"));
    let path = "/definitions/resize/pause";
    let changed = form(&server, path, &format!("{shown}&reason=other")).await;
    assert_eq!(changed.status, 303, "{changed:?}");
    assert_eq!(server.stand.world().pause_ends, [Some(Timestamp(end))], "the end stays");

    pause(&server, []);
    let ended = form(&server, path, &format!("{shown}&reason=third")).await;
    assert_eq!((ended.status, ended.header("location")), (303, "/definitions/resize"), "{ended:?}");
    assert_eq!(server.stand.world().pauses.len(), 1, "no new pause has begun");
}

#[tokio::test]
async fn a_schedule_that_its_definition_holds_has_no_dead_button() {
    let server = Server::start().await;
    let jobs = "jobs: {report: {image: r, schedule: [{id: day, cron: '0 0 * * *'}, {id: hour, cron: '0 * * * *'}]}}\n";
    std::fs::write(&server.jobs_file, jobs).expect("a place for jobs.yaml");
    assert_eq!(server.ask("POST", "/api/definitions/reload", &[], "").await.status, 200);
    let buttons = async || {
        let page = server.get("/definitions/report").await.body;
        let count = |text: &str| page.matches(text).count();
        (
            count("<button class=\"quiet\">Resume</button>"),
            count("<button class=\"quiet\">Pause</button>"),
            count("held by the pause of the definition report"),
        )
    };
    assert_eq!(buttons().await, (0, 2, 0));
    pause(&server, [(schedule("report", "day"), of_anna(1))]);
    assert_eq!(buttons().await, (1, 1, 0));
    pause(&server, [(definition("report"), of_anna(1))]);
    assert_eq!(buttons().await, (0, 2, 2), "a resume of a schedule would change nothing");
    pause(&server, [(definition("report"), of_anna(1)), (schedule("report", "day"), of_anna(1))]);
    assert_eq!(buttons().await, (1, 1, 2));
}
