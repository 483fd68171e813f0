//! The port [`Runtime`]: runs attempts on this machine.
//!
//! Order of calls: [`Runtime::survey`] once before the first connection. Then for each attempt `start` (unless the survey has found it),
//! `pull` after each ImageMissing, `run` after each Prepared, any number of `stop`s, and one `forget` after its end. All of them return at once. Results come as events in
//! the order in which they happened: ImageMissing\*, Progressed\* and Prepared\*, then Started and Ended, or Ended alone, or Refused. Each attempt gets
//! exactly one Ended or Refused, even if the engine fails in between.
//!
//! `stop` of an ended attempt and `forget` of an unknown one do nothing. A second `start` of the same attempt never makes a second
//! container: it adopts the first.

pub mod argv;
mod blocking;
pub mod docker;
pub mod fake;
mod orphans;
pub mod policy;
pub mod process;
mod process_id;
mod removals;
pub mod shim;
mod start_permit;
mod stop_cause;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use protocol::order::StopCause;
use protocol::report::{Availability, Foreign};
use protocol::{ClusterId, ContainerSpec, Now, RuntimeKind, Token, WorkerId};
use tokio::sync::mpsc;

#[cfg(test)]
pub(crate) use process_id::identify;
pub(crate) use process_id::is_alive;
// The types of the port belong to the state machine in `worker`.
pub use worker::input::{Exit, Found, Restored, RuntimeEvent, StartFailure};
pub use worker::step::{Launch, StopStep};

/// The channel for a runtime's events. It is unbounded: each attempt sends a handful of events, and attempts are bounded.
pub type Events = mpsc::UnboundedSender<RuntimeEvent>;

/// Runs attempts of one kind.
pub trait Runtime: Send + Sync {
    /// The kind of definitions that it runs.
    fn kind(&self) -> RuntimeKind;

    /// Sets the identity of this worker: before `survey` if an earlier process has joined, and again at each Welcome, before anything is
    /// started. Containers are named and labelled by it; other runtimes ignore it.
    fn set_membership(&self, membership: Membership);

    /// Finds attempts of an earlier process of this worker, and watches those that still run. If the engine does not answer, it returns the
    /// attempts of the directories, with [`Found::Unknown`] where only the engine knows more; their events follow when the engine is back.
    /// Attempts without a directory follow as [`RuntimeEvent::Surveyed`], before the runtime is reported as available.
    fn survey(&self) -> Pin<Box<dyn Future<Output = Survey> + Send + '_>>;

    /// Starts an attempt. A removal of the same attempt is finished first. The runtime fetches everything that is needed, sends Prepared
    /// and creates nothing before [`Runtime::run`]. Only a runtime that starts within this call need not send Prepared.
    fn start(&self, launch: Launch);

    /// Lets an attempt without its image pull it, once. Runtimes without images ignore it.
    fn pull(&self, _: Token) {}

    /// Lets a prepared attempt create its container, once.
    fn run(&self, token: Token);

    /// Takes one step of stopping an attempt; `at` is the time of the decision. An attempt that has ended by then is not stopped: its own
    /// exit is reported, with an instant before `at`. Else the cause is on disk before anything is done.
    fn stop(&self, token: Token, cause: StopCause, step: StopStep, at: Now);

    /// Nothing can be started here: tries a container like this one until it works, and only then reports the runtime as available. Further
    /// calls meanwhile change nothing.
    fn probe(&self, like: Arc<ContainerSpec>, why: String);

    /// Removes all traces of an attempt that has ended, or that waits for [`Runtime::pull`] and sends no event any more.
    fn forget(&self, token: Token);

    /// Waits until everything is removed that `forget` was called for.
    fn wait_for_removals(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }

    /// Stops and removes the container of an attempt that another worker has left on this engine. A repeated call tries again. Runtimes
    /// without a shared engine ignore it.
    fn remove_foreign(&self, _: Token) {}
}

/// The identity of this worker in its installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Id of the installation.
    pub cluster: ClusterId,
    /// Id of the worker, which it keeps over restarts.
    pub worker: WorkerId,
}

/// The result of a survey.
#[derive(Clone, Debug)]
pub struct Survey {
    /// State of the runtime. If it is unavailable, the survey is incomplete.
    pub availability: Availability,
    /// Attempts of this worker.
    pub restored: Vec<Restored>,
    /// Containers of this cluster on this engine that belong to another worker.
    pub foreign: Vec<Foreign>,
}

/// Delays before each try of a probe: one second, doubling to a minute.
fn probe_delays() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(PROBE_FIRST), |wait| Some((*wait * 2).min(PROBE_SLOWEST)))
}

const PROBE_FIRST: Duration = Duration::from_secs(1);
const PROBE_SLOWEST: Duration = Duration::from_secs(60);

/// A launch of this for tests.
#[cfg(test)]
pub(crate) fn launch_of(spec: ContainerSpec) -> Launch {
    Launch {
        token: Token { job: protocol::JobId(1), fence: protocol::Fence(1), nonce: protocol::Nonce(1) },
        revision: Default::default(),
        name: "test".into(),
        spec: spec.into(),
        overrides: None,
        time_left: None,
        secrets: Default::default(),
    }
}
