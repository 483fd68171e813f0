//! Why is this job not running? What each worker has against taking it, and what follows from that for the job.
//!
//! `obstacles` is the one place that knows. Whoever places a job asks for some of them, `pending_reason` is made of the nearest
//! worker's first one, and a person is shown all of all workers.

use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::{JobId, RuntimeKind, Uptime, WorkerId};

use crate::definition::Definition;
use crate::exclusion::Excluded;
use crate::fleet::{Link, Worker};
use crate::job::{Job, Standing, State};
use crate::place;
use crate::scheduler::Scheduler;
use crate::step::PendingReason;

/// Why a job that has not ended is where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Where it stands.
    pub state: State,
    /// What it waits for, if it waits.
    pub pending: Option<PendingReason>,
    /// What it is carried out by.
    pub runtime: RuntimeKind,
    /// Every worker that was not forgotten, by identity.
    pub workers: Vec<WorkerVerdict>,
}

/// What one worker could do for a job at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerVerdict {
    /// Which.
    pub worker: WorkerId,
    /// What people call it.
    pub name: Arc<str>,
    /// Whether the job may be given to it.
    pub verdict: Verdict,
}

/// Whether a job may be given to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has the job's current attempt.
    HasIt,
    /// It may.
    Able,
    /// It may if no other worker can take it: the last attempt was here.
    LastResort,
    /// It may not, for these reasons: the one that is the farthest from being overcome comes first. Never empty.
    Unable(Vec<Obstacle>),
}

/// Something that keeps a worker from being given a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Only this other worker may run the job.
    PinnedElsewhere(WorkerId),
    /// It is not connected.
    Offline,
    /// It is not connected, its lease has run out, and it has attempts that may run.
    Unreachable,
    /// It does not have the job's runtime.
    NoRuntime,
    /// It has the job's runtime, which does not answer.
    RuntimeUnavailable,
    /// It finishes what it has, and leaves.
    Draining,
    /// An operator lets it take nothing new.
    Cordoned,
    /// It gave back or failed to start what it was offered, and is not offered this until then; `None`: until it starts anew.
    Excluded(Excluded, Option<Uptime>),
    /// Its slots and its backlog are taken.
    Busy,
    /// It has just connected: what it holds is not settled yet.
    Joining,
}

impl Obstacle {
    /// As it is shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PinnedElsewhere(_) => "pinned_elsewhere",
            Self::Offline => "offline",
            Self::Unreachable => "unreachable",
            Self::NoRuntime => "no_runtime",
            Self::RuntimeUnavailable => "runtime_unavailable",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
            Self::Excluded(..) => "excluded",
            Self::Busy => "busy",
            Self::Joining => "joining",
        }
    }

    /// What a job waits for if this is the first obstacle of the worker that is nearest to taking it.
    const fn reason(self) -> PendingReason {
        match self {
            Self::PinnedElsewhere(_) => PendingReason::PinnedWorkerAway,
            Self::Offline | Self::Unreachable => PendingReason::NoWorker,
            Self::NoRuntime | Self::RuntimeUnavailable => PendingReason::NoRuntime,
            Self::Cordoned | Self::Draining => PendingReason::Cordoned,
            Self::Excluded(..) => PendingReason::Excluded,
            Self::Busy => PendingReason::Busy,
            Self::Joining => PendingReason::Soon,
        }
    }
}

impl Scheduler {
    /// Why a job is where it is, and what each worker has against taking it; `None` if it is not among those that have not ended.
    /// Looks at all workers.
    #[must_use]
    pub fn explain(&self, id: JobId) -> Option<Explanation> {
        let job = self.live_job(id)?;
        let definition = self.definitions.at(job.definition)?;
        let workers = self.fleet.iter().map(|(worker, facts)| WorkerVerdict {
            worker,
            name: facts.row.name.clone(),
            verdict: verdict(self, job, definition, facts),
        });
        let (state, pending) = place::standing_of(self, id);
        Some(Explanation { state, pending, runtime: definition.runtime(), workers: workers.collect() })
    }
}

fn verdict(it: &Scheduler, job: &Job, definition: &Definition, worker: &Worker) -> Verdict {
    let id = worker.row.worker;
    if job.attempt().is_some_and(|attempt| attempt.worker == id) {
        return Verdict::HasIt;
    }
    let lane = match job.standing {
        Standing::Queued(lane) => lane,
        // Where it would wait if it were its turn.
        Standing::Scheduled | Standing::Held(_) | Standing::Quarantined => place::lane_of(it, job),
    };
    let obstacles: Vec<Obstacle> = obstacles(worker, definition, lane.pinned_to()).collect();
    match () {
        () if !obstacles.is_empty() => Verdict::Unable(obstacles),
        () if place::avoids(job, definition, id) => Verdict::LastResort,
        () => Verdict::Able,
    }
}

/// Why jobs of a definition wait, those that only one worker may run or those that any may: the first obstacle of the worker that is
/// the nearest to taking them.
pub(crate) fn why_waiting(
    it: &Scheduler,
    definition: &Definition,
    pinned: Option<WorkerId>,
) -> PendingReason {
    let reason = |worker| {
        let first = obstacles(worker, definition, pinned).next();
        first.map_or(PendingReason::Soon, Obstacle::reason)
    };
    match pinned {
        Some(only) => {
            it.fleet.worker(only).map_or(PendingReason::NoWorker, reason).max(PendingReason::PinnedWorkerAway)
        }
        None => it.fleet.iter().map(|(_, worker)| reason(worker)).max().unwrap_or(PendingReason::NoWorker),
    }
}

/// What keeps a worker from taking a job of this definition that only `pinned` may run, if that is given: the farthest first.
pub(crate) fn obstacles(
    worker: &Worker,
    definition: &Definition,
    pinned: Option<WorkerId>,
) -> impl Iterator<Item = Obstacle> {
    let is_away = worker.link == Link::Away;
    let is_missed = worker.unreachable && !worker.held.is_empty();
    let obstacles = [
        pinned.filter(|only| *only != worker.row.worker).map(Obstacle::PinnedElsewhere),
        (is_away && is_missed).then_some(Obstacle::Unreachable),
        (is_away && !is_missed).then_some(Obstacle::Offline),
        // What it could run is only known while it is there.
        if is_away { None } else { lacking(worker, definition.runtime()) },
        // A process that has left leaves no more.
        (worker.row.drain.is_some() || (!is_away && worker.leaving)).then_some(Obstacle::Draining),
        // Who drains is cordoned anyway.
        (worker.row.cordoned && worker.row.drain.is_none()).then_some(Obstacle::Cordoned),
        worker.exclusions.covering(definition).map(|(of, until)| Obstacle::Excluded(of, until)),
        (!is_away && !worker.has_room()).then_some(Obstacle::Busy),
        matches!(worker.link, Link::Joining(_)).then_some(Obstacle::Joining),
    ];
    obstacles.into_iter().flatten()
}

fn lacking(worker: &Worker, runtime: RuntimeKind) -> Option<Obstacle> {
    match worker.offers(runtime) {
        true => None,
        false if worker.has(runtime) => Some(Obstacle::RuntimeUnavailable),
        false => Some(Obstacle::NoRuntime),
    }
}
