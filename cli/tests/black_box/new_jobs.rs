//! `--wait`, `--follow` and `--quiet` of `run`, `retry`, `submit`, `batch ID retry` and `pipeline ID retry`, against a stub server and a real
//! one: they have the same texts and the same exit codes.

use std::process::Stdio;

use crate::running::Running;
use crate::stub::{CliOutput, JSON, Stub, job, run};

const MADE_BATCH: &str =
    r#"{"batch":12,"count":2,"first":12,"last":13,"retry_of":3,"dry_run":false,"matched":2,"refused":0}"#;

fn ended_batch(state: &str, failed: u32) -> String {
    let succeeded = 2 - failed;
    format!(
        r#"{{"id":12,"state":"{state}","created_at":"2026-03-01T09:30:00.000Z","ended_at":"2026-03-01T09:31:00.000Z","count":2,
            "progress":1.0,"counts":{{"scheduled":0,"queued":0,"assigned":0,"running":0,"quarantined":0,
            "succeeded":{succeeded},"failed":{failed},"cancelled":0,"expired":0,"lost":0}}}}"#
    )
}

/// A server that makes job 12 for each verb, which ends with these members.
fn one_job(end: &str) -> Stub {
    let stub = Stub::new();
    let made = job(12, r#""state":"queued""#);
    stub.on("POST /api/jobs/resize", "201 Created", JSON, &made)
        .on("POST /api/jobs/3/retry", "201 Created", JSON, &made)
        .on("GET /api/jobs/12?wait=60s", "200 OK", JSON, &job(12, end))
        .on("GET /api/jobs/12", "200 OK", JSON, &job(12, end));
    stub
}

/// The output of both verbs with these flags.
fn both(stub: &Stub, flags: &[&str]) -> CliOutput {
    let ran = run(stub.longshore(&["run", "resize"]).args(flags));
    let retried = run(stub.longshore(&["retry", "3"]).args(flags));
    assert_eq!(ran, retried, "{flags:?}");
    ran
}

#[test]
fn a_retry_is_waited_for_as_a_run() {
    let failed = r#""state":"failed","outcome":"failed","exit_code":37,"attempt_count":1"#;
    let said = both(&one_job(failed), &["--wait"]);
    let notes = "longshore: job 12 is queued\nlongshore: job 12 failed, exit 37\n";
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (37, "", notes));
    assert_eq!(both(&one_job(r#""state":"cancelled""#), &["-w"]).code, 1);
    let said = both(&one_job(r#""state":"succeeded""#), &["--wait", "-o", "json"]);
    assert!(said.code == 0 && said.out.contains("\"state\": \"succeeded\""), "{said:?}");

    let running = one_job(r#""state":"running""#);
    let late = both(&running, &["--wait=50ms"]);
    let text = "error: job 12 has not ended after 50ms, and continues; see 'longshore show 12'\n";
    assert!(late.code == 124 && late.out.is_empty() && late.err.ends_with(text), "{late:?}");
    let named = both(&running, &["--wait=50ms", "-o", "name"]);
    assert_eq!((named.code, named.out.as_str()), (124, "12\n"));
    let wrong = both(&running, &["--follow", "-o", "json"]);
    assert!(wrong.code == 2 && wrong.err.contains("use --wait -o json"), "{wrong:?}");
    for flags in [["--follow", "--wait"], ["--follow", "--quiet"]] {
        assert_eq!(run(running.longshore(&["retry", "3"]).args(flags)).code, 2, "{flags:?}");
    }
}

#[test]
fn a_format_of_the_environment_is_not_for_output_that_is_followed() {
    for verb in [["run", "resize"], ["retry", "3"]] {
        let stub = one_job(r#""state":"succeeded""#);
        let said = run(stub.longshore(&verb).arg("--follow").env("LONGSHORE_OUTPUT", "json"));
        assert!(!said.err.contains("which is not JSON") && !stub.requests().is_empty(), "{said:?}");
    }
}

#[test]
fn quiet_prints_the_id_and_the_exit_code_tells_the_outcome() {
    for (end, code) in [(r#""state":"succeeded""#, 0), (r#""state":"failed","exit_code":37"#, 37)] {
        let stub = one_job(end);
        for flags in [&["-q", "--wait"][..], &["--quiet", "--wait=1m"]] {
            let said = both(&stub, flags);
            assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (code, "12\n", ""), "{flags:?}");
        }
        let said = both(&stub, &["-q"]);
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (0, "12\n", ""));
        let json = both(&stub, &["-q", "--wait", "-o", "json"]);
        assert!(json.out.starts_with("{\n") && json.err.is_empty(), "a format replaces the id: {json:?}");
    }
    let late = both(&one_job(r#""state":"running""#), &["-q", "--wait=50ms"]);
    let text = "error: job 12 has not ended after 50ms, and continues; see 'longshore show 12'\n";
    assert_eq!((late.code, late.out.as_str(), late.err.as_str()), (124, "12\n", text));
}

#[test]
fn quiet_prints_the_id_of_a_batch_that_is_waited_for() {
    for (state, failed, code) in [("succeeded", 0, 0), ("failed", 1, 1)] {
        let stub = Stub::new();
        stub.on("POST /api/jobs/resize", "201 Created", JSON, MADE_BATCH)
            .on("POST /api/jobs", "201 Created", JSON, MADE_BATCH)
            .on("POST /api/batches/3/retry", "201 Created", JSON, MADE_BATCH)
            .on("POST /api/jobs/3/pipeline/retry?revision=current", "201 Created", JSON, MADE_BATCH)
            .on("GET /api/batches/12?wait=1s", "200 OK", JSON, &ended_batch(state, failed));
        for verb in [
            &["run", "resize", "--count", "2"][..],
            &["submit", "/dev/null"],
            &["batch", "3", "retry", "--yes"],
            &["pipeline", "3", "retry"],
        ] {
            let quiet = run(stub.longshore(verb).args(["-q", "--wait"]));
            assert_eq!((quiet.code, quiet.out.as_str(), quiet.err.as_str()), (code, "12\n", ""), "{verb:?}");
            let quiet = run(stub.longshore(verb).arg("--quiet"));
            assert_eq!((quiet.code, quiet.out.as_str()), (0, "12\n"), "{verb:?}");
            let shown = run(stub.longshore(verb).arg("--wait"));
            assert!(shown.code == code && shown.out.contains("2 of 2 ended"), "{verb:?}: {shown:?}");
            let json = run(stub.longshore(verb).args(["-q", "--wait", "-o", "json"]));
            assert!(json.code == code && json.out.starts_with("{\n"), "{verb:?}: {json:?}");
        }
    }
    let stub = Stub::new();
    let nothing = r#"{"retry_of":3,"dry_run":false,"matched":0,"refused":0}"#;
    stub.on("POST /api/batches/3/retry", "200 OK", JSON, nothing);
    let said = run(&mut stub.longshore(&["batch", "3", "retry", "--yes", "-q", "--wait"]));
    let note = "longshore: no member of batch 3 is left to be retried\n";
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (0, "", note));
    for (operation, flags) in [("cancel", &["-y", "-q"][..]), ("results", &["-q"])] {
        let said = run(stub.longshore(&["batch", "3", operation]).args(flags));
        assert!(said.code == 2 && said.err.contains("--quiet is"), "{operation}: {said:?}");
    }
}

#[test]
fn several_retries_are_waited_for_together() {
    let stub = Stub::new();
    let made = r#"{"dry_run":false,"matched":0,"done":0,"stopping":0,"refused":0,
        "results":[{"job":1,"made":11},{"job":2,"made":12}]}"#;
    stub.on("POST /api/jobs/retry?revision=current", "200 OK", JSON, made)
        .on("POST /api/jobs/1/retry?clear=input", "201 Created", JSON, &job(11, r#""state":"queued""#))
        .on("POST /api/jobs/2/retry?clear=input", "201 Created", JSON, &job(12, r#""state":"queued""#))
        .on("GET /api/jobs/11", "200 OK", JSON, &job(11, r#""state":"queued""#))
        .on("GET /api/jobs/12", "200 OK", JSON, &job(12, r#""state":"queued""#))
        .on("GET /api/jobs/11?wait=60s", "200 OK", JSON, &job(11, r#""state":"succeeded""#))
        .on(
            "GET /api/jobs/12?wait=60s",
            "200 OK",
            JSON,
            &job(12, r#""state":"failed","outcome":"failed","exit_code":37"#),
        );
    for changes in [&[][..], &["--clear", "input"]] {
        let retry = |flags: &[&str]| run(stub.longshore(&["retry", "1", "2"]).args(changes).args(flags));
        let said = retry(&["--wait"]);
        let mut lines: Vec<&str> = said.out.lines().collect();
        assert_eq!(lines[0], "job 11 tries job 1 again; follow it with: longshore logs -f 11");
        lines[2..].sort_unstable();
        assert_eq!((said.code, &lines[2..]), (37, &["job 11 succeeded", "job 12 failed, exit 37"][..]));
        let quiet = retry(&["-q", "--wait"]);
        assert_eq!((quiet.code, quiet.out.as_str(), quiet.err.as_str()), (37, "11\n12\n", ""));
        let quiet = retry(&["-q"]);
        assert_eq!((quiet.code, quiet.out.as_str(), quiet.err.as_str()), (0, "11\n12\n", ""));
        let json = retry(&["--wait", "-o", "json"]);
        let shown: serde_json::Value = serde_json::from_str(&json.out).unwrap();
        assert_eq!(
            (json.code, &shown[0]["state"], &shown[1]["exit_code"]),
            (37, &"succeeded".into(), &37.into())
        );
    }
    let follow = run(&mut stub.longshore(&["retry", "1", "2", "--follow"]));
    assert!(follow.code == 2 && follow.err.contains("--follow is for one job; use --wait"), "{follow:?}");
}

#[test]
fn a_refusal_of_one_of_several_retries_is_an_error_after_the_wait() {
    let stub = Stub::new();
    let made = r#"{"dry_run":false,"matched":0,"done":0,"stopping":0,"refused":0,"results":[
        {"job":1,"problem":{"type":"/problems/not_ended","title":"","status":409,"code":"not_ended","detail":"job 1 is running"}},
        {"job":2,"made":12}]}"#;
    stub.on("POST /api/jobs/retry?revision=current", "200 OK", JSON, made)
        .on("GET /api/jobs/12?wait=60s", "200 OK", JSON, &job(12, r#""state":"succeeded""#))
        .on("GET /api/jobs/12?wait=60s", "200 OK", JSON, &job(12, r#""state":"running""#))
        .on("GET /api/jobs/12", "200 OK", JSON, &job(12, r#""state":"running""#));
    let said = run(&mut stub.longshore(&["retry", "1", "2", "-q", "--wait"]));
    let refusal = "error: job 1 is running [not_ended]\n";
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (5, "12\n", refusal));
    let late = run(&mut stub.longshore(&["retry", "1", "2", "-q", "--wait=50ms"]));
    let up = "error: the time of 50ms is up: job 12 has not ended, and continues\n";
    assert!(late.code == 124 && late.out == "12\n" && late.err.ends_with(up), "{late:?}");
}

#[test]
fn retries_that_filters_select_print_ids_to_wait_for() {
    let stub = Stub::new();
    let done =
        r#"{"dry_run":false,"matched":2,"done":2,"stopping":0,"refused":0,"refusals":[],"jobs":[11,12]}"#;
    stub.on("POST /api/jobs/retry?name=x&revision=current", "200 OK", JSON, done);
    let quiet = run(&mut stub.longshore(&["retry", "--name", "x", "--yes", "-q"]));
    assert_eq!((quiet.code, quiet.out.as_str()), (0, "11\n12\n"), "{quiet:?}");
    for flag in ["--wait", "--follow"] {
        let said = run(stub.longshore(&["retry", "--name", "x", "--yes", flag]).stdin(Stdio::null()));
        assert!(said.code == 2 && said.err.contains("add --quiet"), "{said:?}");
    }
    let batch = run(&mut stub.longshore(&["retry", "--batch", "7", "--yes", "--wait"]));
    assert!(batch.code == 2 && batch.err.contains("longshore batch 7 retry --wait"), "{batch:?}");
    assert_eq!(stub.requests().len(), 1);
}

const JOBS: &str = "
jobs:
  once:
    runtime: process
    command: [sh, -c, 'echo run $$1; test -e $$0 || { touch $$0; exit 3; }', '${params.mark}', '${params.word}']
    params: { mark: { required: true }, word: { default: first } }
";

#[tokio::test]
async fn a_retry_is_followed_to_the_end_of_the_new_job() {
    let running = Running::start(JOBS).await;
    let mark = format!("mark={}", running.cluster.path("mark").display());
    let ran = running.run_cli(&["run", "once", "-p", &mark, "--follow"]);
    assert_eq!((ran.code, ran.out.as_str()), (3, "run first\n"), "{ran:?}");
    let retried = running.run_cli(&["retry", "1", "--follow", "-p", "word=again"]);
    assert_eq!((retried.code, retried.out.as_str()), (0, "run again\n"), "{retried:?}");
    assert!(retried.err.contains("longshore: job 2 succeeded"), "{retried:?}");
    let waited = running.run_cli(&["retry", "1", "2", "-q", "--wait"]);
    let mut ids: Vec<&str> = waited.out.lines().collect();
    ids.sort_unstable();
    assert_eq!((waited.code, ids.as_slice()), (0, &["3", "4"][..]), "{waited:?}");
}
