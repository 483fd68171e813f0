//! Messages from the server to a worker. Orders are not stored; the server derives them from state at each
//! connect.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

#[cfg(doc)]
use crate::container::ContainerOptions;
use crate::container::{ContainerSpec, Overrides};
use crate::ids::{ClusterId, Epoch, ReportNo, Revision, SessionId, Token, WorkerId};
use crate::report::{Phase, Stream};
use crate::secret::AttemptSecrets;

/// One message from the server to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// The answer to an accepted Hello.
    Welcome(Welcome),
    /// Revisions asked for, or about to be needed.
    Definitions(Vec<Definition>),
    /// Queue these attempts and run them.
    Enqueue(Vec<Assignment>),
    /// Verdicts about the attempts of the Inventory. Until the last part arrived the worker starts nothing.
    Reconciled(Reconciled),
    /// Stop this attempt.
    Cancel(Cancel),
    /// Give these back if they are unstarted; the answer is Released, or Status if it is too late.
    Recall(Vec<Token>),
    /// Reports up to this number are durable.
    Acknowledge(ReportNo),
    /// The answer to a Heartbeat; renews the lease from the instant at which that heartbeat was sent.
    Pulse(u64),
    /// Settings of this worker that changed.
    Configure(Configure),
    /// Output up to these offsets is durable.
    OutputAcknowledge(Vec<OutputMark>),
    /// The Hello is not accepted; the socket closes after it.
    Refused(Refused),
    /// The server leaves; reconnect later.
    GoAway(GoAway),
    /// As `Definitions`, with the options of their containers. Only for sessions of [`ContainerOptions::VERSION`] and above.
    ExtendedDefinitions(Vec<Definition>),
}

impl Order {
    /// The message that carries this definition.
    #[must_use]
    pub fn define(definition: Definition) -> Self {
        let is_extended = !definition.container.options.is_empty();
        let list = alloc::vec![definition];
        if is_extended { Self::ExtendedDefinitions(list) } else { Self::Definitions(list) }
    }
}

/// The answer to an accepted Hello.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Welcome {
    /// Protocol version of this session.
    pub version: u16,
    /// Id of this session.
    pub session: SessionId,
    /// The server's term.
    pub epoch: Epoch,
    /// The cluster's id: part of every container's name.
    pub cluster: ClusterId,
    /// The worker's id.
    pub worker: WorkerId,
    /// Heartbeat, lease and start gate.
    pub intervals: Intervals,
    /// The last durable report of this incarnation.
    pub last_report: ReportNo,
}

/// Times that both sides keep. docs/design/leases-fencing-reconcile.md, L3 lists the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Intervals {
    /// Between two heartbeats, before jitter.
    pub heartbeat: Duration,
    /// How long a session's lease lasts after a heartbeat.
    pub lease: Duration,
    /// Nothing is started in the last part of a lease.
    pub start_gate: Duration,
}

impl Default for Intervals {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(5),
            lease: Duration::from_secs(30),
            start_gate: Duration::from_secs(3),
        }
    }
}

impl Intervals {
    /// Silence after which a connection is dead: half a lease (15 s), so that another one is open before the
    /// lease expires. Long enough for a busy machine.
    #[must_use]
    pub fn silence_max(&self) -> Duration {
        (self.lease / 2).max(SILENCE_MIN)
    }

    /// Time between two pings of one side: three pings fit into that silence.
    #[must_use]
    pub fn ping(&self) -> Duration {
        self.silence_max() / 3
    }
}

const SILENCE_MIN: Duration = Duration::from_millis(300);

/// A definition as the worker needs it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Definition {
    /// Id of the definition.
    pub revision: Revision,
    /// Name, for logs and container labels.
    pub name: String,
    /// The container or process.
    pub container: ContainerSpec,
}

/// One attempt handed to a worker.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Assignment {
    /// Token that reports about it must carry.
    pub token: Token,
    /// Higher goes first.
    pub priority: i8,
    /// How long it has been due: the local queue's second order.
    pub waited: Duration,
    /// The revision to run.
    pub revision: Revision,
    /// Overrides of the job.
    pub overrides: Option<Overrides>,
    /// Remaining run time from the start of the container; unlimited if absent.
    pub time_left: Option<Duration>,
    /// Memory limit in bytes instead of the definition's: higher after the job was killed for memory.
    pub memory_bytes: Option<u64>,
    /// Secrets of the job; absent if it has none.
    pub secrets: Option<AttemptSecrets>,
    /// Ids of the GPUs that are reserved for it.
    pub gpus: Vec<String>,
}

/// The answer to a whole Inventory. More than one frame if it is long; only the last has `last`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Reconciled {
    /// Every attempt of the Inventory with its verdict.
    pub attempts: Vec<(Token, ReconcileVerdict)>,
    /// This is the last part.
    pub last: bool,
}

/// Verdict about an attempt of the Inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ReconcileVerdict {
    /// It is current: continue.
    Keep,
    /// It is not current: stop it, then remove it.
    Stop,
    /// It has ended and the server has its report: remove it. Servers of this version never send it; workers accept it.
    Forget,
}

/// Stop an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Cancel {
    /// The attempt's token.
    pub token: Token,
    /// Time before it is killed; absent: as its definition says.
    pub grace: Option<Duration>,
    /// The cause.
    pub cause: StopCause,
}

/// Cause of a stop. The first recorded cause decides the outcome.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// The job was cancelled.
    Cancel,
    /// It exceeded its timeout.
    Timeout,
    /// Another attempt has taken its place.
    Superseded,
    /// Its definition is no longer allowed on this worker.
    Pinning,
    /// The worker leaves and does not wait.
    Drain,
    /// The worker has lost its server and the attempt has `self_fence`. Workers decide this themselves; no
    /// server orders it.
    SelfFence,
}

impl StopCause {
    /// All causes, in the order of their declaration.
    pub const ALL: [Self; 6] =
        [Self::Cancel, Self::Timeout, Self::Superseded, Self::Pinning, Self::Drain, Self::SelfFence];

    /// Name in `stopping`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Timeout => "timeout",
            Self::Superseded => "superseded",
            Self::Pinning => "pinning",
            Self::Drain => "drain",
            Self::SelfFence => "self_fence",
        }
    }
}

/// Settings of a worker that the server decides. Absent: unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Configure {
    /// How many containers may run at once.
    pub slots: Option<u32>,
    /// The worker is to finish its attempts and leave. False ends an earlier drain.
    pub drain: bool,
    /// New intervals, from the next heartbeat on.
    pub intervals: Option<Intervals>,
}

/// Offset up to which output of an attempt is durable on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct OutputMark {
    /// The attempt.
    pub token: Token,
    /// The stream.
    pub stream: Stream,
    /// All bytes before this offset.
    pub offset: u64,
}

/// The refusal of a Hello.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Refused {
    /// Stable, for machines: `name_taken`, `unsupported_version`, …
    pub code: String,
    /// For people: the problem and its remedy.
    pub text: String,
    /// Delay before the next try.
    pub retry_after: Duration,
}

/// The server leaves.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct GoAway {
    /// Delay before the next connection, with jitter.
    pub reconnect_after: Duration,
    /// Address, if it is another one.
    pub elsewhere: Option<String>,
}

/// A phase in the words for people, shared by both sides.
#[must_use]
pub const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Backlog => "backlog",
        Phase::Pulling { .. } => "pulling",
        Phase::Starting => "starting",
        Phase::Running => "running",
        Phase::Stopping => "stopping",
        Phase::Ended => "ended",
        Phase::Unknown => "unknown",
    }
}
