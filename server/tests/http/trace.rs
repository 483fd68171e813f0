//! Trace context and request ids of submissions.

use crate::support::Server;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OTHER: &str = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-00";

/// The variables of a job.
fn environment(server: &Server, job: u64) -> Vec<(String, String)> {
    server.stand.world().record(job).overrides.environment.clone()
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[tokio::test]
async fn a_job_continues_the_trace_of_its_submission_and_keeps_the_request_id() {
    let server = Server::start().await;
    let headers = [
        ("traceparent", PARENT),
        ("tracestate", "vendor=1"),
        ("x-request-id", "order-77"),
        ("content-type", "application/json"),
    ];
    let answer = server.ask("POST", "/api/jobs/resize", &headers, r#"{"environment":{"A":"1"}}"#).await;
    assert_eq!((answer.status, answer.header("x-request-id")), (201, "order-77"), "{answer:?}");
    let expected = [
        pair("A", "1"),
        pair("TRACEPARENT", PARENT),
        pair("TRACESTATE", "vendor=1"),
        pair("LONGSHORE_REQUEST_ID", "order-77"),
    ];
    assert_eq!(environment(&server, 1), expected);
    let shown = server.get("/api/jobs/1").await.json();
    assert_eq!(
        (&shown["traceparent"], &shown["request_id"]),
        (&PARENT.into(), &"order-77".into()),
        "{shown}"
    );
}

#[tokio::test]
async fn a_malformed_trace_is_ignored_and_a_request_without_one_adds_nothing() {
    let server = Server::start().await;
    let headers = [("traceparent", "00-nonsense"), ("tracestate", "vendor=1")];
    assert_eq!(server.ask("POST", "/api/jobs/resize", &headers, "").await.status, 201);
    assert_eq!(server.post("/api/jobs/resize", "").await.status, 201);
    for job in [1, 2] {
        assert_eq!(environment(&server, job), []);
        let shown = server.get(&format!("/api/jobs/{job}")).await.json();
        assert!(shown.get("traceparent").is_none() && shown.get("request_id").is_none(), "{shown}");
    }
}

#[tokio::test]
async fn every_job_of_a_batch_belongs_to_the_trace_of_the_request() {
    let server = Server::start().await;
    let own =
        format!(r#"[{{"name":"resize"}},{{"name":"resize","environment":{{"TRACEPARENT":"{OTHER}"}}}}]"#);
    let headers = [("traceparent", PARENT), ("content-type", "application/json")];
    assert_eq!(server.ask("POST", "/api/jobs", &headers, &own).await.status, 201);
    assert_eq!(environment(&server, 1), [pair("TRACEPARENT", PARENT)]);
    assert_eq!(
        environment(&server, 2),
        [pair("TRACEPARENT", OTHER)],
        "the job's own variable takes precedence"
    );
    let array = server.ask("POST", "/api/jobs/resize", &headers, r#"{"count":2}"#).await;
    assert_eq!(array.status, 201, "{array:?}");
    assert!(environment(&server, 4).contains(&pair("TRACEPARENT", PARENT)));
}

#[tokio::test]
async fn a_retry_belongs_to_the_trace_of_its_own_request() {
    let server = Server::start().await;
    let first = [("traceparent", PARENT), ("tracestate", "vendor=1"), ("x-request-id", "first")];
    server.ask("POST", "/api/jobs/resize", &first, "").await;
    server.stand.world().end(1, scheduler::job::State::Failed, 1);
    let second = [("traceparent", OTHER), ("x-request-id", "second")];
    let retry = server.ask("POST", "/api/jobs/1/retry?revision=original", &second, "").await;
    assert_eq!(retry.status, 201, "{retry:?}");
    assert_eq!(environment(&server, 2), [pair("TRACEPARENT", OTHER), pair("LONGSHORE_REQUEST_ID", "second")]);
}
