//! Pauses: a list of targets, searched for each job. Missing secrets hold back in the same way, and recall nothing.

use super::{Job, Model};
use crate::world::scheduler::definition::Definition;
use crate::world::scheduler::input::PauseRequest;
use crate::world::scheduler::pauses::PauseTarget;
use crate::world::scheduler::step::PendingReason;

impl Model {
    /// Somebody pauses or resumes. What sits in a backlog and may not start is asked back. The walks have no schedules.
    pub(super) fn pause(&mut self, request: PauseRequest) {
        let PauseRequest { ticket, target, paused, origin: _ } = request;
        if self.paused.contains(&target) != paused {
            self.say(format!("{target:?} paused: {paused}"));
            if paused {
                self.paused.push(target);
            } else {
                self.paused.retain(|it| *it != target);
            }
            let sits = |job: &&Job| job.attempt().is_some_and(|it| it.in_backlog);
            let sitting: Vec<Job> = self.jobs.iter().filter(sits).cloned().collect();
            for job in sitting
                .iter()
                .filter(|job| self.is_on_hold(&job.definition))
                .map(|job| job.id)
                .collect::<Vec<_>>()
            {
                self.ask_back(job);
            }
        }
        self.say(format!("reply {}: Done", ticket.0));
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
        self.paused.iter().any(|target| match target {
            PauseTarget::Server => true,
            PauseTarget::Group(name) => group == Some(&**name),
            PauseTarget::Definition(name) => *definition.name == **name,
            PauseTarget::Schedules | PauseTarget::Schedule(..) => false,
        })
    }

    /// An attempt of this job that has not begun is asked back. Its worker has its secrets already.
    pub(super) fn may_not_stay(&self, job: u64) -> bool {
        let job = self.job(job).expect("it is held");
        job.expires.is_some_and(|at| at <= self.now.utc) || self.is_paused(&job.definition)
    }

    /// An attempt of this job is not sent again.
    pub(super) fn may_not_start(&self, job: u64) -> bool {
        let job = self.job(job).expect("it is held");
        job.expires.is_some_and(|at| at <= self.now.utc) || self.is_on_hold(&job.definition)
    }
}
