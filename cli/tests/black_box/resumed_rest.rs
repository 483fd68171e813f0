//! `longshore submit --resume`: what is left of a batch, by answers of the server that a test cannot bring about in time.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use crate::stub::{CliOutput, JSON, Stub, job, run};

const PROBLEM: &str = "application/problem+json";
const RETRY: &str = "POST /api/batches/7/retry";
const MEMBERS: &str = "GET /api/jobs?batch=7&latest=1&state=scheduled%2Cqueued%2Cassigned%2Crunning%2Cquarantined%2Cfailed%2C\
                       cancelled%2Cexpired%2Clost&limit=500";
const NOTHING_MADE: &str =
    r#"{"retry_of":7,"dry_run":false,"matched":0,"refused":0,"cancelled":0,"unended":0}"#;

/// A batch of one job, which has ended in this state.
fn batch(id: u64, state: &str, more: &str) -> String {
    let (succeeded, failed) = if state == "succeeded" { (1, 0) } else { (0, 1) };
    format!(
        r#"{{"id":{id},"state":"{state}","created_at":"2026-03-01T09:30:00.000Z","count":1,"counts":{{"scheduled":0,"queued":0,
            "assigned":0,"running":0,"quarantined":0,"succeeded":{succeeded},"failed":{failed},"cancelled":0,"expired":0,"lost":0}},
            "progress":1.0,"ended_at":"2026-03-01T09:31:00.000Z"{more}}}"#
    )
}

/// A server whose batch 7 was made by an earlier run.
fn resumed(first: &str) -> Stub {
    let stub = Stub::new();
    let made = r#"{"batch":7,"count":1,"first":7,"last":7,"replayed":true}"#;
    let made = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nidempotent-replay: true\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{made}",
        made.len()
    );
    stub.on_raw("POST /api/jobs", made.as_bytes());
    stub.on("GET /api/batches/7?wait=1s", "200 OK", JSON, first);
    stub
}

fn submit(stub: &Stub, more: &[&str]) -> CliOutput {
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("list.json");
    std::fs::write(&list, r#"[{"name":"resize"}]"#).unwrap();
    let words = [&["submit", list.to_str().unwrap(), "--resume", "--key", "night"][..], more].concat();
    run(&mut stub.longshore(&words))
}

fn retries(stub: &Stub) -> usize {
    stub.requests().iter().filter(|request| request.line.starts_with(RETRY)).count()
}

#[test]
fn a_retry_that_somebody_else_makes_meanwhile_is_waited_for() {
    let stub = resumed(&batch(7, "failed", ""));
    let failed = format!("[{}]", job(7, r#""state":"failed","unresolved":true"#));
    let running = format!("[{}]", job(9, r#""state":"running","retry_of":7"#));
    // The job is removed before its end is read, and the last list shows that nothing is left.
    stub.on(MEMBERS, "200 OK", JSON, &failed)
        .on(MEMBERS, "200 OK", JSON, &running)
        .on(MEMBERS, "200 OK", JSON, &running)
        .on(MEMBERS, "200 OK", JSON, "[]")
        .on(RETRY, "200 OK", JSON, NOTHING_MADE)
        .on("GET /api/jobs/9?wait=60s", "200 OK", JSON, &job(9, r#""state":"succeeded""#))
        .on(
            "GET /api/jobs/9?wait=60s",
            "404 Not Found",
            PROBLEM,
            r#"{"code":"pruned","detail":"it is removed"}"#,
        );
    let said = submit(&stub, &[]);
    assert_eq!((said.code, retries(&stub)), (0, 1), "{said:?}");
    let waits = stub.requests().iter().filter(|request| request.line.starts_with("GET /api/jobs/9")).count();
    assert_eq!((waits, said.err.matches("retries of 1 member have not ended").count()), (2, 2), "{said:?}");
    assert_eq!(said.err.matches("1 of 1 ended").count(), 1, "{said:?}");
}

#[test]
fn the_retries_that_go_on_are_named_when_the_time_is_up() {
    let stub = resumed(&batch(7, "failed", ""));
    let running = job(9, r#""state":"running","retry_of":7"#);
    stub.on(MEMBERS, "200 OK", JSON, &format!("[{running}]")).on(
        "GET /api/jobs/9?wait=60s",
        "200 OK",
        JSON,
        &running,
    );
    let said = submit(&stub, &["--wait=3s"]);
    let error =
        "error: job 9, a retry, has not ended after 3s, and continues; the same command goes on with it\n";
    assert!(said.code == 124 && said.err.ends_with(error), "{said:?}");
}

#[test]
fn nothing_is_repeated_if_a_retry_may_have_been_removed() {
    let acknowledged_or_repeated = format!("[{}]", job(7, r#""state":"failed""#));
    let failed = format!("[{}]", job(7, r#""state":"failed","unresolved":true"#));
    let not_found = r#"{"code":"batch_not_found","detail":"there is no batch 8"}"#;
    let kept = batch(7, "failed", "");
    let with_removed = batch(7, "failed", r#","removed":1"#);
    let retried = batch(7, "failed", r#","retried_as":8"#);
    let retry = batch(8, "failed", r#","removed":1"#);
    for (first, second, members, why) in [
        (
            &kept,
            None,
            &acknowledged_or_repeated,
            "job 7 has failed, and was acknowledged, or its retry is no longer kept",
        ),
        (&with_removed, None, &failed, "members of it or of its retries are no longer kept"),
        (&retried, Some(("200 OK", JSON, retry.as_str())), &failed, "members of it or of its retries"),
        (&retried, Some(("404 Not Found", PROBLEM, not_found)), &failed, "members of it or of its retries"),
    ] {
        let stub = resumed(first);
        stub.on(MEMBERS, "200 OK", JSON, members).on(RETRY, "200 OK", JSON, NOTHING_MADE);
        if let Some((status, kind, answer)) = second {
            stub.on("GET /api/batches/8?wait=1s", status, kind, answer);
        }
        let said = submit(&stub, &[]);
        let error = format!("error: batch 7: it is not known what of it is left: {why}");
        assert!(said.code == 4 && said.err.contains(&error), "{said:?}");
        assert!(said.err.contains("; nothing is repeated; look at 'longshore batch 7 results"), "{said:?}");
        assert_eq!(retries(&stub), 0, "{said:?}");
    }
}
