//! Broken, hostile or slow peers on the worker socket: each gets the close code of the protocol, and the server continues to serve others.

use std::time::Duration;

use protocol::close;
use protocol::report::{ChunkData, Heartbeat, Numbered, OutputLengths, Started, Succeeded, Timing};
use protocol::{JobId, Nonce, Order, Report, ReportNo, Token};
use serde_json::json;
use tokio::time::interval;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use crate::support::peer::{Peer, hello};
use crate::support::{Cluster, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn broken_peer_gets_a_close_code_and_others_are_not_affected() {
    let cluster = Cluster::new(JOBS);
    let mut server = cluster.start_server(&[]).await;
    let _worker = cluster.start_worker("good", FAKE);
    let beat = protocol::wire::encode_report(&Report::Heartbeat(Heartbeat::default())).unwrap();
    let binary = |bytes: &[u8]| Message::Binary(bytes.to_vec().into());
    let oversized = binary(&vec![7; protocol::wire::FRAME_BYTES_MAX + 1]);
    for (why, first, code) in [
        ("text", Message::text("hello"), close::TEXT_FRAME),
        ("an unknown tag", binary(&[77]), close::UNKNOWN_MESSAGE),
        ("a tag that may be skipped", binary(&[200, 1, 2]), close::HELLO_EXPECTED),
        ("nothing in a frame", binary(&[]), close::MALFORMED),
        ("half a Hello", binary(&[0, protocol::WIRE_FORMAT as u8, 1]), close::MALFORMED),
        ("a heartbeat", binary(&beat), close::HELLO_EXPECTED),
        ("too much", oversized.clone(), close::TOO_LARGE),
    ] {
        let mut peer = Peer::knock(cluster.port()).await;
        peer.send(first).await;
        assert_eq!(peer.closed().await, Some(code.code), "{why} instead of Hello");
    }
    let second_hello = protocol::wire::encode_report(&Report::Hello(hello("again", 9))).unwrap();
    for (why, message, code) in [
        ("text", Message::text("{}"), close::TEXT_FRAME),
        ("an unknown tag", binary(&[127]), close::UNKNOWN_MESSAGE),
        ("garbage", binary(&[2, 255, 255, 255, 255, 1]), close::MALFORMED),
        ("trailing bytes", binary(&[&beat[..], &[0]].concat()), close::MALFORMED),
        ("a second Hello", binary(&second_hello), close::MALFORMED),
        ("too much", oversized, close::TOO_LARGE),
    ] {
        let mut peer = Peer::join(cluster.port(), "bad", 1).await;
        // Unknown messages are skipped, and messages before the fault count.
        peer.send(binary(&[255, 1])).await;
        peer.send(binary(&beat)).await;
        peer.send(message).await;
        let (found, reason) = peer.goodbye().await.unwrap();
        assert_eq!(found, code.code, "{why} in a session: {reason}");
        assert_eq!(reason == "malformed: Hello is said once", why == "a second Hello", "{why}: {reason}");
    }
    for (field, message) in impossible_values() {
        let mut peer = Peer::join(cluster.port(), "bad", 1).await;
        peer.send(binary(&message)).await;
        let (code, why) = peer.goodbye().await.unwrap();
        assert_eq!(code, close::MALFORMED.code, "{field}: {why}");
        assert!(why.contains(field), "{field}: {why}");
    }
    let mut reserved = Frame::message(beat.clone(), OpCode::Data(Data::Binary), true);
    reserved.header_mut().rsv1 = true;
    let mut peer = Peer::join(cluster.port(), "bad", 1).await;
    peer.send(Message::Frame(reserved)).await;
    assert_eq!(peer.closed().await, Some(close::PROTOCOL_ERROR.code), "a reserved bit");

    let job = cluster.api().post("/api/jobs/quick?wait=30s", None).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert!(server.is_running());
}

/// Reports with one impossible value each: docs/design/bad-inputs.md, row 80.
fn impossible_values() -> Vec<(&'static str, Vec<u8>)> {
    // Number 1, one entry, attempt 1#1 with nonce 1.
    let entry = [1, 1, 1, 1, 1];
    let token = [1, 1, 1, 1];
    // The bytes before the wrong value, and those after it.
    let report = |tag: u8, head: &[u8], before: &[u8], wrong: &[u8], behind: &[u8]| {
        [&[tag], head, before, wrong, behind].concat()
    };
    let million: &[u8] = &[0xfc, 0x80, 0x84, 0x1e, 0x00];
    let below_a_byte: &[u8] = &[0xfb, 0x2b, 0x01];
    let negative: &[u8] = &[0xfd, 255, 255, 255, 255, 255, 255, 255, 255];
    let huge: &[u8] = &[0xfd, 1, 0, 0, 0, 0, 0, 0x20, 0];
    let in_the_year_3000: &[u8] = &[0xfd, 0, 0xce, 0x3a, 0x29, 7, 0, 0, 0, 0];
    vec![
        ("exit_code", report(3, &entry, &[1, 1], million, &[0; 12])),
        ("exit_code", report(3, &entry, &[1, 1], below_a_byte, &[0; 12])),
        ("offset", report(7, &token, &[0], negative, &[0, 1, b'x'])),
        ("offset", report(7, &token, &[0], huge, &[0, 1, b'x'])),
        ("stdout", report(2, &entry, &[0, 0, 0], huge, &[0; 9])),
        ("ago", report(1, &entry, &[0], in_the_year_3000, &[])),
    ]
}

/// docs/design/bad-inputs.md, row 82: empty messages are tolerated up to a rate.
#[tokio::test(flavor = "multi_thread")]
async fn flood_of_empty_messages_is_closed() {
    let cluster = Cluster::new(JOBS);
    let mut server = cluster.start_server(&[]).await;
    let nothing = protocol::wire::encode_report(&Report::Progress(Vec::new())).unwrap();
    for (what, junk) in [
        ("tags that may be skipped", Message::Binary(vec![200, 1, 2].into())),
        ("empty lists", Message::Binary(nothing.into())),
        ("pings", Message::Ping(Vec::new().into())),
    ] {
        let mut peer = Peer::join(cluster.port(), "junk", 1).await;
        peer.flood(&junk, 5_000).await;
        let (code, why) = peer.goodbye().await.unwrap();
        assert_eq!(code, close::RATE_LIMITED.code, "{what}: {why}");
        assert!(why.contains("more than 1000 messages within a second were empty"), "{what}: {why}");
    }
    assert!(server.is_running());
}

/// As `docs/protocol.md` says: docs/design/bad-inputs.md, row 86.
#[tokio::test(flavor = "multi_thread")]
async fn number_of_frames_in_a_message_is_limited() {
    let cluster = Cluster::new(JOBS);
    let mut server = cluster.start_server(&[]).await;
    let mut peer = Peer::join(cluster.port(), "piecemeal", 1).await;
    for number in [1, 2] {
        let beat = Report::Heartbeat(Heartbeat { number, ..Heartbeat::default() });
        peer.say_in_pieces(&beat, 1_024).await;
        peer.order(|order| matches!(order, Order::Pulse(n) if *n == number)).await;
    }
    peer.say_in_pieces(&Report::Heartbeat(Heartbeat::default()), 1_025).await;
    assert_eq!(peer.closed().await, Some(close::TOO_LARGE.code));
    assert!(server.is_running());
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_without_hello_is_closed() {
    let cluster = Cluster::new(JOBS);
    let _server = cluster.start_server(&[]).await;
    let mut peer = Peer::knock(cluster.port()).await;
    peer.send(Message::Ping(Vec::new().into())).await;
    assert_eq!(peer.closed().await, Some(close::HELLO_EXPECTED.code));
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_reconnect_at_the_time_that_a_stopping_server_gave() {
    let cluster = Cluster::new(JOBS);
    let mut server = cluster.start_server(&[]).await;
    let mut worker = cluster.start_worker("good", FAKE);
    cluster.api().wait_for_ready_worker("good").await;
    let mut peer = Peer::join(cluster.port(), "listens", 1).await;
    let heard = async {
        let order = peer.order(|order| matches!(order, Order::GoAway(_))).await;
        (order, peer.closed().await)
    };
    let ((order, code), ()) = tokio::join!(heard, server.terminate());
    let Order::GoAway(away) = order else { unreachable!("it was just asked for") };
    let soon = Duration::from_millis(500)..=Duration::from_millis(2_500);
    assert!(soon.contains(&away.reconnect_after) && away.elsewhere.is_none(), "{away:?}");
    assert_eq!(code, Some(close::GOING_AWAY.code));

    let _server = cluster.start_server(&[]).await;
    cluster.api().wait_for_ready_worker("good").await;
    assert!(worker.log().contains("the server asked us to reconnect"), "{}", worker.log());
    worker.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_about_the_attempt_of_another_worker_is_ignored() {
    let cluster = Cluster::new(JOBS);
    let mut server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let mut bearer = Peer::join(cluster.port(), "bearer", 1).await;
    let job = api.post("/api/jobs/quick", None).await["id"].as_u64().unwrap();
    let token = bearer.enqueued().await;
    assert_eq!(token.job, JobId(job));
    bearer
        .say(&Report::Running(first_of(Started { token, container: String::new(), ago: Duration::ZERO })))
        .await;
    api.wait_for_job(job, |job| job["state"] == "running").await;

    let mut forger = Peer::join(cluster.port(), "forger", 2).await;
    let unheard = Token { job: JobId(1_000_000), ..token };
    for (number, token) in (1..).zip([token, unheard]) {
        forger.say(&Report::Success(Numbered { first: ReportNo(number), list: vec![success(token)] })).await;
        forger.order(|order| matches!(order, Order::Acknowledge(ReportNo(n)) if *n == number)).await;
    }
    let shown = api.get(&format!("/api/jobs/{job}")).await;
    assert_eq!((&shown["state"], &shown["late_reports"]), (&json!("running"), &json!([])), "{shown}");
    let log = server.log();
    let ignored = log.matches("the attempt was never assigned to this worker").count();
    assert_eq!(ignored, 1, "one line a session: {log}");

    bearer.say(&Report::Success(Numbered { first: ReportNo(2), list: vec![success(token)] })).await;
    let shown = api.wait_for_job(job, |job| job["state"] == "succeeded").await;
    assert_eq!(
        (shown["worker"]["name"].as_str(), shown["attempt_count"].as_u64()),
        (Some("bearer"), Some(1))
    );
    server.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_for_the_attempt_of_another_worker_is_ignored() {
    let cluster = Cluster::new(JOBS);
    let mut server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let mut bearer = Peer::join(cluster.port(), "bearer", 1).await;
    let job = api.post("/api/jobs/quick", None).await["id"].as_u64().unwrap();
    let token = bearer.enqueued().await;

    // The peer names the attempt as its own and learns that its output is not wanted.
    let (mut forger, _) = Peer::join_with(cluster.port(), "forger", 2, vec![token]).await;
    forger.write(token, "forged\n").await;
    let guessed = Token { nonce: Nonce(token.nonce.0 ^ 1), ..token };
    forger.write(guessed, "guessed\n").await;

    // The owner of the attempt writes on after a reconnect.
    drop(bearer);
    let (mut bearer, _) = Peer::join_with(cluster.port(), "bearer", 1, vec![token]).await;
    bearer.write(token, "true\n").await;
    assert_eq!(api.get_bytes(&format!("/api/jobs/{job}/logs")).await, b"true\n");
    bearer.say(&Report::Success(Numbered { first: ReportNo(1), list: vec![success(token)] })).await;
    api.wait_for_job(job, |job| job["state"] == "succeeded").await;

    forger.write(token, "forged later, and longer\n").await;
    assert_eq!(api.get_bytes(&format!("/api/jobs/{job}/logs")).await, b"true\n");
    server.terminate().await;
}

/// A worker that does not keep to `log.max_bytes` of the definition.
#[tokio::test(flavor = "multi_thread")]
async fn output_beyond_the_limit_of_an_attempt_is_cut_and_acknowledged() {
    let cluster = Cluster::new(SHORT_OUTPUT);
    let mut server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let mut greedy = Peer::join(cluster.port(), "greedy", 1).await;
    let job = api.post("/api/jobs/quick", None).await["id"].as_u64().unwrap();
    let token = greedy.enqueued().await;
    let bytes = |byte, count| ChunkData::Bytes(vec![byte; count]);
    greedy.write_at(token, 0, bytes(b'a', 60_000)).await;
    greedy.write_at(token, 60_000, bytes(b'b', 60_000)).await;
    greedy.write_at(token, 120_000, bytes(b'c', 1_000)).await;
    // Another connection and another server count on from what is stored.
    drop(greedy);
    server.terminate().await;
    let mut server = cluster.start_server(&[]).await;
    let (mut greedy, _) = Peer::join_with(cluster.port(), "greedy", 1, vec![token]).await;
    greedy.write_at(token, 121_000, bytes(b'd', 1_000)).await;
    let ended = Succeeded { output: OutputLengths { stdout: 122_000, stderr: 1_000 }, ..success(token) };
    greedy.say(&Report::Success(first_of(ended))).await;
    api.wait_for_job(job, |job| job["state"] == "succeeded").await;

    let kept = [vec![b'a'; 60_000], vec![b'b'; (96 << 10) - 60_000]].concat();
    let note = b"\nlongshore: output cut at log.max_bytes (64 KiB)\n";
    let shown = api.get_bytes(&format!("/api/jobs/{job}/logs")).await;
    assert!(shown == [&kept[..], note].concat(), "{}", String::from_utf8_lossy(&shown[shown.len() - 200..]));
    let followed = api.get_bytes(&format!("/api/jobs/{job}/logs?follow=1")).await;
    let end = format!("longshore: job {job} succeeded\n");
    assert!(followed == [&kept[..], note, end.as_bytes()].concat(), "nothing is late or missing");
    let other = api.get_bytes(&format!("/api/jobs/{job}/logs?stream=stderr")).await;
    assert_eq!(String::from_utf8_lossy(&other), "longshore: output cut at log.max_bytes (64 KiB)\n");
    let (code, shown) =
        cluster.run_cli(&["logs", &job.to_string(), "--tail", "1", "--server", &cluster.address()]);
    assert!(code == 0 && shown.contains("longshore: output cut at log.max_bytes (64 KiB)"), "{shown}");
    server.terminate().await;
}

/// A worker leaves out the middle of an output that is longer than `log.max_bytes`.
#[tokio::test(flavor = "multi_thread")]
async fn middle_of_a_long_output_is_told_as_cut_and_a_lost_part_as_missing() {
    let cluster = Cluster::new(SHORT_OUTPUT);
    let mut server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let mut peer = Peer::join(cluster.port(), "honest", 1).await;
    for (number, gap, told) in [
        (1, 42_656, "42656 bytes of stdout cut at log.max_bytes (64 KiB)"),
        (2, 42_655, "42655 bytes of stdout are missing"),
    ] {
        let job = api.post("/api/jobs/quick", None).await["id"].as_u64().unwrap();
        let token = peer.enqueued().await;
        peer.write_at(token, 0, ChunkData::Bytes(vec![b'a'; 48 << 10])).await;
        // The follower has read all of it, and then comes the gap before the report of the end.
        let followed = tokio::spawn({
            let api = cluster.api();
            async move { api.get_bytes(&format!("/api/jobs/{job}/logs?follow=1")).await }
        });
        peer.write_at(token, 48 << 10, ChunkData::Gap(gap)).await;
        let tail = (48 << 10) + gap;
        let end = OutputLengths { stdout: 100_000, stderr: 0 };
        peer.write_at(token, tail, ChunkData::Bytes(vec![b'z'; (end.stdout - tail) as usize])).await;
        let list = vec![Succeeded { output: end, ..success(token) }];
        peer.say(&Report::Success(Numbered { first: ReportNo(number), list })).await;
        api.wait_for_job(job, |job| job["state"] == "succeeded").await;
        for shown in [api.get_bytes(&format!("/api/jobs/{job}/logs")).await, followed.await.unwrap()] {
            let shown = String::from_utf8(shown).unwrap();
            // The follower may have heard before that the middle is withheld.
            let shown: String =
                shown.split_inclusive('\n').filter(|line| !line.contains("not shown while")).collect();
            assert!(shown.contains(&format!("a\nlongshore: {told}\nz")), "{}", shown.replace("aaa", ""));
        }
    }
    server.terminate().await;
}

/// The peer sends heartbeats and reads nothing.
#[tokio::test(flavor = "multi_thread")]
async fn peer_that_does_not_read_is_disconnected() {
    let cluster = Cluster::new(JOBS);
    let mut server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let mut slow = Peer::join(cluster.port(), "slow", 1).await;
    let entry = json!({ "name": "quick", "args": ["first", "x".repeat(100 << 10)] });
    for _ in 0..10 {
        api.post("/api/jobs", Some(&serde_json::Value::Array(vec![entry.clone(); 40]))).await;
    }
    let mut beats = interval(Duration::from_secs(1));
    let gone = async {
        api.wait_for_worker("slow", |worker| worker["connected"] == false).await;
    };
    let mut number = 0;
    tokio::pin!(gone);
    loop {
        tokio::select! {
            () = &mut gone => break,
            _ = beats.tick() => {
                number += 1;
                slow.try_say(&Report::Heartbeat(Heartbeat { number, ..Heartbeat::default() })).await;
            }
        }
    }
    let _worker = cluster.start_worker("good", FAKE);
    api.wait_for_ready_worker("good").await;
    wait_until("others are served", async || {
        api.post("/api/jobs/quick?wait=5s", Some(&json!({ "priority": 9 }))).await["state"] == "succeeded"
    })
    .await;
    server.terminate().await;
}

/// The server rejects a result that is not JSON. The worker leaves the result out after some tries, and the job ends.
#[tokio::test(flavor = "multi_thread")]
async fn job_ends_although_its_result_is_not_json() {
    let cluster = Cluster::new(BAD_RESULT);
    let mut server = cluster.start_server(&[]).await;
    let mut worker = cluster.start_worker("good", FAKE);
    let bad = cluster.api().post("/api/jobs/bad?wait=50s", None).await;
    assert_eq!((bad["state"].as_str(), bad["result"].is_null()), (Some("succeeded"), true), "{bad}");
    assert!(worker.log().contains("Success.result of 1#1: it is not JSON"), "{}", worker.log());
    let good = cluster.api().post("/api/jobs/good?wait=30s", None).await;
    assert_eq!(good["result"], json!({ "ok": true }), "{good}");
    worker.terminate().await;
    server.terminate().await;
}

const BAD_RESULT: &str = "\
version: 1
defaults: { runtime: fake }
jobs:
  bad: { environment: { FAKE_RESULT: '{not json' } }
  good: { environment: { FAKE_RESULT: '{\"ok\": true}' } }
";

fn first_of<T>(entry: T) -> Numbered<T> {
    Numbered { first: ReportNo(1), list: vec![entry] }
}

fn success(token: Token) -> Succeeded {
    let (timing, output) = (Timing::default(), OutputLengths::default());
    Succeeded { token, timing, output, usage: Default::default(), result: None, note: None }
}

const FAKE: &[&str] = &["--no-docker", "--allow-fake"];
const JOBS: &str = "\
version: 1
jobs:
  quick: { runtime: fake }
";

const SHORT_OUTPUT: &str = "\
version: 1
jobs:
  quick: { runtime: fake, log: { max_bytes: 64k } }
";
