//! Unfinished jobs as the store returns them at a start.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use protocol::order::StopCause;
use protocol::{AttemptNo, Fence, JobId, Now, Revision, SessionId, Timestamp, Token, WorkerId};

use crate::batches::LiveBatch;
use crate::core::{Overdue, Scheduler};
use crate::definition::Definition;
use crate::expectations::ExpectationRow;
use crate::fleet::Worker;
use crate::fleet::row::WorkerRow;
use crate::handlers;
use crate::job::{
    Attempt, AttemptTimeout, Job, LastPlacement, LiveState, Presence, Progress, Run, StartState,
};
use crate::limits::keys::JobKeys;
use crate::limits::{RateRow, gate};
use crate::pauses::Pauses;
use crate::placement;
use crate::placement::narrowing::Narrowing;
use crate::reconcile;
use crate::reservation::Reserved;
use crate::run_on::RunOnRole;
use crate::schedules::LiveSchedules;
use crate::state::State;
use crate::timers::WallTimer;
use crate::unique::{UniqueHolder, UniqueRow};

/// Job and fence numbers that a restore reserves (docs/design/storage.md, S42).
const RESTORED_GAP: u64 = 1 << 24;

/// A job that has not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveJob {
    /// Its number.
    pub job: JobId,
    /// The revision of its definition.
    pub revision: Revision,
    /// Its state.
    pub state: State,
    /// Higher goes first.
    pub priority: i8,
    /// Earliest start.
    pub due_at: Timestamp,
    /// Deadline of its present wait.
    pub expires_at: Option<Timestamp>,
    /// Overrides its definition's timeout.
    pub timeout: Option<AttemptTimeout>,
    /// It adds something to its definition.
    pub has_overrides: bool,
    /// The workers that it asks for.
    pub narrowing: Option<Arc<Narrowing>>,
    /// Values of the keys of its definition's limits.
    pub keys: Option<Box<JobKeys>>,
    /// Attempts that used the job's budget.
    pub job_failures: u32,
    /// Those of them that were killed for their memory limit.
    pub oom_kills: u32,
    /// Times of the losses within the last day.
    pub losses: Vec<Timestamp>,
    /// Number of attempts so far.
    pub attempts: AttemptNo,
    /// A container of it has started, in any attempt.
    pub has_started: bool,
    /// Its place in a chain of hooks; zero if no hook made it.
    pub hook_depth: u8,
    /// Placement of the last ended attempt that was not released.
    pub last: Option<LastPlacement>,
    /// Lost attempts with their workers, oldest first, whose containers may still exist.
    pub lost: Vec<(Token, WorkerId)>,
    /// Ids of the GPUs that its current attempt and its lost ones hold, by fence.
    pub gpus: BTreeMap<Fence, Vec<String>>,
    /// Its current attempt, if it has one.
    pub attempt: Option<LiveAttempt>,
}

/// A lost attempt of a cancelled job, whose container may still exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unconfirmed {
    /// The attempt's token.
    pub token: Token,
    /// The worker that had it.
    pub worker: WorkerId,
    /// The revision of its definition.
    pub revision: Revision,
    /// Ids of the GPUs that it holds.
    pub gpus: Vec<String>,
}

/// The current attempt of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveAttempt {
    /// The attempt's token.
    pub token: Token,
    /// The worker that has it.
    pub worker: WorkerId,
    /// The session on which it was assigned.
    pub session: SessionId,
    /// Wall-clock time of the assignment.
    pub assigned_at: Timestamp,
    /// Wall-clock time at which its container started, if it has.
    pub started_at: Option<Timestamp>,
    /// The cause of its stop, if it is being stopped.
    pub stopping: Option<StopCause>,
    /// The first requester of its cancel, if its job is being cancelled.
    pub cancelled_by: Option<String>,
    /// It was assigned before the backup that this store was restored from, so it may have run and been
    /// forgotten since.
    pub from_backup: bool,
}

impl Scheduler {
    /// Adds a worker from the store. Its lease is renewed now, because downtime of the server does not count
    /// against workers.
    pub fn restore_worker(&mut self, now: Now, row: WorkerRow) {
        // If this process is suspended before its first step, that step notices the gap from here on.
        self.stepped_at = Some(now.up);
        let id = row.worker;
        if let Some(at) = row.cordon_end() {
            self.timers.set_wall(at, WallTimer::CordonEnd(id));
        }
        if let Some(at) = row.drain.and_then(|drain| drain.deadline) {
            self.timers.set_wall(at, WallTimer::DrainEnd(id));
        }
        self.fleet.add(Worker::away(row, now.up));
        self.arm_lease(id);
        handlers::arm_worker_expiry(self, id);
    }

    /// Adds a definition that unfinished jobs were created with.
    pub fn restore_definition(&mut self, definition: Arc<Definition>) {
        self.add_definition(definition);
    }

    /// Adds the state of schedules, and what is paused. The rules of schedules come with the first reading of jobs.yaml.
    pub fn restore_schedules(&mut self, mut live: LiveSchedules) {
        self.pauses = Arc::new(Pauses::of(mem::take(&mut live.paused)));
        handlers::pause::apply(self);
        self.schedules.restore(live);
    }

    /// Adds the state of expectations. The expectations themselves come with the first reading of jobs.yaml.
    pub fn restore_expectations(&mut self, rows: Vec<ExpectationRow>) {
        for row in rows {
            self.expectations.add(row);
        }
    }

    /// Adds the state of rates. Call it before the jobs are added.
    pub fn restore_rates(&mut self, now: Now, rows: &[RateRow]) {
        for row in rows {
            if let Some(rate) = self.limits.restore_rate(row, now) {
                gate::forget_rate(self, rate, now);
            }
        }
    }

    /// Adds the holders of unique keys. Call it after all jobs were added.
    pub fn restore_unique(&mut self, rows: &[UniqueRow]) {
        for row in rows {
            let holder = row.holder.map(|holder| UniqueHolder {
                predecessor: holder.predecessor.filter(|job| self.jobs.contains_key(job)),
                ..holder
            });
            self.unique.put(&UniqueRow { holder, ..row.clone() });
            if let Some(holder) = row.holder.filter(|holder| !self.jobs.contains_key(&holder.job)) {
                self.unique.keep(holder.job);
            }
        }
    }

    /// Adds a batch with members that have not ended. If too many of them failed before the stop, the cancel of the others goes on. Call it
    /// after [`Self::restore_schedules`], which adds its pause.
    pub fn restore_batch(&mut self, batch: LiveBatch) {
        Arc::make_mut(&mut self.pauses).set_end_of_batch(&batch);
        let first = batch.first;
        self.batches.add(batch);
        self.batches.take_key(first);
    }

    /// Adds a job that has not ended. Its definition and its worker must have been added before; returns
    /// false if the definition is unknown.
    pub fn restore_job(&mut self, now: Now, live: LiveJob) -> bool {
        let Some(base) = self.definitions.find(live.revision) else {
            return false;
        };
        let id = live.job;
        let narrowed = live.narrowing.as_ref().and_then(|narrowing| self.narrow(base, narrowing));
        let definition = narrowed.unwrap_or(base);
        let mut job = Job {
            definition,
            priority: live.priority,
            has_overrides: live.has_overrides,
            due_at: live.due_at,
            live_state: LiveState::Scheduled,
            extras: None,
        };
        restore_extras(&mut job, &live);
        self.restore_role(id, &mut job, live.keys.as_deref());
        let mut gpus = live.gpus;
        for (token, worker) in live.lost {
            let gpus = gpus.remove(&token.fence).unwrap_or_default();
            self.watch_unconfirmed(Unconfirmed { token, worker, revision: live.revision, gpus });
        }
        self.definitions.add_reference(definition);
        match (live.state, live.attempt) {
            (_, Some(attempt)) => {
                let gpus = gpus.remove(&attempt.token.fence).unwrap_or_default();
                self.restore_attempt(now, id, &mut job, attempt, (live.attempts, gpus));
            }
            (State::Scheduled, None) => self.restore_timer(now, live.due_at, WallTimer::Due(id)),
            (State::Quarantined, None) => job.live_state = LiveState::Quarantined,
            (_, None) if job.role() == RunOnRole::Parent => job.live_state = self.restore_parent(id),
            (_, None) => {
                let lane = placement::lane_of(self, id, &job);
                job.live_state = LiveState::Queued(lane);
                self.ready.push(lane, job.queue_key(self.config.priority_ageing, id));
                gate::enter_queue(self, lane, id);
                if handlers::run_on::is_orphan(self, &job) {
                    self.parents.orphan(id);
                }
            }
        }
        self.jobs.insert(id, job);
        if let Some(at) = live.expires_at {
            self.restore_timer(now, at, WallTimer::Expiry(id));
        }
        true
    }

    fn restore_role(&mut self, id: JobId, job: &mut Job, keys: Option<&JobKeys>) {
        let role = self.parents.restore_member(id);
        match role {
            RunOnRole::None => {}
            RunOnRole::Parent => {
                job.extras_mut().role = role;
                self.parents.set_keys(id, keys.cloned().map(Box::new));
                // Its members are counted in the limits, it is not.
                return;
            }
            // Parents have lower numbers, so this one's was restored before.
            RunOnRole::Member(member) => {
                job.extras_mut().role = role;
                job.has_overrides = self.jobs.get(&member.parent).is_some_and(|parent| parent.has_overrides);
            }
        }
        handlers::count_in(self, id, job, keys);
    }

    /// Timers whose time passed while the server was down fire in slices after the start.
    fn restore_timer(&mut self, now: Now, at: Timestamp, timer: WallTimer) {
        self.timers.set_wall(at, timer);
        if at <= now.utc {
            self.overdue = Some(Overdue { until: now.utc, next: now.up });
        }
    }

    /// Adds the attempts of cancelled jobs whose containers may still exist. Call it once, after all workers and definitions. If the worker
    /// of one of a job's attempts was forgotten, or a definition is unknown, not all of them can be confirmed, so none of the job is added.
    pub fn restore_unconfirmed(&mut self, attempts: &[Unconfirmed]) {
        let is_unknown = |of: &Unconfirmed| {
            self.fleet.worker(of.worker).is_none() || self.definitions.find(of.revision).is_none()
        };
        let unknown: BTreeSet<JobId> =
            attempts.iter().filter(|of| is_unknown(of)).map(|of| of.token.job).collect();
        for of in attempts.iter().filter(|of| !unknown.contains(&of.token.job)) {
            *self.unconfirmed.entry(of.token.job).or_default() += 1;
            self.watch_unconfirmed(of.clone());
        }
    }

    fn watch_unconfirmed(&mut self, of: Unconfirmed) {
        let definition = self.definitions.find(of.revision).and_then(|number| self.definitions.at(number));
        if let Some(definition) = definition.cloned() {
            let reserves = (&*definition, of.gpus);
            reconcile::unconfirmed::await_confirmation(self, of.worker, of.token, reserves, true);
        }
    }

    fn restore_attempt(
        &mut self,
        now: Now,
        id: JobId,
        job: &mut Job,
        live: LiveAttempt,
        (number, gpus): (AttemptNo, Vec<String>),
    ) {
        if live.from_backup {
            self.skippable = RESTORED_GAP;
        }
        let attempt = Attempt {
            fence: live.token.fence,
            nonce: live.token.nonce,
            number,
            worker: live.worker,
            assigned_at: live.assigned_at,
            assigned_up: now.up,
            session: None,
            // The container went on while the server was down, so only the remaining time counts. The wall
            // clock may have been set meanwhile; the worker reports the true age when it reconnects.
            progress: live.started_at.map_or(Progress::Slot, |at| Progress::Running(Run::since(at))),
            // The server does not know any more which starts it had approved.
            start: if live.from_backup { StartState::Announced } else { StartState::MayStart },
            presence: Presence::NotAwaited,
            recalled: false,
            stopping: live.stopping,
            cancelled_by: live.cancelled_by.as_deref().map(Into::into),
            loss_at: None,
            noted_unreachable: false,
            gpus: gpus.clone().into(),
        };
        let definition = self.definitions.at(job.definition);
        let reserved = definition.and_then(|definition| Reserved::of(&definition.container.resources, gpus));
        self.fleet.hold(live.worker, live.token, reserved);
        if let RunOnRole::Member(member) = job.role() {
            self.parents.hold_worker(member.parent, id, live.worker);
        }
        let key_set = placement::key_set_of(self, job);
        let needs = self.limits.needs(job.definition, key_set);
        self.limits.hold(id, needs, gate::cancels_oldest(self, job.definition));
        if live.stopping == Some(StopCause::Cancel) {
            self.limits.leave_competition(id, needs);
        }
        job.live_state = LiveState::Held(Box::new(attempt));
    }
}

/// Sets the facts that few jobs have, and that are kept apart for that reason.
fn restore_extras(job: &mut Job, live: &LiveJob) {
    if live.attempts.0 > 0 || live.timeout.is_some() || live.expires_at.is_some() {
        let extras = job.extras_mut();
        (extras.timeout, extras.attempts) = (live.timeout, live.attempts);
        extras.expires_at = live.expires_at;
        extras.job_failures = live.job_failures;
        extras.oom_kills = live.oom_kills;
        (extras.losses, extras.last) = (live.losses.clone(), live.last);
        extras.unconfirmed.clone_from(&live.lost);
    }
    if live.hook_depth > 0 {
        job.extras_mut().hook_depth = live.hook_depth;
    }
    if live.has_started {
        job.extras_mut().has_started = true;
    }
}
