//! Compares the decisions of the state machines with what is true: rows that are durable, containers that ran, words that were said.
//!
//! Names of rules are those of the invariants I1 to I24: I1 an accepted job exists · I2 one request per key · I3 to I6 one live attempt,
//! fences that grow, legal moves, ends that stay (the disk checks these as it takes changes) · I7, I8 stale words change nothing ·
//! I9, I10 budgets · I11 no start behind the gate · I12 an attempt runs once · I13 never two containers where that was promised ·
//! I17 what was cancelled does not start · I18 nothing is said that is not durable · I19 nothing is removed that is not durable ·
//! I21, I23 the state machines' own audits · I22, Q4 the order of the queue · Q7 a host that failed is excluded ·
//! W6 a stop has its grace · I24 who is cordoned gets nothing · R18 nobody is let in as a worker beside another process of it that is
//! heard, nor from another cluster. Now and then everything is looked at again (`scan`). The store checks promise 4
//! (schedules) at each change. I14 no limit on jobs at once is exceeded; that none leaks is a part of I21 · I15 no rate is exceeded.
//! I16 no two jobs with the same unique key hold a worker; the store refuses a second live one. I20 a job starts only
//! after all jobs that it comes after have ended as it requires; the store refuses what does not, and that it starts at all shows when all
//! is quiet. I28 no job of a paused definition or batch gets an attempt; the store refuses it. A pause with an end ends then.
//! I31 at most one batch that has not ended has a unique key, and one that was replaced is cancelled; the store refuses the rest.
//!
//! Two things make promises void, and only those that rest on them: a store that went back in time (`past`), and copies of a worker that
//! nobody could tell from a restart (`copies`).

mod allowed;
mod contact;
mod copies;
mod keeping;
mod limits;
mod orders;
mod past;
mod pauses;
mod places;
mod rows;
mod scan;
pub(crate) mod set_aside;
mod starts;
mod truth;
mod waits;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::order::ReconcileVerdict;
use protocol::{Fence, JobId, Order, Timestamp, Token, WorkerId};
use scheduler::Scheduler;
use scheduler::input::KeyHolder;
use scheduler::limits::LimitId;
use scheduler::step::{Change, Effect, Ended, Step};
use worker::Worker;

use crate::clock::Moment;
use crate::disk::Disk;
use crate::docker::ContainerEnd;
use crate::oracle::contact::Contact;
pub(crate) use crate::oracle::copies::Caller;
use crate::oracle::copies::WorkerProcesses;
use crate::oracle::keeping::Promises;
use crate::oracle::orders::LocalQueue;
use crate::oracle::pauses::PauseEnds;
use crate::oracle::places::Places;
pub(crate) use crate::oracle::rows::Scene;
use crate::oracle::scan::Ending;
use crate::oracle::set_aside::SetAside;
use crate::oracle::starts::Gate;
use crate::oracle::truth::Truth;
use crate::oracle::waits::FailedHosts;
use crate::workload::Workload;

/// Something that must never be, and was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) at: Moment,
    pub(crate) rule: &'static str,
    pub(crate) what: String,
}

#[derive(Debug)]
pub(crate) struct Oracle {
    pub(crate) violation: Option<Violation>,
    /// When a job last moved.
    pub(crate) moved_at: Moment,
    /// True if clocks on walls were set in this world: what is counted by them cannot be held against anything then.
    pub(crate) walls_step: bool,
    /// True if directories of attempts were lost in this world, and with them why an attempt was stopped.
    pub(crate) causes_lost: bool,
    /// The present effects were decided before a freeze.
    pub(crate) is_excused: bool,
    decisions: u64,
    /// By fence: what became of the attempt's container.
    truths: Vec<Truth>,
    /// Of attempts whose fence another one has too.
    namesakes: BTreeMap<Token, Truth>,
    /// By machine.
    gates: Vec<Gate>,
    /// By machine: reports that the server may have to acknowledge.
    promises: Vec<Promises>,
    /// By machine: its local queue.
    queues: Vec<LocalQueue>,
    /// By machine: attempts that were sent to it on its connection.
    sent: Vec<BTreeSet<Token>>,
    /// By machine: when it was last in trouble.
    troubles: Vec<Moment>,
    keys: BTreeMap<Arc<str>, KeyHolder>,
    cordoned: Vec<WorkerId>,
    /// Jobs of which a person has given up an attempt.
    given_up: Vec<JobId>,
    /// Jobs of which somebody was told that they are being cancelled.
    cancelled: BTreeSet<JobId>,
    /// By machine: the most slots that it was ever allowed.
    slots: Vec<u32>,
    worker_processes: WorkerProcesses,
    /// By worker.
    contacts: Vec<Contact>,
    /// The workers that were set aside before the step that is looked at.
    pub(crate) set_aside: SetAside,
    places: Places,
    failed_hosts: FailedHosts,
    /// The first job and the number of jobs of each request that was told to be accepted.
    accepted: Vec<(JobId, u32)>,
    /// By job: how it ended, when it was last looked at.
    endings: Vec<Option<Ending>>,
    /// How attempts had ended before their machine was set back to another time: what was told of that may be believed later.
    other_ends: Vec<(Token, ContainerEnd)>,
    /// Up to this one, fences were given by a life of the store that was undone.
    undone: Fence,
    /// Up to this one, by a life that was undone by an old state that came back as it was: nobody can know, and they may be given again.
    given_again: Fence,
    /// When jobs of each rate were assigned, by the wall clock of the server.
    rate_starts: BTreeMap<LimitId, Vec<Timestamp>>,
    pause_ends: PauseEnds,
    /// Batches that are paused.
    paused_batches: BTreeSet<JobId>,
    /// Batches whose limits have changed.
    changed_batches: BTreeSet<JobId>,
    /// When cordons end by themselves.
    cordon_ends: BTreeMap<WorkerId, Timestamp>,
    /// By machine: whether somebody has told it to stop its jobs.
    pub(crate) interrupted: Vec<bool>,
}

impl Oracle {
    pub(crate) fn new(machines: usize, walls_step: bool) -> Self {
        let each = || 0..machines;
        Self {
            violation: None,
            moved_at: Moment(0),
            walls_step,
            causes_lost: false,
            is_excused: false,
            decisions: 0,
            truths: Vec::new(),
            namesakes: BTreeMap::new(),
            gates: each().map(|_| Gate::default()).collect(),
            promises: each().map(|_| Promises::default()).collect(),
            queues: each().map(|_| LocalQueue::default()).collect(),
            sent: each().map(|_| BTreeSet::new()).collect(),
            troubles: vec![Moment(0); machines],
            keys: BTreeMap::new(),
            cordoned: Vec::new(),
            given_up: Vec::new(),
            cancelled: BTreeSet::new(),
            slots: vec![0; machines],
            worker_processes: WorkerProcesses::default(),
            contacts: Vec::new(),
            places: Places::default(),
            set_aside: SetAside::new(),
            failed_hosts: FailedHosts::default(),
            accepted: Vec::new(),
            endings: Vec::new(),
            other_ends: Vec::new(),
            undone: Fence(0),
            given_again: Fence(0),
            rate_starts: BTreeMap::new(),
            pause_ends: PauseEnds::new(),
            paused_batches: BTreeSet::new(),
            changed_batches: BTreeSet::new(),
            cordon_ends: BTreeMap::new(),
            interrupted: vec![false; machines],
        }
    }

    /// Records that a rule was violated; the first violation counts.
    pub(crate) fn violated(&mut self, at: Moment, rule: &'static str, what: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { at, rule, what });
        }
    }

    /// The scheduler has decided something.
    pub(crate) fn decided(
        &mut self,
        scene: Scene<'_>,
        (disk, workload): (&Disk, &Workload),
        scheduler: &Scheduler,
        step: &Step,
    ) {
        let now = scene.now;
        self.check_contacts(now, step);
        self.check_names_are_unique(now, scheduler, step);
        self.places_change(now, (disk, workload), scheduler, step);
        self.waits_change(scene, (disk, workload), step);
        self.check_placement_rules(now, (disk, workload), scheduler, step);
        for change in &step.changes {
            match change {
                Change::Worker(row) | Change::CordonEnded { row, .. } => {
                    self.row_changed(row);
                    self.cordoned.retain(|worker| *worker != row.worker);
                    if row.cordoned {
                        self.cordoned.push(row.worker);
                    }
                }
                Change::AttemptClosed { closed, state, .. }
                | Change::Ended(Ended { closed: Some(closed), state, .. }) => {
                    self.check_silence(scene, disk, workload, (closed, *state));
                    self.check_absence(now, disk, scheduler, closed);
                    self.check_successor(scene, (disk, workload), scheduler, (closed, *state));
                }
                Change::Assigned(it) if self.cordoned.contains(&it.worker) => {
                    let what = format!("{} goes to worker {}", it.token, it.worker);
                    self.violated(now, "I24 a cordoned worker gets nothing", what);
                }
                Change::ContainerGone { token, .. } => {
                    self.check_confirmed_gone(scene, token.job, Some(*token))
                }
                _ => {}
            }
        }
        for effect in &step.effects {
            if let Effect::Send(session, Order::Reconciled(told)) = effect {
                let worker = scheduler.worker_facts().find(|it| it.session == Some(*session)).map(|it| it.id);
                // A machine that has joined anew may also keep what it has of another worker. That promises nothing about the job.
                let is_held = |token: &Token| {
                    let latest = disk.row(token.job).and_then(|row| row.latest.as_ref());
                    latest.is_some_and(|it| it.token == *token && Some(it.worker) == worker)
                };
                let kept = told.attempts.iter().filter(|(_, verdict)| *verdict == ReconcileVerdict::Keep);
                let kept = kept.filter(|(token, _)| is_held(token));
                kept.for_each(|(token, _)| self.truth(*token).kept = Some(now));
            }
        }
        self.decisions += 1;
        if self.decisions.is_multiple_of(SCAN_EVERY) {
            self.scan(scene, disk, scheduler);
        }
        if self.decisions.is_multiple_of(AUDIT_EVERY)
            && let Some(fault) = scheduler::audit::audit(scheduler).pop()
        {
            self.violated(now, "I21 audit of the scheduler", fault);
        }
    }

    /// A server has started: what it decides from is what is durable.
    pub(crate) fn server_started(&mut self, now: Moment, scheduler: &Scheduler, disk: &Disk) {
        let (live, workers) = (disk.live, &disk.workers);
        self.places_loaded(disk);
        self.waits_loaded();
        self.pauses_loaded(disk);
        // Its own presence counts from here; a store that went back in time gives its sessions old numbers.
        self.contacts.clear();
        self.cordoned = workers.values().filter(|row| row.cordoned).map(|row| row.worker).collect();
        // Decisions that did not become durable are void.
        workers.values().for_each(|row| self.row_changed(row));
        if scheduler.live_jobs() as u64 != live {
            let what = format!("{} jobs live in the scheduler, {live} on the disk", scheduler.live_jobs());
            self.violated(now, "I21 a start takes in what is durable", what);
        }
        if let Some(fault) = scheduler::audit::audit(scheduler).pop() {
            self.violated(now, "I21 audit of the scheduler", fault);
        }
    }

    /// A worker has decided something.
    pub(crate) fn worker_decided(
        &mut self,
        now: Moment,
        no: u16,
        worker: &Worker,
        effects: &[worker::Effect],
    ) {
        for effect in effects {
            if let worker::Effect::Stop { token, .. } = effect {
                self.truth(*token).stopped.get_or_insert(now);
            }
        }
        if let Some(fault) = worker.audit().pop() {
            self.violated(now, "I23 audit of the worker", format!("w{no}: {fault}"));
        }
    }
}

/// The audit looks at each live job and at each worker for each lane, which costs as much as some ten steps. The faults that it looks for last.
const AUDIT_EVERY: u64 = 8;
/// Looking at everything that there ever was costs as much as some hundred steps.
const SCAN_EVERY: u64 = 1_000;

#[cfg(test)]
mod tests;
