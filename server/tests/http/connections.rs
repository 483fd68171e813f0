//! Connections: who has a place, for how long, and what becomes of it when the server leaves.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use axum::Router;
use longshore_server::auth::Access;
use longshore_server::listener::tls::{Tls, TlsFiles};
use longshore_server::listener::{Limits, ListenError, Listener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::support::{Server, within};

#[tokio::test]
async fn a_connection_without_a_request_is_closed() {
    let limits = Limits { head_timeout: Duration::from_millis(50), ..Limits::default() };
    let server = Server::with(|access| access, "", limits).await;
    assert_eq!(server.say(b"GET /healthz HTTP/1.1\r\nhost: loc").await.status, 0, "closed without an answer");
    let mut idle = server.open("GET /healthz HTTP/1.1").await;
    idle.until("ok").await;
    idle.until_closed().await;
    assert!(idle.seen.ends_with("ok\n"), "{}", idle.seen);
}

#[tokio::test]
async fn half_a_tls_handshake_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("server.pem"), directory.path().join("server-key.pem"));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let tls = Tls::load(TlsFiles { certificate, key, clients: None }).unwrap();
    let limits = Limits { head_timeout: Duration::from_millis(50), ..Limits::default() };
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), limits).await.unwrap().with_tls(tls);
    let (address, shutdown) = (listener.address(), CancellationToken::new());
    let serving = tokio::spawn(listener.serve(Router::new(), shutdown.clone()));
    // The first bytes of a ClientHello, of which 512 are announced; and nothing at all.
    for begin in [&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc][..], &[]] {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(begin).await.unwrap();
        let mut answer = Vec::new();
        // An error is a connection that was reset, which is closed as well.
        let _ = within(client.read_to_end(&mut answer)).await;
        assert!(answer.is_empty() || answer[0] == 0x15, "only an alert may come: {answer:?}");
    }
    shutdown.cancel();
    within(serving).await.unwrap();
}

#[tokio::test]
async fn a_crowd_of_clients_leaves_room_for_workers_and_probes() {
    let limits = Limits { connections: 1, reserve: 1, ..Limits::default() };
    let server = Server::with(|access| access, "", limits).await;
    let mut first = server.open("GET /healthz HTTP/1.1").await;
    first.until("ok").await;
    let crowded = server.get("/api/jobs").await;
    crowded.is_problem(503, "busy");
    assert_eq!(crowded.header("connection"), "close");
    assert_eq!(server.get("/healthz").await.status, 200);
    server.ask("POST", "/login", &[], "token=x").await.is_problem(503, "busy");
    assert_eq!(server.get("/api/workers/connect").await.status, 200);
    let second = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(server.get("/healthz").await.status, 0, "beyond the reserve nobody is served");
    drop((first, second));
    freed(&server).await;
}

#[tokio::test]
async fn a_reserve_connection_of_a_probe_is_closed_after_each_answer() {
    let guard = |access: Access| access.api_token("people").worker_token("machines");
    let server = Server::with(guard, "", Limits { connections: 0, reserve: 1, ..Limits::default() }).await;
    for path in ["/healthz", "/problems/busy", "/api/workers/connect", "/nothing"] {
        let mut client = server.open(&format!("GET {path} HTTP/1.1")).await;
        client.until_closed().await;
        assert!(client.seen.contains("connection: close"), "{path}: {}", client.seen);
    }
    let head = "GET /api/workers/connect HTTP/1.1\r\nauthorization: Bearer machines";
    let mut worker = server.open(head).await;
    worker.until("here workers connect").await;
    assert!(!worker.seen.contains("connection: close"), "{}", worker.seen);
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_disconnected() {
    let limits =
        Limits { connections: 1, reserve: 0, write_timeout: Duration::from_millis(50), ..Limits::default() };
    let server = Server::with(|access| access, "", limits).await;
    let mut greedy = TcpStream::connect(server.address).await.unwrap();
    // Answers that nobody reads, until no socket holds more of them.
    let asking = async {
        while greedy.write_all(b"GET /problems/busy HTTP/1.1\r\nhost: localhost\r\n\r\n").await.is_ok() {}
    };
    within(asking).await;
    freed(&server).await;
}

#[tokio::test]
async fn a_client_without_a_token_that_reads_nothing_is_disconnected_sooner() {
    let limits = Limits {
        connections: 1,
        reserve: 0,
        unauthenticated: 100,
        unauthenticated_write_timeout: Duration::from_millis(50),
        ..Limits::default()
    };
    let server = Server::with(|access| access.api_token("people"), "", limits).await;
    let mut greedy = TcpStream::connect(server.address).await.unwrap();
    let asking = async {
        while greedy.write_all(b"GET /problems/busy HTTP/1.1\r\nhost: localhost\r\n\r\n").await.is_ok() {}
    };
    within(asking).await;
    freed(&server).await;
}

#[tokio::test]
async fn a_shutdown_finishes_requests_under_way() {
    let server = Server::start().await;
    let mut idle = server.open("GET /healthz HTTP/1.1").await;
    idle.until("ok").await;
    let mut waiting = server.open("POST /api/jobs/resize?wait=1m HTTP/1.1").await;
    let begun = async {
        let mut interval = tokio::time::interval(Duration::from_millis(5));
        while server.stand.world().waiting.is_empty() {
            interval.tick().await;
        }
    };
    within(begun).await;
    server.shutdown.cancel();
    waiting.until_closed().await;
    assert!(waiting.seen.starts_with("HTTP/1.1 201 "), "{}", waiting.seen);
    idle.until_closed().await;
    within(server.served).await.unwrap();
    assert!(TcpStream::connect(server.address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let first = Listener::bind("127.0.0.1:0".parse().unwrap(), Limits::default()).await.unwrap();
    let error = Listener::bind(first.address(), Limits::default()).await.unwrap_err();
    assert!(matches!(error, ListenError::InUse { .. }));
    let text = error.to_string();
    assert!(text.starts_with(&format!("cannot listen on {}: in use", first.address())), "{text}");
}

/// Waits until a place is free for anybody.
async fn freed(server: &Server) {
    let asking = async {
        let mut interval = tokio::time::interval(Duration::from_millis(5));
        while !matches!(server.get("/api/jobs").await.status, 200 | 401) {
            interval.tick().await;
        }
    };
    within(asking).await;
}

#[tokio::test]
async fn a_request_has_one_host() {
    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    let server = Server::with(|access| access.api_token(TOKEN), "", Limits::default()).await;
    let ask = async |path: &str, version: &str, hosts: &str| {
        let head =
            format!("GET {path} HTTP/{version}\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n");
        server.say(format!("{head}{hosts}\r\n").as_bytes()).await
    };
    assert_eq!(ask("/api/jobs", "1.1", "host: localhost\r\n").await.status, 200);
    assert_eq!(ask("/api/jobs", "1.0", "").await.status, 200, "such clients send none");
    for (path, hosts) in [
        ("/api/jobs", ""),
        ("/healthz", ""),
        ("/api/workers/connect", ""),
        ("/api/jobs", "host: localhost\r\nhost: localhost\r\n"),
    ] {
        let problem = ask(path, "1.1", hosts).await.is_problem(400, "invalid_request");
        assert_eq!(problem["field"], "Host", "{path} {hosts:?}");
    }
}
