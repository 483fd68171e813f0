//! One worker's connection: frames → reports for the engine, what the engine says → frames.
//!
//! Two halves run side by side. The reader takes all frames that have arrived and hands their reports over at once; if the engine's
//! inbox is full it waits, and the socket is not read further. The writer takes all messages that have piled up and flushes once.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use protocol::close::{self, Close};
use protocol::{Report, SessionId, wire};
use scheduler::input::Connected;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval_at, timeout};
use tokio_tungstenite::tungstenite::{Error as WireError, error::ProtocolError};

use super::accept::Door;
use super::orders::{Orders, Said};
use super::output;
use crate::clock;
use crate::engine::{FromSession, Heard, Inlet, queue};

/// How often each side pings.
const PING_EVERY: Duration = Duration::from_secs(5);
/// A socket without any frame for this long is dead (FAULTS.md, default numbers).
const DEAD_AFTER: Duration = Duration::from_secs(15);
/// How many frames are read before their reports are handed over.
const FRAMES_PER_TURN: usize = 256;
/// How many messages are written before a flush.
const MESSAGES_PER_FLUSH: usize = 1_024;

/// Serves a session until its socket closes, its worker falls silent, or the engine lets go of it.
pub(super) async fn serve(door: Door, socket: WebSocket, hello: Connected) {
    let session = hello.session;
    let heard = Heard::at(clock::now().up);
    let (outbox, inlet) = queue();
    let (output, mut written) = output::start(door.logs.clone(), outbox.clone());
    let opened = FromSession::Opened { hello: Box::new(hello), outbox, heard: heard.clone() };
    if door.gate.inbox.send(opened).await.is_err() {
        return;
    }
    let (sink, stream) = socket.split();
    let mut reader = Reader { session, stream, heard, inbox: door.gate.inbox.clone(), output };
    let mut writer = Writer { sink, orders: Orders::new(door.clone()) };
    let close = tokio::select! {
        close = writer.run(inlet) => Some(close),
        close = reader.run() => close,
        _ = &mut written => Some(close::INTERNAL_ERROR.because("output cannot be kept")),
    };
    tracing::debug!(session = session.0, ?close, "worker's session ends");
    if let Some(close) = close {
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

struct Reader {
    session: SessionId,
    stream: SplitStream<WebSocket>,
    heard: Heard,
    inbox: mpsc::Sender<FromSession>,
    output: output::Inbox,
}

impl Reader {
    /// Reads until the end; says why it ended, if that is the worker's doing.
    async fn run(&mut self) -> Option<Close> {
        loop {
            let first = timeout(DEAD_AFTER, self.stream.next()).await;
            let mut next = match first {
                Ok(Some(first)) => Some(first),
                Ok(None) => return None,
                Err(_) => return Some(close::SILENT.plain()),
            };
            self.heard.note(clock::now().up);
            let mut reports = Vec::new();
            let mut ended = None;
            let mut taken = 0;
            while let Some(message) = next.take() {
                let took = match message {
                    Ok(message) => self.take(message, &mut reports).await.map_err(Some),
                    Err(error) => Err(broken(&error)),
                };
                if let Err(why) = took {
                    ended = Some(why);
                    break;
                }
                taken += 1;
                if taken < FRAMES_PER_TURN {
                    // Only what is there already: waiting is the outer loop's part.
                    next = self.stream.next().now_or_never().flatten();
                }
            }
            if !reports.is_empty() && !self.hand_over(reports).await {
                return None;
            }
            if let Some(why) = ended {
                return why;
            }
        }
    }

    async fn take(&mut self, message: Message, reports: &mut Vec<Report>) -> Result<(), Close> {
        let frame = match message {
            Message::Binary(frame) => frame,
            Message::Text(_) => return Err(close::TEXT_FRAME.plain()),
            Message::Close(_) => return Err(close::NORMAL.plain()),
            Message::Ping(_) | Message::Pong(_) => return Ok(()),
        };
        match wire::decode_report(&frame) {
            Ok(Some(Report::Output(chunks))) => self.output.put(chunks).await,
            Ok(Some(report)) => reports.push(report),
            Ok(None) => {}
            Err(error) => return Err(error.close()),
        }
        Ok(())
    }

    /// Reads on after our goodbye, unheard: a socket that is closed over unread bytes is reset, and the goodbye would be lost with it.
    async fn read_out(&mut self) {
        let rest = async { while let Some(Ok(_)) = self.stream.next().await {} };
        let _ = timeout(Duration::from_secs(1), rest).await;
    }

    /// Waits for room in the engine's inbox. A worker that we are not reading cannot fall silent: it counts as heard meanwhile.
    async fn hand_over(&self, reports: Vec<Report>) -> bool {
        loop {
            match timeout(Duration::from_secs(1), self.inbox.reserve()).await {
                Ok(Ok(permit)) => {
                    permit.send(FromSession::Said(self.session, reports));
                    return true;
                }
                Ok(Err(_)) => return false,
                Err(_) => self.heard.note(clock::now().up),
            }
        }
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

    async fn goodbye(&mut self, close: Close) {
        let _ = timeout(Duration::from_secs(1), self.sink.send(close_frame(close))).await;
    }
}
