//! One worker's connection: frames → reports for the engine, what the engine says → frames.
//!
//! Two halves run side by side. The reader takes all frames that have arrived and hands their reports over at once; if the engine's
//! inbox is full it waits, and the socket is not read further. The writer takes all messages that have piled up and flushes once.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use bytes::Bytes;
use futures_util::stream::SplitSink;
use futures_util::{FutureExt, SinkExt, Stream, StreamExt};
use protocol::close::{self, Close};
use protocol::order::GoAway;
use protocol::report::Chunk;
use protocol::{Order, Report, SessionId, wire};
use scheduler::input::Connected;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval_at, timeout};
use tokio_tungstenite::tungstenite::{Error as WireError, error::ProtocolError};

use super::accept::Door;
use super::chatter::{Chatter, says_nothing};
use super::grants::Grants;
use super::orders::{Orders, Said};
use super::output;
use crate::clock;
use crate::engine::{FromSession, Heard, Inlet, queue};

/// How often each side pings.
const PING_EVERY: Duration = Duration::from_secs(5);
/// A socket without any frame for this long is dead (FAULTS.md, default numbers).
const DEAD_AFTER: Duration = Duration::from_secs(15);
/// How long a goodbye may take.
const GOODBYE_WITHIN: Duration = Duration::from_secs(1);
/// A server that leaves may be back after this long; each worker is told up to five times as much.
const AWAY_MIN: Duration = Duration::from_millis(500);
/// How many frames are read before their reports are handed over.
const FRAMES_PER_TURN: usize = 256;
/// How many bytes are read before that, not counting the last frame.
const BYTES_PER_TURN: usize = 1 << 20;
/// How often a worker that we are not reading is noted as heard.
const HEARD_EVERY: Duration = Duration::from_secs(1);
/// How many messages are written before a flush.
const MESSAGES_PER_FLUSH: usize = 1_024;

/// Serves a session until its socket closes, its worker falls silent, or the engine lets go of it.
pub(super) async fn serve(door: Door, socket: WebSocket, hello: Connected) {
    let session = hello.session;
    let heard = Heard::at(clock::now().up);
    let (outbox, inlet) = queue();
    let (output, mut written) = output::start(door.logs.clone(), outbox.downgrade());
    let opened = FromSession::Opened { hello: Box::new(hello), outbox, heard: heard.clone() };
    if door.gate.inbox.send(opened).await.is_err() {
        return;
    }
    let (sink, stream) = socket.split();
    let grants = Arc::new(Grants::default());
    let mut reader = Reader {
        session,
        stream,
        heard,
        inbox: door.gate.inbox.clone(),
        output,
        grants: grants.clone(),
        has_trespassed: false,
        chatter: Chatter::default(),
    };
    let mut writer = Writer { sink, orders: Orders::new(door.clone(), grants) };
    let close = tokio::select! {
        close = writer.run(inlet) => Some(close),
        close = reader.run() => close,
        _ = &mut written => Some(close::INTERNAL_ERROR.because("output cannot be kept")),
        () = door.leaving.cancelled() => Some(close::GOING_AWAY.plain()),
    };
    tracing::debug!(session = session.0, ?close, "worker's session ends");
    if let Some(close) = close {
        if close.code == close::GOING_AWAY.code {
            writer.send_away().await;
        }
        writer.goodbye(close).await;
        reader.read_out().await;
    }
    written.abort();
    // The engine outlives its sessions; if it is gone, so is whom this concerns.
    let _ = door.gate.inbox.send(FromSession::Closed(session)).await;
}

/// Sends a close frame, if the peer still takes it.
pub(super) async fn say_goodbye(socket: &mut WebSocket, close: Close) {
    let _ = timeout(Duration::from_secs(1), socket.send(close_frame(close))).await;
}

fn close_frame(close: Close) -> Message {
    Message::Close(Some(CloseFrame { code: close.code, reason: close.reason.into() }))
}

/// What to tell a peer whose bytes were no WebSocket messages, or too many of them.
pub(super) fn broken(error: &axum::Error) -> Option<Close> {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<WireError>());
    match cause {
        Some(WireError::Capacity(limit)) => Some(close::TOO_LARGE.because(limit)),
        Some(WireError::Protocol(ProtocolError::ResetWithoutClosingHandshake)) => None,
        Some(WireError::Protocol(fault)) => Some(close::PROTOCOL_ERROR.because(fault)),
        _ => None,
    }
}

struct Reader<S> {
    session: SessionId,
    stream: S,
    heard: Heard,
    inbox: mpsc::Sender<FromSession>,
    output: output::Inbox,
    grants: Arc<Grants>,
    has_trespassed: bool,
    chatter: Chatter,
}

impl<S: Stream<Item = Result<Message, axum::Error>> + Unpin> Reader<S> {
    /// Reads until the end; says why it ended, if that is the worker's doing.
    async fn run(&mut self) -> Option<Close> {
        loop {
            let first = match timeout(DEAD_AFTER, self.stream.next()).await {
                Ok(Some(first)) => first,
                Ok(None) => return None,
                Err(_) => return Some(close::SILENT.plain()),
            };
            self.heard.note(clock::now().up);
            let mut reports = Vec::new();
            let read = self.read_turn(first, &mut reports).await;
            if !self.hand_over(reports).await {
                return None;
            }
            if let Err(why) = read {
                return why;
            }
        }
    }

    /// Takes what has arrived by now: waiting for more is not its part.
    async fn read_turn(
        &mut self,
        first: Result<Message, axum::Error>,
        reports: &mut Vec<Report>,
    ) -> Result<(), Ended> {
        let mut next = Some(first);
        let (mut frames, mut bytes) = (0, 0);
        while let Some(message) = next.take() {
            let message = message.map_err(|error| broken(&error))?;
            frames += 1;
            bytes += size_of(&message);
            self.take(message, reports).await?;
            if frames < FRAMES_PER_TURN && bytes < BYTES_PER_TURN {
                next = self.stream.next().now_or_never().flatten();
            }
        }
        Ok(())
    }

    async fn take(&mut self, message: Message, reports: &mut Vec<Report>) -> Result<(), Ended> {
        let frame = match message {
            Message::Binary(frame) => frame,
            Message::Text(_) => return Err(Some(close::TEXT_FRAME.plain())),
            Message::Close(_) => return Err(Some(close::NORMAL.plain())),
            Message::Ping(_) | Message::Pong(_) => return self.endure(),
        };
        match wire::decode_report(&frame) {
            Ok(Some(report)) if says_nothing(&report) => self.endure(),
            Ok(Some(Report::Output(chunks))) => self.write(chunks, reports).await,
            Ok(Some(report)) => {
                self.grants.note(&report);
                reports.push(report);
                Ok(())
            }
            Ok(None) => self.endure(),
            Err(error) => Err(Some(error.close())),
        }
    }

    /// A message said nothing.
    fn endure(&mut self) -> Result<(), Ended> {
        if self.chatter.note(clock::now().up) { Ok(()) } else { Err(Some(close::RATE_LIMITED.plain())) }
    }

    /// Passes output on. What was reported before it does not wait with it for a slow disk.
    async fn write(&mut self, mut chunks: Vec<Chunk>, reports: &mut Vec<Report>) -> Result<(), Ended> {
        let foreign = self.grants.sift(&mut chunks);
        // One line a session: whoever does this may do it often.
        if foreign > 0 && !std::mem::replace(&mut self.has_trespassed, true) {
            tracing::warn!(
                session = self.session.0,
                foreign,
                "output of attempts that are not this worker's is dropped"
            );
        }
        let Err(chunks) = self.output.try_put(chunks) else { return Ok(()) };
        if !self.hand_over(std::mem::take(reports)).await {
            return Err(None);
        }
        self.heard_while(self.output.put(chunks)).await;
        Ok(())
    }

    /// Waits for room in the engine's inbox.
    async fn hand_over(&self, reports: Vec<Report>) -> bool {
        reports.is_empty()
            || self.heard_while(self.inbox.send(FromSession::Said(self.session, reports))).await.is_ok()
    }

    /// Waits for something of ours. A worker that we are not reading cannot fall silent: it counts as heard meanwhile.
    async fn heard_while<F: Future>(&self, waiting: F) -> F::Output {
        let mut waiting = pin!(waiting);
        loop {
            if let Ok(done) = timeout(HEARD_EVERY, waiting.as_mut()).await {
                return done;
            }
            self.heard.note(clock::now().up);
        }
    }

    /// Reads on after our goodbye, unheard: a socket that is closed over unread bytes is reset, and the goodbye would be lost with it.
    async fn read_out(&mut self) {
        let rest = async { while let Some(Ok(_)) = self.stream.next().await {} };
        let _ = timeout(Duration::from_secs(1), rest).await;
    }
}

/// Why nothing more is read; nothing if there is nobody to tell.
type Ended = Option<Close>;

fn size_of(message: &Message) -> usize {
    match message {
        Message::Binary(frame) => frame.len(),
        _ => 0,
    }
}

struct Writer {
    sink: SplitSink<WebSocket, Message>,
    orders: Orders,
}

impl Writer {
    /// Writes until the engine lets go, or the socket does.
    ///
    /// # Cancel safety
    /// A message may have been written in part: after dropping the future only a goodbye may follow, and the peer may not get it.
    async fn run(&mut self, mut inlet: Inlet) -> Close {
        let mut messages = Vec::with_capacity(64);
        let mut ping = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
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
                Some(_) => self.orders.put_into_frames(messages.drain(..), &mut frames).await,
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
            for message in messages {
                self.sink.feed(message).await?;
            }
            self.sink.flush().await
        };
        matches!(timeout(DEAD_AFTER, writing).await, Ok(Ok(())))
    }

    /// Tells the worker when to come back: not all at once.
    async fn send_away(&mut self) {
        let reconnect_after = AWAY_MIN + AWAY_MIN.mul_f64(rand::random_range(0.0..=4.0));
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
    use futures_util::stream;
    use protocol::report::{ChunkData, Heartbeat, Stream as Which};
    use protocol::{Token, Uptime};

    use super::*;

    fn frame(report: &Report) -> Result<Message, axum::Error> {
        Ok(Message::Binary(wire::encode_report(report).unwrap().into()))
    }

    fn written(bytes: usize) -> Result<Message, axum::Error> {
        let data = ChunkData::Bytes(vec![b'x'; bytes]);
        frame(&Report::Output(vec![Chunk {
            token: Token::default(),
            stream: Which::Stdout,
            offset: 0,
            data,
        }]))
    }

    fn heartbeat() -> Result<Message, axum::Error> {
        frame(&Report::Heartbeat(Heartbeat::default()))
    }

    /// The engine hears what `messages` report although nobody writes output.
    #[tokio::test(start_paused = true)]
    async fn reports_do_not_wait_for_output_and_a_slow_disk_does_not_silence_a_worker() {
        let (output, _nobody_writes) = output::inbox();
        let (inbox, mut engine) = mpsc::channel(10);
        let heard = Heard::at(Uptime(0));
        let mut messages = vec![heartbeat()];
        messages.extend((0..200).map(|_| written(1)));
        let stream = stream::iter(messages).chain(stream::pending());
        let grants = Arc::new(Grants::default());
        grants.add([Token::default()].into_iter());
        let mut reader = Reader {
            session: SessionId(1),
            stream,
            heard: heard.clone(),
            inbox,
            output,
            grants,
            has_trespassed: false,
            chatter: Chatter::default(),
        };
        let reading = tokio::spawn(async move { reader.run().await });
        let Some(FromSession::Said(SessionId(1), reports)) = engine.recv().await else { panic!() };
        assert_eq!(reports, [Report::Heartbeat(Heartbeat::default())]);
        heard.note(Uptime(0));
        tokio::time::sleep(DEAD_AFTER).await;
        assert!(heard.last() > Uptime(0), "it is not read: it cannot be silent");
        assert!(!reading.is_finished());
        reading.abort();
    }
}
