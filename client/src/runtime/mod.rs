//! The port [`Runtime`]: how attempts are carried out on this machine.
//!
//! Order of calls: [`Runtime::survey`] once before the first connection; then for each attempt `start` (or nothing, if the survey has
//! found it), a `run` for each Prepared, any number of `stop`s, and one `forget` after its end. All of them return at once; what happens
//! is told through the events given at construction, in the order in which it happened: Progressed\* and Prepared\*, then Started and
//! Ended, or Ended alone, or Refused. Exactly one Ended or Refused is told for each attempt, whatever happens to the engine in between.
//!
//! Idempotent: `stop` of an attempt that has ended, `forget` of one that is gone. A second `start` of the same attempt never makes a
//! second container: it adopts the first.

pub mod argv;
pub mod docker;
mod elsewhere;
pub mod fake;
pub mod policy;
mod proc;
pub mod process;
mod removals;
pub mod shim;
mod word;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use protocol::order::StopCause;
use protocol::report::{Availability, Foreign};
use protocol::{ClusterId, ContainerSpec, RuntimeKind, Token, WorkerId};
use tokio::sync::mpsc;
// The words of the port are the brain's; here for those who stand on this floor's roof.
pub use worker::input::{Exit, Fault, Found, Restored, RuntimeEvent};
pub use worker::step::{Launch, StopStep};

/// Where a runtime tells what happens. Unbounded, because each attempt tells a handful of events and attempts are bounded.
pub type Events = mpsc::UnboundedSender<RuntimeEvent>;

/// How attempts are carried out.
pub trait Runtime: Send + Sync {
    /// Which kind of definitions it carries out.
    fn kind(&self) -> RuntimeKind;

    /// Who this worker is: told before `survey` if an earlier process has joined, and again at each Welcome, before anything is
    /// started. It names and labels what is run; a runtime that needs none ignores it.
    fn joined(&self, membership: Membership);

    /// Finds what an earlier process of this worker has left, and watches again what still runs. If the engine does not answer,
    /// what the attempt directories know is found all the same; the rest is [`Found::Unknown`], and its events come when the engine is
    /// back. So does [`RuntimeEvent::Surveyed`], with what no directory knew, before the runtime is told to be available.
    fn survey(&self) -> Pin<Box<dyn Future<Output = Survey> + Send + '_>>;

    /// Runs an attempt. One that is just being removed is first removed to the end. Whatever has to be fetched or waited for comes first;
    /// then Prepared is told, and nothing is made before [`Runtime::run`]. Only a runtime that starts within this call need not ask.
    fn start(&self, launch: Launch);

    /// What was Prepared may be made now, once.
    fn run(&self, token: Token);

    /// Goes one step further in stopping an attempt. The cause is on disk before anything is done.
    fn stop(&self, token: Token, cause: StopCause, step: StopStep);

    /// Nothing starts here: tries something like this, again and again until it works, and only then tells that it is available.
    /// More calls meanwhile change nothing.
    fn probe(&self, like: Arc<ContainerSpec>, why: String);

    /// Removes everything that is left of an ended attempt.
    fn forget(&self, token: Token);

    /// Waits until everything is removed that was to be forgotten. One that removes at once has nothing to wait for.
    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }

    /// Stops and removes the container of an attempt that another worker has left on our engine. What is told again is tried again; a
    /// runtime that shares its engine with nobody has nothing to do.
    fn evict(&self, _: Token) {}
}

/// Which worker of which installation this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The installation.
    pub cluster: ClusterId,
    /// The worker's lasting identity in it.
    pub worker: WorkerId,
}

/// What a runtime has found.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Whether it can be used now, and so whether this survey is complete.
    pub availability: Availability,
    /// Attempts of this worker.
    pub restored: Vec<Restored>,
    /// Containers of this cluster on this engine that belong to another worker.
    pub foreign: Vec<Foreign>,
}

/// How long to wait before each try of a probe: one second, doubling to a minute.
fn probe_waits() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(PROBE_FIRST), |wait| Some((*wait * 2).min(PROBE_SLOWEST)))
}

const PROBE_FIRST: Duration = Duration::from_secs(1);
const PROBE_SLOWEST: Duration = Duration::from_secs(60);
