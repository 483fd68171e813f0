//! Retries of ended jobs and repeated requests, also after a change of jobs.yaml.

use axum::body::{Body, to_bytes};
use axum::http::Request;
use scheduler::job::State;
use tower::ServiceExt as _;

use crate::support::{Answered, Server};

/// jobs.yaml is read again, and says this.
async fn reload(server: &Server, jobs: &str) {
    std::fs::write(&server.jobs_file, format!("jobs: {jobs}\n")).expect("a place for jobs.yaml");
    let answer = server.ask("POST", "/api/definitions/reload", &[], "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

fn is_replay(answer: &Answered) -> bool {
    answer.status == 200 && answer.header("idempotent-replay") == "true"
}

#[tokio::test]
async fn an_ended_job_can_be_tried_again_as_a_new_one() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", r#"{"args":["x"],"priority":9}"#).await;
    let retry = async || server.ask("POST", "/api/jobs/1/retry?revision=original", &[], "").await;
    let problem = retry().await.is_problem(409, "not_finished");
    assert_eq!(problem["state"], "queued");
    server.stand.world().end(1, State::Failed, 1);
    let answer = retry().await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(answer.json()["retry_of"], 1);
    let record = server.stand.world().record(2).clone();
    assert_eq!((record.overrides.args, record.row.priority), (vec!["x".to_owned()], 9));
    server.stand.world().record(1).row.revision = protocol::Revision(77);
    retry().await.is_problem(409, "revision_gone");
}

#[tokio::test]
async fn an_ended_job_is_not_tried_again_while_its_definition_is_disabled() {
    let server = Server::start().await;
    reload(&server, "{resize: {image: resize:1}}").await;
    server.post("/api/jobs/resize", "").await;
    server.stand.world().end(1, State::Failed, 1);
    let retry =
        async |key: &str| server.ask("POST", "/api/jobs/1/retry", &[("idempotency-key", key)], "").await;
    assert_eq!(retry("a").await.status, 201);

    reload(&server, "{resize: {image: resize:2, enabled: false}}").await;
    retry("b").await.is_problem(409, "definition_disabled");
    assert_eq!(server.stand.world().jobs.len(), 2);
    let replay = retry("a").await;
    assert!(is_replay(&replay) && replay.json()["id"] == 2, "{replay:?}");

    reload(&server, "{other: {image: other:1}}").await;
    let gone = retry("b").await.is_problem(404, "unknown_job");
    assert!(gone["hint"].as_str().unwrap().contains("revision=original"), "{gone}");
    let original = server.ask("POST", "/api/jobs/1/retry?revision=original", &[], "").await;
    assert_eq!(original.status, 201, "a definition that is only gone from the file is not forbidden");
}

#[tokio::test]
async fn a_retry_uses_the_current_definition_unless_the_original_is_asked_for() {
    let server = Server::start().await;
    reload(&server, "{resize: {image: resize:1}}").await;
    let old = server.post("/api/jobs/resize", "").await.json()["revision"].clone();
    server.stand.world().end(1, State::Failed, 1);
    reload(&server, "{resize: {image: resize:2}}").await;
    let retry = async |query: &str| {
        let answer = server.ask("POST", &format!("/api/jobs/1/retry{query}"), &[], "").await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["revision"].clone()
    };
    let current = server.get("/api/definitions/resize").await.json()["revision"].clone();
    assert_ne!(old, current);
    assert_eq!(retry("").await, current);
    assert_eq!(retry("?revision=current").await, current);
    assert_eq!(retry("?revision=original").await, old);
    let other = server.ask("POST", "/api/jobs/1/retry?revision=3", &[], "").await;
    other.is_problem(400, "invalid_query");
}

/// The present definition also decides about jobs of its earlier revisions.
#[tokio::test]
async fn changes_of_an_original_revision_are_bound_by_the_present_definition() {
    let server = Server::start().await;
    reload(&server, "{resize: {image: resize:1}}").await;
    server.post("/api/jobs/resize", "").await;
    server.stand.world().end(1, State::Failed, 1);
    reload(&server, "{resize: {image: resize:2, allow: []}}").await;
    for query in ["", "?revision=original"] {
        let path = format!("/api/jobs/1/retry{query}");
        server.post(&path, r#"{"args":["--force"]}"#).await.is_problem(422, "override_not_allowed");
        assert_eq!(server.post(&path, "{}").await.status, 201, "{query}");
    }
}

#[tokio::test]
async fn the_body_of_a_retry_is_laid_over_the_overrides_of_the_job() {
    let server = Server::start().await;
    let body = r#"{"args":["x"],"environment":{"A":"1","B":"2"},"labels":{"team":"web"},"priority":9}"#;
    server.post("/api/jobs/resize", body).await;
    server.stand.world().end(1, State::Failed, 1);
    let retry = async |body: &str| {
        let json = [("content-type", "application/json")];
        server.ask("POST", "/api/jobs/1/retry", &json, body).await
    };
    let changes = r#"{"args":["y","z"],"environment":{"B":"3","C":"4"},"labels":{"try":"2"},"priority":-1}"#;
    assert_eq!(retry(changes).await.status, 201);
    let record = server.stand.world().record(2).clone();
    let pairs = |pairs: &[(String, String)]| {
        pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(record.overrides.args, ["y", "z"]);
    assert_eq!(pairs(&record.overrides.environment), "A=1 B=3 C=4");
    assert_eq!(pairs(&record.row.labels), "team=web try=2");
    assert_eq!(record.row.priority, -1);
    retry(r#"{"argz":[]}"#).await.is_problem(422, "unknown_field");
    assert_eq!(retry(r#"{"args":[]}"#).await.status, 201);
    let record = server.stand.world().record(3).clone();
    assert_eq!((record.overrides.args, pairs(&record.overrides.environment)), (Vec::new(), "A=1 B=2".into()));
}

#[tokio::test]
async fn a_request_that_was_accepted_is_answered_again_when_its_definition_is_gone() {
    let server = Server::start().await;
    let ask = async |key: &str, body: &str| {
        let headers = [("idempotency-key", key), ("content-type", "application/json")];
        server.ask("POST", "/api/jobs/resize", &headers, body).await
    };
    assert_eq!(ask("a", r#"{"args":["x"]}"#).await.status, 201);
    reload(&server, "{resize-all: {image: resize:1}}").await;
    let again = ask("a", r#"{"args":["x"]}"#).await;
    assert!(is_replay(&again) && again.json()["id"] == 1, "{again:?}");
    assert_eq!(again.header("location"), "/api/jobs/1");
    ask("a", r#"{"args":["y"]}"#).await.is_problem(409, "idempotency_mismatch");
    let unknown = ask("b", "").await.is_problem(404, "unknown_job");
    assert_eq!(unknown["near"][0], "resize-all");
    server.post("/api/jobs/resize", "").await.is_problem(404, "unknown_job");
    assert_eq!(server.stand.world().jobs.len(), 1);
}

#[tokio::test]
async fn a_request_that_was_accepted_is_answered_again_when_its_definition_has_changed() {
    let server = Server::start().await;
    let ask = async |path: &str, key: &str, body: &str| {
        let headers = [("idempotency-key", key), ("content-type", "application/json")];
        server.ask("POST", path, &headers, body).await
    };
    reload(&server, "{resize: {image: resize:1, params: {size: {type: integer}}}}").await;
    let requests = [
        ("/api/jobs/resize", "one", r#"{"params":{"size":5}}"#),
        ("/api/jobs/resize", "copies", r#"{"params":{"size":5},"count":2}"#),
        ("/api/jobs/resize", "each", r#"{"each":[{"size":5}]}"#),
        ("/api/jobs", "many", r#"[{"name":"resize","params":{"size":5}}]"#),
    ];
    for (path, key, body) in requests {
        assert_eq!(ask(path, key, body).await.status, 201, "{key}");
    }
    reload(&server, "{resize: {image: resize:1, params: {size: {type: integer, max: 4}}}}").await;
    for (path, key, body) in requests {
        let again = ask(path, key, body).await;
        assert!(is_replay(&again), "{key}: {again:?}");
        ask(path, "another", body).await.is_problem(422, "invalid_param");
        ask(path, key, &body.replace('5', "6")).await.is_problem(422, "invalid_param");
    }
    assert_eq!(server.stand.world().jobs.len(), 5);
}

#[tokio::test]
async fn a_batch_that_was_accepted_is_answered_again_when_its_definition_is_disabled_or_gone() {
    let server = Server::start().await;
    let ask = async |key: &str, body: &str| {
        let headers = [("idempotency-key", key), ("content-type", "application/json")];
        server.ask("POST", "/api/jobs", &headers, body).await
    };
    let two = r#"[{"name":"resize"},{"name":"resize"}]"#;
    assert_eq!(ask("a", two).await.status, 201);
    for (jobs, status, code) in [
        ("{resize: {image: resize:1, enabled: false}}", 409, "definition_disabled"),
        ("{other: {image: other:1}}", 404, "unknown_job"),
    ] {
        reload(&server, jobs).await;
        let again = ask("a", two).await;
        assert!(is_replay(&again) && again.json()["last"] == 2, "{again:?}");
        ask("a", r#"[{"name":"resize"}]"#).await.is_problem(409, "idempotency_mismatch");
        assert_eq!(ask("b", two).await.is_problem(status, code)["field"], "jobs[0].name");
        ask("a", "{}").await.is_problem(422, "invalid_type");
    }
    assert_eq!(server.stand.world().jobs.len(), 2);
}

#[tokio::test]
async fn a_waiting_submission_is_answered_as_accepted_while_the_store_is_unreadable() {
    let server = Server::start().await;
    server.stand.world().unreadable = true;
    let request = Request::post("/api/jobs/resize?wait=1s").header("host", "localhost").body(Body::empty());
    // Without a socket, so that the clock may run ahead.
    tokio::time::pause();
    let answer = server.router.clone().oneshot(request.expect("a request")).await.expect("it is answered");
    tokio::time::resume();
    assert_eq!(answer.status(), 201);
    let text = to_bytes(answer.into_body(), 1 << 20).await.expect("a body");
    let job: serde_json::Value = serde_json::from_slice(&text).expect("a job");
    assert_eq!((&job["id"], &job["warning"]["code"]), (&1.into(), &"not_looked_up".into()));
    assert!(job.get("pending_reason").is_none(), "{job}");
}

#[tokio::test]
async fn a_retry_leaves_out_the_fields_that_it_clears() {
    let server = Server::start().await;
    reload(&server, "{resize: {image: r, priority: 3}, fixed: {image: f, allow: [labels]}}").await;
    let body = r#"{"args":["x"],"environment":{"A":"1"},"input":{"a":1},"labels":{"team":"web"},"priority":9,"timeout":"90m"}"#;
    assert_eq!(server.post("/api/jobs/resize", body).await.status, 201);
    server.stand.world().end(1, State::Failed, 1);
    let clear = async |job: u64, fields: &str, key: &str| {
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        let path = format!("/api/jobs/{job}/retry?clear={fields}");
        server.ask("POST", &path, &headers, r#"{"labels":{"try":"2"}}"#).await
    };
    let made = clear(1, "args,environment,input,labels,priority,timeout", "a").await;
    assert_eq!((made.status, &made.json()["priority"]), (201, &3.into()), "{made:?}");
    let record = server.stand.world().record(2).clone();
    assert!(record.overrides.is_empty(), "{:?}", record.overrides);
    assert_eq!(record.row.labels, [("try".to_owned(), "2".to_owned())]);
    assert_eq!(record.row.timeout, None);
    clear(1, "args", "a").await.is_problem(409, "idempotency_mismatch");
    assert_eq!(clear(1, "args", "b").await.status, 201);
    assert!(server.stand.world().record(3).overrides.input.is_some());
    let wrong = clear(1, "argz", "c").await.is_problem(400, "invalid_query");
    assert!(wrong["detail"].as_str().unwrap().contains("args, environment"), "{wrong}");
    let unknown = clear(1, "params.size", "e").await.is_problem(400, "invalid_query");
    assert_eq!(unknown["detail"], "the job has no parameter \"size\"");
    // Fields that a definition does not allow cannot be taken away from a job either.
    assert_eq!(server.post("/api/jobs/fixed", "").await.status, 201);
    server.stand.world().end(4, State::Failed, 1);
    clear(4, "args", "d").await.is_problem(422, "override_not_allowed");
    server.post("/api/jobs/4/retry", r#"{"args":[]}"#).await.is_problem(422, "override_not_allowed");
}

#[tokio::test]
async fn a_retry_starts_when_its_request_says() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", r#"{"run_at":"2020-01-01T00:00:00Z"}"#).await;
    server.stand.world().end(1, State::Failed, 1);
    let due = async |body: &str| server.post("/api/jobs/1/retry", body).await.json()["due_at"].clone();
    assert_eq!(due(r#"{"run_at":"2021-02-03T04:05:06Z"}"#).await, "2021-02-03T04:05:06.000Z");
    assert_ne!(due("").await, "2020-01-01T00:00:00.000Z", "the start of the earlier job is not kept");
}

#[tokio::test]
async fn a_retry_keeps_the_slot_also_without_the_other_variables() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", r#"{"environment":{"A":"1"}}"#).await;
    server.stand.world().end(1, State::Failed, 1);
    let told = [
        ("LONGSHORE_SCHEDULED_AT", "2026-03-01T02:00:00.000Z"),
        ("LONGSHORE_SCHEDULE_ID", "nightly"),
        ("LONGSHORE_PARENT_SCHEDULED_AT", "2026-02-28T02:00:00.000Z"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    server.stand.world().record(1).overrides.environment.extend(told.clone());
    for (query, own) in [("", true), ("?clear=environment", false)] {
        let answer = server.ask("POST", &format!("/api/jobs/1/retry{query}"), &[], "").await;
        let id = answer.json()["id"].as_u64().unwrap();
        let environment = server.stand.world().record(id).overrides.environment.clone();
        assert!(told.iter().all(|variable| environment.contains(variable)), "{query}: {environment:?}");
        assert_eq!(environment.contains(&("A".to_owned(), "1".to_owned())), own, "{query}");
    }
}
