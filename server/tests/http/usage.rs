//! Resources of running attempts over HTTP: in the job, as points of a curve, on the page, and as events.

use longshore_server::store::AttemptRow;
use protocol::report::Outcome;
use protocol::{Fence, JobId, Nonce, Now, Timestamp, Token, Uptime, Usage, UsageSample};
use scheduler::job::State;
use serde_json::{Value, json};

use crate::support::Server;
use crate::support::facts::attempt;

/// A sample of the attempt with this fence of the job, at this second.
fn record(server: &Server, fence: u64, second: u64, cpu_ms: u64) {
    let now = Now { up: Uptime(second * 1_000_000_000), utc: Timestamp(second.cast_signed() * 1_000) };
    let token = Token { job: JobId(1), fence: Fence(fence), nonce: Nonce(7) };
    let usage = Usage { cpu_ms: Some(cpu_ms), ..Usage::default() };
    server.usage.record(now, &[UsageSample { token, usage, memory_bytes: Some(1 << 20) }]);
}

/// A server with job 1, whose second attempt runs.
async fn start() -> Server {
    let server = Server::start().await;
    assert_eq!(server.post("/api/jobs/resize", "").await.status, 201);
    let past = Usage { cpu_ms: Some(70), ..Usage::default() };
    let mut world = server.stand.world();
    let job = world.record(1);
    let ended = (Some(Timestamp(2_500)), Some(Outcome::Failed));
    job.past = vec![AttemptRow { ended_at: ended.0, outcome: ended.1, usage: past, ..attempt(1, 11) }];
    job.row.state = State::Running;
    job.row.attempts = protocol::AttemptNo(2);
    job.row.attempt = Some(attempt(2, 12));
    drop(world);
    server
}

async fn usages(server: &Server) -> Vec<Value> {
    let job = server.get("/api/jobs/1").await.json();
    job["attempts"].as_array().into_iter().flatten().map(|it| it["usage"].clone()).collect()
}

#[tokio::test]
async fn a_running_attempt_shows_its_latest_sample_and_an_ended_one_its_totals() {
    let server = start().await;
    assert_eq!(usages(&server).await, [json!({ "cpu_ms": 70 }), Value::Null]);
    record(&server, 12, 1, 100);
    record(&server, 12, 3, 400);
    record(&server, 11, 3, 9_999);
    assert_eq!(usages(&server).await, [json!({ "cpu_ms": 70 }), json!({ "cpu_ms": 400 })]);
}

#[tokio::test]
async fn the_points_of_an_attempt_are_those_that_the_server_remembers() {
    let server = start().await;
    let empty = json!({ "attempt": 2, "points": [] });
    assert_eq!(server.get("/api/jobs/1/usage").await.json(), empty);
    record(&server, 12, 1, 100);
    record(&server, 12, 3, 400);
    let points = json!([
        { "at": "1970-01-01T00:00:01.000Z", "cpu_ms": 100, "memory_bytes": 1_048_576 },
        { "at": "1970-01-01T00:00:03.000Z", "cpu_ms": 400, "memory_bytes": 1_048_576 },
    ]);
    for path in ["/api/jobs/1/usage", "/api/jobs/1/usage?attempt=2"] {
        assert_eq!(server.get(path).await.json(), json!({ "attempt": 2, "points": points }));
    }
    assert_eq!(server.get("/api/jobs/1/usage?attempt=1").await.json()["points"], json!([]));
    server.get("/api/jobs/1/usage?attempt=3").await.is_problem(404, "unknown_attempt");
    server.get("/api/jobs/9/usage").await.is_problem(404, "job_not_found");
    server.get("/api/jobs/1/usage?attempts=1").await.is_problem(400, "invalid_query");
    let page = server.get("/jobs/1").await.body;
    assert!(page.contains("0.15 cores") && page.contains("<polyline"), "{page}");
}

#[tokio::test]
async fn a_stream_of_events_tells_of_new_samples_of_the_job_that_it_names() {
    let server = start().await;
    record(&server, 12, 1, 100);
    let mut stream = server.open("GET /api/events?usage=1 HTTP/1.1").await;
    stream.until("retry: 1000").await;
    record(&server, 12, 3, 400);
    stream.until("event: usage\ndata: {\"job\":1}").await;
}
