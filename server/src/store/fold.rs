//! Folding: all that a group does to one job becomes one write. Pure; knows nothing of any database.
//!
//! A job that was added and assigned in the same group is one insertion, one that started and ended is one update. What the row
//! must have been before is what the first of the changes expects; each further one is checked here against the one before it.
//!
//! A write never spans two attempts: when a job waits again, whatever comes after in the group is a write of its own. So a store
//! has to deal with one attempt at a time.

mod expected;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use protocol::order::StopCause;
use protocol::{Fence, JobId, Timestamp, Token, WorkerId};
use scheduler::input::KeyHolder;
use scheduler::job::State;
use scheduler::step::{AddedJob, Assigned, Change, ClosedAttempt, Ended, Note, WorkerRow};

pub(super) use expected::{Expected, expectation};

/// What a group does, in an order in which it can be carried out.
#[derive(Debug, Default)]
pub(super) struct Folded<'g> {
    /// Writes to jobs. Those of one job are in the order of its life.
    pub(super) writes: Vec<Write<'g>>,
    /// What else is to be known about jobs.
    pub(super) remarks: Vec<Remark<'g>>,
    /// Idempotency keys.
    pub(super) keys: Vec<(&'g str, KeyHolder, Timestamp)>,
    /// What is kept about workers.
    pub(super) workers: Vec<WorkerChange<'g>>,
    /// Numbers that are left out.
    pub(super) gaps: Vec<Gap>,
    /// Large batches whose members are made from here on: the first and the last one.
    pub(super) forming: Vec<(JobId, JobId)>,
    /// Large batches whose members are all made with this group: the first one.
    pub(super) formed: Vec<JobId>,
}

/// Numbers of jobs that are left out, and the last fence that is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    /// The last job before them.
    pub(super) after: JobId,
    /// The last of them.
    pub(super) until: JobId,
    pub(super) fence: Fence,
    pub(super) at: Timestamp,
}

/// What changes nothing about a job's life.
#[derive(Clone, Copy, Debug)]
pub(super) enum Remark<'g> {
    /// People want to know this about the job.
    Note(JobId, Timestamp, &'g Note),
    /// The attempt of a cancelled job is known to be gone.
    Confirmed(Token, WorkerId, Timestamp),
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
    pub(super) freed: bool,
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

/// Why an attempt is being stopped after another cause was recorded: the first one stays, unless somebody cancels the job.
pub(super) fn stop_cause(before: Option<StopCause>, next: StopCause) -> StopCause {
    if next == StopCause::Cancel { next } else { before.unwrap_or(next) }
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
            Change::Confirmed { token, worker, at } => {
                folded.remarks.push(Remark::Confirmed(*token, *worker, *at));
            }
            Change::Noted { job, at, note } => folded.remarks.push(Remark::Note(*job, *at, note)),
            Change::Keyed { key, holder, at } => folded.keys.push((key, *holder, *at)),
            Change::Skipped { after, job, fence, at } => {
                folded.gaps.push(Gap { after: *after, until: *job, fence: *fence, at: *at });
            }
            Change::Forming { first, last } => folded.forming.push((*first, *last)),
            Change::Formed { first } => folded.formed.push(*first),
            Change::Worker(row) => folded.workers.push(WorkerChange::Put(row)),
            Change::WorkerForgotten(worker) => folded.workers.push(WorkerChange::Forget(*worker)),
            Change::Added(_)
            | Change::Assigned(_)
            | Change::Started { .. }
            | Change::Stopping { .. }
            | Change::Waiting { .. }
            | Change::Due { .. }
            | Change::Freed { .. }
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
            freed: false,
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
            Change::Freed { .. } => self.freed = true,
            Change::Assigned(assigned) => self.assigned = Some(assigned),
            Change::Started { at, container, .. } => self.started = Some((*at, container)),
            Change::Stopping { cause, .. } => self.stopping = Some(stop_cause(self.stopping, *cause)),
            Change::Waiting { closed, due_at, state, .. } => {
                self.waiting = Some(Waiting { closed, due_at: *due_at, state: *state });
            }
            Change::Ended(ended) => self.ended = Some(ended),
            Change::Confirmed { .. }
            | Change::Noted { .. }
            | Change::Keyed { .. }
            | Change::Skipped { .. }
            | Change::Forming { .. }
            | Change::Formed { .. }
            | Change::Worker(_)
            | Change::WorkerForgotten(_) => {}
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
            Expected::Absent
            | Expected::Scheduled
            | Expected::Queued
            | Expected::Quarantined
            | Expected::Idle => None,
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
mod tests;
