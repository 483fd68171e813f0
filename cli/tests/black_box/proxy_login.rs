//! Users whom a reverse proxy signs in, with a real server. The proxy is this test at 127.0.0.2; everybody else is at other addresses.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use serde_json::Value;
use testkit::{Cluster, Process, wait_until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

const JOBS: &str = "version: 1\njobs: { hello: { runtime: fake } }\n";
const PROXY: &str = "127.0.0.2";
const OTHER: &str = "127.0.0.1";

async fn start() -> (Cluster, Process) {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let flags = [
        "--auth-proxy-header",
        "X-Forwarded-User",
        "--auth-proxy-from",
        PROXY,
        "--auth-proxy-groups-header",
        "X-Forwarded-Groups",
        "--auth-proxy-group",
        "ops=operator,admins=admin",
        "--allow-host",
        "jobs.example",
    ];
    let server = cluster.start_server(&flags).await;
    (cluster, server)
}

/// Sends a request from this address, and returns the status and the rest of the answer.
async fn send(cluster: &Cluster, from: &str, request: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    let mut stream = socket.connect(cluster.address().parse().unwrap()).await.unwrap();
    let mut text = format!("{request} HTTP/1.1\r\nconnection: close\r\ncontent-length: 0\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        text += "host: jobs.example\r\n";
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{text}\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

const ANNA: (&str, &str) = ("x-forwarded-user", "anna");
const OPS: (&str, &str) = ("x-forwarded-groups", "staff, ops");

#[tokio::test]
async fn the_proxy_names_the_user_and_nobody_else_can() {
    let (cluster, _server) = start().await;
    let status = async |from, request, headers: &[_]| send(&cluster, from, request, headers).await.0;
    // A viewer reads, an operator operates; neither administers.
    assert_eq!(status(PROXY, "GET /api/jobs", &[ANNA]).await, 200);
    assert_eq!(status(PROXY, "POST /api/jobs/hello", &[ANNA]).await, 403);
    let (made, answer) = send(&cluster, PROXY, "POST /api/jobs/hello", &[ANNA, OPS]).await;
    assert!(made == 201 && answer.contains(r#""submitted_by":"proxy:anna""#), "{answer}");
    assert_eq!(status(PROXY, "GET /api/tokens", &[ANNA, OPS]).await, 403);
    assert_eq!(status(PROXY, "GET /api/tokens", &[ANNA, ("x-forwarded-groups", "admins")]).await, 200);
    // From other addresses the header means nothing, whatever else claims to tell the address.
    let claims =
        [ANNA, OPS, ("x-forwarded-for", PROXY), ("x-real-ip", PROXY), ("forwarded", "for=127.0.0.2")];
    assert_eq!(status(OTHER, "GET /api/jobs", &claims).await, 401);
    assert_eq!(status(OTHER, "POST /api/jobs/hello", &claims).await, 401);
    // The proxy without a user has no more rights than others.
    assert_eq!(status(PROXY, "GET /api/jobs", &[OPS]).await, 401);
    assert_eq!(status(PROXY, "GET /api/jobs", &[("x-forwarded-user", "")]).await, 401);
    // Two users in one request: something on the way lets clients set the header.
    for ambiguous in [&[ANNA, ("x-forwarded-user", "mallory")][..], &[("x-forwarded-user", "anna, mallory")]]
    {
        let (status, text) = send(&cluster, PROXY, "GET /api/jobs", ambiguous).await;
        assert!(status == 400 && text.contains("the header x-forwarded-user"), "{text}");
    }
    // Workers have secrets of their own.
    let upgrade =
        [ANNA, ("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")];
    assert_eq!(status(PROXY, "GET /api/workers/connect", &upgrade).await, 401);
    // Tokens go on working, also through the proxy, and go before the user.
    let token = std::fs::read_to_string(cluster.path("data/admin.token")).unwrap();
    let token = format!("Bearer {}", token.trim());
    for from in [PROXY, OTHER] {
        assert_eq!(status(from, "GET /api/tokens", &[ANNA, ("authorization", &token)]).await, 200);
    }
    assert_eq!(status(PROXY, "GET /api/jobs", &[ANNA, ("authorization", "Bearer wrong")]).await, 401);
}

#[tokio::test]
async fn web_pages_of_other_sites_gain_nothing_by_the_proxy() {
    let (cluster, _server) = start().await;
    let post = async |headers: &[(&str, &str)]| {
        let headers = [&[ANNA, OPS][..], headers].concat();
        send(&cluster, PROXY, "POST /api/jobs/hello", &headers).await.0
    };
    assert_eq!(post(&[("origin", "https://jobs.example")]).await, 201);
    assert_eq!(post(&[("origin", "https://evil.example")]).await, 403);
    assert_eq!(post(&[("sec-fetch-site", "cross-site")]).await, 403);
    // A page that reaches a trusted address by DNS rebinding can set every header but this one.
    assert_eq!(post(&[("host", "evil.example"), ("origin", "http://evil.example")]).await, 421);
    let read = send(&cluster, PROXY, "GET /api/jobs", &[ANNA, ("host", "evil.example")]).await;
    assert_eq!(read.0, 421, "{}", read.1);
}

#[tokio::test]
async fn the_dashboard_shows_the_user_and_the_audit_log_names_him() {
    let (cluster, _server) = start().await;
    let (status, page) = send(&cluster, PROXY, "GET /", &[ANNA]).await;
    assert_eq!(status, 200, "{page}");
    assert!(page.contains("proxy:anna (viewer)") && !page.contains("Sign out"), "{page}");
    let (status, page) = send(&cluster, OTHER, "GET /", &[ANNA]).await;
    assert!(status == 303 && page.contains("/login"), "{page}");
    send(&cluster, PROXY, "POST /api/jobs/hello", &[ANNA, OPS]).await;
    send(&cluster, OTHER, "POST /api/jobs/hello", &[ANNA, OPS]).await;
    let admin = cluster.admin_token();
    let address = cluster.address();
    wait_until("both requests are in the audit log", async || {
        let (_, text) =
            cluster.run_cli(&["audit", "--server", &address, "--token-file", &admin, "-o", "json"]);
        let rows: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
        let of = |address: &str| rows.iter().find(|row| row["address"] == address).cloned();
        let (Some(by_proxy), Some(refused)) = (of(PROXY), of(OTHER)) else { return false };
        assert_eq!((&by_proxy["token"], &by_proxy["role"]), (&"proxy:anna".into(), &"operator".into()));
        assert_eq!((&refused["token"], &refused["status"]), (&Value::Null, &401.into()));
        true
    })
    .await;
}

#[test]
fn half_of_the_settings_is_refused_in_one_line() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    for (flags, expected) in [
        (
            &["--auth-proxy-header", "X-User"][..],
            "--auth-proxy-from (LONGSHORE_AUTH_PROXY_FROM): it is missing",
        ),
        (&["--auth-proxy-from", "10.0.0.1"], "it needs --auth-proxy-header"),
        (
            &["--auth-proxy-header", "X-User", "--auth-proxy-from", "10.0.0.1", "--insecure-no-auth"],
            "exclude each other",
        ),
    ] {
        let (code, text) = cluster.server_spec(flags).run();
        assert!(code == 2 && text.contains(expected), "{code}: {text}");
    }
}
