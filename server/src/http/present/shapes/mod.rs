//! The JSON types of all answers. Programs rely on them: `docs/http-api.md` describes them.
//!
//! The handlers fill them in. Absent values are left out instead of `null`, times are RFC 3339 in UTC with milliseconds, durations are
//! whole milliseconds in keys that end with `_ms`. The command line reads the same types; a field that a server of another version may
//! not send has a default.

mod access;
mod acknowledgement;
mod batch;
mod bulk;
mod committed;
mod definition;
mod definition_change;
mod explanation;
mod intervention;
mod job;
mod limit;
mod members;
mod notification;
mod output_bytes;
mod param;
mod pause;
mod pipeline;
mod plan;
mod problem;
mod schedule;
mod search;
mod starting;
mod statistics;
mod ulimit;
mod usage;
mod worker;
mod worker_ref;

use std::borrow::Cow;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

pub use crate::rfc3339::Time;
pub use access::{AuditEntry, Caller, NewToken, Token};
pub use acknowledgement::Acknowledgement;
pub use batch::{
    Batch, BatchCounts, BatchExplanation, BatchSummary, FullBatch, RetriedBatch, WaitingMembers,
};
pub use bulk::{BulkEffect, BulkResult, Refusal, RetriedBefore, RetryMade};
pub use committed::{CommittedEvent, EventBatch, EventDefinition, EventSchedules};
pub use definition::{Definition, Expectation, Preference, Reloaded, RetentionRule, Retry, Unique, Waiting};
pub use definition_change::DefinitionChange;
pub use explanation::{Estimate, Explanation, Obstacle, WorkerVerdict};
pub use intervention::Intervention;
pub use job::{Attempt, Event, FullJob, Hook, Job, LateReport, ListedJob, Parent, Phase};
pub use limit::{Concurrency, Limit, RateLimit};
pub use members::{Members, Workers};
pub use notification::{Notification, NotifyTarget, SentNotifications, TargetTest};
pub use output_bytes::{OutputBytes, OutputCut};
pub use param::Param;
pub use pause::{Pause, PauseResult};
pub use pipeline::{Dependency, Pipeline, PipelineJob};
pub use plan::{ChangedDefinition, Deployed, JobsFile, JobsFiles, KeyChange, Plan, PlannedDefinition};
pub use problem::{Fault, Problem};
pub use schedule::{Backfill, BackfillSlot, Fire, LastFire, Schedule, SlotRetry};
pub use search::{OutputLine, OutputSearch};
pub use statistics::{Percentiles, Statistics};
pub use ulimit::Ulimit;
pub use usage::{JobUsage, Usage, UsagePoint};
pub use worker::{Exclusion, ResourceAmounts, Runtime, Suspicion, Unmanaged, Worker, WorkerResources};
pub use worker_ref::WorkerRef;

/// A fixed text of the API, such as the name of a state or an outcome.
pub type Text = Cow<'static, str>;

/// A stable code and a sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    /// Stable code for programs.
    #[serde(default)]
    #[schema(value_type = String)]
    pub code: Text,
    /// The reason as a sentence.
    #[schema(value_type = String)]
    pub text: Text,
}

impl Reason {
    /// The same reason, and more about it.
    pub(crate) fn and(self, more: Option<String>) -> Self {
        match more {
            Some(more) => Self { text: format!("{}; {more}", self.text).into(), ..self },
            None => self,
        }
    }
}

/// The version of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// Always `longshore`.
    #[schema(value_type = String)]
    pub name: Text,
    /// The version of the program.
    #[schema(value_type = String)]
    pub version: Text,
    /// The oldest worker protocol that it speaks.
    pub protocol_lowest: u16,
    /// The newest worker protocol that it speaks.
    pub protocol_highest: u16,
    /// The revision of the wire format that its workers speak; zero if the server is older than this field.
    #[serde(default)]
    pub wire_format: u16,
    /// The server's time; absent if the server is older than this field. Proxies may replace the header `Date`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

/// A timeout of attempts: a duration or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// At most this long; JSON shows milliseconds.
    After(Duration),
    /// No timeout; JSON shows `"none"`.
    Never,
}

impl Serialize for Timeout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::After(duration) => serializer.serialize_u64(millis(*duration)),
            Self::Never => serializer.serialize_str("none"),
        }
    }
}

impl<'de> Deserialize<'de> for Timeout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        match value.as_u64() {
            Some(ms) => Ok(Self::After(Duration::from_millis(ms))),
            None if value == "none" => Ok(Self::Never),
            None => Err(D::Error::custom("expected milliseconds or \"none\"")),
        }
    }
}

impl PartialSchema for Timeout {
    fn schema() -> RefOr<Schema> {
        let milliseconds = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(0))
            .description(Some("Milliseconds."));
        let none = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["none"]));
        OneOfBuilder::new()
            .item(milliseconds)
            .item(none)
            .description(Some("A timeout of attempts: milliseconds or `none`."))
            .into()
    }
}

impl ToSchema for Timeout {}

/// A duration in whole milliseconds.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_job_reads_again_as_it_was_written() {
        let full = FullJob {
            job: Job { id: 7, timeout: Some(Timeout::Never), batch: Some(3), ..Job::default() },
            attempts: vec![Attempt { number: 1, exit_code: Some(3), ..Attempt::default() }],
            ..FullJob::default()
        };
        let text = serde_json::to_string(&full).unwrap();
        assert_eq!(serde_json::from_str::<FullJob>(&text).unwrap(), full);
    }

    #[test]
    fn absent_values_are_left_out() {
        let text = serde_json::to_string(&Job::default()).unwrap();
        assert!(!text.contains("null"), "{text}");
        assert!(!text.contains("outcome"), "{text}");
    }
}
