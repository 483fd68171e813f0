//! Folding: all that a group does to one job becomes one write. Pure; knows nothing of any database.
//!
//! A job that was added and assigned in the same group is one insertion, one that started and ended is one update. What the row
//! must have been before is what the first of the changes expects; each further one is checked here against the one before it.
//!
//! A write never spans two attempts: when a job waits again, whatever comes after in the group is a write of its own. So a store
//! has to deal with one attempt at a time.

mod expected;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use protocol::order::StopCause;
use protocol::{Fence, JobId, Timestamp, Token, WorkerId};
use scheduler::batches::{BatchLimits, NewBatch};
use scheduler::definition::Definition;
use scheduler::expectations::ExpectationRow;
use scheduler::fleet::row::WorkerRow;
use scheduler::hooks::HookRow;
use scheduler::input::KeyHolder;
use scheduler::job::State;
use scheduler::limits::LimitId;
use scheduler::origin::Intervention;
use scheduler::pauses::PauseTarget;
use scheduler::run_on::{MemberRow, ParentRow, WorkerUse};
use scheduler::schedules::{FireRow, ScheduleRow};
use scheduler::step::{AddedJob, Assigned, Change, ClosedAttempt, Ended, Note, Updated};
use scheduler::unique::{UniqueHolder, UniqueId};

pub(super) use expected::{Expected, expectation};

/// The writes of a group, in the order in which they are carried out.
#[derive(Debug, Default)]
pub(super) struct Folded<'g> {
    /// Writes to jobs. Those of one job are in the order of its life.
    pub(super) writes: Vec<JobWrite<'g>>,
    /// Writes beside the jobs' rows.
    pub(super) side_writes: Vec<SideWrite<'g>>,
    /// Idempotency keys.
    pub(super) keys: Vec<(&'g str, KeyHolder, Timestamp)>,
    /// Changes to the workers' rows.
    pub(super) workers: Vec<WorkerChange<'g>>,
    /// Schedules, pauses, slots and expectations, in their order.
    pub(super) schedules: Vec<ScheduleChange<'g>>,
    /// When each rate has recovered, after all starts of the group.
    pub(super) rates: BTreeMap<&'g LimitId, Timestamp>,
    /// The last holder of each unique key that changed.
    pub(super) unique: BTreeMap<&'g UniqueId, Option<UniqueHolder>>,
    /// The last row of each parent that changed.
    pub(super) parents: BTreeMap<JobId, &'g ParentRow>,
    /// Members that were made.
    pub(super) members: Vec<&'g MemberRow>,
    /// Workers where members have been.
    pub(super) used_workers: Vec<&'g WorkerUse>,
    /// Numbers that are left out.
    pub(super) gaps: Vec<SkippedNumbers>,
    /// Batches that begin here.
    pub(super) new_batches: Vec<&'g NewBatch>,
    /// Batches that somebody cancels here: the first member, the requester, and when it was.
    pub(super) cancelled_batches: Vec<(JobId, &'g str, Timestamp)>,
    /// Batches whose unique keys others take here: the first member, and the batch that has the key from here on.
    pub(super) replaced_batches: Vec<(JobId, JobId)>,
    /// Batches whose limits change here, with all of their limits.
    pub(super) changed_batches: Vec<(JobId, BatchLimits)>,
    /// Batches that end here: the first member, and when the last one ended.
    pub(super) ended_batches: Vec<(JobId, Timestamp)>,
    /// Large batches whose members are made from here on: the first and the last one.
    pub(super) pending_batches: Vec<(JobId, JobId)>,
    /// Large batches whose members are all made with this group: the first one.
    pub(super) completed_batches: Vec<JobId>,
}

/// Numbers of jobs that are left out, and the last fence that is.
#[derive(Clone, Copy, Debug)]
pub(super) struct SkippedNumbers {
    /// The last job before them.
    pub(super) after: JobId,
    /// The last of them.
    pub(super) until: JobId,
    pub(super) fence: Fence,
    pub(super) at: Timestamp,
}

/// A write that does not change the state of a job.
#[derive(Clone, Copy, Debug)]
pub(super) enum SideWrite<'g> {
    /// People want to know this about the job.
    Note(JobId, Timestamp, &'g Note),
    /// The attempt of a cancelled job is known to be gone.
    Confirmed(Token, WorkerId, Timestamp),
    /// The job expires then, or has no deadline any more.
    Expiry(JobId, Option<Timestamp>),
    /// A hook was decided.
    Hook(&'g HookRow),
    /// A job waits for another one, has learned how this one ended, or waits for no others any more.
    Dependency(&'g Change),
    /// A job takes parameters from the results of the jobs that it came after.
    ResultsTaken(JobId, &'g Definition),
}

/// A change to a worker's row.
#[derive(Debug)]
pub(super) enum WorkerChange<'g> {
    /// It is this from now on.
    Put(&'g WorkerRow),
    /// It is dropped from the list.
    Forget(WorkerId),
}

/// A change to what is kept by the name of a definition: schedules and expectations.
#[derive(Debug)]
pub(super) enum ScheduleChange<'g> {
    /// It is this from now on.
    Put(&'g ScheduleRow),
    /// A row of the ledger is this from now on.
    Fire(&'g FireRow),
    /// Jobs and schedules are paused, or not any more.
    Paused(&'g PauseTarget, Option<&'g Intervention>),
    /// An expectation is this from now on.
    Expectation(&'g ExpectationRow),
    /// Nothing is expected of this definition any more.
    ExpectationDropped(&'g str),
}

/// The write to one job's row. It spans one attempt at most.
#[derive(Debug)]
pub(super) struct JobWrite<'g> {
    pub(super) job: JobId,
    /// The state that the row must have before this write.
    pub(super) expected: Expected,
    pub(super) added: Option<&'g AddedJob>,
    pub(super) due: bool,
    pub(super) freed: bool,
    pub(super) assigned: Option<&'g Assigned>,
    pub(super) started: Option<(Timestamp, &'g str)>,
    pub(super) stopping: Option<StopCause>,
    pub(super) waiting: Option<Waiting<'g>>,
    /// A write with new values holds nothing else.
    pub(super) updated: Option<&'g Updated>,
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
            Change::ContainerGone { token, worker, at } => {
                folded.side_writes.push(SideWrite::Confirmed(*token, *worker, *at));
            }
            Change::Dependency(_) | Change::DependenciesDropped { .. } => {
                folded.side_writes.push(SideWrite::Dependency(change));
            }
            Change::ResultsTaken { job, definition } => {
                folded.side_writes.push(SideWrite::ResultsTaken(*job, definition));
            }
            Change::Hook(row) => folded.side_writes.push(SideWrite::Hook(row)),
            Change::Expiry { job, at } => folded.side_writes.push(SideWrite::Expiry(*job, *at)),
            Change::Noted { job, at, note } => folded.side_writes.push(SideWrite::Note(*job, *at, note)),
            Change::IdempotencyKeyStored { key, holder, at } => folded.keys.push((key, *holder, *at)),
            Change::NumbersSkipped { after, job, fence, at } => {
                folded.gaps.push(SkippedNumbers { after: *after, until: *job, fence: *fence, at: *at });
            }
            Change::BatchAdded(batch) => folded.new_batches.push(batch),
            Change::BatchReplaced { first, by } => folded.replaced_batches.push((*first, *by)),
            Change::BatchCancelled { first, by, at } => folded.cancelled_batches.push((*first, by, *at)),
            Change::BatchChanged { first, limits } => folded.changed_batches.push((*first, *limits)),
            Change::BatchEnded { first, at, .. } => folded.ended_batches.push((*first, *at)),
            Change::PendingBatch { first, last } => folded.pending_batches.push((*first, *last)),
            Change::BatchCompleted { first } => folded.completed_batches.push(*first),
            Change::Worker(row) | Change::CordonEnded { row, .. } => {
                folded.workers.push(WorkerChange::Put(row))
            }
            Change::WorkerForgotten(worker) => folded.workers.push(WorkerChange::Forget(*worker)),
            Change::Schedule(row) => folded.schedules.push(ScheduleChange::Put(row)),
            Change::Fire(row) => folded.schedules.push(ScheduleChange::Fire(row)),
            Change::Expectation(row) => folded.schedules.push(ScheduleChange::Expectation(row)),
            Change::ExpectationDropped { definition } => {
                folded.schedules.push(ScheduleChange::ExpectationDropped(definition));
            }
            Change::Paused { target, pause } => {
                folded.schedules.push(ScheduleChange::Paused(target, pause.in_force()));
            }
            Change::RateUsed(row) => drop(folded.rates.insert(&row.id, row.recovered)),
            Change::Parent(row) => drop(folded.parents.insert(row.job, row)),
            Change::Member(row) => folded.members.push(row),
            Change::WorkerUsed(of) => folded.used_workers.push(of),
            Change::Unique(row) => drop(folded.unique.insert(&row.id, row.holder)),
            Change::Added(_)
            | Change::Assigned(_)
            | Change::Started { .. }
            | Change::Stopping { .. }
            | Change::AttemptClosed { .. }
            | Change::BecameDue { .. }
            | Change::QuarantineReleased { .. }
            | Change::Updated(_)
            | Change::Ended(_) => {
                let Some((job, expected)) = expectation(change) else { continue };
                let next = folded.writes.len();
                match latest.entry(job) {
                    Entry::Occupied(at) if folded.writes[*at.get()].takes(change) => {
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
                        folded.writes.push(JobWrite::first(job, expected, change));
                    }
                    Entry::Vacant(at) => {
                        at.insert(next);
                        folded.writes.push(JobWrite::first(job, expected, change));
                    }
                }
            }
        }
    }
    Ok(folded)
}

impl<'g> JobWrite<'g> {
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
            updated: None,
            ended: None,
        };
        write.take(change);
        write
    }

    /// This change can become a part of this write.
    const fn takes(&self, change: &Change) -> bool {
        self.waiting.is_none() && self.updated.is_none() && !matches!(change, Change::Updated(_))
    }

    fn take(&mut self, change: &'g Change) {
        match change {
            Change::Updated(updated) => self.updated = Some(updated),
            Change::Added(added) => self.added = Some(added),
            Change::BecameDue { .. } => self.due = true,
            Change::QuarantineReleased { .. } => self.freed = true,
            Change::Assigned(assigned) => self.assigned = Some(assigned),
            Change::Started { at, container, .. } => self.started = Some((*at, container)),
            Change::Stopping { cause, .. } => self.stopping = Some(stop_cause(self.stopping, *cause)),
            Change::AttemptClosed { closed, due_at, state, .. } => {
                self.waiting = Some(Waiting { closed, due_at: *due_at, state: *state });
            }
            Change::Ended(ended) => self.ended = Some(ended),
            Change::ContainerGone { .. }
            | Change::Expiry { .. }
            | Change::Hook(_)
            | Change::Dependency(_)
            | Change::DependenciesDropped { .. }
            | Change::ResultsTaken { .. }
            | Change::Noted { .. }
            | Change::IdempotencyKeyStored { .. }
            | Change::NumbersSkipped { .. }
            | Change::BatchAdded(_)
            | Change::BatchCancelled { .. }
            | Change::BatchReplaced { .. }
            | Change::BatchChanged { .. }
            | Change::BatchEnded { .. }
            | Change::PendingBatch { .. }
            | Change::BatchCompleted { .. }
            | Change::Worker(_)
            | Change::CordonEnded { .. }
            | Change::WorkerForgotten(_)
            | Change::Schedule(_)
            | Change::Fire(_)
            | Change::Expectation(_)
            | Change::ExpectationDropped { .. }
            | Change::Paused { .. }
            | Change::Unique(_)
            | Change::Parent(_)
            | Change::Member(_)
            | Change::WorkerUsed(_)
            | Change::RateUsed(_) => {}
        }
    }

    /// Checks that a change with this expectation can follow this write.
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
        if let Some(updated) = self.updated {
            return (updated.state, None);
        }
        let before = match self.expected {
            Expected::Unstarted(token) | Expected::Held(token) => Some(token),
            Expected::Absent
            | Expected::Scheduled
            | Expected::Queued
            | Expected::Waiting
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
