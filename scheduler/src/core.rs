//! [`Scheduler`] holds the state: all tables, and the output of the running step. `dispatch` calls the handlers that change it.

mod output;
mod session;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use protocol::report::Phase;
use protocol::{JobId, Now, Revision, SessionId, Timestamp, Token, Uptime, WorkerId};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::batches::Batches;
use crate::commit_watch::{CommitWatch, tick_within};
use crate::config::{Config, Counters};
use crate::definition::Definition;
use crate::definitions::Definitions;
use crate::dependencies::Dependencies;
use crate::expectations::ExpectationTable;
use crate::fleet::Fleet;
use crate::fleet::claims::Claim;
use crate::hooks::PendingHook;
use crate::hooks::targets::HookTargets;
use crate::ids::{DefinitionNo, GroupNo, Ticket};
use crate::job::{AttemptTimeout, Job};
use crate::keys::RecentKeys;
use crate::limits::Limits;
use crate::new_jobs::NewJob;
use crate::pauses::Pauses;
use crate::pending_batch::PendingBatches;
use crate::placement::narrowing::Narrowing;
use crate::placement::searches::PlacementSearches;
use crate::queue::ReadyQueue;
use crate::run_on::Parents;
use crate::schedules::Schedules;
use crate::step::{Accepted, Grant, Step};
use crate::table::{Seed, Table};
use crate::timers::{Timers, UptimeTimer, WakeAt};
use crate::unique::UniqueKeys;

/// All jobs that have not ended, all workers, and the queues, timers and counters between them.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) config: Config,
    pub(crate) counters: Counters,
    pub(crate) definitions: Definitions,
    pub(crate) jobs: Table<JobId, Job>,
    pub(crate) ready: ReadyQueue,
    pub(crate) fleet: Fleet,
    /// Sessions of cloned workers that were closed. Their peers may not have received the refusal yet.
    pub(crate) evicted_sessions: BTreeMap<SessionId, (WorkerId, Claim)>,
    pub(crate) timers: Timers,
    pub(crate) keys: RecentKeys,
    pub(crate) pending_batches: PendingBatches,
    pub(crate) batches: Batches,
    pub(crate) schedules: Schedules,
    pub(crate) pauses: Arc<Pauses>,
    /// Revisions of definitions whose secrets the server does not have.
    pub(crate) missing_secrets: BTreeSet<Revision>,
    pub(crate) expectations: ExpectationTable,
    pub(crate) limits: Limits,
    pub(crate) unique: UniqueKeys,
    pub(crate) dependencies: Dependencies,
    pub(crate) parents: Parents,
    pub(crate) hook_targets: HookTargets,
    /// Hooks whose events have happened in this step; empty between steps.
    pub(crate) pending_hooks: VecDeque<PendingHook>,
    pub(crate) rng: SmallRng,
    /// Time of the last step, or of the start.
    pub(crate) stepped_at: Option<Uptime>,
    pub(crate) commit_watch: CommitWatch,
    /// Time at which all leases were renewed, last. Messages of workers that were sent before may have been unread then.
    pub(crate) leases_renewed_at: Uptime,
    /// Searches for attempts to recall, and for workers to set aside.
    pub(crate) searches: PlacementSearches,
    /// Phases that workers reported for attempts that neither wait nor run there.
    pub(crate) phases: BTreeMap<JobId, Phase>,
    /// Number of unconfirmed attempts for each cancelled job that ended with several of them.
    pub(crate) unconfirmed: BTreeMap<JobId, usize>,
    /// Numbers above the counters that may be skipped once: the gap that a restore reserves, or zero if this store was not restored. An
    /// inventory with an invented token thus raises no counter of an ordinary store.
    pub(crate) skippable: u64,
    /// The counters were raised for unknown attempts.
    pub(crate) has_skipped: bool,
    /// Timers that were overdue at the start, while some are left.
    pub(crate) overdue: Option<Overdue>,
    /// Jobs can be placed that the last step did not look at; the next one is due at once.
    pub(crate) has_more_to_place: bool,
    /// The snapshot differs from the last one that was published.
    pub(crate) changed: bool,
    pub(crate) out: Step,
    pub(crate) grants: BTreeMap<SessionId, Vec<Grant>>,
    pub(crate) accepted: Vec<(Ticket, Accepted)>,
}

/// Timers that were overdue at the start of the server fire in portions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overdue {
    /// Timers up to this time were overdue.
    pub(crate) until: Timestamp,
    /// Time of the next portion.
    pub(crate) next: Uptime,
}

impl Scheduler {
    /// Creates a scheduler without jobs. `counters` are the highest numbers assigned in this cluster.
    #[must_use]
    pub fn new(config: Config, counters: Counters) -> Self {
        let mut rng = SmallRng::seed_from_u64(config.seed);
        let ties = SmallRng::from_rng(&mut rng);
        Self {
            config,
            counters,
            definitions: Definitions::new(Seed(config.seed)),
            jobs: Table::with_hasher(Seed(config.seed)),
            ready: ReadyQueue::new(Seed(config.seed)),
            fleet: Fleet::new(ties, Seed(config.seed)),
            evicted_sessions: BTreeMap::new(),
            timers: Timers::default(),
            keys: RecentKeys::starting_after(counters.group),
            pending_batches: PendingBatches::default(),
            batches: Batches::default(),
            schedules: Schedules::default(),
            pauses: Arc::default(),
            missing_secrets: BTreeSet::new(),
            expectations: ExpectationTable::default(),
            limits: Limits::new(Seed(config.seed)),
            unique: UniqueKeys::default(),
            dependencies: Dependencies::default(),
            parents: Parents::default(),
            hook_targets: HookTargets::default(),
            pending_hooks: VecDeque::new(),
            rng,
            stepped_at: None,
            commit_watch: CommitWatch::default(),
            leases_renewed_at: Uptime::default(),
            searches: PlacementSearches::default(),
            phases: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            skippable: 0,
            has_skipped: false,
            overdue: None,
            has_more_to_place: false,
            changed: true,
            out: Step::default(),
            grants: BTreeMap::new(),
            accepted: Vec::new(),
        }
    }

    /// Sets the number of the group that the next steps belong to. The caller sets it as soon as the previous
    /// group is closed, since each group may hold one slice of a large batch.
    pub fn begin(&mut self, group: GroupNo) {
        self.counters.group = group;
        self.keys.begin(group);
    }

    /// Records that a commit has begun. Workers get no answers until it ends, so their silence does not count
    /// if it takes long.
    pub const fn commit_began(&mut self, at: Uptime) {
        self.commit_watch.begin(at);
    }

    /// Records that the commit is durable.
    pub fn commit_ended(&mut self, at: Uptime) {
        self.commit_watch.end(at, self.config.intervals.lease);
    }

    /// The sessions whose silence a Tick at this time decides on, ordered. The caller sends [`Input::SessionsActive`](crate::input::Input::SessionsActive)
    /// about them first.
    #[must_use]
    pub fn sessions_to_check(&self, now: Now) -> Vec<SessionId> {
        let mut sessions = Vec::new();
        for alarm in self.timers.due_uptime(now) {
            let worker = match alarm {
                UptimeTimer::LeaseEnd(worker) => Some(worker),
                UptimeTimer::Loss(job, _) => self.jobs.get(&job).and_then(Job::attempt).map(|it| it.worker),
                UptimeTimer::ClonesGone(_) => {
                    // Refused clones whose sessions are not closed yet. They are few, and they are heard of once a lease.
                    sessions.extend(self.evicted_sessions.keys());
                    None
                }
                UptimeTimer::Overrun(..)
                | UptimeTimer::Slow(..)
                | UptimeTimer::AwaitedReport(..)
                | UptimeTimer::ExclusionEnd(_)
                | UptimeTimer::WorkerExpiry(_)
                | UptimeTimer::Recall
                | UptimeTimer::SetAside
                | UptimeTimer::MembersDue => None,
            };
            sessions.extend(worker.and_then(|id| self.fleet.worker(id)?.link.session()));
        }
        sessions.sort_unstable();
        sessions.dedup();
        sessions
    }

    /// Latest time for the next [`Input::Tick`](crate::input::Input::Tick), even if nothing is due then.
    #[must_use]
    pub fn wake_at(&self) -> WakeAt {
        let mut wake = self.timers.wake_at();
        if let Some(at) = self.limits.next_due() {
            wake.up = Some(wake.up.map_or(at, |up| up.min(at)));
        }
        if let Some(overdue) = self.overdue {
            wake.utc = self.timers.first_wall_after(overdue.until);
            wake.up = Some(wake.up.map_or(overdue.next, |at| at.min(overdue.next)));
        }
        if let Some((at, _)) = self.pauses.first_end().filter(|_| self.schedules.are_read) {
            wake.utc = Some(wake.utc.map_or(at, |utc| utc.min(at)));
        }
        if let Some(last) = self.stepped_at {
            let attended = last + tick_within(self.config.intervals.lease);
            wake.up = Some(wake.up.map_or(attended, |at| at.min(attended)));
        }
        let has_more = self.has_more_to_place
            || self.batches.has_to_cancel()
            || self.parents.has_work()
            || (self.parents.is_settling() && !self.fleet.may_reconnect())
            || self.dependencies.has_work();
        if has_more || self.pending_batches.wants_slice(self.counters.group) {
            wake.up = Some(AT_ONCE);
        }
        wake
    }

    /// Returns whether the snapshot has changed since the last call.
    pub const fn take_changed(&mut self) -> bool {
        mem::replace(&mut self.changed, false)
    }

    /// Workers that are set aside, each with the waiting job that it is set aside for.
    pub fn workers_set_aside(&self) -> impl Iterator<Item = (WorkerId, JobId)> {
        self.fleet.workers_set_aside()
    }

    /// Returns whether this job has not ended.
    #[must_use]
    pub fn is_live(&self, job: JobId) -> bool {
        self.live_job(job).is_some()
    }

    /// Number of jobs that have not ended.
    #[must_use]
    pub fn live_jobs(&self) -> usize {
        self.jobs.len() - self.pending_batches.hidden()
    }

    /// A job that has not ended. Members of an unfinished batch are left out.
    pub(crate) fn live_job(&self, job: JobId) -> Option<&Job> {
        self.jobs.get(&job).filter(|_| !self.pending_batches.hides(job))
    }

    /// Adds a definition if it is not known.
    pub(crate) fn add_definition(&mut self, definition: Arc<Definition>) -> DefinitionNo {
        let number = self.definitions.add(definition);
        if let Some(need) = self.definitions.need(number) {
            self.fleet.add_needs(core::iter::once((number, need)));
        }
        self.pause_learned(number);
        number
    }

    /// The number that stands for the definition of a new job, together with the workers that the job asks for.
    pub(crate) fn number_of(&mut self, new: &NewJob) -> Option<DefinitionNo> {
        let base = self.definitions.find(new.revision)?;
        new.narrowing.as_ref().map_or(Some(base), |narrowing| self.narrow(base, narrowing))
    }

    /// The number of the jobs of a definition that ask for these workers.
    pub(crate) fn narrow(&mut self, base: DefinitionNo, narrowing: &Arc<Narrowing>) -> Option<DefinitionNo> {
        if self.definitions.find_narrowed(base, narrowing).is_none() {
            self.narrow_all(core::iter::once((base, narrowing.clone())));
        }
        self.definitions.find_narrowed(base, narrowing)
    }

    /// Gives numbers to the jobs of these definitions that ask for these workers.
    pub(crate) fn narrow_all(&mut self, asked: impl Iterator<Item = (DefinitionNo, Arc<Narrowing>)>) {
        let numbers: Vec<DefinitionNo> =
            asked.filter_map(|(base, narrowing)| self.definitions.add_narrowed(base, narrowing)).collect();
        let definitions = &self.definitions;
        self.fleet.add_needs(numbers.iter().filter_map(|number| Some((*number, definitions.need(*number)?))));
        numbers.into_iter().for_each(|number| self.pause_learned(number));
    }

    fn pause_learned(&mut self, number: DefinitionNo) {
        let is_paused = self.definitions.at(number).is_some_and(|definition| self.holds_back(definition));
        self.ready.pause_definition(number, is_paused);
    }

    /// Jobs of this definition may not start: it is paused, or the server does not have its secrets.
    pub(crate) fn holds_back(&self, definition: &Definition) -> bool {
        self.pauses.hold_back(definition) || self.missing_secrets.contains(&definition.revision)
    }

    /// The batch of a job, if it is paused. A member of a job on several workers belongs to the batch of its parent.
    pub(crate) fn paused_batch(&self, id: JobId, job: &Job) -> Option<JobId> {
        self.pauses.batch_of(job.role().numbered_as(id))
    }

    /// The job whose current attempt has this token, if this worker holds it.
    pub(crate) fn held(&mut self, token: Token, worker: WorkerId) -> Option<&mut Job> {
        let job = self.jobs.get_mut(&token.job)?;
        job.attempt().is_some_and(|attempt| attempt.is(token, worker)).then_some(job)
    }

    /// The parent of a member of a job on several workers.
    pub(crate) fn parent_of(&self, id: JobId) -> Option<JobId> {
        self.jobs.get(&id)?.role().parent()
    }

    /// The definition of a job. Definitions outlive their jobs.
    pub(crate) fn definition(&self, job: &Job) -> Option<Arc<Definition>> {
        self.definitions.at(job.definition).cloned()
    }

    /// Time after its start within which the worker must have stopped an attempt: the timeout, the stop
    /// grace, and two leases for the worker to reconnect and report it (docs/design/failures.md, F21).
    pub(crate) fn run_limit(&self, job: &Job) -> Option<Duration> {
        let definition = self.definitions.at(job.definition)?;
        let timeout = timeout_of(job, definition)?;
        Some(
            timeout
                .saturating_add(definition.container.stop_grace)
                .saturating_add(self.config.intervals.lease * 2),
        )
    }
}

/// Any instant in the past.
const AT_ONCE: Uptime = Uptime(0);

/// Timeout of one attempt of a job.
pub(crate) fn timeout_of(job: &Job, definition: &Definition) -> Option<Duration> {
    let own = job.extras.as_ref().and_then(|extras| extras.timeout);
    own.map_or(definition.timeout, AttemptTimeout::limit)
}
