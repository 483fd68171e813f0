//! The filters of lists of jobs, as the store applies them.

use longshore_server::store::{FailureStatus, JobFilter, JobRow};
use protocol::report::Outcome;
use scheduler::job::State;

/// True if the filter selects the job. Not all filters are known here.
pub(super) fn fits(filter: &JobFilter, row: &JobRow) -> bool {
    (filter.states.is_empty() || filter.states.contains(&row.state))
        && (!filter.backoff
            || row.state == State::Scheduled
                && row
                    .attempt
                    .as_ref()
                    .is_some_and(|it| it.outcome.is_some_and(|it| it != Outcome::Released)))
        && (!filter.unresolved || row.failure == FailureStatus::Unresolved)
        && filter.name.as_ref().is_none_or(|name| *name == row.definition)
        && (filter.names.is_empty() || filter.names.contains(&row.definition))
        && filter.revision.is_none_or(|revision| row.revision == revision)
        && filter.text.as_ref().is_none_or(|text| row.reason.contains(text))
        && filter.ended_since.is_none_or(|since| row.ended_at.is_some_and(|at| at >= since))
        && filter.ended_until.is_none_or(|until| row.ended_at.is_some_and(|at| at < until))
        && filter
            .exit_code
            .is_none_or(|code| row.attempt.as_ref().is_some_and(|it| it.exit_code == Some(code)))
        && (filter.outcomes.is_empty()
            || row
                .attempt
                .as_ref()
                .and_then(|it| it.outcome)
                .is_some_and(|outcome| filter.outcomes.contains(&outcome)))
        && filter.worker.is_none_or(|worker| row.attempt.as_ref().is_some_and(|it| it.worker == worker))
        && filter
            .schedule
            .as_ref()
            .is_none_or(|schedule| row.slot.as_ref().is_some_and(|slot| slot.schedule == *schedule))
        && filter.batch.is_none_or(|batch| row.batch == Some(batch))
        && (filter.positions.is_empty()
            || filter.positions.iter().any(|it| {
                row.position
                    .is_some_and(|position| (u64::from(it.first)..=u64::from(it.last)).contains(&position))
            }))
        && filter.label.as_ref().is_none_or(|label| row.labels.contains(label))
        && filter.after.is_none_or(|after| row.job > after)
        && filter.before.is_none_or(|before| row.job < before)
}
