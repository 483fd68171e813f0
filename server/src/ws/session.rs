//! One worker's connection: frames become reports for the engine, and messages of the engine become frames.
//!
//! Two halves run side by side. The reader (`reader`) takes all frames that have arrived and passes their reports on at once; while the
//! engine's inbox is full it waits, and the socket is not read. The writer takes all waiting messages and flushes once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::SplitSink;
use futures_util::{Sink, SinkExt, StreamExt};
use protocol::close::{self, Close};
use protocol::order::{GoAway, Intervals, Refused};
use protocol::{Order, wire};
use scheduler::input::Connected;
use tokio::time::{Instant, interval_at, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use super::acceptor::WorkerAcceptor;
use super::grants::Grants;
use super::join_audit::JoinAudit;
use super::orders::{Orders, SessionState};
use super::output;
use super::output_limits::OutputLimits;
use super::rate_limit::RateLimiter;
use super::reader::Reader;
use super::secrets::SessionSecrets;
use super::session_log::SessionLog;
use super::unknown_attempts::{Alarm, UnknownAttempts};
use super::unsent::UnsentAttempts;
use super::upgrade::Socket;
use crate::clock;
use crate::engine::{FromSession, LastHeard, OutboxReceiver, ToSession, queue};
use crate::listener::ConnectionPermit;

/// The time limit of sending a close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The shortest reconnect delay at a shutdown; each worker gets one up to five times as long.
const RECONNECT_DELAY_MIN: Duration = Duration::from_millis(500);
/// With a short lease the delay is shorter: a worker waits at most ten times as long, which must be a small part of its lease.
const RECONNECT_DELAYS_PER_LEASE: u32 = 60;
/// Reconnect delay of a worker whose wire format differs: a person has to upgrade one of the two.
const VERSION_RETRY: Duration = Duration::from_secs(15);
/// Messages that are written before a flush.
const MESSAGES_PER_FLUSH: usize = 1_024;

/// Serves a session until its socket closes, its worker is silent for too long, or the engine closes it. Keeps the connection permit until
/// the Welcome.
pub(super) async fn serve(
    acceptor: WorkerAcceptor,
    socket: Socket,
    hello: Connected,
    secrets: SessionSecrets,
    audit: JoinAudit,
    permit: Arc<ConnectionPermit>,
) {
    let session = hello.session;
    let heard = LastHeard::at(clock::now().up);
    let (outbox, mut inlet) = queue();
    let (output, mut written) = output::start(acceptor.logs.clone(), outbox.downgrade());
    let name = hello.name.clone();
    let machine = acceptor.machines.enter(session, hello.engine.as_deref());
    let session_log = SessionLog::new(name.clone(), session.0);
    let opened = FromSession::Opened { hello: Box::new(hello), outbox, heard: heard.clone() };
    if acceptor.session_inbox.inbox.send(opened).await.is_err() {
        return;
    }
    let (sink, stream) = socket.split();
    let grants = Arc::new(Grants::new(acceptor.archive.clone()));
    let mut reader = Reader {
        session,
        silence_max: acceptor.intervals.silence_max(),
        name,
        stream,
        heard,
        inbox: acceptor.session_inbox.inbox.clone(),
        output,
        output_limits: OutputLimits::new(acceptor.archive.clone()),
        unknown_attempts: UnknownAttempts::new(acceptor.archive.clone(), grants.clone()),
        grants: grants.clone(),
        machine,
        usage: acceptor.usage.clone(),
        unauthorized_logged: false,
        unassigned_logged: false,
        alarm: Alarm::default(),
        rate_limit: RateLimiter::default(),
    };
    let orders = Orders::new(acceptor.clone(), grants, session_log, secrets, audit, Some(permit));
    let mut writer =
        Writer { sink, intervals: acceptor.intervals, orders, unsent: UnsentAttempts::default() };
    let close = tokio::select! {
        close = writer.run(&mut inlet) => Some(close),
        close = reader.run() => close,
        _ = &mut written => Some(close::INTERNAL_ERROR.with_reason("output cannot be kept or acknowledged")),
        () = acceptor.shutdown.cancelled() => Some(close::GOING_AWAY.plain()),
    };
    writer.orders.ended(close.as_ref());
    if let Some(close) = close {
        if close.code == close::GOING_AWAY.code {
            writer.send_go_away().await;
        }
        writer.close(close).await;
        reader.drain_socket().await;
    }
    written.abort();
    let mut unsent = writer.unsent.into_tokens();
    unsent.extend(inlet.into_unsent());
    // The engine outlives its sessions; if it is gone, the message has no reader.
    let _ = acceptor.session_inbox.inbox.send(FromSession::Closed(session, unsent)).await;
}

/// The shortest reconnect delay for this lease.
fn min_reconnect_delay(lease: Duration) -> Duration {
    RECONNECT_DELAY_MIN.min(lease / RECONNECT_DELAYS_PER_LEASE)
}

/// Sends a close frame, if the peer still reads.
pub(super) async fn send_close(socket: &mut Socket, close: Close) {
    let _ = timeout(Duration::from_secs(1), socket.send(close_frame(close))).await;
}

/// Answers a Hello whose wire format is another: Refused is the same in all of them. The close frame follows.
pub(super) async fn refuse_version(socket: &mut Socket, close: &Close) {
    let name = close::UNSUPPORTED_VERSION.name;
    let text = close.reason.trim_start_matches(name).trim_start_matches(": ").to_owned();
    let refused = Order::Refused(Refused { code: name.to_owned(), text, retry_after: VERSION_RETRY });
    if let Ok(frame) = wire::encode_order(&refused) {
        let _ = timeout(Duration::from_secs(1), socket.send(Message::Binary(frame.into()))).await;
    }
}

fn close_frame(close: Close) -> Message {
    Message::Close(Some(CloseFrame { code: close.code.into(), reason: close.reason.into() }))
}

struct Writer<S = SplitSink<Socket, Message>> {
    sink: S,
    intervals: Intervals,
    orders: Orders,
    /// The attempts that are certainly not sent yet.
    unsent: UnsentAttempts,
}

impl<S: Sink<Message> + Unpin> Writer<S> {
    /// Writes until the engine or the socket closes.
    ///
    /// # Cancel safety
    /// A message that was begun is in the sink as a whole: others may follow it after dropping the future. The peer may get none of them.
    async fn run(&mut self, inlet: &mut OutboxReceiver) -> Close {
        let mut messages = Vec::with_capacity(64);
        let mut ping = interval_at(Instant::now() + self.intervals.ping(), self.intervals.ping());
        loop {
            let taken = tokio::select! {
                taken = inlet.take(&mut messages, MESSAGES_PER_FLUSH) => Some(taken),
                _ = ping.tick() => None,
            };
            let written = match taken {
                None if self.write([Message::Ping(Bytes::new())]).await => Ok(()),
                None | Some(0) => Err(close::SLOW_CONSUMER.plain()),
                Some(_) => self.write_batch(&mut messages).await,
            };
            if let Err(close) = written {
                return close;
            }
        }
    }

    /// Writes these messages, a few megabytes at a time. A definition may be as large as a frame, and the engine's messages only share it.
    async fn write_batch(&mut self, messages: &mut Vec<ToSession>) -> Result<(), Close> {
        self.unsent.begin(messages);
        let mut messages = messages.drain(..).peekable();
        while messages.peek().is_some() {
            let mut frames = Vec::new();
            let state = self.orders.put_into_frames(&mut messages, &mut frames, &mut self.unsent).await;
            let count = frames.len();
            if !self.write(frames.into_iter().map(|frame| Message::Binary(frame.into()))).await {
                return Err(close::SLOW_CONSUMER.plain());
            }
            if let SessionState::Close(close) = state {
                return Err(close);
            }
            self.unsent.written(count);
        }
        Ok(())
    }

    /// Writes messages and flushes once. `false`: the socket is gone, or blocks for too long.
    async fn write(&mut self, messages: impl IntoIterator<Item = Message>) -> bool {
        let writing = async {
            for (number, message) in messages.into_iter().enumerate() {
                let fed = self.sink.feed(message).await;
                // Counts even for a failed write: the socket may have taken it.
                self.unsent.handed(number);
                fed?;
            }
            self.sink.flush().await
        };
        matches!(timeout(self.intervals.silence_max(), writing).await, Ok(Ok(())))
    }

    /// Sends GoAway with a random delay, so that workers do not reconnect all at once.
    async fn send_go_away(&mut self) {
        let least = min_reconnect_delay(self.intervals.lease);
        let reconnect_after = least + least.mul_f64(rand::random_range(0.0..=4.0));
        let away = Order::GoAway(GoAway { reconnect_after, elsewhere: None });
        if let Ok(frame) = wire::encode_order(&away) {
            let _ = timeout(CLOSE_TIMEOUT, self.sink.send(Message::Binary(frame.into()))).await;
        }
    }

    async fn close(&mut self, close: Close) {
        let _ = timeout(Duration::from_secs(1), self.sink.send(close_frame(close))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::future::pending;
    use std::pin::pin;

    use futures_util::sink::unfold;
    use protocol::{Fence, JobId, Nonce, Revision, Timestamp, Token};
    use scheduler::step::Grant;
    use tokio_util::sync::CancellationToken;

    use crate::auth::actor::Actor;
    use crate::config::jobs_file;
    use crate::engine::{FromSession, OverridesCache, SessionInbox};
    use crate::logs::{self, Logs};
    use crate::store::sqlite;

    fn token(job: u64) -> Token {
        Token { job: JobId(job), fence: Fence(job), nonce: Nonce(job) }
    }

    fn enqueue(job: u64, has_overrides: bool) -> ToSession {
        let (due_at, revision) = (Timestamp(0), Revision(0));
        ToSession::Enqueue(vec![Grant {
            gpus: Default::default(),
            token: token(job),
            priority: 0,
            due_at,
            revision,
            name: String::new(),
            number: protocol::AttemptNo(1),
            has_overrides,
            time_left: None,
            memory_bytes: None,
            member: None,
        }])
    }

    /// Orders of a session, with the directory of its logs.
    fn orders() -> (Orders, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let logs = Logs::open(directory.path(), logs::Limits::default()).unwrap();
        let (inbox, _engine) = tokio::sync::mpsc::channel::<FromSession>(1);
        let session_inbox = SessionInbox { inbox, epoch: protocol::Epoch(1) };
        let archive = sqlite::temporary().1;
        let (intervals, shutdown) = (Intervals::default(), CancellationToken::new());
        let acceptor = WorkerAcceptor::new(
            session_inbox,
            Arc::new(OverridesCache::default()),
            archive.clone(),
            logs,
            intervals,
            shutdown,
        );
        let orders = Orders::new(
            acceptor,
            Arc::new(Grants::new(archive)),
            SessionLog::new("w".into(), 1),
            SessionSecrets::default(),
            JoinAudit::new(None, Arc::new(Actor::anonymous()), [127, 0, 0, 1].into(), "w".into()),
            None,
        );
        (orders, directory)
    }

    /// Lets a writer take these messages until it blocks, and drops it. Returns the unsent attempts, and the number of frames written.
    async fn left_of(messages: Vec<ToSession>, takes: usize) -> (Vec<Token>, usize) {
        let (orders, _directory) = orders();
        let given = std::cell::Cell::new(0);
        // A socket that takes this many frames and blocks at the next one.
        let sink = pin!(unfold((), |(), _: Message| {
            given.set(given.get() + 1);
            async { if given.get() > takes { pending().await } else { Ok::<(), ()>(()) } }
        }));
        let (outbox, mut inlet) = queue();
        messages.into_iter().for_each(|message| outbox.send(message).unwrap());
        let mut writer =
            Writer { sink, intervals: Intervals::default(), orders, unsent: UnsentAttempts::default() };
        let run = timeout(Duration::from_millis(100), writer.run(&mut inlet)).await;
        assert!(run.is_err(), "it ends by itself: {run:?}");
        let mut left = writer.unsent.into_tokens();
        left.extend(inlet.into_unsent());
        (left, given.get())
    }

    fn pulse() -> ToSession {
        ToSession::Order(Order::Pulse(1))
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_behind_a_blocked_write_were_not_sent() {
        let batch = || vec![enqueue(1, false), pulse(), enqueue(2, false), pulse(), enqueue(3, false)];
        assert_eq!(left_of(batch(), 9).await, (vec![], 5));
        // The third frame has the second attempt: the socket has taken it and blocks.
        assert_eq!(left_of(batch(), 2).await, (vec![token(3)], 3));
        assert_eq!(left_of(batch(), 0).await, (vec![token(2), token(3)], 1));
    }

    #[tokio::test]
    async fn large_messages_are_encoded_a_few_megabytes_at_a_time_and_in_order() {
        let text = format!("- {{name: a, image: x, input: \"{}\"}}", "x".repeat(200_000));
        let loaded = jobs_file::parse(&text, std::path::Path::new("jobs.yaml"), &Default::default()).unwrap();
        let define = || ToSession::Define(loaded.definitions[0].definition.clone());
        let messages = (1..=64).flat_map(|number| [define(), ToSession::Order(Order::Pulse(number))]);
        let (mut orders, _directory) = orders();
        let mut messages = messages.peekable();
        let (mut parts, mut seen) = (0, Vec::new());
        while messages.peek().is_some() {
            let mut frames = Vec::new();
            let mut unsent = UnsentAttempts::default();
            orders.put_into_frames(&mut messages, &mut frames, &mut unsent).await;
            let bytes: usize = frames.iter().map(Vec::len).sum();
            assert!(bytes < 5 << 20, "{bytes} bytes at once");
            seen.extend(frames.iter().map(|frame| match wire::decode_order(frame).unwrap() {
                Some(Order::Pulse(number)) => number,
                _ => 0,
            }));
            parts += 1;
        }
        assert_eq!(seen, (1..=64).flat_map(|number| [0, number]).collect::<Vec<_>>());
        assert!(parts > 2, "{parts}");
    }

    #[test]
    fn attempts_that_wait_for_a_blocked_archive_were_not_sent() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        runtime.block_on(async {
            // The only reader thread is busy.
            let busy = tokio::task::spawn_blocking(move || wait.recv().is_err());
            let batch = vec![enqueue(1, false), pulse(), enqueue(2, true), pulse(), enqueue(3, false)];
            assert_eq!(left_of(batch, 9).await, (vec![token(1), token(2), token(3)], 0));
            drop(done);
            assert!(busy.await.unwrap());
        });
    }

    #[test]
    fn no_worker_stays_away_for_more_than_a_sixth_of_a_lease() {
        for lease in [Duration::from_secs(1), Duration::from_secs(3), Intervals::default().lease] {
            // Up to five times as long, and the worker adds as much again.
            assert!(min_reconnect_delay(lease) * 10 <= lease / 6, "{lease:?}");
        }
        assert_eq!(min_reconnect_delay(Duration::from_secs(600)), RECONNECT_DELAY_MIN);
    }
}
