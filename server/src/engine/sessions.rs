//! The engine's view of worker sessions: their outboxes, and the time of each one's last frame.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use protocol::{Order, Report, SessionId, Token, Uptime};
use scheduler::definition::Definition;
use scheduler::input::Connected;
use scheduler::step::{CloseReason, Grant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel};

/// A message from a session to the engine.
#[derive(Debug)]
pub enum FromSession {
    /// A worker has said Hello.
    Opened {
        /// The worker's Hello.
        hello: Box<Connected>,
        /// The queue of orders for the worker.
        outbox: Outbox,
        /// The time of its last frame, updated by the session.
        heard: LastHeard,
    },
    /// Reports of the worker.
    Reported(SessionId, Vec<Report>),
    /// The worker's next inventory lists these attempts, which the archive does not have.
    UnknownAttempts(SessionId, Vec<Token>),
    /// The worker's next report names these attempts, which the archive does not know as this worker's.
    AttemptsNotOwned(SessionId, Vec<Token>),
    /// The socket is closed. These attempts were queued for it and never sent.
    Closed(SessionId, Vec<Token>),
}

/// A message from the engine to a session. Sessions send them in order.
#[derive(Debug)]
pub enum ToSession {
    /// Send this order.
    Order(Order),
    /// Send the container spec of a revision.
    Define(Arc<Definition>),
    /// Send these assignments, with the jobs' overrides.
    Enqueue(Vec<Grant>),
    /// Send nothing more, and close.
    Close(CloseReason),
    /// Send nothing more, and close: the engine takes no message of this session.
    Refuse(RefusedSession),
}

/// The cause for which the engine ends a session whose messages the scheduler never sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedSession {
    /// More new workers have joined in the last minute than may.
    TooManyJoins,
    /// The store has refused the changes of its message twice.
    ByStore,
}

/// Messages that may wait for a worker that does not read. Its slots, its backlog and its own reports bound them otherwise: this many mean
/// that it has stopped reading.
const WAITING_MAX: usize = 65_536;

/// The sending end of a session's queue. It never blocks the engine.
#[derive(Clone, Debug)]
pub struct Outbox {
    queue: UnboundedSender<ToSession>,
    waiting: Arc<AtomicUsize>,
}

/// A sending end for other tasks. It does not keep the queue open: the queue closes when the engine drops its outbox.
#[derive(Clone, Debug)]
pub struct WeakOutbox {
    queue: WeakUnboundedSender<ToSession>,
    waiting: Arc<AtomicUsize>,
}

/// The receiving end, owned by the session.
#[derive(Debug)]
pub struct OutboxReceiver {
    queue: UnboundedReceiver<ToSession>,
    waiting: Arc<AtomicUsize>,
}

/// A queue from the engine to a session.
#[must_use]
pub fn queue() -> (Outbox, OutboxReceiver) {
    let (sender, receiver) = unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    (Outbox { queue: sender, waiting: waiting.clone() }, OutboxReceiver { queue: receiver, waiting })
}

impl Outbox {
    /// Queues a message.
    ///
    /// # Errors
    /// The message, if the session does not keep up, or has ended.
    pub fn send(&self, message: ToSession) -> Result<(), Unqueued> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Unqueued { message, is_full: true });
        }
        self.queue.send(message).map_err(|refused| Unqueued { message: refused.0, is_full: false })
    }

    /// A sending end that does not keep the queue open.
    #[must_use]
    pub fn downgrade(&self) -> WeakOutbox {
        WeakOutbox { queue: self.queue.downgrade(), waiting: self.waiting.clone() }
    }
}

/// A message that was not queued.
#[derive(Debug)]
pub struct Unqueued {
    /// The message.
    pub message: ToSession,
    /// The session does not keep up; else it has ended.
    pub is_full: bool,
}

impl WeakOutbox {
    /// Queues a message.
    ///
    /// # Errors
    /// The message, if the engine has dropped the session, or if the session does not keep up or has ended.
    pub fn send(&self, message: ToSession) -> Result<(), Unqueued> {
        let Some(queue) = self.queue.upgrade() else { return Err(Unqueued { message, is_full: false }) };
        Outbox { queue, waiting: self.waiting.clone() }.send(message)
    }
}

impl OutboxReceiver {
    /// Waits for messages and takes all that are queued, at most `limit`. Zero means that the engine has dropped the session.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn take(&mut self, messages: &mut Vec<ToSession>, limit: usize) -> usize {
        let taken = self.queue.recv_many(messages, limit).await;
        self.waiting.fetch_sub(taken, Ordering::Relaxed);
        taken
    }
}

impl OutboxReceiver {
    /// Closes the queue, and returns the attempts in it that were never sent.
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

/// The time of a session's last frame. It is updated beside the inbox, so a full inbox does not delay it.
#[derive(Clone, Debug)]
pub struct LastHeard(Arc<AtomicU64>);

impl LastHeard {
    /// A session whose last frame came at this instant.
    #[must_use]
    pub fn at(up: Uptime) -> Self {
        Self(Arc::new(AtomicU64::new(up.0)))
    }

    /// Notes a frame.
    pub fn note(&self, up: Uptime) {
        self.0.store(up.0, Ordering::Relaxed);
    }

    /// The time of the last frame.
    #[must_use]
    pub fn last(&self) -> Uptime {
        Uptime(self.0.load(Ordering::Relaxed))
    }
}

/// All open sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: HashMap<SessionId, (Outbox, LastHeard)>,
    /// Tokens that were not sent to sessions that the engine has dropped, until the scheduler has the disconnect.
    held_back: HashMap<SessionId, Vec<Token>>,
    /// Tokens that were not sent to sessions that no longer exist.
    unsent: BTreeMap<SessionId, Vec<Token>>,
}

impl Sessions {
    /// Adds an open session.
    pub(super) fn add(&mut self, session: SessionId, outbox: Outbox, heard: LastHeard) {
        self.open.insert(session, (outbox, heard));
    }

    /// Removes a session whose socket is closed, with the attempts that were never sent to it.
    pub(super) fn remove(&mut self, session: SessionId, unsent: Vec<Token>) {
        self.open.remove(&session);
        let unsent: Vec<Token> =
            unsent.into_iter().chain(self.held_back.remove(&session).unwrap_or_default()).collect();
        if !unsent.is_empty() {
            self.unsent.entry(session).or_default().extend(unsent);
        }
    }

    /// Takes the unsent attempts of sessions that no longer exist.
    pub(super) fn take_unsent(&mut self) -> BTreeMap<SessionId, Vec<Token>> {
        std::mem::take(&mut self.unsent)
    }

    /// Sends a message to a session, if it is open. A session that does not keep up is dropped: its socket closes, and its worker
    /// reconnects and reconciles.
    pub(super) fn send(&mut self, session: SessionId, message: ToSession) {
        let refused = match self.open.get(&session) {
            None => message,
            Some((outbox, _)) => match outbox.send(message) {
                Ok(()) => return,
                Err(Unqueued { message, is_full }) => {
                    // A session that has ended tells the engine so next.
                    if is_full {
                        tracing::warn!(
                            session = session.0,
                            "worker does not read its socket; closing its session, it will reconcile when it reconnects"
                        );
                    }
                    self.open.remove(&session);
                    self.held_back.insert(session, Vec::new());
                    message
                }
            },
        };
        let mut refused = refused.into_enqueued().peekable();
        if refused.peek().is_some() {
            let unsent = self.held_back.get_mut(&session);
            unsent.unwrap_or_else(|| self.unsent.entry(session).or_default()).extend(refused);
        }
    }

    /// The time of the last frame of each of these sessions that is open.
    #[must_use]
    pub(super) fn heard(&self, sessions: Vec<SessionId>) -> Vec<(SessionId, Uptime)> {
        let last = |session| self.open.get(&session).map(|(_, heard)| (session, heard.last()));
        sessions.into_iter().filter_map(last).collect()
    }
}

#[cfg(test)]
mod tests {
    use protocol::{JobId, Revision, Timestamp};

    use super::*;

    #[tokio::test]
    async fn queue_closes_when_the_engine_drops_its_outbox() {
        let (outbox, mut inlet) = queue();
        let output = outbox.downgrade();
        let mut sessions = Sessions::default();
        sessions.add(SessionId(1), outbox, LastHeard::at(Uptime(1)));
        assert!(output.send(ToSession::Order(Order::Pulse(1))).is_ok());
        sessions.remove(SessionId(1), Vec::new());
        let mut messages = Vec::new();
        assert_eq!(inlet.take(&mut messages, 10).await, 1, "what was said before is said");
        assert_eq!(inlet.take(&mut messages, 10).await, 0);
        assert!(!output.send(ToSession::Order(Order::Pulse(2))).unwrap_err().is_full);
    }

    #[tokio::test]
    async fn messages_that_are_refused_take_no_place() {
        let (outbox, mut inlet) = queue();
        let send = |number: usize| outbox.send(ToSession::Order(Order::Pulse(number as u64)));
        (0..WAITING_MAX).for_each(|number| send(number).unwrap());
        (0..3).for_each(|number| assert!(send(number).unwrap_err().is_full));
        assert_eq!(inlet.take(&mut Vec::new(), 1).await, 1);
        send(0).unwrap();
        assert!(send(0).unwrap_err().is_full);
        drop(inlet);
        assert!(outbox.downgrade().send(ToSession::Order(Order::Pulse(1))).is_err());
    }

    #[tokio::test]
    async fn unsent_attempts_are_returned_once_their_session_is_gone() {
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
        sessions.add(SessionId(1), outbox, LastHeard::at(Uptime(1)));
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
        Grant {
            gpus: Default::default(),
            token,
            priority: 0,
            due_at,
            revision,
            name: String::new(),
            number: protocol::AttemptNo(1),
            has_overrides: false,
            time_left: None,
            memory_bytes: None,
            member: None,
        }
    }

    fn token(job: u64) -> Token {
        Token { job: JobId(job), ..Token::default() }
    }
}
