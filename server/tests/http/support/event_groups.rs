//! Groups of changes for the feed of events, and what its readers are told.

use std::sync::Arc;

use longshore_server::store::Group;
use protocol::report::{Outcome, OutputLengths};
use protocol::{AttemptNo, Epoch, Fence, JobId, Nonce, Revision, SessionId, Timestamp, Token, WorkerId};
use scheduler::details::JobDetails;
use scheduler::ids::GroupNo;
use scheduler::job::State;
use scheduler::step::{AddedJob, Assigned, Change, ClosedAttempt, Ended};
use serde_json::Value;

use super::{Answered, Server, within};

/// The first group that the feed gets.
pub(crate) const FIRST: u64 = 11;

pub(crate) fn group(number: u64, changes: Vec<Change>) -> Arc<Group> {
    let (epoch, number) = (Epoch(3), GroupNo(number));
    Arc::new(Group { epoch, number, at: Timestamp(5_000), changes, ..Group::default() })
}

pub(crate) fn added(job: u64, revision: u128, batch: Option<u64>) -> Change {
    let details =
        JobDetails { labels: vec![("team".to_owned(), "blue".to_owned())], ..JobDetails::default() };
    Change::Added(AddedJob {
        narrowing: None,
        keys: None,
        job: JobId(job),
        revision: Revision(revision),
        state: State::Queued,
        priority: 5,
        created_at: Timestamp(1_000),
        due_at: Timestamp(1_000),
        timeout: None,
        batch: batch.map(JobId),
        retry_of: None,
        submitted_by: None,
        details: Some(Box::new(details)),
    })
}

pub(crate) fn token(job: u64) -> Token {
    Token { job: JobId(job), fence: Fence(100 + job), nonce: Nonce(7) }
}

pub(crate) fn assigned(job: u64) -> Change {
    Change::Assigned(Assigned {
        gpus: Default::default(),
        token: token(job),
        number: AttemptNo(1),
        worker: WorkerId(1),
        session: SessionId(1),
        at: Timestamp(2_000),
    })
}

pub(crate) fn started(job: u64) -> Change {
    Change::Started { token: token(job), at: Timestamp(3_000), container: "c1".to_owned() }
}

pub(crate) fn closed(job: u64, outcome: Outcome, exit_code: Option<i32>) -> ClosedAttempt {
    ClosedAttempt {
        token: token(job),
        outcome,
        exit_code,
        message: String::new(),
        started_at: Some(Timestamp(3_000)),
        ended_at: Timestamp(4_000),
        output: OutputLengths { stdout: 12, stderr: 0 },
        usage: Default::default(),
        result: None,
        released: None,
    }
}

pub(crate) fn ended(job: u64, state: State, closed: ClosedAttempt) -> Change {
    Change::Ended(Ended {
        job: JobId(job),
        state,
        at: Timestamp(4_001),
        reason: String::new(),
        closed: Some(closed),
        confirmed: false,
    })
}

/// A job from its acceptance to its success.
pub(crate) fn life(job: u64) -> Vec<Change> {
    vec![
        added(job, 1, None),
        assigned(job),
        started(job),
        ended(job, State::Succeeded, closed(job, Outcome::Succeeded, Some(0))),
    ]
}

/// Hands a group to the feed, and waits until its events are there.
pub(crate) async fn publish(server: &mut Server, group: Arc<Group>) {
    let number = group.number;
    server.event_sender.publish(Some(group), None);
    let arrived = async {
        while server.events.head().group < number {
            tokio::task::yield_now().await;
        }
    };
    within(arrived).await;
}

/// The events of an answer that has ended.
pub(crate) fn changes(answer: &Answered) -> Vec<Value> {
    assert_eq!((answer.status, answer.header("content-type")), (200, "text/event-stream"), "{answer:?}");
    let data = answer.body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

pub(crate) async fn kept(server: &Server, query: &str) -> Vec<Value> {
    changes(&server.get(&format!("/api/events?follow=0&tail=1000{query}")).await)
}

pub(crate) fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["kind"].as_str().unwrap()).collect()
}

pub(crate) fn ids(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["id"].as_str().unwrap()).collect()
}
