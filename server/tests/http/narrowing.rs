//! The workers that a submission asks for: `workers` and `requires`.

use scheduler::job::State;
use serde_json::{Value, json};

use crate::support::Server;

const JOBS: &str = r#"jobs:
  resize: { image: resize:1 }
  fixed: { image: fixed:1, allow: [] }
  half: { image: half:1, allow: [workers] }
"#;

async fn server() -> Server {
    let server = Server::start().await;
    std::fs::write(&server.jobs_file, JOBS).expect("a place for jobs.yaml");
    assert_eq!(server.ask("POST", "/api/definitions/reload", &[], "").await.status, 200);
    server
}

/// The workers and labels that a job asks for, as the API shows them.
async fn asked(server: &Server, job: u64) -> (Value, Value) {
    let job = server.get(&format!("/api/jobs/{job}")).await.json();
    (job["workers"].clone(), job["requires"].clone())
}

#[tokio::test]
async fn a_job_may_ask_for_workers_in_every_form_of_the_grammar() {
    let server = server().await;
    let forms = [
        (r#"{"workers":["w1",2]}"#, json!(["2", "w1"]), Value::Null),
        (r#"{"workers":"w2"}"#, json!(["w2"]), Value::Null),
        (r#"{"requires":{"rack":7,"zone":["a","b"]}}"#, Value::Null, json!(["rack=7", "zone in (a, b)"])),
        (
            r#"{"requires":["gpu","!spot","cores >= 8","zone!=c"]}"#,
            Value::Null,
            json!(["cores >= 8", "gpu", "!spot", "zone not in (c)"]),
        ),
        (r#"{"requires":"rack=7","workers":"w1"}"#, json!(["w1"]), json!(["rack=7"])),
        (r#"{"workers":[],"requires":{}}"#, Value::Null, Value::Null),
    ];
    for (job, (body, workers, requires)) in (1..).zip(forms) {
        let made = server.post("/api/jobs/resize", body).await;
        assert_eq!(made.status, 201, "{body}: {made:?}");
        assert_eq!(
            (made.json()["workers"].clone(), made.json()["requires"].clone()),
            (workers.clone(), requires.clone())
        );
        assert_eq!(asked(&server, job).await, (workers, requires), "{body}");
    }
    let list = server.get("/api/jobs?limit=10").await.json();
    assert_eq!(list[4]["workers"], json!(["w2"]), "{list}");
}

#[tokio::test]
async fn a_name_that_no_worker_has_is_refused_with_near_names() {
    let server = server().await;
    let told = server.post("/api/jobs/resize", r#"{"workers":["w1","w11"]}"#).await;
    let told = told.is_problem(422, "unknown_worker_name");
    assert_eq!((&told["field"], &told["near"][0]), (&json!("workers"), &json!("w1")), "{told}");
    assert_eq!(told["detail"], "there is no worker \"w11\"");
    let told =
        server.post("/api/jobs/resize", r#"{"workers":[77]}"#).await.is_problem(422, "unknown_worker_name");
    assert_eq!(told["detail"], "there is no worker 77");
    let list = r#"[{"name":"resize"},{"name":"resize","workers":["nobody-knows"]}]"#;
    let told = server.post("/api/jobs", list).await.is_problem(422, "unknown_worker_name");
    assert_eq!(told["field"], "jobs[1].workers");
    let each = r#"{"count":3,"workers":["nobody-knows"]}"#;
    server.post("/api/jobs/resize", each).await.is_problem(422, "unknown_worker_name");
    assert!(server.stand.world().jobs.is_empty(), "no job is made");
    // One that is away may be asked for.
    assert_eq!(server.post("/api/jobs/resize", r#"{"count":3,"workers":["w2"]}"#).await.status, 201);
    assert_eq!(asked(&server, 3).await.0, json!(["w2"]));
}

#[tokio::test]
async fn faulty_conditions_are_all_told() {
    let server = server().await;
    let body = r#"{"requires":["zone of (a)","cores >= many"],"workers":[{"name":"w1"},""]}"#;
    let answer = server.post("/api/jobs/resize", body).await;
    assert_eq!(answer.status, 422, "{answer:?}");
    let problem = answer.json();
    let faults = problem["errors"].as_array().expect("several faults");
    let fields: Vec<&str> = faults.iter().filter_map(|fault| fault["field"].as_str()).collect();
    assert_eq!(fields, ["requires[0]", "requires[1]", "workers[0]", "workers[1]"], "{problem}");
    server.post("/api/jobs/resize", r#"{"requires":{"z\u00e4hl":1}}"#).await.is_problem(422, "invalid_label");
    server.post("/api/jobs/resize", r#"{"requires":{"zone":null}}"#).await.is_problem(422, "invalid_type");
    let many = serde_json::to_string(&json!({ "requires": vec!["gpu"; 300] })).expect("JSON");
    server.post("/api/jobs/resize", &many).await.is_problem(422, "too_long");
}

#[tokio::test]
async fn a_definition_may_forbid_it() {
    let server = server().await;
    for (definition, body, field) in [
        ("fixed", r#"{"workers":["w1"]}"#, "workers"),
        ("fixed", r#"{"requires":["gpu"]}"#, "requires"),
        ("half", r#"{"requires":["gpu"]}"#, "requires"),
    ] {
        let told = server.post(&format!("/api/jobs/{definition}"), body).await;
        assert_eq!(told.is_problem(422, "override_not_allowed")["field"], field, "{definition} {body}");
    }
    assert_eq!(server.post("/api/jobs/half", r#"{"workers":["w1"]}"#).await.status, 201);
}

#[tokio::test]
async fn a_retry_keeps_what_the_job_asked_for_unless_it_says_otherwise() {
    let server = server().await;
    server.post("/api/jobs/resize", r#"{"workers":["w1"],"requires":["gpu"]}"#).await;
    server.stand.world().end(1, State::Failed, 1);
    let (w1, gpu) = (json!(["w1"]), json!(["gpu"]));
    for (job, (query, body, expected)) in (2..).zip([
        ("", "", (w1.clone(), gpu.clone())),
        ("", r#"{"workers":["w2"]}"#, (json!(["w2"]), gpu.clone())),
        ("", r#"{"workers":[]}"#, (Value::Null, gpu.clone())),
        ("?clear=workers,requires", "", (Value::Null, Value::Null)),
        ("?clear=requires", r#"{"requires":["rack=7"]}"#, (w1.clone(), json!(["rack=7"]))),
    ]) {
        let made = server.post(&format!("/api/jobs/1/retry{query}"), body).await;
        assert_eq!(made.status, 201, "{query} {body}: {made:?}");
        assert_eq!(asked(&server, job).await, expected, "{query} {body}");
    }
    let told = server.post("/api/jobs/1/retry", r#"{"workers":["w77"]}"#).await;
    told.is_problem(422, "unknown_worker_name");
    // It is repeated as it was, also if its worker was forgotten since.
    server.stand.world().workers.clear();
    assert_eq!(server.post("/api/jobs/1/retry", "").await.status, 201);
}

#[tokio::test]
async fn the_page_of_a_job_and_its_form_show_what_it_asks_for() {
    let server = server().await;
    server.post("/api/jobs/resize", r#"{"workers":["w1"],"requires":["cores >= 8"]}"#).await;
    server.stand.world().end(1, State::Failed, 1);
    let page = server.get("/jobs/1").await;
    assert!(page.body.contains("worker w1, cores &#62;= 8"), "{}", page.body);
    let form = server.get("/jobs/1/again").await;
    assert!(form.body.contains("name=\"workers\"") && form.body.contains("name=\"requires\""));
}
