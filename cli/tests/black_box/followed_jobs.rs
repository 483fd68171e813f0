//! Jobs that are followed and have nothing to show: jobs that wait again, and jobs that were replaced. And output of which a part is missing.

use testkit::{Process, wait_until};

use crate::running::Running;
use crate::stub::{JSON, Stub, job, longshore, run};

const JOBS_FILE: &str = "
defaults: { runtime: process }
jobs:
  fails: { command: [sh, -c, exit 3], retry: { max: 1, backoff: { kind: fixed, initial: 2h, jitter: none } } }
  again: { command: [sh, -c, 'echo tried; exit 3'], retry: { max: 2, backoff: { kind: fixed, initial: 10ms, jitter: none } } }
  half: { command: [sh, -c, 'printf half >&2; exit 3'] }
  newest: { command: [sleep, '600'], stop_grace_period: 1s, unique: { key: all, on_duplicate: replace } }
  nowhere: { command: ['true'], working_dir: /no/such/directory }
";

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_output_of_its_own_says_why() {
    let running = Running::start(JOBS_FILE).await;
    let mut follower = longshore(&["run", "fails", "--follow"]);
    follower.env("LONGSHORE_SERVER", format!("http://{}", running.cluster.address()));
    let follower = Process::spawn(follower, &running.cluster.path("follower.log")).unwrap();
    // The worker is called `only`.
    let told = "attempt 1 on only failed: exit code 3; job 1 waits again: ";
    wait_until("it says that the job waits again", async || follower.log().contains(told)).await;
    assert_eq!(follower.log().matches("waits again").count(), 1, "{}", follower.log());

    let failed = running.run_cli(&["run", "nowhere", "--wait"]);
    assert!(
        failed.code == 127 && failed.err.contains("working_dir /no/such/directory cannot be"),
        "{failed:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_hears_how_each_attempt_ended_and_that_another_one_follows() {
    let running = Running::start(JOBS_FILE).await;
    let followed = running.run_cli(&["run", "again", "--follow"]);
    assert_eq!((followed.code, followed.out.as_str()), (3, "tried\ntried\ntried\n"), "{followed:?}");
    for (ended, next) in [(1, 2), (2, 3)] {
        let end = format!("longshore: attempt {ended} on only failed: exit code 3; ");
        let told: Vec<&str> = followed.err.lines().filter(|line| line.starts_with(&end)).collect();
        assert!(
            matches!(told.as_slice(), [one] if one.ends_with(&format!("attempt {next} follows")) || one.contains("job 1 waits again")),
            "{followed:?}"
        );
        assert!(followed.err.contains(&format!("longshore: attempt {next} on only\n")), "{followed:?}");
    }
    let text =
        String::from_utf8(running.api.get_bytes("/api/jobs/1/logs?follow=1&attempt=all").await).unwrap();
    let attempt = |number| {
        format!("longshore: attempt {number} on only failed: exit code 3; attempt {} follows\n", number + 1)
    };
    let second = "longshore: attempt 2 on only\n";
    let last = "longshore: attempt 3 on only\ntried\nlongshore: job 1 failed, exit 3\n";
    assert_eq!(text, format!("tried\n{}{second}tried\n{}{last}", attempt(1), attempt(2)));

    let all = String::from_utf8(running.api.get_bytes("/api/jobs/1/logs?attempt=all").await).unwrap();
    let heading = |number| format!("==> attempt {number} on only: failed, exit 3 <==\ntried\n");
    assert_eq!(all, format!("{}\n{}\n{}", heading(1), heading(2), heading(3)));

    let half = running.run_cli(&["run", "half", "--follow"]);
    assert!(
        half.err.ends_with("\nhalf\nlongshore: job 2 failed, exit 3\n"),
        "the end has its own line: {half:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_job_names_its_successor() {
    let mut running = Running::start(JOBS_FILE).await;
    running.api.post("/api/jobs/newest", None).await;
    running.api.wait_for_job(1, |job| job["state"] == "running").await;
    running.api.post("/api/jobs/newest", None).await;
    let first = running.api.wait_for_job(1, |job| job["ended_at"].is_string()).await;
    assert_eq!(first["reason"], "cancelled: replaced by job 2 of the same unique key", "{first}");
    running.server.terminate().await;
}

#[test]
fn text_before_and_after_missing_output_is_not_one_line() {
    let event = |name: &str, data: serde_json::Value| format!("event: {name}\ndata: {data}\n\n");
    let attempt = |number| event("attempt", serde_json::json!({ "attempt": number, "worker": "w1" }));
    let output = |stream, text: &str| {
        let base64 = data_encoding::BASE64.encode(text.as_bytes());
        event("output", serde_json::json!({ "stream": stream, "base64": base64 }))
    };
    let gap = |stream| event("gap", serde_json::json!({ "stream": stream, "missing_bytes": 6 }));
    let body = [
        attempt(1),
        output("stdout", "one\nhalf"),
        output("stderr", "oops"),
        gap("stderr"),
        gap("stdout"),
        output("stdout", "of\n"),
        gap("stdout"),
        output("stdout", "two\n"),
        output("stderr", "s\n"),
        output("stdout", "last"),
        attempt(2),
        output("stdout", "again"),
        event("end", serde_json::json!({ "job": 12 })),
    ];
    let stub = Stub::new();
    for query in ["", "&timestamps=1"] {
        let line = format!("GET /api/jobs/12/logs?encoding=base64{query}");
        stub.on(&line, "200 OK", "text/event-stream", &body.concat());
    }
    let said = run(&mut stub.longshore(&["logs", "12"]));
    assert_eq!((said.code, said.out.as_str()), (0, "one\nhalf\nof\ntwo\nlast\nagain"), "{said:?}");
    assert!(said.err.starts_with("oops\nlongshore: 6 bytes of stderr are missing\n"), "{said:?}");
    let since = "GET /api/jobs/12/logs?encoding=base64&tail=5&since=2026-03-01T09%3A30%3A00Z";
    stub.on(since, "200 OK", "text/event-stream", &body.concat());
    let later = run(&mut stub.longshore(&["logs", "12", "--since", "2026-03-01T09:30:00Z", "--tail", "5"]));
    assert_eq!((later.code, later.out), (0, said.out));
    let stamped = run(&mut stub.longshore(&["logs", "-t", "12"]));
    assert_eq!(stamped.out, "- one\n- half\n- of\n- two\n- last\n- again", "{stamped:?}");
}

#[test]
fn a_note_about_one_stream_does_not_continue_a_line_of_the_other() {
    let event = |name: &str, data: serde_json::Value| format!("event: {name}\ndata: {data}\n\n");
    let output = |stream, text: &str| {
        let base64 = data_encoding::BASE64.encode(text.as_bytes());
        event("output", serde_json::json!({ "stream": stream, "base64": base64 }))
    };
    let cut = serde_json::json!({ "stream": "stdout", "missing_bytes": 6, "cut_at_bytes": 65_536, "text": "longshore: cut" });
    let withheld = serde_json::json!({ "shown_bytes": 1, "max_bytes": 2, "text": "longshore: withheld" });
    let body = [
        event("attempt", serde_json::json!({ "attempt": 1, "worker": "w1" })),
        output("stdout", "half"),
        output("stderr", "oops"),
        event("withheld", withheld.clone()),
        event("withheld", withheld),
        output("stdout", " a line"),
        output("stderr", "again"),
        event("gap", cut),
        output("stdout", "end\n"),
        output("stderr", "last"),
        event("late", serde_json::json!({ "late_bytes": 5 })),
        event("end", serde_json::json!({ "job": 12 })),
    ];
    let stub = Stub::new();
    stub.on("GET /api/jobs/12/logs?encoding=base64", "200 OK", "text/event-stream", &body.concat());
    let said = run(&mut stub.longshore(&["logs", "12"]));
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "half a line\nend\n"),
        "standard output has no break of a note"
    );
    let notes = "oops\nlongshore: withheld\nagain\nlongshore: cut\nlast\nlongshore: 5 bytes of output have not arrived yet\n";
    assert_eq!(said.err, notes);
}

#[test]
fn an_attempt_that_ended_and_withheld_output_are_json_lines_for_programs() {
    use serde_json::{Value, json};
    let event = |name: &str, data: Value| format!("event: {name}\ndata: {data}\n\n");
    let first = json!({ "attempt": 1, "outcome": "failed", "exit_code": 3, "next_attempt": 2 });
    let second = json!({ "attempt": 2, "pending_reason": { "code": "backoff", "text": "it waits" } });
    let with_text = |data: &Value| {
        let mut data = data.clone();
        data["text"] = "longshore: it ended".into();
        data
    };
    let withheld = json!({ "shown_bytes": 1, "max_bytes": 2 });
    let body = [
        event("attempt", json!({ "attempt": 1, "worker": "w1" })),
        event("withheld", with_text(&withheld)),
        event("attempt_ended", with_text(&first)),
        event("attempt_ended", with_text(&first)),
        event("attempt", json!({ "attempt": 2, "worker": "w1" })),
        event("attempt_ended", with_text(&second)),
        event("end", json!({ "job": 12 })),
    ];
    let stub = Stub::new();
    stub.on("GET /api/jobs/12/logs?encoding=base64", "200 OK", "text/event-stream", &body.concat());
    let said = run(&mut stub.longshore(&["logs", "12", "-o", "json"]));
    let lines: Vec<Value> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected = [
        json!({ "withheld": withheld }),
        json!({ "attempt_ended": first }),
        json!({ "attempt_ended": second }),
    ];
    assert_eq!((said.code, lines.as_slice(), said.err.contains("it ended")), (0, expected.as_slice(), false));
}

#[test]
fn the_output_of_a_job_that_has_not_started_says_why_it_waits() {
    let stub = Stub::new();
    let output = "GET /api/jobs/12/logs?encoding=base64";
    stub.on(output, "200 OK", "text/event-stream", "event: end\ndata: {\"job\":12}\n\n");
    let state = r#""state":"queued","queuing":true,"pending_reason":{"code":"no_worker","text":"no worker is connected"}"#;
    stub.on("GET /api/jobs/12", "200 OK", JSON, &job(12, state));
    let said = run(&mut stub.longshore(&["logs", "12"]));
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{said:?}");
    assert_eq!(said.err, "longshore: job 12 has not started: it is queued; no worker is connected\n");
    let json = run(&mut stub.longshore(&["logs", "12", "-o", "json"]));
    assert_eq!((json.code, json.out.as_str(), json.err.as_str()), (0, "", ""), "{json:?}");
    let ended =
        r#""state":"cancelled","reason":"cancelled by a client","ended_at":"2026-03-01T09:31:00.000Z""#;
    stub.on("GET /api/jobs/12", "200 OK", JSON, &job(12, ended));
    let said = run(&mut stub.longshore(&["logs", "12"]));
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.starts_with("longshore: job 12 has ended without a start: cancelled"), "{said:?}");
}
