//! Who is not let in: without a token, with a Hello that cannot be, with somebody else's name, to the wrong server. Each is told what is
//! wrong, and those that have jobs go on with them (BAD-INPUTS.md rows 70, 77, 78, 84, 85, 87).

use std::os::unix::fs::OpenOptionsExt as _;

use protocol::order::VersionRange;
use protocol::report::Hello;
use protocol::{ClusterId, Order, Report, VERSIONS, close};
use tokio_tungstenite::tungstenite::Message;

use crate::support::peer::{Peer, ask_by, ask_for_socket, hello};
use crate::support::{Stage, holds};

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_there_is_no_socket() {
    use std::io::Write as _;
    let stage = Stage::new(JOBS);
    for name in ["api", "worker"] {
        let options = std::fs::File::options().write(true).create_new(true).mode(0o600).to_owned();
        write!(options.open(stage.path(name)).unwrap(), "{name}-s3cret-s3cret-s3cret-s3cret").unwrap();
    }
    let file = |name: &str| stage.path(name).to_str().unwrap().to_owned();
    let flags = ["--api-token-file", &file("api"), "--worker-token-file", &file("worker")];
    let _server = stage.launch_server(&flags);
    stage.api().ready().await;
    let bearer = |token: &str| format!("Bearer {token}");
    let good = bearer("worker-s3cret-s3cret-s3cret-s3cret");
    for (token, status) in
        [(None, "401"), (Some(bearer("nobody's-s3cret-s3cret-s3cret")), "401"), (Some(good), "101")]
    {
        let header = token.as_ref().map(|token| ("Authorization", token.as_str()));
        let answer = ask_for_socket(stage.port(), header.as_slice()).await;
        assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{answer}");
        assert_eq!(answer.contains("www-authenticate: bearer"), status == "401", "{answer}");
        assert_eq!(answer.contains("sec-websocket-accept"), status == "101", "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_get_asks_for_a_socket() {
    let stage = Stage::new(JOBS);
    let _server = stage.server(&[]).await;
    for method in ["GET", "HEAD"] {
        let answer = ask_by(method, stage.port(), &[]).await;
        let status = if method == "GET" { "101" } else { "426" };
        assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{method}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_extension_is_agreed_upon() {
    let stage = Stage::new(JOBS);
    let _server = stage.server(&[]).await;
    let offers = ["permessage-deflate", "permessage-deflate; client_max_window_bits, x-webkit-deflate-frame"];
    for offer in offers {
        let answer = ask_for_socket(stage.port(), &[("Sec-WebSocket-Extensions", offer)]).await;
        assert!(answer.starts_with("http/1.1 101 "), "{answer}");
        assert!(!answer.contains("extensions"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hello_that_cannot_be_is_refused_by_the_name_of_its_field() {
    let stage = Stage::new(JOBS);
    let _server = stage.server(&[]).await;
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
        let mut peer = Peer::knock(stage.port()).await;
        peer.send(Message::Binary(replaced(&valid, was, becomes).into())).await;
        let (code, why) = peer.goodbye().await.unwrap();
        assert_eq!(code, close::INVALID_HELLO.code, "{field}: {why}");
        assert!(why.starts_with("invalid_hello: ") && why.contains(field), "{field}: {why}");
    }
    // As it was, it is let in.
    let mut peer = Peer::knock(stage.port()).await;
    peer.send(Message::Binary(valid.into())).await;
    peer.order(|order| matches!(order, Order::Welcome(_))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_be_let_in_is_told_why() {
    let stage = Stage::new(JOBS);
    let _server = stage.server(&[]).await;
    let _owner = Peer::join(stage.port(), "taken", 1).await;
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
        let mut peer = Peer::knock(stage.port()).await;
        peer.say(&Report::Hello(bad)).await;
        let order = peer.order(|order| matches!(order, Order::Refused(_))).await;
        let Order::Refused(refused) = order else { unreachable!("it was just asked for") };
        assert_eq!(refused.code, refusal);
        assert!(words.iter().all(|word| refused.text.contains(word)), "{}", refused.text);
        assert_eq!(peer.closed().await, Some(code.code), "{refusal}");
    }
}

/// It was told nothing by the server that it belongs to, so it goes on with what that one gave it.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_finds_another_server_leaves_its_jobs_alone() {
    let stage = Stage::new("");
    let (go, ended) = (stage.path("go"), stage.path("ended"));
    let test = std::process::id();
    let wait = format!(
        "while [ ! -e {} ] && [ -d /proc/{test} ]; do sleep 0.05; done; echo >{}",
        go.display(),
        ended.display()
    );
    let jobs = format!("version: 1\njobs: {{ wait: {{ runtime: process, command: [sh, -c, '{wait}'] }} }}\n");
    std::fs::write(stage.path("jobs.yaml"), jobs).unwrap();
    let mut server = stage.server(&[]).await;
    let api = stage.api();
    let mut worker = stage.worker("only", &["--no-docker", "--allow-process"]);
    let job = api.post("/api/jobs/wait", None).await["id"].as_u64().unwrap();
    api.job(job, |job| job["state"] == "running").await;

    server.kill();
    std::fs::rename(stage.path("data"), stage.path("own")).unwrap();
    let mut other = stage.server(&[]).await;
    holds("the worker says that it is refused", async || worker.said().contains("wrong_cluster")).await;
    assert!(worker.is_alive() && !ended.exists());
    other.leave().await;

    std::fs::write(go, "").unwrap();
    holds("the job ends by itself", async || ended.exists()).await;
    std::fs::rename(stage.path("data"), stage.path("other")).unwrap();
    std::fs::rename(stage.path("own"), stage.path("data")).unwrap();
    let mut server = stage.server(&[]).await;
    let shown = api.job(job, |job| job["state"] == "succeeded").await;
    assert_eq!(shown["attempt_count"], 1, "{shown}");
    worker.leave().await;
    server.leave().await;
}

/// These bytes with one part, which is in them once, in another's place.
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
