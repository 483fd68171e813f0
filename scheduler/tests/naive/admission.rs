//! Submissions, and limits at them: who is refused, and who is cancelled for a new job. Jobs are counted each time, by a search through all of them.

use std::sync::Arc;

use super::{Job, LiveState, Model};
use crate::world::protocol::Revision;
use crate::world::protocol::order::StopCause;
use crate::world::scheduler::definition::Definition;
use crate::world::scheduler::input::Submit;
use crate::world::scheduler::job::State;
use crate::world::scheduler::limits::LimitId;
use crate::world::scheduler::limits::keys::JobKeys;
use crate::world::scheduler::limits::rules::OnFull;
use crate::world::scheduler::new_jobs::NewJob;
use crate::world::scheduler::step::{Answer, Rejection};

impl Model {
    pub(super) fn submit(&mut self, submit: Submit) {
        let first = self.last_job + 1;
        let count = submit.jobs.len() as u32;
        // The jobs of a request have one definition here.
        let definition = submit.jobs.iter().next().and_then(|new| self.definition(new.revision));
        if let Some(rejection) = definition.and_then(|it| self.refusal(&it, submit.jobs.iter())) {
            return self.say(format!("reply {}: {:?}", submit.ticket.0, Answer::Rejected(rejection)));
        }
        let batch = submit.batch.as_ref().map(|_| first);
        for new in submit.jobs {
            let definition = self.definition(new.revision).expect("the walk asks for what there is");
            let priority = new.priority.unwrap_or(definition.priority);
            let keys = JobKeys::of(&definition.limits, new.details.as_deref());
            let due = self.start(new.run_at).unwrap_or(self.now.utc);
            let id = self.add_job((definition, new.narrowing), priority, keys, due, 0);
            self.job_mut(id).expect("it was just made").batch = batch;
            self.make_room(id);
        }
        self.accepted.push((submit.ticket, first, count));
    }

    fn definition(&self, revision: Revision) -> Option<Arc<Definition>> {
        self.definitions.iter().find(|it| it.revision == revision).cloned()
    }

    /// Why these jobs of one definition may not be made, if so.
    pub(super) fn refusal<'j>(
        &self,
        definition: &Arc<Definition>,
        jobs: impl Iterator<Item = &'j NewJob> + Clone,
    ) -> Option<Rejection> {
        let mut before: Vec<LimitId> = Vec::new();
        for new in jobs.clone().filter(|_| on_full(definition) == OnFull::Reject) {
            let keys = JobKeys::of(&definition.limits, new.details.as_deref());
            let (id, permits) = Self::permit_for(definition, keys.as_ref())?;
            let is_of = |job: &&Job| {
                !matches!(job.standing, LiveState::Ended(_))
                    && Self::permit_of(job).is_some_and(|(of, _)| of == id)
            };
            let live = self.jobs.iter().filter(is_of).count();
            if live + before.iter().filter(|of| **of == id).count() >= permits {
                return Some(Rejection::LimitFull { limit: id.to_string().into(), permits: permits as u32 });
            }
            before.push(id);
        }
        let queued_max = definition.limits.queued_max? as usize;
        let is_queued = |new: &&NewJob| self.start(new.run_at).is_none_or(|at| at <= self.now.utc);
        let asked = jobs.filter(is_queued).count();
        let waits = |job: &&Job| {
            matches!(job.standing, LiveState::Queued { .. }) && job.definition.name == definition.name
        };
        let is_full = asked > 0 && self.jobs.iter().filter(waits).count() + asked > queued_max;
        is_full.then_some(Rejection::TooManyQueued { queued_max, asked, of_definition: true })
    }

    /// A job is queued. If that is for the first time, and more jobs want permits than there are, others end for it.
    pub(super) fn make_room(&mut self, id: u64) {
        let Some(new) = self.job(id).cloned() else { return };
        let Some((limit, permits)) = Self::permit_of(&new) else { return };
        let rule = on_full(&new.definition);
        let is_new = matches!(new.standing, LiveState::Queued { .. }) && new.attempts == 0;
        if !is_new || !matches!(rule, OnFull::CancelRunning | OnFull::CancelOldest) {
            return;
        }
        let holds = |job: &Job| job.attempt().is_some_and(|it| it.stopping != Some(StopCause::Cancel));
        let wants = |job: &&Job| {
            (matches!(job.standing, LiveState::Queued { .. }) || holds(job))
                && Self::permit_of(job).is_some_and(|(of, _)| of == limit)
        };
        let wanting: Vec<&Job> = self.jobs.iter().filter(wants).collect();
        let excess = wanting.len().saturating_sub(permits);
        let is_sibling = |job: &Job| new.batch.is_some() && job.batch == new.batch;
        let gives_way = |job: &&&Job| match rule {
            _ if job.id == id || is_sibling(job) => false,
            OnFull::CancelRunning => holds(job),
            _ => on_full(&job.definition) == OnFull::CancelOldest,
        };
        let ending: Vec<u64> = wanting.iter().filter(gives_way).take(excess).map(|job| job.id).collect();
        for other in ending {
            match self.job(other).is_some_and(|job| job.attempt().is_some()) {
                true => self.cancel_attempt(other, &format!("job {id}, which takes its place")),
                false => self.end(other, State::Cancelled, None),
            }
        }
    }

    /// Cancels what a worker has, and notes who asked for it first.
    pub(super) fn cancel_attempt(&mut self, id: u64, by: &str) {
        let Some(attempt) = self.job(id).and_then(Job::attempt) else { return };
        if attempt.stopping != Some(StopCause::Cancel) {
            self.say(format!("j{id} noted cancel by {by}"));
            self.stop(id, StopCause::Cancel);
        }
    }
}

fn on_full(definition: &Definition) -> OnFull {
    definition.limits.concurrency.as_ref().map_or(OnFull::Queue, |rule| rule.on_full)
}
