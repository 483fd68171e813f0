//! Effects of a worker.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::container::{ContainerSpec, Overrides};
use protocol::order::StopCause;
use protocol::secret::SecretValues;
use protocol::{ClusterId, Report, Revision, RuntimeKind, Token, Uptime, WorkerId};

/// The result of one step or flush.
#[derive(Debug, Default)]
pub struct Step {
    /// Effects to perform, in order.
    pub effects: Vec<Effect>,
}

/// An effect to perform.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send a report; only while connected. The client fills in load and free disk of a heartbeat.
    Send(Report),
    /// Store the time of the last answered message over a restart of the process. Emitted while attempts with
    /// `self_fence` exist, and before the first one is started.
    Contact(Uptime),
    /// Start an attempt. Its runtime answers with events, of which Ended or Refused is the last. A runtime
    /// without the image sends [`ImageMissing`](crate::input::RuntimeEvent::ImageMissing) and goes on after
    /// [`Effect::Pull`]. A runtime that is ready sends [`Prepared`](crate::input::RuntimeEvent::Prepared) and
    /// goes on after [`Effect::Run`].
    Start(Launch),
    /// Pull the image now.
    Pull {
        /// The attempt.
        token: Token,
        /// Its runtime.
        runtime: RuntimeKind,
    },
    /// Create the container now: the lease still holds after the preparation.
    Run {
        /// The attempt.
        token: Token,
        /// Its runtime.
        runtime: RuntimeKind,
    },
    /// Take the next stop step of an attempt.
    Stop {
        /// The attempt.
        token: Token,
        /// Its runtime.
        runtime: RuntimeKind,
        /// The cause. It is stored before anything is done, so that a restarted worker classifies the end
        /// correctly.
        cause: StopCause,
        /// The step.
        step: StopStep,
    },
    /// The end and the output are durable on the server: remove the container and the directory.
    Forget {
        /// The attempt.
        token: Token,
        /// Its runtime.
        runtime: RuntimeKind,
        /// Give up output that the server does not have.
        give_up_output: bool,
    },
    /// Stop and remove a foreign container: one of another worker, on this worker's container engine.
    RemoveForeign(Token),
    /// The runtime starts nothing: try a container like this until it works, then report the runtime as
    /// available.
    Probe {
        /// The container of the last failed attempt; it names the runtime.
        like: Arc<ContainerSpec>,
        /// Explanation for people.
        why: String,
    },
    /// The server accepted this worker: store both beside the secret, and pass them to the runtimes.
    Joined {
        /// The cluster's id.
        cluster: ClusterId,
        /// The worker's id in the cluster.
        worker: WorkerId,
    },
    /// Close the connection, if there is one, and open a new one after this delay.
    Reconnect {
        /// Minimum delay.
        after: Duration,
        /// Address for one try, if it is not the configured one.
        elsewhere: Option<String>,
        /// Reason, for the log.
        reason: String,
    },
    /// Nothing is left to do: end the process.
    Exit,
}

/// A stop step; each one follows if the one before did not help in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopStep {
    /// Ask the program to stop, and let the engine kill it after the grace.
    Ask {
        /// Time for the program to stop.
        grace: Duration,
    },
    /// Kill it.
    Kill,
    /// Kill the watching process and remove the container by force; repeated until it is gone.
    Remove,
}

/// An attempt with everything that its runtime needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The attempt's token.
    pub token: Token,
    /// The revision of its definition.
    pub revision: Revision,
    /// The definition's name.
    pub name: Arc<str>,
    /// The container or process to run.
    pub spec: Arc<ContainerSpec>,
    /// Overrides of the job.
    pub overrides: Option<Overrides>,
    /// Remaining run time, from the start of the container.
    pub time_left: Option<Duration>,
    /// Secrets of the job. They are in memory only: a launch that was read from a directory has none.
    pub secrets: Arc<SecretValues>,
}

impl Launch {
    /// The input of the job in JSON: its own, else that of its definition.
    #[must_use]
    pub fn input(&self) -> Option<&str> {
        let own = self.overrides.as_ref().and_then(|overrides| overrides.input.as_deref());
        own.or(self.spec.input.as_deref())
    }
}
