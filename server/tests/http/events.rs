//! `GET /api/events`: what each change becomes, filters, and resuming without gap or repeat.

use std::sync::Arc;
use std::time::Duration;

use longshore_server::events::READERS_MAX;
use longshore_server::store::{DefinitionHash, Group, StoredDefinition};
use protocol::report::Outcome;
use protocol::{JobId, Revision, Timestamp, WorkerId};
use scheduler::fleet::row::WorkerRow;
use scheduler::ids::GroupNo;
use scheduler::job::State;
use scheduler::origin::{Intervention, Origin};
use scheduler::pauses::{PauseChange, PauseTarget};
use scheduler::snapshot::WorkerState;
use scheduler::step::{Change, Note};
use serde_json::Value;

use crate::support::Server;
use crate::support::event_groups::{
    FIRST, added, assigned, changes, closed, ended, group, ids, kept, kinds, life, publish, started, token,
};
use crate::support::facts::{change_worker, snapshot, worker_row};

#[tokio::test]
async fn the_life_of_a_job_is_four_events_with_the_job_as_lists_show_it() {
    let mut server = Server::start().await;
    publish(&mut server, group(FIRST, life(7))).await;
    let events = kept(&server, "").await;
    assert_eq!(kinds(&events), ["job.accepted", "job.assigned", "job.started", "job.ended"]);
    assert_eq!(ids(&events), ["3.11.1", "3.11.2", "3.11.3", "3.11.4"]);
    let [accepted, assigned, _, ended] = events.as_slice() else { panic!("four") };
    assert_eq!(accepted["at"], "1970-01-01T00:00:01.000Z");
    let job = &accepted["job"];
    assert_eq!(
        (job["id"].as_u64(), job["name"].as_str(), job["state"].as_str()),
        (Some(7), Some("resize"), Some("queued"))
    );
    assert_eq!((job["priority"].as_i64(), job["labels"]["team"].as_str()), (Some(5), Some("blue")));
    assert_eq!(assigned["attempt"]["worker"]["name"], "w1");
    assert_eq!(assigned["job"]["worker"]["name"], "w1");
    let job = &ended["job"];
    assert_eq!((job["state"].as_str(), job["success"].as_bool()), (Some("succeeded"), Some(true)));
    assert_eq!((job["ran_ms"].as_u64(), job["exit_code"].as_i64()), (Some(1_000), Some(0)));
    assert_eq!(job["created_at"], "1970-01-01T00:00:01.000Z");
    assert_eq!(ended["attempt"]["output"]["stdout_bytes"], 12);
    assert!(!serde_json::to_string(&events).unwrap().contains("null"));
}

#[tokio::test]
async fn a_start_that_only_the_end_tells_is_an_event_before_it() {
    let mut server = Server::start().await;
    let mut changes = life(7);
    changes.retain(|change| !matches!(change, Change::Started { .. }));
    publish(&mut server, group(FIRST, changes)).await;
    let events = kept(&server, "").await;
    assert_eq!(kinds(&events), ["job.accepted", "job.assigned", "job.started", "job.ended"]);
    assert_eq!(events[2]["at"], "1970-01-01T00:00:03.000Z");
    assert_eq!(events[2]["job"]["state"], "running");
}

#[tokio::test]
async fn a_job_whose_start_only_the_end_told_waits_again() {
    let mut server = Server::start().await;
    let (failed, due_at) = (closed(1, Outcome::Failed, Some(1)), Timestamp(9_000));
    let waits = Change::AttemptClosed { job: JobId(1), closed: failed, due_at, state: State::Scheduled };
    publish(&mut server, group(FIRST, vec![added(1, 1, None), assigned(1), waits])).await;
    let events = kept(&server, "").await;
    assert_eq!(
        kinds(&events),
        ["job.accepted", "job.assigned", "job.started", "attempt.ended", "job.scheduled"]
    );
    let states = events[2..].iter().map(|event| event["job"]["state"].as_str().unwrap());
    assert_eq!(states.collect::<Vec<_>>(), ["running", "scheduled", "scheduled"]);
    assert_eq!(kinds(&kept(&server, "&state=running").await), ["job.started"]);
}

#[tokio::test]
async fn a_lost_attempt_is_an_event_of_its_own_whether_the_job_goes_on_or_not() {
    let mut server = Server::start().await;
    let waits = Change::AttemptClosed {
        job: JobId(1),
        closed: closed(1, Outcome::Lost, None),
        due_at: Timestamp(9_000),
        state: State::Scheduled,
    };
    let note = |job, note| Change::Noted { job: JobId(job), at: Timestamp(3_500), note };
    let mut all = vec![added(1, 1, None), assigned(1), started(1)];
    all.push(note(1, Note::Unreachable { token: token(1), worker: WorkerId(1) }));
    all.push(waits);
    all.push(note(1, Note::LateReport { token: token(1), worker: WorkerId(1), said: "exit 0".to_owned() }));
    all.push(Change::BecameDue { job: JobId(1) });
    all.extend([added(2, 3, None), assigned(2)]);
    all.push(ended(2, State::Lost, closed(2, Outcome::Lost, None)));
    publish(&mut server, group(FIRST, all)).await;
    let events = kept(&server, "&kind=attempt.*,job.scheduled,job.queued,job.ended").await;
    let expected = [
        "attempt.unreachable",
        "attempt.lost",
        "job.scheduled",
        "attempt.late_report",
        "job.queued",
        "attempt.lost",
        "job.ended",
    ];
    assert_eq!(kinds(&events), expected);
    assert_eq!(
        (events[1]["job"]["id"].as_u64(), events[1]["attempt"]["outcome"].as_str()),
        (Some(1), Some("lost"))
    );
    assert_eq!((events[3]["job_id"].as_u64(), events[3]["said"].as_str()), (Some(1), Some("exit 0")));
    let attempt = &events[3]["attempt"];
    assert_eq!((attempt["fence"].as_u64(), attempt["worker"]["name"].as_str()), (Some(101), Some("w1")));
    assert!(attempt.get("number").is_none() && attempt.get("assigned_at").is_none(), "unknown: {attempt}");
    assert_eq!(events[4]["job"]["due_at"], "1970-01-01T00:00:09.000Z");
    assert_eq!(events[4]["job"].get("worker"), None, "it has no attempt");
    assert_eq!(events[6]["job"]["name"], "backup");
}

#[tokio::test]
async fn a_large_batch_is_one_event_when_it_becomes_visible() {
    let mut server = Server::start().await;
    let batch = |job| added(job, 1, Some(5));
    publish(&mut server, group(FIRST, vec![added(1, 1, Some(1)), added(2, 3, Some(1))])).await;
    let pending = Change::PendingBatch { first: JobId(5), last: JobId(7) };
    publish(&mut server, group(FIRST + 1, vec![pending, batch(5), batch(6), added(20, 1, None)])).await;
    publish(&mut server, group(FIRST + 2, vec![batch(7), Change::BatchCompleted { first: JobId(5) }])).await;
    publish(&mut server, group(FIRST + 3, vec![assigned(6)])).await;
    let events = kept(&server, "").await;
    let expected = ["job.accepted", "job.accepted", "job.accepted", "batch.accepted", "job.assigned"];
    assert_eq!(kinds(&events), expected);
    assert_eq!(events[3]["batch"], serde_json::json!({ "batch": 5, "count": 3, "name": "resize" }));
    let of_batch = kept(&server, "&batch=5").await;
    assert_eq!(ids(&of_batch), ["3.13.1", "3.14.1"], "the members know their batch");
}

#[tokio::test]
async fn workers_definitions_and_pauses_have_events_and_heartbeats_have_none() {
    let mut server = Server::start().await;
    let later = WorkerRow { seen_at: Timestamp(60_000), ..worker_row(1, "w1") };
    let origin = Origin { by: "anna".into(), reason: Some("disk swap".into()) };
    let pause = Intervention { since: Timestamp(5_000), until: Some(Timestamp(9_000)), origin };
    let cordoned = WorkerRow { cordoned: true, cordon: Some(pause.clone()), ..later.clone() };
    let uncordoned = Change::CordonEnded { row: later.clone(), until: Timestamp(9_000) };
    let paused =
        Change::Paused { target: PauseTarget::Definition("resize".into()), pause: PauseChange::Set(pause) };
    let rows = vec![later, cordoned, worker_row(3, "w3")].into_iter().map(Change::Worker);
    let all =
        Change::Paused { target: PauseTarget::Schedules, pause: PauseChange::Set(Timestamp(5_000).into()) };
    let ended = |target, pause| Change::Paused { target, pause };
    let resumed = ended(PauseTarget::Schedules, PauseChange::Resumed { by: "bert".into() });
    let over = ended(PauseTarget::Definition("resize".into()), PauseChange::Ended(Timestamp(9_000)));
    let changes: Vec<Change> = rows.chain([paused, all, resumed, over, uncordoned]).collect();
    let definition = |revision| {
        let (name, entry) = ("resize".to_owned(), "{}".to_owned());
        Arc::new(StoredDefinition { revision: Revision(revision), name, entry })
    };
    let defined = |number, revision, changes| {
        let Group { epoch, at, .. } = *group(number, Vec::new());
        let definitions = vec![definition(revision)];
        let hash = DefinitionHash { revision: Revision(revision), all: Revision(revision) };
        let loaded = Some(Arc::new(std::iter::once(("resize".to_owned(), hash)).collect()));
        let number = GroupNo(number);
        Arc::new(Group { epoch, number, at, definitions, loaded, changes, ..Group::default() })
    };
    // The first reading of jobs.yaml changes nothing.
    publish(&mut server, defined(FIRST, 1, changes)).await;
    publish(&mut server, defined(FIRST + 1, 9, vec![Change::WorkerForgotten(WorkerId(3))])).await;
    let mut facts = snapshot();
    change_worker(&mut facts, |worker| worker.state = WorkerState::Unreachable);
    server.event_sender.publish(None, Some(Arc::new(facts)));
    publish(&mut server, group(FIRST + 2, vec![added(1, 9, None)])).await;
    let events = kept(&server, "").await;
    let expected = [
        "worker.changed",
        "worker.joined",
        "definition.paused",
        "schedule.paused",
        "schedule.resumed",
        "definition.resumed",
        "worker.changed",
        "definition.changed",
        "worker.forgotten",
        "worker.unreachable",
        "job.accepted",
    ];
    assert_eq!(kinds(&events), expected);
    assert_eq!(
        (events[0]["worker"]["cordoned"].as_bool(), events[1]["worker"]["name"].as_str()),
        (Some(true), Some("w3"))
    );
    let cordon = &events[0]["worker"]["cordon"];
    assert_eq!((&cordon["by"], &cordon["reason"]), (&"anna".into(), &"disk swap".into()));
    let pause = serde_json::json!({ "of": "definition", "name": "resize", "since": "1970-01-01T00:00:05.000Z",
        "until": "1970-01-01T00:00:09.000Z", "by": "anna", "reason": "disk swap" });
    assert_eq!(events[2]["pause"], pause);
    assert_eq!(events[3]["schedules"], serde_json::json!({}), "all of them");
    assert_eq!(events[4]["pause"], serde_json::json!({ "of": "schedules" }), "by an operator");
    assert_eq!((&events[4]["by"], &events[5]["by"]), (&"bert".into(), &serde_json::Value::Null));
    let end =
        serde_json::json!({ "of": "definition", "name": "resize", "until": "1970-01-01T00:00:09.000Z" });
    assert_eq!(events[5]["pause"], end, "by itself");
    assert_eq!(events[0]["cordon_ended"], serde_json::Value::Null);
    assert_eq!(events[6]["cordon_ended"], "1970-01-01T00:00:09.000Z", "by itself");
    assert_eq!(events[6]["worker"]["cordoned"], false);
    assert_eq!(events[7]["definition"]["name"], "resize");
    assert_eq!(events[8]["forgotten"], serde_json::json!({ "id": 3, "name": "w3" }));
    assert_eq!(events[9]["worker"]["state"], "unreachable");
    assert_eq!(ids(&events)[8..10], ["3.12.2", "3.12.3"], "a state of a worker follows the last group");
    let unreachable = kept(&server, "&state=unreachable&worker=w1").await;
    assert_eq!(kinds(&unreachable), ["worker.unreachable"]);
}

#[tokio::test]
async fn a_reader_gets_what_comes_and_resumes_without_gap_or_repeat() {
    let mut server = Server::start().await;
    publish(&mut server, group(FIRST, life(1))).await;
    let mut open = server.open("GET /api/events?kind=job.ended HTTP/1.1").await;
    open.until("id: 3.11.4\n").await;
    publish(&mut server, group(FIRST + 1, life(2))).await;
    open.until("id: 3.12.4\n").await;
    assert!(!open.seen.contains("id: 3.12.3"), "{}", open.seen);
    drop(open);
    publish(&mut server, group(FIRST + 2, life(3))).await;
    let resume = [("last-event-id", "3.12.4")];
    let again = server.ask("GET", "/api/events?follow=0&after=3.11.1", &resume, "").await;
    assert_eq!(ids(&changes(&again)), ["3.13.1", "3.13.2", "3.13.3", "3.13.4"], "the header wins");
    let after = server.get("/api/events?follow=0&after=3.12.3").await;
    assert_eq!(ids(&changes(&after))[..2], ["3.12.4", "3.13.1"]);
    let tail = server.get("/api/events?follow=0&tail=2&name=re*").await;
    assert_eq!(ids(&changes(&tail)), ["3.13.3", "3.13.4"]);
    let none = server.get("/api/events?follow=0").await;
    assert_eq!(changes(&none), Vec::<Value>::new());
    assert!(none.body.contains("id: 3.13.4\n"), "the position to go on from: {none:?}");
    let others = server.get("/api/events?follow=0&after=3.12.4&kind=worker.*").await;
    assert!(changes(&others).is_empty() && others.body.contains("id: 3.13.4\n"), "{others:?}");
}

#[tokio::test]
async fn events_that_are_gone_are_answered_410_with_the_id_to_go_on_behind() {
    let mut server = Server::start().await;
    // The server of these tests keeps 100 events.
    for number in 0..30 {
        publish(&mut server, group(FIRST + number, life(number + 1))).await;
    }
    for gone in ["3.10.0", "3.11.1", "3.15.3", "2.40.4", "3.41.1", "4.0.0"] {
        let answer = server.ask("GET", "/api/events", &[("last-event-id", gone)], "").await;
        let problem = answer.is_problem(410, "events_gone");
        assert_eq!(problem["last_event_id"], "3.40.4", "{gone}");
    }
    let kept = server.get("/api/events?follow=0&after=3.15.4").await;
    assert_eq!(changes(&kept).len(), 100);
}

#[tokio::test]
async fn a_summary_tells_how_many_events_there_were_and_never_ends() {
    let mut server = Server::start().await;
    publish(&mut server, group(FIRST, life(1))).await;
    let behind = |id| format!("/api/events?follow=0&summary=1&after={id}");
    let all = server.get(&behind("3.11.1")).await;
    assert_eq!(changes(&all), [serde_json::json!({ "events": 3 })]);
    assert!(all.body.contains("event: summary\nid: 3.11.4\n"), "{all:?}");
    let ended = server.get(&format!("{}&kind=job.ended", behind("3.11.1"))).await;
    assert_eq!(changes(&ended), [serde_json::json!({ "events": 1 })]);
    let none = server.get(&format!("{}&kind=job.ended", behind("3.11.4"))).await;
    assert_eq!(changes(&none), Vec::<Value>::new());
    let mut open = server.open("GET /api/events?summary=1&kind=job.ended HTTP/1.1").await;
    open.until("id: 3.11.4\n").await;
    for number in 1..30 {
        publish(&mut server, group(FIRST + number, life(number + 1))).await;
    }
    // Far more than the hundred events that are kept: a reader of all of them would have been dropped.
    open.until("event: summary\nid: 3.40.4\n").await;
    assert!(!open.seen.contains("gone"), "{}", open.seen);
    let unknown = server.get(&behind("2.40.4")).await;
    assert_eq!((unknown.status, changes(&unknown)), (200, Vec::new()), "it begins with the present");
}

#[tokio::test]
async fn a_wrong_parameter_is_named_with_what_is_near() {
    let server = Server::start().await;
    for (query, code, status, told) in [
        ("kind=job.endet", "invalid_query", 400, "did you mean \\\"job.ended\\\"?"),
        ("kind=zzz.*", "invalid_query", 400, "?kind"),
        ("name=resise", "unknown_name", 422, "resize"),
        ("state=runing", "invalid_state", 400, "ready, suspect, draining"),
        ("worker=nobody", "invalid_query", 400, "nobody"),
        ("batch=x", "invalid_query", 400, "?batch"),
        ("after=12", "invalid_query", 400, "3.120.4"),
        ("follow=maybe", "invalid_query", 400, "?follow"),
        ("kinds=job.ended", "invalid_query", 400, "did you mean \\\"kind\\\"?"),
    ] {
        let answer = server.get(&format!("/api/events?{query}")).await;
        answer.is_problem(status, code);
        assert!(answer.body.contains(told), "{query}: {}", answer.body);
    }
    let json = server.ask("GET", "/api/events", &[("accept", "application/json")], "").await;
    json.is_problem(406, "not_acceptable");
}

#[tokio::test]
async fn readers_are_limited_in_number_and_a_reader_that_leaves_makes_room() {
    let server = Server::start().await;
    let read = || server.events.read(None, longshore_server::events::EventFilter::default());
    let mut readers: Vec<_> = (0..READERS_MAX).map(|_| read().unwrap().unwrap()).collect();
    server.get("/api/events").await.is_problem(503, "busy");
    readers.pop();
    assert_eq!(server.get("/api/events?follow=0").await.status, 200);
    assert_eq!(server.events.readers(), READERS_MAX - 1);
}

#[tokio::test]
async fn a_reader_that_is_too_slow_is_told_and_dropped() {
    let mut server = Server::start().await;
    let mut reader =
        server.events.read(None, longshore_server::events::EventFilter::default()).unwrap().unwrap();
    for number in 0..30 {
        publish(&mut server, group(FIRST + number, life(number + 1))).await;
    }
    let gone = reader.next_selected().unwrap_err();
    assert_eq!((gone.after.to_string(), gone.head.to_string()), ("3.10.0".to_owned(), "3.40.4".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_tells_its_position_and_ends_at_shutdown() {
    use axum::body::{Body, HttpBody};
    use tower::ServiceExt;

    let server = Server::start().await;
    let request = axum::http::Request::get("/api/events?kind=worker.cloned").header("host", "localhost");
    let answer = server.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let mut body = Box::pin(answer.into_body());
    let mut next = async || {
        let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
        frame.map(|frame| String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).unwrap())
    };
    let first = next().await.unwrap();
    assert!(first.contains("id: 3.10.0\n") && first.contains("retry: 1000"), "{first}");
    let began = tokio::time::Instant::now();
    let heartbeat = next().await.unwrap();
    assert!(heartbeat.contains("id: 3.10.0\n") && !heartbeat.contains("data"), "{heartbeat}");
    assert!(began.elapsed() <= Duration::from_secs(16), "{:?}", began.elapsed());
    server.shutdown_inside.cancel();
    let last = next().await.unwrap();
    assert!(
        last.contains("event: leaving") && !last.contains("id:"),
        "an id stands for one event only: {last}"
    );
    assert_eq!(next().await, None);
}
