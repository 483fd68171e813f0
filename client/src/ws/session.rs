//! One connection: frames ↔ orders and reports.
//!
//! Reports go before output, output goes after the Inventory, and whatever has piled up shares one flush. A send is never cancelled
//! half-way: the select only decides *what* goes next, the writing itself runs to its end or takes the connection with it.

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

use super::LinkEvent;
use crate::logs::Logs;

/// Carries a connection until it is gone; says why.
pub(super) async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    socket: WebSocketStream<S>,
    tell: &Sender<LinkEvent>,
    said: UnboundedReceiver<Report>,
    logs: Logs,
) -> String {
    logs.reconnected();
    if tell.send(LinkEvent::Connected).await.is_err() {
        return "nobody wants it any more".to_owned();
    }
    let (sink, mut stream) = socket.split();
    // Until the server says otherwise.
    let (learn, intervals) = watch::channel(Intervals::default());
    let ping = pings(*intervals.borrow());
    let mut writer = Writer { sink, said, logs: &logs, may_send_output: false, intervals, ping };
    let end = tokio::select! {
        end = read(&mut stream, tell, &logs, &learn) => end,
        end = writer.run() => end,
    };
    if let End::Ours(close) = &end {
        writer.close(close).await;
        drain(&mut stream).await;
    }
    end.to_string()
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("we closed it: {0}")]
    Ours(Close),
    #[error("the server closed it: {0}")]
    Theirs(String),
    #[error("nothing was heard for {0:?}")]
    Silent(Duration),
    #[error("the server took nothing for {0:?}")]
    Stuck(Duration),
    #[error("{0}")]
    Broken(String),
}

impl From<tungstenite::Error> for End {
    fn from(error: tungstenite::Error) -> Self {
        match error {
            tungstenite::Error::Capacity(cause) => Self::Ours(close::TOO_LARGE.because(cause)),
            // Nobody broke a rule: the server, or the way to it, has died.
            tungstenite::Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
                Self::Theirs("without a word".to_owned())
            }
            tungstenite::Error::Protocol(cause) => Self::Ours(close::PROTOCOL_ERROR.because(cause)),
            error => Self::Broken(super::chain(&error)),
        }
    }
}

async fn read<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut SplitStream<WebSocketStream<S>>,
    tell: &Sender<LinkEvent>,
    logs: &Logs,
    learn: &watch::Sender<Intervals>,
) -> End {
    loop {
        let silence_max = learn.borrow().silence_max();
        let message = match timeout(silence_max, stream.next()).await {
            Err(_) => return End::Silent(silence_max),
            Ok(None) => return End::Theirs("without a word".to_owned()),
            Ok(Some(Err(error))) => return error.into(),
            Ok(Some(Ok(message))) => message,
        };
        let frame = match message {
            Message::Binary(frame) => frame,
            Message::Text(_) => return End::Ours(close::TEXT_FRAME.plain()),
            Message::Close(frame) => return End::Theirs(reason(frame)),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
        };
        match decode_order(&frame) {
            Ok(Some(Order::OutputAcknowledge(marks))) => logs.acknowledge(&marks),
            Ok(Some(order)) => {
                if let Some(intervals) = intervals_of(&order) {
                    learn.send_replace(intervals);
                }
                if tell.send(LinkEvent::Ordered(order)).await.is_err() {
                    return End::Ours(close::NORMAL.plain());
                }
            }
            Ok(None) => {}
            Err(error) => return End::Ours(error.close()),
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

/// Reads on until the server closes, too: a socket closed over unread bytes is reset, and our last words would be lost with it.
async fn drain<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut SplitStream<WebSocketStream<S>>) {
    let rest = async { while let Some(Ok(_)) = stream.next().await {} };
    let _ = timeout(CLOSE_PATIENCE, rest).await;
}

fn reason(frame: Option<CloseFrame>) -> String {
    frame.map_or_else(
        || "without a reason".to_owned(),
        |frame| format!("{} {}", u16::from(frame.code), frame.reason.escape_debug()),
    )
}

struct Writer<'a, S> {
    sink: SplitSink<WebSocketStream<S>, Message>,
    said: UnboundedReceiver<Report>,
    logs: &'a Logs,
    may_send_output: bool,
    intervals: watch::Receiver<Intervals>,
    ping: Interval,
}

/// What goes next.
enum Next {
    /// Nothing, but other intervals hold.
    Learnt,
    Reports,
    Output(Vec<Chunk>),
    Ping,
    Leave,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Writer<'_, S> {
    /// Writes until the connection is gone, or until nobody has anything to say any more.
    async fn run(&mut self) -> End {
        let mut reports = Vec::new();
        loop {
            let next = tokio::select! {
                biased;
                count = self.said.recv_many(&mut reports, BATCH) => if count == 0 { Next::Leave } else { Next::Reports },
                Ok(()) = self.intervals.changed() => Next::Learnt,
                _ = self.ping.tick() => Next::Ping,
                chunks = self.logs.next(), if self.may_send_output => Next::Output(chunks),
            };
            let written = match next {
                Next::Learnt => {
                    self.ping = pings(*self.intervals.borrow_and_update());
                    continue;
                }
                Next::Reports => self.write_reports(&mut reports).await,
                Next::Output(chunks) => self.write(&[Report::Output(chunks)]).await,
                Next::Ping => self.feed(Message::Ping(Bytes::new())).await,
                Next::Leave => return End::Ours(close::NORMAL.plain()),
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

    async fn write_reports(&mut self, reports: &mut Vec<Report>) -> Result<(), End> {
        self.write(reports).await?;
        self.may_send_output |=
            reports.iter().any(|it| matches!(it, Report::Inventory(inventory) if inventory.last));
        reports.clear();
        Ok(())
    }

    async fn write(&mut self, reports: &[Report]) -> Result<(), End> {
        let mut frames = Vec::new();
        for report in reports {
            if let Err(error) = pack_report(report, &mut frames) {
                tracing::error!(%error, "a report cannot be sent");
                // A hole in the numbers would be worse: the server takes nothing behind it.
                if is_numbered(report) {
                    return Err(End::Broken(format!("a report cannot be sent: {error}")));
                }
            }
        }
        for frame in frames {
            self.feed(Message::Binary(frame.into())).await?;
        }
        Ok(())
    }

    async fn feed(&mut self, message: Message) -> Result<(), End> {
        let patience = self.intervals.borrow().silence_max();
        timeout(patience, self.sink.feed(message)).await.map_err(|_| End::Stuck(patience))?.map_err(End::from)
    }

    async fn flush(&mut self) -> Result<(), End> {
        let patience = self.intervals.borrow().silence_max();
        timeout(patience, self.sink.flush()).await.map_err(|_| End::Stuck(patience))?.map_err(End::from)
    }

    /// Says why we go, as well as it can be said.
    async fn close(&mut self, close: &Close) {
        let frame = CloseFrame { code: close.code.into(), reason: close.reason.as_str().into() };
        let _ = timeout(CLOSE_PATIENCE, self.sink.send(Message::Close(Some(frame)))).await;
    }
}

/// Whether the server waits for this very report before it takes a later one. The brain makes only such as can be sent.
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

const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
/// Reports that share one flush; more wait for the next one.
const BATCH: usize = 1024;

#[cfg(test)]
mod tests;
