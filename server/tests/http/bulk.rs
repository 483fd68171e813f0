//! Bulk operations over HTTP: selection by filters and ids, dry runs, refusals, and definitions that bear the name of an operation.

use protocol::JobId;
use scheduler::job::State;
use serde_json::{Value, json};

use crate::support::{Answered, Server};

async fn post(server: &Server, path: &str, body: &str) -> Answered {
    let json = [("content-type", "application/json")];
    server.ask("POST", path, if body.is_empty() { &[] } else { &json }, body).await
}

async fn done(server: &Server, path: &str, body: &str) -> Value {
    let answer = post(server, path, body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

async fn with_jobs(count: usize) -> Server {
    let server = Server::start().await;
    let body = format!("[{}]", vec![r#"{"name":"resize"}"#; count].join(","));
    assert_eq!(server.post("/api/jobs", &body).await.status, 201);
    server
}

#[tokio::test]
async fn all_jobs_of_a_filter_are_cancelled_in_slices() {
    let server = with_jobs(601).await;
    server.post("/api/jobs/backup", "").await;
    let counted = done(&server, "/api/jobs/cancel?name=resize&dry_run=1", "").await;
    assert_eq!((&counted["matched"], &counted["dry_run"]), (&json!(601), &json!(true)));
    assert_eq!(server.get("/api/jobs?state=cancelled&limit=1").await.json(), json!([]));

    let result = done(&server, "/api/jobs/cancel?name=resize&state=queued", "").await;
    assert_eq!(
        (&result["matched"], &result["done"], &result["refused"]),
        (&json!(601), &json!(601), &json!(0))
    );
    assert!(result.get("next").is_none(), "{result}");
    let rest = done(&server, "/api/jobs/cancel?name=*&dry_run=1", "").await;
    assert_eq!(rest["matched"], 1, "backup is left");
}

#[tokio::test]
async fn refusals_are_counted_and_the_first_are_shown() {
    let server = with_jobs(25).await;
    for job in 1..=25 {
        server.stand.world().end(job, State::Failed, 1);
    }
    let ids: Vec<u64> = (1..=25).collect();
    let result = done(&server, "/api/jobs/cancel", &json!({ "ids": ids }).to_string()).await;
    assert_eq!((&result["matched"], &result["refused"]), (&json!(25), &json!(25)));
    assert_eq!(result["refusals"].as_array().map(Vec::len), Some(20));
    assert_eq!(result["refusals"][0]["job"], 1);
    assert_eq!(result["refusals"][0]["code"], "already_finished");
    let unknown = done(&server, "/api/jobs/release", r#"{"ids":[99]}"#).await;
    assert_eq!(unknown["refusals"][0]["code"], "job_not_found");
}

#[tokio::test]
async fn jobs_that_are_named_count_once_and_each_has_a_result() {
    let server = with_jobs(4).await;
    server.stand.world().end(2, State::Succeeded, 1);
    let result = done(&server, "/api/jobs/cancel", r#"{"ids":[3,2,99,3]}"#).await;
    assert_eq!((&result["matched"], &result["done"], &result["refused"]), (&json!(3), &json!(1), &json!(2)));
    let results = result["results"].as_array().expect("a result of each job");
    let jobs: Vec<_> = results.iter().map(|it| it["job"].as_u64()).collect();
    assert_eq!(jobs, [3, 2, 99].map(Some), "{result}");
    assert_eq!(results[0], json!({"job": 3, "state": "cancelled"}));
    let problem =
        |index: usize| (results[index]["problem"]["status"].as_u64(), &results[index]["problem"]["code"]);
    assert_eq!(problem(1), (Some(409), &json!("already_finished")));
    assert_eq!(problem(2), (Some(404), &json!("job_not_found")));
    assert!(results[2]["problem"]["hint"].is_string(), "{result}");
    let retried = done(&server, "/api/jobs/retry", r#"{"ids":[2]}"#).await;
    assert_eq!(retried["results"], json!([{"job": 2, "made": 5}]));
    assert!(done(&server, "/api/jobs/cancel?name=resize", "").await.get("results").is_none());
}

#[tokio::test]
async fn a_retry_of_a_named_job_returns_the_job_that_has_the_unique_key() {
    let server = with_jobs(2).await;
    server.stand.world().end(1, State::Failed, 1);
    server.stand.world().duplicate = Some(JobId(2));
    let result = done(&server, "/api/jobs/retry", r#"{"ids":[1]}"#).await;
    assert_eq!(result["results"], json!([{"job": 1, "made": 2, "duplicate": true}]));
    assert_eq!((&result["done"], &result["refused"], result.get("jobs")), (&json!(1), &json!(0), None));
    let filtered = done(&server, "/api/jobs/retry?name=resize", "").await;
    assert_eq!(filtered["refusals"][0]["code"], "duplicate_job", "{filtered}");
}

#[tokio::test]
async fn the_refusal_of_a_named_job_has_the_id_of_the_request() {
    let server = with_jobs(1).await;
    let answer = post(&server, "/api/jobs/cancel", r#"{"ids":[99]}"#).await;
    let id = answer.header("x-request-id");
    assert!(!id.is_empty(), "{answer:?}");
    assert_eq!(answer.json()["results"][0]["problem"]["request_id"], id, "{answer:?}");
}

#[tokio::test]
async fn a_dry_run_counts_the_named_jobs_that_would_change() {
    let server = with_jobs(4).await;
    server.stand.world().end(2, State::Succeeded, 1);
    server.stand.world().end(3, State::Failed, 1);
    server.stand.world().jobs[3].row.state = State::Quarantined;
    for (verb, count) in [("cancel", 2), ("retry", 2), ("release", 1)] {
        let path = format!("/api/jobs/{verb}?dry_run=1");
        let result = done(&server, &path, r#"{"ids":[1,2,3,4,4,1,99]}"#).await;
        assert_eq!(
            (&result["matched"], &result["dry_run"]),
            (&json!(count), &json!(true)),
            "{verb}: {result}"
        );
        assert!(result.get("results").is_none(), "{result}");
    }
    assert_eq!(server.stand.world().jobs.len(), 4, "nothing was made");
    assert_eq!(server.get("/api/jobs?state=cancelled").await.json(), json!([]));
}

#[tokio::test]
async fn a_dry_run_counts_named_failures_without_reading_each_job() {
    let server = with_jobs(4).await;
    (1..=2).for_each(|job| server.stand.world().end(job, State::Failed, 1));
    server.stand.world().job_reads = 0;
    for (path, count) in
        [("/api/jobs/acknowledge?dry_run=1", 2), ("/api/jobs/acknowledge?dry_run=1&undo=1", 0)]
    {
        assert_eq!(done(&server, path, r#"{"ids":[1,2,3,99]}"#).await["matched"], count, "{path}");
    }
    assert_eq!(server.stand.world().job_reads, 0);
}

#[tokio::test]
async fn failed_jobs_are_retried_once_each() {
    let server = with_jobs(3).await;
    for (job, state) in [(1, State::Failed), (2, State::Succeeded), (3, State::Failed)] {
        server.stand.world().end(job, state, 1);
    }
    let result = done(&server, "/api/jobs/retry?name=resize", "").await;
    assert_eq!((&result["matched"], &result["done"]), (&json!(2), &json!(2)), "{result}");
    assert_eq!(result["jobs"].as_array().map(Vec::len), Some(2));
    let made = server.stand.world().jobs.len();
    assert_eq!(made, 5);
    let again = done(&server, "/api/jobs/retry?name=resize", "").await;
    assert_eq!(again["matched"], 0, "their retries stand for them: {again}");
    let keyed = async |server: &Server| {
        server.ask("POST", "/api/jobs/retry?state=failed", &[("idempotency-key", "k")], "").await.json()
    };
    server.stand.world().end(4, State::Failed, 1);
    let (first, second) = (keyed(&server).await, keyed(&server).await);
    assert_eq!((&first["matched"], &first["jobs"]), (&json!(1), &json!([6])), "{first}");
    assert_eq!(first, second, "the same request");
    let other = "/api/jobs/retry?state=failed&revision=original";
    let other = server.ask("POST", other, &[("idempotency-key", "k")], "").await.json();
    assert_eq!((&other["done"], &other["refusals"][0]["code"]), (&json!(0), &json!("idempotency_mismatch")));
    let both = done(&server, "/api/jobs/retry?revision=original&dry_run=1", r#"{"ids":[1,2]}"#).await;
    assert_eq!(both["matched"], 2);
}

#[tokio::test]
async fn a_repeated_retry_of_unresolved_failures_tells_what_it_made() {
    let server = with_jobs(450).await;
    (1..=430).for_each(|job| server.stand.world().end(job, State::Failed, 1));
    let path = "/api/jobs/retry?unresolved=1";
    let keyed = async |key, path| server.ask("POST", path, &[("idempotency-key", key)], "").await.json();
    let first = keyed("k", path).await;
    assert_eq!((&first["matched"], &first["done"]), (&json!(430), &json!(430)), "{first}");
    assert_eq!(keyed("k", path).await, first, "the same request");
    assert_eq!(done(&server, path, "").await["matched"], 0, "another one");
    // Jobs that failed meanwhile come beside those of before.
    for job in [440, 435, 450] {
        server.stand.world().end(job, State::Failed, 1);
    }
    let counted = keyed("k", "/api/jobs/retry?unresolved=1&dry_run=1").await;
    assert_eq!(counted["matched"], 3, "{counted}");
    let again = keyed("k", path).await;
    assert_eq!((&again["done"], &again["refused"]), (&json!(433), &json!(0)));
    let jobs = again["jobs"].as_array().expect("jobs");
    assert_eq!(&jobs[..430], &first["jobs"].as_array().expect("jobs")[..]);
    assert!(jobs[430..].iter().all(|made| made.as_u64() > Some(880)), "{again}");
    assert_eq!(server.stand.world().jobs.len(), 883);
    let other = keyed("k", "/api/jobs/retry?unresolved=1&state=failed").await;
    assert_eq!((&other["done"], &other["refusals"][0]["code"]), (&json!(0), &json!("idempotency_mismatch")));
}

/// A server with this number of failed jobs, whose disk is full after half as many retries of the first slice.
async fn with_failed_jobs_and_a_disk_that_fills(count: u64) -> Server {
    let server = with_jobs(count as usize).await;
    let mut world = server.stand.world();
    for job in 1..=count {
        world.end(job, State::Failed, 1);
    }
    world.fills_disk_at = Some((count as usize + 100, server.storage.clone()));
    drop(world);
    server
}

#[tokio::test]
async fn an_error_behind_the_first_page_answers_the_jobs_so_far_and_the_cursor_of_the_rest() {
    let server = with_failed_jobs_and_a_disk_that_fills(250).await;
    let result = done(&server, "/api/jobs/retry?name=resize&state=failed", "").await;
    let counts = |it: &Value| ["matched", "done", "refused"].map(|key| it[key].as_u64());
    assert_eq!(counts(&result), [200, 200, 0].map(Some), "{result}");
    assert_eq!(result["jobs"].as_array().map(Vec::len), Some(200));
    let next = result["next"].as_str().expect("a cursor");
    let rest = format!("/api/jobs/retry?name=resize&state=failed&cursor={next}");
    post(&server, &rest, "").await.is_problem(507, "storage_low");
    server.storage.note(1 << 40, 1 << 40);
    let result = done(&server, &rest, "").await;
    assert_eq!(counts(&result), [50, 50, 0].map(Some), "{result}");
    assert!(result.get("next").is_none(), "{result}");
    assert_eq!(server.stand.world().jobs.len(), 500);
}

#[tokio::test]
async fn the_page_goes_on_behind_the_jobs_that_were_done() {
    let server = with_failed_jobs_and_a_disk_that_fills(250).await;
    let form = async |selection: &str| {
        let body = format!("verb=retry&confirmed=yes&selection={selection}");
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        server.ask("POST", "/jobs/bulk", &headers, &body).await
    };
    let first = form("name%3Dresize%26state%3Dfailed").await;
    let rest = first.body.split("name=\"selection\" value=\"").nth(1).and_then(|it| it.split('"').next());
    let rest = rest.expect("a form that goes on").replace("&#38;", "&").replace("&amp;", "&");
    assert!(rest.contains("cursor="), "{}", first.body);
    server.storage.note(1 << 40, 1 << 40);
    let rest = rest.replace('%', "%25").replace('=', "%3D").replace('&', "%26");
    let second = form(&rest).await;
    assert!(second.body.contains("50 done") && !second.body.contains("Go on"), "{}", second.body);
    assert_eq!(server.stand.world().jobs.len(), 500);
}

#[tokio::test]
async fn an_error_behind_the_first_slice_of_ids_is_the_refusal_of_those_that_are_left() {
    let server = with_failed_jobs_and_a_disk_that_fills(250).await;
    let ids: Vec<u64> = (1..=250).collect();
    let result = done(&server, "/api/jobs/retry", &json!({ "ids": ids }).to_string()).await;
    let counts = ["matched", "done", "refused"].map(|key| result[key].as_u64());
    assert_eq!(counts, [250, 200, 50].map(Some), "{result}");
    let results = result["results"].as_array().expect("a result of each job");
    assert_eq!((results.len(), &results[199]["made"].is_u64()), (250, &true), "{result}");
    assert_eq!(results[200]["job"], 201);
    assert_eq!(results[200]["problem"]["code"], "storage_low");
}

#[tokio::test]
async fn a_request_that_selects_nothing_is_refused() {
    let server = with_jobs(2).await;
    for verb in ["cancel", "retry", "release"] {
        let path = format!("/api/jobs/{verb}");
        post(&server, &path, "").await.is_problem(422, "missing_field");
        post(&server, &format!("{path}?dry_run=1"), "").await.is_problem(422, "missing_field");
        post(&server, &path, r#"{"ids":[1],"x":2}"#).await.is_problem(422, "unknown_field");
        post(&server, &path, r#"{"ids":"1"}"#).await.is_problem(422, "invalid_type");
        post(&server, &format!("{path}?name=resize"), r#"{"ids":[1]}"#)
            .await
            .is_problem(400, "invalid_query");
        post(&server, &format!("{path}?name=resiez"), "").await.is_problem(422, "unknown_name");
        post(&server, &format!("{path}?stat=queued&name=resize"), "").await.is_problem(400, "invalid_query");
        for empty in ["text", "schedule", "state", "name", "batch", "worker", "label", "revision"] {
            let refused = post(&server, &format!("{path}?{empty}=&dry_run=1"), "").await;
            assert!((400..=422).contains(&refused.status), "{empty}= selects all: {}", refused.body);
        }
        // A cursor only says where a request goes on.
        let cursor = format!("{path}?cursor={}", cursor_of_a_list(&server).await);
        post(&server, &cursor, "").await.is_problem(422, "missing_field");
        post(&server, &cursor, r#"{"ids":[1]}"#).await.is_problem(400, "invalid_query");
        post(&server, &path, r#"{"ids":[1,"#).await.is_problem(400, "invalid_json");
        for nothing in [&path, &cursor, &format!("{path}?dry_run=1"), &format!("{path}?name=resize")] {
            post(&server, nothing, r#"{"ids":null}"#).await.is_problem(422, "invalid_type");
        }
        let many = json!({ "ids": vec![1; 10_001] }).to_string();
        post(&server, &path, &many).await.is_problem(422, "too_long");
        server.get(&path).await.is_problem(400, "invalid_id");
    }
}

/// A cursor that the list of jobs gave.
async fn cursor_of_a_list(server: &Server) -> String {
    let link = server.get("/api/jobs?limit=1").await.header("link").to_owned();
    let cursor = link.split("cursor=").nth(1).expect("a next page");
    cursor.split(['>', '&']).next().expect("its cursor").to_owned()
}

#[tokio::test]
async fn a_body_beside_filters_is_read_and_refused_if_it_says_something() {
    let server = with_jobs(2).await;
    for (body, status, code) in [
        (r#"{"ids":[1,"#, 400, "invalid_json"),
        (r#"{"id":[1]}"#, 422, "unknown_field"),
        (r#"{"params":{"size":"small"}}"#, 422, "unknown_field"),
        (r#"{"ids":[1]}"#, 400, "invalid_query"),
    ] {
        post(&server, "/api/jobs/cancel?name=resize", body).await.is_problem(status, code);
    }
    assert_eq!(done(&server, "/api/jobs/cancel?name=resize&dry_run=1", "{}").await["matched"], 2);
}

#[tokio::test]
async fn a_definition_may_bear_the_name_of_an_operation() {
    let server = with_jobs(1).await;
    std::fs::write(&server.jobs_file, "jobs: {release: {image: release:1}, resize: {image: resize:1}}\n")
        .unwrap();
    assert_eq!(server.ask("POST", "/api/definitions/reload", &[], "").await.status, 200);
    let made = post(&server, "/api/jobs/release", r#"{"args":["v2"]}"#).await;
    assert_eq!((made.status, &made.json()["name"]), (201, &json!("release")));
    let as_scheduled = "/api/jobs/release?as_scheduled=1&schedule=nightly";
    post(&server, as_scheduled, "").await.is_problem(404, "unknown_schedule");
    let of_schedule = done(&server, "/api/jobs/release?schedule=nightly", "").await;
    assert_eq!(of_schedule["matched"], 0);
    let bulk = done(&server, "/api/jobs/release?state=quarantined", "").await;
    assert_eq!(bulk["matched"], 0);
}
