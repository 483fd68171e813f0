//! Tables and sentences for the JSON types of the API. The server defines the types; `-o json` prints the JSON itself.

mod definition;
mod job;
mod worker;

use std::collections::BTreeMap;

use jiff::Timestamp;
#[cfg(test)]
pub(crate) use server::http::present::shapes::BatchCounts;
use server::http::present::shapes::Time;
pub(crate) use server::http::present::shapes::{
    Attempt, AuditEntry, Batch, BatchExplanation, BatchSummary, Caller, Definition, Dependency, Event,
    Explanation, FullBatch, FullJob, Hook, Job, Limit, Members, NewToken, Notification, Param, Parent,
    Pipeline, PipelineJob, Reloaded, RetriedBatch, TargetTest, Timeout, Token, WaitingMembers, Worker,
    WorkerVerdict,
};

pub(crate) use self::definition::{DefinitionView, ReloadedView};
pub(crate) use self::job::{ENDED_STATES, JobView};
pub(crate) use self::worker::{WorkerRefView, WorkerView};
use crate::duration;

/// Formats a name of the API for people: `timed_out` becomes `timed out`.
pub(crate) fn in_words(name: &str) -> String {
    name.replace('_', " ")
}

/// Formats names and values in one line.
pub(crate) fn pairs(map: &BTreeMap<String, String>) -> String {
    map.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// Formats an optional value; empty if it is absent.
pub(crate) fn optional(value: Option<&impl ToString>) -> String {
    value.map(ToString::to_string).unwrap_or_default()
}

/// Formats a running time in milliseconds; empty if it is absent.
pub(crate) fn running_time(ms: Option<u64>) -> String {
    ms.map(|ms| duration::show(i64::try_from(ms).unwrap_or(i64::MAX))).unwrap_or_default()
}

/// Formats the time from an instant until now.
pub(crate) fn since(time: Time, now: Timestamp) -> String {
    duration::show(now.as_millisecond() - time.0.0)
}

/// Formats the time from now until an instant.
pub(crate) fn until(time: Time, now: Timestamp) -> String {
    duration::show((time.0.0 - now.as_millisecond()).max(0))
}

/// The text, cut to this many characters.
pub(crate) fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
