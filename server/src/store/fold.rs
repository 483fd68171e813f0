//! Folding: all that a group does to one job becomes one write. Pure; knows nothing of any database.
//!
//! A job that was added and assigned in the same group is one insertion, one that started and ended is one update. What the row
//! must have been before is what the first of the changes expects; each further one is checked here against the one before it.
//!
//! A write never spans two attempts: when a job waits again, whatever comes after in the group is a write of its own. So a store
//! has to deal with one attempt at a time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use protocol::order::StopCause;
use protocol::{JobId, Timestamp, Token, WorkerId};
use scheduler::input::KeyHolder;
use scheduler::job::State;
use scheduler::step::{AddedJob, Assigned, Change, ClosedAttempt, Ended, Note, WorkerRow};

/// What a group does, in an order in which it can be carried out.
#[derive(Debug, Default)]
pub(super) struct Folded<'g> {
    /// Writes to jobs. Those of one job are in the order of its life.
    pub(super) writes: Vec<Write<'g>>,
    /// What people want to know about jobs.
    pub(super) notes: Vec<(JobId, Timestamp, &'g Note)>,
    /// Idempotency keys.
    pub(super) keys: Vec<(&'g str, KeyHolder, Timestamp)>,
    /// What is kept about workers.
    pub(super) workers: Vec<WorkerChange<'g>>,
}

/// What happens to what is kept about a worker.
#[derive(Debug)]
pub(super) enum WorkerChange<'g> {
    /// It is this from now on.
    Put(&'g WorkerRow),
    /// It is dropped from the list.
    Forget(WorkerId),
}

/// What happens to one row, during one attempt at most.
#[derive(Debug)]
pub(super) struct Write<'g> {
    pub(super) job: JobId,
    /// What the row must be before.
    pub(super) expected: Expected,
    pub(super) added: Option<&'g AddedJob>,
    pub(super) due: bool,
    pub(super) assigned: Option<&'g Assigned>,
    pub(super) started: Option<(Timestamp, &'g str)>,
    pub(super) stopping: Option<StopCause>,
    pub(super) waiting: Option<Waiting<'g>>,
    pub(super) ended: Option<&'g Ended>,
}

/// The attempt is over and its job waits again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting<'g> {
    pub(super) closed: &'g ClosedAttempt,
    pub(super) due_at: Timestamp,
    pub(super) state: State,
}

/// What a row must be for a write to be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// Nothing: the job is new.
    Absent,
    /// Scheduled.
    Scheduled,
    /// Queued.
    Queued,
    /// Without a current attempt: scheduled, queued or quarantined.
    Idle,
    /// Assigned to this attempt, whose container has not started.
    Unstarted(Token),
    /// Assigned to this attempt, or running it.
    Held(Token),
}

impl Expected {
    /// Whether a row in this state, with this current attempt, is as expected.
    pub(super) fn accepts(self, state: State, current: Option<Token>) -> bool {
        match self {
            Self::Absent => false,
            Self::Scheduled => state == State::Scheduled,
            Self::Queued => state == State::Queued,
            Self::Idle => matches!(state, State::Scheduled | State::Queued | State::Quarantined),
            Self::Unstarted(token) => state == State::Assigned && current == Some(token),
            Self::Held(token) => matches!(state, State::Assigned | State::Running) && current == Some(token),
        }
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Absent => f.write_str("no such job"),
            Self::Scheduled => f.write_str("scheduled"),
            Self::Queued => f.write_str("queued"),
            Self::Idle => f.write_str("no current attempt"),
            Self::Unstarted(token) => write!(f, "assigned to {token}"),
            Self::Held(token) => write!(f, "assigned to or running {token}"),
        }
    }
}

/// The job that a change is about, and what its row must be before; nothing if the change is not about a row of a job.
pub(super) fn expectation(change: &Change) -> Option<(JobId, Expected)> {
    Some(match change {
        Change::Added(added) => (added.job, Expected::Absent),
        Change::Assigned(assigned) => (assigned.token.job, Expected::Queued),
        Change::Started { token, .. } => (token.job, Expected::Unstarted(*token)),
        Change::Stopping { token, .. } => (token.job, Expected::Held(*token)),
        Change::Waiting { job, closed, .. } => (*job, Expected::Held(closed.token)),
        Change::Due { job } => (*job, Expected::Scheduled),
        Change::Ended(Ended { job, closed: Some(closed), .. }) => (*job, Expected::Held(closed.token)),
        Change::Ended(Ended { job, closed: None, .. }) => (*job, Expected::Idle),
        Change::Noted { .. } | Change::Keyed { .. } | Change::Worker(_) | Change::WorkerForgotten(_) => {
            return None;
        }
    })
}

/// Folds the changes of a group.
///
/// # Errors
/// A change contradicts an earlier one of the same group; says which.
pub(super) fn fold(changes: &[Change]) -> Result<Folded<'_>, String> {
    let mut folded = Folded { writes: Vec::with_capacity(changes.len()), ..Folded::default() };
    let mut latest: HashMap<JobId, usize> = HashMap::with_capacity(changes.len());
    for change in changes {
        match change {
            Change::Noted { job, at, note } => folded.notes.push((*job, *at, note)),
            Change::Keyed { key, holder, at } => folded.keys.push((key, *holder, *at)),
            Change::Worker(row) => folded.workers.push(WorkerChange::Put(row)),
            Change::WorkerForgotten(worker) => folded.workers.push(WorkerChange::Forget(*worker)),
            Change::Added(_)
            | Change::Assigned(_)
            | Change::Started { .. }
            | Change::Stopping { .. }
            | Change::Waiting { .. }
            | Change::Due { .. }
            | Change::Ended(_) => {
                let Some((job, expected)) = expectation(change) else { continue };
                let next = folded.writes.len();
                match latest.entry(job) {
                    Entry::Occupied(at) if folded.writes[*at.get()].waiting.is_none() => {
                        let write = &mut folded.writes[*at.get()];
                        write.check(expected)?;
                        if let (Expected::Held(_), Expected::Unstarted(_)) = (write.expected, expected) {
                            write.expected = expected;
                        }
                        write.take(change);
                    }
                    Entry::Occupied(mut at) => {
                        folded.writes[*at.get()].check(expected)?;
                        at.insert(next);
                        folded.writes.push(Write::first(job, expected, change));
                    }
                    Entry::Vacant(at) => {
                        at.insert(next);
                        folded.writes.push(Write::first(job, expected, change));
                    }
                }
            }
        }
    }
    Ok(folded)
}

impl<'g> Write<'g> {
    fn first(job: JobId, expected: Expected, change: &'g Change) -> Self {
        let mut write = Self {
            job,
            expected,
            added: None,
            due: false,
            assigned: None,
            started: None,
            stopping: None,
            waiting: None,
            ended: None,
        };
        write.take(change);
        write
    }

    fn take(&mut self, change: &'g Change) {
        match change {
            Change::Added(added) => self.added = Some(added),
            Change::Due { .. } => self.due = true,
            Change::Assigned(assigned) => self.assigned = Some(assigned),
            Change::Started { at, container, .. } => self.started = Some((*at, container)),
            // The cause recorded first wins.
            Change::Stopping { cause, .. } => self.stopping = self.stopping.or(Some(*cause)),
            Change::Waiting { closed, due_at, state, .. } => {
                self.waiting = Some(Waiting { closed, due_at: *due_at, state: *state });
            }
            Change::Ended(ended) => self.ended = Some(ended),
            Change::Noted { .. } | Change::Keyed { .. } | Change::Worker(_) | Change::WorkerForgotten(_) => {}
        }
    }

    /// Whether a change with this expectation can follow.
    fn check(&self, expected: Expected) -> Result<(), String> {
        let (state, current) = self.leads_to();
        if expected.accepts(state, current) {
            Ok(())
        } else {
            Err(format!("job {}: expected {expected}, but it is {} within its group", self.job, state.name()))
        }
    }

    /// The state of the row after this, and its current attempt.
    fn leads_to(&self) -> (State, Option<Token>) {
        if let Some(ended) = self.ended {
            return (ended.state, None);
        }
        if let Some(waiting) = self.waiting {
            return (waiting.state, None);
        }
        let before = match self.expected {
            Expected::Unstarted(token) | Expected::Held(token) => Some(token),
            Expected::Absent | Expected::Scheduled | Expected::Queued | Expected::Idle => None,
        };
        let current = self.assigned.map(|assigned| assigned.token).or(before);
        let state = match (self.started, current, self.added) {
            (Some(_), _, _) => State::Running,
            (None, Some(_), _) => State::Assigned,
            (None, None, Some(added)) if !self.due => added.state,
            (None, None, _) => State::Queued,
        };
        (state, current)
    }
}

#[cfg(test)]
mod tests {
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
            details: None,
        })
    }

    fn assigned(fence: u64) -> Change {
        Change::Assigned(Assigned {
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
            result: None,
            released: None,
        }
    }

    fn waiting(fence: u64) -> Change {
        let closed = closed(fence, Outcome::Lost);
        Change::Waiting { job: JOB, closed, due_at: Timestamp(9), state: State::Queued }
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
    fn a_whole_life_in_one_group_is_one_write() {
        let changes =
            [added(State::Queued), assigned(1), started(1), ended(Some(closed(1, Outcome::Succeeded)))];
        let folded = fold(&changes).unwrap();
        assert_eq!(folded.writes.len(), 1);
        let write = &folded.writes[0];
        assert_eq!(write.expected, Expected::Absent);
        assert!(
            write.added.is_some()
                && write.assigned.is_some()
                && write.started.is_some()
                && write.ended.is_some()
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
    fn a_successor_in_the_same_group_is_a_write_of_its_own() {
        let changes = [started(1), waiting(1), assigned(2), started(2)];
        let folded = fold(&changes).unwrap();
        let expected: Vec<_> = folded.writes.iter().map(|write| write.expected).collect();
        assert_eq!(expected, [Expected::Unstarted(token(1)), Expected::Queued]);
        assert!(folded.writes[1].started.is_some());
    }

    #[test]
    fn a_scheduled_job_that_became_due_can_be_assigned_in_the_same_group() {
        let changes = [added(State::Scheduled), Change::Due { job: JOB }, assigned(1)];
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
        ] {
            let refusal = fold(&changes).expect_err("a contradiction");
            assert!(refusal.contains("job 7: expected"), "{refusal}");
        }
    }

    #[test]
    fn the_cause_recorded_first_wins() {
        let stop = |cause| Change::Stopping { token: token(1), cause, at: Timestamp(1), by: String::new() };
        let changes = [stop(StopCause::Cancel), stop(StopCause::Timeout)];
        assert_eq!(fold(&changes).unwrap().writes[0].stopping, Some(StopCause::Cancel));
    }
}
