//! Workers that are set aside for a job that has waited long for resources. Which one is, and when, is the scheduler's choice; here is what
//! it must do and must not do.

use std::collections::BTreeMap;
use std::time::Duration;

use super::limits::takes_turns;
use super::placing::is_suspended;
use super::resources::{is_offered, reserves};
use super::{Job, LiveState, Model, Worker};
use crate::world::protocol::{JobId, WorkerId};

/// Workers that are set aside, each with its job.
pub(super) type SetAside = BTreeMap<WorkerId, JobId>;

impl Model {
    /// The worker is set aside for another job than this one.
    pub(super) fn is_set_aside_for_others(&self, worker: &Worker, job: &Job) -> bool {
        self.set_aside.get(&worker.id).is_some_and(|it| it.0 != job.id)
    }

    /// Workers whose jobs have room there, or do not wait for it any more, are not set aside any longer.
    pub(super) fn open_again(&mut self) {
        let mut stay = self.set_aside.clone();
        stay.retain(|worker, job| {
            let both = self.worker(*worker).zip(self.job(job.0));
            both.is_some_and(|(worker, job)| {
                let has_free_slot = self.burden(worker) < worker.slots();
                self.could_have(worker, job) && !(has_free_slot && self.has_left(worker, &job.definition))
            })
        });
        self.set_aside = stay;
    }

    /// The job waits for nothing but room, and may run on this worker.
    fn could_have(&self, worker: &Worker, job: &Job) -> bool {
        let is_open = self.ready_session(worker.id).is_some()
            && !(worker.cordoned || worker.leaving || worker.unreachable);
        let is_probed = worker.suspect.is_some() && (self.is_probing(worker) || is_suspended(worker));
        matches!(job.standing, LiveState::Queued { .. })
            && self.is_let(job)
            && is_open
            && worker.slots() > 0
            && !is_probed
            && self.may_run(worker, job)
            && is_offered(worker, &job.definition)
    }

    /// Jobs that go before this one, have no worker set aside, and could run on this one once it has room.
    fn earlier(&self, worker: &Worker, job: &Job) -> impl Iterator<Item = &Job> {
        let is_served = |job: &Job| self.set_aside.values().any(|it| it.0 == job.id);
        let goes_before =
            |it: &&Job| it.order() < job.order() && self.could_have(worker, it) && !is_served(it);
        self.jobs.iter().filter(goes_before).collect::<Vec<_>>().into_iter()
    }

    /// The job has waited for resources for long enough.
    fn has_waited(&self, job: &Job) -> bool {
        let waited = |after| self.now.utc.since(job.due) >= after;
        matches!(job.standing, LiveState::Queued { .. })
            && reserves(&job.definition)
            && self.set_aside_after.is_some_and(waited)
    }

    /// Takes in which workers the scheduler has set aside; says what it must not have done, and what it should have done by now. Returns true
    /// if that has changed: placement goes on in the next step.
    pub(super) fn take_set_aside(&mut self, told: &SetAside) -> Result<bool, String> {
        let before = self.set_aside.clone();
        // A job that was placed does not wait any more, and may have taken the permit of another one.
        self.open_again();
        for (worker, job) in self.set_aside.iter().filter(|(worker, job)| told.get(worker) != Some(job)) {
            let (worker, job) = (self.worker(*worker).expect("it stays"), self.job(job.0).expect("it waits"));
            if self.earlier(worker, job).next().is_none() {
                return Err(format!("worker {} is open again, and job {} waits for it", worker.id, job.id));
            }
        }
        let waits =
            |job: &JobId| self.job(job.0).is_some_and(|it| matches!(it.standing, LiveState::Queued { .. }));
        if let Some(job) = told.values().find(|job| !waits(job)) {
            return Err(format!("a worker is set aside for job {job}, which does not wait"));
        }
        for (worker, job) in told.iter().filter(|(worker, job)| self.set_aside.get(worker) != Some(job)) {
            let both = self.worker(*worker).zip(self.job(job.0));
            let (worker, job) = both.ok_or_else(|| format!("{worker} is set aside for {job}"))?;
            let is_second = told.values().filter(|it| it.0 == job.id).count() > 1;
            let mut earlier = self.earlier(worker, job).filter(|it| !takes_turns(it));
            if is_second || !self.has_waited(job) || !self.could_have(worker, job) {
                return Err(format!("worker {} is set aside for job {}, without need", worker.id, job.id));
            }
            if let Some(earlier) = earlier.next() {
                let (worker, job) = (worker.id, job.id);
                return Err(format!("worker {worker} is set aside for {job}, but {} is before", earlier.id));
            }
        }
        self.set_aside.clone_from(told);
        self.check_set_aside_in_time()?;
        Ok(before != *told)
    }

    fn check_set_aside_in_time(&mut self) -> Result<(), String> {
        let due = self.what_to_set_aside().or_else(|| self.what_to_give());
        self.set_aside_due = match (due, self.set_aside_due.take()) {
            (Some(due), Some((of, since))) if of == due => Some((of, since)),
            (due, _) => due.map(|due| (due, self.now.up)),
        };
        match &self.set_aside_due {
            Some((due, since)) if *since + SEARCHES <= self.now.up => Err(due.clone()),
            _ => Ok(()),
        }
    }

    /// A job has waited for long enough, and could have a worker. It is the first one of its definition: others take turns with it.
    fn what_to_set_aside(&self) -> Option<String> {
        let is_first = |job: &&Job| {
            let before = |it: &&Job| {
                matches!(it.standing, LiveState::Queued { .. })
                    && it.definition.revision == job.definition.revision
                    && it.order() < job.order()
            };
            !self.jobs.iter().any(|it| before(&it))
        };
        // Such a job waits for a slot, and is the first to get one.
        let lacks_slot = |job: &Job| {
            let has_left = |it: &&Worker| self.load(it).is_some() && self.has_left(it, &job.definition);
            self.workers.iter().filter(has_left).any(|it| self.could_have(it, job))
        };
        // Its limit wakes the other one first, once a slot is free.
        let shares_limit =
            |job: &Job| self.jobs.iter().any(|it| it.id != job.id && Self::share_limit(it, job));
        let is_served = |job: &Job| self.set_aside.values().any(|it| it.0 == job.id);
        let waiting = self.jobs.iter().filter(|it| self.has_waited(it) && is_first(it) && !is_served(it));
        let mut waiting = waiting.filter(|it| !lacks_slot(it) && !shares_limit(it));
        waiting.find_map(|job| {
            let mut able = self.workers.iter().filter(|it| !self.set_aside.contains_key(&it.id));
            let has = able.any(|it| self.could_have(it, job) && self.earlier(it, job).next().is_none());
            has.then(|| format!("no worker is set aside for job {}", job.id))
        })
    }

    /// A worker is set aside, and a job that goes before could have it.
    fn what_to_give(&self) -> Option<String> {
        self.set_aside.iter().find_map(|(worker, job)| {
            let (worker, job) = (self.worker(*worker)?, self.job(job.0)?);
            let mut earlier = self.earlier(worker, job).filter(|it| !takes_turns(it));
            earlier.next().map(|it| format!("worker {} is not given to {}", worker.id, it.id))
        })
    }
}

/// Two searches pass, one a second.
const SEARCHES: Duration = Duration::from_millis(2_500);
