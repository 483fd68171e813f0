//! Jobs on several workers as the store has them, and what must hold for each change of one.

use std::collections::BTreeMap;

use protocol::report::Outcome;
use protocol::{JobId, Timestamp, WorkerId};
use scheduler::job::State;
use scheduler::run_on::{LiveParent, MemberPlan, MemberRow, ParentRow, WorkerUse};
use scheduler::step::{Assigned, Change, Ended};

use super::Disk;

/// Parents and members.
#[derive(Clone, Debug, Default)]
pub(super) struct Sets {
    parents: BTreeMap<JobId, ParentRow>,
    members: BTreeMap<JobId, MemberRow>,
    used: BTreeMap<(JobId, WorkerId), JobId>,
    /// Attempts of members that were not given back, by parent and worker: the member, and the number of its attempts there.
    places: BTreeMap<(JobId, WorkerId), (JobId, u32)>,
}

impl Disk {
    /// A parent or a member is new or has changed.
    ///
    /// # Errors
    /// The change contradicts the rows.
    pub(super) fn take_set(&mut self, change: &Change) -> Result<(), String> {
        match change {
            Change::Parent(row) => {
                if self.row(row.job).is_some_and(|job| job.state.has_ended()) {
                    return Err(format!("the row of parent {} changes after its end", row.job));
                }
                let before = self.sets.parents.insert(row.job, row.clone());
                let had_started = before.is_some_and(|before| before.started_at.is_some());
                if let Some(definition) = self.definition_of(row.job).filter(|_| !had_started)
                    && row.started_at.is_some()
                {
                    self.hooks.started(row.job, &definition);
                }
            }
            Change::Member(member) => {
                let parent = self.sets.parents.get(&member.parent);
                if parent.is_none_or(|parent| !parent.gets_members()) {
                    return Err(format!("I27 {member:?} is made for a parent that gets no further members"));
                }
                let is_twin = |it: &MemberRow| it.parent == member.parent && it.pinned == member.pinned;
                if member.pinned.is_some() && self.sets.members.values().any(is_twin) {
                    return Err(format!("I27 {member:?} is the second member for its worker"));
                }
                self.sets.members.insert(member.job, *member);
            }
            Change::WorkerUsed(of) => drop(self.sets.used.insert((of.parent, of.worker), of.member)),
            _ => {}
        }
        Ok(())
    }

    /// Members of a parent go to distinct workers, also one after the other. A parent goes to none.
    ///
    /// # Errors
    /// A sibling is or was there.
    pub(super) fn may_go(&mut self, assigned: &Assigned) -> Result<(), String> {
        let (job, worker) = (assigned.token.job, assigned.worker);
        if self.sets.parents.contains_key(&job) {
            return Err(format!("I27 parent {job} goes to worker {worker}"));
        }
        let Some(member) = self.sets.members.get(&job).copied() else { return Ok(()) };
        if member.pinned.is_some_and(|only| only != worker) {
            return Err(format!("I27 {member:?} goes to worker {worker}"));
        }
        let place = self.sets.places.entry((member.parent, worker)).or_insert((job, 0));
        if place.0 != job {
            return Err(format!(
                "I27 member {job} goes to worker {worker}, where its sibling {} is or was",
                place.0
            ));
        }
        place.1 += 1;
        Ok(())
    }

    /// An attempt of a member that was given back unstarted leaves its worker to the others.
    pub(super) fn leave_place(&mut self, change: &Change) {
        let closed = match change {
            Change::AttemptClosed { closed, .. } => closed,
            Change::Ended(Ended { closed: Some(closed), .. }) => closed,
            _ => return,
        };
        let job = closed.token.job;
        let worker = self.row(job).and_then(|row| row.latest.as_ref()).map(|latest| latest.worker);
        let member = self.sets.members.get(&job).filter(|_| closed.outcome == Outcome::Released);
        let (Some(worker), Some(member)) = (worker, member) else { return };
        let key = (member.parent, worker);
        if let Some(place) = self.sets.places.get_mut(&key).filter(|place| place.0 == job) {
            place.1 = place.1.saturating_sub(1);
            if place.1 == 0 {
                self.sets.places.remove(&key);
            }
        }
    }

    /// A parent ends after all of its members, and as succeeded only if all of them were made.
    ///
    /// # Errors
    /// A member has not ended, or was not made.
    pub(super) fn may_end(&self, job: JobId, state: State) -> Result<(), String> {
        let Some(parent) = self.sets.parents.get(&job) else { return Ok(()) };
        if state == State::Succeeded && !parent.has_all_members() {
            return Err(format!("I27 parent {job} succeeds without all of its members"));
        }
        match self.live_members(job).first() {
            Some(member) => Err(format!("I27 parent {job} ends before its member {member}")),
            None => Ok(()),
        }
    }

    /// The job runs in the place of a parent.
    pub(crate) fn is_member(&self, job: JobId) -> bool {
        self.sets.members.contains_key(&job)
    }

    /// The batch that limits how many of its jobs run, with its limit. A member counts as its parent.
    pub(crate) fn batch_limit(&self, job: JobId) -> Option<(JobId, usize)> {
        self.row(self.counted_as(job))?.limited_by
    }

    /// The job by which a batch knows this one.
    pub(crate) fn counted_as(&self, job: JobId) -> JobId {
        self.sets.members.get(&job).map_or(job, |member| member.parent)
    }

    /// The job is a member that one worker only may run.
    pub(crate) fn is_pinned(&self, job: JobId) -> bool {
        self.sets.members.get(&job).is_some_and(|member| member.pinned.is_some())
    }

    /// The job is a parent.
    pub(crate) fn is_parent(&self, job: JobId) -> bool {
        self.sets.parents.contains_key(&job)
    }

    /// The parent was cancelled.
    pub(super) fn is_cancelled_parent(&self, job: JobId) -> bool {
        self.sets.parents.get(&job).is_some_and(|parent| parent.cancelled_by.is_some())
    }

    /// Members of this parent that have not ended.
    pub(crate) fn live_members(&self, parent: JobId) -> Vec<JobId> {
        let is_live = |job: &JobId| self.row(*job).is_some_and(|row| !row.state.has_ended());
        let members = self.sets.members.values().filter(|member| member.parent == parent);
        members.map(|member| member.job).filter(is_live).collect()
    }

    /// A member that no worker of these may run: it is pinned to another one, or its siblings have them all.
    pub(crate) fn has_no_place(&self, job: JobId, workers: &[WorkerId]) -> bool {
        let Some(member) = self.sets.members.get(&job) else { return false };
        let excluded = match self.sets.parents.get(&member.parent).map(|parent| &parent.plan) {
            Some(MemberPlan::Count { except, .. }) => &except[..],
            _ => &[],
        };
        let is_open = |worker: &WorkerId| {
            let sibling =
                self.sets.places.get(&(member.parent, *worker)).is_some_and(|(there, _)| *there != job);
            !sibling && !excluded.contains(worker) && member.pinned.is_none_or(|only| only == *worker)
        };
        !workers.iter().any(is_open)
    }

    /// A success counts for the expectation of its definition, unless it is that of a member.
    pub(super) fn counts_as_success(&self, job: JobId) -> bool {
        !self.is_member(job)
    }

    /// The success of a parent, which has no attempt.
    pub(super) fn parent_succeeded(&mut self, job: JobId, at: Timestamp) {
        if let Some(definition) = self.definition_of(job).filter(|_| self.is_parent(job)) {
            let latest = self.successes.entry(definition.name.clone()).or_insert(at);
            *latest = at.max(*latest);
        }
    }

    /// The parents for a start of the server.
    pub(super) fn live_parents(&self) -> Vec<LiveParent> {
        let is_live = |job: JobId| self.row(job).is_some_and(|row| !row.state.has_ended());
        let live = self.sets.parents.values().filter(|row| is_live(row.job));
        live.map(|row| {
            let members = self.sets.members.values().filter(|member| member.parent == row.job);
            let members = members.filter(|member| !row.is_complete || is_live(member.job)).copied().collect();
            let used = self.sets.used.iter().filter(|((parent, _), _)| *parent == row.job);
            let used = used.map(|((parent, worker), member)| WorkerUse {
                parent: *parent,
                worker: *worker,
                member: *member,
            });
            LiveParent { row: row.clone(), members, used: used.collect() }
        })
        .collect()
    }

    fn definition_of(&self, job: JobId) -> Option<std::sync::Arc<scheduler::definition::Definition>> {
        self.definitions.get(&self.row(job)?.revision).cloned()
    }
}
