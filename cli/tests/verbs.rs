//! The user's verbs against a server of prepared answers: what is asked, what is shown, how it ends.

mod stub;

use stub::{JSON, Said, Stub, job, longshore, said};

const PROBLEM: &str = "application/problem+json";

#[test]
fn run_follow_keeps_the_streams_apart_and_shows_every_attempt() {
    let stub = Stub::new();
    let ended = job(12, r#""state":"succeeded","outcome":"succeeded","exit_code":0,"attempt_count":2"#);
    let body = [
        attempt(1),
        output("1:4", "stdout", b"one\n"),
        output("1:9", "stderr", b"oops\n"),
        attempt(2),
        output("2:4", "stdout", b"two\n"),
        END.to_owned(),
    ];
    stub.on("POST /api/jobs/resize", "201 Created", JSON, &job(12, r#""state":"queued""#))
        .on(FOLLOW, "200 OK", EVENTS, &body.concat())
        .on("GET /api/jobs/12?wait=60s", "200 OK", JSON, &ended);
    let said = said(&mut stub.longshore(&["run", "resize", "-f"]));
    assert_eq!(
        said,
        Said {
            code: 0,
            out: "one\ntwo\n".to_owned(),
            err:
                "longshore: job 12 is queued\noops\nlongshore: attempt 2 on w1\nlongshore: job 12 succeeded\n"
                    .to_owned(),
        }
    );
    let last = "last-event-id: 1:0".to_owned();
    assert!(stub.asked()[1].head.contains(&last), "it begins before the first attempt is made");
}

#[test]
fn a_broken_connection_is_followed_from_the_place_where_it_broke() {
    let stub = Stub::new();
    let gap = "event: gap\ndata: {\"stream\":\"stdout\",\"offset\":4,\"missing_bytes\":6}\nid: 1:10\n\n";
    let broken = [&attempt(1), &output("1:4", "stdout", b"0123"), gap, &output("1:12", "stdout", b"x")[..20]];
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n";
    let leaving = [&attempt(1), &output("1:12", "stdout", b"45"), "event: leaving\ndata: {}\n\n"].concat();
    let rest = [&attempt(1), ":\n\n", &output("1:13", "stdout", b"6"), END].concat();
    stub.on_raw(FOLLOW_TAIL, format!("{head}{}", broken.concat()).as_bytes())
        .on(FOLLOW, "200 OK", EVENTS, &leaving)
        .on(FOLLOW, "200 OK", EVENTS, &rest);
    let said = said(&mut stub.longshore(&["logs", "-f", "12", "--tail", "9"]));
    assert_eq!((said.code, said.out.as_str()), (0, "0123456"), "{said:?}");
    assert!(said.err.contains("longshore: 6 bytes of stdout are missing\n"), "{said:?}");
    assert!(!said.err.contains("attempt"), "it is still the same: {said:?}");
    let resumed: Vec<_> =
        stub.asked().iter().map(|asked| header(&asked.head, "last-event-id").map(str::to_owned)).collect();
    assert_eq!(resumed, [None, Some("1:10".to_owned()), Some("1:12".to_owned())]);
}

#[test]
fn logs_are_passed_on_byte_for_byte() {
    let stub = Stub::new();
    stub.on(
        "GET /api/jobs/12/logs?encoding=base64&attempt=2&stream=stdout&tail=3",
        "200 OK",
        EVENTS,
        &output("2:4", "stdout", b"\x00\xff\x1b\n"),
    );
    let mut command = stub.longshore(&["logs", "12", "--attempt", "2", "--stream", "stdout", "--tail", "3"]);
    let output = command.output().unwrap();
    assert_eq!(output.stdout, b"\x00\xff\x1b\n");
}

#[test]
fn as_json_a_character_is_whole_wherever_the_output_was_cut() {
    let stub = Stub::new();
    let gap = "event: gap\ndata: {\"stream\":\"stdout\",\"offset\":5,\"missing_bytes\":6}\nid: 1:11\n\n";
    let body = [
        &attempt(1),
        &output("1:1", "stdout", b"\xe2"),
        &output("1:2", "stderr", b"x"),
        &output("1:5", "stdout", b"\x82\xac\xe2"),
        gap,
        &output("1:13", "stdout", b"\xe2\x82"),
        &attempt(2),
        &output("2:2", "stdout", b"\xacy"),
        &output("2:3", "stderr", b"\xf0"),
        END,
    ];
    stub.on("GET /api/jobs/12/logs?encoding=base64", "200 OK", EVENTS, &body.concat());
    let said = said(&mut stub.longshore(&["logs", "12", "-o", "json"]));
    let lines: Vec<serde_json::Value> =
        said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let text = |stream: &str, text: &str| serde_json::json!({"stream": stream, "text": text});
    let expected = [
        text("stderr", "x"),
        text("stdout", "€"),
        text("stdout", "\u{fffd}"),
        serde_json::json!({"stream": "stdout", "missing_bytes": 6}),
        text("stdout", "\u{fffd}"),
        text("stdout", "\u{fffd}y"),
        text("stderr", "\u{fffd}"),
    ];
    assert_eq!(lines, expected, "{said:?}");
}

#[test]
fn as_json_half_a_character_waits_for_its_rest_over_a_broken_connection() {
    let stub = Stub::new();
    let leaving = [&attempt(1), &output("1:1", "stdout", b"\xe2"), "event: leaving\ndata: {}\n\n"].concat();
    let rest = [&attempt(1), &output("1:3", "stdout", b"\x82\xac"), END].concat();
    stub.on(FOLLOW, "200 OK", EVENTS, &leaving).on(FOLLOW, "200 OK", EVENTS, &rest);
    let said = said(&mut stub.longshore(&["logs", "-f", "12", "-o", "json"]));
    assert_eq!((said.code, said.out.as_str()), (0, "{\"stream\":\"stdout\",\"text\":\"€\"}\n"), "{said:?}");
}

#[test]
fn output_that_has_not_arrived_is_told_beside_what_is_here() {
    let stub = Stub::new();
    let late = "event: late\ndata: {\"late_bytes\":512}\n\n";
    let body = [&attempt(1), &output("1:4", "stdout", b"one\n"), late, END].concat();
    stub.on("GET /api/jobs/12/logs?encoding=base64", "200 OK", EVENTS, &body);
    let told = said(&mut stub.longshore(&["logs", "12"]));
    assert_eq!((told.code, told.out.as_str()), (0, "one\n"), "{told:?}");
    assert_eq!(told.err, "longshore: 512 bytes of output have not arrived yet\n");
    let json = said(&mut stub.longshore(&["logs", "12", "-o", "json"]));
    assert!(json.out.ends_with("{\"late_bytes\":512}\n"), "{json:?}");
}

fn header<'h>(head: &'h [String], name: &str) -> Option<&'h str> {
    head.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn attempt(number: u32) -> String {
    format!("event: attempt\ndata: {{\"attempt\":{number},\"worker\":\"w1\"}}\n\n")
}

fn output(id: &str, stream: &str, bytes: &[u8]) -> String {
    let base64 = data_encoding::BASE64.encode(bytes);
    format!("event: output\ndata: {{\"stream\":\"{stream}\",\"base64\":\"{base64}\"}}\nid: {id}\n\n")
}

const EVENTS: &str = "text/event-stream";
const END: &str = "event: end\ndata: {\"job\":12}\n\n";
const FOLLOW: &str = "GET /api/jobs/12/logs?encoding=base64&follow=1";
const FOLLOW_TAIL: &str = "GET /api/jobs/12/logs?encoding=base64&follow=1&tail=9";

#[test]
fn a_refusal_is_one_line_with_the_next_step_and_a_code_for_scripts() {
    let problem = |status: u16, code: &str, hint: &str| {
        format!(r#"{{"status":{status},"title":"t","code":"{code}","detail":"it is so","hint":"{hint}"}}"#)
    };
    for (status, code, exit) in [
        ("404 Not Found", "unknown_job", 4),
        ("401 Unauthorized", "invalid_token", 3),
        ("409 Conflict", "already_finished", 5),
        ("422 Unprocessable Content", "invalid_param", 2),
        ("503 Service Unavailable", "busy", 6),
        ("500 Internal Server Error", "internal", 1),
    ] {
        let stub = Stub::new();
        stub.on("POST /api/jobs/7/retry", status, PROBLEM, &problem(400, code, "do that"));
        let said = said(&mut stub.longshore(&["retry", "7"]));
        let hint = match exit {
            3 => "give the API's token with --token-file or LONGSHORE_API_TOKEN_FILE",
            _ => "do that",
        };
        let err = format!("error: it is so [{code}]; {hint}\n");
        assert_eq!(said, Said { code: exit, out: String::new(), err });
    }
}

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
    assert_eq!(said.err, "error: job 1: job 1 has succeeded [already_finished]\n");
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
fn a_worker_may_be_named() {
    let worker =
        r#"{"id":3,"name":"anna","state":"ready","slots":4,"busy":1,"since":"2026-03-01T09:30:00.000Z"}"#;
    let stub = Stub::new();
    stub.on("GET /api/workers?all=1", "200 OK", JSON, &format!("[{worker}]")).on(
        "POST /api/workers/3/cordon",
        "200 OK",
        JSON,
        worker,
    );
    let cordon = said(&mut stub.longshore(&["cordon", "anna"]));
    assert_eq!((cordon.code, cordon.out.as_str()), (0, "worker anna takes nothing new\n"));
    stub.on("POST /api/workers/3/drain?deadline=1h30m", "200 OK", JSON, worker);
    let drain = said(&mut stub.longshore(&["drain", "anna", "--deadline", "1h30m"]));
    assert_eq!((drain.code, drain.out.as_str()), (0, "worker anna finishes what it has, and leaves\n"));
    stub.on("POST /api/workers/3/stop-unmanaged?job=12&fence=30", "200 OK", JSON, worker);
    let stop = said(&mut stub.longshore(&["stop-unmanaged", "3", "12#30"]));
    assert_eq!((stop.code, stop.out.as_str()), (0, "worker 3 stops what this server never gave\n"));
    assert_eq!(said(&mut stub.longshore(&["stop-unmanaged", "3", "12"])).code, 2);
    stub.on("POST /api/workers/3/forget", "204 No Content", JSON, "");
    let forget = said(&mut stub.longshore(&["forget", "3"]));
    assert_eq!((forget.code, forget.out.as_str()), (0, "worker 3 is forgotten\n"));
    assert_eq!(said(&mut stub.longshore(&["forget", "3", "-o", "json"])).out, "");
    let unknown = said(&mut stub.longshore(&["drain", "bert"]));
    assert_eq!(unknown.code, 4);
    assert_eq!(unknown.err, "error: no worker is called \"bert\"; 'longshore workers --all' lists them\n");
}

#[test]
fn an_absent_server_is_told_apart_from_one_that_is_not_ready() {
    let absent = said(&mut longshore(&["health"]));
    assert_eq!(absent.code, 6);
    assert!(
        absent.err.contains("no answer from http://127.0.0.1:1/") && absent.err.contains("longshore dev"),
        "{absent:?}"
    );
    let stub = Stub::new();
    stub.on(
        "GET /readyz",
        "503 Service Unavailable",
        PROBLEM,
        r#"{"detail":"the server starts","code":"not_ready"}"#,
    );
    let starting = said(&mut stub.longshore(&["health"]));
    assert_eq!(
        (starting.code, starting.err.as_str()),
        (6, "error: the server starts [not_ready]; try again later\n")
    );
}

#[test]
fn something_else_that_answers_is_named_as_such() {
    let stub = Stub::new();
    stub.on("GET /api/workers", "200 OK", "text/html", "<html>");
    let said = said(&mut stub.longshore(&["workers"]));
    assert_eq!(said.code, 1);
    assert!(said.err.contains("does not speak like a Longshore server"), "{said:?}");
}

#[test]
fn json_is_what_the_server_said() {
    let stub = Stub::new();
    stub.on("GET /api/jobs/7", "200 OK", JSON, r#"{"id":7,"unheard_of":[1]}"#);
    let said = said(&mut stub.longshore(&["show", "7", "-o", "json"]));
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&said.out).unwrap(),
        serde_json::json!({"id": 7, "unheard_of": [1]})
    );
}

#[test]
fn a_token_that_others_may_read_is_refused_and_one_that_is_fine_is_sent() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "s3cret\n").unwrap();
    let allow = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    let stub = Stub::new();
    stub.on("GET /readyz", "200 OK", "text/plain", "ready");
    let mut command = stub.longshore(&["health", "--token-file", file.to_str().unwrap()]);
    allow(0o644);
    let refused = said(&mut command);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("chmod 600") && !refused.err.contains("s3cret"), "{refused:?}");
    allow(0o600);
    assert_eq!(said(&mut command).code, 0);
    assert!(stub.asked()[0].head.contains(&"authorization: Bearer s3cret".to_owned()));
}

#[test]
fn a_reader_that_has_read_enough_is_no_error() {
    let stub = Stub::new();
    stub.on("GET /api/workers", "200 OK", JSON, "[]");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let said = said(stub.longshore(&["workers", "-o", "json"]).stdout(writer));
    assert_eq!((said.code, said.err.as_str()), (0, ""));
}

#[test]
fn show_tells_every_attempt_and_what_is_waited_for() {
    let stub = Stub::new();
    let story = r#""state":"running","attempt_count":2,"worker":{"id":2,"name":"w2"},
        "pending_reason":{"code":"worker_unreachable","text":"its worker has been unreachable since noon"},
        "attempts":[
          {"number":1,"worker":{"id":1,"name":"w1"},"outcome":"timed_out","exit_code":143,"ran_ms":2000,"container":"pid 7","message":"stopped"},
          {"number":2,"worker":{"id":2,"name":"w2"},"container":"pid 8"}],
        "timeline":[{"at":"2026-01-02T03:04:05.000Z","event":"late_report","attempt":1,"worker":{"id":1,"name":"w1"},"text":"it said \"failed\""}]"#;
    stub.on("GET /api/jobs/7", "200 OK", JSON, &job(7, story));
    let said = said(&mut stub.longshore(&["show", "7"]));
    let line = |words: &[&str]| {
        let is_meant = |line: &&str| line.split_whitespace().collect::<Vec<_>>().join(" ") == words.join(" ");
        assert!(said.out.lines().any(|it| is_meant(&it)), "{words:?} in {}", said.out);
    };
    line(&["state", "running"]);
    line(&["why", "its worker has been unreachable since noon"]);
    line(&["1", "w1", "timed out", "143", "2.0s", "pid 7", "stopped"]);
    line(&["2", "w2", "running", "pid 8"]);
    line(&["2026-01-02T03:04:05.000Z", "late report", "1", "w1", "it said \"failed\""]);
}

#[test]
fn show_tells_how_a_job_ended_and_why_once() {
    let stub = Stub::new();
    for (outcome, code, reason) in
        [("oom_killed", 137, "killed for its memory limit"), ("failed", 3, "exit code 3")]
    {
        let end = format!(r#""state":"failed","outcome":"{outcome}","exit_code":{code},"reason":"{reason}""#);
        stub.on("GET /api/jobs/7", "200 OK", JSON, &job(7, &end));
    }
    let shown = said(&mut stub.longshore(&["show", "7"])).out;
    let state = "state        failed, oom killed: killed for its memory limit (exit code 137)\n";
    assert!(shown.contains(state) && !shown.contains("why "), "{shown}");
    let shown = said(&mut stub.longshore(&["show", "7"])).out;
    assert!(shown.contains("state        failed, exit 3\nwhy          exit code 3\n"), "{shown}");
}

#[test]
fn show_tells_that_a_cancel_came_too_late() {
    let stub = Stub::new();
    stub.on("GET /api/jobs/7", "200 OK", JSON, &job(7, r#""state":"succeeded","cancel":"too_late""#));
    let said = said(&mut stub.longshore(&["show", "7"]));
    assert!(said.out.contains("cancel       too late: what ended it had come first\n"), "{said:?}");
}

#[test]
fn show_tells_what_has_been_removed_since() {
    let stub = Stub::new();
    let story = r#""state":"queued","retry_of":3,"retry_of_removed":true,"late_reports_left_out":64"#;
    stub.on("GET /api/jobs/7", "200 OK", JSON, &job(7, story));
    let said = said(&mut stub.longshore(&["show", "7"]));
    assert!(said.out.contains("retry of     3, removed since\n"), "{said:?}");
    assert!(said.out.ends_with("and 64 more late reports\n"), "{said:?}");
}
