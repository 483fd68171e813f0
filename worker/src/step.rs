//! Everything that a worker can decide.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::container::{Body, ContainerSpec};
use protocol::order::StopCause;
use protocol::{ClusterId, Report, Revision, RuntimeKind, Token, Uptime, WorkerId};

/// One decision: what must be done, in order.
#[derive(Debug, Default)]
pub struct Step {
    /// In order.
    pub effects: Vec<Effect>,
}

/// What must be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Tell the server. Only while connected. The load and the free disk of a heartbeat are filled in by the body.
    Send(Report),
    /// Keep this over a restart of the process: when something was said for the last time that the server has answered. Told while
    /// there are containers that must not outlive it, and before the first one is started.
    Contact(Uptime),
    /// Run an attempt. Its runtime answers with events, the last of which is Ended or Refused. One that has to fetch or to wait for
    /// something first tells [`Prepared`](crate::input::RuntimeEvent::Prepared) when it has it, and goes on with [`Effect::Run`].
    Start(Launch),
    /// Make the container now: the server's promise still holds, however long it took to prepare.
    Run {
        /// Which.
        token: Token,
        /// Who runs it.
        runtime: RuntimeKind,
    },
    /// Go one step further in stopping an attempt.
    Stop {
        /// Which.
        token: Token,
        /// Who runs it.
        runtime: RuntimeKind,
        /// Why: kept on disk before anything is done, so that a restarted worker classes its end right.
        cause: StopCause,
        /// How hard.
        step: StopStep,
    },
    /// Everything about it is durable on the server: remove its container and its directory.
    Forget {
        /// Which.
        token: Token,
        /// Who ran it.
        runtime: RuntimeKind,
        /// Whether the server does not have all of its output: the rest is given up.
        give_up_output: bool,
    },
    /// Stop and remove the container of an attempt that another worker has left on our engine.
    Evict(Token),
    /// Nothing starts there: try something like this until it works, then tell that the runtime is available.
    Probe {
        /// What the last attempt was to run; it names the runtime.
        like: Arc<ContainerSpec>,
        /// Why; for people.
        why: String,
    },
    /// The server knows us: keep both beside the secret, and give them to the runtimes.
    Joined {
        /// The installation.
        cluster: ClusterId,
        /// Our lasting identity in it.
        worker: WorkerId,
    },
    /// Close the connection, if there is one, and open a new one, not before this long.
    Reconnect {
        /// At least.
        after: Duration,
        /// Where to, if not to the configured address; for one try.
        elsewhere: Option<String>,
        /// For the log.
        reason: String,
    },
    /// Nothing is left to be done: end the process.
    Exit,
}

/// How hard an attempt is asked to stop: each step is taken if the one before it did not help in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopStep {
    /// Ask it, and let the engine kill it after the grace.
    Ask {
        /// How long it may take.
        grace: Duration,
    },
    /// Kill it.
    Kill,
    /// Kill our own watcher and remove the container by force; repeated until it is gone.
    Remove,
}

/// An attempt with all that its runtime needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Which attempt.
    pub token: Token,
    /// Of which revision.
    pub revision: Revision,
    /// The definition's name.
    pub name: Arc<str>,
    /// What to run.
    pub spec: Arc<ContainerSpec>,
    /// What the job adds to it.
    pub body: Option<Body>,
    /// How long it may run.
    pub time_left: Option<Duration>,
}
