//! Retries of several jobs, which `--wait`, `--quiet` and formats for programs name, against a stub server.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::wait_until;

use crate::stub::{CliOutput, JSON, Stub, job, run};

const RETRY: &str = "POST /api/jobs/retry?revision=current";
const BOTH: &str = r#"{"dry_run":false,"matched":0,"done":0,"stopping":0,"refused":0,
    "results":[{"job":1,"made":11},{"job":2,"made":12}]}"#;

/// A server with the jobs 11 and 12, whose waits are answered with these members.
fn stub(retried: &str, end: &str) -> Stub {
    let stub = Stub::new();
    stub.on(RETRY, "200 OK", JSON, retried);
    for id in [11, 12] {
        stub.on(&format!("GET /api/jobs/{id}?wait=60s"), "200 OK", JSON, &job(id, end));
    }
    stub
}

fn retry(stub: &Stub, flags: &[&str]) -> CliOutput {
    run(stub.longshore(&["retry", "1", "2"]).args(flags))
}

#[test]
fn jobs_that_an_older_server_counts_are_waited_for() {
    let counts =
        r#"{"dry_run":false,"matched":2,"done":2,"stopping":0,"refused":0,"refusals":[],"jobs":[11,12]}"#;
    let stub = stub(counts, r#""state":"failed","outcome":"failed","exit_code":37"#);
    let said = retry(&stub, &["--wait"]);
    assert!(said.code == 37 && said.out.contains("job 12 failed, exit 37"), "{said:?}");
    let quiet = retry(&stub, &["-q", "--wait"]);
    assert_eq!((quiet.code, quiet.out.as_str()), (37, "11\n12\n"), "{quiet:?}");
}

#[test]
fn jobs_whose_ids_the_server_does_not_tell_are_an_error_of_a_wait() {
    for jobs in ["", r#","jobs":[11]"#] {
        let counts = format!(
            r#"{{"dry_run":false,"matched":2,"done":2,"stopping":0,"refused":0,"refusals":[]{jobs}}}"#
        );
        let stub = stub(&counts, r#""state":"succeeded""#);
        for flags in [&["--wait"][..], &["--wait", "-q"], &["--wait", "-o", "json"], &["-q"]] {
            let said = retry(&stub, flags);
            assert!(said.code == 1 && said.err.contains("has not told the ids"), "{flags:?}: {said:?}");
        }
        assert_eq!(retry(&stub, &[]).code, 0, "the counts are printed");
    }
}

#[test]
fn ids_that_an_answer_to_filters_does_not_list_are_an_error_of_quiet() {
    let stub = Stub::new();
    let done =
        r#"{"dry_run":false,"matched":3,"done":3,"stopping":0,"refused":0,"refusals":[],"jobs":[11,12]}"#;
    stub.on("POST /api/jobs/retry?name=x&revision=current", "200 OK", JSON, done);
    let retry = |flags: &[&str]| run(stub.longshore(&["retry", "--name", "x", "--yes"]).args(flags));
    let quiet = retry(&["-q"]);
    assert_eq!((quiet.code, quiet.out.as_str()), (1, "11\n12\n"), "{quiet:?}");
    assert!(quiet.err.contains("has not told the ids for 1 of them"), "{quiet:?}");
    let text = retry(&[]);
    assert_eq!((text.code, text.out.as_str()), (0, "3 retried of 3 jobs\n"), "{text:?}");
    assert!(text.err.contains("has not told the ids for 1 of them"), "{text:?}");
}

#[test]
fn a_retry_of_too_many_jobs_to_keep_their_order_says_so_before_and_afterwards() {
    let stub = Stub::new();
    let answer = |more: &str| {
        format!(r#"{{"matched":10001,"done":0,"stopping":0,"refused":0,"refusals":[],"jobs":[]{more}}}"#)
    };
    stub.on("POST /api/jobs/retry?name=x&revision=current", "200 OK", JSON, &answer(r#","ordered":false"#))
        .on("POST /api/jobs/retry?name=x&revision=current&dry_run=1", "200 OK", JSON, &answer(""));
    for flag in ["-q", "--yes"] {
        let said = run(stub.longshore(&["retry", "--name", "x", flag]).stdin(std::process::Stdio::null()));
        assert!(said.err.contains("too large to be retried in the order of the slots"), "{said:?}");
        assert!(said.err.contains("with --since and --until"), "{said:?}");
    }
}

#[test]
fn a_duplicate_is_told_on_standard_error_and_its_id_is_printed_once() {
    let found = r#"{"dry_run":false,"matched":0,"done":0,"stopping":0,"refused":0,
        "results":[{"job":1,"made":11,"duplicate":true},{"job":2,"made":11,"duplicate":true}]}"#;
    let stub = stub(found, r#""state":"succeeded""#);
    let note =
        |job| format!("longshore: job 11 has the unique key; no second job was created for job {job}\n");
    for flags in [&["-q"][..], &["-q", "--wait"], &["-o", "name"]] {
        let said = retry(&stub, flags);
        let err = note(1) + &note(2);
        assert_eq!((said.code, said.out.as_str(), said.err), (0, "11\n", err), "{flags:?}");
    }
}

#[test]
fn new_jobs_are_not_read_before_the_wait() {
    let stub = stub(BOTH, r#""state":"succeeded""#);
    for format in ["json", "ndjson", "csv"] {
        let said = retry(&stub, &["--wait", "-o", format]);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{format}");
    }
    let lines = stub.requests().into_iter().map(|request| request.line);
    let early: Vec<String> = lines.filter(|it| it.starts_with("GET") && !it.contains("?wait=")).collect();
    assert!(early.is_empty(), "{early:?}");
}

/// Interrupts a wait after both jobs were asked for.
async fn interrupted(format: &str) -> CliOutput {
    let stub = stub(BOTH, r#""state":"running""#);
    let mut command = stub.longshore(&["retry", "1", "2", "--wait", "-o", format]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let asked = |id| stub.requests().iter().any(|it| it.line == format!("GET /api/jobs/{id}?wait=60s"));
    wait_until("the jobs are waited for", async || asked(11) && asked(12)).await;
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    CliOutput { code: output.status.code().unwrap(), out, err }
}

#[tokio::test]
async fn an_interrupted_wait_names_the_new_jobs_for_programs() {
    let json_list = json!([{ "id": 11 }, { "id": 12 }]);
    for (format, expected) in [
        ("ndjson", "{\"id\":11}\n{\"id\":12}\n"),
        ("csv", "id\r\n11\r\n12\r\n"),
        ("name", "11\n12\n"),
        ("json", ""),
    ] {
        let said = interrupted(format).await;
        assert_eq!(said.code, 130, "{said:?}");
        assert_eq!(said.err, "longshore: job 11 and job 12 have not ended, and continue\n");
        match format {
            "json" => assert_eq!(serde_json::from_str::<Value>(&said.out).unwrap(), json_list),
            _ => assert_eq!(said.out, expected, "{format}"),
        }
    }
}

#[test]
fn a_wait_that_fails_names_the_new_jobs_for_programs() {
    let stub = Stub::new();
    let gone = r#"{"detail":"no","code":"unauthorized","status":401}"#;
    stub.on(RETRY, "200 OK", JSON, BOTH)
        .on("GET /api/jobs/11?wait=60s", "401 Unauthorized", "application/problem+json", gone)
        .on("GET /api/jobs/12?wait=60s", "401 Unauthorized", "application/problem+json", gone);
    let said = retry(&stub, &["--wait", "-o", "name"]);
    assert_eq!((said.code, said.out.as_str()), (3, "11\n12\n"), "{said:?}");
}
