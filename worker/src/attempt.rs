//! An attempt on this machine, from its Enqueue until its end and output are durable on the server.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::container::Overrides;
use protocol::order::StopCause;
use protocol::report::{OutputLengths, Phase};
use protocol::resources::GPUS_VARIABLE;
use protocol::secret::SecretValues;
use protocol::{ContainerSpec, Revision, RuntimeKind, Uptime};

use crate::backlog::QueuePosition;
use crate::outbox::Entry;
use crate::pulls::Image;
use crate::step::StopStep;
use crate::unsent_output::UnsentNo;

/// Resources of an attempt that its definition does not tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Granted {
    /// Memory limit in bytes, if it differs from the definition's.
    pub(crate) memory_bytes: Option<u64>,
    /// Ids of the GPUs that are reserved for it.
    pub(crate) gpus: Vec<String>,
}

/// A definition that the server has sent.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedDefinition {
    pub(crate) name: Arc<str>,
    pub(crate) spec: Arc<ContainerSpec>,
    /// The rule of this worker's policy that forbids it.
    pub(crate) forbidden: Option<Arc<str>>,
}

impl ResolvedDefinition {
    /// The same definition with the memory limit and the GPUs of an attempt, if it has any.
    pub(crate) fn with_granted(mut self, granted: &Granted) -> Self {
        let Granted { memory_bytes, gpus } = granted;
        if memory_bytes.is_some() {
            Arc::make_mut(&mut self.spec).resources.memory_bytes = *memory_bytes;
        }
        let is_named = |(name, _): &(String, String)| name == GPUS_VARIABLE;
        if !gpus.is_empty() || self.spec.environment.iter().any(is_named) {
            // A definition cannot give itself GPUs by this variable.
            let environment = &mut Arc::make_mut(&mut self.spec).environment;
            environment.retain(|variable| !is_named(variable));
            if !gpus.is_empty() {
                environment.push((GPUS_VARIABLE.into(), gpus.join(",")));
            }
        }
        self
    }
}

#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) position: QueuePosition,
    pub(crate) revision: Revision,
    /// Taken when the attempt is launched.
    pub(crate) overrides: Option<Overrides>,
    /// Taken when the attempt is launched.
    pub(crate) secrets: Arc<SecretValues>,
    pub(crate) time_left: Option<Duration>,
    /// Absent only while the attempt waits for its definition.
    pub(crate) definition: Option<ResolvedDefinition>,
    pub(crate) stage: Stage,
    pub(crate) stop: Option<Stop>,
    /// Next timer: the run timeout, the next stop step, or the output timeout.
    pub(crate) alarm: Option<Uptime>,
    /// All output is durable or was given up. The server acknowledges it apart from the end of the attempt, and possibly before it.
    pub(crate) output_done: bool,
}

#[derive(Debug)]
pub(crate) enum Stage {
    /// Waits for its definition.
    WaitingForDefinition {
        /// Values to set in the definition when it arrives.
        granted: Granted,
    },
    /// In the local queue.
    Waiting,
    /// Holds a slot and waits until the server has stored that it is about to start.
    AwaitingStartAck {
        /// The server has stored it, but the start gate was closed by then.
        cleared: bool,
    },
    /// Handed to its runtime, in a slot.
    Launched,
    /// Its image is not here. It has left its slot and waits for a pull slot. Nothing was created but its directory.
    WaitingForPullSlot,
    /// Its image is being pulled. It holds a pull slot together with other attempts of this image.
    Pulling {
        /// Progress, if it is known.
        percent: Option<u8>,
        /// Failed tries so far.
        failures: u32,
    },
    /// Its runtime has the image and is ready to create the container. It waits for a slot.
    Pulled,
    /// Its runtime is ready to create the container. It holds a slot and waits for the start gate.
    Prepared,
    /// Its container has started.
    Running {
        /// The runtime's name for it, such as a container id.
        container: String,
        /// Monotonic time of the start.
        at: Uptime,
    },
    /// Ended; kept until the report and the output are acknowledged.
    Ended(Ended),
}

/// The part of an ended attempt that is kept until the server has its end and its output.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its final report is durable on the server.
    pub(crate) acknowledged: bool,
    /// The final report, to repeat it to a server that was restored from a backup.
    pub(crate) final_entry: Option<Box<Entry>>,
    /// Its output is durable or was given up.
    pub(crate) output_done: bool,
    /// Length of its output.
    pub(crate) output: OutputLengths,
    /// Its position among the attempts whose report is durable and whose output is not.
    pub(crate) unsent: Option<UnsentNo>,
    /// Its runtime has a container or directory to remove.
    pub(crate) needs_removal: bool,
}

/// Progress of a stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    /// The cause that was recorded first.
    pub(crate) cause: StopCause,
    /// Monotonic time of the first step.
    pub(crate) at: Uptime,
    /// The last step taken.
    pub(crate) step: StopStep,
}

impl Attempt {
    /// The phase that is reported to the server.
    pub(crate) fn phase(&self) -> Phase {
        match self.stage {
            Stage::Ended(_) => Phase::Ended,
            Stage::WaitingForDefinition { .. } | Stage::Waiting | Stage::WaitingForPullSlot => Phase::Backlog,
            _ if self.stop.is_some() => Phase::Stopping,
            Stage::AwaitingStartAck { .. } | Stage::Launched | Stage::Pulled | Stage::Prepared => {
                Phase::Starting
            }
            Stage::Pulling { percent, failures } => Phase::Pulling { percent, failures },
            Stage::Running { .. } => Phase::Running,
        }
    }

    /// No image is being pulled and no container was created for it yet; its runtime may have made its directory.
    pub(crate) const fn is_unstarted(&self) -> bool {
        matches!(
            self.stage,
            Stage::WaitingForDefinition { .. }
                | Stage::Waiting
                | Stage::AwaitingStartAck { .. }
                | Stage::WaitingForPullSlot
        )
    }

    pub(crate) const fn holds_slot(&self) -> bool {
        matches!(
            self.stage,
            Stage::AwaitingStartAck { .. } | Stage::Launched | Stage::Prepared | Stage::Running { .. }
        )
    }

    /// Its runtime knows it and has not reported its end.
    pub(crate) const fn is_in_runtime(&self) -> bool {
        matches!(self.stage, Stage::WaitingForPullSlot) || self.is_prepared_or_run()
    }

    /// Its runtime prepares or runs it, and has not reported its end.
    pub(crate) const fn is_prepared_or_run(&self) -> bool {
        self.is_being_prepared() || matches!(self.stage, Stage::Running { .. })
    }

    /// Its runtime prepares it, with a pull if need be, and has reported neither its start nor its end.
    pub(crate) const fn is_being_prepared(&self) -> bool {
        matches!(self.stage, Stage::Launched | Stage::Pulling { .. } | Stage::Pulled | Stage::Prepared)
    }

    /// The image that it needs.
    pub(crate) fn image(&self) -> Option<Image> {
        self.definition.as_ref().map(|definition| Image::of(&definition.spec))
    }

    pub(crate) fn runtime(&self) -> RuntimeKind {
        self.definition.as_ref().map(|definition| definition.spec.runtime).unwrap_or_default()
    }

    /// Its memory limit in bytes, if it has one.
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        self.definition.as_ref().and_then(|definition| definition.spec.resources.memory_bytes)
    }

    pub(crate) fn stop_grace(&self) -> Duration {
        self.definition.as_ref().map(|definition| definition.spec.stop_grace).unwrap_or_default()
    }

    pub(crate) fn self_fence(&self) -> Option<Duration> {
        self.definition.as_ref().and_then(|definition| definition.spec.self_fence)
    }
}
