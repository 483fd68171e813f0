//! One session: turns frames into orders, and reports into frames.
//!
//! Reports go before output, output goes after the Inventory, and pending reports share one flush. A send is never cancelled half-way: the
//! select only decides which item goes next.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use protocol::close::{self, Close};
use protocol::order::Intervals;
use protocol::report::Chunk;
use protocol::wire::{decode_order, pack_report};
use protocol::{Order, Report};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::{Sender, UnboundedReceiver};
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{self, Message};

use super::event::ConnectionEvent;
use crate::logs::Logs;

/// Runs a session to its end. Returns the reason, and true if the server cannot take a message of this worker.
pub(super) async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    socket: WebSocketStream<S>,
    events: &Sender<ConnectionEvent>,
    reports: UnboundedReceiver<Report>,
    logs: Logs,
) -> (String, bool) {
    logs.reconnected();
    if events.send(ConnectionEvent::Connected).await.is_err() {
        return ("the worker has dropped it".to_owned(), false);
    }
    let (sink, mut stream) = socket.split();
    // These hold until the server sends others.
    let (interval_updates, intervals) = watch::channel(Intervals::default());
    let ping = pings(*intervals.borrow());
    let mut writer = Writer { sink, reports, logs: &logs, may_send_output: false, intervals, ping };
    let end = tokio::select! {
        end = read(&mut stream, events, &logs, &interval_updates) => end,
        end = writer.run() => end,
    };
    if let SessionEnd::Ours(close) = &end {
        writer.close(close).await;
        read_until_closed(&mut stream).await;
    }
    (end.to_string(), matches!(end, SessionEnd::Refused(_)))
}

/// The reason of a session's end.
#[derive(Debug, thiserror::Error)]
enum SessionEnd {
    #[error("we closed it: {0}")]
    Ours(Close),
    #[error("the server closed it: {0}")]
    Theirs(String),
    #[error("the server cannot take a message: {0}")]
    Refused(String),
    #[error("nothing was heard for {0:?}")]
    Silent(Duration),
    #[error("the server took nothing for {0:?}")]
    Stuck(Duration),
    #[error("{0}")]
    Broken(String),
}

impl From<tungstenite::Error> for SessionEnd {
    fn from(error: tungstenite::Error) -> Self {
        match error {
            tungstenite::Error::Capacity(cause) => Self::Ours(close::TOO_LARGE.with_reason(cause)),
            // The server or the network has died; no rule was broken.
            tungstenite::Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
                Self::Theirs("without a word".to_owned())
            }
            tungstenite::Error::Protocol(cause) => Self::Ours(close::PROTOCOL_ERROR.with_reason(cause)),
            error => Self::Broken(crate::error_chain::error_chain(&error)),
        }
    }
}

async fn read<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut SplitStream<WebSocketStream<S>>,
    events: &Sender<ConnectionEvent>,
    logs: &Logs,
    interval_updates: &watch::Sender<Intervals>,
) -> SessionEnd {
    loop {
        let silence_max = interval_updates.borrow().silence_max();
        let message = match timeout(silence_max, stream.next()).await {
            Err(_) => return SessionEnd::Silent(silence_max),
            Ok(None) => return SessionEnd::Theirs("without a word".to_owned()),
            Ok(Some(Err(error))) => return error.into(),
            Ok(Some(Ok(message))) => message,
        };
        let frame = match message {
            Message::Binary(frame) => frame,
            Message::Text(_) => return SessionEnd::Ours(close::TEXT_FRAME.plain()),
            Message::Close(Some(frame)) if is_refusal(&frame) => {
                return SessionEnd::Refused(reason(Some(frame)));
            }
            Message::Close(frame) => return SessionEnd::Theirs(reason(frame)),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
        };
        match decode_order(&frame) {
            Ok(Some(Order::OutputAcknowledge(marks))) => logs.acknowledge(&marks),
            Ok(Some(order)) => {
                if let Some(intervals) = intervals_of(&order) {
                    interval_updates.send_replace(intervals);
                }
                if events.send(ConnectionEvent::Ordered(order)).await.is_err() {
                    return SessionEnd::Ours(close::NORMAL.plain());
                }
            }
            Ok(None) => {}
            Err(error) => return SessionEnd::Ours(error.close()),
        }
    }
}

/// The intervals that an order sets.
fn intervals_of(order: &Order) -> Option<Intervals> {
    match order {
        Order::Welcome(it) => Some(it.intervals),
        Order::Configure(it) => it.intervals,
        _ => None,
    }
}

/// Reads until the server closes, too. A socket that is closed over unread bytes is reset, and the last reports would be lost with it.
async fn read_until_closed<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut SplitStream<WebSocketStream<S>>) {
    let rest = async { while let Some(Ok(_)) = stream.next().await {} };
    let _ = timeout(CLOSE_TIMEOUT, rest).await;
}

/// Returns true if the server has closed because of what a message says, or how large it is.
fn is_refusal(frame: &CloseFrame) -> bool {
    [close::MALFORMED.code, close::TOO_LARGE.code].contains(&frame.code.into())
}

fn reason(frame: Option<CloseFrame>) -> String {
    frame.map_or_else(
        || "without a reason".to_owned(),
        |frame| format!("{} {}", u16::from(frame.code), frame.reason.escape_debug()),
    )
}

struct Writer<'a, S> {
    sink: SplitSink<WebSocketStream<S>, Message>,
    reports: UnboundedReceiver<Report>,
    logs: &'a Logs,
    may_send_output: bool,
    intervals: watch::Receiver<Intervals>,
    ping: Interval,
}

/// The next item to write.
enum NextWrite {
    /// The intervals have changed.
    NewIntervals,
    Reports,
    Output(Vec<Chunk>),
    Ping,
    Close,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Writer<'_, S> {
    /// Writes until the connection is closed or all senders are gone.
    async fn run(&mut self) -> SessionEnd {
        let mut reports = Vec::new();
        loop {
            let next = tokio::select! {
                biased;
                count = self.reports.recv_many(&mut reports, BATCH) => if count == 0 { NextWrite::Close } else { NextWrite::Reports },
                Ok(()) = self.intervals.changed() => NextWrite::NewIntervals,
                _ = self.ping.tick() => NextWrite::Ping,
                chunks = self.logs.next(), if self.may_send_output => NextWrite::Output(chunks),
            };
            let written = match next {
                NextWrite::NewIntervals => {
                    self.ping = pings(*self.intervals.borrow_and_update());
                    continue;
                }
                NextWrite::Reports => self.write_reports(&mut reports).await,
                NextWrite::Output(chunks) => self.write(&[Report::Output(chunks)]).await,
                NextWrite::Ping => self.feed(Message::Ping(Bytes::new())).await,
                NextWrite::Close => return SessionEnd::Ours(close::NORMAL.plain()),
            };
            let flushed = match written {
                Ok(()) => self.flush().await,
                Err(end) => Err(end),
            };
            if let Err(end) = flushed {
                return end;
            }
        }
    }

    async fn write_reports(&mut self, reports: &mut Vec<Report>) -> Result<(), SessionEnd> {
        if !self.may_send_output {
            // The server does not know yet which attempts are here. Later samples tell more anyway.
            reports.retain(|report| !matches!(report, Report::Usage(_)));
        }
        self.write(reports).await?;
        self.may_send_output |=
            reports.iter().any(|it| matches!(it, Report::Inventory(inventory) if inventory.last));
        reports.clear();
        Ok(())
    }

    async fn write(&mut self, reports: &[Report]) -> Result<(), SessionEnd> {
        let mut frames = Vec::new();
        for report in reports {
            if let Err(error) = pack_report(report, &mut frames) {
                tracing::error!(%error, "a report cannot be sent");
                // The server accepts no report behind a missing number.
                if is_numbered(report) {
                    return Err(SessionEnd::Broken(format!("a report cannot be sent: {error}")));
                }
            }
        }
        for frame in frames {
            self.feed(Message::Binary(frame.into())).await?;
        }
        Ok(())
    }

    async fn feed(&mut self, message: Message) -> Result<(), SessionEnd> {
        let timeout_after = self.intervals.borrow().silence_max();
        timeout(timeout_after, self.sink.feed(message))
            .await
            .map_err(|_| SessionEnd::Stuck(timeout_after))?
            .map_err(SessionEnd::from)
    }

    async fn flush(&mut self) -> Result<(), SessionEnd> {
        let timeout_after = self.intervals.borrow().silence_max();
        timeout(timeout_after, self.sink.flush())
            .await
            .map_err(|_| SessionEnd::Stuck(timeout_after))?
            .map_err(SessionEnd::from)
    }

    /// Sends a close frame with the reason, within a time limit.
    async fn close(&mut self, close: &Close) {
        let frame = CloseFrame { code: close.code.into(), reason: close.reason.as_str().into() };
        let _ = timeout(CLOSE_TIMEOUT, self.sink.send(Message::Close(Some(frame)))).await;
    }
}

/// `true` if the server expects this report before it takes a later one. The state machine makes only reports that can be sent.
fn is_numbered(report: &Report) -> bool {
    matches!(
        report,
        Report::Running(_)
            | Report::Success(_)
            | Report::Failure(_)
            | Report::Released(_)
            | Report::Starting(_)
    )
}

fn pings(intervals: Intervals) -> Interval {
    // The first message must be Hello.
    let mut interval = interval_at(Instant::now() + intervals.ping(), intervals.ping());
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Reports that share one flush.
const BATCH: usize = 1024;

#[cfg(test)]
mod tests;
