//! Parameters, input and `allow` of submissions, against definitions of a real jobs file.

use scheduler::job::State;
use scheduler::params::ParamValue;
use serde_json::{Value, json};

use crate::support::{Answered, Server};

const JOBS: &str = r#"jobs:
  resize:
    image: resize:1
    command: [resize, --size, "${params.size}", "${params.files}"]
    environment: { TOKEN: "${params.token}", MODE: slow }
    params:
      size: { type: integer, min: 1, max: 4000, default: 640, description: Width in pixels }
      files: { type: list, max: 3, required: false }
      token: { secret: true, pattern: "[a-z]+" }
  fixed: { image: fixed:1, allow: [] }
  closed: { image: closed:1, allow: [], unique: { key: all } }
  chained: { image: chained:1, allow: [after, unique_key], unique: { key: all } }
  open: { image: open:1, allow: [labels, params], params: { a: { required: false } } }
"#;

async fn server() -> Server {
    let server = Server::start().await;
    reload(&server, JOBS).await;
    server
}

async fn reload(server: &Server, jobs: &str) {
    std::fs::write(&server.jobs_file, jobs).expect("a place for jobs.yaml");
    let answer = server.ask("POST", "/api/definitions/reload", &[], "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// Field, detail and hint of each fault.
fn faults(answer: &Answered) -> Vec<(String, String)> {
    assert_eq!(answer.status, 422, "{answer:?}");
    let problem = answer.json();
    let of = |fault: &Value, key: &str| fault[key].as_str().unwrap_or_default().to_owned();
    let both =
        |fault: &Value| (of(fault, "field"), format!("{}; {}", of(fault, "detail"), of(fault, "hint")));
    match problem["errors"].as_array() {
        Some(errors) => errors.iter().map(both).collect(),
        None => vec![both(&problem)],
    }
}

#[tokio::test]
async fn parameters_are_checked_stored_and_shown_without_secrets() {
    let server = server().await;
    let body = r#"{"params":{"size":"1200","files":["a b","c"],"token":"swordfish"},"args":["last"]}"#;
    assert_eq!(server.post("/api/jobs/resize", body).await.status, 201);
    let shown = server.get("/api/jobs/1").await;
    assert!(!shown.json().to_string().contains("swordfish"), "{shown:?}");
    let expected = json!({"size": 1200, "files": ["a b", "c"], "token": "***"});
    assert_eq!(shown.json()["params"], expected);
    let record = server.stand.world().record(1).clone();
    let size = record.params.iter().find(|param| param.name == "size").map(|param| &param.value);
    assert_eq!(size, Some(&ParamValue::Integer(1200)));
    let definition = server.get("/api/definitions/resize").await.json();
    let command = json!(["resize", "--size", "${params.size}", "${params.files}"]);
    assert_eq!((&definition["command"], &definition["environment"]), (&command, &json!(["MODE", "TOKEN"])));
    assert_eq!(definition["params"][0]["allowed"], "a whole number from 1 to 4000");
    assert_eq!(
        (&definition["params"][0]["default"], &definition["params"][2]["required"]),
        (&json!(640), &json!(true))
    );
}

#[tokio::test]
async fn every_wrong_parameter_has_its_own_entry() {
    let server = server().await;
    let body = r#"{"params":{"size":9000,"files":["a","b","c","d"],"token":"SWORDFISH","sise":1}}"#;
    let answer = server.post("/api/jobs/resize", body).await;
    answer.is_problem(422, "invalid_param");
    let faults = faults(&answer);
    let fields: Vec<_> = faults.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(fields, ["params.sise", "params.files", "params.size", "params.token"]);
    assert!(faults[0].1.contains("did you mean \"size\"?"), "{faults:?}");
    assert!(faults[2].1.contains("9000 is out of range") && faults[2].1.contains("1 to 4000"), "{faults:?}");
    assert!(
        faults[3].1.contains("matches [a-z]+") && !answer.json().to_string().contains("SWORDFISH"),
        "{faults:?}"
    );
    let missing = server.post("/api/jobs/resize", "").await;
    missing.is_problem(422, "invalid_param");
    assert_eq!(missing.json()["field"], "params.token");
    let without = server.post("/api/jobs/open", r#"{"params":{"b":1}}"#).await;
    without.is_problem(422, "invalid_param");
    assert!(server.stand.world().jobs.is_empty());
}

#[tokio::test]
async fn values_with_line_breaks_or_without_end_are_refused() {
    let server = server().await;
    for value in ["a\\nb", "a\\u0000", &"x".repeat(100 << 10)] {
        let body = format!(r#"{{"params":{{"a":"{}"}}}}"#, value.replace("\\\\", "\\"));
        server.post("/api/jobs/open", &body).await.is_problem(422, "invalid_param");
    }
}

#[tokio::test]
async fn a_definition_allows_what_it_names() {
    let server = server().await;
    let all = r#"{"args":["x"],"environment":{"A":"1"},"input":1,"labels":{"a":"b"},"priority":1,"timeout":"1s","delay":"1s"}"#;
    let answer = server.post("/api/jobs/fixed", all).await;
    answer.is_problem(422, "override_not_allowed");
    let refused = faults(&answer);
    let fields: Vec<_> = refused.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(fields, ["args", "environment", "input", "labels", "priority", "run_at", "timeout"]);
    assert_eq!(server.post("/api/jobs/fixed", "").await.status, 201);
    assert_eq!(server.post("/api/jobs/fixed", r#"{"count":2}"#).await.status, 201);
    let answer = server.post("/api/jobs/open", all).await;
    assert!(faults(&answer)[0].1.contains("it allows labels, params"), "{answer:?}");
    assert_eq!(server.post("/api/jobs/open", r#"{"labels":{"a":"b"},"params":{"a":"x"}}"#).await.status, 201);
    assert_eq!(server.get("/api/definitions/fixed").await.json()["allow"], json!([]));
}

#[tokio::test]
async fn keys_and_dependencies_need_to_be_allowed_too() {
    let server = server().await;
    let fields = |answer: &Answered| -> Vec<String> {
        answer.is_problem(422, "override_not_allowed");
        faults(answer).into_iter().map(|(field, _)| field).collect()
    };
    assert_eq!(server.post("/api/jobs/open", "").await.status, 201);
    let both = r#"{"unique_key":"k","after":[1]}"#;
    assert_eq!(fields(&server.post("/api/jobs/closed", both).await), ["after", "unique_key"]);
    assert_eq!(server.post("/api/jobs/chained", both).await.status, 201);
    let pipeline = |last: &str| format!(r#"[{{"name":"open"}},{{"name":"{last}","after":["open"]}}]"#);
    assert_eq!(fields(&server.post("/api/jobs", &pipeline("closed")).await), ["jobs[1].after"]);
    assert_eq!(server.post("/api/jobs", &pipeline("chained")).await.status, 201);
    // The key of the definition itself, and the repetition of a job, are no fields of a submission.
    let made = server.post("/api/jobs/closed", "").await;
    assert_eq!(made.status, 201, "{made:?}");
    let job = made.json()["id"].as_u64().expect("the id of the job");
    server.stand.world().end(job, State::Failed, 1);
    let retry = format!("/api/jobs/{job}/retry");
    assert_eq!(fields(&server.post(&retry, r#"{"unique_key":"k2"}"#).await), ["unique_key"]);
    assert_eq!(server.post(&retry, "").await.status, 201);
}

#[tokio::test]
async fn a_retry_keeps_the_parameters_and_takes_new_ones() {
    let server = server().await;
    server.post("/api/jobs/resize", r#"{"params":{"size":5,"token":"abc"},"input":{"a":[1]}}"#).await;
    server.stand.world().end(1, State::Failed, 1);
    assert_eq!(server.post("/api/jobs/1/retry", "").await.status, 201);
    assert_eq!(server.post("/api/jobs/1/retry", r#"{"params":{"size":7}}"#).await.status, 201);
    let of = async |job: u64| server.get(&format!("/api/jobs/{job}")).await.json();
    assert_eq!(of(2).await["params"], json!({"size": 5, "token": "***"}));
    assert_eq!(of(2).await["input"], json!({"a": [1]}));
    assert_eq!(of(3).await["params"], json!({"size": 7, "token": "***"}));
    server.post("/api/jobs/1/retry", r#"{"params":{"size":0}}"#).await.is_problem(422, "invalid_param");
    reload(
        &server,
        &JOBS
            .replace("      token: { secret: true, pattern: \"[a-z]+\" }\n", "")
            .replace("TOKEN: \"${params.token}\", ", ""),
    )
    .await;
    let gone = server.post("/api/jobs/1/retry", "").await;
    gone.is_problem(422, "invalid_param");
    assert_eq!(gone.json()["field"], "params.token");
}

#[tokio::test]
async fn the_entries_of_a_batch_have_their_own_parameters() {
    let server = server().await;
    let lines = "{\"name\":\"resize\",\"params\":{\"token\":\"a\"}}\n{\"name\":\"resize\",\"params\":{\"token\":\"1\"}}";
    let wrong = server.ask("POST", "/api/jobs", &[("content-type", "application/x-ndjson")], lines).await;
    wrong.is_problem(422, "invalid_param");
    assert_eq!(wrong.json()["field"], "jobs[1].params.token");
    let good = lines.replace('1', "b");
    let answer = server.ask("POST", "/api/jobs", &[("content-type", "application/x-ndjson")], &good).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(server.get("/api/jobs/2").await.json()["params"], json!({"token": "***"}));
}

#[tokio::test]
async fn the_program_that_a_submission_names_is_no_longer_than_a_path() {
    let server = server().await;
    let jobs = r#"jobs:
  bare: { image: bare:1 }
  chosen: { image: chosen:1, command: ["${params.program}"], params: { program: { required: false } } }
  given: { image: given:1, entrypoint: [run] }
"#;
    reload(&server, jobs).await;
    let (fits, too_long) = ("x".repeat(4_095), "x".repeat(4_096));
    let args = |first: &str| json!({ "args": [first, too_long] }).to_string();
    let params = |program: &str| json!({ "params": { "program": program }, "args": [too_long] }).to_string();
    let hint =
        "the definition has no command, so the first argument may be the program; give it an entrypoint";
    for (name, field, body) in
        [("bare", "args[0]", &args as &dyn Fn(&str) -> String), ("chosen", "params", &params)]
    {
        assert_eq!(server.post(&format!("/api/jobs/{name}"), &body(&fits)).await.status, 201, "{name}");
        let answer = server.post(&format!("/api/jobs/{name}"), &body(&too_long)).await;
        let detail = "4096 bytes are too long for a program (max 4095)";
        assert_eq!(faults(&answer), [(field.to_owned(), format!("{detail}; {hint}"))]);
    }
    // Without its parameter the first argument comes first.
    server.post("/api/jobs/chosen", &args(&too_long)).await.is_problem(422, "too_long");
    assert_eq!(server.post("/api/jobs/given", &args(&too_long)).await.status, 201);
    // A retry may change it.
    server.stand.world().end(1, State::Failed, 1);
    let retry = server.post("/api/jobs/1/retry", &args(&too_long)).await;
    retry.is_problem(422, "too_long");
}
