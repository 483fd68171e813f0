//! The operations.

use scheduler::job::State as JobState;

use super::selection::{AcknowledgedSelection, Selection};
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes;
use crate::http::request::job_filter;

/// An operation on jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Cancel,
    Retry,
    Release,
    /// Somebody has dealt with failures.
    Acknowledge,
    /// An acknowledgement is undone.
    TakeBack,
}

/// An operation that the engine carries out, job by job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EngineVerb {
    Cancel,
    Retry,
    Release,
}

impl Verb {
    /// The operation, if the engine carries it out.
    pub(super) const fn of_engine(self) -> Option<EngineVerb> {
        match self {
            Self::Cancel => Some(EngineVerb::Cancel),
            Self::Retry => Some(EngineVerb::Retry),
            Self::Release => Some(EngineVerb::Release),
            Self::Acknowledge | Self::TakeBack => None,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Retry => "retry",
            Self::Release => "release",
            Self::Acknowledge | Self::TakeBack => "acknowledge",
        }
    }

    /// Reads the body of a request. Only an acknowledgement has a reason.
    ///
    /// # Errors
    /// Those of [`Selection::read`].
    pub(super) fn read_selection(self, text: &[u8]) -> Result<AcknowledgedSelection, Problem> {
        match self {
            Self::Acknowledge => AcknowledgedSelection::read(text),
            Self::Cancel | Self::Retry | Self::Release | Self::TakeBack => {
                Selection::read(text).map(Into::into)
            }
        }
    }

    /// The effect of an operation, for the audit log.
    pub(super) fn in_words(self, result: &shapes::BulkResult) -> String {
        let shapes::BulkResult { matched, done, stopping, refused, .. } = result;
        let rest = if result.next.is_some() { ", the rest not yet" } else { "" };
        match result.dry_run {
            true => format!("counts only: {matched}"),
            false => {
                let name = if self == Self::TakeBack { "undo of acknowledge" } else { self.name() };
                format!("{name}: {} of {matched} jobs, refused {refused}{rest}", done + stopping)
            }
        }
    }

    /// The states of the jobs that are selected if the filter names no state.
    pub(super) const fn states(self) -> &'static [JobState] {
        match self {
            Self::Cancel => &[
                JobState::Scheduled,
                JobState::Queued,
                JobState::Assigned,
                JobState::Running,
                JobState::Quarantined,
            ],
            Self::Retry | Self::Acknowledge | Self::TakeBack => {
                &[JobState::Failed, JobState::Expired, JobState::Lost]
            }
            Self::Release => &[JobState::Quarantined],
        }
    }
}

/// True if a query has a parameter of this name.
pub(super) fn has_parameter(query: &str, name: &str) -> bool {
    names(query).any(|it| it == name)
}

pub(super) fn names(query: &str) -> impl Iterator<Item = &str> {
    query.split('&').map(|pair| pair.split('=').next().unwrap_or_default())
}

/// True if a query selects jobs. A cursor alone does not: it is the place where a request with the same filters goes on.
pub(super) fn names_a_filter(query: &str, verb: Verb) -> bool {
    names(query).any(|name| match name {
        "cursor" => false,
        // A retry chooses the definition by it.
        "revision" => verb != Verb::Retry,
        // Of a submission that takes the place of a schedule.
        "schedule" => !has_parameter(query, "as_scheduled"),
        name => job_filter::NAMES.contains(&name),
    })
}
