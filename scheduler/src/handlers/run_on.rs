//! Makes the members of parents (`run_on`), and derives the state of a parent from theirs.
//!
//! A portion of members is made in each step, so no commit grows with the number of workers. Members of one parent become visible as they
//! are made. `all` means the workers that are connected and eligible when the parent is due. Workers within their leases may be about to
//! reconnect, such as after a restart of the server, so a parent waits for them for one lease at most.

mod orphan;

use alloc::format;
use alloc::string::String;

use protocol::{AttemptNo, JobId, Now, Timestamp, WorkerId};

use crate::core::Scheduler;
use crate::definition::Definition;
use crate::explain::obstacles::{Obstacle, obstacles};
use crate::handlers::{attempt_end, cancel, expect, expire, hook, submit};
use crate::ids::DefinitionNo;
use crate::job::{Job, LiveState};
use crate::limits::keys::KeySetNo;
use crate::placement::rules::RunOn;
use crate::queue::LaneKey;
use crate::run_on::{Cursor, MemberPlan, MemberRow, Parent, ParentCounts, ParentRow, RunOnRole, WorkerUse};
use crate::state::State;
use crate::step::{AddedJob, Change, Note};
use crate::timers::UptimeTimer;

pub(crate) use orphan::is_orphan;
use orphan::{why_orphan, why_unreachable};

/// Members that one step makes or cancels.
const MEMBERS_PER_STEP: usize = 500;

/// Workers that one step looks at in vain.
const WORKERS_PER_STEP: usize = 2_000;

/// The plan of a new job of this definition; none if it runs by itself.
pub(crate) fn plan_of(definition: &Definition, repeated: Option<MemberPlan>) -> Option<MemberPlan> {
    match definition.placement.run_on {
        RunOn::One => None,
        RunOn::All => Some(repeated.unwrap_or(MemberPlan::All)),
        RunOn::Count(members) => Some(repeated.unwrap_or(MemberPlan::Count { members, except: [].into() })),
    }
}

/// The row of a new parent.
pub(crate) const fn new_row(job: JobId, plan: MemberPlan) -> ParentRow {
    let counts = ParentCounts { total: 0, succeeded: 0, failed: 0, cancelled: 0, expired: 0, lost: 0 };
    ParentRow { job, plan, is_complete: false, counts, started_at: None, cancelled_by: None }
}

/// A parent is due: its members are made from this step on.
pub(crate) fn begin(scheduler: &mut Scheduler, id: JobId) {
    let Some(job) = scheduler.jobs.get_mut(&id) else { return };
    job.live_state = LiveState::Parent { has_started: false };
    expire::clear(scheduler, id);
    resume(scheduler, id);
}

fn resume(scheduler: &mut Scheduler, id: JobId) {
    let Some(parent) = scheduler.parents.get_mut(id) else { return };
    (parent.cursor, parent.left_out) = (Cursor::default(), Default::default());
    let settled = match parent.row.plan {
        MemberPlan::All => scheduler.stepped_at.map(|now| now + scheduler.config.intervals.lease),
        MemberPlan::Count { .. } | MemberPlan::Workers(_) => None,
    };
    scheduler.parents.begin(id, settled);
    if let Some(at) = settled {
        scheduler.timers.set_uptime(at, UptimeTimer::MembersDue);
    }
}

/// Makes, cancels and ends members, a portion of each.
pub(crate) fn proceed(scheduler: &mut Scheduler, now: Now) {
    scheduler.parents.forget_restored();
    for _ in 0..MEMBERS_PER_STEP {
        let Some(parent) = scheduler.parents.next_to_review() else { break };
        review(scheduler, now, parent);
    }
    for _ in 0..MEMBERS_PER_STEP {
        let Some(orphan) = scheduler.parents.next_orphan() else { break };
        if let Some(job) = scheduler.jobs.get(&orphan)
            && matches!(job.live_state, LiveState::Queued(_))
            && let Some(reason) = why_orphan(scheduler, job)
        {
            attempt_end::end_unheld(scheduler, now, orphan, State::Lost, reason.into());
        }
    }
    let (parent, members) = scheduler.parents.next_to_cancel(MEMBERS_PER_STEP);
    for member in members {
        cancel::cancel_for(scheduler, now, member, by_parent(parent));
    }
    if scheduler.parents.is_settling() {
        scheduler.fleet.regroup();
        let is_settled = !scheduler.fleet.may_reconnect();
        scheduler.parents.end_settling(now.up, is_settled, MEMBERS_PER_STEP);
    }
    let mut budget = StepQuota { members: MEMBERS_PER_STEP, looks: WORKERS_PER_STEP };
    scheduler.parents.is_blocked = false;
    while let Some(parent) = scheduler.parents.next_to_make()
        && !budget.is_used_up()
    {
        make_members(scheduler, now, parent, &mut budget);
    }
}

/// The requester of the cancel of members whose parent is cancelled.
pub(crate) fn by_parent(parent: JobId) -> String {
    format!("its parent, job {parent}")
}

/// The work that a step may still do.
struct StepQuota {
    members: usize,
    looks: usize,
}

impl StepQuota {
    const fn is_used_up(&self) -> bool {
        self.members == 0 || self.looks == 0
    }
}

/// Makes members until all are made or the budget of this step is used up.
fn make_members(scheduler: &mut Scheduler, now: Now, id: JobId, budget: &mut StepQuota) {
    let before = scheduler.parents.get(id).map(|parent| parent.row.counts.total);
    let is_complete = loop {
        if budget.is_used_up() {
            break false;
        }
        let (Some(parent), Some(job)) = (scheduler.parents.get(id), scheduler.jobs.get(&id)) else {
            return scheduler.parents.complete(id);
        };
        let (next, pinned) = match next_member(scheduler, parent, job.definition) {
            NextMember::None => break true,
            NextMember::Skip(next) => (next, None),
            NextMember::LeaveOut(next, worker, obstacle) => {
                budget.looks -= 1;
                leave_out(scheduler, id, worker, obstacle);
                if let Some(parent) = scheduler.parents.get_mut(id) {
                    parent.cursor = next;
                }
                continue;
            }
            NextMember::Pinned(next, worker) => (next, Some(Some(worker))),
            NextMember::Anywhere => (parent.cursor, Some(None)),
        };
        if let Some(pinned) = pinned {
            // One member of each parent is made in any case: with parents alone at the limit of jobs, none of them would ever end.
            if !parent.live.is_empty() && !submit::has_room(scheduler, 1) {
                scheduler.parents.is_blocked = true;
                break false;
            }
            budget.members -= 1;
            make_member(scheduler, now, id, pinned);
        } else {
            budget.looks -= 1;
        }
        if let Some(parent) = scheduler.parents.get_mut(id) {
            parent.cursor = next;
        }
    };
    if is_complete {
        scheduler.parents.complete(id);
        if let Some(workers) = scheduler.parents.get_mut(id).and_then(|parent| parent.left_out.take_text()) {
            let note = Note::WorkersLeftOut { workers };
            scheduler.change(Change::Noted { job: id, at: now.utc, note });
        }
    }
    if is_complete || scheduler.parents.get(id).map(|parent| parent.row.counts.total) != before {
        put_row(scheduler, id);
    }
    if is_complete {
        review(scheduler, now, id);
    }
}

/// Remembers that a worker gets no member, with the reason.
fn leave_out(scheduler: &mut Scheduler, parent: JobId, worker: WorkerId, obstacle: Obstacle) {
    let name = scheduler.fleet.worker(worker).map(|worker| worker.row.name.clone());
    let job = scheduler.jobs.get(&parent);
    let definition = job.and_then(|job| scheduler.definition(job));
    if let (Some(name), Some(definition), Some(parent)) =
        (name, definition, scheduler.parents.get_mut(parent))
    {
        parent.left_out.add(&name, obstacle, &definition);
    }
}

/// The member to be made next.
enum NextMember {
    /// All are made.
    None,
    /// The worker at the cursor gets none.
    Skip(Cursor),
    /// That worker gets none because of this obstacle.
    LeaveOut(Cursor, WorkerId, Obstacle),
    /// It is pinned to this worker.
    Pinned(Cursor, WorkerId),
    /// It goes to any worker that no sibling has.
    Anywhere,
}

fn next_member(scheduler: &Scheduler, parent: &Parent, number: DefinitionNo) -> NextMember {
    match &parent.row.plan {
        MemberPlan::Count { members, .. } if parent.row.counts.total < *members => NextMember::Anywhere,
        MemberPlan::Count { .. } => NextMember::None,
        MemberPlan::Workers(workers) => {
            let at = usize::try_from(parent.cursor.next).unwrap_or(usize::MAX);
            let Some(worker) = workers.get(at).copied() else { return NextMember::None };
            let next = Cursor { next: parent.cursor.next + 1 };
            let is_wanted = !parent.has_used(worker) && why_unreachable(scheduler, number, worker).is_none();
            if is_wanted { NextMember::Pinned(next, worker) } else { NextMember::Skip(next) }
        }
        MemberPlan::All => {
            let Some(worker) = scheduler.fleet.first_from(WorkerId(parent.cursor.next)) else {
                return NextMember::None;
            };
            let id = worker.row.worker;
            let next = Cursor { next: id.0 + 1 };
            let lane = LaneKey::Definition(number, KeySetNo::UNLIMITED);
            if parent.has_used(id) || worker.row.revoked_at.is_some() {
                return NextMember::Skip(next);
            }
            match obstacles(scheduler, worker, lane).find(|obstacle| !is_passing(*obstacle)) {
                Some(obstacle) => NextMember::LeaveOut(next, id, obstacle),
                None => NextMember::Pinned(next, id),
            }
        }
    }
}

/// A worker with this obstacle gets a member of `all`, which waits: the worker is there and is meant, and cannot run it just now.
const fn is_passing(obstacle: Obstacle) -> bool {
    matches!(
        obstacle,
        Obstacle::Busy
            | Obstacle::Resources(_)
            | Obstacle::Excluded(..)
            | Obstacle::Probing
            | Obstacle::RuntimeUnavailable
    )
}

fn make_member(scheduler: &mut Scheduler, now: Now, parent_id: JobId, pinned: Option<WorkerId>) {
    let Some(parent) = scheduler.jobs.get(&parent_id) else { return };
    let (number, priority, has_overrides) = (parent.definition, parent.priority, parent.has_overrides);
    let timeout = parent.extras.as_ref().and_then(|extras| extras.timeout);
    let keys = scheduler.parents.get(parent_id).and_then(|parent| parent.keys.clone());
    let Some(definition) = scheduler.definitions.at(number) else { return };
    let (revision, queue_limit) = (definition.revision, definition.waits.queue);
    let narrowing = scheduler.definitions.narrowing(number).cloned();
    let id = JobId(scheduler.counters.job.0 + 1);
    scheduler.counters.job = id;
    let mut job = Job {
        definition: number,
        priority,
        has_overrides,
        due_at: now.utc,
        live_state: LiveState::Scheduled,
        extras: None,
    };
    let extras = job.extras_mut();
    let member = MemberRow { job: id, parent: parent_id, pinned };
    extras.role = RunOnRole::Member(member);
    extras.timeout = timeout;
    submit::count_in(scheduler, id, &mut job, keys.as_deref());
    scheduler.definitions.add_reference(number);
    scheduler.change(Change::Member(member));
    scheduler.change(Change::Added(AddedJob {
        job: id,
        revision,
        state: State::Queued,
        priority,
        created_at: now.utc,
        due_at: now.utc,
        timeout,
        batch: None,
        retry_of: None,
        submitted_by: None,
        narrowing,
        keys,
        details: None,
    }));
    scheduler.parents.add_member(member);
    let expires_at = queue_limit.map(|limit| now.utc + limit);
    job.extras_mut().expires_at = expires_at;
    scheduler.jobs.insert(id, job);
    if expires_at.is_some() {
        scheduler.change(Change::Expiry { job: id, at: expires_at });
        expire::arm(scheduler, id);
    }
    attempt_end::queue(scheduler, id);
}

/// An attempt of a member ends. One that was given back unstarted leaves its worker to the siblings.
pub(crate) fn attempt_closed(scheduler: &mut Scheduler, id: JobId, worker: WorkerId, is_released: bool) {
    let Some(parent) = scheduler.parent_of(id) else { return };
    scheduler.parents.release_worker(parent, worker);
    if is_released {
        // A sibling may go there now, also if the worker had room all the time.
        if scheduler.fleet.worker(worker).is_some() {
            scheduler.fleet.mark_capacity_grown(worker);
        }
        return;
    }
    let used = WorkerUse { parent, worker, member: id };
    if scheduler.parents.mark_used(used) {
        scheduler.change(Change::WorkerUsed(used));
    }
}

/// The container of a member has started. The first one counts as the start of the parent.
pub(crate) fn member_started(scheduler: &mut Scheduler, id: JobId, at: Timestamp) {
    let Some(parent) = scheduler.parents.get_mut(id).filter(|parent| parent.row.started_at.is_none()) else {
        return;
    };
    parent.row.started_at = Some(at);
    if let Some(job) = scheduler.jobs.get_mut(&id) {
        job.live_state = LiveState::Parent { has_started: true };
    }
    put_row(scheduler, id);
    hook::started(scheduler, id, AttemptNo(0), at);
}

/// A member has ended.
pub(crate) fn member_ended(scheduler: &mut Scheduler, now: Now, parent: JobId, member: JobId, state: State) {
    scheduler.parents.count_end(parent, member, state);
    put_row(scheduler, parent);
    review(scheduler, now, parent);
}

/// Ends a parent if its last member has ended.
fn review(scheduler: &mut Scheduler, now: Now, id: JobId) {
    let Some(parent) = scheduler.parents.get(id).filter(|parent| parent.is_over()) else { return };
    let (state, reason) = parent.row.end();
    let definition = scheduler.jobs.get(&id).and_then(|job| scheduler.definition(job));
    if let Some(definition) = definition.filter(|_| state == State::Succeeded) {
        expect::parent_succeeded(scheduler, now, &definition.name);
    }
    scheduler.parents.remove(id);
    attempt_end::end_unheld(scheduler, now, id, state, reason);
}

/// Cancels a parent that is due: no further member is made, and those that have not ended are cancelled, a portion in each step.
pub(crate) fn cancel_parent(scheduler: &mut Scheduler, now: Now, id: JobId, by: String) {
    let Some(parent) = scheduler.parents.get_mut(id).filter(|it| it.row.cancelled_by.is_none()) else {
        return;
    };
    parent.row.cancelled_by = Some(by.clone());
    scheduler.parents.stop_making(id);
    scheduler.parents.cancel(id);
    scheduler.change(Change::Noted { job: id, at: now.utc, note: Note::CancelRequested { by } });
    put_row(scheduler, id);
    review(scheduler, now, id);
}

/// A worker holds a member of this parent.
pub(crate) fn is_held(scheduler: &Scheduler, id: JobId) -> bool {
    scheduler.parents.get(id).is_some_and(Parent::is_held)
}

fn put_row(scheduler: &mut Scheduler, id: JobId) {
    if let Some(row) = scheduler.parents.get(id).map(|parent| parent.row.clone()) {
        scheduler.change(Change::Parent(row));
    }
}

impl Scheduler {
    /// Adds parents that have not ended, with their members. Call it before the jobs are added.
    pub fn restore_parents(&mut self, parents: alloc::vec::Vec<crate::run_on::LiveParent>) {
        parents.into_iter().for_each(|parent| self.parents.restore(parent));
    }

    /// Goes on with a parent that was due before the start.
    pub(crate) fn restore_parent(&mut self, id: JobId) -> LiveState {
        let row = self.parents.get(id).map(|parent| &parent.row);
        let has_started = row.is_some_and(|row| row.started_at.is_some());
        if row.is_some_and(ParentRow::gets_members) {
            resume(self, id);
        }
        LiveState::Parent { has_started }
    }
}
