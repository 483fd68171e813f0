//! Messages from a worker to the server.
//!
//! Running, Success, Failure, Released and Starting are *numbered*: they carry the number of their first
//! entry, are kept until acknowledged, and are sent again after a reconnect. Output has acknowledgements of its own, by offset. Hello begins
//! a connection. All others describe the present and may be lost.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

pub use crate::availability::{Availability, CANNOT_START};
use crate::container::RuntimeKind;
use crate::ids::{ClusterId, Incarnation, ReportNo, Revision, Token, WorkerId};
pub use crate::output::{Chunk, ChunkData, Stream, head_bytes, tail_bytes};
use crate::resources::OfferedResources;
pub use crate::usage::{Usage, UsageSample};
use crate::version::VersionRange;

/// One message from a worker to its server.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// Identification; always the first frame.
    Hello(Hello),
    /// Containers have started.
    Running(Numbered<Started>),
    /// Attempts ended with exit code 0.
    Success(Numbered<Succeeded>),
    /// Attempts ended otherwise.
    Failure(Numbered<Failed>),
    /// All attempts of this worker: after Welcome, before it may start anything.
    Inventory(Inventory),
    /// Attempts given back unstarted.
    Released(Numbered<Released>),
    /// Sign of life; renews the lease.
    Heartbeat(Heartbeat),
    /// Bytes that containers wrote.
    Output(Vec<Chunk>),
    /// An attempt is in another phase.
    Progress(Vec<(Token, Phase)>),
    /// Phases of these attempts: the answer to an Enqueue of a known attempt, or to a late Recall.
    Status(Vec<(Token, Phase)>),
    /// The worker's own state changed.
    Condition(Condition),
    /// Revisions that this worker lacks.
    Wanted(Vec<Revision>),
    /// The worker is about to create these containers and waits for the acknowledgement.
    Starting(Numbered<Token>),
    /// All containers of this cluster on this engine that belong to other workers, after a search that found
    /// any. The server answers with a Cancel for each that is to be stopped although its own worker cannot be
    /// told to.
    Foreign(Vec<Foreign>),
    /// Resources of running attempts, at most once a second. Nothing answers it, and it may be lost.
    Usage(Vec<UsageSample>),
}

/// A list of reports with consecutive numbers.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Numbered<T> {
    /// The number of the first entry.
    pub first: ReportNo,
    /// The entries, in the order of their numbers.
    pub list: Vec<T>,
}

impl<T> Numbered<T> {
    /// The number of the last entry; of the one before the first if there is none.
    #[must_use]
    pub fn last(&self) -> ReportNo {
        ReportNo(self.first.0.saturating_add(self.list.len() as u64).saturating_sub(1))
    }
}

/// Identification of a worker.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
pub struct Hello {
    /// The protocol versions that this worker speaks.
    pub versions: VersionRange,
    /// The worker's name.
    pub name: String,
    /// The secret of its state directory: proof of identity. The server stores its hash only.
    pub secret: [u8; 32],
    /// The cluster that this state directory joined, if any.
    pub cluster: Option<ClusterId>,
    /// Join even if this server does not know the secret or belongs to another cluster.
    pub rejoin: bool,
    /// Start counter of the state directory.
    pub incarnation: Incarnation,
    /// Random number of the process: it differs even from one with a copy of the state directory.
    pub process: u64,
    /// Id of the Docker engine, if there is one; workers with the same id share an engine.
    pub engine: Option<String>,
    /// The version of the worker's program.
    pub version: String,
    /// How many containers may run at once.
    pub slots: u32,
    /// How many attempts may wait in front of the slots.
    pub backlog: u32,
    /// The worker's labels.
    pub labels: Vec<(String, String)>,
    /// Runtimes and their availability.
    pub runtimes: Vec<(RuntimeKind, Availability)>,
    /// Resources that jobs may reserve.
    pub resources: OfferedResources,
}

impl core::fmt::Debug for Hello {
    /// Everything but the secret: logs show it when a worker is refused.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Hello")
            .field("versions", &self.versions)
            .field("cluster", &self.cluster)
            .field("name", &self.name)
            .field("incarnation", &self.incarnation)
            .field("process", &self.process)
            .field("rejoin", &self.rejoin)
            .field("engine", &self.engine)
            .field("version", &self.version)
            .field("slots", &self.slots)
            .field("backlog", &self.backlog)
            .field("labels", &self.labels)
            .field("runtimes", &self.runtimes)
            .field("resources", &self.resources)
            .finish_non_exhaustive()
    }
}

/// A container has started.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Started {
    /// The attempt's token.
    pub token: Token,
    /// The runtime's name for it: a container id, `pid 123`, or empty.
    pub container: String,
    /// Age of the start when this was written.
    pub ago: Duration,
}

/// An attempt ended with exit code 0.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Succeeded {
    /// The attempt's token.
    pub token: Token,
    /// Times as durations.
    pub timing: Timing,
    /// Length of its output.
    pub output: OutputLengths,
    /// The job's result, as JSON.
    pub result: Option<String>,
    /// A remark in spite of success, such as a child process that was killed for lack of memory.
    pub note: Option<String>,
    /// Resources that it has used.
    pub usage: Usage,
}

/// An attempt ended otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Failed {
    /// The attempt's token.
    pub token: Token,
    /// The outcome.
    pub outcome: Outcome,
    /// The program's exit code, if it ran.
    pub exit_code: Option<i32>,
    /// Explanation for people, in one line.
    pub message: String,
    /// Times as durations.
    pub timing: Timing,
    /// Length of its output.
    pub output: OutputLengths,
    /// Resources that it has used.
    pub usage: Usage,
}

/// The outcome of an attempt.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Exit code 0.
    Succeeded,
    /// Another exit code.
    Failed,
    /// Killed by the kernel for its memory limit.
    OomKilled,
    /// Stopped by the worker at its timeout.
    TimedOut,
    /// Stopped by the worker because the job was cancelled.
    Cancelled,
    /// The image could not be pulled.
    PullFailed,
    /// Proven to be the definition's fault: not found, not executable, unknown user, rejected option.
    StartFailed,
    /// Any other failure to start.
    HostFailed,
    /// The Docker daemon stopped while it ran.
    DaemonLost,
    /// The worker was lost, or has lost the container.
    Lost,
    /// An operator stopped the worker with its jobs, or the worker stopped the container because it had lost
    /// the server (`self_fence`).
    Interrupted,
    /// Released before its start.
    Released,
}

impl Outcome {
    /// All outcomes, in the order of their declaration.
    pub const ALL: [Self; 12] = [
        Self::Succeeded,
        Self::Failed,
        Self::OomKilled,
        Self::TimedOut,
        Self::Cancelled,
        Self::PullFailed,
        Self::StartFailed,
        Self::HostFailed,
        Self::DaemonLost,
        Self::Lost,
        Self::Interrupted,
        Self::Released,
    ];

    /// Name in the store and the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::OomKilled => "oom_killed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::PullFailed => "pull_failed",
            Self::StartFailed => "start_failed",
            Self::HostFailed => "host_failed",
            Self::DaemonLost => "daemon_lost",
            Self::Lost => "lost",
            Self::Interrupted => "interrupted",
            Self::Released => "released",
        }
    }
}

/// Times as durations, because the clocks of two machines differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Timing {
    /// Age of the end when this was written.
    pub ended_ago: Duration,
    /// Run time; absent if it never started.
    pub ran: Option<Duration>,
}

/// Length of an attempt's output in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
pub struct OutputLengths {
    /// Standard output.
    pub stdout: u64,
    /// Standard error.
    pub stderr: u64,
}

/// An attempt is given back unstarted.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Released {
    /// The attempt's token.
    pub token: Token,
    /// The cause.
    pub cause: ReleaseCause,
    /// Explanation for people, in one line; empty if the cause says it all.
    pub why: String,
}

/// Cause of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum ReleaseCause {
    /// The server recalled it, or did not want it any more.
    Recalled,
    /// The worker has no room.
    Full,
    /// The worker leaves.
    Draining,
    /// Its runtime does not answer.
    RuntimeUnavailable,
    /// This worker does not allow it.
    Policy,
    /// The server did not send its secrets.
    Secrets,
}

impl ReleaseCause {
    /// Name in the store and the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Recalled => "recalled",
            Self::Full => "full",
            Self::Draining => "draining",
            Self::RuntimeUnavailable => "runtime_unavailable",
            Self::Policy => "policy",
            Self::Secrets => "secrets",
        }
    }

    /// Default explanation for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Recalled => "the server asked for it",
            Self::Full => "its worker had no room",
            Self::Draining => "its worker leaves",
            Self::RuntimeUnavailable => "its runtime does not answer on this worker",
            Self::Policy => "this worker does not allow it",
            Self::Secrets => "its secrets were not sent",
        }
    }
}

/// Phase of an attempt on its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum Phase {
    /// In the local queue.
    Backlog,
    /// Its image is being pulled.
    Pulling {
        /// Percentage of the missing layers, if known.
        percent: Option<u8>,
        /// Number of failed pulls so far; the pull is tried again.
        failures: u32,
    },
    /// Its container is being created.
    Starting,
    /// Its container has started.
    Running,
    /// It is being stopped.
    Stopping,
    /// It has ended; its final report is not acknowledged yet.
    Ended,
    /// The worker does not know it.
    Unknown,
}

/// All attempts of a worker. More than one frame if it is long; only the last has `last`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Inventory {
    /// Runtimes, and for each: its part of the list is complete.
    pub runtimes: Vec<(RuntimeKind, Availability)>,
    /// All attempts with their phases.
    pub attempts: Vec<(Token, Phase)>,
    /// Containers of this cluster on this engine that belong to another worker.
    pub foreign: Vec<Foreign>,
    /// This is the last part.
    pub last: bool,
}

/// A container of this cluster on this engine that belongs to another worker.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Foreign {
    /// The worker in the container's label.
    pub worker: WorkerId,
    /// The attempt in the container's label.
    pub token: Token,
}

/// Sign of life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Heartbeat {
    /// Number that the Pulse repeats.
    pub number: u64,
    /// Slots in use.
    pub busy: u32,
    /// Attempts in the local queue.
    pub queued: u32,
    /// Load average of one minute in thousandths, if known.
    pub load_milli: Option<u32>,
    /// Free bytes on the disk of the state directory, if known; zero is a full disk.
    pub disk_free_bytes: Option<u64>,
}

/// State of the worker.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Condition {
    /// Runtimes and their availability.
    pub runtimes: Vec<(RuntimeKind, Availability)>,
    /// How many containers may run at once.
    pub slots: u32,
    /// The worker takes nothing new.
    pub draining: bool,
}
