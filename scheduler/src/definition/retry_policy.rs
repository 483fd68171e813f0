//! The policy of a definition after a job failure (`retry`). `retry` decides by it.

mod backoff_form;

use alloc::vec::Vec;
use core::time::Duration;

use protocol::container::MEMORY_BYTES_MAX;
use protocol::report::Outcome;
use serde::{Deserialize, Serialize};

use crate::defaults::is_default;
use backoff_form::BackoffForm;

/// Policy after a job failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Maximum number of retries; 0 to 100.
    pub max: u32,
    /// Outcomes that are retried, out of [`Self::JOB_BUDGET`].
    pub when: Vec<Outcome>,
    /// If not empty, [`Outcome::Failed`] is retried with these exit codes only.
    pub exit_codes: Vec<i32>,
    /// Workers allowed for the next attempt after a job failure. After an infrastructure failure it is always
    /// [`RetryOn::Other`].
    pub on: RetryOn,
    /// Delay before a retry.
    #[serde(flatten)]
    pub backoff: Backoff,
    /// Factor for the memory limit after each attempt that was killed for memory, in thousandths; unchanged
    /// if absent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub memory_factor_milli: Option<u32>,
}

impl RetryPolicy {
    /// Outcomes that count against `max` (docs/design/scheduling.md, Q2).
    pub const JOB_BUDGET: [Outcome; 5] =
        [Outcome::Failed, Outcome::OomKilled, Outcome::TimedOut, Outcome::PullFailed, Outcome::StartFailed];
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max: 0,
            when: Self::JOB_BUDGET.to_vec(),
            exit_codes: Vec::new(),
            on: RetryOn::Any,
            backoff: Backoff::default(),
            memory_factor_milli: None,
        }
    }
}

/// Workers allowed for the next attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryOn {
    /// Any worker.
    #[default]
    Any,
    /// The worker of the last attempt only.
    Same,
    /// Another worker than the last one, if there is one.
    Other,
}

/// Delay before a retry: drawn between `ceiling × (1 - jitter)` and `ceiling`, which depends on the number of failures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "BackoffForm", from = "BackoffForm")]
pub struct Backoff {
    /// The ceilings.
    pub delays: Delays,
    /// The random part of the ceiling, in thousandths, 0 to 1,000. The delay is uniform between the rest and
    /// the whole ceiling: 1,000 is full jitter, 0 is none.
    pub jitter_milli: u32,
}

/// The longest delays after the first, the second, and each later failure.
#[derive(Clone, Debug, PartialEq)]
pub enum Delays {
    /// `initial * factor^n`, at most `max`.
    Exponential {
        /// The ceiling after the first failure.
        initial: Duration,
        /// The highest ceiling.
        max: Duration,
        /// Growth of the ceiling with each failure, in thousandths; at least 1,000.
        factor_milli: u32,
    },
    /// `initial * n`, at most `max`.
    Linear {
        /// The ceiling after the first failure, and its growth with each further one.
        initial: Duration,
        /// The highest ceiling.
        max: Duration,
    },
    /// The same after each failure.
    Fixed(Duration),
    /// One for each failure; the last one repeats. Not empty.
    List(Vec<Duration>),
}

impl Backoff {
    /// Random part of the whole delay.
    pub const FULL_JITTER_MILLI: u32 = 1_000;

    /// Exponential backoff with full jitter.
    #[must_use]
    pub const fn exponential(initial: Duration, max: Duration, factor_milli: u32) -> Self {
        let delays = Delays::Exponential { initial, max, factor_milli };
        Self { delays, jitter_milli: Self::FULL_JITTER_MILLI }
    }
}

impl Delays {
    /// Name of the kind in jobs.yaml and the API.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Exponential { .. } => "exponential",
            Self::Linear { .. } => "linear",
            Self::Fixed(_) => "fixed",
            Self::List(_) => "list",
        }
    }

    /// The ceiling after the first failure.
    #[must_use]
    pub fn first(&self) -> Duration {
        match self {
            Self::Exponential { initial, .. } | Self::Linear { initial, .. } => *initial,
            Self::Fixed(delay) => *delay,
            Self::List(list) => list.first().copied().unwrap_or_default(),
        }
    }

    /// The highest ceiling.
    #[must_use]
    pub fn highest(&self) -> Duration {
        match self {
            Self::Exponential { max, .. } | Self::Linear { max, .. } => *max,
            Self::Fixed(delay) => *delay,
            Self::List(list) => list.iter().copied().max().unwrap_or_default(),
        }
    }

    /// Growth of the ceiling with each failure, in thousandths; 1,000 unless it is exponential.
    #[must_use]
    pub const fn factor_milli(&self) -> u32 {
        match self {
            Self::Exponential { factor_milli, .. } => *factor_milli,
            Self::Linear { .. } | Self::Fixed(_) | Self::List(_) => 1_000,
        }
    }

    /// The listed ceilings; none for the other kinds.
    #[must_use]
    pub fn list(&self) -> &[Duration] {
        match self {
            Self::List(list) => list,
            Self::Exponential { .. } | Self::Linear { .. } | Self::Fixed(_) => &[],
        }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::exponential(Duration::from_secs(10), Duration::from_secs(600), 2_000)
    }
}

/// A memory limit in bytes, multiplied by the factor (in thousandths) for each attempt that was killed for
/// memory; at most the maximum of a definition.
#[must_use]
pub(super) fn raised(bytes: u64, factor_milli: u32, times: u32) -> u64 {
    let mut raised = bytes;
    for _ in 0..times {
        let next = u128::from(raised) * u128::from(factor_milli) / 1_000;
        let next = u64::try_from(next).map_or(MEMORY_BYTES_MAX, |next| next.min(MEMORY_BYTES_MAX));
        if next <= raised {
            break;
        }
        raised = next;
    }
    raised
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_raised_by_the_factor_each_time_up_to_the_most_there_is() {
        let raises: Vec<u64> = (0..=3).map(|times| raised(64 << 20, 1_500, times) >> 10).collect();
        assert_eq!(raises, [64 << 10, 96 << 10, 144 << 10, 216 << 10]);
        assert_eq!(raised(64 << 20, 100_000, u32::MAX), MEMORY_BYTES_MAX);
        assert_eq!(raised(u64::MAX / 2, 1_000, u32::MAX), u64::MAX / 2);
    }
}
