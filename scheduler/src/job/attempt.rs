//! The current attempt of a job: how far it has come on its worker, and what the server waits for.

use alloc::boxed::Box;
use alloc::string::String;

use protocol::order::StopCause;
use protocol::{AttemptNo, Fence, JobId, Nonce, SessionId, Timestamp, Token, Uptime, WorkerId};

/// The current attempt of a job.
#[derive(Debug)]
pub struct Attempt {
    /// Its fence.
    pub fence: Fence,
    /// Drawn with it.
    pub nonce: Nonce,
    /// Number of this try of the job, from 1.
    pub number: AttemptNo,
    /// The worker that holds it.
    pub worker: WorkerId,
    /// When it was handed over.
    pub assigned_at: Timestamp,
    /// When it was handed over, last, by the monotonic clock.
    pub assigned_up: Uptime,
    /// The session on which it was handed over last, if that was within this life of the server.
    pub session: Option<SessionId>,
    /// How far it has come.
    pub progress: Progress,
    /// How far its start may have come while it has not started as far as is known.
    pub start: StartState,
    /// Knowledge of the server that its worker has it.
    pub presence: Presence,
    /// True after the server has sent a Recall for it on this session. It may be stopped as well.
    pub recalled: bool,
    /// Why it is being stopped, if it is: the cause recorded first.
    pub stopping: Option<StopCause>,
    /// The first requester of its cancel, if it is known.
    pub cancelled_by: Option<Box<str>>,
    /// When it will be given up, if its worker is unreachable.
    pub loss_at: Option<Uptime>,
    /// It was noted as unreachable, and its worker has not sent an inventory since. A lease that is renewed without a message of the
    /// worker, after a suspension of the server, changes nothing about it.
    pub noted_unreachable: bool,
    /// Ids of the GPUs that are reserved for it.
    pub gpus: Box<[String]>,
}

/// How far an attempt has come on its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It waits in the backlog for a free slot.
    Backlog,
    /// It has a slot; its container has not started.
    Slot,
    /// Its container has started.
    Running(Run),
}

/// An attempt whose container has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// When it started.
    pub started_at: Timestamp,
    /// When it will have run for too long, if it has a timeout. Unknown after a restart of the server, until the worker reports how long
    /// it has run.
    pub overrun_at: Option<Uptime>,
    /// When it will have run for longer than expected, unless that was noticed.
    pub slow_at: Option<Uptime>,
    /// It was noticed that it runs for longer than expected.
    pub is_slow: bool,
}

impl Run {
    /// A run without alarms.
    #[must_use]
    pub const fn since(started_at: Timestamp) -> Self {
        Self { started_at, overrun_at: None, slow_at: None, is_slow: false }
    }
}

/// How sure the server is that a worker has an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It was sent, and nothing was reported about it.
    Awaited(AwaitedReport),
    /// No first report is awaited: the worker has reported it, it was not sent yet, or the next inventory of the worker decides.
    NotAwaited,
    /// The worker reconnected without it while the runtime did not answer, so that nothing could be concluded.
    MissingAtReconnect,
}

/// How far the start of an attempt may have come on its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StartState {
    /// Its worker must ask before it starts, and has not: there is no container.
    MustAsk,
    /// Its worker may start it without a question: its container may exist.
    MayStart,
    /// Its worker has said that it is being started, or it was assigned before the backup that this store was restored from. If its
    /// worker does not hold it any more, its token is not sent again.
    Announced,
}

impl StartState {
    /// Raises the state; it never falls.
    pub fn raise(&mut self, to: Self) {
        *self = (*self).max(to);
    }
}

/// An attempt that was sent to a connected worker, which has not reported anything about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedReport {
    /// When it was sent, last.
    pub sent_at: Uptime,
    /// Time of the alarm.
    pub due_at: Uptime,
    /// It was sent a second time on this session.
    pub repeated: bool,
}

impl Attempt {
    /// The attempt's token.
    #[must_use]
    pub const fn token(&self, job: JobId) -> Token {
        Token { job, fence: self.fence, nonce: self.nonce }
    }

    /// The token and the worker are those of this attempt.
    #[must_use]
    pub fn is(&self, token: Token, worker: WorkerId) -> bool {
        self.fence == token.fence && self.nonce == token.nonce && self.worker == worker
    }

    /// The run, if its container has started.
    #[must_use]
    pub const fn run(&self) -> Option<&Run> {
        match &self.progress {
            Progress::Running(run) => Some(run),
            Progress::Backlog | Progress::Slot => None,
        }
    }

    /// The run, if its container has started.
    pub const fn run_mut(&mut self) -> Option<&mut Run> {
        match &mut self.progress {
            Progress::Running(run) => Some(run),
            Progress::Backlog | Progress::Slot => None,
        }
    }

    /// When its container started, if it has.
    #[must_use]
    pub fn started_at(&self) -> Option<Timestamp> {
        self.run().map(|run| run.started_at)
    }

    /// Its container has started.
    #[must_use]
    pub const fn has_started(&self) -> bool {
        self.run().is_some()
    }

    /// The container runs without an overrun alarm: it has no timeout, or the server was restarted and the worker has not reported yet how
    /// long it has run.
    #[must_use]
    pub fn has_no_overrun_alarm(&self) -> bool {
        self.run().is_some_and(|run| run.overrun_at.is_none()) && self.stopping.is_none()
    }

    /// It waits in the backlog of its worker.
    #[must_use]
    pub const fn is_prefetched(&self) -> bool {
        matches!(self.progress, Progress::Backlog)
    }

    /// Records that it has left the backlog, if it was there. Returns whether it was.
    pub const fn leave_backlog(&mut self) -> bool {
        let was_prefetched = self.is_prefetched();
        if was_prefetched {
            self.progress = Progress::Slot;
        }
        was_prefetched
    }

    /// The wait for the first report about it.
    #[must_use]
    pub const fn awaited_report(&self) -> Option<AwaitedReport> {
        match self.presence {
            Presence::Awaited(awaited) => Some(awaited),
            Presence::NotAwaited | Presence::MissingAtReconnect => None,
        }
    }

    /// Ends the wait for the first report about it, if there is one.
    pub const fn stop_awaiting(&mut self) -> Option<AwaitedReport> {
        let awaited = self.awaited_report();
        if awaited.is_some() {
            self.presence = Presence::NotAwaited;
        }
        awaited
    }

    /// The worker reconnected without it while the runtime did not answer.
    #[must_use]
    pub const fn was_missing_at_reconnect(&self) -> bool {
        matches!(self.presence, Presence::MissingAtReconnect)
    }
}
