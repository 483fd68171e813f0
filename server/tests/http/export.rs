//! `GET /api/jobs` as CSV and as NDJSON: everything that fits, in slices, and broken off where it cannot be finished.

use axum::body::{Body, BodyDataStream};
use axum::http::Request;
use futures_util::StreamExt as _;
use scheduler::job::State;
use scheduler::params::{JobParam, ParamValue};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::{Answered, Server, within};

async fn ask(server: &Server, query: &str, accept: &str) -> Answered {
    server.ask("GET", &format!("/api/jobs{query}"), &[("accept", accept)], "").await
}

/// Makes this number of jobs.
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
    server.shutdown_inside.cancel();
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

/// A batch of three: with a result, with a text as result, and failed.
async fn sweep(server: &Server) {
    let body = r#"[{"name":"resize"},{"name":"resize"},{"name":"resize"}]"#;
    assert_eq!(server.post("/api/jobs", body).await.status, 201);
    for (id, exit_code, result) in [(1, 0, Some(r#"{"bytes":812}"#)), (2, 0, Some("=1+1")), (3, 3, None)] {
        let state = if exit_code == 0 { State::Succeeded } else { State::Failed };
        server.stand.world().start(id);
        server.stand.world().end(id, state, exit_code);
        let mut world = server.stand.world();
        let record = world.record(id);
        let attempt = record.row.attempt.as_mut().expect("an attempt");
        attempt.result = result.map(str::to_owned);
        if id != 2 {
            attempt.message = "a remark".to_owned();
        }
        let param = |name: &str, value, secret| JobParam { name: name.to_owned(), value, secret };
        record.params = vec![
            param("size", ParamValue::Integer(640), false),
            param("key", ParamValue::Text("hunter2".to_owned()), true),
        ];
    }
}

#[tokio::test]
async fn a_list_with_results_has_parameters_results_and_positions() {
    let server = Server::start().await;
    sweep(&server).await;
    let plain = server.get("/api/jobs").await.json();
    let of_batch = server.get("/api/jobs?batch=1").await.json();
    assert_eq!((&of_batch[0]["index"], &of_batch[2]["index"]), (&json!(2), &json!(0)), "{of_batch}");
    assert!(plain[0].get("index").is_none() && plain[2].get("index").is_none(), "{plain}");
    for field in ["params", "result"] {
        assert!(of_batch[0].get(field).is_none() && of_batch[2].get(field).is_none(), "{of_batch}");
    }
    let listed = server.get("/api/jobs?batch=1&results=1").await.json();
    let short = |job: &Value| json!([job["index"], job["state"], job["result"]]);
    assert_eq!(short(&listed[2]), json!([0, "succeeded", { "bytes": 812 }]), "{listed}");
    assert_eq!(short(&listed[1]), json!([1, "succeeded", "=1+1"]), "{listed}");
    assert_eq!(short(&listed[0]), json!([2, "failed", null]), "{listed}");
    assert_eq!(listed[0]["reason"], "exit code 3");
    assert_eq!(listed[0]["params"], json!({ "size": 640, "key": "***" }));

    let csv = ask(&server, "?batch=1&results=1", "text/csv").await.body;
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines[0].ends_with(",labels,index,params,result,submitted_by,note"), "{csv}");
    assert!(lines[1].ends_with(",2,\"{\"\"key\"\":\"\"***\"\",\"\"size\"\":640}\",,,"), "{csv}");
    assert!(lines[2].ends_with(",\"'=1+1\",,"), "{csv}");
    assert!(lines[3].ends_with(",\"{\"\"bytes\"\":812}\",,a remark"), "{csv}");
    assert_eq!(
        (&listed[2]["note"], listed[0].get("note")),
        (&json!("a remark"), None),
        "only of one that has succeeded"
    );
    for (id, index) in [(1, 0), (2, 1), (3, 2)] {
        assert_eq!(server.get(&format!("/api/jobs/{id}")).await.json()["index"], index);
    }
    let ndjson = ask(&server, "?batch=1&results=1", "application/x-ndjson").await.body;
    let jobs: Vec<Value> = ndjson.lines().map(|line| serde_json::from_str(line).expect("a job")).collect();
    assert_eq!(Value::from(jobs), listed);
    assert!(!csv.contains("hunter2") && !ndjson.contains("hunter2"));
    let oldest = server.get("/api/jobs?batch=1&results=1&order=oldest").await.json();
    let reversed: Vec<Value> = listed.as_array().expect("a list").iter().rev().cloned().collect();
    assert_eq!(oldest, Value::from(reversed));
    for wrong in [
        "?results=maybe",
        "?order=oldest",
        "?order=best&batch=1",
        "?latest=1",
        "?latest=1&batch=1&name=resize",
        "?index=1",
        "?index=a&batch=1",
    ] {
        ask(&server, wrong, "application/json").await.is_problem(400, "invalid_query");
    }
    ask(&server, "?index=1&batch=2", "application/json").await.is_problem(404, "batch_not_found");
}

#[tokio::test]
async fn a_page_with_long_results_ends_early_and_the_next_one_goes_on() {
    let server = Server::start().await;
    fill(&server, 300).await;
    let long = format!("\"{}\"", "x".repeat(60_000));
    for id in 1..=300 {
        server.stand.world().start(id);
        server.stand.world().end(id, State::Succeeded, 0);
        server.stand.world().record(id).row.attempt.as_mut().expect("an attempt").result = Some(long.clone());
    }
    let (mut ids, mut path, mut pages) = (Vec::new(), "/api/jobs?limit=500&results=1".to_owned(), 0);
    loop {
        let answer = server.get(&path).await;
        assert!(answer.body.len() < 8 << 20, "{} bytes", answer.body.len());
        ids.extend(answer.json().as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()));
        pages += 1;
        match answer.header("link").split_once('<').and_then(|(_, rest)| rest.split_once('>')) {
            Some((next, _)) => path = next.to_owned(),
            None => break,
        }
    }
    assert!(pages > 2, "{pages}");
    assert_eq!(ids, (1..=300).rev().collect::<Vec<u64>>(), "without gap or repeat");
    let all = ask(&server, "?results=1", "application/x-ndjson").await.body;
    assert_eq!(all.lines().count(), 300);
}
