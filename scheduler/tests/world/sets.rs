//! Rules of jobs on several workers, by the changes so far: lists that are searched from end to end, and nothing shared with the scheduler.
//!
//! - Attempts of two members of a parent are never given to the same worker, unless the first one was given back unstarted.
//! - A parent is never given to a worker. It ends once, after its last member, in the state that follows from theirs.
//! - Its row says how its members ended.
//! - Of a batch no more jobs are on workers than it allows. Members count in the batch of their parent.

use proptest::prelude::*;

use crate::world::protocol::report::Outcome;
use crate::world::protocol::{JobId, WorkerId};
use crate::world::scheduler::batches::NewBatch;
use crate::world::scheduler::job::State;
use crate::world::scheduler::run_on::{MemberPlan, MemberRow, ParentRow};
use crate::world::scheduler::step::{Change, ClosedAttempt};

#[derive(Debug, Default)]
pub(crate) struct Sets {
    /// The last row of each parent.
    parents: Vec<ParentRow>,
    members: Vec<MemberRow>,
    ended: Vec<(JobId, State)>,
    /// Members with the workers that they were given to and did not give back.
    places: Vec<(JobId, WorkerId)>,
    /// Places of present attempts where the member was before.
    returned: Vec<JobId>,
    batches: Vec<NewBatch>,
    /// Jobs with a present attempt.
    held: Vec<JobId>,
}

impl Sets {
    pub(crate) fn enter(&mut self, change: &Change) -> Result<(), TestCaseError> {
        match change {
            Change::Parent(row) => {
                prop_assert!(
                    self.end_of(row.job).is_none(),
                    "the row of parent {} changes after its end",
                    row.job
                );
                match self.parents.iter_mut().find(|parent| parent.job == row.job) {
                    Some(parent) => {
                        prop_assert_eq!(&parent.plan, &row.plan);
                        *parent = row.clone();
                    }
                    None => self.parents.push(row.clone()),
                }
            }
            Change::Member(member) => {
                let parent = self.parent(member.parent);
                prop_assert!(parent.is_some_and(ParentRow::gets_members), "{:?} is too much", member);
                prop_assert!(self.end_of(member.parent).is_none(), "{:?} comes after the end", member);
                let pinned = |it: &&MemberRow| it.parent == member.parent && it.pinned == member.pinned;
                let twin = self.members.iter().find(pinned).filter(|_| member.pinned.is_some());
                prop_assert!(twin.is_none(), "{:?} and {:?} are for one worker", twin, member);
                self.members.push(*member);
            }
            Change::Assigned(assigned) => {
                let (job, worker) = (assigned.token.job, assigned.worker);
                prop_assert!(self.parent(job).is_none(), "parent {job} is given to a worker");
                self.held.push(job);
                self.check_batch_of(job)?;
                let Some(member) = self.members.iter().find(|member| member.job == job).copied() else {
                    return Ok(());
                };
                prop_assert!(member.pinned.is_none_or(|only| only == worker), "{:?} on {}", member, worker);
                if let Some(MemberPlan::Count { except, .. }) = self.parent(member.parent).map(|it| &it.plan)
                {
                    prop_assert!(!except.contains(&worker), "{:?} on {}", member, worker);
                }
                let is_sibling = |other: JobId| {
                    other != job
                        && self.members.iter().any(|it| it.job == other && it.parent == member.parent)
                };
                let sibling = self.places.iter().find(|(other, on)| *on == worker && is_sibling(*other));
                prop_assert!(sibling.is_none(), "{:?} goes where {:?} is or was", member, sibling);
                match self.places.contains(&(job, worker)) {
                    true => self.returned.push(job),
                    false => self.places.push((job, worker)),
                }
            }
            Change::BatchAdded(batch) => self.batches.push(batch.clone()),
            Change::BatchChanged { first, limits } => {
                let batch = self.batches.iter_mut().find(|batch| batch.first == *first);
                batch.expect("it was added").options.concurrency = limits.concurrency;
            }
            Change::AttemptClosed { closed, .. } => self.leave(closed),
            Change::Ended(ended) => {
                if let Some(parent) = self.parent(ended.job) {
                    self.check_end(parent, ended.state)?;
                }
                self.ended.push((ended.job, ended.state));
                if let Some(closed) = &ended.closed {
                    self.leave(closed);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// An attempt has ended. One that was given back unstarted leaves its worker to the siblings, unless the member had been there before.
    fn leave(&mut self, closed: &ClosedAttempt) {
        let job = closed.token.job;
        self.held.retain(|held| *held != job);
        let was_there = self.returned.iter().position(|returned| *returned == job);
        if let Some(at) = was_there {
            self.returned.remove(at);
        } else if closed.outcome == Outcome::Released
            && let Some(at) = self.places.iter().rposition(|(held, _)| *held == job)
        {
            self.places.remove(at);
        }
    }

    /// As many jobs of the batch of this one are on workers as may be at once.
    fn check_batch_of(&self, job: JobId) -> Result<(), TestCaseError> {
        let parent_of = |job| self.members.iter().find(|it| it.job == job).map_or(job, |it| it.parent);
        let is_of = |batch: &NewBatch, job| {
            (batch.first.0..batch.first.0 + u64::from(batch.count)).contains(&parent_of(job).0)
        };
        for batch in self.batches.iter().filter(|batch| is_of(batch, job)) {
            let held = self.held.iter().filter(|held| is_of(batch, **held)).count();
            let max = batch.options.concurrency.map_or(usize::MAX, |max| max as usize);
            prop_assert!(held <= max, "{} jobs of {:?} are on workers", held, batch);
        }
        Ok(())
    }

    /// The row of each parent tells its members, at the end of each step.
    pub(crate) fn check_rows(&self) -> Result<(), TestCaseError> {
        for row in self.parents.iter().filter(|row| self.end_of(row.job).is_none()) {
            let members = self.members.iter().filter(|member| member.parent == row.job);
            prop_assert_eq!(row.counts.total as usize, members.clone().count(), "{:?}", row);
            let ends: Vec<State> = members.filter_map(|member| self.end_of(member.job)).collect();
            let ended = |state: State| ends.iter().filter(|it| **it == state).count();
            let told = [row.counts.succeeded, row.counts.failed, row.counts.cancelled];
            let found = [State::Succeeded, State::Failed, State::Cancelled].map(ended);
            prop_assert_eq!(told.map(|count| count as usize), found, "{:?}", row);
            prop_assert_eq!(row.counts.ended() as usize, ends.len(), "{:?}", row);
        }
        Ok(())
    }

    fn check_end(&self, parent: &ParentRow, state: State) -> Result<(), TestCaseError> {
        let members: Vec<&MemberRow> =
            self.members.iter().filter(|member| member.parent == parent.job).collect();
        let ends: Vec<State> = members.iter().filter_map(|member| self.end_of(member.job)).collect();
        prop_assert_eq!(ends.len(), members.len(), "parent {} ends before its members", parent.job);
        let has_started = parent.is_complete;
        match state {
            State::Succeeded => {
                let all = ends.iter().all(|end| *end == State::Succeeded);
                let is_whole = parent.has_all_members() && !ends.is_empty();
                prop_assert!(all && is_whole, "{:?} succeeded with {:?}", parent, ends);
            }
            State::Failed => {
                let is_bad = ends.is_empty() || ends.iter().copied().any(State::is_failure);
                prop_assert!(has_started && is_bad, "{:?} failed with {:?}", parent, ends);
            }
            State::Cancelled => {
                let is_asked = parent.cancelled_by.is_some() || !has_started;
                let none_failed = !ends.iter().copied().any(State::is_failure) && !ends.is_empty();
                prop_assert!(is_asked || none_failed, "{:?} was cancelled with {:?}", parent, ends);
            }
            _ => prop_assert!(false, "parent {} ended {}", parent.job, state.name()),
        }
        if let MemberPlan::Count { members: wanted, .. } = &parent.plan {
            let is_whole = parent.cancelled_by.is_some() || !has_started || members.len() == *wanted as usize;
            prop_assert!(is_whole, "{:?} has {} members", parent, members.len());
        }
        Ok(())
    }

    fn parent(&self, job: JobId) -> Option<&ParentRow> {
        self.parents.iter().find(|parent| parent.job == job)
    }

    fn end_of(&self, job: JobId) -> Option<State> {
        self.ended.iter().find(|(ended, _)| *ended == job).map(|(_, state)| *state)
    }
}
