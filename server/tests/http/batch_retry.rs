//! Retries of batches whose clients leave.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, Request, StatusCode};
use axum::response::Response;
use scheduler::job::State;
use serde_json::Value;
use tokio::sync::Barrier;
use tower::ServiceExt as _;

use crate::support::{Server, within};

const FIVE: HeaderValue = HeaderValue::from_static("5");
const YES: HeaderValue = HeaderValue::from_static("true");

/// A server with a batch of two jobs that failed.
async fn failed() -> Server {
    let server = Server::start().await;
    let made = server.post("/api/jobs", r#"[{"name": "resize"}, {"name": "resize"}]"#).await;
    assert_eq!(made.status, 201, "{made:?}");
    for job in [1, 2] {
        server.stand.world().end(job, State::Failed, 1);
    }
    server
}

/// Retries the batch, without a connection.
fn retry(server: &Server, key: Option<&str>) -> impl Future<Output = Response> + Send + 'static {
    let mut request = Request::post("/api/batches/1/retry").header("host", "localhost");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let request = request.body(Body::empty()).expect("a request");
    let router = server.router.clone();
    async move { router.oneshot(request).await.expect("it answers") }
}

async fn json(response: Response) -> Value {
    let body = to_bytes(response.into_body(), 1 << 20).await.expect("a body");
    serde_json::from_slice(&body).expect("a document")
}

/// Lets the client of a retry leave while the engine has its jobs. They are accepted when the gate is met once more.
async fn leave_inside(server: &Server, key: Option<&str>) -> Arc<Barrier> {
    let gate = Arc::new(Barrier::new(2));
    server.stand.world().submission_gate = Some(Arc::clone(&gate));
    let request = tokio::spawn(retry(server, key));
    if key.is_some() {
        // The engine is asked for the key first.
        within(gate.wait()).await;
        within(gate.wait()).await;
    }
    within(gate.wait()).await;
    server.stand.world().submission_gate = None;
    request.abort();
    assert!(request.await.is_err_and(|error| error.is_cancelled()));
    gate
}

#[tokio::test]
async fn a_retry_goes_on_when_its_client_leaves_and_the_next_one_waits_for_it() {
    let server = failed().await;
    let gate = leave_inside(&server, None).await;
    // Time goes on at once whenever everything waits.
    tokio::time::pause();
    let busy = within(retry(&server, None)).await;
    tokio::time::resume();
    assert_eq!((busy.status(), &busy.headers()["retry-after"]), (StatusCode::SERVICE_UNAVAILABLE, &FIVE));
    assert_eq!(json(busy).await["code"], "busy");
    assert_eq!(server.stand.world().jobs.len(), 2);
    within(gate.wait()).await;
    let next = within(retry(&server, None)).await;
    assert_eq!(next.status(), StatusCode::OK);
    let next = json(next).await;
    assert!(next.get("batch").is_none() && next["matched"] == 0, "its jobs are being retried: {next}");
    assert_eq!(server.stand.world().jobs.len(), 4);
}

#[tokio::test]
async fn a_client_that_left_finds_the_batch_by_its_key() {
    let server = failed().await;
    let gate = leave_inside(&server, Some("a")).await;
    within(gate.wait()).await;
    let again = within(retry(&server, Some("a"))).await;
    assert_eq!((again.status(), &again.headers()["idempotent-replay"]), (StatusCode::OK, &YES));
    let again = json(again).await;
    assert_eq!((&again["batch"], &again["count"]), (&3.into(), &2.into()), "{again}");
    for job in [3, 4] {
        server.stand.world().end(job, State::Failed, 1);
    }
    let later = json(within(retry(&server, Some("a"))).await).await;
    assert_eq!(later, again, "a new batch needs another key");
    assert_eq!(server.stand.world().jobs.len(), 4);
}
