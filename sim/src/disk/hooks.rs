//! Hooks as the store keeps them. Each commit is checked: an event of a job with hooks has exactly one decision for each definition that
//! they name, in the same commit, and the job that was made is of that definition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::JobId;
use scheduler::definition::Definition;
use scheduler::hooks::{DEPTH_MAX, HookEvent, HookRefusal, HookResult, HookRow};
use scheduler::job::State;
use scheduler::limits::rules::OnFull;

/// A hook: the job that started or ended, the event, and the definition that is named for it.
type Key = (JobId, HookEvent, Arc<str>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    decided: BTreeSet<Key>,
    /// Depths of the jobs that hooks made.
    depths: BTreeMap<JobId, u8>,
    /// Hooks of events of this commit that are not decided yet.
    undecided: BTreeSet<Key>,
    /// Names of definitions that have been disabled at some time.
    disabled: BTreeSet<String>,
    /// Limits of definitions that may refuse a job, by name.
    refusing: BTreeSet<(String, HookRefusal)>,
    /// The first change that breaks the rule.
    broken: Option<String>,
}

impl Hooks {
    /// A version of a definition is in jobs.yaml.
    pub(super) fn define(&mut self, definition: &Definition) {
        if !definition.enabled {
            self.disabled.insert(definition.name.clone());
        }
        let limits = &definition.limits;
        let rejects = limits.concurrency.as_ref().is_some_and(|it| it.on_full == OnFull::Reject);
        let full = limits.queued_max.map(|_| HookRefusal::QueueFull);
        let refusals = full.into_iter().chain(rejects.then_some(HookRefusal::LimitFull));
        let refusals = refusals.chain(limits.unique.as_ref().map(|_| HookRefusal::Duplicate));
        self.refusing.extend(refusals.map(|refusal| (definition.name.clone(), refusal)));
    }

    /// The first container of a job has started.
    pub(super) fn started(&mut self, job: JobId, definition: &Definition) {
        self.expect(job, definition, HookEvent::Start);
    }

    /// A job has ended.
    pub(super) fn ended(&mut self, job: JobId, definition: &Definition, state: State) {
        let result = match state {
            State::Succeeded => Some(HookEvent::Success),
            State::Cancelled => None,
            _ => Some(HookEvent::Failure),
        };
        for event in result.into_iter().chain([HookEvent::End]) {
            self.expect(job, definition, event);
        }
    }

    fn expect(&mut self, job: JobId, definition: &Definition, event: HookEvent) {
        let keys = definition.hooks.of(event).iter().map(|target| (job, event, target.clone()));
        self.undecided.extend(keys);
    }

    /// A hook was decided. `made` is the definition of its job, if there is one.
    pub(super) fn decide(&mut self, row: &HookRow, made: Option<&Definition>) {
        if let Err(violation) = self.check(row, made) {
            let (event, target) = (row.event.name(), &row.target);
            self.broken.get_or_insert(format!("{event} of job {} for {target} {violation}", row.parent));
        }
    }

    fn check(&mut self, row: &HookRow, made: Option<&Definition>) -> Result<(), String> {
        let key = (row.parent, row.event, row.target.clone());
        if !self.decided.insert(key.clone()) {
            return Err("is decided a second time".to_owned());
        }
        if !self.undecided.remove(&key) {
            return Err("is decided, and nothing has happened".to_owned());
        }
        let depth = self.depths.get(&row.parent).map_or(1, |depth| depth + 1);
        match row.result {
            HookResult::Made { job, depth: told } => {
                if made.is_none_or(|definition| *definition.name != *row.target) {
                    return Err(format!("made job {job}, which is none of its definition"));
                }
                if told != depth || depth > DEPTH_MAX || self.depths.insert(job, depth).is_some() {
                    return Err(format!("made job {job} at depth {told}, not {depth}"));
                }
            }
            HookResult::LeftOut(HookRefusal::Disabled) if self.disabled.contains(&*row.target) => {}
            HookResult::LeftOut(HookRefusal::TooDeep) if depth > DEPTH_MAX => {}
            HookResult::LeftOut(refusal) if self.refusing.contains(&(row.target.to_string(), refusal)) => {}
            // The server has no limits here, and no name leaves jobs.yaml.
            HookResult::LeftOut(refusal) => return Err(format!("is left out: {}", refusal.name())),
        }
        Ok(())
    }

    /// All changes of a commit are stored.
    pub(super) fn end_commit(&mut self) {
        if let Some((job, event, target)) = std::mem::take(&mut self.undecided).pop_first() {
            let violation = format!("{} of job {job} for {target} was never decided", event.name());
            self.broken.get_or_insert(violation);
        }
    }

    /// The first violation since the last call.
    pub(crate) const fn take_violation(&mut self) -> Option<String> {
        self.broken.take()
    }

    /// The place of a job in a chain of hooks; zero if no hook made it.
    pub(super) fn depth_of(&self, job: JobId) -> u8 {
        self.depths.get(&job).copied().unwrap_or_default()
    }
}
