//! The engine's view of sessions: where to send, and when each was last heard of.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use protocol::{Order, Report, SessionId, Token, Uptime};
use scheduler::definition::Definition;
use scheduler::input::Connected;
use scheduler::step::{CloseReason, Grant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel};

/// What a session tells the engine.
#[derive(Debug)]
pub enum FromSession {
    /// A worker has said Hello.
    Opened {
        /// Who and what it is.
        hello: Box<Connected>,
        /// Where orders for it go.
        outbox: Outbox,
        /// When it was last heard of, kept up to date by the session.
        heard: Heard,
    },
    /// It reported.
    Said(SessionId, Vec<Report>),
    /// It is about to list these attempts, which the archive does not have.
    Brought(SessionId, Vec<Token>),
    /// Its socket is gone.
    Closed(SessionId),
}

/// What the engine tells a session, in order.
#[derive(Debug)]
pub enum ToSession {
    /// Say this.
    Order(Order),
    /// Say what to run for a revision.
    Define(Arc<Definition>),
    /// Hand these over, with what they add to their definitions.
    Enqueue(Vec<Grant>),
    /// Say no more, and close.
    Close(CloseReason),
}

/// How many messages may wait for a worker that does not read. What is outstanding is bounded by its slots and backlog, and by what
/// it reports: this many mean that it has stopped reading.
const WAITING_MAX: usize = 65_536;

/// The engine's end of a session's queue. Never blocks the engine.
#[derive(Clone, Debug)]
pub struct Outbox {
    queue: UnboundedSender<ToSession>,
    waiting: Arc<AtomicUsize>,
}

/// An end for whoever else speaks on a session as long as the engine holds on to it: it does not keep the queue open.
#[derive(Clone, Debug)]
pub struct WeakOutbox {
    queue: WeakUnboundedSender<ToSession>,
    waiting: Arc<AtomicUsize>,
}

/// The session's end.
#[derive(Debug)]
pub struct Inlet {
    queue: UnboundedReceiver<ToSession>,
    waiting: Arc<AtomicUsize>,
}

/// A queue from the engine to a session.
#[must_use]
pub fn queue() -> (Outbox, Inlet) {
    let (sender, receiver) = unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    (Outbox { queue: sender, waiting: waiting.clone() }, Inlet { queue: receiver, waiting })
}

impl Outbox {
    /// Queues a message. Returns whether the session still keeps up.
    pub fn send(&self, message: ToSession) -> bool {
        self.waiting.fetch_add(1, Ordering::Relaxed) < WAITING_MAX && self.queue.send(message).is_ok()
    }

    /// An end that does not keep the queue open.
    #[must_use]
    pub fn downgrade(&self) -> WeakOutbox {
        WeakOutbox { queue: self.queue.downgrade(), waiting: self.waiting.clone() }
    }
}

impl WeakOutbox {
    /// Queues a message, unless the engine has let go of the session. Returns whether the session still keeps up.
    pub fn send(&self, message: ToSession) -> bool {
        let Some(queue) = self.queue.upgrade() else { return false };
        Outbox { queue, waiting: self.waiting.clone() }.send(message)
    }
}

impl Inlet {
    /// Waits for messages and takes all that are there, at most `limit`. Zero means that the engine has let go of the session.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn take(&mut self, messages: &mut Vec<ToSession>, limit: usize) -> usize {
        let taken = self.queue.recv_many(messages, limit).await;
        self.waiting.fetch_sub(taken, Ordering::Relaxed);
        taken
    }
}

/// When a session was last heard of: any frame counts, noted outside of the inbox.
#[derive(Clone, Debug)]
pub struct Heard(Arc<AtomicU64>);

impl Heard {
    /// Heard of at this instant.
    #[must_use]
    pub fn at(up: Uptime) -> Self {
        Self(Arc::new(AtomicU64::new(up.0)))
    }

    /// Notes a frame.
    pub fn note(&self, up: Uptime) {
        self.0.store(up.0, Ordering::Relaxed);
    }

    /// When that was.
    #[must_use]
    pub fn last(&self) -> Uptime {
        Uptime(self.0.load(Ordering::Relaxed))
    }
}

/// All open sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: HashMap<SessionId, (Outbox, Heard)>,
}

impl Sessions {
    /// A session is open.
    pub(super) fn add(&mut self, session: SessionId, outbox: Outbox, heard: Heard) {
        self.open.insert(session, (outbox, heard));
    }

    /// A session's socket is gone.
    pub(super) fn remove(&mut self, session: SessionId) {
        self.open.remove(&session);
    }

    /// Sends a message to a session, if it is still there. One that does not keep up is let go: its socket closes, its worker comes
    /// back and is told everything anew.
    pub(super) fn send(&mut self, session: SessionId, message: ToSession) {
        if self.open.get(&session).is_some_and(|(outbox, _)| !outbox.send(message)) {
            tracing::warn!(session = session.0, "worker does not read what it is sent; closing its session");
            self.open.remove(&session);
        }
    }

    /// When each was last heard of.
    #[must_use]
    pub(super) fn heard(&self) -> Vec<(SessionId, Uptime)> {
        let mut heard: Vec<_> =
            self.open.iter().map(|(session, (_, heard))| (*session, heard.last())).collect();
        heard.sort_unstable();
        heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_session_hears_that_the_engine_has_let_go_although_others_could_still_speak() {
        let (outbox, mut inlet) = queue();
        let output = outbox.downgrade();
        let mut sessions = Sessions::default();
        sessions.add(SessionId(1), outbox, Heard::at(Uptime(1)));
        assert!(output.send(ToSession::Order(Order::Pulse(1))));
        sessions.remove(SessionId(1));
        let mut messages = Vec::new();
        assert_eq!(inlet.take(&mut messages, 10).await, 1, "what was said before is said");
        assert_eq!(inlet.take(&mut messages, 10).await, 0);
        assert!(!output.send(ToSession::Order(Order::Pulse(2))));
    }
}
