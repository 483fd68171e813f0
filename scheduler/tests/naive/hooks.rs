//! Hooks: the jobs that the starts and ends of a step make, in the order in which they happened.

use super::{Job, Model};
use crate::world::ends::params_of_result;
use crate::world::protocol::JobId;
use crate::world::scheduler::details::JobDetails;
use crate::world::scheduler::hooks::{DEPTH_MAX, HookEvent, HookRefusal, HookResult};
use crate::world::scheduler::job::State;
use crate::world::scheduler::limits::keys::JobKeys;

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
        for hook in std::mem::take(&mut self.hooked) {
            let definition = self.definitions.iter().find(|it| it.name == hook.target);
            let definition = definition.expect("the walk names what there is").clone();
            let result = if hook.depth > DEPTH_MAX {
                HookResult::LeftOut(HookRefusal::TooDeep)
            } else {
                let params =
                    hook.result.map(|result| params_of_result(&definition.submission, &result).params);
                let params = params.flatten().unwrap_or_default();
                let details = JobDetails { params, ..JobDetails::default() };
                let keys = JobKeys::of(&definition.limits, Some(&details));
                let (priority, due) = (definition.priority, self.now.utc);
                let job = self.add_job(definition, priority, keys, due, hook.depth);
                HookResult::Made { job: JobId(job), depth: hook.depth }
            };
            self.say(format!("j{} {} {}: {result:?}", hook.parent, hook.event.name(), hook.target));
        }
    }
}
