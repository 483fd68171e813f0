//! Pauses: a list of targets with their ends, searched for each job and at each step. Members of a paused batch are marked, and stand in no lane.
//! Missing secrets hold back in the same way, and recall nothing.

use super::{Job, LiveState, Model};
use crate::world::protocol::{JobId, Timestamp};
use crate::world::scheduler::definition::Definition;
use crate::world::scheduler::input::PauseRequest;
use crate::world::scheduler::pauses::PauseTarget;
use crate::world::scheduler::step::{Answer, PendingReason, Rejection};

/// The targets that are paused, with the end of each pause that has one.
pub(super) type Paused = Vec<(PauseTarget, Option<Timestamp>)>;

impl Model {
    /// Somebody pauses or resumes. What sits in a backlog and may not start is asked back. The walks have no schedules.
    pub(super) fn pause(&mut self, request: PauseRequest) {
        let PauseRequest { ticket, target, paused, until, origin: _ } = request;
        if let PauseTarget::Batch(first) = target
            && !self.has_live_members(first.0)
        {
            return self.say(format!("reply {}: {:?}", ticket.0, Answer::Rejected(Rejection::NotLive)));
        }
        let known = self.paused.iter_mut().find(|(it, _)| *it == target);
        let mut is_changed = true;
        if let (true, Some((_, end))) = (paused, known) {
            is_changed = std::mem::replace(end, until) != until;
            if is_changed {
                self.say(format!("{target:?} paused until {until:?}"));
            }
        } else if self.paused.iter().any(|(it, _)| *it == target) != paused {
            let until = until.filter(|_| paused);
            self.say(if paused {
                format!("{target:?} paused until {until:?}")
            } else {
                format!("{target:?} goes on")
            });
            if paused {
                self.paused.push((target.clone(), until));
            } else {
                self.paused.retain(|(it, _)| *it != target);
            }
            self.mark_members(&target, paused);
            let sits = |job: &&Job| job.attempt().is_some_and(|it| it.in_backlog);
            let sitting: Vec<Job> = self.jobs.iter().filter(sits).cloned().collect();
            for job in
                sitting.iter().filter(|job| self.is_job_on_hold(job)).map(|job| job.id).collect::<Vec<_>>()
            {
                self.ask_back(job);
            }
        } else {
            is_changed = false;
        }
        self.say(format!("reply {}: {}", ticket.0, if is_changed { "Done" } else { "Unchanged" }));
    }

    /// Pauses whose end has come are over, the earliest first.
    pub(super) fn end_pauses(&mut self) {
        let has_come = |end: &Option<Timestamp>| end.is_some_and(|end| end <= self.now.utc);
        let mut over: Vec<_> = self.paused.iter().filter(|(_, end)| has_come(end)).cloned().collect();
        over.sort_by_key(|(target, end)| (*end, target.clone()));
        for (target, _) in over {
            self.say(format!("{target:?} goes on"));
            self.paused.retain(|(it, _)| *it != target);
            self.mark_members(&target, false);
        }
    }

    /// Members of a paused batch leave their lanes. They come back to them in the order of their numbers.
    fn mark_members(&mut self, target: &PauseTarget, paused: bool) {
        let PauseTarget::Batch(first) = target else { return };
        let members: Vec<u64> =
            self.jobs.iter().filter(|job| job.batch == Some(first.0)).map(|job| job.id).collect();
        for id in members {
            let job = self.job_mut(id).expect("it was just found");
            job.batch_paused = paused;
            if !paused && matches!(job.standing, LiveState::Queued { .. }) {
                self.begins_to_wait(id);
            }
        }
        self.drop_empty_lanes(None);
    }

    fn has_live_members(&self, batch: u64) -> bool {
        let is_live = |job: &Job| !matches!(job.standing, LiveState::Ended(_));
        self.jobs.iter().any(|job| job.batch == Some(batch) && is_live(job))
    }

    /// A pause of a batch ends with its last member.
    pub(super) fn end_pause_of_batch(&mut self, job: u64) {
        let Some(batch) = self.job(job).and_then(|job| job.batch) else { return };
        let target = PauseTarget::Batch(JobId(batch));
        if self.paused.iter().any(|(it, _)| *it == target) && !self.has_live_members(batch) {
            self.say(format!("{target:?} goes on"));
            self.paused.retain(|(it, _)| *it != target);
        }
    }

    /// The job may not start, because of its definition or its batch.
    pub(super) fn is_job_on_hold(&self, job: &Job) -> bool {
        job.batch_paused || self.is_on_hold(&job.definition)
    }

    /// Jobs of this definition may not start.
    pub(super) fn is_on_hold(&self, definition: &Definition) -> bool {
        self.why_on_hold(definition).is_some()
    }

    pub(super) fn why_on_hold(&self, definition: &Definition) -> Option<PendingReason> {
        if self.is_paused(definition) {
            return Some(PendingReason::Paused);
        }
        self.missing_secrets.contains(&definition.revision).then_some(PendingReason::SecretsMissing)
    }

    fn is_paused(&self, definition: &Definition) -> bool {
        let group = definition.limits.concurrency.as_ref().and_then(|it| it.group.as_deref());
        self.paused.iter().any(|(target, _)| match target {
            PauseTarget::Server => true,
            PauseTarget::Group(name) => group == Some(&**name),
            PauseTarget::Definition(name) => *definition.name == **name,
            PauseTarget::Schedules | PauseTarget::Schedule(..) | PauseTarget::Batch(_) => false,
        })
    }

    /// An attempt of this job that has not begun is asked back. Its worker has its secrets already.
    pub(super) fn may_not_stay(&self, job: u64) -> bool {
        let held = self.job(job).expect("it is held");
        held.expires.is_some_and(|at| at <= self.now.utc)
            || self.is_paused(&held.definition)
            || held.batch_paused
            || self.is_on_a_cordoned_worker(job)
    }

    /// Its worker is cordoned and does not drain: that would give it back by itself.
    pub(super) fn is_on_a_cordoned_worker(&self, job: u64) -> bool {
        let attempt = self.job(job).and_then(Job::attempt).expect("it is held");
        self.worker(attempt.worker).is_some_and(|worker| worker.cordoned && worker.drain.is_none())
    }

    /// An attempt of this job is not sent again.
    pub(super) fn may_not_start(&self, job: u64) -> bool {
        let held = self.job(job).expect("it is held");
        let attempt = held.attempt().expect("it is held");
        held.expires.is_some_and(|at| at <= self.now.utc)
            || self.is_job_on_hold(held)
            || self.worker(attempt.worker).is_some_and(|worker| worker.cordoned)
    }
}
