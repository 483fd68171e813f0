//! The limit on the data that the jobs of one request store.

use serde_json::json;

use crate::support::{Answered, Server};

const MIB: usize = 1 << 20;

fn is_refused(answer: &Answered, field: &str) {
    let problem = answer.is_problem(413, "too_many_jobs");
    assert_eq!(problem["field"], field, "{problem}");
    assert!(problem["detail"].as_str().is_some_and(|it| it.contains("201326592 bytes at most")), "{problem}");
    assert!(problem["hint"].as_str().is_some_and(|it| it.contains("split the request")), "{problem}");
}

fn each(input: &str, jobs: usize) -> String {
    json!({ "input": input, "each": vec![json!({}); jobs] }).to_string()
}

#[tokio::test]
async fn an_array_stores_a_few_times_the_largest_body_at_most() {
    let server = Server::start().await;
    let input = "x".repeat(MIB / 8 - 2);
    let copies = |count: usize| json!({ "input": input, "count": count }).to_string();
    is_refused(&server.post("/api/jobs/resize", &copies(1_537)).await, "count");
    is_refused(&server.post("/api/jobs/resize", &copies(100_000)).await, "count");
    is_refused(&server.post("/api/jobs/resize", &each(&input, 1_537)).await, "each");
    is_refused(&server.post("/api/jobs/resize", &each(&input, 100_000)).await, "each");
    assert!(server.stand.world().jobs.is_empty());
    assert_eq!(server.post("/api/jobs/resize", &copies(1_536)).await.status, 201);
    assert_eq!(server.post("/api/jobs/resize", &each(&input, 1_536)).await.status, 201);
}

#[tokio::test]
async fn a_backfill_stores_no_more_either() {
    let server = Server::start().await;
    let schedule = |arg: String| json!({ "every": "1m", "args": [arg, arg, arg] });
    let jobs = json!({ "jobs": {
        "small": { "image": "r", "schedule": schedule("x".to_owned()) },
        "large": { "image": "r", "schedule": schedule("x".repeat(130_000)) },
    }});
    std::fs::write(&server.jobs_file, jobs.to_string()).expect("a place for jobs.yaml");
    let answer = server.ask("POST", "/api/definitions/reload", &[], "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    server.stand.world().decided_until = Some(protocol::Timestamp(i64::MAX));
    let from = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(10);
    let backfill = async |name: &str, more: &str| {
        let path = format!("/api/definitions/{name}/backfill?from={from}{more}");
        server.ask("POST", &path, &[], "").await
    };
    assert_eq!(backfill("small", "&dry_run=1").await.status, 200);
    is_refused(&backfill("large", "").await, "?to");
    is_refused(&backfill("large", "&dry_run=1").await, "?to");
}
