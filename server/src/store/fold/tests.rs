//! Tests of folding: the writes of a group, and the contradictions within one.

use protocol::report::{Outcome, OutputLengths};
use protocol::{AttemptNo, Fence, Nonce, Revision, SessionId};

use super::*;

const JOB: JobId = JobId(7);

fn token(fence: u64) -> Token {
    Token { job: JOB, fence: Fence(fence), nonce: Nonce(fence * 10) }
}

fn added(state: State) -> Change {
    Change::Added(AddedJob {
        job: JOB,
        revision: Revision(1),
        state,
        priority: 0,
        created_at: Timestamp(0),
        due_at: Timestamp(0),
        timeout: None,
        batch: None,
        retry_of: None,
        submitted_by: None,
        narrowing: None,
        keys: None,
        details: None,
    })
}

fn assigned(fence: u64) -> Change {
    Change::Assigned(Assigned {
        gpus: Default::default(),
        token: token(fence),
        number: AttemptNo(1),
        worker: WorkerId(1),
        session: SessionId(1),
        at: Timestamp(1),
    })
}

fn started(fence: u64) -> Change {
    Change::Started { token: token(fence), at: Timestamp(2), container: "c".into() }
}

fn closed(fence: u64, outcome: Outcome) -> ClosedAttempt {
    ClosedAttempt {
        token: token(fence),
        outcome,
        exit_code: None,
        message: String::new(),
        started_at: None,
        ended_at: Timestamp(3),
        output: OutputLengths::default(),
        usage: Default::default(),
        result: None,
        released: None,
    }
}

fn waiting(fence: u64) -> Change {
    let closed = closed(fence, Outcome::Lost);
    Change::AttemptClosed { job: JOB, closed, due_at: Timestamp(9), state: State::Queued }
}

fn ended(closed: Option<ClosedAttempt>) -> Change {
    Change::Ended(Ended {
        job: JOB,
        state: State::Succeeded,
        at: Timestamp(3),
        reason: String::new(),
        closed,
        confirmed: true,
    })
}

#[test]
fn a_lifecycle_in_one_group_folds_into_one_write() {
    let changes = [added(State::Queued), assigned(1), started(1), ended(Some(closed(1, Outcome::Succeeded)))];
    let folded = fold(&changes).unwrap();
    assert_eq!(folded.writes.len(), 1);
    let write = &folded.writes[0];
    assert_eq!(write.expected, Expected::Absent);
    assert!(
        write.added.is_some() && write.assigned.is_some() && write.started.is_some() && write.ended.is_some()
    );
}

#[test]
fn started_and_ended_are_one_update_that_expects_what_the_start_expected() {
    let changes = [started(1), ended(Some(closed(1, Outcome::Succeeded)))];
    let folded = fold(&changes).unwrap();
    assert_eq!(folded.writes.len(), 1);
    assert_eq!(folded.writes[0].expected, Expected::Unstarted(token(1)));
}

#[test]
fn a_start_after_a_stop_request_expects_an_unstarted_row() {
    let stop =
        Change::Stopping { token: token(1), cause: StopCause::Cancel, at: Timestamp(1), by: String::new() };
    let changes = [stop, started(1)];
    assert_eq!(fold(&changes).unwrap().writes[0].expected, Expected::Unstarted(token(1)));
}

#[test]
fn a_successor_in_the_same_group_is_a_write_of_its_own() {
    let changes = [started(1), waiting(1), assigned(2), started(2)];
    let folded = fold(&changes).unwrap();
    let expected: Vec<_> = folded.writes.iter().map(|write| write.expected).collect();
    assert_eq!(expected, [Expected::Unstarted(token(1)), Expected::Queued]);
    assert!(folded.writes[1].started.is_some());
}

#[test]
fn a_scheduled_job_that_became_due_can_be_assigned_in_the_same_group() {
    let changes = [added(State::Scheduled), Change::BecameDue { job: JOB }, assigned(1)];
    assert_eq!(fold(&changes).unwrap().writes.len(), 1);
    let too_early = [added(State::Scheduled), assigned(1)];
    assert!(fold(&too_early).is_err());
}

#[test]
fn contradictions_within_a_group_are_refused() {
    let over = ended(Some(closed(1, Outcome::Succeeded)));
    for changes in [
        vec![added(State::Queued), added(State::Queued)],
        vec![assigned(1), assigned(2)],
        vec![assigned(1), started(2)],
        vec![started(1), started(1)],
        vec![started(1), over.clone(), started(1)],
        vec![over.clone(), over.clone()],
        vec![assigned(1), ended(None)],
        vec![waiting(1), started(1)],
        vec![waiting(1), Change::QuarantineReleased { job: JOB }],
    ] {
        let refusal = fold(&changes).expect_err("a contradiction");
        assert!(refusal.contains("job 7: expected"), "{refusal}");
    }
}

#[test]
fn the_cause_recorded_first_wins_unless_a_cancel_comes_later() {
    let stop = |cause| Change::Stopping { token: token(1), cause, at: Timestamp(1), by: String::new() };
    let changes = [stop(StopCause::Cancel), stop(StopCause::Timeout)];
    assert_eq!(fold(&changes).unwrap().writes[0].stopping, Some(StopCause::Cancel));
    let changes = [stop(StopCause::Drain), stop(StopCause::Timeout)];
    assert_eq!(fold(&changes).unwrap().writes[0].stopping, Some(StopCause::Drain));
    let changes = [stop(StopCause::Drain), stop(StopCause::Cancel)];
    assert_eq!(fold(&changes).unwrap().writes[0].stopping, Some(StopCause::Cancel));
}
