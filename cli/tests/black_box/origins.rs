//! The requester of a job, and the slot that it is for, by the real program.

#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use serde_json::{Value, json};
use testkit::{Cluster, bearer, http, wait_for};

use crate::running::Running;

const JOBS: &str = "version: 1
jobs: { hello: { runtime: fake }, other: { runtime: fake } }
";

#[tokio::test(flavor = "multi_thread")]
async fn a_job_names_the_token_that_made_it() {
    let (cluster, _server, admin) =
        Cluster::start_with_tokens(env!("CARGO_BIN_EXE_longshore"), JOBS, &[]).await;
    let ann = cluster.make_token(&admin, "ann", &["--role", "submitter"]);
    let some = cluster.make_token(&admin, "some", &["--role", "submitter", "--definitions", "hello"]);
    assert_eq!(cluster.run_as(&ann, &["run", "hello"]).0, 0);
    assert_eq!(cluster.run_as(&some, &["run", "hello"]).0, 0);
    assert_eq!(cluster.run_as(&ann, &["run", "other"]).0, 0);
    let client = http::client().build().unwrap();
    let ask = async |token: &str, method: reqwest::Method, path: &str, body: &str| -> Value {
        let request = client.request(method, format!("http://{}{path}", cluster.address()));
        let request = request.header("authorization", bearer(token));
        let request = request.header("content-type", "application/json").body(body.to_owned());
        request.send().await.unwrap().json().await.unwrap()
    };
    let (get, post) = (reqwest::Method::GET, reqwest::Method::POST);
    let made = ask(&ann, post.clone(), "/api/jobs/hello", r#"{"count":3}"#).await;
    assert_eq!(made["count"], 3, "{made}");
    let numbers = async |token: &str, query: &str| -> Vec<u64> {
        let listed = ask(token, get.clone(), &format!("/api/jobs?{query}"), "").await;
        listed.as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()).collect()
    };
    // A reader sees all definitions, whatever its scope: the filter tells nothing more.
    for token in [&ann, &some] {
        assert_eq!(numbers(token, "submitted_by=ann").await, [6, 5, 4, 3, 1]);
        assert_eq!(numbers(token, "submitted_by=ann&name=other").await, [3]);
        assert_eq!(numbers(token, "submitted_by=some").await, [2]);
        assert!(numbers(token, "submitted_by=nobody").await.is_empty());
    }
    assert_eq!(ask(&ann, get.clone(), "/api/jobs?submitted_by=", "").await["code"], "invalid_query");
    assert_eq!(ask(&ann, get.clone(), "/api/jobs/4", "").await["submitted_by"], "ann");
    assert_eq!(ask(&ann, get.clone(), "/api/batches/4", "").await["submitted_by"], "ann");
    let made = ask(&some, post.clone(), "/api/jobs/hello", "").await;
    assert_eq!(made["submitted_by"], "some", "{made}");

    // The bulk verbs take the same filter, and the scope still decides about each job.
    let cancelled = ask(&some, post.clone(), "/api/jobs/cancel?submitted_by=ann&dry_run=1", "").await;
    assert_eq!((&cancelled["matched"], &cancelled["out_of_scope"]), (&json!(4), &json!(1)), "{cancelled}");
    assert_eq!(cluster.run_as(&some, &["cancel", "--by", "ann", "--name", "hello", "--yes"]).0, 0);
    assert_eq!(numbers(&some, "submitted_by=ann&state=cancelled").await, [6, 5, 4, 1]);

    // A retry names who asked for it.
    let retried = ask(&some, post.clone(), "/api/jobs/1/retry", "").await;
    assert_eq!((&retried["retry_of"], &retried["submitted_by"]), (&json!(1), &json!("some")), "{retried}");
    let (code, listed) = cluster.run_as(&ann, &["ls", "--by", "some", "-q"]);
    assert_eq!((code, listed.as_str()), (0, "8\n7\n2\n"));
    let (_, wide) = cluster.run_as(&ann, &["ls", "--by", "some", "-o", "wide", "-n", "1"]);
    let mut lines = wide.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let (heading, row) = (lines.next().unwrap(), lines.next().unwrap());
    assert!(heading.contains(&"BY") && row.contains(&"some"), "{wide}");
    let (_, shown) = cluster.run_as(&ann, &["show", "8"]);
    assert!(shown.lines().any(|line| line.starts_with("made by") && line.ends_with("some")), "{shown}");
    let (_, csv) = cluster.run_as(&ann, &["ls", "--by", "some", "-o", "csv"]);
    assert!(csv.lines().next().unwrap().ends_with(",submitted_by") && csv.contains(",some\r"), "{csv}");

    let page = client.get(format!("http://{}/jobs/8", cluster.address()));
    let page = page.header("authorization", bearer(&ann)).send().await.unwrap().text().await.unwrap();
    assert!(page.contains("/jobs?submitted_by=some\">some</a>"), "{page}");
    let events = ask_text(&client, &cluster, &ann, "/api/events?follow=0&tail=50&kind=job.accepted").await;
    assert!(events.contains(r#""submitted_by":"ann""#), "{events}");
}

async fn ask_text(client: &reqwest::Client, cluster: &Cluster, token: &str, path: &str) -> String {
    let request =
        client.get(format!("http://{}{path}", cluster.address())).header("authorization", bearer(token));
    request.send().await.unwrap().text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_named_where_no_token_is_needed() {
    let running = Running::start(JOBS).await;
    let made = running.api.post("/api/jobs/hello", None).await["id"].clone();
    let shown = running.api.get(&format!("/api/jobs/{made}")).await;
    assert_eq!(shown.get("submitted_by"), None, "{shown}");
    assert_eq!(running.api.get("/api/jobs?submitted_by=none").await, json!([]));
}

const CHAIN: &str = r#"
version: 1
defaults: { runtime: process }
jobs:
  tick:
    command: [sh, -c, 'echo "$$LONGSHORE_SCHEDULE_ID $$LONGSHORE_SCHEDULED_AT"; exit 3']
    schedule: { id: once, every: 300d, start_at: "2026-01-01T00:00:00Z" }
    catch_up: none
    hooks: { on_failure: alert }
  alert:
    command: [sh, -c, 'echo "of $$LONGSHORE_PARENT_SCHEDULED_AT"']
    hooks: { on_success: further }
  further: { command: [sh, -c, 'echo "of $$LONGSHORE_PARENT_SCHEDULED_AT"'] }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn retries_and_followers_work_on_the_slot_of_the_first_job() {
    const AT: &str = "2026-01-01T00:00:00.000Z";
    let running = Running::start(CHAIN).await;
    let output = async |job: u64| {
        running.api.wait_for_job(job, |job| job["ended_at"].is_string()).await;
        let number = job.to_string();
        wait_for("the output is there", async || {
            Some(running.run_cli(&["logs", &number]).out).filter(|text| !text.is_empty())
        })
        .await
    };
    let job_of = async |query: &str| {
        wait_for("a job is made", async || {
            running.api.get(&format!("/api/jobs?{query}")).await[0]["id"].as_u64()
        })
        .await
    };
    let (from, to) = ("2025-12-31T00:00:00Z", "2026-01-02T00:00:00Z");
    let filled = running.run_cli(&["backfill", "tick", "--from", from, "--to", to]);
    assert_eq!(filled.code, 0, "{filled:?}");
    let first = job_of("name=tick").await;
    assert_eq!(output(first).await, format!("once {AT}\n"));
    let alert = job_of("name=alert").await;
    assert_eq!(output(alert).await, format!("of {AT}\n"));
    assert_eq!(output(job_of("name=further").await).await, format!("of {AT}\n"));
    let shown = running.api.get(&format!("/api/jobs/{alert}")).await;
    assert_eq!((&shown["parent"]["job"], &shown["parent"]["hook"]), (&json!(first), &json!("on_failure")));
    assert_eq!(shown.get("submitted_by"), None, "a hook made it");
    assert_eq!((&shown["parent_scheduled_at"], shown.get("scheduled_at")), (&json!(AT), None), "{shown}");
    let text = running.run_cli(&["show", &alert.to_string()]).out;
    assert!(text.lines().any(|line| line.starts_with("parent's slot") && line.ends_with(AT)), "{text}");

    // The retry has the slot, and does not take it.
    let retried = running.api.post(&format!("/api/jobs/{first}/retry"), None).await;
    assert_eq!((&retried["schedule"], &retried["scheduled_at"]), (&json!("once"), &json!(AT)), "{retried}");
    let second = retried["id"].as_u64().unwrap();
    assert_eq!(output(second).await, format!("once {AT}\n"));
    let shown = running.api.get(&format!("/api/jobs/{second}")).await;
    assert_eq!((&shown["schedule"], &shown["scheduled_at"]), (&json!("once"), &json!(AT)), "{shown}");
    let by_schedule = running.api.get("/api/jobs?schedule=once").await;
    assert_eq!(by_schedule.as_array().unwrap().len(), 2, "{by_schedule}");
    let text = running.run_cli(&["show", &second.to_string()]).out;
    for (field, value) in [("schedule", "once"), ("slot", AT), ("retry of", &first.to_string())] {
        assert!(text.lines().any(|line| line.starts_with(field) && line.ends_with(value)), "{field}: {text}");
    }
    let wide = running.run_cli(&["ls", "--name", "tick", "-o", "wide"]).out;
    assert_eq!(wide.matches(AT).count(), 2, "{wide}");

    // A job that comes after one of a slot, also by another entry of the same request.
    let body = json!([
        {"name": "further", "as": "one", "after": [{"job": second, "outcome": "ended"}]},
        {"name": "further", "as": "two", "after": ["one"]},
    ]);
    let batch = running.api.post("/api/jobs", Some(&body)).await["batch"].as_u64().unwrap();
    for member in [batch, batch + 1] {
        assert_eq!(output(member).await, format!("of {AT}\n"));
    }
    let events = running.run_cli(&["events", "--kind", "job.accepted", "-o", "json"]).out;
    assert!(events.contains(&format!(r#""scheduled_at":"{AT}""#)), "{events}");
}
