//! One worker's connection: frames → reports for the engine, what the engine says → frames.
//!
//! Two halves run side by side. The reader (`reader`) takes all frames that have arrived and hands their reports over at once; if the
//! engine's inbox is full it waits, and the socket is not read further. The writer takes all messages that have piled up and flushes once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::SplitSink;
use futures_util::{Sink, SinkExt, StreamExt};
use protocol::close::{self, Close};
use protocol::order::{GoAway, Intervals};
use protocol::{Order, wire};
use scheduler::input::Connected;
use tokio::time::{Instant, interval_at, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use super::accept::Door;
use super::chatter::Chatter;
use super::grants::Grants;
use super::orders::{Orders, Said};
use super::output;
use super::presence::Presence;
use super::reader::Reader;
use super::strangers::Strangers;
use super::unsent::Unsent;
use super::upgrade::Socket;
use crate::clock;
use crate::engine::{FromSession, Heard, Inlet, queue};
use crate::listener::Place;

/// How long a goodbye may take.
const GOODBYE_WITHIN: Duration = Duration::from_secs(1);
/// A server that leaves may be back after this long; each worker is told up to five times as much.
const AWAY_MIN: Duration = Duration::from_millis(500);
/// With a short lease less: a worker waits for at most ten times as long, which is to be a small part of its lease.
const AWAYS_PER_LEASE: u32 = 60;
/// How many messages are written before a flush.
const MESSAGES_PER_FLUSH: usize = 1_024;

/// Serves a session until its socket closes, its worker falls silent, or the engine lets go of it. It holds its place among the
/// connections until its worker is welcome.
pub(super) async fn serve(door: Door, socket: Socket, hello: Connected, place: Arc<Place>) {
    let session = hello.session;
    let heard = Heard::at(clock::now().up);
    let (outbox, mut inlet) = queue();
    let (output, mut written) = output::start(door.logs.clone(), outbox.downgrade());
    let name = hello.name.clone();
    let machine = door.machines.enter(session, hello.engine.as_deref());
    let presence = Presence::new(name.clone(), session.0);
    let opened = FromSession::Opened { hello: Box::new(hello), outbox, heard: heard.clone() };
    if door.gate.inbox.send(opened).await.is_err() {
        return;
    }
    let (sink, stream) = socket.split();
    let grants = Arc::new(Grants::new(door.archive.clone()));
    let mut reader = Reader {
        session,
        silence_max: door.intervals.silence_max(),
        name,
        stream,
        heard,
        inbox: door.gate.inbox.clone(),
        output,
        strangers: Strangers::new(door.archive.clone(), grants.clone()),
        grants: grants.clone(),
        machine,
        has_trespassed: false,
        chatter: Chatter::default(),
    };
    let orders = Orders::new(door.clone(), grants, presence, Some(place));
    let mut writer = Writer { sink, intervals: door.intervals, orders, unsent: Unsent::default() };
    let close = tokio::select! {
        close = writer.run(&mut inlet) => Some(close),
        close = reader.run() => close,
        _ = &mut written => Some(close::INTERNAL_ERROR.because("output cannot be kept")),
        () = door.leaving.cancelled() => Some(close::GOING_AWAY.plain()),
    };
    writer.orders.ended(close.as_ref());
    if let Some(close) = close {
        if close.code == close::GOING_AWAY.code {
            writer.send_away().await;
        }
        writer.goodbye(close).await;
        reader.read_out().await;
    }
    written.abort();
    let mut unsent = writer.unsent.into_tokens();
    unsent.extend(inlet.into_unsent());
    // The engine outlives its sessions; if it is gone, so is whom this concerns.
    let _ = door.gate.inbox.send(FromSession::Closed(session, unsent)).await;
}

/// The least that a worker is told to stay away.
fn least_away(lease: Duration) -> Duration {
    AWAY_MIN.min(lease / AWAYS_PER_LEASE)
}

/// Sends a close frame, if the peer still takes it.
pub(super) async fn say_goodbye(socket: &mut Socket, close: Close) {
    let _ = timeout(Duration::from_secs(1), socket.send(close_frame(close))).await;
}

fn close_frame(close: Close) -> Message {
    Message::Close(Some(CloseFrame { code: close.code.into(), reason: close.reason.into() }))
}

struct Writer<S = SplitSink<Socket, Message>> {
    sink: S,
    intervals: Intervals,
    orders: Orders,
    /// Of what was taken and is being written.
    unsent: Unsent,
}

impl<S: Sink<Message> + Unpin> Writer<S> {
    /// Writes until the engine lets go, or the socket does.
    ///
    /// # Cancel safety
    /// A message may have been written in part: after dropping the future only a goodbye may follow, and the peer may not get it.
    async fn run(&mut self, inlet: &mut Inlet) -> Close {
        let mut messages = Vec::with_capacity(64);
        let mut ping = interval_at(Instant::now() + self.intervals.ping(), self.intervals.ping());
        loop {
            let mut frames = Vec::new();
            let taken = tokio::select! {
                taken = inlet.take(&mut messages, MESSAGES_PER_FLUSH) => Some(taken),
                _ = ping.tick() => None,
            };
            let said = match taken {
                None => {
                    if !self.write([Message::Ping(Bytes::new())]).await {
                        return close::SLOW_CONSUMER.plain();
                    }
                    continue;
                }
                Some(0) => return close::SLOW_CONSUMER.plain(),
                Some(_) => {
                    self.unsent.begin(&messages);
                    self.orders.put_into_frames(messages.drain(..), &mut frames, &mut self.unsent).await
                }
            };
            if !self.write(frames.into_iter().map(|frame| Message::Binary(frame.into()))).await {
                return close::SLOW_CONSUMER.plain();
            }
            if let Said::Enough(close) = said {
                return close;
            }
        }
    }

    /// Writes messages and flushes once. `false`: the socket is gone, or does not take them in time.
    async fn write(&mut self, messages: impl IntoIterator<Item = Message>) -> bool {
        let writing = async {
            for (number, message) in messages.into_iter().enumerate() {
                let fed = self.sink.feed(message).await;
                // Also where it fails: the socket has it.
                self.unsent.handed(number);
                fed?;
            }
            self.sink.flush().await
        };
        matches!(timeout(self.intervals.silence_max(), writing).await, Ok(Ok(())))
    }

    /// Tells the worker when to come back: not all at once.
    async fn send_away(&mut self) {
        let least = least_away(self.intervals.lease);
        let reconnect_after = least + least.mul_f64(rand::random_range(0.0..=4.0));
        let away = Order::GoAway(GoAway { reconnect_after, elsewhere: None });
        if let Ok(frame) = wire::encode_order(&away) {
            let _ = timeout(GOODBYE_WITHIN, self.sink.send(Message::Binary(frame.into()))).await;
        }
    }

    async fn goodbye(&mut self, close: Close) {
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

    use crate::engine::{Bodies, FromSession, Gate, ToSession};
    use crate::logs::{self, Logs};
    use crate::store::memory::MemoryStore;

    fn token(job: u64) -> Token {
        Token { job: JobId(job), fence: Fence(job), nonce: Nonce(job) }
    }

    fn enqueue(job: u64, has_body: bool) -> ToSession {
        let (due_at, revision) = (Timestamp(0), Revision(0));
        ToSession::Enqueue(vec![Grant {
            token: token(job),
            priority: 0,
            due_at,
            revision,
            has_body,
            time_left: None,
            memory_bytes: None,
        }])
    }

    /// Lets a writer take these until it gets no further, and then goes. What is left, and how many frames the socket has.
    async fn left_of(messages: Vec<ToSession>, takes: usize) -> (Vec<Token>, usize) {
        let place = tempfile::tempdir().unwrap();
        let logs = Logs::open(place.path(), logs::Limits::default()).unwrap();
        let (inbox, _engine) = tokio::sync::mpsc::channel::<FromSession>(1);
        let gate = Gate { inbox, epoch: protocol::Epoch(1) };
        let archive = Arc::new(MemoryStore::new());
        let (intervals, leaving) = (Intervals::default(), CancellationToken::new());
        let door = Door::new(gate, Arc::new(Bodies::default()), archive.clone(), logs, intervals, leaving);
        let given = std::cell::Cell::new(0);
        // A socket that takes so many frames, and gets stuck with the next one.
        let sink = pin!(unfold((), |(), _: Message| {
            given.set(given.get() + 1);
            async { if given.get() > takes { pending().await } else { Ok::<(), ()>(()) } }
        }));
        let (outbox, mut inlet) = queue();
        messages.into_iter().for_each(|message| outbox.send(message).unwrap());
        let orders = Orders::new(door, Arc::new(Grants::new(archive)), Presence::new("w".into(), 1), None);
        let mut writer = Writer { sink, intervals, orders, unsent: Unsent::default() };
        let ends = timeout(Duration::from_millis(100), writer.run(&mut inlet)).await;
        assert!(ends.is_err(), "it ends by itself: {ends:?}");
        let mut left = writer.unsent.into_tokens();
        left.extend(inlet.into_unsent());
        (left, given.get())
    }

    fn pulse() -> ToSession {
        ToSession::Order(Order::Pulse(1))
    }

    #[tokio::test(start_paused = true)]
    async fn what_stands_behind_an_unfinished_write_was_not_sent() {
        let batch = || vec![enqueue(1, false), pulse(), enqueue(2, false), pulse(), enqueue(3, false)];
        assert_eq!(left_of(batch(), 9).await, (vec![], 5));
        // The third frame has the second attempt: the socket has taken it, and does not get on.
        assert_eq!(left_of(batch(), 2).await, (vec![token(3)], 3));
        assert_eq!(left_of(batch(), 0).await, (vec![token(2), token(3)], 1));
    }

    #[test]
    fn what_waits_for_an_archive_that_stands_still_was_not_sent() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        runtime.block_on(async {
            // The one thread that could read is busy.
            let busy = tokio::task::spawn_blocking(move || wait.recv().is_err());
            let batch = vec![enqueue(1, false), pulse(), enqueue(2, true), pulse(), enqueue(3, false)];
            assert_eq!(left_of(batch, 9).await, (vec![token(1), token(2), token(3)], 0));
            drop(done);
            assert!(busy.await.unwrap());
        });
    }

    #[test]
    fn nobody_stays_away_for_more_than_a_sixth_of_a_lease() {
        for lease in [Duration::from_secs(1), Duration::from_secs(3), Intervals::default().lease] {
            // Up to five times as long, and the worker adds as much again.
            assert!(least_away(lease) * 10 <= lease / 6, "{lease:?}");
        }
        assert_eq!(least_away(Duration::from_secs(600)), AWAY_MIN);
    }
}
