//! The parts of a query for jobs: each is answered by one table, and mostly by one index of it.

use std::collections::BTreeSet;

use protocol::report::Outcome;
use scheduler::job::State;

use super::names::SINGLES_MAX;
use crate::store::JobFilter;

/// The table that answers a part of the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Among those that have not ended: all, or those with this state.
    Live(Option<State>),
    /// Among those that have not ended: jobs on several workers of which a member has started.
    RunningParents,
    /// Among those that have ended.
    Ended,
    /// Among those that succeeded.
    Succeeded,
    /// Among those that succeeded with an exit code other than 0.
    SucceededNonZero,
    /// Among those that ended in this other state.
    Unsuccessful(State),
    /// Among the failures that nobody has dealt with.
    Unresolved,
    /// Among those that wait for an attempt after one that failed.
    Backoff,
}

pub(super) fn parts(filter: &JobFilter) -> Vec<Part> {
    if filter.unresolved {
        let may_fit = filter.states.is_empty() || filter.states.iter().any(|state| state.is_failure());
        return Some(Part::Unresolved).filter(|_| may_fit && !filter.backoff).into_iter().collect();
    }
    if filter.backoff {
        let may_fit = filter.states.is_empty() || filter.states.contains(&State::Scheduled);
        let has_ended = has_end(filter) || filter.text.is_some();
        return Some(Part::Backoff).filter(|_| may_fit && !has_ended).into_iter().collect();
    }
    let mut parts = parts_by_state(filter);
    // Only an ended job has an end and a reason.
    if has_end(filter) || filter.text.is_some() {
        parts.retain(|part| !matches!(part, Part::Live(_) | Part::RunningParents));
    }
    // A job that succeeded has no reason, the outcome of a success, and mostly the exit code 0: the others are few, and have an index.
    let succeeded = match filter.exit_code {
        _ if cannot_be_success(filter) => Some(None),
        Some(code) if code != 0 => Some(Some(Part::SucceededNonZero)),
        _ => None,
    };
    if let Some(succeeded) = succeeded {
        parts = parts
            .into_iter()
            .flat_map(|part| match part {
                Part::Ended => UNSUCCESSFUL.map(Part::Unsuccessful).into_iter().chain(succeeded).collect(),
                Part::Succeeded => succeeded.into_iter().collect(),
                part => vec![part],
            })
            .collect();
    }
    parts
}

pub(super) const fn has_end(filter: &JobFilter) -> bool {
    filter.ended_since.is_some() || filter.ended_until.is_some()
}

fn cannot_be_success(filter: &JobFilter) -> bool {
    filter.text.is_some() || (!filter.outcomes.is_empty() && !filter.outcomes.contains(&Outcome::Succeeded))
}

/// Only a job that has had an attempt fits: among live jobs, one that waits for its next attempt.
pub(super) const fn has_closed_attempt(filter: &JobFilter) -> bool {
    filter.exit_code.is_some() || !filter.outcomes.is_empty()
}

/// Searches that find the jobs of this filter together, each with one outcome at most, and with one name or very many.
pub(super) fn singles(filter: &JobFilter) -> Vec<JobFilter> {
    let mut singles = vec![filter.clone()];
    if (1..=SINGLES_MAX).contains(&filter.names.len()) {
        let with =
            |name: &String| JobFilter { name: Some(name.clone()), names: Vec::new(), ..filter.clone() };
        singles = filter.names.iter().map(with).collect();
    }
    if filter.outcomes.len() > 1 {
        let outcomes: BTreeSet<Outcome> = filter.outcomes.iter().copied().collect();
        let with = |single: &JobFilter, outcome| JobFilter { outcomes: vec![outcome], ..single.clone() };
        singles = singles
            .iter()
            .flat_map(|single| outcomes.iter().map(move |outcome| with(single, *outcome)))
            .collect();
    }
    singles
}

/// The final states other than success.
const UNSUCCESSFUL: [State; 4] = [State::Failed, State::Cancelled, State::Expired, State::Lost];

fn parts_by_state(filter: &JobFilter) -> Vec<Part> {
    if filter.states.is_empty() {
        return vec![Part::Live(None), Part::Ended];
    }
    let mut states = filter.states.clone();
    states.sort_unstable();
    states.dedup();
    let part = |state: State| match state {
        State::Succeeded => vec![Part::Succeeded],
        State::Running => vec![Part::Live(Some(state)), Part::RunningParents],
        state if state.has_ended() => vec![Part::Unsuccessful(state)],
        state => vec![Part::Live(Some(state))],
    };
    states.into_iter().flat_map(part).collect()
}
