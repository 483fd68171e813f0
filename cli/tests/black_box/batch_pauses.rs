//! Pauses of batches, and changes of their limits, with real processes.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::{Cluster, http, wait_until};

use crate::running::Running;

const JOBS: &str = "version: 1
jobs:
  hold: { runtime: process, command: [sleep, '60'] }
  plain: { runtime: process, command: ['true'] }
  everywhere: { runtime: process, command: [sleep, '60'], run_on: all, stop_grace_period: 1s }
";

/// Waits until the job waits for the end of a pause, and returns it.
async fn paused(running: &Running, id: u64) -> Value {
    running.api.wait_for_job(id, |job| job["pending_reason"]["code"] == "paused").await
}

/// Waits until the job waits, and for no pause.
async fn waits(running: &Running, id: u64) {
    running.api.wait_for_job(id, |job| job["pending_reason"]["code"] == "limit").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_paused_batch_wait_until_it_is_resumed_also_over_a_restart() {
    let mut running = Running::start(JOBS).await;
    let made = running.run_cli(&["run", "hold", "--count", "3", "--concurrency", "1", "-q"]);
    assert_eq!(made.out, "1\n", "{made:?}");
    running.api.wait_for_job(1, |job| job["state"] == "running").await;
    waits(&running, 2).await;

    let told = running.run_cli(&["pause", "batch:1", "--reason", "wrong input", "--for", "2h"]);
    assert!(told.code == 0 && told.out.starts_with("batch 1 paused"), "{told:?}");
    let job = paused(&running, 2).await;
    let text = job["pending_reason"]["text"].as_str().unwrap();
    assert!(text.starts_with("batch 1 is paused since 20") && text.ends_with(": wrong input"), "{job}");
    let explained = running.run_cli(&["explain", "3"]);
    assert!(explained.out.contains("batch 1 is paused since 20"), "{explained:?}");
    let batch = running.api.get("/api/batches/1").await;
    let pause = &batch["pause"];
    assert_eq!(
        (&pause["of"], &pause["batch"], &pause["reason"]),
        (&json!("batch"), &json!(1), &json!("wrong input"))
    );
    assert_eq!(running.api.get("/api/batches").await[0]["pause"], *pause);
    assert_eq!(running.api.get("/api/pauses").await, json!([pause]));
    let shown = running.run_cli(&["batch", "1"]);
    assert!(shown.out.contains("running (paused)") && shown.out.contains(": wrong input"), "{shown:?}");
    let listed = running.run_cli(&["pauses"]);
    assert!(listed.out.contains("batch 1") && listed.out.contains("wrong input"), "{listed:?}");
    assert_eq!(running.run_cli(&["pauses", "-o", "name"]).out, "batch:1\n");

    // Others of the definition go on, and what runs is left alone.
    let other = running.api.post("/api/jobs/hold", None).await["id"].as_u64().unwrap();
    running.api.wait_for_job(other, |job| job["state"] == "running").await;
    assert_eq!(running.api.get("/api/jobs/1").await["state"], "running");
    running.run_cli(&["cancel", "1"]);
    running.api.wait_for_job(1, |job| job["state"] == "cancelled").await;
    // A server that is killed loses the requests of the last second.
    wait_until("the pause is in the audit log", || async {
        let audit = running.api.get("/api/audit?about=batch%201").await;
        audit.as_array().unwrap().iter().any(|row| row["target"] == "/api/batches/1/pause")
    })
    .await;
    running.server.kill();
    running.server = running.cluster.start_server(&[]).await;
    running.api.wait_for_ready_worker("only").await;
    let later = running.api.post("/api/jobs/plain", None).await["id"].as_u64().unwrap();
    running.api.wait_for_job(later, |job| job["state"] == "succeeded").await;
    assert_eq!(paused(&running, 2).await["state"], "queued");

    let resumed = running.run_cli(&["resume", "batch:1"]);
    assert_eq!((resumed.code, resumed.out.as_str()), (0, "batch 1 resumed\n"), "{resumed:?}");
    running.api.wait_for_job(2, |job| job["state"] == "running").await;
    waits(&running, 3).await;
    assert_eq!(running.run_cli(&["resume", "batch:1"]).out, "batch 1 was not paused\n");
    let events = running.api.get_bytes("/api/events?follow=0&tail=9&kind=batch.resumed").await;
    let events = String::from_utf8(events).unwrap();
    assert!(events.contains(r#""pause":{"of":"batch","batch":1}"#), "{events}");
}

/// Members of jobs on several workers have numbers outside the batch.
#[tokio::test(flavor = "multi_thread")]
async fn members_of_jobs_on_several_workers_wait_for_the_pause_of_the_batch_of_their_parent() {
    let mut running = Running::start(JOBS).await;
    running.run_cli(&["pause", "--all"]);
    let made = running.run_cli(&["run", "everywhere", "--count", "2", "-q"]);
    assert_eq!(made.out, "1\n", "{made:?}");
    wait_until("the second job has its member", || async {
        running.api.get("/api/jobs/2").await["members"]["total"] == 1
    })
    .await;
    let member = running.api.get("/api/jobs?member_of=2").await[0]["id"].as_u64().unwrap();
    assert!(member > 2);
    running.run_cli(&["pause", "batch:1", "--reason", "wrong input"]);
    running.run_cli(&["resume", "--all"]);
    let names_batch = |job: &Value| {
        let text = job["pending_reason"]["text"].as_str().unwrap_or_default();
        text.starts_with("batch 1 is paused since 20") && text.ends_with(": wrong input")
    };
    let parents = |job: &Value| {
        job["pending_reason"]["code"] == "members"
            && job["pending_reason"]["text"].as_str().unwrap().contains("; batch 1 is paused since 20")
    };
    let shown = paused(&running, member).await;
    running.api.wait_for_job(member, names_batch).await;
    assert_eq!(shown["batch"], Value::Null, "{shown}");
    assert!(names_batch(&running.api.get("/api/jobs?member_of=2").await[0]));
    running.api.wait_for_job(2, parents).await;
    let listed = running.api.get("/api/jobs?batch=1").await;
    assert!(listed.as_array().unwrap().iter().all(parents), "{listed}");

    // Another job of the definition is not of the batch.
    let other = running.api.post("/api/jobs/everywhere", None).await["id"].as_u64().unwrap();
    running.api.wait_for_job(other, |job| job["state"] == "running").await;
    running.server.kill();
    running.server = running.cluster.start_server(&[]).await;
    running.api.wait_for_ready_worker("only").await;
    running.api.wait_for_job(member, names_batch).await;
    running.run_cli(&["resume", "batch:1"]);
    running.api.wait_for_job(member, |job| job["state"] == "running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_ends_with_its_batch_and_only_a_live_batch_can_be_paused() {
    let running = Running::start(JOBS).await;
    let made = running.run_cli(&["run", "hold", "--count", "2", "--concurrency", "1", "-q"]);
    assert_eq!(made.out, "1\n", "{made:?}");
    running.run_cli(&["pause", "batch:1"]);
    assert_eq!(running.run_cli(&["pause", "batch:1"]).out, "batch 1 was paused already\n");
    running.run_cli(&["batch", "1", "cancel", "-y"]);
    wait_until("the pause is over", || async {
        running.api.get("/api/batches/1?wait=30s").await["ended_at"].is_string()
            && running.api.get("/api/pauses").await == json!([])
    })
    .await;
    let post = async |path: &str| {
        let answer = running.api.request(Method::POST, path, None, None).await.unwrap();
        (answer.status, answer.body["code"].clone())
    };
    assert_eq!(post("/api/batches/1/pause").await, (409, json!("already_finished")));
    assert_eq!(post("/api/batches/1/resume").await, (409, json!("already_finished")));
    assert_eq!(post("/api/batches/9/pause").await, (404, json!("batch_not_found")));
    assert_eq!(post("/api/batches/1/stop").await, (404, json!("not_found")));
    let ended = running.run_cli(&["pause", "batch:1"]);
    assert!(ended.code != 0 && ended.err.contains("batch 1 has ended: cancelled"), "{ended:?}");
    let usage = running.run_cli(&["pause", "batch:x"]);
    assert!(usage.code == 2 && usage.err.contains("a batch's id is a whole number"), "{usage:?}");
    assert_eq!(running.run_cli(&["pause", "batch:1", "--schedule", "s"]).code, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_pauses_batches_of_its_definitions_only() {
    let jobs = "version: 1\njobs: { hold: { runtime: fake }, other: { runtime: fake } }\n";
    let (cluster, _server, admin) =
        Cluster::start_with_tokens(env!("CARGO_BIN_EXE_longshore"), jobs, &[]).await;
    let some = cluster.make_token(&admin, "some", &["--role", "submitter", "--definitions", "hold"]);
    for name in ["hold", "other"] {
        assert_eq!(cluster.run_as(&admin, &["run", name, "--count", "2"]).0, 0);
    }
    assert_eq!(cluster.run_as(&some, &["pause", "batch:1"]).0, 0);
    assert_eq!(cluster.run_as(&some, &["resume", "batch:1"]).0, 0);
    let (code, text) = cluster.run_as(&some, &["pause", "batch:3"]);
    assert!(code == 3 && text.contains("this acts on more than these"), "{code}: {text}");
    let viewer = cluster.make_token(&admin, "viewer", &["--role", "viewer"]);
    assert_eq!(cluster.run_as(&viewer, &["pause", "batch:1"]).0, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_a_live_batch_are_changed_and_kept_over_a_restart() {
    let mut running = Running::start(JOBS).await;
    let made = running.run_cli(&["run", "hold", "--count", "5", "--concurrency", "1", "-q"]);
    assert_eq!(made.out, "1\n", "{made:?}");
    running.api.wait_for_job(1, |job| job["state"] == "running").await;
    waits(&running, 2).await;
    let told = running.run_cli(&["batch", "1", "set", "--concurrency", "2", "--max-failures", "3"]);
    let out = "batch 1: 2 of its members at once; it stops after 3 failures\n";
    assert_eq!((told.code, told.out.as_str()), (0, out), "{told:?}");
    assert_eq!(running.run_cli(&["batch", "1", "set", "--concurrency", "2"]).out, out, "the same again");
    running.api.wait_for_job(2, |job| job["state"] == "running").await;
    waits(&running, 3).await;
    // The audit log is written a moment after the answer.
    wait_until("the change is in the audit log", || async {
        let audit = running.api.get("/api/audit?about=batch%201").await;
        audit[0]["detail"] == "concurrency 2" && audit[1]["detail"] == "concurrency 2, max_failures 3"
    })
    .await;
    running.server.kill();
    running.server = running.cluster.start_server(&[]).await;
    running.api.wait_for_ready_worker("only").await;
    waits(&running, 3).await;
    let batch = running.api.get("/api/batches/1").await;
    assert_eq!((&batch["concurrency"], &batch["max_failures"]), (&json!(2), &json!(3)), "{batch}");

    let lifted = running.run_cli(&["batch", "1", "set", "--no-concurrency"]);
    assert_eq!(
        lifted.out, "batch 1: any number of its members at once; it stops after 3 failures\n",
        "{lifted:?}"
    );
    for id in 3..=5 {
        running.api.wait_for_job(id, |job| job["state"] == "running").await;
    }
    for (body, expected) in [
        (json!({}), (422, json!("missing_field"))),
        (json!({ "concurrency": 0 }), (422, json!("out_of_range"))),
        (json!({ "concurrency": "2" }), (422, json!("invalid_type"))),
        (json!({ "name": "x" }), (422, json!("unknown_field"))),
    ] {
        let answer = running.api.request(Method::PATCH, "/api/batches/1", Some(&body), None).await.unwrap();
        assert_eq!((answer.status, answer.body["code"].clone()), expected, "{body}: {}", answer.body);
    }
    let unknown = running.run_cli(&["batch", "9", "set", "--concurrency", "2"]);
    assert!(unknown.code == 4 && unknown.err.contains("batch_not_found"), "{unknown:?}");
    for words in
        [&["set"][..], &["set", "--key", "k"], &["cancel", "--no-concurrency"], &["set", "--state", "failed"]]
    {
        let refused = running.run_cli(&[&["batch", "1"], words].concat());
        assert_eq!(refused.code, 2, "{refused:?}");
    }
    running.run_cli(&["batch", "1", "cancel", "-y", "--wait"]);
    let ended = running.run_cli(&["batch", "1", "set", "--concurrency", "2"]);
    assert!(ended.code != 0 && ended.err.contains("batch 1 has ended: cancelled"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_members_are_grouped_by_their_reasons_with_an_example() {
    let running = Running::start(JOBS).await;
    let lines = "{\"name\":\"hold\"}\n".repeat(3) + &"{\"name\":\"hold\",\"delay\":\"1h\"}\n".repeat(600);
    let list = running.cluster.path("list.ndjson");
    std::fs::write(&list, lines).unwrap();
    let made = running.run_cli(&["submit", list.to_str().unwrap(), "--concurrency", "1", "-q"]);
    assert_eq!(made.out, "1\n", "{made:?}");
    running.api.wait_for_job(1, |job| job["state"] == "running").await;
    let explained = running.api.get("/api/batches/1/explain").await;
    assert_eq!((&explained["id"], &explained["counts"]["scheduled"]), (&json!(1), &json!(600)));
    assert_eq!((&explained["limit"]["limit"], &explained["limit"]["in_use"]), (&json!(1), &json!(1)));
    assert_eq!((&explained["counted"], &explained["more"]), (&json!(500), &json!(true)), "{explained}");
    let groups: Vec<(&str, u64, u64)> = explained["waiting"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| {
            let (count, example) = (group["count"].as_u64().unwrap(), group["example"].as_u64().unwrap());
            (group["reason"]["code"].as_str().unwrap(), count, example)
        })
        .collect();
    assert_eq!(groups, [("not_due", 498, 4), ("limit", 2, 2)]);
    let text = explained["waiting"][1]["reason"]["text"].as_str().unwrap();
    assert!(text.starts_with("the limit batch 1 has no permit left: 1 of 1 are held, by 1"), "{explained}");

    let told = running.run_cli(&["explain", "batch:1"]);
    for part in [
        "batch 1 is running: ",
        "limit of the batch 1: 1 of 1 in use, by job 1",
        "of the first 500 members that wait; more follow",
        "not_due",
    ] {
        assert!(told.out.contains(part), "no {part:?}: {told:?}");
    }
    running.run_cli(&["pause", "batch:1", "--reason", "wrong input"]);
    paused(&running, 2).await;
    let told = running.run_cli(&["explain", "batch:1"]);
    assert!(told.out.contains("batch 1 is paused since 20") && told.out.contains("wrong input"), "{told:?}");
    assert_eq!(running.run_cli(&["explain", "batch:1", "-o", "name"]).out, "4\n2\n");
    assert_eq!(running.run_cli(&["explain", "batch:9"]).code, 4);
    running.run_cli(&["batch", "1", "cancel", "-y", "--wait"]);
    let ended = running.api.get("/api/batches/1/explain").await;
    assert_eq!((&ended["waiting"], &ended["limit"]), (&json!([]), &Value::Null), "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_failures_that_is_reached_already_stops_the_batch() {
    let jobs = "version: 1\njobs: { fails: { runtime: process, command: [sh, -c, 'exit 3'] } }\n";
    let running = Running::start(jobs).await;
    running.run_cli(&["run", "fails", "--count", "3", "--concurrency", "1", "--delay", "1h"]);
    running.run_cli(&["reschedule", "1", "--now"]);
    running.api.wait_for_job(1, |job| job["state"] == "failed").await;
    assert_eq!(running.run_cli(&["batch", "1", "set", "--max-failures", "1"]).code, 0);
    let batch = running.api.get("/api/batches/1?wait=30s").await;
    assert_eq!(
        (&batch["state"], &batch["max_failures_reached"]),
        (&json!("failed"), &json!(true)),
        "{batch}"
    );
    assert_eq!(batch["counts"]["cancelled"], 2, "{batch}");
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_are_listed_by_name_label_and_requester() {
    let jobs = "version: 1\njobs: { hold: { runtime: fake } }\n";
    let (cluster, _server, admin) =
        Cluster::start_with_tokens(env!("CARGO_BIN_EXE_longshore"), jobs, &[]).await;
    let ci = cluster.make_token(&admin, "ci", &["--role", "submitter"]);
    let made = |token, name: &str, label: &str| {
        let words = ["run", "hold", "--count", "2", "--batch-name", name, "--label", label];
        assert_eq!(cluster.run_as(token, &words).0, 0);
    };
    made(&admin, "film 7", "team=a");
    made(&ci, "film 8", "team=b");
    made(&ci, "other", "team=b");
    let list = |words: &[&str]| cluster.run_as(&admin, &[&["batches"], words].concat());
    for (words, expected) in [
        (&["-q"][..], "5\n3\n1\n"),
        (&["-q", "--name", "film*"], "3\n1\n"),
        (&["-q", "--name", "film 7"], "1\n"),
        (&["-q", "--label", "team=b"], "5\n3\n"),
        (&["-o", "name", "--by", "ci", "--name", "film*"], "3\n"),
        (&["-q", "--state", "failed"], ""),
        (&["-q", "-n", "1"], "5\n"),
    ] {
        assert_eq!(list(words), (0, expected.to_owned()), "{words:?}");
    }
    let (code, table) = list(&[]);
    assert!(code == 0 && table.lines().next().unwrap().trim_end().ends_with("BY"), "{table}");
    assert!(table.lines().nth(1).unwrap().trim_end().ends_with("ci"), "{table}");
    assert_eq!(list(&["-q", "-o", "csv"]).0, 2);
    assert_ne!(list(&["--label", "team"]).0, 0, "a label has a value");
}

/// The page of a batch has the buttons, and shows the pause with its reason.
#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_pauses_and_resumes_a_batch() {
    let running = Running::start(JOBS).await;
    running.run_cli(&["run", "hold", "--count", "2", "--concurrency", "1"]);
    let client = http::client().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let page = async || client.get(running.api.url("/batches/1")).send().await.unwrap().text().await.unwrap();
    let post = async |verb: &str, body: &'static str| {
        let request = client.post(running.api.url(&format!("/batches/1/{verb}")));
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let request = request.header("origin", running.api.url("")).body(body);
        request.send().await.unwrap().status().as_u16()
    };
    assert!(page().await.contains("action=\"/batches/1/pause\""), "{}", page().await);
    assert_eq!(post("pause", "reason=wrong+input&for=2h").await, 303);
    let shown = page().await;
    assert!(shown.contains("Pause of batch 1") && shown.contains("wrong input"), "{shown}");
    assert!(shown.contains("action=\"/batches/1/resume\""), "{shown}");
    assert_eq!(post("resume", "").await, 303);
    assert_eq!(running.api.get("/api/pauses").await, json!([]));
    running.run_cli(&["batch", "1", "cancel", "-y", "--wait"]);
    assert!(!page().await.contains("/batches/1/pause"));
}
