//! The order of repeated members: they come after one another as the members did.

use std::collections::{HashMap, HashSet};

use protocol::JobId;
use scheduler::dependencies::{Dependency, Predecessor, PredecessorId, RequiredEnd};
use scheduler::job::State as JobState;

use crate::http::request::predecessors::once_each;

/// A job or a batch that a repeated job comes after.
#[derive(Clone, Copy, Debug)]
pub(super) struct After {
    pub(super) on: PredecessorId,
    /// Its state, if it is known.
    pub(super) state: Option<JobState>,
    pub(super) requires: RequiredEnd,
}

impl After {
    /// It has not ended, or has ended as required.
    fn can_be_met(&self) -> bool {
        self.state.is_some_and(|state| !state.has_ended() || self.requires.is_met_by(state))
    }
}

/// The jobs that can start once others of them have ended. `chosen` are the jobs with what they come after; those of `left_out` are not
/// repeated, nor are those that need their repetition.
pub(super) fn that_can_start(
    chosen: &[(JobId, Vec<After>)],
    left_out: impl IntoIterator<Item = JobId>,
) -> HashSet<JobId> {
    let mut repeated: HashSet<JobId> = chosen.iter().map(|(job, _)| *job).collect();
    let mut needed_by: HashMap<JobId, Vec<JobId>> = HashMap::new();
    let mut removed: Vec<JobId> = left_out.into_iter().collect();
    for (job, after) in chosen {
        for it in after.iter().filter(|it| !it.can_be_met()) {
            match it.on.job().filter(|on| repeated.contains(on)) {
                Some(on) => needed_by.entry(on).or_default().push(*job),
                None => removed.push(*job),
            }
        }
    }
    while let Some(job) = removed.pop() {
        if repeated.remove(&job) {
            removed.extend(needed_by.remove(&job).unwrap_or_default());
        }
    }
    repeated
}

/// The dependencies of a repeated job. `positions` are those of the repeated jobs in the new batch.
pub(super) fn dependencies(after: &[After], positions: &HashMap<JobId, u32>) -> Vec<Dependency> {
    let on = |it: &After| match (it.on.job().and_then(|on| positions.get(&on)), it.state) {
        (Some(position), _) => Predecessor::Member(*position),
        (None, Some(state)) if state.has_ended() => Predecessor::Ended(it.on, state),
        (None, _) => Predecessor::Live(it.on),
    };
    once_each(after.iter().map(|it| Dependency { on: on(it), requires: it.requires }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(on: u64, state: JobState, requires: RequiredEnd) -> After {
        After { on: PredecessorId::Job(JobId(on)), state: Some(state), requires }
    }

    fn started(chosen: &[(JobId, Vec<After>)], left_out: &[u64]) -> Vec<u64> {
        let found = that_can_start(chosen, left_out.iter().map(|job| JobId(*job)));
        let mut found: Vec<u64> = found.into_iter().map(|job| job.0).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn a_chain_starts_again_with_its_first_failure_and_not_without_it() {
        use JobState::{Cancelled, Failed};
        let on = |job, state| vec![after(job, state, RequiredEnd::Success)];
        let chosen =
            [(JobId(4), on(3, Cancelled)), (JobId(3), on(2, Failed)), (JobId(2), vec![]), (JobId(5), vec![])];
        assert_eq!(started(&chosen, &[]), [2, 3, 4, 5]);
        assert_eq!(started(&chosen, &[2]), [5]);
        assert_eq!(started(&chosen[..2], &[]), Vec::<u64>::new(), "somebody cancelled the first one");
    }

    #[test]
    fn a_job_needs_no_repetition_of_one_that_ended_as_required_or_goes_on() {
        let chosen = [
            (JobId(2), vec![after(1, JobState::Succeeded, RequiredEnd::Success)]),
            (JobId(3), vec![after(9, JobState::Running, RequiredEnd::Success)]),
            (JobId(4), vec![after(2, JobState::Failed, RequiredEnd::Failure)]),
            (JobId(5), vec![after(1, JobState::Succeeded, RequiredEnd::Failure)]),
            (
                JobId(7),
                vec![After {
                    on: PredecessorId::Batch(JobId(2)),
                    ..after(2, JobState::Failed, RequiredEnd::Success)
                }],
            ),
            (JobId(6), vec![After { state: None, ..after(8, JobState::Failed, RequiredEnd::Any) }]),
        ];
        assert_eq!(started(&chosen, &[2]), [3, 4], "an alarm starts without another failure");
    }

    #[test]
    fn dependencies_are_members_if_they_are_repeated() {
        let positions = HashMap::from([(JobId(7), 0)]);
        let all = [
            after(7, JobState::Failed, RequiredEnd::Success),
            after(8, JobState::Succeeded, RequiredEnd::Success),
            after(9, JobState::Queued, RequiredEnd::Any),
        ];
        let twice = [RequiredEnd::Any, RequiredEnd::Success].map(|end| after(3, JobState::Running, end));
        let merged = dependencies(&twice, &HashMap::new());
        assert!(matches!(merged[..], [Dependency { requires: RequiredEnd::Success, .. }]), "{merged:?}");
        let on: Vec<Predecessor> = dependencies(&all, &positions).into_iter().map(|it| it.on).collect();
        let [ended, live] = [8, 9].map(|job| PredecessorId::Job(JobId(job)));
        let ended = Predecessor::Ended(ended, JobState::Succeeded);
        assert_eq!(on, [Predecessor::Member(0), ended, Predecessor::Live(live)]);
    }
}
