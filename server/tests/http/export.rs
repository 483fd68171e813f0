//! `GET /api/jobs` as CSV and as NDJSON: everything that fits, in slices, and broken off where it cannot be finished.

use axum::body::{Body, BodyDataStream};
use axum::http::Request;
use futures_util::StreamExt as _;
use scheduler::job::State;
use serde_json::Value;
use tower::ServiceExt as _;

use crate::support::{Answered, Server, within};

async fn ask(server: &Server, query: &str, accept: &str) -> Answered {
    server.ask("GET", &format!("/api/jobs{query}"), &[("accept", accept)], "").await
}

/// Makes so many jobs.
async fn fill(server: &Server, count: usize) {
    let body = format!("[{}]", vec![r#"{"name":"resize"}"#; count].join(","));
    assert_eq!(server.post("/api/jobs", &body).await.status, 201);
}

fn ids_of_csv(csv: &str) -> Vec<u64> {
    csv.lines()
        .skip(1)
        .map(|line| line.split(',').next().unwrap_or_default().parse().expect("an id"))
        .collect()
}

/// More than two slices.
const MANY: usize = 1_200;

#[tokio::test]
async fn all_jobs_are_exported_over_several_slices_without_gap_or_repeat() {
    let server = Server::start().await;
    fill(&server, MANY).await;
    let all: Vec<u64> = (1..=MANY as u64).rev().collect();
    let csv = ask(&server, "", "text/csv").await;
    assert_eq!((csv.status, csv.header("content-type")), (200, "text/csv; charset=utf-8; header=present"));
    assert_eq!(csv.header("vary"), "accept");
    assert!(csv.body.starts_with("id,name,state,outcome,"), "{}", &csv.body[..100]);
    assert_eq!(ids_of_csv(&csv.body), all);
    let ndjson = ask(&server, "", "application/x-ndjson").await;
    assert_eq!((ndjson.status, ndjson.header("content-type")), (200, "application/x-ndjson"));
    let jobs: Vec<Value> =
        ndjson.body.lines().map(|line| serde_json::from_str(line).expect("a job")).collect();
    assert_eq!(jobs.iter().map(|job| job["id"].as_u64().unwrap_or_default()).collect::<Vec<_>>(), all);
    let array = ask(&server, "?limit=3", "application/json").await;
    assert_eq!(array.json().as_array().expect("an array")[..], jobs[..3], "the same objects");
    assert_eq!(array.header("vary"), "accept");
}

#[tokio::test]
async fn an_export_takes_the_filters_of_lists_and_a_limit_of_its_own() {
    let server = Server::start().await;
    fill(&server, 600).await;
    server.post("/api/jobs/backup", "").await;
    for id in [3, 590] {
        server.stand.world().end(id, State::Failed, 3);
    }
    server.stand.world().record(3).row.reason = "=cmd|' /C calc'!A0".to_owned();
    let failed = ask(&server, "?state=failed&name=resize", "text/csv").await;
    assert_eq!(ids_of_csv(&failed.body), [590, 3]);
    assert!(failed.body.contains(",\"'=cmd|' /C calc'!A0\","), "{}", failed.body);
    assert_eq!(ids_of_csv(&ask(&server, "?limit=501", "text/csv").await.body).len(), 501);
    assert_eq!(ids_of_csv(&ask(&server, "?limit=2", "text/csv").await.body), [601, 600]);
    let none = ask(&server, "?state=lost", "text/csv").await;
    assert!(none.status == 200 && none.body.lines().count() == 1, "{none:?}");
    assert_eq!(ask(&server, "?state=lost", "application/x-ndjson").await.body, "");
    ask(&server, "?limit=0", "text/csv").await.is_problem(400, "invalid_query");
    ask(&server, "?name=nope", "text/csv").await.is_problem(422, "unknown_name");
    ask(&server, "", "text/html").await.is_problem(406, "not_acceptable");
    server.stand.world().unreadable = true;
    ask(&server, "", "text/csv").await.is_problem(503, "store_unavailable");
}

/// The body of an export, read piece by piece without a socket.
async fn begin(server: &Server) -> BodyDataStream {
    let request = Request::get("/api/jobs").header("host", "localhost").header("accept", "text/csv");
    let request = request.body(Body::empty()).expect("it is a request");
    let response = server.router.clone().oneshot(request).await.expect("it is answered");
    response.into_body().into_data_stream()
}

#[tokio::test]
async fn a_slice_is_read_when_it_is_wanted_and_an_unfinished_export_breaks_off() {
    let server = Server::start().await;
    fill(&server, MANY).await;
    let mut export = begin(&server).await;
    let first = within(export.next()).await.expect("a slice").expect("it is read");
    assert_eq!(ids_of_csv(&String::from_utf8_lossy(&first)).len(), 500);
    server.stand.world().unreadable = true;
    assert!(within(export.next()).await.expect("an end").is_err(), "a regular end would look complete");
    assert!(within(export.next()).await.is_none());

    server.stand.world().unreadable = false;
    let mut export = begin(&server).await;
    within(export.next()).await.expect("a slice").expect("it is read");
    server.leaving_inside.cancel();
    assert!(within(export.next()).await.expect("an end").is_err());
}

#[tokio::test]
async fn the_list_of_the_dashboard_links_to_its_export() {
    let server = Server::start().await;
    fill(&server, 3).await;
    server.stand.world().end(2, State::Failed, 3);
    let page = server.get("/jobs?state=failed&name=&limit=1").await;
    for link in ["href=\"/jobs.csv?state=failed\"", "href=\"/jobs.ndjson?state=failed\""] {
        assert!(page.body.contains(link), "no {link} in {}", page.body);
    }
    let csv = server.get("/jobs.csv?state=failed&name=").await;
    assert_eq!((csv.status, ids_of_csv(&csv.body)), (200, vec![2]));
    assert_eq!(server.get("/jobs.ndjson").await.body.lines().count(), 3);
    let wrong = server.get("/jobs.csv?state=nope").await;
    assert!(wrong.status == 400 && wrong.body.starts_with("<!doctype html>"), "{wrong:?}");
}
