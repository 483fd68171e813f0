//! Hooks: the jobs that the starts and ends of a step make, in the order in which they happened.

use std::sync::Arc;

use super::{Job, Model};
use crate::world::ends::params_of_result;
use crate::world::protocol::JobId;
use crate::world::scheduler::definition::Definition;
use crate::world::scheduler::details::JobDetails;
use crate::world::scheduler::hooks::{DEPTH_MAX, HookEvent, HookRefusal, HookResult};
use crate::world::scheduler::job::State;
use crate::world::scheduler::limits::keys::JobKeys;
use crate::world::scheduler::new_jobs::NewJob;
use crate::world::scheduler::step::Rejection;

/// A hook whose event has happened: the parent, and the definition that is named for it.
#[derive(Debug)]
pub(super) struct Pending {
    parent: u64,
    event: HookEvent,
    target: String,
    depth: u8,
    /// The result that the parent has just left.
    result: Option<String>,
}

impl Model {
    /// A container of this job is known to have started.
    pub(super) fn hook_start(&mut self, id: u64) {
        let job = self.job_mut(id).expect("it has started");
        if !std::mem::replace(&mut job.has_started, true) {
            self.happened(id, HookEvent::Start);
        }
    }

    /// This job ends so.
    pub(super) fn hook_end(&mut self, id: u64, state: State) {
        match state {
            State::Succeeded => self.happened(id, HookEvent::Success),
            State::Failed | State::Lost | State::Expired => self.happened(id, HookEvent::Failure),
            _ => {}
        }
        self.happened(id, HookEvent::End);
    }

    fn happened(&mut self, id: u64, event: HookEvent) {
        let job: &Job = self.job(id).expect("it is known");
        let (definition, depth) = (job.definition.clone(), job.hook_depth + 1);
        for target in definition.hooks.of(event) {
            let (target, result) = (target.to_string(), self.result.clone());
            self.hooked.push(Pending { parent: id, event, target, depth, result });
        }
    }

    /// Makes the jobs of all events of this step.
    pub(super) fn make_hooks(&mut self) {
        // A job of a hook may end another one, which has hooks itself.
        while !self.hooked.is_empty() {
            let hook = self.hooked.remove(0);
            let definition = self.definitions.iter().find(|it| it.name == hook.target);
            let definition = definition.expect("the walk names what there is").clone();
            let result = match hook.depth > DEPTH_MAX {
                true => HookResult::LeftOut(HookRefusal::TooDeep),
                false => self.make_hook(&hook, definition),
            };
            self.say(format!("j{} {} {}: {result:?}", hook.parent, hook.event.name(), hook.target));
        }
    }

    fn make_hook(&mut self, hook: &Pending, definition: Arc<Definition>) -> HookResult {
        let result = hook.result.as_ref();
        let params = result.and_then(|result| params_of_result(&definition.submission, result).params);
        let details = JobDetails { params: params.unwrap_or_default(), ..JobDetails::default() };
        let keys = JobKeys::of(&definition.limits, Some(&details));
        let new = NewJob { details: Some(Box::new(details)), ..NewJob::default() };
        match self.refusal(&definition, std::iter::once(&new)) {
            Some(Rejection::LimitFull { .. }) => return HookResult::LeftOut(HookRefusal::LimitFull),
            Some(_) => return HookResult::LeftOut(HookRefusal::QueueFull),
            None => {}
        }
        let (priority, due) = (definition.priority, self.now.utc);
        let job = self.add_job((definition, None), priority, keys, due, hook.depth);
        self.make_room(job);
        HookResult::Made { job: JobId(job), depth: hook.depth }
    }
}
