//! One attempt on this machine, from its Enqueue until everything about it is durable on the server.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::cmp::Reverse;
use core::time::Duration;

use protocol::container::Body;
use protocol::order::StopCause;
use protocol::report::Phase;
use protocol::{ContainerSpec, Revision, RuntimeKind, Uptime};

use crate::outbox::Entry;
use crate::step::StopStep;

/// What is known of a revision.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) name: Arc<str>,
    pub(crate) spec: Arc<ContainerSpec>,
}

impl Known {
    /// The same with this much memory, if any is said.
    pub(crate) fn with_memory(mut self, memory_bytes: Option<u64>) -> Self {
        if memory_bytes.is_some() {
            Arc::make_mut(&mut self.spec).resources.memory_bytes = memory_bytes;
        }
        self
    }
}

/// Where an attempt stands in the local queue: higher priority first, then earlier due, then earlier arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) priority: Reverse<i8>,
    /// Nanoseconds of this machine's uptime; negative if it was due before the machine's boot.
    pub(crate) due: i64,
    pub(crate) arrival: u64,
}

#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) place: Place,
    pub(crate) revision: Revision,
    /// Given away at its start.
    pub(crate) body: Option<Body>,
    pub(crate) time_left: Option<Duration>,
    /// Absent only while it is parked.
    pub(crate) known: Option<Known>,
    pub(crate) stage: Stage,
    pub(crate) stop: Option<Stop>,
    /// What it waits for next: its run timeout, the next rung of the kill ladder, or the end of our patience with its output.
    pub(crate) alarm: Option<Uptime>,
    /// All of its output is durable. That comes another way than its end, and may be here before.
    pub(crate) output_done: bool,
}

#[derive(Debug)]
pub(crate) enum Stage {
    /// Its definition has been asked for.
    Parked {
        /// How much memory it may have instead of what that will say.
        memory_bytes: Option<u64>,
    },
    /// In the local queue.
    Waiting,
    /// It holds a slot and waits until the server knows that it is about to start.
    Asking {
        /// The server knows; the start gate was closed when that came.
        cleared: bool,
    },
    /// Its runtime has it; the phase is Pulling or Starting.
    Launched(Phase),
    /// Its runtime has all that it needs, and waits until the start gate is open.
    Prepared,
    /// Its container has started.
    Running {
        /// The runtime's own name for it.
        container: String,
        /// When.
        at: Uptime,
    },
    /// It is over.
    Ended(Ended),
}

/// What must still happen before an ended attempt may be forgotten.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its final report is durable on the server.
    pub(crate) acknowledged: bool,
    /// That report, for a server that has lost it with a part of its store.
    pub(crate) told: Option<Box<Entry>>,
    /// Its output is, or was given up.
    pub(crate) output_done: bool,
    /// Its runtime has something to remove.
    pub(crate) launched: bool,
}

/// How far we are in stopping it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    /// The cause that was recorded first.
    pub(crate) cause: StopCause,
    /// Since when.
    pub(crate) at: Uptime,
    /// The last rung taken.
    pub(crate) rung: StopStep,
}

impl Attempt {
    /// Where it stands, as the server is told.
    pub(crate) fn phase(&self) -> Phase {
        match self.stage {
            Stage::Ended(_) => Phase::Ended,
            Stage::Parked { .. } | Stage::Waiting => Phase::Backlog,
            _ if self.stop.is_some() => Phase::Stopping,
            Stage::Asking { .. } | Stage::Prepared => Phase::Starting,
            Stage::Launched(phase) => phase,
            Stage::Running { .. } => Phase::Running,
        }
    }

    /// Whether nothing has been created for it yet.
    pub(crate) const fn is_unstarted(&self) -> bool {
        matches!(self.stage, Stage::Parked { .. } | Stage::Waiting | Stage::Asking { .. })
    }

    pub(crate) const fn holds_slot(&self) -> bool {
        matches!(self.stage, Stage::Asking { .. }) || self.is_live()
    }

    /// Whether its runtime has it and has not told its end.
    pub(crate) const fn is_live(&self) -> bool {
        self.is_launched() || matches!(self.stage, Stage::Running { .. })
    }

    /// Whether its runtime has it and has told neither its start nor its end.
    pub(crate) const fn is_launched(&self) -> bool {
        matches!(self.stage, Stage::Launched(_) | Stage::Prepared)
    }

    pub(crate) fn runtime(&self) -> RuntimeKind {
        self.known.as_ref().map(|known| known.spec.runtime).unwrap_or_default()
    }

    /// How much memory it may have, if that is limited.
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        self.known.as_ref().and_then(|known| known.spec.resources.memory_bytes)
    }

    pub(crate) fn stop_grace(&self) -> Duration {
        self.known.as_ref().map(|known| known.spec.stop_grace).unwrap_or_default()
    }

    pub(crate) fn self_fence(&self) -> Option<Duration> {
        self.known.as_ref().and_then(|known| known.spec.self_fence)
    }
}
