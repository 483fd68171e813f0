//! The connection: handshake, identity, refusals, nonsense from the other side.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::SinkExt;
use protocol::close;
use protocol::order::{GoAway, Refused};
use protocol::report::Availability;
use protocol::{ClusterId, Incarnation, Order, Report, ReportNo, RuntimeKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

use crate::stub::{Stub, Worker, config, soon};

#[tokio::test]
async fn hello_identifies_the_worker_and_the_token_is_in_the_header() {
    let stub = Stub::bind().await;
    let token_dir = tempfile::tempdir().expect("a directory");
    let token_file = token_dir.path().join("token");
    std::fs::write(&token_file, "ls_secret\n").expect("writes");
    std::fs::set_permissions(&token_file, std::fs::Permissions::from_mode(0o600)).expect("sets");
    let _worker = Worker::start_with(&stub, |config| {
        config.token_file = Some(token_file);
        config.labels = vec![("gpu".to_owned(), "a100".to_owned())];
    });

    let (mut peer, path, token) = stub.accept_with_headers().await;

    assert_eq!(path, "/api/workers/connect");
    assert_eq!(token.as_deref(), Some("Bearer ls_secret"));
    let hello = peer.hello().await;
    assert_eq!((hello.name.as_str(), hello.slots, hello.backlog), ("w1", 2, 2));
    assert_eq!(hello.labels, [("gpu".to_owned(), "a100".to_owned())]);
    assert_eq!(hello.runtimes, [(RuntimeKind::Fake, Availability::Available)]);
    assert_eq!((hello.incarnation, hello.cluster), (Incarnation(1), None));
}

#[tokio::test]
async fn a_restarted_worker_is_the_same_worker_in_its_next_incarnation() {
    let stub = Stub::bind().await;
    let worker = Worker::start(&stub);
    let mut peer = stub.accept().await;
    let before = peer.welcome(ReportNo(0)).await;
    peer.until(|it| matches!(it, Report::Inventory(_)).then_some(())).await;
    worker.task.abort();
    assert!(worker.task.await.expect_err("aborted").is_cancelled());

    let shutdown_requests = tokio::sync::mpsc::channel(1).1;
    let again =
        tokio::spawn(longshore_client::run(config(&stub, &worker.dir), shutdown_requests, Arc::default()));
    let after = stub.accept().await.hello().await;

    assert_eq!(after.secret, before.secret);
    assert_eq!(after.incarnation, Incarnation(2));
    assert_eq!(after.cluster, Some(ClusterId(0xc1)));
    again.abort();
}

#[tokio::test]
async fn a_refused_worker_tries_again() {
    let stub = Stub::bind().await;
    let _worker = Worker::start(&stub);
    for _ in 0..2 {
        let mut peer = stub.accept().await;
        peer.hello().await;
        peer.say(Order::Refused(Refused {
            code: "name_taken".to_owned(),
            text: "another worker is called w1".to_owned(),
            retry_after: Duration::from_millis(1),
        }))
        .await;
    }
    stub.join().await;
}

#[tokio::test]
async fn a_worker_reconnects_after_go_away() {
    let stub = Stub::bind().await;
    let _worker = Worker::start(&stub);
    let mut peer = stub.join().await;
    peer.say(Order::GoAway(GoAway { reconnect_after: Duration::from_millis(1), elsewhere: None })).await;
    stub.join().await;
}

#[tokio::test]
async fn a_worker_follows_go_away_to_another_address() {
    let stub = Stub::bind().await;
    let other = Stub::bind().await;
    let _worker = Worker::start(&stub);
    let mut peer = stub.join().await;
    let elsewhere = Some(other.address());
    peer.say(Order::GoAway(GoAway { reconnect_after: Duration::from_millis(1), elsewhere })).await;
    let peer = other.join().await;
    drop(peer);
    // The other address is for one connection; the next one goes to the configured address again.
    stub.join().await;
}

#[tokio::test]
async fn the_worker_dials_until_the_server_is_there() {
    let stub = Stub::bind().await;
    let _worker = Worker::start(&stub);
    for _ in 0..2 {
        let mut tcp = stub.accept_tcp().await;
        let mut request = [0; 4096];
        let _ = soon("the request", tcp.read(&mut request)).await.expect("reads");
        tcp.write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")
            .await
            .expect("writes");
    }
    stub.join().await;
}

#[tokio::test]
async fn a_malformed_frame_closes_the_connection_and_the_worker_reconnects() {
    let cases: [(Message, u16); 3] = [
        (Message::Text("hello".into()), close::TEXT_FRAME.code),
        (Message::Binary(vec![99].into()), close::UNKNOWN_MESSAGE.code),
        (Message::Binary(vec![2, 0xff, 0xff].into()), close::MALFORMED.code),
    ];
    let stub = Stub::bind().await;
    let _worker = Worker::start(&stub);
    for (nonsense, code) in cases {
        let mut peer = stub.join().await;
        peer.socket.send(nonsense).await.expect("is sent");
        assert_eq!(peer.closed().await, Some(code));
    }
    stub.join().await;
}

#[tokio::test]
async fn a_too_large_frame_closes_the_connection_and_the_worker_reconnects() {
    let stub = Stub::bind().await;
    let _worker = Worker::start(&stub);
    let mut peer = stub.join().await;
    // The worker closes at the oversized frame, so our last bytes and its close frame may be lost.
    let _ = peer.socket.send(Message::Binary(vec![0; (1 << 20) + 1].into())).await;
    stub.join().await;
}

#[tokio::test]
async fn an_unknown_optional_frame_is_skipped() {
    let stub = Stub::bind().await;
    let _worker = Worker::start(&stub);
    let mut peer = stub.join().await;
    peer.socket.send(Message::Binary(vec![200, 1, 2, 3].into())).await.expect("is sent");
    peer.say(Order::Recall(vec![crate::stub::token(1)])).await;
    assert!(matches!(peer.next().await, Report::Status(_)));
}

#[tokio::test]
async fn heartbeats_carry_load_and_disk() {
    let stub = Stub::bind().await;
    let _worker = Worker::start(&stub);
    let mut peer = stub.join().await;
    loop {
        if let Some(Message::Binary(frame)) = peer.message().await
            && let Ok(Some(Report::Heartbeat(beat))) = protocol::wire::decode_report(&frame)
        {
            assert_eq!((beat.number, beat.busy, beat.queued), (1, 0, 0));
            assert!(beat.disk_free_bytes > Some(0) && beat.load_milli.is_some(), "{beat:?}");
            break;
        }
    }
}

#[tokio::test]
async fn two_workers_cannot_share_a_state_directory() {
    let stub = Stub::bind().await;
    let worker = Worker::start(&stub);
    stub.join().await;
    let shutdown_requests = tokio::sync::mpsc::channel(1).1;
    let second = longshore_client::run(config(&stub, &worker.dir), shutdown_requests, Arc::default());
    let error = soon("the refusal", second).await.expect_err("the directory is taken").to_string();
    assert!(error.contains("in use by pid"), "{error}");
}
