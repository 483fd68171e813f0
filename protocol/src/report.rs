//! Everything that a worker may tell a server.
//!
//! Running, Success, Failure, Released and Starting are *numbered*: they carry the number of their first entry, are kept until
//! acknowledged and are sent again after a reconnect. All others tell a fact of the moment and may be lost.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use bincode::{Decode, Encode};

use crate::container::RuntimeKind;
use crate::ids::{ClusterId, Incarnation, ReportNo, Revision, Token, WorkerId};
use crate::order::VersionRange;
pub use crate::output::{Chunk, ChunkData, Stream};

/// One message from a worker to its server.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// Who is there; always the first frame.
    Hello(Hello),
    /// Containers have started.
    Running(Numbered<Started>),
    /// Attempts ended with exit code 0.
    Success(Numbered<Succeeded>),
    /// Attempts ended otherwise.
    Failure(Numbered<Failed>),
    /// Everything that this worker knows of: after Welcome, before it may start anything.
    Inventory(Inventory),
    /// Attempts given back unstarted.
    Released(Numbered<Released>),
    /// I am alive.
    Heartbeat(Heartbeat),
    /// Bytes that containers wrote.
    Output(Vec<Chunk>),
    /// An attempt is in another phase.
    Progress(Vec<(Token, Phase)>),
    /// Where these attempts stand: the answer to a known Enqueue, or to a Recall that came too late.
    Status(Vec<(Token, Phase)>),
    /// The worker's own state changed.
    Condition(Condition),
    /// Revisions that this worker lacks.
    Wanted(Vec<Revision>),
    /// About to create these containers; wait for the acknowledgement.
    Starting(Numbered<Token>),
    /// All containers of this cluster on this engine that belong to other workers, when somebody has looked again and found any. The
    /// answer is a Cancel for each that is to be stopped although its own worker cannot be told to.
    Foreign(Vec<Foreign>),
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

/// Who is there.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
pub struct Hello {
    /// The protocol versions that this worker speaks.
    pub versions: VersionRange,
    /// What people call this worker.
    pub name: String,
    /// The secret of its state directory: proof of identity. The server stores its hash only.
    pub secret: [u8; 32],
    /// The installation that this state directory was joined to, if it was.
    pub cluster: Option<ClusterId>,
    /// Join although this server does not know the secret, or belongs to another installation.
    pub rejoin: bool,
    /// Which start of the worker this is.
    pub incarnation: Incarnation,
    /// Drawn when the process began: tells it from every other one, also from one that was started as often from a copy of its state
    /// directory.
    pub process: u64,
    /// The Docker engine's own id, if there is one: tells workers that share an engine.
    pub engine: Option<String>,
    /// The version of the worker's program.
    pub version: String,
    /// How many containers may run at once.
    pub slots: u32,
    /// How many attempts may wait in front of the slots.
    pub backlog: u32,
    /// What jobs may require of it.
    pub labels: Vec<(String, String)>,
    /// What it can run now, and why not.
    pub runtimes: Vec<(RuntimeKind, Availability)>,
}

impl core::fmt::Debug for Hello {
    /// Everything but the secret.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Hello")
            .field("name", &self.name)
            .field("incarnation", &self.incarnation)
            .field("process", &self.process)
            .field("slots", &self.slots)
            .field("backlog", &self.backlog)
            .field("runtimes", &self.runtimes)
            .finish_non_exhaustive()
    }
}

/// Whether a runtime can be used; in an Inventory: whether its list is complete.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Availability {
    /// It answers.
    Available,
    /// It does not, and why.
    Unavailable(String),
}

impl Availability {
    /// Whether it answers.
    #[must_use]
    pub const fn is_available(&self) -> bool {
        matches!(self, Self::Available)
    }
}

/// A container has started.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Started {
    /// Whose.
    pub token: Token,
    /// The runtime's own name for it: a container id, `pid 123`, or empty.
    pub container: String,
    /// How long ago, when this was written.
    pub ago: Duration,
}

/// An attempt ended with exit code 0.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Succeeded {
    /// Whose.
    pub token: Token,
    /// When, in durations.
    pub timing: Timing,
    /// How much it wrote.
    pub output: OutputLengths,
    /// What it left as its result: JSON.
    pub result: Option<String>,
    /// Something worth knowing although it succeeded, such as a child that was killed for lack of memory.
    pub note: Option<String>,
}

/// An attempt ended otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Failed {
    /// Whose.
    pub token: Token,
    /// How.
    pub outcome: Outcome,
    /// The program's exit code, if it ran.
    pub exit_code: Option<i32>,
    /// For people: what happened, in one line.
    pub message: String,
    /// When, in durations.
    pub timing: Timing,
    /// How much it wrote.
    pub output: OutputLengths,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum Outcome {
    /// Exit code 0.
    Succeeded,
    /// Another exit code.
    Failed,
    /// Killed by the kernel for its memory limit.
    OomKilled,
    /// Stopped by us because it ran for too long.
    TimedOut,
    /// Stopped by us because somebody cancelled the job.
    Cancelled,
    /// The image could not be had.
    PullFailed,
    /// Proven to be the definition's fault: not found, not executable, unknown user, rejected option.
    StartFailed,
    /// Any other failure to start.
    HostFailed,
    /// The Docker daemon died under it.
    DaemonLost,
    /// The worker was lost, or has lost it.
    Lost,
    /// An operator stopped the worker with its jobs; or the worker stopped it because it had lost the server (`self_fence`).
    Interrupted,
    /// Given back unstarted.
    Released,
}

impl Outcome {
    /// Every outcome, in the order of their declaration.
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

    /// As it is stored and shown.
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

/// When things happened, told in durations: two machines' clocks never meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Timing {
    /// How long ago it ended, when this was written.
    pub ended_ago: Duration,
    /// How long it ran; absent if it never started.
    pub ran: Option<Duration>,
}

/// How many bytes an attempt wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct OutputLengths {
    /// To its standard output.
    pub stdout: u64,
    /// To its standard error.
    pub stderr: u64,
}

/// An attempt is given back unstarted.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Released {
    /// Which.
    pub token: Token,
    /// Why.
    pub cause: ReleaseCause,
    /// For people: what is in the way, in one line; empty if the cause says it all.
    pub why: String,
}

/// Why an attempt is given back unstarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum ReleaseCause {
    /// The server asked for it.
    Recalled,
    /// More was sent than there is room for.
    Full,
    /// The worker leaves.
    Draining,
    /// Its runtime does not answer.
    RuntimeUnavailable,
    /// This worker does not allow it.
    Policy,
}

impl ReleaseCause {
    /// As it is stored and shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Recalled => "recalled",
            Self::Full => "full",
            Self::Draining => "draining",
            Self::RuntimeUnavailable => "runtime_unavailable",
            Self::Policy => "policy",
        }
    }

    /// For people, where nobody has said more.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Recalled => "the server asked for it",
            Self::Full => "its worker had no room",
            Self::Draining => "its worker leaves",
            Self::RuntimeUnavailable => "its runtime does not answer on this worker",
            Self::Policy => "this worker does not allow it",
        }
    }
}

/// Where an attempt stands on its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum Phase {
    /// In the local queue.
    Backlog,
    /// Its image is being pulled.
    Pulling {
        /// Out of 100, if known: of the layers that are not here yet.
        percent: Option<u8>,
        /// How often that has failed by now, and is tried again.
        failures: u32,
    },
    /// Its container is being created.
    Starting,
    /// Its container has started.
    Running,
    /// It has been told to stop.
    Stopping,
    /// It has ended; its final report is on its way.
    Ended,
    /// The worker does not know it.
    Unknown,
}

/// Everything that a worker knows of. More than one frame if it is long; only the last has `last`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Inventory {
    /// Per runtime: whether its part of the list is complete.
    pub runtimes: Vec<(RuntimeKind, Availability)>,
    /// Every attempt known, with its phase.
    pub attempts: Vec<(Token, Phase)>,
    /// Containers of this cluster on this engine that belong to another worker.
    pub foreign: Vec<Foreign>,
    /// Whether this was all.
    pub last: bool,
}

/// A container of this cluster on this engine that belongs to another worker.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Foreign {
    /// Whose label it carries.
    pub worker: WorkerId,
    /// Which attempt it is.
    pub token: Token,
}

/// I am alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Heartbeat {
    /// Answered by a Pulse with the same number.
    pub number: u64,
    /// Slots in use.
    pub busy: u32,
    /// Attempts in the local queue.
    pub queued: u32,
    /// The machine's load average of one minute, in thousandths, if that can be told.
    pub load_milli: Option<u32>,
    /// Free bytes where the state directory is, if that can be told: zero is a disk that is full.
    pub disk_free_bytes: Option<u64>,
}

/// The worker's own state.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Condition {
    /// What it can run now.
    pub runtimes: Vec<(RuntimeKind, Availability)>,
    /// How many containers may run at once.
    pub slots: u32,
    /// Whether it takes nothing new.
    pub draining: bool,
}
