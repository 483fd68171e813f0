//! Jobs over HTTP: made, listed, looked at, cancelled, released.

use scheduler::job::State;
use scheduler::step::PendingReason;

use crate::support::{Server, within};

#[tokio::test]
async fn a_post_without_a_body_makes_a_job_with_a_location() {
    let server = Server::start().await;
    let answer = server.ask("POST", "/api/jobs/resize", &[], "").await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(answer.header("location"), "/api/jobs/1");
    let job = answer.json();
    assert_eq!(job["id"], 1);
    assert_eq!(job["name"], "resize");
    assert_eq!(job["state"], "queued");
    assert_eq!(job["queuing"], true);
    assert_eq!(job["running"], false);
    assert_eq!(job["success"], false);
    assert_eq!(job["priority"], 5);
    assert_eq!(job["pending_reason"]["code"], "soon");
    assert_eq!(job["created_at"], "1970-01-01T00:00:01.000Z");
    assert!(job.get("warning").is_none());
}

#[tokio::test]
async fn the_body_of_a_job_arrives_whole() {
    let server = Server::start().await;
    let body = r#"{"environment":{"SIZE":"640"},"args":["-q"],"priority":-3,"timeout":"90s","labels":{"team":"web"}}"#;
    let answer = server.post("/api/jobs/resize", body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(answer.json()["timeout"], 90_000);
    assert_eq!(answer.json()["labels"]["team"], "web");
    let record = server.stand.world().record(1).clone();
    assert_eq!(record.overrides.environment, [("SIZE".to_owned(), "640".to_owned())]);
    assert_eq!(record.overrides.args, ["-q"]);
    assert_eq!(record.row.priority, -3);
    let shown = server.get("/api/jobs/1").await;
    assert_eq!(shown.json()["environment"], serde_json::json!(["SIZE"]));
    assert!(!shown.body.contains("640"), "values are hidden");
}

#[tokio::test]
async fn without_a_worker_a_job_is_accepted_with_a_warning_or_refused_on_request() {
    let server = Server::start().await;
    server.stand.world().pending = Some(PendingReason::NoWorker);
    let answer = server.ask("POST", "/api/jobs/resize", &[], "").await;
    assert_eq!(answer.status, 201);
    assert_eq!(answer.json()["warning"]["code"], "no_worker_matches");
    assert_eq!(answer.json()["pending_reason"]["code"], "no_worker");
    let answer = server.ask("POST", "/api/jobs/resize?require_worker=1", &[], "").await;
    answer.is_problem(503, "no_worker");
    assert!(!answer.header("retry-after").is_empty());
}

#[tokio::test]
async fn the_same_key_makes_one_job_and_another_body_a_conflict() {
    let server = Server::start().await;
    let key = [("idempotency-key", "k-1"), ("content-type", "application/json")];
    let first = server.ask("POST", "/api/jobs/resize", &key, r#"{"args":["a"]}"#).await;
    assert_eq!(first.status, 201);
    let again = server.ask("POST", "/api/jobs/resize", &key, r#"{"args":["a"]}"#).await;
    assert_eq!(again.status, 200);
    assert_eq!(again.header("idempotent-replay"), "true");
    assert_eq!(again.header("location"), "/api/jobs/1");
    assert_eq!((&again.json()["id"], &again.json()["replayed"]), (&1.into(), &true.into()));
    assert_eq!(first.json()["replayed"], serde_json::Value::Null);
    let other = server.ask("POST", "/api/jobs/resize", &key, r#"{"args":["b"]}"#).await;
    other.is_problem(409, "idempotency_mismatch");
    let elsewhere = server.ask("POST", "/api/jobs/backup", &key, r#"{"args":["a"]}"#).await;
    elsewhere.is_problem(409, "idempotency_mismatch");
    assert_eq!(server.stand.world().jobs.len(), 1);
}

#[tokio::test]
async fn keys_that_cannot_be_kept_are_refused() {
    let server = Server::start().await;
    for key in ["x".repeat(300), "schlüssel".to_owned(), "two words".to_owned()] {
        let answer = server.ask("POST", "/api/jobs/resize", &[("idempotency-key", &key)], "").await;
        answer.is_problem(400, "invalid_idempotency_key");
    }
}

#[tokio::test]
async fn a_waiting_submission_is_answered_at_the_end() {
    let server = Server::start().await;
    let mut waiting = server.open("POST /api/jobs/resize?wait=1m HTTP/1.1\r\nconnection: close").await;
    let ended = async {
        let mut interval = tokio::time::interval(std::time::Duration::from_millis(5));
        while !server.stand.world().waiting.contains_key(&protocol::JobId(1)) {
            interval.tick().await;
        }
        server.stand.world().start(1);
        server.stand.world().end(1, State::Succeeded, 0);
    };
    within(ended).await;
    waiting.until_closed().await;
    assert!(waiting.seen.contains("\"state\":\"succeeded\""), "{}", waiting.seen);
    assert!(waiting.seen.contains("\"attempts\":[{"), "{}", waiting.seen);
}

#[tokio::test]
async fn a_wait_that_times_out_shows_the_present_state() {
    let server = Server::start().await;
    let answer = server.ask("POST", "/api/jobs/resize?wait=10ms", &[], "").await;
    assert_eq!(answer.status, 201);
    assert_eq!(answer.json()["state"], "queued");
}

#[tokio::test]
async fn many_jobs_come_as_lines_or_as_an_array() {
    let server = Server::start().await;
    let lines = "{\"name\":\"resize\"}\n{\"name\":\"backup\",\"args\":[\"x\"]}\n\n{\"name\":\"resize\"}\n";
    let answer = server.ask("POST", "/api/jobs", &[("content-type", "application/x-ndjson")], lines).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(
        answer.json(),
        serde_json::json!({"batch": 1, "count": 3, "first": 1, "last": 3, "created_at": "1970-01-01T00:00:01.000Z"})
    );
    let answer = server.post("/api/jobs", r#"[{"name":"resize"},{"name":"resize"}]"#).await;
    assert_eq!(answer.json()["first"], 4);
    let members = server.get("/api/jobs?batch=4").await.json();
    assert_eq!(members.as_array().unwrap().len(), 2);
    assert_eq!(server.stand.world().record(2).overrides.args, ["x"]);
}

#[tokio::test]
async fn a_batch_with_one_fault_makes_no_job() {
    let server = Server::start().await;
    let ask = async |body: &str| server.post("/api/jobs", body).await;
    let problem = ask(r#"[{"name":"resize"},{"name":"resise"}]"#).await.is_problem(404, "unknown_job");
    assert_eq!(problem["field"], "jobs[1].name");
    assert_eq!(problem["near"][0], "resize");
    ask(r#"[{"name":"resize"},{"args":[]}]"#).await.is_problem(422, "missing_field");
    ask(r#"[{"name":"off"}]"#).await.is_problem(409, "definition_disabled");
    ask("[]").await.is_problem(422, "empty_batch");
    ask("{}").await.is_problem(422, "invalid_type");
    ask(r#"[{"name":"resize"}"#).await.is_problem(400, "invalid_json");
    ask(r#"[{"name":"resize","name":"resize"}]"#).await.is_problem(400, "duplicate_key");
    let long = format!("[{}{{\"name\":\"resize\"}}]", "{\"name\":\"resize\"},".repeat(100_000));
    ask(&long).await.is_problem(413, "too_many_jobs");
    assert_eq!(server.stand.world().jobs.len(), 0);
}

#[tokio::test]
async fn a_batch_may_have_a_key_too() {
    let server = Server::start().await;
    let headers = [("idempotency-key", "b"), ("content-type", "application/json")];
    let body = r#"[{"name":"resize"},{"name":"resize"}]"#;
    assert_eq!(server.ask("POST", "/api/jobs", &headers, body).await.status, 201);
    let again = server.ask("POST", "/api/jobs", &headers, body).await;
    assert_eq!((again.status, again.json()["last"].as_u64()), (200, Some(2)));
}

#[tokio::test]
async fn one_job_is_shown_with_its_timeline() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    server.stand.world().start(1);
    server.stand.world().end(1, State::Failed, 3);
    let answer = server.get("/api/jobs/1").await;
    let job = answer.json();
    assert_eq!(job["state"], "failed");
    assert_eq!(job["exit_code"], 3);
    assert_eq!(job["worker"]["name"], "w1");
    assert_eq!(job["attempts"][0]["ran_ms"], 6_000);
    let events: Vec<&str> =
        job["timeline"].as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["accepted", "assigned", "started", "attempt_ended", "failed"]);
}

#[tokio::test]
async fn malformed_ids_and_unknown_jobs_have_different_problems() {
    let server = Server::start().await;
    for id in ["x", "0", "-1", "01", "1e3", "99999999999999999999", "%00"] {
        server.get(&format!("/api/jobs/{id}")).await.is_problem(400, "invalid_id");
    }
    server.get("/api/jobs/7").await.is_problem(404, "job_not_found");
    server.ask("POST", "/api/jobs/7/cancel", &[], "").await.is_problem(404, "job_not_found");
    server.ask("POST", "/api/jobs/7/retry", &[], "").await.is_problem(404, "job_not_found");
    server.get("/api/jobs/7/logs").await.is_problem(404, "job_not_found");
}

#[tokio::test]
async fn cancel_is_idempotent_and_a_conflict_for_jobs_that_ended() {
    let server = Server::start().await;
    for _ in 0..3 {
        server.post("/api/jobs/resize", "").await;
    }
    let cancel = async |id: u64| server.ask("POST", &format!("/api/jobs/{id}/cancel"), &[], "").await;
    let at_once = cancel(1).await;
    assert_eq!((at_once.status, at_once.json()["state"].as_str()), (200, Some("cancelled")));
    assert_eq!(cancel(1).await.status, 200);
    server.stand.world().start(2);
    assert_eq!(cancel(2).await.status, 202);
    server.stand.world().end(3, State::Succeeded, 0);
    let problem = cancel(3).await.is_problem(409, "already_finished");
    assert_eq!(problem["state"], "succeeded");
}

#[tokio::test]
async fn release_requeues_quarantined_jobs_only() {
    let server = Server::start().await;
    for _ in 0..3 {
        server.post("/api/jobs/resize", "").await;
    }
    server.stand.world().record(1).row.state = State::Quarantined;
    let release = async |id: u64| server.ask("POST", &format!("/api/jobs/{id}/release"), &[], "").await;
    let released = release(1).await;
    assert_eq!((released.status, released.json()["state"].as_str()), (200, Some("queued")));
    let event = &released.json()["timeline"][1];
    assert_eq!((&event["event"], &event["text"]), (&"released".into(), &"by http 127.0.0.1".into()));
    server.stand.world().start(2);
    let problem = release(2).await.is_problem(409, "nothing_to_release");
    assert_eq!(problem["state"], "running");
    server.stand.world().end(3, State::Failed, 1);
    assert_eq!(release(3).await.is_problem(409, "already_finished")["state"], "failed");
    release(9).await.is_problem(404, "job_not_found");
}

#[tokio::test]
async fn a_full_disk_refuses_new_jobs_and_nothing_else() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    server.storage.note(1, 1 << 30);
    let told = server.post("/api/jobs/resize", "").await.is_problem(507, "storage_low");
    assert_eq!(told["detail"], "the disk of the server's data directory has no room for new jobs");
    assert!(told["hint"].as_str().is_some_and(|hint| hint.starts_with("free space")), "{told}");
    server.post("/api/jobs", r#"[{"name": "resize"}]"#).await.is_problem(507, "storage_low");
    server.post("/api/jobs/1/retry", "").await.is_problem(507, "storage_low");
    assert_eq!(server.stand.world().jobs.len(), 1);
    assert_eq!(server.post("/api/jobs/1/cancel", "").await.status, 200);
    assert_eq!(server.get("/readyz").await.status, 200);
    server.storage.note(1 << 30, 1 << 30);
    assert_eq!(server.post("/api/jobs/resize", "").await.status, 201);
}

#[tokio::test]
async fn a_disk_that_fills_up_while_a_batch_arrives_refuses_all_of_it() {
    let server = Server::start().await;
    let body = r#"[{"name":"resize"}]"#;
    let head = format!(
        "POST /api/jobs HTTP/1.1\r\nexpect: 100-continue\r\nconnection: close\r\ncontent-length: {}\r\n\
         content-type: application/json",
        body.len()
    );
    let mut request = server.open(&head).await;
    request.until("100 Continue").await;
    server.storage.note(1, 1 << 30);
    request.write(body).await;
    request.until_closed().await;
    assert!(request.seen.contains("HTTP/1.1 507 "), "{}", request.seen);
    assert_eq!(server.stand.world().jobs.len(), 0);
}

#[tokio::test]
async fn while_the_disk_does_not_answer_new_jobs_are_refused_instead_of_left_waiting() {
    let server = Server::start().await;
    let now = longshore_server::clock::now().up;
    server.commit.begin(now);
    assert_eq!(server.post("/api/jobs/resize", "").await.status, 201, "a commit takes its time");
    server.commit.begin(protocol::Uptime(now.0.saturating_sub(5_000_000_000)));
    let refusal = server.post("/api/jobs/resize", "").await;
    refusal.is_problem(503, "busy");
    assert_eq!(refusal.header("retry-after"), "5");
    let unready = server.ask("GET", "/readyz", &[("accept", "text/plain")], "").await;
    unready.is_problem(503, "busy");
    assert_eq!(unready.header("retry-after"), "5");
    assert_eq!(server.post("/api/jobs/1/cancel", "").await.status, 200);
    server.commit.end();
    assert_eq!(server.post("/api/jobs/resize", "").await.status, 201);
    assert_eq!(server.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn a_leaving_server_takes_nothing_new_and_still_shows() {
    let server = Server::start().await;
    assert_eq!(server.post("/api/jobs/resize", "").await.status, 201);
    server.shutdown_inside.cancel();
    for path in ["/api/jobs/resize", "/api/jobs", "/api/jobs/1/retry"] {
        let refusal = server.post(path, "").await;
        let told = refusal.is_problem(503, "draining");
        assert!(told["hint"].as_str().is_some_and(|hint| hint.contains("Idempotency-Key")), "{told}");
        assert_eq!(refusal.header("retry-after"), "5", "{path}");
    }
    server.get("/readyz").await.is_problem(503, "draining");
    assert_eq!(server.get("/api/jobs/1").await.json()["state"], "queued");
    assert_eq!(server.stand.world().jobs.len(), 1);
}

#[tokio::test]
async fn a_submission_under_way_is_finished_by_a_leaving_server() {
    let server = Server::start().await;
    let head = "POST /api/jobs/resize HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\
        content-type: application/json";
    let mut request = server.open(head).await;
    request.until("100 Continue").await;
    server.shutdown.cancel();
    request.write("{}").await;
    request.until_closed().await;
    assert!(request.seen.contains("HTTP/1.1 201 "), "{}", request.seen);
    within(server.served).await.expect("the listener ends");
    assert_eq!(server.stand.world().jobs.len(), 1);
}

#[tokio::test]
async fn the_end_of_a_job_can_be_waited_for_where_it_is_shown() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    server.stand.world().start(1);
    let waiting = server.get("/api/jobs/1?wait=10m");
    let ending = async {
        let mut interval = tokio::time::interval(std::time::Duration::from_millis(5));
        while !server.stand.world().waiting.contains_key(&protocol::JobId(1)) {
            interval.tick().await;
        }
        server.stand.world().end(1, State::Succeeded, 0);
    };
    let (answer, ()) = tokio::join!(waiting, within(ending));
    assert_eq!(answer.json()["state"], "succeeded");
    assert_eq!(server.get("/api/jobs/1?wait=10m").await.json()["state"], "succeeded");
    server.post("/api/jobs/resize", "").await;
    assert_eq!(server.get("/api/jobs/2?wait=10ms").await.json()["state"], "queued");
    server.get("/api/jobs/1?wait=11m").await.is_problem(400, "invalid_query");
    server.get("/api/jobs/1?follow=1").await.is_problem(400, "invalid_query");
}

#[tokio::test]
async fn a_job_may_start_later_at_an_instant_or_after_a_delay() {
    let server = Server::start().await;
    let answer = server.post("/api/jobs/resize", r#"{"run_at":"2027-03-01T10:30:00.25+01:00"}"#).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(answer.json()["due_at"], "2027-03-01T09:30:00.250Z");
    assert_eq!(server.get("/api/jobs/1").await.json()["state"], "scheduled");
    let answer = server.post("/api/jobs/resize", r#"{"delay":"1m30s250ms"}"#).await;
    assert_eq!(answer.json()["due_at"], "1970-01-01T00:01:31.250Z");
    let batch = r#"[{"name":"resize","delay":"5s"},{"name":"resize","run_at":"2027-03-01T09:30:00Z"}]"#;
    assert_eq!(server.post("/api/jobs", batch).await.status, 201);
    assert_eq!(server.get("/api/jobs/3").await.json()["due_at"], "1970-01-01T00:00:06.000Z");
    assert_eq!(server.get("/api/jobs/4").await.json()["due_at"], "2027-03-01T09:30:00.000Z");
    for (body, code) in [
        (r#"{"run_at":"tomorrow"}"#, "invalid_time"),
        (r#"{"run_at":"2027-03-01T09:30:00"}"#, "invalid_time"),
        (r#"{"run_at":"2027-03-01T09:30:00Z","delay":"1s"}"#, "invalid_time"),
        (r#"{"delay":"soon"}"#, "invalid_duration"),
    ] {
        server.post("/api/jobs/resize", body).await.is_problem(422, code);
    }
}

#[tokio::test]
async fn start_and_priority_of_a_waiting_job_can_be_changed() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", r#"{"delay":"1h"}"#).await;
    let json = [("content-type", "application/json")];
    let patch =
        async |job: u64, body: &str| server.ask("PATCH", &format!("/api/jobs/{job}"), &json, body).await;
    let answer = patch(1, r#"{"delay":"250ms","priority":-7}"#).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!((&answer.json()["state"], &answer.json()["priority"]), (&"scheduled".into(), &(-7).into()));
    assert_eq!(answer.json()["due_at"], "1970-01-01T00:00:01.250Z");
    assert_eq!(answer.json()["timeline"][1]["event"], "updated");
    let text = answer.json()["timeline"][1]["text"].as_str().unwrap().to_owned();
    assert!(text.contains("due 1970-01-01T00:00:01.250Z, priority -7"), "{text}");
    assert_eq!(patch(1, r#"{"delay":"0s"}"#).await.json()["state"], "queued");
    assert_eq!(patch(1, r#"{"run_at":"2027-03-01T09:30:00Z"}"#).await.json()["state"], "scheduled");

    patch(1, "{}").await.is_problem(422, "missing_field");
    patch(1, r#"{"colour":"red"}"#).await.is_problem(422, "unknown_field");
    patch(1, r#"{"priority":101,"delay":"x"}"#).await.is_problem(422, "invalid_duration");
    patch(1, r#"{"run_at":"2027-03-01T09:30:00Z","delay":"1s"}"#).await.is_problem(422, "invalid_time");
    patch(9, r#"{"priority":1}"#).await.is_problem(404, "job_not_found");
    server.ask("PATCH", "/api/jobs/1?x=1", &json, r#"{"priority":1}"#).await.is_problem(400, "invalid_query");
    server.stand.world().start(1);
    let refused = patch(1, r#"{"priority":1}"#).await;
    refused.is_problem(409, "not_waiting");
    assert_eq!(refused.json()["state"], "running");
    server.stand.world().end(1, State::Succeeded, 0);
    patch(1, r#"{"priority":1}"#).await.is_problem(409, "already_finished");
}
