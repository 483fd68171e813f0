//! Verbs that change jobs, against a stub server: each job is requested alone, and its result printed at once.

mod stub;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use stub::{JSON, Stub, job, longshore, run};

const PROBLEM: &str = "application/problem+json";

#[test]
fn cancel_continues_after_a_job_that_cannot_be_cancelled() {
    let stub = Stub::new();
    stub.on(
        "POST /api/jobs/1/cancel",
        "409 Conflict",
        PROBLEM,
        r#"{"detail":"job 1 has succeeded","code":"already_finished"}"#,
    )
    .on("POST /api/jobs/2/cancel", "200 OK", JSON, &job(2, r#""state":"cancelled""#))
    .on(
        "POST /api/jobs/3/cancel",
        "202 Accepted",
        JSON,
        &job(3, r#""state":"running","stopping":"cancel""#),
    );
    let said = run(&mut stub.longshore(&["cancel", "1", "2", "3"]));
    assert_eq!(said.code, 5);
    assert_eq!(said.out, "job 2 is cancelled\njob 3 is being stopped\n");
    assert_eq!(said.err, "error: job 1 has succeeded [already_finished]\n");
}

#[test]
fn release_prints_the_effect_on_each_job() {
    let stub = Stub::new();
    let refusal = r#"{"detail":"the job is running","code":"nothing_to_release","hint":"cancel it"}"#;
    stub.on("POST /api/jobs/1/release", "200 OK", JSON, &job(1, r#""state":"queued""#))
        .on("POST /api/jobs/2/release", "409 Conflict", PROBLEM, refusal)
        .on("POST /api/jobs/3/release", "200 OK", JSON, &job(3, r#""state":"cancelled""#));
    let said = run(&mut stub.longshore(&["release", "1", "2", "3"]));
    assert_eq!((said.code, said.out.as_str()), (5, "job 1 goes on\njob 3 is cancelled\n"));
    assert_eq!(said.err, "error: job 2: the job is running [nothing_to_release]; cancel it\n");
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
    let refusal = |code: &str| format!(r#"{{"detail":"no","code":"{code}"}}"#);
    stub.on("POST /api/jobs/1/cancel", "404 Not Found", PROBLEM, &refusal("job_not_found")).on(
        "POST /api/jobs/2/cancel",
        "409 Conflict",
        PROBLEM,
        &refusal("already_finished"),
    );
    let told = run(&mut stub.longshore(&["cancel", "1", "2"]));
    let err = "error: job 1: no [job_not_found]\nerror: job 2: no [already_finished]\n";
    assert_eq!((told.code, told.out.as_str(), told.err.as_str()), (4, "", err));
}

#[test]
fn ctrl_c_prints_what_was_done_before() {
    // A server that answers the first request only.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = longshore(&["cancel", "1", "2", "3"]);
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
    let body = job(1, r#""state":"cancelled""#);
    let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    next().write_all(format!("{head}{body}").as_bytes()).unwrap();
    let silent = next();
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(silent);
    let told = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    let note = "longshore: interrupted: the outcome for job 2 is unknown; later jobs were not requested\n";
    assert_eq!(output.status.code(), Some(130), "{told:?}");
    assert_eq!(told, ["job 1 is cancelled\n", note]);
}

#[test]
fn cancel_batch_cancels_all_jobs_that_have_not_ended() {
    let stub = Stub::new();
    let list = "GET /api/jobs?state=scheduled%2Cqueued%2Cassigned%2Crunning%2Cquarantined&batch=5&limit=500";
    let waiting = [7, 6, 5].map(|id| job(id, r#""state":"queued""#)).join(",");
    stub.on(list, "200 OK", JSON, &format!("[{waiting}]"))
        .on("POST /api/jobs/7/cancel", "200 OK", JSON, &job(7, r#""state":"cancelled""#))
        .on("POST /api/jobs/6/cancel", "202 Accepted", JSON, &job(6, r#""state":"running""#))
        .on("POST /api/jobs/5/cancel", "409 Conflict", PROBLEM, r#"{"code":"already_finished"}"#);
    let told = run(&mut stub.longshore(&["cancel", "--batch", "5"]));
    let out = "batch 5: 1 job is cancelled, 1 job is being stopped\n";
    assert_eq!((told.code, told.out.as_str(), told.err.as_str()), (0, out, ""));
    assert_eq!(run(&mut stub.longshore(&["cancel", "7", "--batch", "5"])).code, 2);
}

#[test]
fn cancel_batch_distinguishes_an_ended_batch_from_an_unknown_one() {
    let stub = Stub::new();
    let unended = |id: u64| {
        format!(
            "GET /api/jobs?state=scheduled%2Cqueued%2Cassigned%2Crunning%2Cquarantined&batch={id}&limit=500"
        )
    };
    let ended = format!("[{}]", job(5, r#""state":"succeeded""#));
    stub.on(&unended(5), "200 OK", JSON, "[]").on("GET /api/jobs?batch=5&limit=1", "200 OK", JSON, &ended);
    stub.on(&unended(6), "200 OK", JSON, "[]").on("GET /api/jobs?batch=6&limit=1", "200 OK", JSON, "[]");
    let over = run(&mut stub.longshore(&["cancel", "--batch", "5"]));
    assert_eq!((over.code, over.out.as_str()), (0, "batch 5: all jobs have ended\n"), "{over:?}");
    let none = run(&mut stub.longshore(&["cancel", "--batch", "6"]));
    assert_eq!((none.code, none.out.as_str()), (4, ""), "{none:?}");
    assert!(none.err.starts_with("error: there is no batch 6; "), "{none:?}");
}

#[test]
fn retry_prints_a_list_for_several_jobs_and_an_object_for_one() {
    let stub = Stub::new();
    stub.on("POST /api/jobs/1/retry", "201 Created", JSON, &job(11, r#""state":"queued""#)).on(
        "POST /api/jobs/2/retry",
        "201 Created",
        JSON,
        &job(12, r#""state":"queued""#),
    );
    let told = run(&mut stub.longshore(&["retry", "1", "2"]));
    let out = "job 11 tries job 1 again; follow it with: longshore logs -f 11\n\
        job 12 tries job 2 again; follow it with: longshore logs -f 12\n";
    assert_eq!((told.code, told.out.as_str(), told.err.as_str()), (0, out, ""));
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&run(&mut stub.longshore(arguments)).out).unwrap()
    };
    assert_eq!(json(&["retry", "1", "-o", "json"])["id"], 11);
    assert_eq!(json(&["retry", "1", "2", "-o", "json"])[1]["id"], 12);
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
