//! `longshore run` and `retry` against a server of prepared answers: what is sent, what is sent again, how it ends.

mod stub;

use stub::{JSON, Stub, job, said};

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
