//! Everything that a server may tell a worker. Orders are never queued durably: they are recomputed from state at each connect.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use bincode::{Decode, Encode};

use crate::container::{Body, ContainerSpec};
use crate::ids::{ClusterId, Epoch, ReportNo, Revision, SessionId, Token, WorkerId};
use crate::report::{Phase, Stream};

/// One message from the server to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// The answer to an accepted Hello.
    Welcome(Welcome),
    /// Revisions asked for, or about to be needed.
    Definitions(Vec<Definition>),
    /// Queue these attempts and run them.
    Enqueue(Vec<Assignment>),
    /// What to do with each attempt of the Inventory. Until the last of it arrived the worker starts nothing.
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
}

/// A range of protocol versions, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct VersionRange {
    /// The oldest one spoken.
    pub lowest: u16,
    /// The newest one spoken.
    pub highest: u16,
}

impl VersionRange {
    /// The newest version that both sides speak.
    #[must_use]
    pub fn common(self, other: Self) -> Option<u16> {
        let highest = self.highest.min(other.highest);
        (highest >= self.lowest.max(other.lowest)).then_some(highest)
    }
}

/// The answer to an accepted Hello.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Welcome {
    /// The protocol version of this session.
    pub version: u16,
    /// This connection.
    pub session: SessionId,
    /// The server's term.
    pub epoch: Epoch,
    /// The installation: part of every container's name.
    pub cluster: ClusterId,
    /// The worker's lasting identity.
    pub worker: WorkerId,
    /// How often to say what, and for how long it counts.
    pub intervals: Intervals,
    /// The last report of this incarnation that is durable.
    pub last_report: ReportNo,
}

/// Times that both sides keep. DESIGN.md section 5 and FAULTS.md section 2 give the defaults.
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
    /// A connection on which nothing at all has arrived for so long is dead: half a lease (15 s), so that another one is there before
    /// the lease runs out. Never so short that a busy machine looks like a dead one.
    #[must_use]
    pub fn silence_max(&self) -> Duration {
        (self.lease / 2).max(SILENCE_MIN)
    }

    /// Between two pings of one side: three chances to be answered before that.
    #[must_use]
    pub fn ping(&self) -> Duration {
        self.silence_max() / 3
    }
}

const SILENCE_MIN: Duration = Duration::from_millis(300);

/// A definition as the worker needs it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Definition {
    /// Its identity.
    pub revision: Revision,
    /// For people: logs and container labels.
    pub name: String,
    /// What to run.
    pub container: ContainerSpec,
}

/// One attempt handed to a worker.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Assignment {
    /// Whose bearer may report about it.
    pub token: Token,
    /// Higher goes first.
    pub priority: i8,
    /// How long it has been due: the local queue's second order.
    pub waited: Duration,
    /// What to run.
    pub revision: Revision,
    /// What this job adds to it.
    pub body: Option<Body>,
    /// How long it may run, from the start of the container; absent: for ever.
    pub time_left: Option<Duration>,
    /// How much memory it may have instead of what its definition says, in bytes: more, after it was killed for having too little.
    pub memory_bytes: Option<u64>,
}

/// The answer to a whole Inventory. More than one frame if it is long; only the last has `last`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Reconciled {
    /// Every attempt of the Inventory, with what to do.
    pub attempts: Vec<(Token, Verdict)>,
    /// Whether this was all.
    pub last: bool,
}

/// What to do with an attempt that the worker knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Verdict {
    /// It is current: go on.
    Keep,
    /// It is not: stop it, then forget it.
    Stop,
    /// It has ended and everything about it is known: remove it.
    Forget,
}

/// Stop an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Cancel {
    /// Which.
    pub token: Token,
    /// How long it may take before it is killed; absent: as its definition says.
    pub grace: Option<Duration>,
    /// Why.
    pub cause: StopCause,
}

/// Why an attempt is stopped. The cause recorded first decides how its end is classed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum StopCause {
    /// Somebody cancelled the job.
    Cancel,
    /// It ran for too long.
    Timeout,
    /// Another attempt has taken its place.
    Superseded,
    /// Its definition is no longer allowed on this worker.
    Pinning,
    /// The worker leaves and does not wait.
    Drain,
    /// The worker has lost its server, and the container must not outlive that. Workers say so to themselves; no server orders it.
    SelfFence,
}

impl StopCause {
    /// Every cause, in the order of their declaration.
    pub const ALL: [Self; 6] =
        [Self::Cancel, Self::Timeout, Self::Superseded, Self::Pinning, Self::Drain, Self::SelfFence];

    /// As it is shown in `stopping`.
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

/// Settings of a worker that the server decides about. Absent: as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Configure {
    /// How many containers may run at once.
    pub slots: Option<u32>,
    /// Whether the server wants the worker to finish what it has and leave. No takes that order back, and no other.
    pub drain: bool,
    /// New intervals, from the next heartbeat on.
    pub intervals: Option<Intervals>,
}

/// How far the output of an attempt is durable on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct OutputMark {
    /// The attempt.
    pub token: Token,
    /// Which of its streams.
    pub stream: Stream,
    /// All bytes before this offset.
    pub offset: u64,
}

/// Why a Hello is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Refused {
    /// Stable, for machines: `name_taken`, `unsupported_version`, …
    pub code: String,
    /// For people: what is wrong and what to do.
    pub text: String,
    /// Try again after this long.
    pub retry_after: Duration,
}

/// The server leaves.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct GoAway {
    /// Reconnect after this long, with jitter.
    pub reconnect_after: Duration,
    /// Where to, if not to the same address.
    pub elsewhere: Option<String>,
}

/// A phase as people are shown it; kept here so that both sides spell it alike.
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
