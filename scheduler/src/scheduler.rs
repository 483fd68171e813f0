//! [`Scheduler`]: the pure state machine. [`Scheduler::step`] is its table of contents.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use protocol::report::Phase;
use protocol::{AttemptNo, JobId, Now, Order, SessionId, Timestamp, Token, Uptime, WorkerId};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::claims::Claim;
use crate::config::{Config, Counters};
use crate::definition::Definition;
use crate::definitions::{DefinitionNo, Definitions};
use crate::fleet::{Fleet, Worker};
use crate::forming::Forming;
use crate::input::{GroupNo, Input, Ticket};
use crate::job::{Attempt, Job, Standing, State};
use crate::keys::RecentKeys;
use crate::on;
use crate::place;
use crate::ready::Ready;
use crate::recall;
use crate::restore::{LiveAttempt, LiveJob, Unconfirmed};
use crate::step::{Accepted, Answer, Change, Effect, Grant, Step, WakeAt, WorkerRow};
use crate::table::{Seed, Table};
use crate::timers::{Alarm, Date, Timers};

/// The scheduler: all jobs that have not ended, all workers, and every decision about them.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) config: Config,
    pub(crate) last: Counters,
    pub(crate) definitions: Definitions,
    pub(crate) jobs: Table<JobId, Job>,
    pub(crate) ready: Ready,
    pub(crate) fleet: Fleet,
    /// Sessions that were taken from a process whose worker has copies, and that may not have been told yet.
    pub(crate) shut: BTreeMap<SessionId, (WorkerId, Claim)>,
    pub(crate) timers: Timers,
    pub(crate) keys: RecentKeys,
    pub(crate) forming: Forming,
    pub(crate) rng: SmallRng,
    /// When it was last stepped, or made.
    pub(crate) stepped_at: Option<Uptime>,
    pub(crate) commits: on::Commits,
    /// When all backlogs were last searched.
    pub(crate) searched: recall::Searched,
    /// What workers have said about attempts that are neither waiting nor running there.
    pub(crate) phases: BTreeMap<JobId, Phase>,
    /// Of how many attempts nobody knows whether they are gone, for cancelled jobs that have ended with several of them.
    pub(crate) unconfirmed: BTreeMap<JobId, usize>,
    /// How often the counters were moved on because of numbers that were never given here.
    pub(crate) skips: u32,
    /// Whether something that the snapshot shows has changed.
    pub(crate) changed: bool,
    pub(crate) out: Step,
    grants: Vec<(SessionId, Vec<Grant>)>,
    accepted: Vec<(Ticket, Accepted)>,
}

impl Scheduler {
    /// A scheduler without jobs. `last` are the highest numbers ever given in this installation.
    #[must_use]
    pub fn new(config: Config, last: Counters) -> Self {
        let mut rng = SmallRng::seed_from_u64(config.seed);
        let ties = SmallRng::from_rng(&mut rng);
        Self {
            config,
            last,
            definitions: Definitions::new(Seed(config.seed)),
            jobs: Table::with_hasher(Seed(config.seed)),
            ready: Ready::default(),
            fleet: Fleet::new(ties),
            shut: BTreeMap::new(),
            timers: Timers::default(),
            keys: RecentKeys::starting_after(last.group),
            forming: Forming::default(),
            rng,
            stepped_at: None,
            commits: on::Commits::default(),
            searched: recall::Searched::default(),
            phases: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            skips: 0,
            changed: true,
            out: Step::default(),
            grants: Vec::new(),
            accepted: Vec::new(),
        }
    }

    /// Takes in a worker known to the store. Its lease counts as renewed now: downtime of the server is never held against it.
    pub fn restore_worker(&mut self, now: Now, row: WorkerRow) {
        // Whoever stands still before the first step was away, too.
        self.stepped_at = Some(now.up);
        let id = row.worker;
        if let Some(at) = row.drain.and_then(|drain| drain.deadline) {
            self.timers.set_date(at, Date::DrainEnd(id));
        }
        self.fleet.add(Worker::away(row, now.up));
        self.watch_lease(id);
    }

    /// Takes in a definition that unfinished jobs were made with.
    pub fn restore_definition(&mut self, definition: Arc<Definition>) {
        self.definitions.learn(definition);
    }

    /// Takes in a job that has not ended; its definition and its worker must have been taken in before. Returns whether they were.
    pub fn restore_job(&mut self, now: Now, live: LiveJob) -> bool {
        let Some(definition) = self.definitions.find(live.revision) else {
            return false;
        };
        let id = live.job;
        let mut job = Job {
            definition,
            priority: live.priority,
            has_body: live.has_body,
            due_at: live.due_at,
            standing: Standing::Scheduled,
            past: None,
        };
        if live.attempts.0 > 0 || live.timeout.is_some() {
            let past = job.past_mut();
            (past.timeout, past.attempts) = (live.timeout, live.attempts);
            past.own_failures = live.own_failures;
            past.oom_kills = live.oom_kills;
            (past.losses, past.last) = (live.losses, live.last);
            past.in_doubt.clone_from(&live.lost);
        }
        for (token, worker) in live.lost {
            self.restore_doubt(Unconfirmed { token, worker, revision: live.revision });
        }
        self.definitions.take(definition);
        match (live.state, live.attempt) {
            (_, Some(attempt)) => self.restore_attempt(now, id, &mut job, attempt, live.attempts),
            (State::Scheduled, None) => self.timers.set_date(live.due_at, Date::Due(id)),
            (State::Quarantined, None) => job.standing = Standing::Quarantined,
            (_, None) => {
                let lane = place::lane_of(self, &job);
                job.standing = Standing::Queued(lane);
                self.ready.push(lane, job.place(id));
            }
        }
        self.jobs.insert(id, job);
        true
    }

    /// Takes in an attempt of a cancelled job whose container may be there. Without its worker or definition nobody ever confirms the cancel.
    pub fn restore_unconfirmed(&mut self, of: Unconfirmed) {
        *self.unconfirmed.entry(of.token.job).or_default() += 1;
        self.restore_doubt(of);
    }

    fn restore_doubt(&mut self, of: Unconfirmed) {
        let definition = self.definitions.find(of.revision).and_then(|number| self.definitions.at(number));
        if let Some(runtime) = definition.map(|definition| definition.runtime()) {
            on::ask(self, of.worker, of.token, runtime, true);
        }
    }

    fn restore_attempt(&mut self, now: Now, id: JobId, job: &mut Job, live: LiveAttempt, number: AttemptNo) {
        let attempt = Attempt {
            fence: live.token.fence,
            nonce: live.token.nonce,
            number,
            worker: live.worker,
            assigned_at: live.assigned_at,
            assigned_up: now.up,
            started_at: live.started_at,
            stopping: live.stopping,
            session: None,
            recalled: false,
            prefetched: false,
            // What was asked of the server before is not known any more.
            may_run: true,
            unsettled: false,
            begun: live.begun,
            // Only the time left is to be waited for, since the container went on while the server was away; but the clock on the wall may
            // have been set meanwhile. Its worker knows, and says so when it is back.
            overrun_at: None,
            loss_at: None,
        };
        self.fleet.hold(live.worker, id);
        job.standing = Standing::Held(Box::new(attempt));
    }

    /// Tells the number of the group that the next steps belong to: as soon as the one before it is closed, since each group has room
    /// for a slice of a large batch, and [`Self::wake_at`] asks for it.
    pub fn begin(&mut self, group: GroupNo) {
        self.last.group = group;
        self.keys.begin(group);
    }

    /// A group is being committed from now on. Nothing can be said until that ends, so nobody's silence counts if it takes long.
    pub const fn commit_began(&mut self, at: Uptime) {
        self.commits.begin(at);
    }

    /// What was being committed is durable.
    pub fn commit_ended(&mut self, at: Uptime) {
        self.commits.end(at, self.config.intervals.lease);
    }

    /// Decides. The caller commits the changes, and only then performs the effects, in order.
    pub fn step(&mut self, now: Now, input: Input) -> Step {
        on::notice_absence(self, now);
        match input {
            Input::Define(definitions) => on::define(self, definitions),
            Input::Learn(definition) => {
                self.definitions.learn(definition);
                self.changed = true;
            }
            Input::Submit(it) => on::submit(self, now, it),
            Input::Cancel(it) => on::cancel(self, now, it),
            Input::Release(it) => on::release(self, now, it),
            Input::Connected(it) => on::connect(self, now, it),
            Input::Disconnected(session) => on::disconnect(self, now, session),
            Input::Reported(session, report) => on::report(self, now, session, report),
            Input::Strangers(session, tokens) => on::announce(self, session, &tokens),
            Input::Heard(heard) => on::hear(self, &heard),
            Input::Unsent(session, tokens) => on::take_back(self, now, session, &tokens),
            Input::Operate(ticket, worker, operation) => on::operate(self, now, ticket, worker, operation),
            Input::Tick => on::tick(self, now),
        }
        place::fill_slots(self, now);
        recall::recall_for_higher(self, now);
        recall::recall_idle(self, now);
        self.hand_over();
        mem::take(&mut self.out)
    }

    /// When [`Input::Tick`] is wanted at the latest, whether or not anything is due then.
    #[must_use]
    pub fn wake_at(&self) -> WakeAt {
        let mut wake = self.timers.wake_at();
        if let Some(last) = self.stepped_at {
            let attended = last + on::tick_within(self.config.intervals.lease);
            wake.up = Some(wake.up.map_or(attended, |at| at.min(attended)));
        }
        if self.forming.wants_slice(self.last.group) {
            wake.up = Some(AT_ONCE);
        }
        wake
    }

    /// Whether the snapshot has changed since this was last asked.
    pub const fn take_changed(&mut self) -> bool {
        mem::replace(&mut self.changed, false)
    }

    /// Whether this job has not ended.
    #[must_use]
    pub fn is_live(&self, job: JobId) -> bool {
        self.live_job(job).is_some()
    }

    /// How many jobs have not ended.
    #[must_use]
    pub fn live_jobs(&self) -> usize {
        self.jobs.len() - self.forming.hidden()
    }

    /// A job that has not ended, if it is one already: not a member of a batch that is still being made.
    pub(crate) fn live_job(&self, job: JobId) -> Option<&Job> {
        self.jobs.get(&job).filter(|_| !self.forming.hides(job))
    }

    pub(crate) fn change(&mut self, change: Change) {
        self.changed = true;
        self.out.changes.push(change);
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        self.out.effects.push(effect);
    }

    pub(crate) fn send(&mut self, session: SessionId, order: Order) {
        self.out.effects.push(Effect::Send(session, order));
    }

    pub(crate) fn reply(&mut self, ticket: Ticket, answer: Answer) {
        self.out.effects.push(Effect::Reply(ticket, answer));
    }

    /// Answers once this step has found out where the first of the accepted jobs stands.
    pub(crate) fn reply_accepted(&mut self, ticket: Ticket, first: JobId, count: u32, created_at: Timestamp) {
        let accepted = Accepted { first, count, created_at, state: State::Queued, pending: None };
        self.accepted.push((ticket, accepted));
    }

    pub(crate) fn grant(&mut self, session: SessionId, grant: Grant) {
        match self.grants.iter_mut().find(|(to, _)| *to == session) {
            Some((_, grants)) => grants.push(grant),
            None => self.grants.push((session, alloc::vec![grant])),
        }
    }

    /// Tells a worker what a definition is, once per session.
    pub(crate) fn tell(&mut self, id: WorkerId, session: SessionId, number: DefinitionNo) {
        let untold = self.fleet.worker_mut(id).is_some_and(|worker| worker.told.insert(number));
        if untold && let Some(definition) = self.definitions.at(number).cloned() {
            self.effect(Effect::Define(session, definition));
        }
        on::quicken(self, id, self.definitions.ping(number));
    }

    /// Drops a worker that is not connected and holds nothing.
    pub(crate) fn forget_worker(&mut self, id: WorkerId) {
        on::end_drain(self, id);
        if let Some(at) = self.fleet.worker(id).and_then(|worker| worker.lease_end) {
            self.timers.clear_alarm(at, Alarm::LeaseEnd(id));
        }
        if let Some(at) = self.fleet.worker(id).and_then(|worker| worker.claims.until) {
            self.timers.clear_alarm(at, Alarm::Copies(id));
        }
        self.fleet.remove(id);
        // Nobody is pinned to a worker that will never come back.
        for job in self.ready.take_pinned(id) {
            on::queue(self, job);
        }
        self.change(Change::WorkerForgotten(id));
    }

    /// The current attempt that this token stands for, if this worker holds it.
    pub(crate) fn held(&mut self, token: Token, worker: WorkerId) -> Option<&mut Job> {
        let job = self.jobs.get_mut(&token.job)?;
        job.attempt().is_some_and(|attempt| attempt.is(token, worker)).then_some(job)
    }

    /// The definition of a job. Definitions outlive their jobs.
    pub(crate) fn definition(&self, job: &Job) -> Option<Arc<Definition>> {
        self.definitions.at(job.definition).cloned()
    }

    /// How long after its start an attempt must have been stopped by its worker: timeout, stop grace, and two leases for the
    /// worker to come back and say so (FAULTS.md F21).
    pub(crate) fn run_limit(&self, job: &Job) -> Option<Duration> {
        let definition = self.definitions.at(job.definition)?;
        let timeout = timeout_of(job, definition)?;
        Some(
            timeout
                .saturating_add(definition.container.stop_grace)
                .saturating_add(self.config.intervals.lease * 2),
        )
    }

    fn hand_over(&mut self) {
        for (session, grants) in mem::take(&mut self.grants) {
            self.effect(Effect::Enqueue(session, grants));
        }
        for (ticket, mut accepted) in mem::take(&mut self.accepted) {
            (accepted.state, accepted.pending) = place::standing_of(self, accepted.first);
            self.reply(ticket, Answer::Accepted(accepted));
        }
    }
}

/// It has been time since the machine's boot.
const AT_ONCE: Uptime = Uptime(0);

/// How long one attempt of a job may run.
pub(crate) fn timeout_of(job: &Job, definition: &Definition) -> Option<Duration> {
    job.past.as_ref().and_then(|past| past.timeout).unwrap_or(definition.timeout)
}
