//! A definition: an entry of jobs.yaml, valid by construction. `server::config::jobs_file` makes them; nobody checks them again.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::container::ContainerSpec;
use protocol::report::Outcome;
use protocol::{Revision, RuntimeKind};

use crate::retry;

/// An entry of jobs.yaml.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Its name, unique in the file.
    pub name: String,
    /// The hash of its resolved content.
    pub revision: Revision,
    /// Whether it may be submitted.
    pub enabled: bool,
    /// Higher goes first; −100 to 100.
    pub priority: i8,
    /// How long one attempt may run; absent: for ever.
    pub timeout: Option<Duration>,
    /// What happens after a failure that is the job's own.
    pub retry: RetryPolicy,
    /// What happens after a failure that is the platform's.
    pub loss: LossPolicy,
    /// What a worker is to run.
    pub container: ContainerSpec,
}

impl Definition {
    /// The runtime that carries it out.
    #[must_use]
    pub const fn runtime(&self) -> RuntimeKind {
        self.container.runtime
    }

    /// How much memory the next attempt may have instead of what `container` says, after so many that were killed for having too little.
    #[must_use]
    pub fn raised_memory(&self, oom_kills: u32) -> Option<u64> {
        let (memory, factor) = self.container.resources.memory_bytes.zip(self.retry.memory_factor_milli)?;
        (oom_kills > 0).then(|| retry::raised(memory, factor, oom_kills))
    }

    /// From the last heartbeat of a silent worker until its attempts are given up: `lost_after`. But a container that its worker fences
    /// off is gone by the clock of that worker; if that one may go so slow, and ours so fast, that it is not gone by then, a little later.
    #[must_use]
    pub fn patience(&self) -> Duration {
        let fence = self.container.self_fence.unwrap_or_default();
        let fenced_off = fence.saturating_mul(FASTEST_CLOCK) / SLOWEST_CLOCK;
        self.loss.after.max(fenced_off)
    }
}

/// How long the fastest clock of a fleet, and the slowest one, take for the same hundred: ± 5 % (FAULTS.md R15).
const FASTEST_CLOCK: u32 = 105;
const SLOWEST_CLOCK: u32 = 95;

/// What happens after a failure that is the job's own.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// How many further attempts; 0 to 100.
    pub max: u32,
    /// After which outcomes. Only outcomes of the job's own budget are ever here.
    pub when: Vec<Outcome>,
    /// If not empty, after [`Outcome::Failed`] only with one of these exit codes.
    pub exit_codes: Vec<i32>,
    /// Where the next attempt may run after a failure of the job's own. After one of the platform's it is always [`RetryOn::Other`].
    pub on: RetryOn,
    /// How long to wait.
    pub backoff: Backoff,
    /// By how much each attempt that was killed for its memory limit raises that limit, in thousandths; absent: it stays.
    pub memory_factor_milli: Option<u32>,
}

impl RetryPolicy {
    /// The outcomes that use the job's own budget (DESIGN.md section 3).
    pub const OWN_BUDGET: [Outcome; 5] =
        [Outcome::Failed, Outcome::OomKilled, Outcome::TimedOut, Outcome::PullFailed, Outcome::StartFailed];
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max: 0,
            when: Self::OWN_BUDGET.to_vec(),
            exit_codes: Vec::new(),
            on: RetryOn::Any,
            backoff: Backoff::default(),
            memory_factor_milli: None,
        }
    }
}

/// Where the next attempt may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryOn {
    /// Anywhere.
    #[default]
    Any,
    /// On the worker that had the last one.
    Same,
    /// On another worker than the last one, if there is one.
    Other,
}

/// Exponential backoff with full jitter: a random part of `initial * factor^n`, at most `max`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The ceiling after the first failure.
    pub initial: Duration,
    /// The highest ceiling.
    pub max: Duration,
    /// How much the ceiling grows with each failure, in thousandths; at least 1,000.
    pub factor_milli: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial: Duration::from_secs(10), max: Duration::from_secs(600), factor_milli: 2_000 }
    }
}

/// What happens after a failure that is the platform's.
#[derive(Clone, Debug, PartialEq)]
pub struct LossPolicy {
    /// This many losses within a day, and the job is quarantined.
    pub limit: u32,
    /// From the last heartbeat of a silent worker to the successor.
    pub after: Duration,
    /// Whether there is a successor.
    pub on_lost: OnLost,
    /// How long the next attempt waits; absent: a random part of a second, doubling with each loss up to a minute.
    pub delay: Option<Duration>,
    /// How often a worker that has one of these says at least that it lives; absent: as the server asks of all.
    pub ping: Option<Duration>,
}

impl Default for LossPolicy {
    fn default() -> Self {
        Self { limit: 3, after: Duration::from_secs(60), on_lost: OnLost::Retry, delay: None, ping: None }
    }
}

/// What becomes of a job whose worker is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLost {
    /// It gets a successor.
    #[default]
    Retry,
    /// It ends as lost.
    Fail,
    /// It waits for its worker or a person.
    Wait,
}
