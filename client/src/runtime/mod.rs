//! The port [`Runtime`]: how attempts are carried out on this machine.
//!
//! Order of calls: [`Runtime::survey`] once before the first connection; then for each attempt `start` (or nothing, if the survey has
//! found it), any number of `stop`s, and one `forget` after its end. All of them return at once; what happens is told through the
//! events given at construction, in the order in which it happened: Progressed\*, then Started and Ended, or Ended alone, or Refused.
//! Exactly one Ended or Refused is told for each attempt, whatever happens to the engine in between.
//!
//! Idempotent: `stop` of an attempt that has ended, `forget` of one that is gone. A second `start` of the same attempt never makes a
//! second container: it adopts the first.

use std::future::Future;
use std::pin::Pin;

use protocol::{RuntimeKind, Token};
use protocol::order::StopCause;
use protocol::report::Foreign;
use worker::input::Restored;
use worker::step::{Launch, StopStep};

/// How attempts are carried out.
pub trait Runtime: Send + Sync {
    /// Which kind of definitions it carries out.
    fn kind(&self) -> RuntimeKind;

    /// Finds what an earlier process of this worker has left, and watches again what still runs.
    ///
    /// # Errors
    /// The engine does not answer, and why: nothing can be said about what runs there.
    fn survey(&self) -> Pin<Box<dyn Future<Output = Result<Survey, String>> + Send + '_>>;

    /// Runs an attempt.
    fn start(&self, launch: Launch);

    /// Goes one step further in stopping an attempt. The cause is on disk before anything is done.
    fn stop(&self, token: Token, cause: StopCause, step: StopStep);

    /// Removes everything that is left of an ended attempt.
    fn forget(&self, token: Token);
}

/// What a runtime has found.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Attempts of this worker.
    pub restored: Vec<Restored>,
    /// Containers of this cluster on this engine that belong to another worker.
    pub foreign: Vec<Foreign>,
}
