//! A definition: an entry of jobs.yaml, validated by `server::config::jobs_file`.
//!
//! The serde form of these types, as JSON with sorted keys, is what the store keeps with jobs. Its hash is the revision, so the form of an
//! older file never changes: a new field is left out while it has its default (`skip_serializing_if`).

mod retry_policy;

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::container::ContainerSpec;
use protocol::report::Outcome;
use protocol::{Revision, RuntimeKind, milliseconds};
use serde::{Deserialize, Serialize};

use crate::defaults::is_default;
use crate::hooks::Hooks;
use crate::limits::rules::LimitRules;
use crate::params::SubmissionRules;
use crate::placement::rules::PlacementRules;
use crate::reservation::Reservation;
use crate::schedule::Timetable;
pub use retry_policy::{Backoff, Delays, RetryOn, RetryPolicy};

/// An entry of jobs.yaml.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// Name, unique in the file.
    pub name: String,
    /// Hash of the resolved content.
    #[serde(skip)]
    pub revision: Revision,
    /// Jobs of it may be submitted.
    pub enabled: bool,
    /// Higher goes first; −100 to 100.
    pub priority: i8,
    /// Timeout of one attempt; none if absent.
    #[serde(rename = "timeout_ms", with = "milliseconds::optional")]
    pub timeout: Option<Duration>,
    /// Policy after a job failure.
    pub retry: RetryPolicy,
    /// Exit codes other than 0 with which an attempt that ends by itself is a success, sorted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub success_exit_codes: Vec<i32>,
    /// Policy after an infrastructure failure.
    pub loss: LossPolicy,
    /// How long its jobs may wait.
    #[serde(default, skip_serializing_if = "is_default")]
    pub waits: WaitLimits,
    /// Expectations of its jobs. Not kept with jobs: the present expectation of the name holds for all of them.
    #[serde(skip)]
    pub expect: Expect,
    /// Rules for the choice of its workers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub placement: PlacementRules,
    /// When jobs are made of it without a request. Not kept with jobs: schedules make jobs of the definition as it is now.
    #[serde(skip)]
    pub timetable: Timetable,
    /// Parameters, and the fields that a submission may carry. The server adds them to the stored form.
    #[serde(skip)]
    pub submission: SubmissionRules,
    /// Definitions that get a job when one of its jobs starts or ends.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hooks: Hooks,
    /// Limits on its jobs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: LimitRules,
    /// Names of the secrets that its jobs get.
    #[serde(default, skip_serializing_if = "is_default")]
    pub secrets: SecretRefs,
    /// The container or process to run.
    pub container: ContainerSpec,
}

/// Names of secrets, never values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecretRefs {
    /// Secrets that a job gets as files, sorted.
    #[serde(skip_serializing_if = "is_default")]
    pub files: Vec<String>,
    /// Variables whose value is a secret: the variable's name and the secret's.
    #[serde(skip_serializing_if = "is_default")]
    pub variables: Vec<(String, String)>,
}

impl SecretRefs {
    /// No secret is named.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.files.is_empty() && self.variables.is_empty()
    }
}

impl Definition {
    /// The runtime that runs it.
    #[must_use]
    pub const fn runtime(&self) -> RuntimeKind {
        self.container.runtime
    }

    /// Its jobs go to free slots only, never into a backlog: they need permits, or reserve resources.
    #[must_use]
    pub const fn takes_free_slots_only(&self) -> bool {
        self.limits.gate_starts() || Reservation::is_made_by(&self.container.resources)
    }

    /// The outcome of an attempt that its worker reports with this outcome and exit code. An attempt that was stopped, killed for its
    /// memory or not started stays what it is.
    #[must_use]
    pub fn outcome_of(&self, reported: Outcome, exit_code: Option<i32>) -> Outcome {
        let is_success = exit_code.is_some_and(|code| self.success_exit_codes.contains(&code));
        if reported == Outcome::Failed && is_success { Outcome::Succeeded } else { reported }
    }

    /// Memory limit in bytes of the next attempt after `oom_kills` attempts that were killed for memory;
    /// absent if `container` decides.
    #[must_use]
    pub fn raised_memory(&self, oom_kills: u32) -> Option<u64> {
        let (memory, factor) = self.container.resources.memory_bytes.zip(self.retry.memory_factor_milli)?;
        (oom_kills > 0).then(|| retry_policy::raised(memory, factor, oom_kills))
    }

    /// Time from the last heartbeat of a silent worker until its attempts are lost (`lost_after`). With
    /// `self_fence` it is at least the time in which the slowest clock of a worker certainly stops the
    /// container.
    #[must_use]
    pub fn loss_timeout(&self) -> Duration {
        let self_fence = self.container.self_fence.unwrap_or_default();
        let self_fenced_after = self_fence.saturating_mul(CLOCK_RATE_MAX_PERCENT) / CLOCK_RATE_MIN_PERCENT;
        self.loss.after.max(self_fenced_after)
    }

    /// Time from the last heartbeat of a silent worker until its attempts end as lost; `None` if they wait for it without limit
    /// (`on_lost: wait`). A cancelled job waits no longer than others, whatever `on_lost` says (docs/design/failures.md, F20).
    #[must_use]
    pub fn given_up_after(&self, is_cancelled: bool) -> Option<Duration> {
        match self.loss.on_lost {
            OnLost::Wait if !is_cancelled => {
                self.waits.silent_worker.map(|limit| limit.max(self.loss_timeout()))
            }
            OnLost::Wait | OnLost::Retry | OnLost::Fail => Some(self.loss_timeout()),
        }
    }
}

/// Expectations of the jobs of a definition. They belong to the name and not to a revision: the present jobs.yaml holds for all jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    /// Longest time between two successes.
    pub success_within: Option<Duration>,
    /// Longest run of an attempt.
    pub max_duration: Option<Duration>,
}

/// How long jobs of a definition may wait; none: without limit. A job that waits for longer ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitLimits {
    /// For the start of an attempt, from the time at which it is due (`queue_timeout`).
    #[serde(rename = "queue_ms", with = "milliseconds::optional", skip_serializing_if = "is_default")]
    pub queue: Option<Duration>,
    /// In quarantine (`quarantine_timeout`).
    #[serde(rename = "quarantine_ms", with = "milliseconds::optional", skip_serializing_if = "is_default")]
    pub quarantine: Option<Duration>,
    /// With [`OnLost::Wait`], for a silent worker, from its last heartbeat (`on_lost_timeout`).
    #[serde(
        rename = "silent_worker_ms",
        with = "milliseconds::optional",
        skip_serializing_if = "is_default"
    )]
    pub silent_worker: Option<Duration>,
}

/// Bounds of the clock rates of workers, in percent of real time (docs/design/failures.md, R15).
const CLOCK_RATE_MAX_PERCENT: u32 = 105;
const CLOCK_RATE_MIN_PERCENT: u32 = 95;

/// Policy after an infrastructure failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossPolicy {
    /// Losses within a day after which the job is quarantined.
    pub limit: u32,
    /// Time from the last heartbeat of a silent worker until its attempts are lost.
    #[serde(rename = "after_ms", with = "milliseconds")]
    pub after: Duration,
    /// Reaction to a lost worker.
    pub on_lost: OnLost,
    /// Delay before the next attempt. If absent, a random part of a second that doubles with each loss up to
    /// a minute.
    #[serde(
        rename = "delay_ms",
        default,
        with = "milliseconds::optional",
        skip_serializing_if = "is_default"
    )]
    pub delay: Option<Duration>,
    /// Maximum heartbeat interval of a worker that holds such a job; the server's interval if absent.
    #[serde(
        rename = "ping_ms",
        default,
        with = "milliseconds::optional",
        skip_serializing_if = "is_default"
    )]
    pub heartbeat: Option<Duration>,
}

impl Default for LossPolicy {
    fn default() -> Self {
        Self {
            limit: 3,
            after: Duration::from_secs(60),
            on_lost: OnLost::Retry,
            delay: None,
            heartbeat: None,
        }
    }
}

/// Reaction to a lost worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLost {
    /// The job is retried.
    #[default]
    Retry,
    /// The job ends as lost.
    Fail,
    /// The job waits for its worker or for an operator.
    Wait,
}

#[cfg(test)]
impl Definition {
    /// A definition with this revision, and defaults for everything else.
    pub(crate) fn for_tests(revision: u128) -> alloc::sync::Arc<Self> {
        alloc::sync::Arc::new(Self {
            name: "job".into(),
            revision: Revision(revision),
            enabled: true,
            priority: 0,
            timeout: None,
            retry: RetryPolicy::default(),
            success_exit_codes: Vec::new(),
            loss: LossPolicy::default(),
            waits: WaitLimits::default(),
            expect: Expect::default(),
            placement: PlacementRules::default(),
            timetable: Timetable::default(),
            hooks: Hooks::default(),
            secrets: Default::default(),
            submission: Default::default(),
            limits: LimitRules::default(),
            container: ContainerSpec::default(),
        })
    }
}
