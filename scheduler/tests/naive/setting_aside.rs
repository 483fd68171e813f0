//! Workers that are set aside for a job that has waited long for resources. Which one is, and when, is the scheduler's choice; here is what
//! it must do and must not do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::matching::Asked;
use super::placing::is_suspended;
use super::resources::{is_offered, reserves};
use super::{Job, LiveState, Model, Worker};
use crate::world::protocol::{JobId, Timestamp, WorkerId};
use crate::world::scheduler::definition::Definition;

/// Workers that are set aside, each with its job.
pub(super) type SetAside = BTreeMap<WorkerId, JobId>;

/// The job that a worker is set aside for, as it was before placement.
#[derive(Clone, Debug)]
pub(super) struct AwaitedBy {
    job: u64,
    order: (i64, bool, i64, u64),
    definition: Arc<Definition>,
}

/// Last start of a job of a definition with resources, by the worker to which it was pinned.
pub(super) type LastStart = (((u128, Asked), Option<WorkerId>), Timestamp);

impl Model {
    /// The worker is set aside for a job that goes before this one.
    pub(super) fn is_set_aside_before(&self, worker: &Worker, job: &Job) -> bool {
        self.set_aside.get(&worker.id).is_some_and(|it| it.order < job.order())
    }

    /// The job that the worker is set aside for lets this one have a slot: it does not go before this one, or a slot and all that it
    /// reserves are left.
    pub(super) fn is_admitted(&self, worker: &Worker, job: &Job) -> bool {
        let Some(first) = self.set_aside.get(&worker.id) else { return true };
        let leaves_room = self.burden(worker) + 1 < worker.slots()
            && self.has_left_with(worker, &job.definition, &first.definition);
        job.order() <= first.order || leaves_room
    }

    /// As [`Self::own_load`], if the worker is not set aside.
    pub(super) fn load(&self, worker: &Worker) -> Option<u32> {
        self.own_load(worker).filter(|_| !self.set_aside.contains_key(&worker.id))
    }

    /// As [`Self::load`], for this job: it may have room on a worker that is set aside for it, or for one that lets it.
    pub(super) fn load_for(&self, worker: &Worker, job: &Job) -> Option<u32> {
        self.own_load(worker).filter(|_| self.is_admitted(worker, job))
    }

    /// Workers whose jobs do not wait for them any more are not set aside any longer.
    pub(super) fn open_again(&mut self) {
        let mut stay = self.set_aside.clone();
        stay.retain(|worker, first| {
            let both = self.worker(*worker).zip(self.job(first.job));
            both.is_some_and(|(worker, job)| {
                let is_away = self.ready_session(worker.id).is_none();
                let may_return = is_away && !(worker.cordoned || worker.unreachable || worker.revoked);
                (may_return || self.is_open(worker)) && self.could_have_back(worker, job)
            })
        });
        for first in stay.values_mut() {
            first.order = self.job(first.job).expect("it waits").order();
        }
        self.set_aside = stay;
    }

    fn is_open(&self, worker: &Worker) -> bool {
        self.ready_session(worker.id).is_some() && !(worker.cordoned || worker.leaving || worker.unreachable)
    }

    /// The job waits for nothing but room, and may run on this worker.
    fn could_have(&self, worker: &Worker, job: &Job) -> bool {
        self.is_open(worker) && self.could_have_back(worker, job)
    }

    /// As [`Self::could_have`], but the worker may be away.
    fn could_have_back(&self, worker: &Worker, job: &Job) -> bool {
        let is_probed = worker.suspect.is_some() && (self.is_probing(worker) || is_suspended(worker));
        matches!(job.standing, LiveState::Queued { .. })
            && self.is_let(job)
            && worker.slots() > 0
            && !is_probed
            && self.may_run(worker, job)
            && is_offered(worker, &job.definition)
    }

    /// A job starts: others of its definition have been passed over for no longer than since then.
    pub(super) fn starts(&mut self, id: u64) {
        let job = self.job(id).expect("it starts");
        let LiveState::Queued { pinned } = job.standing else { return };
        if !job.is_limited() {
            return;
        }
        let of = (job.kind(), pinned);
        let now = self.now.utc;
        self.last_starts.retain(|(it, _)| *it != of);
        self.last_starts.push((of.clone(), now));
        self.passed_over.remove(&id);
        let waits = |it: &&Job| {
            matches!(it.standing, LiveState::Queued { pinned } if pinned == of.1)
                && it.kind() == of.0
                && it.id != id
        };
        let others: Vec<u64> = self.jobs.iter().filter(waits).map(|it| it.id).collect();
        self.passed_over.extend(others.into_iter().map(|it| (it, now)));
    }

    /// The job has waited for resources for long enough. That others of its definition started while it waited is known; that some did before
    /// it waited is not regarded.
    fn has_waited(&self, job: &Job) -> bool {
        let since = self.passed_over.get(&job.id).map_or(job.due, |at| (*at).max(job.due));
        let waited = |after| self.now.utc.since(since) >= after;
        matches!(job.standing, LiveState::Queued { .. })
            && reserves(&job.definition)
            && self.set_aside_after.is_some_and(waited)
    }

    /// As [`Self::has_waited`], and no job of its definition has started before it waited.
    fn has_surely_waited(&self, job: &Job) -> bool {
        let LiveState::Queued { pinned } = job.standing else { return false };
        let of = (job.kind(), pinned);
        let last = self.last_starts.iter().find(|(it, _)| *it == of).map(|(_, at)| *at);
        let waited = |after| last.is_none_or(|at| self.now.utc.since(at) >= after);
        self.has_waited(job) && self.set_aside_after.is_some_and(waited)
    }

    /// Takes in which workers the scheduler has set aside; says what it must not have done, and what it should have done by now. Returns true
    /// if that has changed: placement goes on in the next step.
    pub(super) fn take_set_aside(&mut self, told: &SetAside) -> Result<bool, String> {
        let jobs = |of: &BTreeMap<WorkerId, AwaitedBy>| -> SetAside {
            of.iter().map(|(worker, it)| (*worker, JobId(it.job))).collect()
        };
        let before = jobs(&self.set_aside);
        // A job that was placed does not wait any more, and may have taken the permit of another one.
        self.open_again();
        let kept = jobs(&self.set_aside);
        for (worker, job) in kept.iter().filter(|(worker, job)| told.get(worker) != Some(job)) {
            let order = self.job(job.0).expect("it waits").order();
            let taker = told.get(worker).and_then(|it| self.job(it.0));
            if taker.is_none_or(|taker| taker.order() > order) {
                return Err(format!("worker {worker} is not set aside for job {job} any more, which waits"));
            }
        }
        let waits =
            |job: &JobId| self.job(job.0).is_some_and(|it| matches!(it.standing, LiveState::Queued { .. }));
        if let Some(job) = told.values().find(|job| !waits(job)) {
            return Err(format!("a worker is set aside for job {job}, which does not wait"));
        }
        self.set_aside.retain(|worker, it| told.get(worker) == Some(&JobId(it.job)));
        for (id, job) in told.iter().filter(|(worker, job)| kept.get(worker) != Some(job)) {
            let both = self.worker(*id).zip(self.job(job.0));
            let (worker, job) = both.ok_or_else(|| format!("{id} is set aside for {job}"))?;
            let is_second = told.values().filter(|it| it.0 == job.id).count() > 1;
            if is_second || !self.has_waited(job) || !self.could_have(worker, job) {
                return Err(format!("worker {id} is set aside for job {}, without need", job.id));
            }
            let awaited = AwaitedBy { job: job.id, order: job.order(), definition: job.definition.clone() };
            self.set_aside.insert(*id, awaited);
        }
        self.check_set_aside_in_time()?;
        Ok(before != *told)
    }

    fn check_set_aside_in_time(&mut self) -> Result<(), String> {
        self.set_aside_due = match (self.job_without_worker(), self.set_aside_due.take()) {
            (Some(due), Some((of, since))) if of == due => Some((of, since)),
            (due, _) => due.map(|due| (due, self.now.up)),
        };
        match self.set_aside_due {
            Some((job, since)) if since + SEARCHES <= self.now.up => {
                Err(format!("no worker is set aside for job {job}"))
            }
            _ => Ok(()),
        }
    }

    /// A job has waited for long enough, and could have a worker. It is the first one of its definition: others take turns with it.
    fn job_without_worker(&self) -> Option<u64> {
        let is_first = |job: &&Job| {
            let before = |it: &&Job| {
                matches!(it.standing, LiveState::Queued { .. })
                    && it.kind() == job.kind()
                    && it.order() < job.order()
            };
            !self.jobs.iter().any(|it| before(&it))
        };
        // Such a job waits for a slot, and is the first to get one.
        let lacks_slot = |job: &Job| {
            let has_left =
                |it: &&Worker| self.load_for(it, job).is_some() && self.has_left(it, &job.definition);
            self.workers.iter().filter(has_left).any(|it| self.could_have(it, job))
        };
        // Its limit wakes the other one first, once a slot is free.
        let shares_limit =
            |job: &Job| self.jobs.iter().any(|it| it.id != job.id && Self::share_limit(it, job));
        let is_served = |job: &Job| self.set_aside.values().any(|it| it.job == job.id);
        let waiting =
            self.jobs.iter().filter(|it| self.has_surely_waited(it) && is_first(it) && !is_served(it));
        let mut waiting = waiting.filter(|it| !lacks_slot(it) && !shares_limit(it));
        let has_worker = |job: &&Job| {
            let is_kept =
                |it: &Worker| self.set_aside.get(&it.id).is_some_and(|first| first.order < job.order());
            self.workers.iter().any(|it| !is_kept(it) && self.could_have(it, job))
        };
        waiting.find(has_worker).map(|job| job.id)
    }
}

/// Searches are a second apart. One may look at the jobs after the last one only.
const SEARCHES: Duration = Duration::from_millis(3_500);
