//! The shape of every JSON that the server shows. What is in here is a promise: `docs/http-api.md` describes it.
//!
//! Only shapes live here; the resource files fill them in. Absent values are left out rather than shown as `null`, instants are
//! RFC 3339 in UTC with milliseconds, durations are whole milliseconds in keys that end with `_ms`.

mod definition;
mod explanation;
mod job;
mod problem;
mod worker;

use std::borrow::Cow;
use std::time::Duration;

use protocol::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use definition::{Definition, Reloaded, Retry, Waiting};
pub use explanation::{Explanation, Obstacle, Verdict};
pub use job::{Attempt, Batch, Event, FullJob, Job, LateReport, OutputBytes, Phase};
pub use problem::{Fault, Problem};
pub use worker::{Runtime, Unmanaged, Worker, WorkerRef};

/// A fixed word of the API: the name of a state, an outcome, a cause.
pub type Word = Cow<'static, str>;

/// A stable code, and the same in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// For programs.
    pub code: Word,
    /// For people.
    pub text: Word,
}

/// What the server is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Always `longshore`.
    pub name: Word,
    /// The version of the program.
    pub version: Word,
    /// The oldest worker protocol that it speaks.
    pub protocol_lowest: u16,
    /// The newest one.
    pub protocol_highest: u16,
}

/// How long an attempt may run: milliseconds, or for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// At most this long; shown as milliseconds.
    After(Duration),
    /// For ever; shown as `"none"`.
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

/// An instant: RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Timestamp);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let instant: jiff::Timestamp = text.parse().map_err(D::Error::custom)?;
        Ok(Self(Timestamp(instant.as_millisecond())))
    }
}

impl std::fmt::Display for Time {
    /// An instant that no calendar has is shown as the nearest one that it has.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nearest = if self.0.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        write!(f, "{:.3}", jiff::Timestamp::from_millisecond(self.0.0).unwrap_or(nearest))
    }
}

/// A duration as it is shown.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_shown_in_utc_with_milliseconds_and_read_again() {
        let time = Time(Timestamp(1_700_000_000_120));
        let text = serde_json::to_string(&time).unwrap();
        assert_eq!(text, "\"2023-11-14T22:13:20.120Z\"");
        assert_eq!(serde_json::from_str::<Time>(&text).unwrap(), time);
    }

    #[test]
    fn an_instant_outside_of_the_calendar_is_shown_as_the_nearest_one() {
        assert_eq!(Time(Timestamp(i64::MAX)).to_string(), "9999-12-30T22:00:00.999Z");
    }

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
    fn what_is_absent_is_left_out() {
        let text = serde_json::to_string(&Job::default()).unwrap();
        assert!(!text.contains("null"), "{text}");
        assert!(!text.contains("outcome"), "{text}");
    }
}
