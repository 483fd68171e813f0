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
    let ping_timer = ping_timer(*intervals.borrow());
    let mut writer = Writer { sink, reports, logs: &logs, may_send_output: false, intervals, ping_timer };
    let end = tokio::select! {
        end = read_orders(&mut stream, events, &logs, &interval_updates) => end,
        end = writer.run() => end,
    };
    if let SessionEnd::ClosedByWorker(close) = &end {
        writer.close(close).await;
        read_until_closed(&mut stream).await;
    }
    (end.to_string(), matches!(end, SessionEnd::Refused(_)))
}

/// The reason of a session's end.
#[derive(Debug, thiserror::Error)]
enum SessionEnd {
    #[error("we closed it: {0}")]
    ClosedByWorker(Close),
    #[error("the server closed it: {0}")]
    ClosedByServer(String),
    #[error("the server cannot take a message: {0}")]
    Refused(String),
    #[error("nothing was heard for {0:?}")]
    SilentServer(Duration),
    #[error("the server took nothing for {0:?}")]
    WriteTimeout(Duration),
    #[error("{0}")]
    Broken(String),
}

impl From<tungstenite::Error> for SessionEnd {
    fn from(error: tungstenite::Error) -> Self {
        match error {
            tungstenite::Error::Capacity(cause) => Self::ClosedByWorker(close::TOO_LARGE.with_reason(cause)),
            // The server or the network has died; no rule was broken.
            tungstenite::Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
                Self::ClosedByServer("without a word".to_owned())
            }
            tungstenite::Error::Protocol(cause) => {
                Self::ClosedByWorker(close::PROTOCOL_ERROR.with_reason(cause))
            }
            error => Self::Broken(crate::error_chain::error_chain(&error)),
        }
    }
}

/// Reads orders until the connection ends, and passes them on.
async fn read_orders<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut SplitStream<WebSocketStream<S>>,
    events: &Sender<ConnectionEvent>,
    logs: &Logs,
    interval_updates: &watch::Sender<Intervals>,
) -> SessionEnd {
    loop {
        let silence_max = interval_updates.borrow().silence_max();
        let message = match timeout(silence_max, stream.next()).await {
            Err(_) => return SessionEnd::SilentServer(silence_max),
            Ok(None) => return SessionEnd::ClosedByServer("without a word".to_owned()),
            Ok(Some(Err(error))) => return error.into(),
            Ok(Some(Ok(message))) => message,
        };
        let frame = match message {
            Message::Binary(frame) => frame,
            Message::Text(_) => return SessionEnd::ClosedByWorker(close::TEXT_FRAME.plain()),
            Message::Close(Some(frame)) if is_refusal(&frame) => {
                return SessionEnd::Refused(close_reason(Some(frame)));
            }
            Message::Close(frame) => return SessionEnd::ClosedByServer(close_reason(frame)),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
        };
        match decode_order(&frame) {
            Ok(Some(Order::OutputAcknowledge(marks))) => logs.acknowledge(&marks),
            Ok(Some(order)) => {
                if let Some(intervals) = intervals_of(&order) {
                    interval_updates.send_replace(intervals);
                }
                if events.send(ConnectionEvent::Ordered(order)).await.is_err() {
                    return SessionEnd::ClosedByWorker(close::NORMAL.plain());
                }
            }
            Ok(None) => {}
            Err(error) => return SessionEnd::ClosedByWorker(error.close()),
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

/// The code and the reason of a close frame.
fn close_reason(frame: Option<CloseFrame>) -> String {
    frame.map_or_else(
        || "without a reason".to_owned(),
        |frame| format!("{} {}", u16::from(frame.code), frame.reason.escape_debug()),
    )
}

/// Writes reports, output and pings.
struct Writer<'a, S> {
    sink: SplitSink<WebSocketStream<S>, Message>,
    reports: UnboundedReceiver<Report>,
    logs: &'a Logs,
    /// True once the whole Inventory is sent: the server then knows the attempts that output belongs to.
    may_send_output: bool,
    intervals: watch::Receiver<Intervals>,
    /// Ticks when the next WebSocket ping is due.
    ping_timer: Interval,
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
                count = self.reports.recv_many(&mut reports, REPORTS_PER_FLUSH) => if count == 0 { NextWrite::Close } else { NextWrite::Reports },
                Ok(()) = self.intervals.changed() => NextWrite::NewIntervals,
                _ = self.ping_timer.tick() => NextWrite::Ping,
                chunks = self.logs.next(), if self.may_send_output => NextWrite::Output(chunks),
            };
            let written = match next {
                NextWrite::NewIntervals => {
                    self.ping_timer = ping_timer(*self.intervals.borrow_and_update());
                    continue;
                }
                NextWrite::Reports => self.write_reports(&mut reports).await,
                NextWrite::Output(chunks) => self.write(&[Report::Output(chunks)]).await,
                NextWrite::Ping => self.feed(Message::Ping(Bytes::new())).await,
                NextWrite::Close => return SessionEnd::ClosedByWorker(close::NORMAL.plain()),
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
                // The server accepts no report after a missing number.
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

    /// Adds a message to those that the next flush writes.
    async fn feed(&mut self, message: Message) -> Result<(), SessionEnd> {
        let write_timeout = self.intervals.borrow().silence_max();
        timeout(write_timeout, self.sink.feed(message))
            .await
            .map_err(|_| SessionEnd::WriteTimeout(write_timeout))?
            .map_err(SessionEnd::from)
    }

    async fn flush(&mut self) -> Result<(), SessionEnd> {
        let write_timeout = self.intervals.borrow().silence_max();
        timeout(write_timeout, self.sink.flush())
            .await
            .map_err(|_| SessionEnd::WriteTimeout(write_timeout))?
            .map_err(SessionEnd::from)
    }

    /// Sends a close frame with the reason, within a time limit.
    async fn close(&mut self, close: &Close) {
        let frame = CloseFrame { code: close.code.into(), reason: close.reason.as_str().into() };
        let _ = timeout(CLOSE_TIMEOUT, self.sink.send(Message::Close(Some(frame)))).await;
    }
}

/// `true` if the report has a number, without which the server takes no later one. The state machine makes only reports that can be sent.
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

fn ping_timer(intervals: Intervals) -> Interval {
    // The first message must be Hello.
    let mut interval = interval_at(Instant::now() + intervals.ping(), intervals.ping());
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The most reports that share one flush.
const REPORTS_PER_FLUSH: usize = 1024;

#[cfg(test)]
mod tests;
