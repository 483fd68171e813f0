//! `GET /api/events`: what events say about attempts and expectations.

mod http_support;

use std::sync::Arc;

use http_support::{Server, within};
use longshore_server::store::Group;
use protocol::{AttemptNo, Epoch, Fence, JobId, Nonce, Revision, SessionId, Timestamp, Token, WorkerId};
use scheduler::expectations::{ExpectationRow, SlowRun};
use scheduler::input::GroupNo;
use scheduler::job::State;
use scheduler::step::{AddedJob, Assigned, Change, Note};
use serde_json::Value;

/// The first group that the feed gets.
const FIRST: u64 = 11;

fn group(number: u64, changes: Vec<Change>) -> Arc<Group> {
    let (epoch, number) = (Epoch(3), GroupNo(number));
    Arc::new(Group { epoch, number, at: Timestamp(5_000), changes, ..Group::default() })
}

fn added(job: u64) -> Change {
    Change::Added(AddedJob {
        keys: None,
        job: JobId(job),
        revision: Revision(1),
        state: State::Queued,
        priority: 5,
        created_at: Timestamp(1_000),
        due_at: Timestamp(1_000),
        timeout: None,
        batch: None,
        retry_of: None,
        details: None,
    })
}

fn token(job: u64) -> Token {
    Token { job: JobId(job), fence: Fence(100 + job), nonce: Nonce(7) }
}

fn assigned(job: u64) -> Change {
    Change::Assigned(Assigned {
        gpus: Default::default(),
        token: token(job),
        number: AttemptNo(1),
        worker: WorkerId(1),
        session: SessionId(1),
        at: Timestamp(2_000),
    })
}

/// Hands a group to the feed, and waits until its events are there.
async fn publish(server: &mut Server, group: Arc<Group>) {
    let number = group.number;
    server.event_sender.publish(Some(group), None);
    let arrived = async {
        while server.events.head().group < number {
            tokio::task::yield_now().await;
        }
    };
    within(arrived).await;
}

/// The kept events that a query selects.
async fn kept(server: &Server, query: &str) -> Vec<Value> {
    let answer = server.get(&format!("/api/events?follow=0&tail=1000{query}")).await;
    let data = answer.body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).expect("an event is JSON")).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["kind"].as_str()).collect()
}

#[tokio::test]
async fn an_event_about_the_current_attempt_has_its_number_and_times() {
    let mut server = Server::start().await;
    let late = Note::LateReport { token: token(1), worker: WorkerId(1), said: "started".to_owned() };
    let late = Change::Noted { job: JobId(1), at: Timestamp(3_500), note: late };
    let gone = Change::Confirmed { token: token(9), worker: WorkerId(1), at: Timestamp(3_600) };
    publish(&mut server, group(FIRST, vec![added(1), assigned(1), late, gone])).await;
    let events = kept(&server, "&kind=attempt.late_report,job.confirmed").await;
    let attempt = &events[0]["attempt"];
    assert_eq!((attempt["number"].as_u64(), events[0]["said"].as_str()), (Some(1), Some("started")));
    assert_eq!(attempt["assigned_at"], "1970-01-01T00:00:02.000Z");
    let attempt = &events[1]["attempt"];
    assert_eq!(attempt["fence"], 109);
    assert!(attempt.get("number").is_none() && attempt.get("assigned_at").is_none(), "unknown: {attempt}");
}

#[tokio::test]
async fn a_missed_expectation_is_an_event_once_until_it_is_met_again() {
    let mut server = Server::start().await;
    let row = |stale: Option<i64>, slow: Option<u64>| {
        Change::Expectation(ExpectationRow {
            definition: "backup".into(),
            awaited_since: Some(Timestamp(1_000)),
            stale_since: stale.map(Timestamp),
            slow: slow.map(|job| SlowRun { job: JobId(job), since: Timestamp(4_000) }),
        })
    };
    let changes = vec![
        row(None, None),
        row(Some(3_000), None),
        row(Some(3_000), None),
        row(Some(3_000), Some(7)),
        row(None, Some(7)),
        row(None, None),
    ];
    publish(&mut server, group(FIRST, changes)).await;
    let gone = Change::ExpectationDropped { definition: "backup".into() };
    publish(&mut server, group(FIRST + 1, vec![row(Some(3_000), None), gone, row(Some(3_000), None)])).await;
    let events = kept(&server, "&kind=expectation.*&name=backup").await;
    let expected = ["missed", "missed", "met", "missed", "missed"].map(|kind| format!("expectation.{kind}"));
    assert_eq!(kinds(&events), expected);
    assert_eq!(
        (&events[0]["name"], &events[0]["at"]),
        (&"backup".into(), &"1970-01-01T00:00:05.000Z".into())
    );
    assert_eq!(events[0]["expectation"]["condition"], "stale");
    assert_eq!(events[0]["expectation"]["stale_since"], "1970-01-01T00:00:03.000Z");
    let both = &events[1]["expectation"];
    assert_eq!((both["condition"].as_str(), both["slow_job"].as_u64()), (Some("stale, slow"), Some(7)));
    assert_eq!(events[2]["expectation"]["condition"], "met");
}
