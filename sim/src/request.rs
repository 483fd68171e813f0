//! Requests of clients to the server.

use std::sync::Arc;
use std::time::Duration;

use protocol::{JobId, WorkerId};
use scheduler::input::Operation;
use scheduler::pauses::PauseTarget;
use scheduler::schedule::Schedule;

use crate::script::Order;

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) key: Option<Arc<str>>,
    pub(crate) answered: bool,
    pub(crate) tries: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum Command {
    Jobs(Order),
    Cancel(JobId),
    Release(JobId),
    Operate(WorkerId, Operation),
    /// True to pause, for a time or until it is resumed; false to resume.
    Pause(PauseTarget, bool, Option<Duration>),
    /// The jobs of slots up to `since` ago.
    Backfill {
        definition: Arc<str>,
        schedule: Schedule,
        since: Duration,
        interval: Duration,
    },
}
