//! `longshore run` and `retry` against a stub server: requests, repetitions and exit codes.

use crate::stub::{JSON, RecordedRequest, Stub, job, run};

#[test]
fn run_sends_its_flags_and_prints_the_next_command() {
    let stub = Stub::new();
    stub.on("POST /api/jobs/resize", "201 Created", JSON, &job(12, r#""state":"queued""#));
    let arguments =
        ["run", "resize", "-e", "A=1=2", "--env", "FROM_HERE", "--label", "team=web", "--priority", "-5"];
    let mut command = stub.longshore(&arguments);
    command.args(["--timeout", "90s", "--key", "k1", "--", "--size", "640"]).env("FROM_HERE", "yes");
    let said = run(&mut command);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert_eq!(said.out, "job 12 is queued; follow it with: longshore logs -f 12\n");
    let asked = stub.requests();
    assert_eq!(asked.iter().map(|asked| asked.line.as_str()).collect::<Vec<_>>(), ["POST /api/jobs/resize"]);
    assert!(asked[0].head.contains(&"idempotency-key: k1".to_owned()), "{asked:?}");
    let body: serde_json::Value = serde_json::from_str(&asked[0].body).unwrap();
    let expected = serde_json::json!({"environment": {"A": "1=2", "FROM_HERE": "yes"}, "labels": {"team": "web"},
        "args": ["--size", "640"], "priority": -5, "timeout": "90s"});
    assert_eq!(body, expected);
}

#[test]
fn run_wait_exits_with_the_exit_code_of_the_job() {
    let stub = Stub::new();
    stub.on("POST /api/jobs/resize", "201 Created", JSON, &job(12, r#""state":"queued""#))
        .on("GET /api/jobs/12?wait=60s", "200 OK", JSON, &job(12, r#""state":"running","attempt_count":1"#))
        .on(
            "GET /api/jobs/12?wait=60s",
            "200 OK",
            JSON,
            &job(12, r#""state":"failed","outcome":"failed","exit_code":37,"attempt_count":1"#),
        );
    let said = run(&mut stub.longshore(&["run", "resize", "--wait"]));
    assert_eq!(said.code, 37);
    assert_eq!(said.err, "longshore: job 12 is queued\nlongshore: job 12 failed, exit 37\n");
    assert_eq!(said.out, "");
}

#[test]
fn run_wait_prints_why_a_job_did_not_run() {
    let stub = Stub::new();
    let end = r#""state":"failed","outcome":"start_failed","exit_code":127,"attempt_count":1,
        "reason":"exec: \"resise\": executable file not found in $PATH""#;
    stub.on("POST /api/jobs/resize", "201 Created", JSON, &job(12, r#""state":"queued""#)).on(
        "GET /api/jobs/12?wait=60s",
        "200 OK",
        JSON,
        &job(12, end),
    );
    let said = run(&mut stub.longshore(&["run", "resize", "--wait"]));
    let last = "longshore: job 12 failed, start failed: exec: \"resise\": executable file not found in $PATH (exit code 127)";
    assert_eq!((said.code, said.err.lines().next_back()), (127, Some(last)), "{said:?}");
}

#[test]
fn run_wait_stops_at_its_deadline_and_the_job_continues() {
    let stub = Stub::new();
    stub.on("POST /api/jobs/resize", "201 Created", JSON, &job(12, r#""state":"queued""#)).on(
        "GET /api/jobs/12?wait=60s",
        "200 OK",
        JSON,
        &job(12, r#""state":"queued""#),
    );
    let said = run(&mut stub.longshore(&["run", "resize", "--wait=50ms"]));
    assert_eq!(said.code, 124);
    assert!(
        said.err
            .ends_with("error: job 12 has not ended after 50ms, and continues; see 'longshore show 12'\n"),
        "{said:?}"
    );
    assert_eq!(said.out, "");
}

#[test]
fn programs_learn_the_id_of_a_job_that_was_not_waited_for_to_its_end() {
    let stub = Stub::new();
    let running = job(12, r#""state":"running""#);
    stub.on("POST /api/jobs/resize", "201 Created", JSON, &job(12, r#""state":"queued""#))
        .on("GET /api/jobs/12?wait=60s", "200 OK", JSON, &running)
        .on("GET /api/jobs/12", "200 OK", JSON, &running);
    let said = run(&mut stub.longshore(&["run", "resize", "--wait=50ms", "-o", "json"]));
    let shown: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &shown["id"], &shown["state"]), (124, &12.into(), &"running".into()), "{said:?}");
    assert!(said.err.contains("error: job 12 has not ended after 50ms"), "{said:?}");
    let named = run(&mut stub.longshore(&["run", "resize", "--wait=50ms", "-o", "name"]));
    assert_eq!((named.code, named.out.as_str()), (124, "12\n"), "{named:?}");

    // A server that does not answer any more does not hide the id.
    let stub = Stub::new();
    stub.on("POST /api/jobs/resize", "201 Created", JSON, &job(12, r#""state":"queued""#));
    stub.on("GET /api/jobs/12?wait=60s", "503 Service Unavailable", "text/plain", "");
    let named = run(&mut stub.longshore(&["run", "resize", "--wait=50ms", "-o", "name"]));
    assert_eq!((named.code, named.out.as_str()), (124, "12\n"), "{named:?}");
}

#[test]
fn lost_response_is_requested_again_with_the_same_key() {
    for (arguments, line) in
        [(["run", "resize"], "POST /api/jobs/resize"), (["retry", "3"], "POST /api/jobs/3/retry")]
    {
        let stub = Stub::new();
        let half = "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
        stub.on_raw(line, b"").on_raw(line, half.as_bytes());
        stub.on(line, "200 OK", JSON, &job(12, r#""state":"queued""#));
        let said = run(&mut stub.longshore(&arguments));
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
        assert!(said.out.starts_with("job 12 "), "{said:?}");
        let keys: Vec<String> = stub.requests().iter().map(key).collect();
        assert_eq!(keys.len(), 3, "{keys:?}");
        assert!(keys[0].len() > 30 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    }
}

#[test]
fn every_run_has_a_new_key() {
    let stub = Stub::new();
    stub.on("POST /api/jobs/resize", "201 Created", JSON, &job(12, r#""state":"queued""#));
    for _ in 0..2 {
        assert_eq!(run(&mut stub.longshore(&["run", "resize"])).code, 0);
    }
    let keys: Vec<String> = stub.requests().iter().map(key).collect();
    assert!(keys.len() == 2 && keys[0] != keys[1], "{keys:?}");
}

#[test]
fn missing_response_is_an_error_with_the_key_in_its_hint() {
    for later in [None, Some("503 Service Unavailable")] {
        let stub = Stub::new();
        stub.on_raw("POST /api/jobs/resize", b"");
        if let Some(status) = later {
            stub.on("POST /api/jobs/resize", status, "application/problem+json", r#"{"code":"draining"}"#);
        }
        let said = run(&mut stub.longshore(&["run", "resize"]));
        let asked = stub.requests();
        let hint = format!("repeat the command with --key {}, which creates no second job\n", key(&asked[0]));
        assert_eq!((said.code, asked.len()), (6, 3), "{said:?}");
        assert!(said.err.ends_with(&hint), "{said:?}");
    }
}

#[test]
fn peer_without_http_is_asked_once() {
    let stub = Stub::new();
    stub.on_raw("POST /api/jobs/resize", b"\x15\x03\x01\x00\x02\x02\x46");
    stub.on_raw("GET /api/workers", b"\x15\x03\x01\x00\x02\x02\x46");
    for arguments in [&["run", "resize"][..], &["workers"]] {
        let said = run(&mut stub.longshore(arguments));
        assert_eq!(said.code, 1, "{said:?}");
        assert!(
            said.err.ends_with(" answered with something else than HTTP; check the address: another service may listen there, or TLS is required (https://)\n"),
            "{said:?}"
        );
    }
    assert_eq!(stub.requests().len(), 2);
}

fn key(asked: &RecordedRequest) -> String {
    let line = asked.head.iter().find_map(|line| line.strip_prefix("idempotency-key: "));
    line.expect("a job is only asked for with a key").to_owned()
}
