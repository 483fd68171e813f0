//! Memory of requests is bounded in bytes over all connections: bodies that are not committed, and heads that have not ended.

use std::time::Duration;

use futures_util::future::select_all;
use longshore_server::listener::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Server, within};

#[tokio::test]
async fn submissions_that_are_not_committed_share_a_budget_in_bytes() {
    let server = Server::with_body_budget(64 << 10).await;
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    let head = "POST /api/jobs/resize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 60000\r\n\r\n";
    slow.write_all(format!("{head}{}", " ".repeat(59_000)).as_bytes()).await.unwrap();
    let body = format!(r#"{{"args":["a","{}"]}}"#, "a".repeat(20_000));
    let until = async |status| {
        let search = async {
            loop {
                let answer = server.post("/api/jobs/resize", &body).await;
                if answer.status == status {
                    return answer;
                }
            }
        };
        within(search).await
    };
    let refused = until(503).await;
    assert_eq!(refused.header("retry-after"), "1");
    refused.is_problem(503, "busy");
    assert_eq!(server.post("/api/jobs/resize", "").await.status, 201, "it takes no memory");
    drop(slow);
    until(201).await;
}

#[tokio::test]
async fn heads_that_have_not_ended_share_a_budget_in_bytes() {
    let hour = Duration::from_secs(3_600);
    let limits = Limits { head_bytes: 40_000, head_timeout: hour, ..Limits::default() };
    let server = Server::with(|access| access, "", limits).await;
    let head = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-long: {}", "a".repeat(15_000));
    let mut connections = Vec::new();
    for _ in 0..4 {
        let mut connection = TcpStream::connect(server.address).await.unwrap();
        connection.write_all(head.as_bytes()).await.unwrap();
        connections.push(connection);
    }
    let ends = connections.iter_mut().map(|connection| {
        Box::pin(async move {
            let mut answer = Vec::new();
            // A reset is an end, too.
            drop(connection.read_to_end(&mut answer).await);
        })
    });
    within(select_all(ends)).await;
    assert_eq!(server.get("/healthz").await.status, 200, "a short head is always read");
}
