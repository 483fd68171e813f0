//! What is done to jobs, by a server of prepared answers: one after the other, each told of when it is done.

mod stub;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use stub::{JSON, Stub, job, longshore, said};

const PROBLEM: &str = "application/problem+json";

#[test]
fn cancel_goes_on_after_a_job_that_cannot_be_cancelled() {
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
    let said = said(&mut stub.longshore(&["cancel", "1", "2", "3"]));
    assert_eq!(said.code, 5);
    assert_eq!(said.out, "job 2 is cancelled\njob 3 is being stopped\n");
    assert_eq!(said.err, "error: job 1 has succeeded [already_finished]\n");
}

#[test]
fn release_says_what_becomes_of_each_job() {
    let stub = Stub::new();
    let refusal = r#"{"detail":"the job is running","code":"nothing_to_release","hint":"cancel it"}"#;
    stub.on("POST /api/jobs/1/release", "200 OK", JSON, &job(1, r#""state":"queued""#))
        .on("POST /api/jobs/2/release", "409 Conflict", PROBLEM, refusal)
        .on("POST /api/jobs/3/release", "200 OK", JSON, &job(3, r#""state":"cancelled""#));
    let said = said(&mut stub.longshore(&["release", "1", "2", "3"]));
    assert_eq!((said.code, said.out.as_str()), (5, "job 1 goes on\njob 3 is cancelled\n"));
    assert_eq!(said.err, "error: job 2: the job is running [nothing_to_release]; cancel it\n");
}

#[test]
fn the_first_refusal_says_how_it_ends_and_all_are_told_in_order() {
    let stub = Stub::new();
    let refusal = |code: &str| format!(r#"{{"detail":"no","code":"{code}"}}"#);
    stub.on("POST /api/jobs/1/cancel", "404 Not Found", PROBLEM, &refusal("job_not_found")).on(
        "POST /api/jobs/2/cancel",
        "409 Conflict",
        PROBLEM,
        &refusal("already_finished"),
    );
    let told = said(&mut stub.longshore(&["cancel", "1", "2"]));
    let err = "error: job 1: no [job_not_found]\nerror: job 2: no [already_finished]\n";
    assert_eq!((told.code, told.out.as_str(), told.err.as_str()), (4, "", err));
}

#[test]
fn after_ctrl_c_it_is_known_what_was_done() {
    // A server that answers once, and then never again.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = longshore(&["cancel", "1", "2", "3"]);
    command.env("LONGSHORE_SERVER", format!("http://{}", server.local_addr().unwrap()));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let next = || {
        let (connection, _) = server.accept().unwrap();
        let mut reader = BufReader::new(connection);
        // The whole head: by then it listens for signals.
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
    let note = "longshore: broken off: nobody knows of job 2, and those behind it were not asked for\n";
    assert_eq!(output.status.code(), Some(130), "{told:?}");
    assert_eq!(told, ["job 1 is cancelled\n", note]);
}

#[test]
fn of_a_batch_all_are_cancelled_that_have_not_ended() {
    let stub = Stub::new();
    let list = "GET /api/jobs?state=scheduled%2Cqueued%2Cassigned%2Crunning%2Cquarantined&batch=5&limit=500";
    let waiting = [7, 6, 5].map(|id| job(id, r#""state":"queued""#)).join(",");
    stub.on(list, "200 OK", JSON, &format!("[{waiting}]"))
        .on("POST /api/jobs/7/cancel", "200 OK", JSON, &job(7, r#""state":"cancelled""#))
        .on("POST /api/jobs/6/cancel", "202 Accepted", JSON, &job(6, r#""state":"running""#))
        .on("POST /api/jobs/5/cancel", "409 Conflict", PROBLEM, r#"{"code":"already_finished"}"#);
    let told = said(&mut stub.longshore(&["cancel", "--batch", "5"]));
    let out = "batch 5: 1 job is cancelled, 1 job is being stopped\n";
    assert_eq!((told.code, told.out.as_str(), told.err.as_str()), (0, out, ""));
    assert_eq!(said(&mut stub.longshore(&["cancel", "7", "--batch", "5"])).code, 2);
}

#[test]
fn a_batch_that_has_ended_is_told_from_one_that_there_is_not() {
    let stub = Stub::new();
    let unended = |id: u64| {
        format!(
            "GET /api/jobs?state=scheduled%2Cqueued%2Cassigned%2Crunning%2Cquarantined&batch={id}&limit=500"
        )
    };
    let ended = format!("[{}]", job(5, r#""state":"succeeded""#));
    stub.on(&unended(5), "200 OK", JSON, "[]").on("GET /api/jobs?batch=5&limit=1", "200 OK", JSON, &ended);
    stub.on(&unended(6), "200 OK", JSON, "[]").on("GET /api/jobs?batch=6&limit=1", "200 OK", JSON, "[]");
    let over = said(&mut stub.longshore(&["cancel", "--batch", "5"]));
    assert_eq!((over.code, over.out.as_str()), (0, "batch 5: no job that has not ended\n"), "{over:?}");
    let none = said(&mut stub.longshore(&["cancel", "--batch", "6"]));
    assert_eq!((none.code, none.out.as_str()), (4, ""), "{none:?}");
    assert!(none.err.starts_with("error: there is no batch 6; "), "{none:?}");
}

#[test]
fn several_jobs_are_tried_again_and_one_alone_is_no_list() {
    let stub = Stub::new();
    stub.on("POST /api/jobs/1/retry", "201 Created", JSON, &job(11, r#""state":"queued""#)).on(
        "POST /api/jobs/2/retry",
        "201 Created",
        JSON,
        &job(12, r#""state":"queued""#),
    );
    let told = said(&mut stub.longshore(&["retry", "1", "2"]));
    let out = "job 11 tries job 1 again; follow it with: longshore logs -f 11\n\
        job 12 tries job 2 again; follow it with: longshore logs -f 12\n";
    assert_eq!((told.code, told.out.as_str(), told.err.as_str()), (0, out, ""));
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&said(&mut stub.longshore(arguments)).out).unwrap()
    };
    assert_eq!(json(&["retry", "1", "-o", "json"])["id"], 11);
    assert_eq!(json(&["retry", "1", "2", "-o", "json"])[1]["id"], 12);
    let one_key = said(&mut stub.longshore(&["retry", "1", "2", "--key", "k"]));
    assert!(one_key.code == 2 && one_key.err.contains("--key"), "{one_key:?}");
}

#[test]
fn a_key_that_has_made_its_job_before_is_told() {
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
        let told = said(&mut stub.longshore(&arguments));
        let note = "longshore: this key made job 12 before; there is no second one\n";
        assert_eq!((told.code, told.err.as_str()), (0, note), "{told:?}");
    }
}
