//! Verbs that read jobs and output, against a stub server.

use crate::stub::{CliOutput, JSON, Stub, job, longshore, run};

const PROBLEM: &str = "application/problem+json";

#[test]
fn run_follow_separates_streams_and_prints_every_attempt() {
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
    let said = run(&mut stub.longshore(&["run", "resize", "-f"]));
    assert_eq!(
        said,
        CliOutput {
            code: 0,
            out: "one\ntwo\n".to_owned(),
            err:
                "longshore: job 12 is queued\noops\nlongshore: attempt 2 on w1\nlongshore: job 12 succeeded\n"
                    .to_owned(),
        }
    );
    let mut command = stub.longshore(&["run", "resize", "-f"]);
    let by_variable = run(command.env("LONGSHORE_OUTPUT", "json"));
    assert_eq!((by_variable.code, by_variable.out.as_str()), (0, "one\ntwo\n"), "{by_variable:?}");
    let by_flag = run(&mut stub.longshore(&["run", "resize", "-f", "-o", "json"]));
    assert!(by_flag.code == 2 && by_flag.err.contains("not JSON"), "{by_flag:?}");
    let last = "last-event-id: 1:0".to_owned();
    let of_output = stub.requests().into_iter().find(|it| it.line.contains("/logs")).unwrap();
    assert!(of_output.head.contains(&last), "it begins before the first attempt is made");
}

#[test]
fn follow_continues_after_the_last_event_of_a_broken_connection() {
    let stub = Stub::new();
    let gap = "event: gap\ndata: {\"stream\":\"stdout\",\"offset\":4,\"missing_bytes\":6}\nid: 1:10\n\n";
    let broken = [&attempt(1), &output("1:4", "stdout", b"0123"), gap, &output("1:12", "stdout", b"x")[..20]];
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n";
    let leaving = [&attempt(1), &output("1:12", "stdout", b"45"), "event: leaving\ndata: {}\n\n"].concat();
    let rest = [&attempt(1), ":\n\n", &output("1:13", "stdout", b"6"), END].concat();
    stub.on_raw(FOLLOW_TAIL, format!("{head}{}", broken.concat()).as_bytes())
        .on(FOLLOW, "200 OK", EVENTS, &leaving)
        .on(FOLLOW, "200 OK", EVENTS, &rest);
    let said = run(&mut stub.longshore(&["logs", "-f", "12", "--tail", "9"]));
    assert_eq!((said.code, said.out.as_str()), (0, "0123\n456"), "{said:?}");
    assert!(said.err.contains("longshore: 6 bytes of stdout are missing\n"), "{said:?}");
    assert!(!said.err.contains("attempt"), "it is still the same: {said:?}");
    let requests = stub.requests();
    let of_output = requests.iter().filter(|asked| asked.line.contains("/logs"));
    let resumed: Vec<_> =
        of_output.map(|asked| header(&asked.head, "last-event-id").map(str::to_owned)).collect();
    assert_eq!(resumed, [None, Some("1:10".to_owned()), Some("1:12".to_owned())]);
}

/// The note about reconnecting appears once for several failures in a row. A connection without new events does not reset the count.
#[test]
fn connection_without_new_events_counts_as_failed() {
    let stub = Stub::new();
    let placed = attempt(1).replace("\n\n", "\nid: 1:0\n\n");
    let broken = [&placed, "event: error\ndata: {}\n\n"].concat();
    let rest = [&placed, &output("1:4", "stdout", b"last"), END].concat();
    for events in [&broken, &broken, &broken, &rest] {
        stub.on(FOLLOW, "200 OK", EVENTS, events);
    }
    let said = run(&mut stub.longshore(&["logs", "-f", "12"]));
    assert_eq!((said.code, said.out.as_str()), (0, "last"), "{said:?}");
    assert_eq!(said.err.matches("reconnecting").count(), 1, "{said:?}");
}

#[test]
fn follow_prints_how_the_job_ended() {
    let follow_second = "GET /api/jobs/12/logs?encoding=base64&follow=1&attempt=2";
    for (line, arguments, data, told) in [
        (
            FOLLOW,
            &["logs", "-f", "12"][..],
            r#"{"job":12,"state":"failed","text":"longshore: job 12 failed, exit 3"}"#,
            "longshore: job 12 failed, exit 3\n",
        ),
        (
            follow_second,
            &["logs", "-f", "12", "--attempt", "2"],
            r#"{"attempt":2,"outcome":"timed_out","exit_code":143}"#,
            "longshore: attempt 2 of job 12 timed out, exit 143\n",
        ),
        (
            "GET /api/jobs/12/logs?encoding=base64",
            &["logs", "12"],
            r#"{"job":12,"text":"longshore: job 12 failed, exit 3"}"#,
            "",
        ),
    ] {
        let stub = Stub::new();
        let end = format!("event: end\ndata: {data}\n\n");
        stub.on(line, "200 OK", EVENTS, &[output("1:4", "stdout", b"one\n"), end].concat());
        let said = run(&mut stub.longshore(arguments));
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (0, "one\n", told));
    }
}

#[test]
fn logs_are_printed_byte_for_byte() {
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
fn json_output_never_splits_a_character() {
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
    let said = run(&mut stub.longshore(&["logs", "12", "-o", "json"]));
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
fn json_output_joins_a_character_over_a_broken_connection() {
    let stub = Stub::new();
    let leaving = [&attempt(1), &output("1:1", "stdout", b"\xe2"), "event: leaving\ndata: {}\n\n"].concat();
    let rest = [&attempt(1), &output("1:3", "stdout", b"\x82\xac"), END].concat();
    stub.on(FOLLOW, "200 OK", EVENTS, &leaving).on(FOLLOW, "200 OK", EVENTS, &rest);
    let said = run(&mut stub.longshore(&["logs", "-f", "12", "-o", "json"]));
    assert_eq!((said.code, said.out.as_str()), (0, "{\"stream\":\"stdout\",\"text\":\"€\"}\n"), "{said:?}");
}

#[test]
fn missing_late_output_is_noted() {
    let stub = Stub::new();
    let late = "event: late\ndata: {\"late_bytes\":512}\n\n";
    let body = [&attempt(1), &output("1:4", "stdout", b"one\n"), late, END].concat();
    stub.on("GET /api/jobs/12/logs?encoding=base64", "200 OK", EVENTS, &body);
    let told = run(&mut stub.longshore(&["logs", "12"]));
    assert_eq!((told.code, told.out.as_str()), (0, "one\n"), "{told:?}");
    assert_eq!(told.err, "longshore: 512 bytes of output have not arrived yet\n");
    let json = run(&mut stub.longshore(&["logs", "12", "-o", "json"]));
    assert!(json.out.ends_with("{\"late_bytes\":512}\n"), "{json:?}");
}

#[test]
fn gap_of_unknown_size_is_noted() {
    let stub = Stub::new();
    let gap = "event: gap\ndata: {\"stream\":\"stdout\",\"offset\":0,\"missing_bytes\":null}\nid: 1:1\n\n";
    stub.on("GET /api/jobs/12/logs?encoding=base64", "200 OK", EVENTS, &[&attempt(1), gap, END].concat());
    let told = run(&mut stub.longshore(&["logs", "12"]));
    assert_eq!((told.code, told.err.as_str()), (0, "longshore: some of stdout is missing\n"), "{told:?}");
    let json = run(&mut stub.longshore(&["logs", "12", "-o", "json"]));
    let line: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(line, serde_json::json!({"stream": "stdout", "missing_bytes": null}));
}

#[test]
fn replayed_output_is_noted_once_per_stream() {
    let again = |id: &str, bytes: &[u8]| {
        output(id, "stdout", bytes).replace("\"base64\"", "\"replayed\":true,\"base64\"")
    };
    let leaving = [&attempt(1), &again("1:4", b"two\n"), "event: leaving\ndata: {}\n\n"].concat();
    let rest = [&attempt(1), &again("1:5", b"x"), &attempt(2), &again("2:1", b"y"), END].concat();
    let label = "longshore: the following part of stdout was read from the engine's log\n";
    for (shape, out, labels) in [("table", "two\nx\ny", 2), ("json", "\"replayed\":true", 0)] {
        let stub = Stub::new();
        stub.on(FOLLOW, "200 OK", EVENTS, &leaving).on(FOLLOW, "200 OK", EVENTS, &rest);
        let said = run(&mut stub.longshore(&["logs", "-f", "12", "-o", shape]));
        assert!(said.code == 0 && said.out.contains(out), "{said:?}");
        assert_eq!(said.err.matches(label).count(), labels, "{said:?}");
    }
}

#[test]
fn timestamps_stand_in_front_of_each_line_of_both_streams() {
    let at = |second: u32, event: String| {
        event
            .replace("\"base64\"", &format!("\"received_at\":\"2026-03-01T09:30:0{second}.000Z\",\"base64\""))
    };
    let first = [at(1, output("1:6", "stdout", b"one\ntw")), at(2, output("1:11", "stderr", b"oops\n"))];
    let leaving = [&attempt(1), &first.concat(), "event: leaving\ndata: {}\n\n"].concat();
    let rest = [&attempt(1), &at(3, output("1:13", "stdout", b"o\n")), &output("1:15", "stdout", b"x"), END];
    let follow = format!("{FOLLOW}&timestamps=1");
    let stub = Stub::new();
    stub.on(&follow, "200 OK", EVENTS, &leaving).on(&follow, "200 OK", EVENTS, &rest.concat());
    let said = run(&mut stub.longshore(&["logs", "-f", "-t", "12"]));
    assert_eq!(said.out, "2026-03-01T09:30:01.000Z one\n2026-03-01T09:30:01.000Z two\n- x", "{said:?}");
    assert!(said.err.contains("2026-03-01T09:30:02.000Z oops\n"), "{said:?}");
    let stub = Stub::new();
    stub.on(&follow, "200 OK", EVENTS, &rest.concat());
    let said = run(&mut stub.longshore(&["logs", "-f", "--timestamps", "12", "-o", "json"]));
    let line = r#"{"received_at":"2026-03-01T09:30:03.000Z","stream":"stdout","text":"o\n"}"#;
    assert_eq!(said.out, format!("{line}\n{}\n", r#"{"stream":"stdout","text":"x"}"#), "{said:?}");
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
fn health_distinguishes_an_absent_server_from_one_that_is_not_ready() {
    let absent = run(&mut longshore(&["health"]));
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
    let starting = run(&mut stub.longshore(&["health"]));
    assert_eq!(
        (starting.code, starting.err.as_str()),
        (6, "error: the server starts [not_ready]; try again later\n")
    );
    let elsewhere = run(&mut Stub::new().longshore(&["health", "--live"]));
    assert_eq!(elsewhere.code, 6, "whatever answers there, it is not up: {elsewhere:?}");
}

#[test]
fn response_of_another_service_is_an_error() {
    let stub = Stub::new();
    stub.on("GET /api/workers", "200 OK", "text/html", "<html>");
    let said = run(&mut stub.longshore(&["workers"]));
    assert_eq!(said.code, 1);
    assert!(said.err.contains("is not from a Longshore server"), "{said:?}");
}

#[test]
fn json_output_is_the_response_of_the_server() {
    let stub = Stub::new();
    stub.on("GET /api/jobs/7", "200 OK", JSON, r#"{"id":7,"unheard_of":[1]}"#);
    let said = run(&mut stub.longshore(&["show", "7", "-o", "json"]));
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&said.out).unwrap(),
        serde_json::json!({"id": 7, "unheard_of": [1]})
    );
}

#[test]
fn token_file_readable_by_others_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "s3cret\n").unwrap();
    let allow = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    let stub = Stub::new();
    stub.on("GET /readyz", "200 OK", "text/plain", "ready");
    let mut command = stub.longshore(&["health", "--token-file", file.to_str().unwrap()]);
    allow(0o646);
    let refused = run(&mut command);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("chmod 600") && !refused.err.contains("s3cret"), "{refused:?}");
    allow(0o600);
    assert_eq!(run(&mut command).code, 0);
    assert!(stub.requests()[0].head.contains(&"authorization: Bearer s3cret".to_owned()));

    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, b"p1ped\n").unwrap();
    drop(writer);
    assert_eq!(run(stub.longshore(&["health", "--token-file", "/dev/stdin"]).stdin(reader)).code, 0);
    assert!(stub.requests()[1].head.contains(&"authorization: Bearer p1ped".to_owned()));
}

#[test]
fn closed_standard_output_is_no_error() {
    let stub = Stub::new();
    stub.on("GET /api/workers", "200 OK", JSON, "[]");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let said = run(stub.longshore(&["workers", "-o", "json"]).stdout(writer));
    assert_eq!((said.code, said.err.as_str()), (0, ""));
}

#[test]
fn show_prints_attempts_and_the_pending_reason() {
    let stub = Stub::new();
    let story = r#""state":"running","attempt_count":2,"worker":{"id":2,"name":"w2"},
        "pending_reason":{"code":"worker_unreachable","text":"its worker has been unreachable since noon"},
        "attempts":[
          {"number":1,"worker":{"id":1,"name":"w1"},"outcome":"timed_out","exit_code":143,"ran_ms":2000,"container":"pid 7","message":"stopped"},
          {"number":2,"worker":{"id":2,"name":"w2"},"container":"pid 8"}],
        "timeline":[{"at":"2026-01-02T03:04:05.000Z","event":"late_report","attempt":1,"worker":{"id":1,"name":"w1"},"text":"it said \"failed\""}]"#;
    stub.on("GET /api/jobs/7", "200 OK", JSON, &job(7, story));
    let said = run(&mut stub.longshore(&["show", "7"]));
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
fn show_prints_the_reason_of_the_end_once() {
    let stub = Stub::new();
    for (outcome, code, reason) in
        [("oom_killed", 137, "killed for its memory limit"), ("failed", 3, "exit code 3")]
    {
        let end = format!(r#""state":"failed","outcome":"{outcome}","exit_code":{code},"reason":"{reason}""#);
        stub.on("GET /api/jobs/7", "200 OK", JSON, &job(7, &end));
    }
    let shown = run(&mut stub.longshore(&["show", "7"])).out;
    let state = "state        failed, oom killed: killed for its memory limit (exit code 137)\n";
    assert!(shown.contains(state) && !shown.contains("why "), "{shown}");
    let shown = run(&mut stub.longshore(&["show", "7"])).out;
    assert!(shown.contains("state        failed, exit 3\nwhy          exit code 3\n"), "{shown}");
}

#[test]
fn show_prints_timeout_and_arguments_of_the_job() {
    let stub = Stub::new();
    let own = r#""state":"queued","timeout":90000,"args":["a b","--x"]"#;
    stub.on("GET /api/jobs/7", "200 OK", JSON, &job(7, own)).on(
        "GET /api/jobs/7",
        "200 OK",
        JSON,
        &job(7, r#""state":"queued","timeout":"none""#),
    );
    let shown = run(&mut stub.longshore(&["show", "7"])).out;
    assert!(shown.contains("timeout      1m30s\nargs         'a b' --x\n"), "{shown}");
    let shown = run(&mut stub.longshore(&["show", "7"])).out;
    assert!(shown.contains("timeout      none\n"), "{shown}");
}

#[test]
fn show_prints_that_a_cancel_came_too_late() {
    let stub = Stub::new();
    stub.on("GET /api/jobs/7", "200 OK", JSON, &job(7, r#""state":"succeeded","cancel":"too_late""#));
    let said = run(&mut stub.longshore(&["show", "7"]));
    assert!(said.out.contains("cancel       too late: the job had ended before\n"), "{said:?}");
}

#[test]
fn show_notes_a_removed_original_job() {
    let stub = Stub::new();
    let story = r#""state":"queued","retry_of":3,"retry_of_removed":true,"late_reports_left_out":64"#;
    stub.on("GET /api/jobs/7", "200 OK", JSON, &job(7, story));
    let said = run(&mut stub.longshore(&["show", "7"]));
    assert!(said.out.contains("retry of     3, removed since\n"), "{said:?}");
    assert!(said.out.ends_with("and 64 more late reports\n"), "{said:?}");
}
