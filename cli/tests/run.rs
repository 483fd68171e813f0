//! `longshore run` and `retry` against a server of prepared answers: what is sent, what is sent again, how it ends.

mod stub;

use stub::{Asked, JSON, Stub, job, said};

#[test]
fn run_sends_what_it_was_given_and_says_how_to_go_on() {
    let stub = Stub::new();
    stub.on("POST /api/jobs/resize", "201 Created", JSON, &job(12, r#""state":"queued""#));
    let arguments =
        ["run", "resize", "-e", "A=1=2", "--env", "FROM_HERE", "--label", "team=web", "--priority", "-5"];
    let mut command = stub.longshore(&arguments);
    command.args(["--timeout", "90s", "--key", "k1", "--", "--size", "640"]).env("FROM_HERE", "yes");
    let said = said(&mut command);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert_eq!(said.out, "job 12 is queued; follow it with: longshore logs -f 12\n");
    let asked = stub.asked();
    assert_eq!(asked.iter().map(|asked| asked.line.as_str()).collect::<Vec<_>>(), ["POST /api/jobs/resize"]);
    assert!(asked[0].head.contains(&"idempotency-key: k1".to_owned()), "{asked:?}");
    let body: serde_json::Value = serde_json::from_str(&asked[0].body).unwrap();
    let expected = serde_json::json!({"environment": {"A": "1=2", "FROM_HERE": "yes"}, "labels": {"team": "web"},
        "args": ["--size", "640"], "priority": -5, "timeout": "90s"});
    assert_eq!(body, expected);
}

#[test]
fn run_wait_ends_as_the_container_did() {
    let stub = Stub::new();
    stub.on("POST /api/jobs/resize", "201 Created", JSON, &job(12, r#""state":"queued""#))
        .on("GET /api/jobs/12?wait=60s", "200 OK", JSON, &job(12, r#""state":"running","attempt_count":1"#))
        .on(
            "GET /api/jobs/12?wait=60s",
            "200 OK",
            JSON,
            &job(12, r#""state":"failed","outcome":"failed","exit_code":37,"attempt_count":1"#),
        );
    let said = said(&mut stub.longshore(&["run", "resize", "--wait"]));
    assert_eq!(said.code, 37);
    assert_eq!(said.err, "longshore: job 12 is queued\nlongshore: job 12 failed, exit 37\n");
    assert_eq!(said.out, "");
}

#[test]
fn run_wait_says_why_nothing_ran() {
    let stub = Stub::new();
    let end = r#""state":"failed","outcome":"start_failed","exit_code":127,"attempt_count":1,
        "reason":"exec: \"resise\": executable file not found in $PATH""#;
    stub.on("POST /api/jobs/resize", "201 Created", JSON, &job(12, r#""state":"queued""#)).on(
        "GET /api/jobs/12?wait=60s",
        "200 OK",
        JSON,
        &job(12, end),
    );
    let said = said(&mut stub.longshore(&["run", "resize", "--wait"]));
    let last = "longshore: job 12 failed, start failed: exec: \"resise\": executable file not found in $PATH (exit code 127)";
    assert_eq!((said.code, said.err.lines().next_back()), (127, Some(last)), "{said:?}");
}

#[test]
fn run_wait_gives_up_when_its_time_is_over_and_the_job_goes_on() {
    let stub = Stub::new();
    stub.on("POST /api/jobs/resize", "201 Created", JSON, &job(12, r#""state":"queued""#)).on(
        "GET /api/jobs/12?wait=60s",
        "200 OK",
        JSON,
        &job(12, r#""state":"queued""#),
    );
    let said = said(&mut stub.longshore(&["run", "resize", "--wait=50ms"]));
    assert_eq!(said.code, 1);
    assert!(
        said.err.ends_with("error: job 12 has not ended after 50ms, and goes on; see 'longshore show 12'\n"),
        "{said:?}"
    );
}

#[test]
fn a_job_whose_answer_is_lost_is_asked_for_again_under_the_same_key() {
    for (arguments, line) in
        [(["run", "resize"], "POST /api/jobs/resize"), (["retry", "3"], "POST /api/jobs/3/retry")]
    {
        let stub = Stub::new();
        let half = "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
        stub.on_raw(line, b"").on_raw(line, half.as_bytes());
        stub.on(line, "200 OK", JSON, &job(12, r#""state":"queued""#));
        let said = said(&mut stub.longshore(&arguments));
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
        assert!(said.out.starts_with("job 12 "), "{said:?}");
        let keys: Vec<String> = stub.asked().iter().map(key).collect();
        assert_eq!(keys.len(), 3, "{keys:?}");
        assert!(keys[0].len() > 30 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    }
}

#[test]
fn every_run_has_a_key_of_its_own() {
    let stub = Stub::new();
    stub.on("POST /api/jobs/resize", "201 Created", JSON, &job(12, r#""state":"queued""#));
    for _ in 0..2 {
        assert_eq!(said(&mut stub.longshore(&["run", "resize"])).code, 0);
    }
    let keys: Vec<String> = stub.asked().iter().map(key).collect();
    assert!(keys.len() == 2 && keys[0] != keys[1], "{keys:?}");
}

#[test]
fn who_gets_no_answer_at_all_learns_how_to_ask_again_without_making_a_second_job() {
    for later in [None, Some("503 Service Unavailable")] {
        let stub = Stub::new();
        stub.on_raw("POST /api/jobs/resize", b"");
        if let Some(status) = later {
            stub.on("POST /api/jobs/resize", status, "application/problem+json", r#"{"code":"draining"}"#);
        }
        let said = said(&mut stub.longshore(&["run", "resize"]));
        let asked = stub.asked();
        let hint = format!("try again with --key {}, which makes no second one\n", key(&asked[0]));
        assert_eq!((said.code, asked.len()), (6, 3), "{said:?}");
        assert!(said.err.ends_with(&hint), "{said:?}");
    }
}

#[test]
fn what_does_not_speak_http_is_asked_once_and_named() {
    let stub = Stub::new();
    stub.on_raw("POST /api/jobs/resize", b"\x15\x03\x01\x00\x02\x02\x46");
    stub.on_raw("GET /api/workers", b"\x15\x03\x01\x00\x02\x02\x46");
    for arguments in [&["run", "resize"][..], &["workers"]] {
        let said = said(&mut stub.longshore(arguments));
        assert_eq!(said.code, 1, "{said:?}");
        assert!(
            said.err.ends_with(" did not answer in HTTP; is it another service, or does it want TLS?\n"),
            "{said:?}"
        );
    }
    assert_eq!(stub.asked().len(), 2);
}

fn key(asked: &Asked) -> String {
    let line = asked.head.iter().find_map(|line| line.strip_prefix("idempotency-key: "));
    line.expect("a job is only asked for with a key").to_owned()
}
