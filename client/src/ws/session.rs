//! One connection: frames ↔ orders and reports.
//!
//! Reports go before output, output goes after the Inventory, and whatever has piled up shares one flush. A send is never cancelled
//! half-way: the select only decides *what* goes next, the writing itself runs to its end or takes the connection with it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use protocol::close::{self, Close};
use protocol::report::Chunk;
use protocol::wire::{decode_order, pack_report};
use protocol::{Order, Report};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::{Sender, UnboundedReceiver};
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
    let mut writer = Writer { sink, said, logs: &logs, may_send_output: false, ping: pings() };
    let end = tokio::select! {
        end = read(&mut stream, tell, &logs) => end,
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
    #[error("nothing was heard for {} s", SILENCE_MAX.as_secs())]
    Silent,
    #[error("the server took nothing for {} s", SILENCE_MAX.as_secs())]
    Stuck,
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
) -> End {
    loop {
        let message = match timeout(SILENCE_MAX, stream.next()).await {
            Err(_) => return End::Silent,
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
                if tell.send(LinkEvent::Ordered(order)).await.is_err() {
                    return End::Ours(close::NORMAL.plain());
                }
            }
            Ok(None) => {}
            Err(error) => return End::Ours(error.close()),
        }
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
    ping: Interval,
}

/// What goes next.
enum Next {
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
                _ = self.ping.tick() => Next::Ping,
                chunks = self.logs.next(), if self.may_send_output => Next::Output(chunks),
            };
            let written = match next {
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
        timeout(SILENCE_MAX, self.sink.feed(message)).await.map_err(|_| End::Stuck)?.map_err(End::from)
    }

    async fn flush(&mut self) -> Result<(), End> {
        timeout(SILENCE_MAX, self.sink.flush()).await.map_err(|_| End::Stuck)?.map_err(End::from)
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

fn pings() -> Interval {
    // The first message must be Hello.
    let mut interval = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// FAULTS.md section 2: a socket without any frame for so long is dead.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Three chances to be answered before that.
const PING_EVERY: Duration = Duration::from_secs(5);
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
/// Reports that share one flush; more wait for the next one.
const BATCH: usize = 1024;

#[cfg(test)]
mod tests {
    use protocol::report::{Heartbeat, Inventory, Numbered, OutputLengths, Stream, Succeeded, Timing};
    use protocol::wire::{decode_report, encode_order};
    use protocol::{ReportNo, Token};
    use tokio::io::DuplexStream;
    use tokio::sync::mpsc::{self, Receiver, UnboundedSender};
    use tokio::task::JoinHandle;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    struct Case {
        /// The server's end.
        server: WebSocketStream<DuplexStream>,
        events: Receiver<LinkEvent>,
        reports: UnboundedSender<Report>,
        logs: Logs,
        end: JoinHandle<String>,
    }

    async fn case(buffer: usize) -> Case {
        let (ours, theirs) = tokio::io::duplex(buffer);
        let ours = WebSocketStream::from_raw_socket(ours, Role::Client, None).await;
        let server = WebSocketStream::from_raw_socket(theirs, Role::Server, None).await;
        let (tell, events) = mpsc::channel(4);
        let (reports, said) = mpsc::unbounded_channel();
        let (logs, _done) = Logs::new();
        let output = logs.clone();
        let end = tokio::spawn(async move { run(ours, &tell, said, output).await });
        Case { server, events, reports, logs, end }
    }

    fn inventory() -> Report {
        Report::Inventory(Inventory { runtimes: vec![], attempts: vec![], foreign: vec![], last: true })
    }

    /// The next report that the server hears.
    async fn heard(server: &mut WebSocketStream<DuplexStream>) -> Report {
        loop {
            if let Message::Binary(frame) = server.next().await.expect("it lives").expect("it is well") {
                return decode_report(&frame).expect("is well-formed").expect("is known");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_nothing_for_fifteen_seconds_is_left() {
        let case = case(1 << 20).await;
        let begun = tokio::time::Instant::now();
        let why = case.end.await.expect("no panic");
        assert_eq!(begun.elapsed(), SILENCE_MAX);
        assert!(why.contains("nothing was heard"), "{why}");
    }

    #[tokio::test]
    async fn a_numbered_report_is_never_left_out() {
        let mut case = case(1 << 20).await;
        let hollow = |first| Numbered {
            first: ReportNo(first),
            list: vec![Succeeded {
                token: Token::default(),
                timing: Timing { ended_ago: Duration::MAX, ran: None },
                output: OutputLengths::default(),
                result: None,
                note: None,
            }],
        };
        case.reports.send(Report::Success(hollow(1))).expect("taken");
        case.reports.send(inventory()).expect("taken");
        let why = case.end.await.expect("no panic");
        assert!(why.contains("a report cannot be sent"), "{why}");
        while let Some(Ok(message)) = case.server.next().await {
            assert!(!message.is_binary(), "nothing is said behind the hole");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_pings_is_kept() {
        let mut case = case(1 << 20).await;
        let minute = async {
            // Reading is all it takes: pongs are answered below us.
            while let Some(Ok(_)) = case.server.next().await {}
        };
        assert!(tokio::time::timeout(Duration::from_secs(60), minute).await.is_err(), "it was left");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_takes_nothing_is_left() {
        let case = case(1 << 10).await;
        case.logs.push(Token::default(), Stream::Stdout, &[b'x'; 200_000]);
        case.reports.send(inventory()).expect("it lives");
        let why = case.end.await.expect("no panic");
        assert!(why.contains("took nothing") || why.contains("nothing was heard"), "{why}");
    }

    #[tokio::test(start_paused = true)]
    async fn output_waits_for_the_inventory_and_heartbeats_do_not_wait_for_output() {
        let mut case = case(1 << 20).await;
        case.logs.push(Token::default(), Stream::Stdout, &[b'x'; 200_000]);
        case.reports.send(Report::Wanted(vec![])).expect("it lives");
        assert!(matches!(heard(&mut case.server).await, Report::Wanted(_)));

        case.reports.send(inventory()).expect("it lives");
        case.reports.send(Report::Heartbeat(Heartbeat::default())).expect("it lives");

        assert!(matches!(heard(&mut case.server).await, Report::Inventory(_)));
        assert!(matches!(heard(&mut case.server).await, Report::Heartbeat(_)));
        assert!(matches!(heard(&mut case.server).await, Report::Output(_)));
    }

    #[tokio::test]
    async fn what_was_said_goes_out_before_the_socket_is_closed() {
        let mut case = case(1 << 20).await;
        case.reports.send(inventory()).expect("it lives");
        drop(case.reports);
        assert!(matches!(heard(&mut case.server).await, Report::Inventory(_)));
        let close = async {
            loop {
                if let Some(Ok(Message::Close(frame))) = case.server.next().await {
                    return frame.map(|frame| u16::from(frame.code));
                }
            }
        };
        assert_eq!(close.await, Some(close::NORMAL.code));
    }

    #[tokio::test]
    async fn orders_come_in_their_order() {
        let mut case = case(1 << 20).await;
        for number in 1..=3 {
            let frame = encode_order(&Order::Pulse(number)).expect("fits");
            case.server.send(Message::Binary(frame.into())).await.expect("is sent");
        }
        assert!(matches!(case.events.recv().await, Some(LinkEvent::Connected)));
        for number in 1..=3 {
            let Some(LinkEvent::Ordered(Order::Pulse(it))) = case.events.recv().await else {
                panic!("an order comes");
            };
            assert_eq!(it, number);
        }
    }
}
