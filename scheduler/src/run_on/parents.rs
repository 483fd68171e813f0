//! The table of parents that have not ended: their members, where those are and have been, and what is to be done next.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use protocol::{JobId, Uptime, WorkerId};

use super::{LeftOut, LiveParent, MemberPlan, MemberRow, ParentRow, RunOnRole, WorkerUse};
use crate::limits::keys::JobKeys;
use crate::state::State;

/// All parents that have not ended.
#[derive(Debug, Default)]
pub struct Parents {
    live: BTreeMap<JobId, Parent>,
    /// Parents whose members are being made.
    making: BTreeSet<JobId>,
    /// Those of them that have no member which has not ended. Each gets one also beyond the limit of jobs: else parents alone could fill it.
    pub(super) starved: BTreeSet<JobId>,
    /// Parents that wait for workers to reconnect before they get their members, until then at the latest.
    settling: BTreeSet<(Uptime, JobId)>,
    /// Cancelled parents, and the first member that was not looked at since.
    to_cancel: BTreeMap<JobId, JobId>,
    /// Members that can never run: their only worker was removed, revoked, or taken from the list of their definition.
    orphans: VecDeque<JobId>,
    /// Parents that may have ended while nobody looked.
    pub(super) to_review: VecDeque<JobId>,
    /// The limit of jobs was reached when members were made last.
    pub(crate) is_blocked: bool,
    /// Members that a start restores, with their parents.
    restored: BTreeMap<JobId, MemberRow>,
}

/// A parent that has not ended.
#[derive(Debug)]
pub struct Parent {
    /// Its row.
    pub row: ParentRow,
    /// Values of the keys of its definition's limits, which its members share.
    pub keys: Option<Box<JobKeys>>,
    /// Members that have not ended.
    pub live: BTreeSet<JobId>,
    /// Workers on which a member holds an attempt.
    pub(super) held: BTreeMap<WorkerId, JobId>,
    /// Workers that a member is pinned to, or has been on.
    pub(super) used: BTreeMap<WorkerId, JobId>,
    /// Position among the workers to look at next.
    pub(crate) cursor: Cursor,
    /// Connected workers before that position that get no member of `all`.
    pub(crate) left_out: LeftOut,
    /// Its entry in the table of parents that wait for workers to reconnect.
    pub(super) settling_until: Option<Uptime>,
}

/// The workers that were not looked at yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// The next position in a list, or the next worker's id.
    pub(crate) next: u64,
}

/// No job has this number.
pub(super) const NOBODY: JobId = JobId(0);

impl Parent {
    fn new(row: ParentRow, keys: Option<Box<JobKeys>>) -> Self {
        let used = match &row.plan {
            MemberPlan::Count { except, .. } => except.iter().map(|worker| (*worker, NOBODY)).collect(),
            MemberPlan::All | MemberPlan::Workers(_) => BTreeMap::new(),
        };
        let (live, held, cursor) = (BTreeSet::new(), BTreeMap::new(), Cursor::default());
        Self { row, keys, live, held, used, cursor, left_out: LeftOut::default(), settling_until: None }
    }

    /// A member may go to this worker: no sibling is or was there. `job` may be the parent, for members that were nowhere yet.
    #[must_use]
    pub fn lets(&self, job: JobId, worker: WorkerId) -> bool {
        [self.held.get(&worker), self.used.get(&worker)].into_iter().flatten().all(|there| *there == job)
    }

    /// A worker holds an attempt of a member.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// No further member is made, and all of them have ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        !self.row.gets_members() && self.live.is_empty()
    }
}

impl Parents {
    /// Adds a parent whose members are to be made later.
    pub fn add(&mut self, row: ParentRow, keys: Option<Box<JobKeys>>) {
        self.live.insert(row.job, Parent::new(row, keys));
    }

    /// The parent with this number.
    #[must_use]
    pub fn get(&self, parent: JobId) -> Option<&Parent> {
        self.live.get(&parent)
    }

    /// The parent with this number.
    pub fn get_mut(&mut self, parent: JobId) -> Option<&mut Parent> {
        self.live.get_mut(&parent)
    }

    /// The parent has ended.
    pub fn remove(&mut self, parent: JobId) {
        self.stop_settling(parent);
        self.live.remove(&parent);
        self.making.remove(&parent);
        self.starved.remove(&parent);
        self.to_cancel.remove(&parent);
    }

    /// Lets members be made from the next portion on; after `settled` at the latest, if workers may still reconnect.
    pub fn begin(&mut self, parent: JobId, settled: Option<Uptime>) {
        self.stop_settling(parent);
        match settled {
            Some(at) => {
                self.settling.insert((at, parent));
                if let Some(parent) = self.live.get_mut(&parent) {
                    parent.settling_until = Some(at);
                }
            }
            None => self.make(parent),
        }
    }

    fn make(&mut self, parent: JobId) {
        self.making.insert(parent);
        self.update_starved(parent);
    }

    /// Notes whether this parent waits for its next member without any other.
    fn update_starved(&mut self, id: JobId) {
        let is_alone = self.live.get(&id).is_some_and(|parent| parent.live.is_empty());
        if is_alone && self.is_making(id) {
            self.starved.insert(id);
        } else {
            self.starved.remove(&id);
        }
    }

    /// Members of this parent are being made.
    pub(super) fn is_making(&self, id: JobId) -> bool {
        self.making.contains(&id)
    }

    fn stop_settling(&mut self, id: JobId) {
        if let Some(at) = self.live.get_mut(&id).and_then(|parent| parent.settling_until.take()) {
            self.settling.remove(&(at, id));
        }
    }

    /// Lets the members of parents be made that need not wait for workers any longer: of all, or of those whose time is over.
    pub fn end_settling(&mut self, now: Uptime, is_settled: bool, most: usize) {
        for _ in 0..most {
            let Some((at, parent)) = self.settling.first().copied() else { return };
            if !is_settled && at > now {
                return;
            }
            self.stop_settling(parent);
            self.make(parent);
        }
    }

    /// Parents wait for workers to reconnect.
    #[must_use]
    pub fn is_settling(&self) -> bool {
        !self.settling.is_empty()
    }

    /// A parent whose members are being made. While the limit of jobs is reached, one that has no other member.
    #[must_use]
    pub fn next_to_make(&self) -> Option<JobId> {
        let parents = if self.is_blocked { &self.starved } else { &self.making };
        parents.first().copied()
    }

    /// All members of the parent are made.
    pub fn complete(&mut self, parent: JobId) {
        self.stop_making(parent);
        if let Some(parent) = self.live.get_mut(&parent) {
            parent.row.is_complete = true;
        }
    }

    /// No further members of the parent are made.
    pub fn stop_making(&mut self, parent: JobId) {
        self.making.remove(&parent);
        self.starved.remove(&parent);
        self.stop_settling(parent);
    }

    /// Adds a member that was made.
    pub fn add_member(&mut self, member: MemberRow) {
        let Some(parent) = self.live.get_mut(&member.parent) else { return };
        parent.row.counts.total += 1;
        parent.live.insert(member.job);
        if let Some(worker) = member.pinned {
            parent.used.insert(worker, member.job);
        }
        self.starved.remove(&member.parent);
    }

    /// Counts the end of a member.
    pub fn count_end(&mut self, parent: JobId, member: JobId, state: State) {
        if let Some(parent) = self.live.get_mut(&parent)
            && parent.live.remove(&member)
        {
            parent.row.counts.add_ended(state);
        }
        self.update_starved(parent);
    }

    /// A member holds an attempt on this worker.
    pub fn hold_worker(&mut self, parent: JobId, member: JobId, worker: WorkerId) {
        if let Some(parent) = self.live.get_mut(&parent) {
            parent.held.insert(worker, member);
        }
    }

    /// A member holds no attempt on this worker any more.
    pub fn release_worker(&mut self, parent: JobId, worker: WorkerId) {
        if let Some(parent) = self.live.get_mut(&parent) {
            parent.held.remove(&worker);
        }
    }

    /// A member has been on a worker. Returns false if that was known.
    pub fn mark_used(&mut self, of: WorkerUse) -> bool {
        let parent = self.live.get_mut(&of.parent);
        parent.is_some_and(|parent| parent.used.insert(of.worker, of.member).is_none())
    }

    /// Lets the members of a cancelled parent be cancelled from the next portion on.
    pub fn cancel(&mut self, parent: JobId) {
        self.to_cancel.insert(parent, parent);
    }

    /// The next members of a cancelled parent, at most `count`.
    pub fn next_to_cancel(&mut self, count: usize) -> (JobId, Vec<JobId>) {
        let Some((parent, from)) = self.to_cancel.pop_first() else { return Default::default() };
        let live = self.live.get(&parent).map(|parent| &parent.live);
        let members: Vec<JobId> =
            live.into_iter().flat_map(|live| live.range(from..)).take(count).copied().collect();
        if let Some(last) = members.last().filter(|_| members.len() == count) {
            self.to_cancel.insert(parent, JobId(last.0 + 1));
        }
        (parent, members)
    }

    /// This member can never run on its only worker: it ends.
    pub fn orphan(&mut self, member: JobId) {
        self.orphans.push_back(member);
    }

    /// A member that can never run.
    pub fn next_orphan(&mut self) -> Option<JobId> {
        self.orphans.pop_front()
    }

    /// A parent that may have ended while nobody looked.
    pub fn next_to_review(&mut self) -> Option<JobId> {
        self.to_review.pop_front()
    }

    /// Something is to be done in the next step.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.next_to_make().is_some()
            || !self.to_cancel.is_empty()
            || !self.orphans.is_empty()
            || !self.to_review.is_empty()
    }

    /// Adds a parent from the store. Its members are added by [`Self::restore_member`].
    pub fn restore(&mut self, live: LiveParent) {
        let id = live.row.job;
        let mut parent = Parent::new(live.row, None);
        for member in live.members {
            if let Some(worker) = member.pinned {
                parent.used.insert(worker, member.job);
            }
            self.restored.insert(member.job, member);
        }
        parent.used.extend(live.used.iter().map(|of| (of.worker, of.member)));
        if parent.row.cancelled_by.is_some() {
            self.cancel(id);
        }
        self.live.insert(id, parent);
        self.to_review.push_back(id);
    }

    /// The part of a job that is being restored. A member is added to its parent.
    pub fn restore_member(&mut self, job: JobId) -> RunOnRole {
        if self.live.contains_key(&job) {
            return RunOnRole::Parent;
        }
        let Some(member) = self.restored.remove(&job) else { return RunOnRole::None };
        if let Some(parent) = self.live.get_mut(&member.parent) {
            parent.live.insert(job);
        }
        self.starved.remove(&member.parent);
        RunOnRole::Member(member)
    }

    /// Forgets members that had ended before the start.
    pub fn forget_restored(&mut self) {
        self.restored.clear();
    }

    /// Sets the keys that the members share.
    pub fn set_keys(&mut self, parent: JobId, keys: Option<Box<JobKeys>>) {
        if let Some(parent) = self.live.get_mut(&parent) {
            parent.keys = keys;
        }
    }

    /// All of them, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (JobId, &Parent)> {
        self.live.iter().map(|(id, parent)| (*id, parent))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::run_on::ParentCounts;

    fn parents(plan: MemberPlan) -> Parents {
        let mut parents = Parents::default();
        let (counts, started_at, cancelled_by) = (ParentCounts::default(), None, None);
        let row = ParentRow { job: JobId(1), plan, is_complete: false, counts, started_at, cancelled_by };
        parents.add(row, None);
        parents
    }

    fn member(job: u64) -> MemberRow {
        MemberRow { job: JobId(job), parent: JobId(1), pinned: None }
    }

    #[test]
    fn no_member_goes_where_a_sibling_is_or_was() {
        let except = vec![WorkerId(9)].into();
        let mut parents = parents(MemberPlan::Count { members: 2, except });
        let (w1, w2) = (WorkerId(1), WorkerId(2));
        parents.hold_worker(JobId(1), JobId(2), w1);
        let lets = |parents: &Parents, job, worker| parents.get(JobId(1)).unwrap().lets(JobId(job), worker);
        assert!(!lets(&parents, 1, w1) && !lets(&parents, 3, w1) && lets(&parents, 3, w2));
        parents.release_worker(JobId(1), w1);
        assert!(lets(&parents, 3, w1), "it was given back unstarted");
        let used = WorkerUse { parent: JobId(1), worker: w1, member: JobId(2) };
        assert!(parents.mark_used(used) && !parents.mark_used(used));
        assert!(!lets(&parents, 3, w1) && lets(&parents, 2, w1));
        let earlier = [1, 2].map(|job| lets(&parents, job, WorkerId(9)));
        assert_eq!(earlier, [false; 2], "an earlier member has succeeded there");
    }

    #[test]
    fn members_of_a_cancelled_parent_are_cancelled_in_portions() {
        let mut parents = parents(MemberPlan::All);
        (2..7).for_each(|job| parents.add_member(member(job)));
        parents.complete(JobId(1));
        parents.cancel(JobId(1));
        let next = |parents: &mut Parents| -> Vec<u64> {
            parents.next_to_cancel(3).1.iter().map(|job| job.0).collect()
        };
        assert_eq!(next(&mut parents), [2, 3, 4]);
        parents.count_end(JobId(1), JobId(5), State::Succeeded);
        assert_eq!(next(&mut parents), [6]);
        assert!(!parents.has_work());
    }

    #[test]
    fn members_are_made_when_no_worker_may_reconnect_any_more_or_the_time_is_over() {
        let mut parents = parents(MemberPlan::All);
        parents.begin(JobId(1), Some(Uptime(10)));
        parents.end_settling(Uptime(9), false, 5);
        assert_eq!(parents.next_to_make(), None);
        parents.end_settling(Uptime(10), false, 5);
        assert_eq!(parents.next_to_make(), Some(JobId(1)));
        parents.complete(JobId(1));
        parents.begin(JobId(1), Some(Uptime(20)));
        parents.end_settling(Uptime(11), true, 5);
        assert_eq!(parents.next_to_make(), Some(JobId(1)));
    }
}
