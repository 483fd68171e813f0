//! A session whose other end is controlled by the test.

use protocol::order::Configure;
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
    events: Receiver<ConnectionEvent>,
    reports: UnboundedSender<Report>,
    logs: Logs,
    end: JoinHandle<(String, bool)>,
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

/// The next report that arrives at the server.
async fn heard(server: &mut WebSocketStream<DuplexStream>) -> Report {
    loop {
        if let Message::Binary(frame) = server.next().await.expect("it lives").expect("it is well") {
            return decode_report(&frame).expect("is well-formed").expect("is known");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_disconnected_after_fifteen_seconds() {
    let case = case(1 << 20).await;
    let begun = tokio::time::Instant::now();
    let (why, _) = case.end.await.expect("no panic");
    assert_eq!(begun.elapsed(), Duration::from_secs(15));
    assert!(why.contains("nothing was heard"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn with_a_shorter_lease_silence_is_noticed_sooner_and_pings_come_more_often() {
    let mut case = case(1 << 20).await;
    let lease = Duration::from_secs(3);
    let intervals = Intervals { heartbeat: lease / 6, lease, start_gate: lease / 10 };
    let configure = Order::Configure(Configure { slots: None, drain: false, intervals: Some(intervals) });
    let frame = encode_order(&configure).expect("fits");
    case.server.send(Message::Binary(frame.into())).await.expect("is sent");
    let begun = tokio::time::Instant::now();
    let (why, _) = case.end.await.expect("no panic");
    assert_eq!(begun.elapsed(), lease / 2, "{why}");
    let said = case.server.next().await.expect("it said something").expect("it was well");
    assert!(said.is_ping(), "{said:?}");
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
            usage: Default::default(),
            result: None,
            note: None,
        }],
    };
    case.reports.send(Report::Success(hollow(1))).expect("taken");
    case.reports.send(inventory()).expect("taken");
    let (why, _) = case.end.await.expect("no panic");
    assert!(why.contains("a report cannot be sent"), "{why}");
    while let Some(Ok(message)) = case.server.next().await {
        assert!(!message.is_binary(), "nothing is sent after the missing number");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_pings_is_kept() {
    let mut case = case(1 << 20).await;
    let minute = async {
        // Reading is enough: the library answers pings.
        while let Some(Ok(_)) = case.server.next().await {}
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), minute).await.is_err(), "it was left");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_read_is_disconnected() {
    let case = case(1 << 10).await;
    case.logs.push(Token::default(), Stream::Stdout, &[b'x'; 200_000]);
    case.reports.send(inventory()).expect("it lives");
    let (why, _) = case.end.await.expect("no panic");
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
async fn queued_reports_are_sent_before_the_socket_is_closed() {
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
    assert!(matches!(case.events.recv().await, Some(ConnectionEvent::Connected)));
    for number in 1..=3 {
        let Some(ConnectionEvent::Ordered(Order::Pulse(it))) = case.events.recv().await else {
            panic!("an order comes");
        };
        assert_eq!(it, number);
    }
}
