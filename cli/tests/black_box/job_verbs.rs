//! Verbs that change jobs, against a stub server: several jobs share requests, and the result of each is printed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::stub::{JSON, Stub, job, longshore, run};

const PROBLEM: &str = "application/problem+json";

/// The refusal of one job in the answer to a bulk request.
fn refused(job: u64, status: u16, code: &str, detail: &str) -> String {
    format!(
        r#"{{"job":{job},"problem":{{"type":"/problems/{code}","title":"","status":{status},"code":"{code}","detail":"{detail}"}}}}"#
    )
}

/// The answer to a bulk request about jobs that were given by id.
fn results(results: &[&str]) -> String {
    format!(
        r#"{{"dry_run":false,"matched":0,"done":0,"stopping":0,"refused":0,"results":[{}]}}"#,
        results.join(",")
    )
}

#[test]
fn cancel_continues_after_a_job_that_cannot_be_cancelled() {
    let stub = Stub::new();
    let over = refused(1, 409, "already_finished", "job 1 has succeeded");
    let answer = results(&[&over, r#"{"job":2,"state":"cancelled"}"#, r#"{"job":3,"state":"running"}"#]);
    stub.on("POST /api/jobs/cancel", "200 OK", JSON, &answer);
    let said = run(&mut stub.longshore(&["cancel", "1", "2", "3"]));
    assert_eq!(said.code, 5);
    assert_eq!(said.out, "job 2 is cancelled\njob 3 is being stopped\n");
    assert_eq!(said.err, "error: job 1 has succeeded [already_finished]\n");
    let requests = stub.requests();
    assert_eq!((requests.len(), requests[0].body.as_str()), (1, r#"{"ids":[1,2,3]}"#));
    let names = run(&mut stub.longshore(&["cancel", "1", "2", "3", "-o", "name"]));
    assert_eq!((names.code, names.out.as_str()), (5, "2\n3\n"));
}

#[test]
fn one_job_has_a_request_of_its_own() {
    let stub = Stub::new();
    stub.on("POST /api/jobs/3/cancel", "202 Accepted", JSON, &job(3, r#""state":"running""#)).on(
        "POST /api/jobs/4/release",
        "200 OK",
        JSON,
        &job(4, r#""state":"queued""#),
    );
    let said = run(&mut stub.longshore(&["cancel", "3"]));
    assert_eq!((said.code, said.out.as_str()), (0, "job 3 is being stopped\n"), "{said:?}");
    let said = run(&mut stub.longshore(&["release", "4"]));
    assert_eq!((said.code, said.out.as_str()), (0, "job 4 goes on\n"), "{said:?}");
}

#[test]
fn many_jobs_are_cancelled_by_a_few_requests() {
    let stub = Stub::new();
    let part = |ids: std::ops::RangeInclusive<u64>| {
        let each =
            ids.map(|id| format!(r#"{{"job":{id},"state":"cancelled"}}"#)).collect::<Vec<_>>().join(",");
        results(&[&each])
    };
    stub.on("POST /api/jobs/cancel", "200 OK", JSON, &part(1..=200)).on(
        "POST /api/jobs/cancel",
        "200 OK",
        JSON,
        &part(201..=250),
    );
    let ids: Vec<String> = (1..=250).map(|id: u64| id.to_string()).collect();
    let arguments: Vec<&str> = ["cancel"].into_iter().chain(ids.iter().map(String::as_str)).collect();
    let said = run(&mut stub.longshore(&arguments));
    assert_eq!((said.code, said.out.lines().count(), stub.requests().len()), (0, 250, 2), "{}", said.err);
}

#[test]
fn a_server_that_is_away_ends_the_verb() {
    let said = run(&mut longshore(&["cancel", "1", "2"]));
    assert_eq!((said.code, said.out.as_str()), (6, ""), "{said:?}");
    assert_eq!(said.err.matches("error: ").count(), 1, "{said:?}");
}

#[test]
fn release_prints_the_effect_on_each_job() {
    let stub = Stub::new();
    let no = refused(2, 409, "nothing_to_release", "the job is running");
    let no = no.replace(r#""detail""#, r#""hint":"cancel it","detail""#);
    let answer = results(&[r#"{"job":1,"state":"queued"}"#, &no, r#"{"job":3,"state":"cancelled"}"#]);
    stub.on("POST /api/jobs/release", "200 OK", JSON, &answer);
    let said = run(&mut stub.longshore(&["release", "1", "2", "3"]));
    assert_eq!((said.code, said.out.as_str()), (5, "job 1 goes on\njob 3 is cancelled\n"));
    assert_eq!(said.err, "error: job 2: the job is running [nothing_to_release]; cancel it\n");
}

#[test]
fn release_of_an_ended_job_says_that_its_unique_key_is_free() {
    let stub = Stub::new();
    let answer = results(&[r#"{"job":7,"state":"failed"}"#, r#"{"job":8,"state":"cancelled"}"#]);
    stub.on("POST /api/jobs/release", "200 OK", JSON, &answer).on(
        "POST /api/jobs/7/release",
        "200 OK",
        JSON,
        &job(7, r#""state":"failed""#),
    );
    let failed = "job 7 has ended as failed; its unique key is free\n";
    assert_eq!(run(&mut stub.longshore(&["release", "7"])).out, failed);
    let both = run(&mut stub.longshore(&["release", "7", "8"]));
    assert_eq!((both.code, both.out), (0, format!("{failed}job 8 is cancelled\n")));
}

#[test]
fn counts_of_an_older_server_are_printed() {
    let stub = Stub::new();
    let answer = r#"{"dry_run":false,"matched":3,"done":2,"stopping":0,"refused":1,"jobs":[11,12],
        "refusals":[{"job":3,"code":"not_ended","detail":"job 3 is running"}]}"#;
    stub.on("POST /api/jobs/retry?revision=current", "200 OK", JSON, answer);
    let text = run(&mut stub.longshore(&["retry", "1", "2", "3"]));
    assert_eq!((text.code, text.out.as_str()), (5, "2 retried, 1 refused of 3 jobs\nnew jobs: 11 12\n"));
    assert_eq!(text.err, "longshore: job 3: job 3 is running\n");
    let names = run(&mut stub.longshore(&["retry", "1", "2", "3", "-o", "name"]));
    assert_eq!((names.code, names.out.as_str()), (5, "11\n12\n"), "{names:?}");
    let json = run(&mut stub.longshore(&["retry", "1", "2", "3", "-o", "json"]));
    let value: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((json.code, &value[0]["jobs"]), (5, &serde_json::json!([11, 12])), "{json:?}");
    assert_eq!(stub.requests().len(), 3, "nothing was repeated");
    stub.on("POST /api/jobs/cancel", "200 OK", JSON, "{}");
    let other = run(&mut stub.longshore(&["cancel", "1", "2"]));
    assert!(other.code == 1 && other.err.contains("is not from a Longshore server"), "{other:?}");
}

#[test]
fn jobs_that_cannot_be_read_after_the_operation_are_done_nevertheless() {
    let stub = Stub::new();
    let both = results(&[r#"{"job":1,"made":11}"#, r#"{"job":2,"made":12}"#]);
    let gone = r#"{"detail":"there is no job 12","code":"job_not_found"}"#;
    stub.on("POST /api/jobs/retry?revision=current", "200 OK", JSON, &both)
        .on("GET /api/jobs/11", "200 OK", JSON, &job(11, r#""state":"queued""#))
        .on("GET /api/jobs/12", "404 Not Found", PROBLEM, gone)
        .on("POST /api/jobs/cancel", "200 OK", JSON, &results(&[r#"{"job":12,"state":"cancelled"}"#; 2]));
    let json = |verb| {
        let told = run(&mut stub.longshore(&[verb, "1", "2", "-o", "json"]));
        assert_eq!(told.code, 0, "{told:?}");
        assert!(told.err.contains("the operation is done, but job 12 cannot be read"), "{told:?}");
        serde_json::from_str::<serde_json::Value>(&told.out).unwrap()
    };
    let retried = json("retry");
    assert_eq!(retried[0]["state"], "queued");
    assert_eq!(retried[1], serde_json::json!({"id": 12, "retry_of": 2}));
    assert_eq!(json("cancel")[0], serde_json::json!({"id": 12, "state": "cancelled"}));
}

#[test]
fn a_retry_that_made_no_job_says_which_one_has_the_unique_key() {
    let stub = Stub::new();
    let both = results(&[r#"{"job":1,"made":11}"#, r#"{"job":2,"made":9,"duplicate":true}"#]);
    stub.on("POST /api/jobs/retry?revision=current", "200 OK", JSON, &both)
        .on("POST /api/jobs/2/retry", "200 OK", JSON, &job(9, r#""state":"queued","duplicate":true"#))
        .on("GET /api/jobs/11", "200 OK", JSON, &job(11, r#""state":"queued""#))
        .on("GET /api/jobs/9", "200 OK", JSON, &job(9, r#""state":"queued""#));
    let line = "job 9 has the unique key; no second job was created for job 2\n";
    let one = run(&mut stub.longshore(&["retry", "2"]));
    assert_eq!((one.code, one.out.as_str()), (0, line));
    let two = run(&mut stub.longshore(&["retry", "1", "2"]));
    assert!(two.code == 0 && two.out.ends_with(line), "{two:?}");
    let json = run(&mut stub.longshore(&["retry", "1", "2", "-o", "json"]));
    let value: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&value[1]["id"], &value[1]["duplicate"]), (&9.into(), &true.into()), "{json:?}");
}

#[test]
fn reschedule_sends_the_new_start_and_says_when_the_job_is_due() {
    let stub = Stub::new();
    let due = r#""state":"scheduled","due_at":"2026-03-01T09:30:00.000Z""#;
    let refusal = r#"{"detail":"the job is running","code":"not_waiting"}"#;
    stub.on("PATCH /api/jobs/1", "200 OK", JSON, &job(1, due)).on(
        "PATCH /api/jobs/2",
        "409 Conflict",
        PROBLEM,
        refusal,
    );
    let told = run(&mut stub.longshore(&["reschedule", "1", "--delay", "10m", "--priority", "-3"]));
    assert_eq!((told.code, told.out.as_str()), (0, "job 1 is scheduled, due 2026-03-01T09:30:00.000Z\n"));
    let told = run(&mut stub.longshore(&["reschedule", "2", "--now"]));
    assert_eq!((told.code, told.err.as_str()), (5, "error: the job is running [not_waiting]\n"));
    for flags in [&[][..], &["--now", "--delay", "1s"], &["--at", "tomorrow"], &["--delay", "x"]] {
        let told = run(&mut stub.longshore(&[&["reschedule", "1"], flags].concat()));
        assert_eq!(told.code, 2, "{flags:?}: {}", told.err);
    }
}

#[test]
fn the_first_refusal_decides_the_exit_code_and_all_are_printed() {
    let stub = Stub::new();
    let both = [refused(1, 404, "job_not_found", "no"), refused(2, 409, "already_finished", "no")];
    stub.on("POST /api/jobs/cancel", "200 OK", JSON, &results(&[&both[0], &both[1]]));
    let told = run(&mut stub.longshore(&["cancel", "1", "2"]));
    let err = "error: job 1: no [job_not_found]\nerror: job 2: no [already_finished]\n";
    assert_eq!((told.code, told.out.as_str(), told.err.as_str()), (4, "", err));
}

/// Cancels jobs at a server that answers the first request only, sends SIGINT during the second one, and returns the exit code and both
/// outputs.
fn interrupt_second_request(arguments: &[&str], body: &str) -> (Option<i32>, [String; 2]) {
    let ids: Vec<String> = (1..=203).map(|id: u64| id.to_string()).collect();
    let mut command = longshore(&["cancel"]);
    command.args(arguments).args(ids);
    interrupt(command, Some(body))
}

/// Runs a command at a server that answers the first request with this body, if there is one. Sends SIGINT during the next request, and returns
/// the exit code and both outputs.
#[expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
pub(crate) fn interrupt(mut command: Command, first: Option<&str>) -> (Option<i32>, [String; 2]) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    command.env("LONGSHORE_SERVER", format!("http://{}", server.local_addr().unwrap()));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let next = || {
        let (connection, _) = server.accept().unwrap();
        let mut reader = BufReader::new(connection);
        // After the whole request head, the program listens for signals.
        let mut line = String::new();
        while reader.read_line(&mut line).unwrap() > 2 {}
        reader.into_inner()
    };
    if let Some(body) = first {
        let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        next().write_all(format!("{head}{body}").as_bytes()).unwrap();
    }
    let silent = next();
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(silent);
    (output.status.code(), [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()))
}

#[test]
fn ctrl_c_prints_what_was_done_before() {
    let body = results(&[r#"{"job":1,"state":"cancelled"}"#]);
    let (code, told) = interrupt_second_request(&[], &body);
    let note = "longshore: interrupted: the outcome for 3 jobs (201 … 203) is unknown; later jobs were not requested\n";
    assert_eq!(code, Some(130), "{told:?}");
    assert_eq!(told, ["job 1 is cancelled\n", note]);
}

#[test]
fn ctrl_c_ends_the_reading_of_jobs_after_the_operation() {
    let body = results(&[r#"{"job":1,"state":"cancelled"}"#]);
    let (code, told) = interrupt_second_request(&["-o", "ndjson"], &body);
    let note = "longshore: interrupted: not all jobs were read; later jobs were not requested\n";
    assert_eq!(code, Some(130), "{told:?}");
    assert_eq!(told, ["{\"id\":1,\"state\":\"cancelled\"}\n", note]);
}

#[test]
fn retry_prints_a_list_for_several_jobs_and_an_object_for_one() {
    let stub = Stub::new();
    let made = [11, 12].map(|id| job(id, r#""state":"queued""#));
    stub.on("POST /api/jobs/1/retry", "201 Created", JSON, &made[0])
        .on("POST /api/jobs/2/retry", "201 Created", JSON, &made[1])
        .on("GET /api/jobs/11", "200 OK", JSON, &made[0])
        .on("GET /api/jobs/12", "200 OK", JSON, &made[1]);
    let both = results(&[r#"{"job":1,"made":11}"#, r#"{"job":2,"made":12}"#]);
    stub.on("POST /api/jobs/retry?revision=current", "200 OK", JSON, &both);
    let told = run(&mut stub.longshore(&["retry", "1", "2"]));
    let out = "job 11 tries job 1 again; follow it with: longshore logs -f 11\n\
        job 12 tries job 2 again; follow it with: longshore logs -f 12\n";
    assert_eq!((told.code, told.out.as_str(), told.err.as_str()), (0, out, ""));
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&run(&mut stub.longshore(arguments)).out).unwrap()
    };
    assert_eq!(json(&["retry", "1", "-o", "json"])["id"], 11);
    assert_eq!(json(&["retry", "1", "2", "-o", "json"])[1]["id"], 12);
    // The bulk operation takes no changes.
    assert_eq!(json(&["retry", "1", "2", "-e", "A=1", "-o", "json"])[1]["id"], 12);
    let lines: Vec<String> = stub.requests().into_iter().map(|request| request.line).collect();
    assert!(
        lines.ends_with(&["POST /api/jobs/1/retry", "POST /api/jobs/2/retry"].map(String::from)),
        "{lines:?}"
    );
    let one_key = run(&mut stub.longshore(&["retry", "1", "2", "--key", "k"]));
    assert!(one_key.code == 2 && one_key.err.contains("--key"), "{one_key:?}");
}

#[test]
fn retry_notes_a_key_that_created_its_job_before() {
    let stub = Stub::new();
    let body = job(12, r#""state":"succeeded""#);
    let replay = format!(
        "HTTP/1.1 200 OK\r\nidempotent-replay: true\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    for line in ["POST /api/jobs/resize", "POST /api/jobs/1/retry"] {
        stub.on_raw(line, replay.as_bytes());
    }
    for arguments in [["run", "resize", "--key", "k", "-q"], ["retry", "1", "--key", "k", "-o=table"]] {
        let told = run(&mut stub.longshore(&arguments));
        let note = "longshore: this key created job 12 before; no second job was created\n";
        assert_eq!((told.code, told.err.as_str()), (0, note), "{told:?}");
    }
}
