//! The engine's view of sessions: where to send, and when each was last heard of.

use std::collections::{BTreeMap, HashMap};
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
    /// Its socket is gone, and these were to be enqueued there and never were.
    Closed(SessionId, Vec<Token>),
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
    /// Queues a message.
    ///
    /// # Errors
    /// The message, if the session does not keep up, or has ended.
    pub fn send(&self, message: ToSession) -> Result<(), ToSession> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            return Err(message);
        }
        self.queue.send(message).map_err(|refused| refused.0)
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
        Outbox { queue, waiting: self.waiting.clone() }.send(message).is_ok()
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

impl Inlet {
    /// The attempts of which the session has taken no notice, and will not: nothing more can be queued.
    pub fn into_unsent(mut self) -> Vec<Token> {
        self.queue.close();
        let mut unsent = Vec::new();
        while let Ok(message) = self.queue.try_recv() {
            unsent.extend(message.into_enqueued());
        }
        unsent
    }
}

impl ToSession {
    fn into_enqueued(self) -> impl Iterator<Item = Token> {
        let grants = if let Self::Enqueue(grants) = self { grants } else { Vec::new() };
        grants.into_iter().map(|grant| grant.token)
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
    /// What could not be sent to sessions that were let go, until the scheduler knows that they are gone.
    held_back: HashMap<SessionId, Vec<Token>>,
    /// What could not be sent to sessions that are gone.
    unsent: BTreeMap<SessionId, Vec<Token>>,
}

impl Sessions {
    /// A session is open.
    pub(super) fn add(&mut self, session: SessionId, outbox: Outbox, heard: Heard) {
        self.open.insert(session, (outbox, heard));
    }

    /// A session's socket is gone, and these were never sent there.
    pub(super) fn remove(&mut self, session: SessionId, unsent: Vec<Token>) {
        self.open.remove(&session);
        let unsent: Vec<Token> =
            unsent.into_iter().chain(self.held_back.remove(&session).unwrap_or_default()).collect();
        if !unsent.is_empty() {
            self.unsent.entry(session).or_default().extend(unsent);
        }
    }

    /// Takes out what could not be sent, of sessions that are gone.
    pub(super) fn take_unsent(&mut self) -> BTreeMap<SessionId, Vec<Token>> {
        std::mem::take(&mut self.unsent)
    }

    /// Sends a message to a session, if it is still there. One that does not keep up is let go: its socket closes, its worker comes
    /// back and is told everything anew.
    pub(super) fn send(&mut self, session: SessionId, message: ToSession) {
        let refused = match self.open.get(&session) {
            None => message,
            Some((outbox, _)) => match outbox.send(message) {
                Ok(()) => return,
                Err(refused) => {
                    tracing::warn!(
                        session = session.0,
                        "worker does not read what it is sent; closing its session"
                    );
                    self.open.remove(&session);
                    self.held_back.insert(session, Vec::new());
                    refused
                }
            },
        };
        let mut refused = refused.into_enqueued().peekable();
        if refused.peek().is_some() {
            let unsent = self.held_back.get_mut(&session);
            unsent.unwrap_or_else(|| self.unsent.entry(session).or_default()).extend(refused);
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
    use protocol::{JobId, Revision, Timestamp};

    use super::*;

    #[tokio::test]
    async fn a_session_hears_that_the_engine_has_let_go_although_others_could_still_speak() {
        let (outbox, mut inlet) = queue();
        let output = outbox.downgrade();
        let mut sessions = Sessions::default();
        sessions.add(SessionId(1), outbox, Heard::at(Uptime(1)));
        assert!(output.send(ToSession::Order(Order::Pulse(1))));
        sessions.remove(SessionId(1), Vec::new());
        let mut messages = Vec::new();
        assert_eq!(inlet.take(&mut messages, 10).await, 1, "what was said before is said");
        assert_eq!(inlet.take(&mut messages, 10).await, 0);
        assert!(!output.send(ToSession::Order(Order::Pulse(2))));
    }

    #[tokio::test]
    async fn what_was_not_sent_is_told_once_its_session_is_gone() {
        let grants =
            |numbers: &[u64]| ToSession::Enqueue(numbers.iter().map(|job| grant(token(*job))).collect());
        let mut sessions = Sessions::default();
        sessions.send(SessionId(9), grants(&[1, 2]));
        assert_eq!(
            sessions.take_unsent(),
            [(SessionId(9), vec![token(1), token(2)])].into(),
            "nobody is there"
        );

        let (outbox, mut inlet) = queue();
        sessions.add(SessionId(1), outbox, Heard::at(Uptime(1)));
        sessions.send(SessionId(1), grants(&[3]));
        assert_eq!(inlet.take(&mut Vec::new(), 10).await, 1);
        sessions.send(SessionId(1), grants(&[4]));
        let left = inlet.into_unsent();
        assert_eq!(left, [token(4)]);
        sessions.send(SessionId(1), grants(&[5]));
        sessions.send(SessionId(1), grants(&[6]));
        assert_eq!(sessions.take_unsent(), [].into(), "the scheduler does not know yet that it is gone");
        sessions.remove(SessionId(1), left);
        assert_eq!(sessions.take_unsent(), [(SessionId(1), [4, 5, 6].map(token).to_vec())].into());
    }

    fn grant(token: Token) -> Grant {
        let (due_at, revision) = (Timestamp(0), Revision(0));
        Grant { token, priority: 0, due_at, revision, has_body: false, time_left: None, memory_bytes: None }
    }

    fn token(job: u64) -> Token {
        Token { job: JobId(job), ..Token::default() }
    }
}
