//! Statistics of the ended jobs of a definition.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Job, Time};

/// How the latest jobs of a definition ended, and how long they waited and ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Statistics {
    /// The definition.
    pub name: String,
    /// The number of ended jobs that were counted, from the newest on. A job on several workers is counted by its members.
    pub jobs: u64,
    /// True if no other job fits the request; else older ones were not counted.
    pub complete: bool,
    /// When the first of them ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_end: Option<Time>,
    /// When the last of them ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_end: Option<Time>,
    /// The number of jobs by their final state.
    pub states: BTreeMap<String, u64>,
    /// Successes among the jobs that succeeded, failed or were lost, from 0 to 1; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success_rate: Option<f64>,
    /// Attempts beyond the first of each job.
    pub retries: u64,
    /// Jobs with more than one attempt.
    pub retried_jobs: u64,
    /// How long the containers of their last attempts ran; absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Percentiles>,
    /// How long their last attempts waited from when they were due until their containers started; absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Percentiles>,
    /// The newest of them that succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success: Option<Job>,
    /// The newest of them that failed or was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Job>,
}

/// Percentiles by the nearest rank, in milliseconds: as many of the jobs in a hundred took at most this long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Percentiles {
    /// The median.
    pub p50_ms: u64,
    /// 90 % took at most this long.
    pub p90_ms: u64,
    /// 99 % took at most this long.
    pub p99_ms: u64,
    /// The longest.
    pub max_ms: u64,
}

impl Percentiles {
    /// The percentiles of these durations, in milliseconds; `None` without any.
    #[must_use]
    pub fn of(mut durations_ms: Vec<u64>) -> Option<Self> {
        durations_ms.sort_unstable();
        let rank = |percent: usize| {
            let rank = (durations_ms.len() * percent).div_ceil(100);
            durations_ms.get(rank.saturating_sub(1)).copied()
        };
        Some(Self { p50_ms: rank(50)?, p90_ms: rank(90)?, p99_ms: rank(99)?, max_ms: *durations_ms.last()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let of = |durations: Vec<u64>| {
            Percentiles::of(durations).map(|it| [it.p50_ms, it.p90_ms, it.p99_ms, it.max_ms])
        };
        assert_eq!(of(vec![]), None);
        assert_eq!(of(vec![7]), Some([7, 7, 7, 7]));
        assert_eq!(of(vec![3, 1, 2]), Some([2, 3, 3, 3]));
        assert_eq!(of((1..=1_000).rev().collect()), Some([500, 900, 990, 1_000]));
    }
}
