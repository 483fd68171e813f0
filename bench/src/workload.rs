//! The jobs that benchmarks without containers submit: their definitions, and the lines of a batch.

use crate::run_dir::WorkerCapacity;

/// The jobs of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// One definition whose jobs do nothing.
    Silent,
    /// One definition whose jobs write [`OUTPUT_BYTES`].
    Talkative,
    /// [`DEFINITIONS`] whose jobs have a label and do nothing. They come in batches.
    Many,
    /// Likewise, with limits, required labels and priorities.
    Ruled,
}

impl Workload {
    /// The jobs file with its definitions.
    pub(crate) fn jobs_file(self) -> String {
        match self {
            Self::Silent | Self::Talkative => JOBS_FILE.to_owned(),
            Self::Many => format!("{JOBS_FILE}{}", definitions(false)),
            Self::Ruled => format!("{JOBS_FILE}{}", definitions(true)),
        }
    }

    /// Bytes that each job writes.
    pub(crate) const fn output_bytes_per_job(self) -> u64 {
        match self {
            Self::Talkative => OUTPUT_BYTES,
            Self::Silent | Self::Many | Self::Ruled => 0,
        }
    }
}

/// Many definitions for a jobs file. With rules, half of them may run on each of two workers.
fn definitions(with_rules: bool) -> String {
    let rules = |n: u64| {
        let (worker, priority) = (n % 2 + 1, n % 5);
        format!(
            ", priority: {priority}, requires: {{ bench: w{worker} }}, concurrency: {{ limit: 10, key: labels.customer }}"
        )
    };
    let rules = |n| if with_rules { rules(n) } else { String::new() };
    (0..DEFINITIONS).map(|n| format!("  many-{n}: {{ runtime: fake{} }}\n", rules(n))).collect()
}

/// A batch with jobs of many definitions in turn.
pub(crate) fn batch_of_many(members: u64) -> String {
    (0..members)
        .map(|n| {
            let (definition, customer) = (n % DEFINITIONS, n % CUSTOMERS);
            format!("{{\"name\":\"many-{definition}\",\"labels\":{{\"customer\":\"c{customer}\"}}}}\n")
        })
        .collect()
}

/// The definitions of [`SILENT`] and [`TALKATIVE`] jobs. The fake runtime does what the variables say.
pub(crate) const JOBS_FILE: &str = "\
version: 1
jobs:
  noop: { runtime: fake }
  talk: { runtime: fake, environment: { FAKE_OUTPUT_BYTES: '100' } }
";
/// A job that does nothing.
pub(crate) const SILENT: &str = "noop";
/// A job that writes [`OUTPUT_BYTES`].
pub(crate) const TALKATIVE: &str = "talk";
const OUTPUT_BYTES: u64 = 100;
/// Definitions of [`Workload::Many`] and [`Workload::Ruled`].
pub(crate) const DEFINITIONS: u64 = 1_000;
const CUSTOMERS: u64 = 50;
/// Slots and backlog of the workers of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerSettings {
    /// The defaults of the program.
    Default,
    /// Tuned for these jobs.
    Tuned,
    /// As many slots, and no backlog: as many jobs are in flight as jobs with limits, which are never prefetched.
    TunedWithoutBacklog,
}

impl WorkerSettings {
    /// Its name in results.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Tuned => "tuned",
            Self::TunedWithoutBacklog => "tuned, no backlog",
        }
    }

    /// Absent for the defaults.
    pub(crate) const fn capacity(self) -> Option<WorkerCapacity> {
        match self {
            Self::Default => None,
            Self::Tuned => Some(CAPACITY),
            Self::TunedWithoutBacklog => Some(WorkerCapacity { backlog: 0, ..CAPACITY }),
        }
    }
}

/// Slots and backlog of a worker that is tuned for these jobs.
pub(crate) const CAPACITY: WorkerCapacity = WorkerCapacity { slots: 64, backlog: 64 };
/// Jobs in a request.
pub(crate) const BATCH: u64 = 1_000;
/// Enough for batches that the server always has a request to read while another one is being synced.
pub(crate) const CONNECTIONS: u64 = 4;
