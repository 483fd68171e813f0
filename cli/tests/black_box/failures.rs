//! Failures that nobody has dealt with, by the real program: a retry or an acknowledgement resolves them, also over a restart.

use std::process::Stdio;

use reqwest::Method;
use serde_json::{Value, json};
use testkit::{Cluster, http, wait_until};

use crate::running::Running;
use crate::stub::{longshore, run};

const JOBS: &str = "version: 1
defaults: { runtime: process }
jobs:
  fails: { command: [sh, -c, exit 3] }
  mail: { command: [sh, -c, exit 4] }
  works: { command: ['true'] }
";

/// Makes jobs one after another, and waits for their ends.
async fn submit(running: &Running, names: &[&str]) -> Vec<u64> {
    let mut ids = Vec::new();
    for name in names {
        let job = running.api.post(&format!("/api/jobs/{name}"), None).await;
        ids.push(job["id"].as_u64().expect("a number"));
    }
    for id in &ids {
        running.api.wait_for_job(*id, |job| job["ended_at"].is_string()).await;
    }
    ids
}

fn unresolved(running: &Running) -> Vec<u64> {
    let listed = running.run_cli(&["ls", "--unresolved", "-q"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    listed.out.lines().map(|line| line.parse().expect("a number")).collect()
}

async fn gauge(running: &Running, definition: &str) -> Option<String> {
    let scrape = String::from_utf8(running.api.get_bytes("/metrics").await).expect("text");
    let sample = format!("longshore_jobs_unresolved{{definition=\"{definition}\"}} ");
    scrape.lines().find_map(|line| line.strip_prefix(&sample).map(str::to_owned))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_on_the_list_until_somebody_deals_with_it() {
    let mut running = Running::start(JOBS).await;
    let ids = submit(&running, &["fails", "mail", "works", "fails"]).await;
    assert_eq!(unresolved(&running), [ids[3], ids[1], ids[0]]);
    let mails = running.api.get("/api/jobs?unresolved=1&name=mail").await;
    assert_eq!((mails[0]["id"].as_u64(), &mails[1]), (Some(ids[1]), &Value::Null), "{mails}");
    assert_eq!(
        (gauge(&running, "fails").await, gauge(&running, "mail").await),
        (Some("2".into()), Some("1".into()))
    );
    assert_eq!(gauge(&running, "works").await, None);

    // The retry is the one to look at, and a later success of the definition resolves nothing.
    let first = ids[0].to_string();
    assert_eq!(running.run_cli(&["retry", &first, "--wait"]).code, 3);
    let retry = running.api.get("/api/jobs?limit=1").await[0]["id"].as_u64().expect("a number");
    assert_eq!(unresolved(&running), [retry, ids[3], ids[1]]);

    let mail = ids[1].to_string();
    let shown = running.run_cli(&["show", &mail]);
    assert!(shown.out.contains("unresolved: not retried, and not acknowledged"), "{shown:?}");
    let acknowledged = running.run_cli(&["ack", &mail, &ids[3].to_string(), "--reason", "disk swap"]);
    assert_eq!(
        (acknowledged.code, acknowledged.out),
        (0, format!("job {mail} is acknowledged\njob {} is acknowledged\n", ids[3]))
    );
    assert_eq!(unresolved(&running), [retry]);
    running.server.kill();
    running.server = running.cluster.start_server(&[]).await;
    assert_eq!(unresolved(&running), [retry], "it outlives a crash");
    let shown = running.run_cli(&["show", &mail]);
    assert!(shown.out.contains(": disk swap") && !shown.out.contains("unresolved"), "{shown:?}");
    assert_eq!((gauge(&running, "fails").await, gauge(&running, "mail").await), (Some("1".into()), None));

    let again = running.run_cli(&["ack", &mail, "--reason", "something else"]);
    assert_eq!(again.code, 0, "{again:?}");
    let job = running.api.get(&format!("/api/jobs/{mail}")).await;
    assert_eq!(job["acknowledged"]["reason"], "disk swap", "the first one stays: {job}");
    let undone = running.run_cli(&["ack", &mail, &first, "--undo"]);
    assert_eq!(undone.code, 0, "{undone:?}");
    assert_eq!(unresolved(&running), [retry, ids[1]]);

    let refused = running.run_cli(&["ack", &ids[2].to_string(), "900"]);
    assert_eq!(refused.code, 5, "{refused:?}");
    assert!(
        refused.err.contains("has ended as succeeded: there is no failure")
            && refused.err.contains("[not_failed]"),
        "{refused:?}"
    );
    assert!(refused.err.contains("there is no job 900"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_failures_of_a_filter_are_counted_confirmed_and_acknowledged() {
    let running = Running::start(JOBS).await;
    let ids = submit(&running, &["fails", "mail", "fails", "works"]).await;
    let address = format!("http://{}", running.cluster.address());
    let mut command = longshore(&["ack", "--name", "fails"]);
    let asked = run(command.env("LONGSHORE_SERVER", &address).stdin(Stdio::null()));
    assert_eq!(asked.code, 2, "{asked:?}");
    assert!(
        asked.err.contains("the filters select 2 jobs; to acknowledge them without a question, add --yes"),
        "{asked:?}"
    );
    let counted = running.run_cli(&["ack", "--name", "*", "--dry-run"]);
    assert_eq!((counted.code, counted.out.as_str()), (0, "3 jobs would be acknowledged\n"), "{counted:?}");
    let by_number = running.run_cli(&["ack", &ids[0].to_string(), &ids[3].to_string(), "--dry-run"]);
    assert_eq!(by_number.out, "1 job would be acknowledged\n", "{by_number:?}");
    assert_eq!(unresolved(&running), [ids[2], ids[1], ids[0]]);

    let done = running.run_cli(&["ack", "--name", "fails", "--reason", "known", "--yes"]);
    assert_eq!((done.code, done.out.as_str()), (0, "2 acknowledged of 2 jobs\n"), "{done:?}");
    assert_eq!(unresolved(&running), [ids[1]]);
    let reason = running.api.get(&format!("/api/jobs/{}", ids[2])).await["acknowledged"]["reason"].clone();
    assert_eq!(reason, "known");
    // Failures that were dealt with are left alone.
    let rest = running.run_cli(&["ack", "--unresolved", "--yes"]);
    assert_eq!(rest.out, "1 acknowledged of 1 jobs\n", "{rest:?}");
    assert!(unresolved(&running).is_empty());
    let undone = running.run_cli(&["ack", "--name", "*", "--undo", "--dry-run"]);
    assert_eq!(undone.out, "3 jobs would no longer be acknowledged\n", "{undone:?}");
    let undone = running.run_cli(&["ack", "--name", "fails", "--undo", "--yes"]);
    assert_eq!(undone.out, "2 no longer acknowledged of 2 jobs\n", "{undone:?}");
    assert_eq!(unresolved(&running), [ids[2], ids[0]]);

    // Nothing but failures that nobody has dealt with is retried.
    let retried = running.run_cli(&["retry", "--unresolved", "--yes", "--key", "k", "-o", "json"]);
    let answer: Value = serde_json::from_str(&retried.out).expect("JSON");
    assert_eq!((&answer["matched"], &answer["done"]), (&json!(2), &json!(2)), "{answer}");
    running.api.wait_until_all_ended().await;
    let made: Vec<u64> = serde_json::from_value(answer["jobs"].clone()).expect("numbers");
    assert_eq!(unresolved(&running).len(), 2);
    assert!(unresolved(&running).iter().all(|id| made.contains(id)), "{made:?}");
    // The same command again tells what it has made, and leaves that alone, although it has failed meanwhile.
    let repeated = running.run_cli(&["retry", "--unresolved", "--yes", "--key", "k", "-o", "json"]);
    let answer: Value = serde_json::from_str(&repeated.out).expect("JSON");
    let jobs: Vec<u64> = serde_json::from_value(answer["jobs"].clone()).expect("numbers");
    assert_eq!((&answer["done"], jobs), (&json!(2), made), "{answer}");
    for wrong in ["/api/jobs?unresolved=0", "/api/jobs?unresolved="] {
        let refused = running.api.request(Method::GET, wrong, None, None).await.expect("an answer");
        assert_eq!((refused.status, &refused.body["code"]), (400, &json!("invalid_query")), "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_in_backoff_is_told_from_a_delayed_one() {
    let running = Running::start(
        "version: 1
jobs:
  again: { runtime: process, command: [sh, -c, exit 3], retry: { max: 3, backoff: { initial: 1h, jitter: none } } }
",
    )
    .await;
    let failed = running.api.post("/api/jobs/again", None).await["id"].as_u64().expect("a number");
    let delayed = running.api.post("/api/jobs/again", Some(&json!({ "delay": "1h" }))).await;
    assert_eq!(delayed["pending_reason"]["code"], "not_due", "{delayed}");
    let waits = running
        .api
        .wait_for_job(failed, |job| job["state"] == "scheduled" && job["attempt_count"] == 1)
        .await;
    let reason = &waits["pending_reason"];
    assert_eq!(reason["code"], "backoff", "{waits}");
    let text = reason["text"].as_str().expect("a text");
    assert!(
        text.starts_with("attempt 1 ended as failed (exit code 3); the next one is not due before 20"),
        "{text}"
    );
    assert_eq!(running.run_cli(&["ls", "--backoff", "-q"]).out, format!("{failed}\n"));
    assert_eq!(running.run_cli(&["ls", "--state", "scheduled", "-q"]).out.lines().count(), 2);
    let why = running.run_cli(&["explain", &failed.to_string()]);
    assert!(why.out.contains("attempt 1 ended as failed (exit code 3)"), "{why:?}");
    assert!(unresolved(&running).is_empty(), "it has not ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_of_the_dashboard_acknowledge_failures_and_take_that_back() {
    let running = Running::start(JOBS).await;
    let ids = submit(&running, &["fails", "mail", "fails"]).await;
    let base = format!("http://{}", running.cluster.address());
    let client = http::client().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
    let send = async |path: String, form: &'static str| {
        let request = client.post(format!("{base}{path}")).header("origin", &base).body(form);
        let form = request.header("content-type", "application/x-www-form-urlencoded");
        form.send().await.expect("an answer")
    };
    let sent = send(format!("/jobs/{}/acknowledge", ids[0]), "reason=disk+swap").await;
    assert_eq!(sent.status(), 303);
    assert_eq!(sent.headers()["location"], format!("/jobs/{}", ids[0]));
    let job = running.api.get(&format!("/api/jobs/{}", ids[0])).await;
    assert_eq!(job["acknowledged"]["reason"], "disk swap", "{job}");
    assert_eq!(send(format!("/jobs/{}/unacknowledge", ids[0]), "").await.status(), 303);
    assert_eq!(unresolved(&running), [ids[2], ids[1], ids[0]]);
    let all = "verb=acknowledge&selection=name%3Dfails&confirmed=yes&reason=known";
    let answer = send("/jobs/bulk".to_owned(), all).await.text().await.expect("a page");
    assert!(answer.contains("2 jobs fitted, 2 done"), "{answer}");
    assert_eq!(unresolved(&running), [ids[1]]);
    let job = running.api.get(&format!("/api/jobs/{}", ids[2])).await;
    assert_eq!(job["acknowledged"]["reason"], "known", "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_of_batches_and_pipelines_stand_for_what_they_repeat() {
    let running = Running::start(JOBS).await;
    let batch = running.api.post("/api/jobs/fails", Some(&json!({ "count": 3 }))).await["batch"].clone();
    running.api.wait_until_all_ended().await;
    assert_eq!(unresolved(&running).len(), 3);
    let retried = running.run_cli(&["batch", &batch.to_string(), "retry", "--yes"]);
    assert_eq!(retried.code, 0, "{retried:?}");
    running.api.wait_until_all_ended().await;
    assert_eq!(unresolved(&running), [6, 5, 4]);
    assert_eq!(running.run_cli(&["ack", "--batch", "4", "--yes"]).out, "3 acknowledged of 3 jobs\n");

    let before = submit(&running, &["fails"]).await[0];
    let after = json!({ "after": [{ "job": before, "outcome": "ended" }] });
    let after = running.api.post("/api/jobs/mail", Some(&after)).await["id"].as_u64().expect("a number");
    running.api.wait_until_all_ended().await;
    assert_eq!(unresolved(&running), [after, before]);
    let retried = running.run_cli(&["pipeline", &after.to_string(), "retry"]);
    assert_eq!(retried.code, 0, "{retried:?}");
    running.api.wait_until_all_ended().await;
    assert_eq!(unresolved(&running), [after + 2, after + 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledgement_needs_the_role_of_a_retry_and_has_a_name() {
    let (cluster, _server, admin) =
        Cluster::start_with_tokens(env!("CARGO_BIN_EXE_longshore"), JOBS, &[]).await;
    let join = cluster.make_token(&admin, "machines", &["--role", "worker"]);
    let _worker = cluster.start_worker("only", &["--no-docker", "--allow-process", "--token-file", &join]);
    let eyes = cluster.make_token(&admin, "eyes", &["--role", "viewer"]);
    let anna = cluster.make_token(&admin, "anna", &["--role", "submitter", "--definitions", "fails"]);
    for name in ["fails", "mail", "fails"] {
        let (code, text) = cluster.run_as(&admin, &["run", name, "--wait"]);
        assert_ne!(code, 0, "{text}");
    }
    let (code, text) = cluster.run_as(&eyes, &["ack", "1"]);
    assert!(code != 0 && text.contains("[forbidden]"), "{text}");
    let (code, text) = cluster.run_as(&anna, &["ack", "2"]);
    assert!(code != 0 && text.contains("[out_of_scope]"), "{text}");
    let (_, text) = cluster.run_as(&anna, &["ack", "--unresolved", "--dry-run"]);
    assert_eq!(text, "2 jobs would be acknowledged\n");
    let (code, text) = cluster.run_as(&anna, &["ack", "1", "--reason", "disk swap"]);
    assert_eq!(code, 0, "{text}");
    let (_, job) = cluster.run_as(&eyes, &["show", "1", "-o", "json"]);
    let job: Value = serde_json::from_str(&job).expect("JSON");
    assert_eq!(
        (&job["acknowledged"]["by"], &job["acknowledged"]["reason"]),
        (&json!("anna"), &json!("disk swap")),
        "{job}"
    );
    wait_until("the audit log has it", async || {
        let (_, audit) = cluster.run_as(&admin, &["audit", "--about", "jobs 1", "-o", "json"]);
        audit.contains("acknowledge: 1 of 1 jobs, refused 0; reason: disk swap")
    })
    .await;
}
