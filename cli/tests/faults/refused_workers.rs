//! Refused workers: without token, with an invalid Hello, with the name of another worker, or at the wrong server. Each gets the reason,
//! and its jobs continue (docs/design/bad-inputs.md, rows 70, 77, 78, 84, 85, 87).

use std::os::unix::fs::OpenOptionsExt as _;

use protocol::report::Hello;
use protocol::version::VersionRange;
use protocol::{ClusterId, Order, Report, VERSIONS, WIRE_FORMAT, close};
use tokio_tungstenite::tungstenite::Message;

use crate::support::peer::{Peer, ask_by, ask_for_socket, ask_without_subprotocol, hello};
use crate::support::{Cluster, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn websocket_without_token_is_refused() {
    use std::io::Write as _;
    let cluster = Cluster::new(JOBS);
    for name in ["api", "worker"] {
        let options = std::fs::File::options().write(true).create_new(true).mode(0o600).to_owned();
        write!(options.open(cluster.path(name)).unwrap(), "{name}-s3cret-s3cret-s3cret-s3cret").unwrap();
    }
    let file = |name: &str| cluster.path(name).to_str().unwrap().to_owned();
    let flags = ["--api-token-file", &file("api"), "--worker-token-file", &file("worker")];
    let _server = cluster.spawn_server(&flags);
    cluster.api().wait_until_ready().await;
    let bearer = |token: &str| format!("Bearer {token}");
    let good = bearer("worker-s3cret-s3cret-s3cret-s3cret");
    for (token, status) in
        [(None, "401"), (Some(bearer("nobody's-s3cret-s3cret-s3cret")), "401"), (Some(good), "101")]
    {
        let header = token.as_ref().map(|token| ("Authorization", token.as_str()));
        let answer = ask_for_socket(cluster.port(), header.as_slice()).await;
        assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{answer}");
        assert_eq!(answer.contains("www-authenticate: bearer"), status == "401", "{answer}");
        assert_eq!(answer.contains("sec-websocket-accept"), status == "101", "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_requires_get() {
    let cluster = Cluster::new(JOBS);
    let _server = cluster.start_server(&[]).await;
    for method in ["GET", "HEAD"] {
        let answer = ask_by(method, cluster.port(), &[]).await;
        let status = if method == "GET" { "101" } else { "426" };
        assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{method}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_subprotocol_there_is_no_socket() {
    let cluster = Cluster::new(JOBS);
    let _server = cluster.start_server(&[]).await;
    for offer in [None, Some("longshore.v2"), Some("chat, superchat")] {
        let (head, body) = ask_without_subprotocol(cluster.port(), offer).await;
        assert!(head.starts_with("http/1.1 400 "), "{offer:?}: {head}");
        assert!(body.contains("subprotocol_required") && body.contains("longshore.v1"), "{offer:?}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_extensions_are_not_negotiated() {
    let cluster = Cluster::new(JOBS);
    let _server = cluster.start_server(&[]).await;
    let offers = ["permessage-deflate", "permessage-deflate; client_max_window_bits, x-webkit-deflate-frame"];
    for offer in offers {
        let answer = ask_for_socket(cluster.port(), &[("Sec-WebSocket-Extensions", offer)]).await;
        assert!(answer.starts_with("http/1.1 101 "), "{answer}");
        assert!(!answer.contains("extensions"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_hello_is_refused_with_the_name_of_its_field() {
    let cluster = Cluster::new(JOBS);
    let _server = cluster.start_server(&[]).await;
    let marked = Hello {
        slots: 7_777,
        backlog: 8_888,
        labels: vec![("zone".to_owned(), "north".to_owned())],
        ..hello("spoilt", 1)
    };
    let valid = protocol::wire::encode_report(&Report::Hello(marked)).unwrap();
    let (slots, backlog, label) =
        (&[0xfb, 0x61, 0x1e][..], &[0xfb, 0xb8, 0x22][..], &b"\x01\x04zone\x05north"[..]);
    let many_labels = [&[0xfb, 0xe8, 0x03], &b"\x01a\x00".repeat(1_000)[..]].concat();
    for (field, was, becomes) in [
        ("slots", slots, &[0xfc, 0x00, 0xca, 0x9a, 0x3b][..]),
        ("backlog", backlog, &[0xfc, 0x00, 0xca, 0x9a, 0x3b]),
        ("labels", label, &many_labels),
        ("labels", label, b"\x01\x04zone\x05no\x1bth"),
        ("labels", label, b"\x01\x04z\x07ne\x05north"),
        ("name", b"spoilt", b"sp\noil"),
        ("name", b"spoilt", b"../oil"),
    ] {
        let mut peer = Peer::knock(cluster.port()).await;
        peer.send(Message::Binary(replaced(&valid, was, becomes).into())).await;
        let (code, why) = peer.goodbye().await.unwrap();
        assert_eq!(code, close::INVALID_HELLO.code, "{field}: {why}");
        assert!(why.starts_with("invalid_hello: ") && why.contains(field), "{field}: {why}");
    }
    // The unchanged Hello is accepted.
    let mut peer = Peer::knock(cluster.port()).await;
    peer.send(Message::Binary(valid.into())).await;
    peer.order(|order| matches!(order, Order::Welcome(_))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_worker_gets_the_reason() {
    let cluster = Cluster::new(JOBS);
    let _server = cluster.start_server(&[]).await;
    let _owner = Peer::join(cluster.port(), "taken", 1).await;
    let VersionRange { lowest, highest } = VERSIONS;
    let ours = format!("{lowest} to {highest}");
    let newer = VersionRange { lowest: 90, highest: 91 };
    for (bad, code, refusal, words) in [
        (
            Hello { versions: newer, ..hello("newer", 2) },
            close::UNSUPPORTED_VERSION,
            "unsupported_version",
            ["90 to 91", &ours],
        ),
        (hello("taken", 3), close::DUPLICATE_WORKER, "name_taken", ["worker 1", "\"taken\""]),
        (
            Hello { cluster: Some(ClusterId(0x5ca1_ab1e)), ..hello("lost", 4) },
            close::WRONG_CLUSTER,
            "wrong_cluster",
            ["5ca1ab1e", "rejoin"],
        ),
    ] {
        let mut peer = Peer::knock(cluster.port()).await;
        peer.say(&Report::Hello(bad)).await;
        let order = peer.order(|order| matches!(order, Order::Refused(_))).await;
        let Order::Refused(refused) = order else { unreachable!("it was just asked for") };
        assert_eq!(refused.code, refusal);
        assert!(words.iter().all(|word| refused.text.contains(word)), "{}", refused.text);
        assert_eq!(peer.closed().await, Some(code.code), "{refusal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hello_in_another_wire_format_is_refused_with_both_named() {
    let cluster = Cluster::new(JOBS);
    let _server = cluster.start_server(&[]).await;
    let valid = protocol::wire::encode_report(&Report::Hello(hello("other", 5))).unwrap();
    // Before the format had a number, its place was that of the lowest version, which is 1.
    for theirs in [1, 77] {
        let mut bytes = valid.clone();
        bytes[1] = theirs;
        let mut peer = Peer::knock(cluster.port()).await;
        peer.send(Message::Binary(bytes.into())).await;
        let order = peer.order(|order| matches!(order, Order::Refused(_))).await;
        let Order::Refused(refused) = order else { unreachable!("it was just asked for") };
        assert_eq!(refused.code, "unsupported_version");
        let both = [format!("wire format {theirs}"), format!("wire format {WIRE_FORMAT}")];
        assert!(both.iter().all(|format| refused.text.contains(format)), "{}", refused.text);
        let (code, why) = peer.goodbye().await.unwrap();
        assert_eq!(code, close::UNSUPPORTED_VERSION.code, "{why}");
    }
}

/// It was told nothing by the server that it belongs to, so it goes on with what that one gave it.
#[tokio::test(flavor = "multi_thread")]
async fn worker_that_reaches_another_cluster_keeps_its_jobs_running() {
    let cluster = Cluster::new("");
    let (go, ended) = (cluster.path("go"), cluster.path("ended"));
    let test = std::process::id();
    let wait = format!(
        "while [ ! -e {} ] && [ -d /proc/{test} ]; do sleep 0.05; done; echo >{}",
        go.display(),
        ended.display()
    );
    let jobs = format!("version: 1\njobs: {{ wait: {{ runtime: process, command: [sh, -c, '{wait}'] }} }}\n");
    std::fs::write(cluster.path("jobs.yaml"), jobs).unwrap();
    let mut server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let mut worker = cluster.start_worker("only", &["--no-docker", "--allow-process"]);
    let job = api.post("/api/jobs/wait", None).await["id"].as_u64().unwrap();
    api.wait_for_job(job, |job| job["state"] == "running").await;

    server.kill();
    std::fs::rename(cluster.path("data"), cluster.path("own")).unwrap();
    let mut other = cluster.start_server(&[]).await;
    wait_until("the worker says that it is refused", async || worker.log().contains("wrong_cluster")).await;
    assert!(worker.is_running() && !ended.exists());
    other.terminate().await;

    std::fs::write(go, "").unwrap();
    wait_until("the job ends by itself", async || ended.exists()).await;
    std::fs::rename(cluster.path("data"), cluster.path("other")).unwrap();
    std::fs::rename(cluster.path("own"), cluster.path("data")).unwrap();
    let mut server = cluster.start_server(&[]).await;
    let shown = api.wait_for_job(job, |job| job["state"] == "succeeded").await;
    assert_eq!(shown["attempt_count"], 1, "{shown}");
    worker.terminate().await;
    server.terminate().await;
}

/// Replaces one part of these bytes, which they contain once.
fn replaced(bytes: &[u8], part: &[u8], by: &[u8]) -> Vec<u8> {
    let at: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(part)).collect();
    let [at] = at[..] else { panic!("{part:x?} is {} times in {bytes:x?}", at.len()) };
    [&bytes[..at], by, &bytes[at + part.len()..]].concat()
}

const JOBS: &str = "\
version: 1
jobs:
  quick: { runtime: fake }
";
