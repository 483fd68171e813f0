//! Jobs' life once more, told plainly: lists that are searched, no timers, no indices, and nothing shared with the scheduler but the words.
//! [`Model::take`] is told what happened and what the scheduler decided about it; whatever is left to chance (which of equally loaded workers,
//! how long a delay) is taken from the decision, if it is within its bounds, and everything else must be the same.

mod admission;
mod asking;
mod budgets;
mod confirming;
mod emptying;
mod excluding;
mod expecting;
mod fleet;
mod hooks;
mod life;
mod limits;
mod matching;
mod order;
mod pauses;
mod placing;
mod reports;
mod resources;
pub(crate) mod said;
mod setting_aside;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::world::protocol::order::{Intervals, StopCause};
use crate::world::protocol::resources::OfferedResources;
use crate::world::protocol::{Now, Revision, SessionId, Timestamp, Token, Uptime, WorkerId};
use crate::world::scheduler::definition::Definition;
use crate::world::scheduler::ids::Ticket;
use crate::world::scheduler::input::Input;
use crate::world::scheduler::job::State;
use crate::world::scheduler::limits::keys::JobKeys;
use crate::world::scheduler::placement::exclusion::Excluded;
use crate::world::scheduler::step::{Assigned, Change, Step};
use matching::Asked;

/// All that a naive mind keeps.
#[derive(Debug, Default)]
pub(crate) struct Model {
    /// Every job that ever was, in the order of their numbers.
    pub(crate) jobs: Vec<Job>,
    /// Every worker that was not forgotten, by number.
    pub(crate) workers: Vec<Worker>,
    definitions: Vec<Arc<Definition>>,
    expected: Vec<expecting::Expected>,
    last_worker: u64,
    last_job: u64,
    last_fence: u64,
    /// When all backlogs were last searched for what has to give way.
    searched: Option<Uptime>,
    /// When free slots were last found to suit nothing that sits in a backlog.
    in_vain: Option<Uptime>,
    /// The first job that could have a backlog, and since when.
    needs_backlog_since: Option<(u64, Uptime)>,
    /// Hooks whose events have happened in this step.
    hooked: Vec<hooks::Pending>,
    /// That of the job that ends, while a success is taken in.
    result: Option<String>,
    set_aside: BTreeMap<WorkerId, setting_aside::AwaitedBy>,
    last_starts: Vec<setting_aside::LastStart>,
    /// Waiting jobs, with the last start of another job of their definition while they waited.
    passed_over: BTreeMap<u64, Timestamp>,
    /// The wait for resources after which a worker is set aside, if one is.
    pub(crate) set_aside_after: Option<Duration>,
    /// A job for which a worker should be set aside, and since when.
    set_aside_due: Option<(u64, Uptime)>,
    /// Milliseconds after which a waiting job gains a step of priority, if it does.
    pub(crate) ageing: Option<i64>,
    /// Workers with the images that they have, in the order of the last use.
    images: Vec<(WorkerId, String)>,
    rates: limits::Rates,
    turns: Vec<limits::Turn>,
    turn: u64,
    paused: pauses::Paused,
    missing_secrets: BTreeSet<Revision>,
    intervals: Intervals,
    now: Now,
    /// The expected decisions as text.
    said: Vec<String>,
    /// Results of random draws: the worker of each next attempt, and the due times.
    assigned: Vec<Assigned>,
    /// Each attempt that was ever assigned, with the GPUs that it got.
    granted: Vec<resources::Granted>,
    due_again: Vec<(Token, Timestamp)>,
    /// Requests that were accepted in this step: the answer tells where the first job stands at its end.
    accepted: Vec<(Ticket, u64, u32)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) definition: Arc<Definition>,
    /// The workers that it asks for.
    pub(crate) narrowing: Asked,
    pub(crate) priority: i8,
    pub(crate) due: Timestamp,
    /// Milliseconds after which it gains a step of priority.
    ageing: Option<i64>,
    pub(crate) standing: LiveState,
    /// Values of the keys of its limits.
    keys: Option<JobKeys>,
    attempts: u32,
    /// A container of it has started, in any attempt.
    has_started: bool,
    /// Its place in a chain of hooks.
    hook_depth: u8,
    /// The first job of its batch, and whether that is paused.
    batch: Option<u64>,
    batch_paused: bool,
    job_failures: u32,
    oom_kills: u32,
    losses: Vec<Timestamp>,
    /// By when it starts, and whether that time was noticed.
    expires: Option<Timestamp>,
    expiry_noticed: bool,
    /// The worker of the last attempt that was not given back, and true if an infrastructure failure ended it.
    last: Option<(WorkerId, bool)>,
    /// Attempts that were given up and may be there.
    unconfirmed: Vec<Token>,
}

#[derive(Clone, Debug)]
pub(crate) enum LiveState {
    Scheduled,
    Queued { pinned: Option<WorkerId> },
    Held(Attempt),
    Quarantined,
    Ended(State),
}

#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    token: Token,
    pub(crate) worker: WorkerId,
    assigned: Now,
    pub(crate) started: Option<Timestamp>,
    stopping: Option<StopCause>,
    in_backlog: bool,
    recalled: bool,
    unsettled: bool,
    /// On which it was handed over last.
    session: Option<SessionId>,
    begun: bool,
    overrun: Option<Uptime>,
    slow: Option<Uptime>,
    was_slow: bool,
    loss: Option<Uptime>,
    /// It was called unreachable, and not called back since.
    missed: bool,
    offer: Option<Offer>,
}

/// The wait for the first report about an attempt: since when, until when, and true if it was asked for twice.
#[derive(Clone, Copy, Debug)]
struct Offer {
    sent: Uptime,
    due: Uptime,
    repeated: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    secret_hash: [u8; 32],
    name: Arc<str>,
    pub(crate) session: Option<SessionId>,
    /// True once its inventory has arrived on this session.
    settled: bool,
    /// When it said hello first since its last inventory.
    unreconciled_since: Option<Uptime>,
    incarnation: u64,
    /// A later start that was told to wait, since when, and when it was heard last.
    waiting: Option<(u64, Uptime, Uptime)>,
    last_report: Option<u64>,
    heard: Uptime,
    /// The last Hello or report.
    reported: Uptime,
    /// The last reconcile, or frame after one: its lease counts from there.
    contact: Uptime,
    pub(crate) unreachable: bool,
    pub(crate) cordoned: bool,
    /// When the cordon ends by itself.
    cordon_end: Option<Timestamp>,
    pub(crate) revoked: bool,
    leaving: bool,
    drain: Option<Drain>,
    slots: u32,
    slots_ordered: Option<u32>,
    backlog: u32,
    offers: bool,
    /// Resources that it offers.
    offer: OfferedResources,
    /// Labels: its own, with those of an operator over them.
    labels: Vec<(String, String)>,
    labels_set: Vec<(String, String)>,
    protocol: u16,
    /// It has connected, so that its labels are known.
    is_known: bool,
    /// It has the runtime, and the runtime does not answer.
    runtime_broken: bool,
    sees: bool,
    told: Vec<u128>,
    exclusions: Vec<Exclusion>,
    /// Different revisions that it failed to start since the last start that worked.
    failed: Vec<u128>,
    /// It is suspect, and the job that probes it.
    suspect: Option<Option<u64>>,
    /// Attempts of the next inventory that the archive does not know.
    announced: Vec<Token>,
    unassigned: Vec<Token>,
    /// Attempts that this server never assigned and that continue.
    unmanaged: Vec<Token>,
    /// Lost attempts whose container may still exist, with the session of the loss.
    doubts: Vec<(Token, Option<SessionId>)>,
}

#[derive(Clone, Copy, Debug)]
struct Drain {
    process: Option<u64>,
    deadline: Option<Timestamp>,
    is_over: bool,
}

#[derive(Clone, Copy, Debug)]
struct Exclusion {
    of: Excluded,
    seconds: Option<(u64, u64)>,
    until: Option<Uptime>,
    strikes: u32,
    active: bool,
}

impl Model {
    /// Takes in what happened; says what differs from what was decided.
    pub(crate) fn take(
        &mut self,
        now: Now,
        input: Input,
        step: &Step,
        set_aside: &setting_aside::SetAside,
    ) -> Result<(), String> {
        self.now = now;
        (self.said, self.due_again, self.assigned) = Default::default();
        for change in &step.changes {
            match change {
                Change::AttemptClosed { closed, due_at, .. } => self.due_again.push((closed.token, *due_at)),
                Change::Assigned(it) => self.assigned.push(it.clone()),
                _ => {}
            }
        }
        self.end_pauses();
        self.happen(input)?;
        self.make_hooks();
        self.open_again();
        self.place()?;
        let has_changed = self.take_set_aside(set_aside)?;
        self.recall_for_higher();
        self.allow_emptied_backlogs(step);
        if !has_changed {
            self.recall();
        }
        self.check_emptied_backlogs()?;
        self.answer();
        let mut decided = said::lines(step);
        decided.sort();
        self.said.sort();
        if decided == self.said {
            return Ok(());
        }
        let missing: Vec<_> = self.said.iter().filter(|line| !decided.contains(line)).collect();
        let strange: Vec<_> = decided.iter().filter(|line| !self.said.contains(line)).collect();
        Err(format!("not decided: {missing:#?}\nnobody expected: {strange:#?}"))
    }

    fn happen(&mut self, input: Input) -> Result<(), String> {
        match input {
            Input::ReplaceDefinitions(definitions) => {
                self.definitions = definitions;
                self.expect_anew();
            }
            Input::Submit(it) => self.submit(it),
            Input::Cancel(it) => self.cancel(it)?,
            Input::Release(it) => self.release(it),
            Input::Update(it) => self.update(it),
            Input::Connected(it) => self.connect(it),
            Input::Disconnected(session) => {
                if let Some(worker) = self.by_session(session) {
                    worker.session = None;
                }
            }
            Input::Reported(session, report) => self.report(session, report)?,
            Input::UnknownAttempts(session, tokens) => self.announce_unknown(session, tokens),
            Input::AttemptsNotOwned(session, tokens) => self.announce_unassigned(session, tokens),
            Input::SessionsActive(list) => {
                for (session, at) in list {
                    if let Some(worker) = self.by_session(session) {
                        worker.hear(at);
                    }
                }
            }
            Input::Unsent(session, tokens) => {
                for token in tokens {
                    self.take_back_unsent(session, token)?;
                }
            }
            Input::Operate(ticket, worker, operation) => self.operate(ticket, worker, operation),
            Input::Pause(it) => self.pause(it),
            Input::MissingSecrets(revisions) => self.missing_secrets = revisions,
            // The walks have no schedules, and no batches that are cancelled or have limits. A unit test reserves labels.
            Input::CancelBatch(_) | Input::ChangeBatch(_) => {}
            Input::Backfill(_) | Input::ReserveLabels(..) => {}
            Input::Tick => self.tick()?,
            Input::AddDefinition(_) => return Err("nobody asks for this here".into()),
        }
        Ok(())
    }

    fn say(&mut self, line: String) {
        self.said.push(line);
    }

    pub(crate) fn job(&self, id: u64) -> Option<&Job> {
        self.jobs.iter().find(|job| job.id == id)
    }

    fn job_mut(&mut self, id: u64) -> Option<&mut Job> {
        self.jobs.iter_mut().find(|job| job.id == id)
    }

    fn attempt_mut(&mut self, id: u64) -> Option<&mut Attempt> {
        self.job_mut(id).and_then(Job::attempt_mut)
    }

    pub(crate) fn worker(&self, id: WorkerId) -> Option<&Worker> {
        self.workers.iter().find(|worker| worker.id == id)
    }

    fn worker_mut(&mut self, id: WorkerId) -> Option<&mut Worker> {
        self.workers.iter_mut().find(|worker| worker.id == id)
    }

    fn by_session(&mut self, session: SessionId) -> Option<&mut Worker> {
        self.workers.iter_mut().find(|worker| worker.session == Some(session))
    }

    /// A session on which orders may be given.
    fn ready_session(&self, worker: WorkerId) -> Option<SessionId> {
        self.worker(worker).filter(|worker| worker.settled)?.session
    }

    /// By when the scheduler must want to be called again.
    pub(crate) fn next(&self) -> (Option<Timestamp>, Option<Uptime>) {
        let due =
            self.jobs.iter().filter(|job| matches!(job.standing, LiveState::Scheduled)).map(|job| job.due);
        let expiries = self.jobs.iter().filter(|job| !job.expiry_noticed).filter_map(|job| job.expires);
        let due = due.chain(expiries).chain(self.stale_dates().map(|(at, _)| at));
        let attempts = self.jobs.iter().filter_map(Job::attempt);
        let attempts = attempts.flat_map(|it| [it.overrun, it.loss, it.offer.map(|it| it.due)]).flatten();
        let leases = self.workers.iter().filter_map(|it| it.lease_end(self.intervals.lease));
        let exclusions = self.workers.iter().flat_map(|it| &it.exclusions);
        let exclusions = exclusions.filter(|it| it.active).filter_map(|it| it.until);
        let attempts = attempts.chain(self.slow_alarms().map(|(at, _)| at));
        (due.min(), attempts.chain(leases).chain(exclusions).min())
    }
}

impl Job {
    pub(crate) fn attempt(&self) -> Option<&Attempt> {
        match &self.standing {
            LiveState::Held(attempt) => Some(attempt),
            _ => None,
        }
    }

    fn attempt_mut(&mut self) -> Option<&mut Attempt> {
        match &mut self.standing {
            LiveState::Held(attempt) => Some(attempt),
            _ => None,
        }
    }

    pub(crate) fn state(&self) -> State {
        match &self.standing {
            LiveState::Scheduled => State::Scheduled,
            LiveState::Queued { .. } => State::Queued,
            LiveState::Held(attempt) if attempt.started.is_some() => State::Running,
            LiveState::Held(_) => State::Assigned,
            LiveState::Quarantined => State::Quarantined,
            LiveState::Ended(state) => *state,
        }
    }
}

/// Losses are forgotten after a day.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
