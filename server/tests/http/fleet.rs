//! Workers, definitions and the server itself over HTTP.

use std::sync::Arc;
use std::time::Duration;

use protocol::report::{Availability, Heartbeat};
use protocol::{Revision, RuntimeKind, SessionId, Timestamp, WorkerId};
use scheduler::definition::Definition;
use scheduler::input::Operation;
use scheduler::job::State;
use scheduler::origin::Origin;
use scheduler::snapshot::{Waiting, WorkerState};
use scheduler::step::PendingReason;

use crate::support::Server;
use crate::support::facts::{change_worker, snapshot, waiting};

#[tokio::test]
async fn workers_at_work_are_listed_and_all_of_them_on_request() {
    let server = Server::start().await;
    let workers = server.get("/api/workers").await.json();
    assert_eq!(workers.as_array().unwrap().len(), 1);
    assert_eq!(workers[0]["id"], 1);
    assert_eq!(workers[0]["name"], "w1");
    assert_eq!(workers[0]["working"], true);
    assert_eq!(workers[0]["slots"], 4);
    assert_eq!(workers[0]["labels"]["zone"], "a");
    let all = server.get("/api/workers?all=1").await.json();
    assert_eq!(all[1]["name"], "w2");
    assert_eq!(all[1]["state"], "gone");
    assert_eq!(all[1]["connected"], false);
}

#[tokio::test]
async fn one_worker_is_shown_or_unknown() {
    let server = Server::start().await;
    let worker = server.get("/api/workers/1").await.json();
    assert_eq!(worker["joined_at"], "1970-01-01T00:00:00.010Z");
    let unmanaged = serde_json::json!([
        { "job": 70, "fence": 80, "container": "longshore-00000007-70-80", "phase": { "name": "running" } },
    ]);
    assert_eq!(worker["unmanaged"], unmanaged, "an operator decides about them");
    let told = server.get("/api/workers/9").await.is_problem(404, "unknown_worker");
    assert_eq!(told["hint"], "GET /api/workers?all=1 lists the workers");
    server.get("/api/workers/w1").await.is_problem(400, "invalid_id");
}

#[tokio::test]
async fn machine_facts_are_shown_while_the_session_lasts() {
    let server = Server::start().await;
    let entry = server.machines.enter(SessionId(1), Some("7TTF:QJ4G"));
    let _of_another_session = server.machines.enter(SessionId(2), Some("another"));
    let shown = async || {
        let worker = server.get("/api/workers/1").await.json();
        let listed = server.get("/api/workers").await.json();
        ["engine_id", "load_milli", "disk_free_bytes"].map(|key| {
            assert_eq!(worker.get(key), listed[0].get(key), "the list has it, too");
            worker.get(key).cloned()
        })
    };
    assert_eq!(shown().await, [Some("7TTF:QJ4G".into()), None, None], "before its first heartbeat");
    let (load_milli, disk_free_bytes) = (Some(730), Some(0));
    entry.note(&Heartbeat { load_milli, disk_free_bytes, ..Heartbeat::default() });
    assert_eq!(shown().await, [Some("7TTF:QJ4G".into()), Some(730.into()), Some(0.into())]);

    let mut away = snapshot();
    change_worker(&mut away, |worker| worker.session = None);
    server.snapshot.send_replace(Arc::new(away));
    assert_eq!(shown().await, [None, None, None], "what was is not told as what is");
    server.snapshot.send_replace(Arc::new(snapshot()));
    drop(entry);
    assert_eq!(shown().await, [None, None, None]);
}

#[tokio::test]
async fn an_operator_changes_slots_and_labels() {
    let server = Server::start().await;
    let json = [("content-type", "application/json")];
    let patched = server.ask("PATCH", "/api/workers/1", &json, r#"{"slots":8}"#).await;
    assert_eq!((patched.status, patched.json()["slots"].as_u64()), (200, Some(8)));
    assert_eq!(server.ask("PATCH", "/api/workers/1", &json, r#"{"slots":0}"#).await.json()["slots"], 10_000);
    let broken = server.ask("PATCH", "/api/workers/1", &json, "{\n  \"slots\": 8,\n  x\n}").await;
    assert_eq!(broken.is_problem(400, "invalid_json")["detail"], "not JSON at byte 18");
    let cordoned = server.ask("POST", "/api/workers/1/cordon", &[], "").await;
    assert_eq!(cordoned.json()["cordoned"], true);
    assert_eq!(server.ask("POST", "/api/workers/1/uncordon", &[], "").await.json()["cordoned"], false);
    let drained = server.ask("POST", "/api/workers/1/drain", &[], "").await.json();
    assert_eq!((&drained["state"], &drained["cordoned"]), (&"draining".into(), &true.into()));
    assert_eq!(drained["drain_deadline"], serde_json::Value::Null);
    let drained = server.ask("POST", "/api/workers/1/drain?deadline=1h30m", &[], "").await.json();
    assert_eq!(drained["drain_deadline"], "1970-01-01T01:30:01.000Z");
    let away = server.ask("POST", "/api/workers/2/drain", &[], "").await.json();
    assert_eq!(away["state"], "drained");
    assert_eq!(server.get("/api/workers?all=1").await.json()[1]["state"], "drained");
    assert_eq!(server.ask("POST", "/api/workers/2/forget", &[], "").await.status, 204);
    let one = WorkerId(1);
    assert_eq!(
        server.stand.world().operations,
        [
            (one, Operation::Slots(8)),
            (one, Operation::Slots(10_000)),
            (one, Operation::Cordon { until: None, origin: Origin::default() }),
            (one, Operation::Uncordon),
            (one, Operation::Drain(None, Origin::default())),
            (one, Operation::Drain(Some(Duration::from_secs(5_400)), Origin::default())),
            (WorkerId(2), Operation::Drain(None, Origin::default())),
            (WorkerId(2), Operation::Forget),
        ]
    );
}

#[tokio::test]
async fn an_operators_labels_are_laid_over_the_workers_own() {
    let server = Server::start().await;
    let patch = async |id: u8, body: &str| {
        let path = format!("/api/workers/{id}");
        server.ask("PATCH", &path, &[("content-type", "application/json")], body).await
    };
    let patched = patch(1, r#"{"labels":{"zone":"b","rack":"7"},"slots":2}"#).await.json();
    assert_eq!(patched["labels"], serde_json::json!({ "disk": "ssd", "rack": "7", "zone": "b" }));
    assert_eq!(patched["labels_set"], serde_json::json!({ "rack": "7", "zone": "b" }));
    assert_eq!(patched["slots"], 2);
    let patched = patch(1, r#"{"labels":{"zone":null,"nothing":null}}"#).await.json();
    assert_eq!(patched["labels"], serde_json::json!({ "disk": "ssd", "rack": "7", "zone": "a" }));
    let away = patch(2, r#"{"labels":{"zone":"c"}}"#).await.json();
    assert_eq!(away["labels"], serde_json::json!({ "zone": "c" }), "it need not be there");
    assert_eq!(server.get("/api/workers?all=1").await.json()[1]["labels"]["zone"], "c");

    patch(1, r#"{"labels":{"a b":"c"}}"#).await.is_problem(422, "invalid_label");
    patch(1, r#"{"labels":{"a":"line\nbreak"}}"#).await.is_problem(422, "invalid_label");
    patch(1, r#"{"labels":{"a":1}}"#).await.is_problem(422, "invalid_type");
    patch(1, r#"{"labels":["a"]}"#).await.is_problem(422, "invalid_type");
    patch(1, r#"{"labels":{"a":"1","a":"2"}}"#).await.is_problem(400, "duplicate_key");
    patch(1, r#"{"labels":{"a":"1"},"slots":10001}"#).await.is_problem(422, "out_of_range");
    let labels = server.get("/api/workers/1").await.json()["labels_set"].clone();
    assert_eq!(labels, serde_json::json!({ "rack": "7" }), "what is refused changes nothing");
}

#[tokio::test]
async fn impossible_worker_operations_are_refused() {
    let server = Server::start().await;
    let patch = async |body: &str| {
        server.ask("PATCH", "/api/workers/1", &[("content-type", "application/json")], body).await
    };
    patch(r#"{"slots":1000000000}"#).await.is_problem(422, "out_of_range");
    patch(r#"{"slots":"8"}"#).await.is_problem(422, "invalid_type");
    patch(r#"{"slots":1,"slots":2}"#).await.is_problem(400, "duplicate_key");
    patch(r#"{"slot":1}"#).await.is_problem(422, "unknown_field");
    patch("{}").await.is_problem(422, "missing_field");
    patch("{").await.is_problem(400, "invalid_json");
    server.ask("POST", "/api/workers/1/drain?deadline=soon", &[], "").await.is_problem(400, "invalid_query");
    server.ask("POST", "/api/workers/1/drain?deadline=31d", &[], "").await.is_problem(400, "invalid_query");
    server.ask("POST", "/api/workers/1/cordon?deadline=1m", &[], "").await.is_problem(400, "invalid_query");
    let told = server.ask("POST", "/api/workers/9/drain", &[], "").await.is_problem(404, "unknown_worker");
    assert_eq!(told["hint"], "GET /api/workers?all=1 lists the workers");
    server.ask("POST", "/api/workers/1/forget", &[], "").await.is_problem(409, "worker_connected");
    let stop = async |query: &str| {
        server.ask("POST", &format!("/api/workers/1/stop-unmanaged{query}"), &[], "").await
    };
    assert_eq!(stop("").await.status, 200, "there is nothing to stop");
    let told = stop("?job=1&fence=1").await.is_problem(404, "unknown_attempt");
    let text = told["detail"].as_str().unwrap();
    assert!(text.starts_with("the worker has no unmanaged attempt 1 of job 1: it has ended"), "{told}");
    server.post("/api/jobs/resize", "").await;
    server.stand.world().start(1);
    let told = stop("?job=1&fence=101").await.is_problem(404, "unknown_attempt");
    assert_eq!(told["detail"], "attempt 101 of job 1 is one that this server gave to the worker");
    assert_eq!(told["hint"], "to stop it, cancel job 1");
    server.stand.world().end(1, State::Failed, 3);
    let told = stop("?job=1&fence=101").await.is_problem(404, "unknown_attempt");
    assert_eq!(told["detail"], "attempt 101 of job 1 has ended: failed at 1970-01-01T00:00:09.000Z");
    stop("?job=1").await.is_problem(400, "invalid_query");
    stop("?job=1&fence=x").await.is_problem(400, "invalid_query");
    server.ask("POST", "/api/workers/1/dance", &[], "").await.is_problem(404, "not_found");
}

#[tokio::test]
async fn health_and_version_are_served() {
    let server = Server::start().await;
    assert_eq!(server.get("/healthz").await.body, "ok\n");
    assert_eq!(server.get("/readyz").await.body, "ready\n");
    server.storage.note(0, 1 << 40);
    let low = server.get("/readyz").await.body;
    assert_eq!(low, "ready\nwarning: storage: the disk is nearly full, submissions are refused\n");
    assert_eq!(server.get("/version").await.json()["name"], "longshore");
    let page = server.get("/problems/unknown_job").await;
    assert!(page.body.starts_with("# unknown_job"), "{page:?}");
    server.get("/problems/unknown").await.is_problem(404, "not_found");
}

#[tokio::test]
async fn jobs_yaml_is_read_again_on_request() {
    let server = Server::start().await;
    let file = "jobs:\n  resize: {image: resize:2}\n  reload: {image: busybox}\n";
    std::fs::write(&server.jobs_file, file).unwrap();
    let answer = server.ask("POST", "/api/definitions/reload", &[], "").await;
    let revision = answer.json()["revision"].clone();
    let expected = serde_json::json!({"definitions": 2, "revision": revision, "added": ["reload"], "changed": ["resize"],
        "removed": ["backup", "off", "resize-all"], "warnings": []});
    assert_eq!((answer.status, answer.json()), (200, expected));
    assert_eq!(server.get("/api/definitions/resize").await.json()["image"], "resize:2");
    assert_eq!(server.get("/api/definitions/reload").await.json()["image"], "busybox");
    server.get("/api/definitions/backup").await.is_problem(404, "unknown_job");

    // A key that only people and notifications use counts as well.
    for (key, changed) in [
        ("owner: ops", 1),
        ("owner: ops", 0),
        ("owner: web", 1),
        ("notify: {slack: 'https://a.example/'}", 1),
    ] {
        let file = format!("jobs:\n  resize: {{image: resize:2}}\n  reload: {{image: busybox, {key}}}\n");
        std::fs::write(&server.jobs_file, file).unwrap();
        let answer = server.ask("POST", "/api/definitions/reload", &[], "").await.json();
        assert_eq!(answer["changed"].as_array().unwrap().len(), changed, "{key}: {answer}");
    }
}

#[tokio::test]
async fn a_reload_that_expects_other_definitions_changes_nothing() {
    let server = Server::start().await;
    let revision = server.get("/api/definitions").await.header("longshore-definitions-revision").to_owned();
    std::fs::write(&server.jobs_file, "jobs: { first: { image: x } }").unwrap();
    let reload = async |revision: &str| {
        server.ask("POST", &format!("/api/definitions/reload?expect={revision}"), &[], "").await
    };
    let first = reload(&revision).await.json()["revision"].as_str().unwrap().to_owned();
    assert_eq!(server.get("/api/definitions").await.header("longshore-definitions-revision"), first);
    std::fs::write(&server.jobs_file, "jobs: { second: { image: x } }").unwrap();
    let problem = reload(&revision).await.is_problem(409, "revision_mismatch");
    assert!(problem["detail"].as_str().unwrap().contains(&first), "{problem}");
    assert_eq!(server.get("/api/definitions/first").await.status, 200);
    reload("abc").await.is_problem(400, "invalid_query");
    assert_eq!(reload(&first).await.json()["added"], serde_json::json!(["second"]));
}

#[tokio::test]
async fn a_job_of_an_older_revision_has_a_pending_reason() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    server.stand.world().start(1);
    std::fs::write(&server.jobs_file, "jobs:\n  resize: {image: resize:2, runtime: fake}\n").unwrap();
    assert_eq!(server.ask("POST", "/api/definitions/reload", &[], "").await.status, 200);
    let reason = async || server.get("/api/jobs/1").await.json()["pending_reason"].clone();
    assert_eq!(reason().await, serde_json::Value::Null, "its worker has it, and all is well");

    let mut facts = snapshot();
    let runtimes = vec![(RuntimeKind::Docker, Availability::Unavailable("no such socket".to_owned()))];
    change_worker(&mut facts, |worker| worker.runtimes = runtimes);
    server.snapshot.send_replace(Arc::new(facts));
    let silent = reason().await;
    assert_eq!(silent["code"], "runtime_unavailable", "{silent}");
    let text = silent["text"].as_str().unwrap();
    assert!(text.contains("docker does not answer") && text.contains("longshore release 1"), "{text}");

    let mut facts = snapshot();
    change_worker(&mut facts, |worker| {
        (worker.state, worker.since) = (WorkerState::Unreachable, Timestamp(100_000));
    });
    server.snapshot.send_replace(Arc::new(facts));
    let away = reason().await;
    assert_eq!(away["code"], "worker_unreachable", "{away}");
    let text = away["text"].as_str().unwrap();
    assert!(text.ends_with("its attempt is given up, and the job is tried again"), "{text}");
}

#[tokio::test]
async fn jobs_that_wait_in_older_revisions_are_counted_with_their_name() {
    let server = Server::start().await;
    std::fs::write(&server.jobs_file, "jobs:\n  resize: {image: resize:2}\n  backup: {image: x}\n").unwrap();
    assert_eq!(server.ask("POST", "/api/definitions/reload", &[], "").await.status, 200);
    let mut facts = snapshot();
    let old = Definition::clone(&facts.definitions[&Revision(1)]);
    let new = Arc::new(Definition { revision: Revision(9), ..old });
    Arc::make_mut(&mut facts.definitions).insert(new.revision, new.clone());
    facts.waiting = vec![
        waiting(None, PendingReason::Busy, 1),
        Waiting { revision: new.revision, ..waiting(None, PendingReason::Busy, 2) },
    ];
    server.snapshot.send_replace(Arc::new(facts));
    let list = server.get("/api/definitions").await.json();
    assert_eq!((&list[0]["name"], &list[0]["waiting"]), (&"backup".into(), &serde_json::Value::Null));
    let resize = server.get("/api/definitions/resize").await.json();
    for shown in [&list[1], &resize] {
        assert_eq!(shown["name"], "resize");
        let waiting = shown["waiting"].as_array().unwrap();
        assert_eq!((waiting.len(), &waiting[0]["count"]), (1, &3.into()), "{shown}");
    }
}

#[tokio::test]
async fn a_faulty_jobs_yaml_changes_nothing_and_lists_all_faults() {
    let server = Server::start().await;
    let reload = async || server.ask("POST", "/api/definitions/reload", &[], "").await;
    let problem = reload().await.is_problem(422, "invalid_jobs_file");
    assert_eq!(problem["errors"][0]["code"], "cannot_read");
    std::fs::write(&server.jobs_file, "jobs:\n  a: {imgae: x}\n  b: {image: y, timeout: 9}\n").unwrap();
    let problem = reload().await.is_problem(422, "invalid_jobs_file");
    let places: Vec<_> = problem["errors"].as_array().unwrap().iter().map(|fault| &fault["field"]).collect();
    assert_eq!(places, ["jobs.yaml:2:7", "jobs.yaml:3:26"], "{problem}");
    std::fs::write(&server.jobs_file, "jobs: {}\n").unwrap();
    let problem = reload().await.is_problem(422, "invalid_jobs_file");
    assert_eq!(problem["errors"][0]["code"], "no_jobs");
    assert_eq!(server.get("/api/definitions").await.json().as_array().unwrap().len(), 4);
}
