//! Circuit breaker of a worker: a host that cannot start jobs does not use up the budgets of one job after the other.
//!
//! ```text
//! closed ──▶ 3 definitions failed to start in a row ──▶ suspect: an exclusion from everything, a minute, doubling up to an hour
//!   ▲                                                      │ its end
//!   └── a container started ◀── one probe at a time ◀──────┘──▶ the probe failed to start: the next exclusion, twice as long
//! ```
//!
//! Only `host_failed` counts. A program that fails says nothing about its worker. Several failures of one definition do not count either:
//! they may be the fault of its mount or device, and the worker is excluded from that revision already. The state is not stored: a restart
//! of the server begins with trust, and so does a new process of the worker, because the cause may have been repaired.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::{JobId, Revision, Timestamp};

use crate::placement::exclusion::ExclusionBackoff;

/// Failed definitions in a row that make a worker suspect. Two may be a coincidence; each further one costs a job a part of its budget.
pub const FAILURES_MAX: usize = 3;

/// Duration of the exclusion: a minute, in which a daemon restarts, doubling up to an hour, as after one `host_failed`.
pub const SUSPECT_BACKOFF: ExclusionBackoff =
    ExclusionBackoff { first: Duration::from_secs(60), max: Duration::from_secs(3_600) };

/// State of the breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Breaker {
    /// The worker takes jobs.
    Closed {
        /// Different revisions that the worker failed to start since the last successful start.
        failed: Vec<Revision>,
    },
    /// The worker takes one job at a time while it is not excluded, until a start succeeds.
    Suspect {
        /// Since when.
        since: Timestamp,
        /// The failures, for people.
        cause: String,
        /// The job that tries it, if there is one.
        probe: Option<JobId>,
    },
}

impl Default for Breaker {
    fn default() -> Self {
        Self::Closed { failed: Vec::new() }
    }
}

impl Breaker {
    /// Records a failed start. Returns true if the worker is suspect now, and is to be excluded.
    pub fn fail(&mut self, now: Timestamp, revision: Revision, message: &str) -> bool {
        if let Self::Closed { failed } = self {
            if !failed.contains(&revision) {
                failed.push(revision);
            }
            if failed.len() < FAILURES_MAX {
                return false;
            }
            let cause =
                format!("it failed to start jobs of {} definitions in a row, last: {message}", failed.len());
            *self = Self::Suspect { since: now, cause, probe: None };
        }
        true
    }

    /// Records a successful start. Returns true if the worker was suspect.
    pub fn succeed(&mut self) -> bool {
        matches!(core::mem::take(self), Self::Suspect { .. })
    }

    /// An attempt of this job was assigned: the first one of a suspect worker is its probe.
    pub fn assign(&mut self, job: JobId) {
        if let Self::Suspect { probe, .. } = self {
            probe.get_or_insert(job);
        }
    }

    /// An attempt of this job is gone.
    pub fn remove(&mut self, job: JobId) {
        if let Self::Suspect { probe, .. } = self
            && *probe == Some(job)
        {
            *probe = None;
        }
    }

    /// The worker is suspect.
    #[must_use]
    pub const fn is_suspect(&self) -> bool {
        matches!(self, Self::Suspect { .. })
    }

    /// The job that probes the suspect worker.
    #[must_use]
    pub const fn probe(&self) -> Option<JobId> {
        match self {
            Self::Suspect { probe, .. } => *probe,
            Self::Closed { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_definitions_in_a_row_make_a_worker_suspect_and_a_start_makes_it_trusted() {
        let mut breaker = Breaker::default();
        let fail =
            |breaker: &mut Breaker, revision| breaker.fail(Timestamp(7), Revision(revision), "no space");
        assert!(![1, 1, 1, 2].iter().any(|revision| fail(&mut breaker, *revision)), "two definitions");
        assert!(!breaker.succeed());
        assert!(![1, 2].iter().any(|revision| fail(&mut breaker, *revision)), "not in a row");
        assert!(fail(&mut breaker, 3) && breaker.is_suspect());
        breaker.assign(JobId(5));
        breaker.assign(JobId(6));
        assert_eq!(breaker.probe(), Some(JobId(5)));
        breaker.remove(JobId(5));
        assert_eq!(breaker.probe(), None);
        assert!(fail(&mut breaker, 1), "each failed probe excludes it again");
        assert!(breaker.succeed() && !breaker.is_suspect());
    }
}
