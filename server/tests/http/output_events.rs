//! Container output as server-sent events: what they hold, where a client goes on after them, and how they end.

use protocol::Timestamp;
use protocol::report::{ChunkData, OutputLengths, Stream};
use scheduler::job::State;

use crate::support::Server;
use crate::support::output::{arrive, end, end_just_now, running, silent, try_again, write};

/// The events that come after this one.
async fn events(server: &Server, query: &str, last: &str) -> String {
    let headers = [("accept", "text/event-stream"), ("last-event-id", last)];
    server.ask("GET", &format!("/api/jobs/1/logs{query}"), &headers, "").await.body
}

/// Each event with its id.
fn told(events: &str) -> Vec<(&str, &str)> {
    let held = events.split("\n\n").filter_map(|event| event.split_once("data: "));
    held.map(|(_, data)| data.split_once("\nid: ").unwrap_or((data, ""))).collect()
}

/// The data of the event of the first attempt.
const FIRST: (&str, &str) = (r#"{"attempt":1,"worker":"w1"}"#, "1:0");

#[tokio::test]
async fn events_carry_their_place_and_resume_behind_it() {
    let server = running().await;
    end(&server, State::Succeeded, 0, OutputLengths { stdout: 8, stderr: 5 });
    let events = [("accept", "text/event-stream")];
    let all = server.ask("GET", "/api/jobs/1/logs?follow=1", &events, "").await;
    assert_eq!(all.header("content-type"), "text/event-stream");
    let data = r#"data: {"stream":"stderr","offset":4,"text":"oops\n"}"#;
    assert!(all.body.contains(data), "{}", all.body);
    assert!(all.body.contains("id: 1:9"), "{}", all.body);
    assert!(all.body.contains("event: end\ndata: {\"job\":1,\"state\":\"succeeded\""), "{}", all.body);
    let headers = [("accept", "text/event-stream"), ("last-event-id", "1:9")];
    let rest = server.ask("GET", "/api/jobs/1/logs?follow=1", &headers, "").await;
    assert!(!rest.body.contains("oops") && rest.body.contains("two"), "{}", rest.body);
    let mangled = [("accept", "text/event-stream"), ("last-event-id", "x")];
    server.ask("GET", "/api/jobs/1/logs", &mangled, "").await.is_problem(400, "invalid_cursor");
}

/// A page cannot set the header of a new `EventSource`.
#[tokio::test]
async fn a_parameter_resumes_as_the_header_does() {
    let server = running().await;
    end(&server, State::Succeeded, 0, OutputLengths { stdout: 8, stderr: 5 });
    let accept = ("accept", "text/event-stream");
    let get = async |query: &str, headers: &[_]| {
        server.ask("GET", &format!("/api/jobs/1/logs?{query}"), headers, "").await
    };
    for id in ["1:0", "1:4", "1:9", "1:13"] {
        let by_header = get("follow=1", &[accept, ("last-event-id", id)]).await;
        assert_eq!(get(&format!("follow=1&after={id}"), &[accept]).await.body, by_header.body);
        let both = get("follow=1&after=1:4", &[accept, ("last-event-id", id)]).await;
        assert_eq!(both.body, by_header.body, "the header is the younger one");
    }
    assert_eq!(get("follow=1&after=", &[accept]).await.body, get("follow=1", &[accept]).await.body);
    for unknown in ["after=x", "after=3:1", "attempt=1&after=2:6"] {
        let problem = get(unknown, &[accept]).await.is_problem(400, "invalid_cursor");
        assert_eq!(problem["field"], "?after", "{problem}");
    }
    get("after=1:4", &[]).await.is_problem(400, "invalid_query");
}

#[tokio::test]
async fn a_resumed_stream_goes_on_over_later_attempts_to_the_end() {
    let server = running().await;
    try_again(&server, OutputLengths { stdout: 8, stderr: 5 });
    write(&server, 202, Stream::Stdout, 0, "again\n").await;
    end(&server, State::Succeeded, 0, OutputLengths { stdout: 6, stderr: 0 });
    for (last, seen, unseen) in [("1:9", "two", "oops"), ("1:13", "again", "two"), ("2:6", "end", "again")] {
        for query in ["", "?follow=1"] {
            let rest = events(&server, query, last).await;
            assert!(rest.contains(seen) && !rest.contains(unseen), "{last}: {rest}");
            assert!(rest.contains("event: end\n"), "{last}: {rest}");
        }
    }
    let headers = [("accept", "text/event-stream"), ("last-event-id", "1:13")];
    let one = server.ask("GET", "/api/jobs/1/logs?follow=1&attempt=1", &headers, "").await;
    assert!(!one.body.contains("again"), "{}", one.body);
    assert!(one.body.contains("event: end\ndata: {\"attempt\":1"), "{}", one.body);
    for (last, query) in [("3:1", ""), ("2:6", "?attempt=1")] {
        let headers = [("accept", "text/event-stream"), ("last-event-id", last)];
        let path = format!("/api/jobs/1/logs{query}");
        server.ask("GET", &path, &headers, "").await.is_problem(400, "invalid_cursor");
    }
}

#[tokio::test]
async fn a_client_that_saw_only_the_attempt_event_resumes_at_that_attempt() {
    let server = running().await;
    let begun = server.ask("GET", "/api/jobs/1/logs", &[("accept", "text/event-stream")], "").await.body;
    let (data, id) = told(&begun)[0];
    assert_eq!((data, id), FIRST);
    try_again(&server, OutputLengths { stdout: 8, stderr: 5 });
    write(&server, 202, Stream::Stdout, 0, "again\n").await;
    end(&server, State::Succeeded, 0, OutputLengths { stdout: 6, stderr: 0 });
    let rest = events(&server, "?follow=1", id).await;
    assert!(rest.contains("oops") && rest.contains("again"), "{rest}");
    let second = events(&server, "?follow=1", "1:9").await;
    assert_eq!(told(&second)[0].1, "1:9", "where reading begins: {second}");
    assert!(second.contains("\nid: 2:0\n"), "{second}");
}

#[tokio::test]
async fn events_include_the_end_for_clients_that_do_not_follow() {
    let server = running().await;
    let output = OutputLengths { stdout: 8, stderr: 5 };
    let asked = [("accept", "text/event-stream")];
    let said = async |query: &str| {
        let path = format!("/api/jobs/1/logs{query}");
        server.ask("GET", &path, &asked, "").await.body
    };
    for query in ["", "?attempt=1"] {
        let running = said(query).await;
        assert!(running.contains("two") && !running.contains("event: end"), "{query}: {running}");
    }
    {
        let mut world = server.stand.world();
        let attempt = world.record(1).row.attempt.as_mut().unwrap();
        (attempt.ended_at, attempt.output) = (Some(Timestamp(4_000)), output);
    }
    let between = said("").await;
    assert!(!between.contains("event: end"), "the job may be tried again: {between}");
    let one = said("?attempt=1").await;
    assert!(one.contains("event: end\ndata: {\"attempt\":1"), "{one}");
    end(&server, State::Failed, 3, output);
    let all = said("").await;
    assert!(all.contains("event: end\ndata: {\"job\":1,\"state\":\"failed\""), "{all}");
}

#[tokio::test]
async fn events_report_late_output() {
    let server = running().await;
    end_just_now(&server, OutputLengths { stdout: 520, stderr: 5 });
    let all = events(&server, "", "1:0").await;
    assert!(all.contains("event: late\ndata: {\"late_bytes\":512}\n\nevent: end\n"), "{all}");
}

#[tokio::test]
async fn a_gap_of_unknown_length_has_no_number() {
    let server = silent().await;
    arrive(&server, 101, Stream::Stdout, 0, ChunkData::Gap(ChunkData::UNKNOWN_GAP)).await;
    write(&server, 101, Stream::Stdout, 1, b"rest\n").await;
    let all = events(&server, "", "1:0").await;
    let gap = (
        r#"{"stream":"stdout","offset":0,"missing_bytes":null,"text":"longshore: some of stdout is missing"}"#,
        "1:1",
    );
    let rest = (r#"{"stream":"stdout","offset":1,"text":"rest\n"}"#, "1:6");
    assert_eq!(told(&all), [FIRST, gap, rest]);
    assert_eq!(server.get("/api/jobs/1/logs").await.body, "longshore: some of stdout is missing\nrest\n");
}

#[tokio::test]
async fn events_mark_replayed_output() {
    let server = silent().await;
    write(&server, 101, Stream::Stdout, 0, b"one\n").await;
    arrive(&server, 101, Stream::Stdout, 4, ChunkData::Replayed(b"two\xe2".to_vec())).await;
    write(&server, 101, Stream::Stderr, 0, b"x").await;
    end(&server, State::Succeeded, 0, OutputLengths { stdout: 8, stderr: 1 });
    let all = events(&server, "", "1:0").await;
    let expected = [
        FIRST,
        (r#"{"stream":"stdout","offset":0,"text":"one\n"}"#, "1:4"),
        (r#"{"stream":"stdout","offset":4,"replayed":true,"text":"two"}"#, "1:7"),
        (r#"{"stream":"stderr","offset":8,"text":"x"}"#, "1:7:9"),
        (r#"{"stream":"stdout","offset":7,"replayed":true,"text":"�"}"#, "1:9"),
    ];
    assert_eq!(told(&all)[..5], expected);
    let resumed = events(&server, "", "1:4").await;
    assert_eq!(told(&resumed)[1], expected[2]);
}

#[tokio::test]
async fn a_character_that_is_never_completed_is_shown_before_the_end() {
    let server = silent().await;
    write(&server, 101, Stream::Stdout, 0, b"caf\xe9").await;
    let running = events(&server, "", "1:0").await;
    assert_eq!(told(&running), [FIRST, (r#"{"stream":"stdout","offset":0,"text":"caf"}"#, "1:3")]);
    end(&server, State::Succeeded, 0, OutputLengths { stdout: 4, stderr: 0 });
    for query in ["", "?follow=1", "?attempt=1"] {
        let ended = events(&server, query, "1:3").await;
        assert_eq!(told(&ended)[1], (r#"{"stream":"stdout","offset":3,"text":"�"}"#, "1:4"), "{ended}");
        assert!(ended.contains("id: 1:4\n\nevent: end\n"), "{ended}");
    }
}

#[tokio::test]
async fn incomplete_utf8_is_flushed_between_attempts() {
    let server = silent().await;
    write(&server, 101, Stream::Stdout, 0, b"caf\xc3").await;
    end(&server, State::Scheduled, 1, OutputLengths { stdout: 4, stderr: 0 });
    let all = events(&server, "", "1:0").await;
    let caf = (r#"{"stream":"stdout","offset":0,"text":"caf"}"#, "1:3");
    assert_eq!(told(&all), [FIRST, caf, (r#"{"stream":"stdout","offset":3,"text":"�"}"#, "1:4")]);
}

#[tokio::test]
async fn a_character_is_completed_neither_across_a_gap_nor_by_another_attempt() {
    let server = silent().await;
    write(&server, 101, Stream::Stdout, 0, b"a\xe2").await;
    write(&server, 101, Stream::Stdout, 12, b"\x82b\xe2").await;
    try_again(&server, OutputLengths { stdout: 15, stderr: 0 });
    write(&server, 202, Stream::Stdout, 0, b"\x82c").await;
    let all = events(&server, "", "1:0").await;
    let expected = [
        FIRST,
        (r#"{"stream":"stdout","offset":0,"text":"a"}"#, "1:1"),
        (r#"{"stream":"stdout","offset":1,"text":"�"}"#, "1:2"),
        (
            r#"{"stream":"stdout","offset":2,"missing_bytes":10,"text":"longshore: 10 bytes of stdout are missing"}"#,
            "1:12",
        ),
        (r#"{"stream":"stdout","offset":12,"text":"�b"}"#, "1:14"),
        (r#"{"stream":"stdout","offset":14,"text":"�"}"#, "1:15"),
        (r#"{"attempt":2,"worker":"w1"}"#, "2:0"),
        (r#"{"stream":"stdout","offset":0,"text":"�c"}"#, "2:2"),
    ];
    assert_eq!(told(&all), expected);
}

#[tokio::test]
async fn resuming_within_a_character_loses_and_repeats_nothing() {
    let server = silent().await;
    write(&server, 101, Stream::Stdout, 0, b"x\xe2").await;
    let begun = (r#"{"stream":"stdout","offset":0,"text":"x"}"#, "1:1");
    assert_eq!(told(&events(&server, "", "1:0").await), [FIRST, begun]);
    write(&server, 101, Stream::Stdout, 2, b"\x82\xac!").await;
    let rest = (r#"{"stream":"stdout","offset":1,"text":"€!"}"#, "1:5");
    assert_eq!(told(&events(&server, "", "1:1").await), [(FIRST.0, "1:1"), rest]);
    assert_eq!(told(&events(&server, "", "1:0").await), [FIRST, begun, rest]);
}

#[tokio::test]
async fn resume_inside_a_utf8_character_with_interleaved_streams_loses_nothing() {
    let server = silent().await;
    write(&server, 101, Stream::Stdout, 0, b"x\xe2").await;
    write(&server, 101, Stream::Stderr, 0, "oops\n").await;
    let begun = (r#"{"stream":"stdout","offset":0,"text":"x"}"#, "1:1");
    let other = (r#"{"stream":"stderr","offset":2,"text":"oops\n"}"#, "1:1:7");
    assert_eq!(told(&events(&server, "", "1:0").await), [FIRST, begun, other]);
    write(&server, 101, Stream::Stdout, 2, b"\x82\xac").await;
    write(&server, 101, Stream::Stderr, 5, "more").await;
    let whole = (r#"{"stream":"stdout","offset":1,"text":"€"}"#, "1:9");
    let more = (r#"{"stream":"stderr","offset":9,"text":"more"}"#, "1:13");
    assert_eq!(told(&events(&server, "", "1:1:7").await), [(FIRST.0, "1:1:7"), whole, more]);
    assert_eq!(told(&events(&server, "", "1:1").await), [(FIRST.0, "1:1"), other, whole, more]);
}

#[tokio::test]
async fn a_stream_may_begin_before_the_first_attempt_is_made() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    let head = "GET /api/jobs/1/logs?follow=1&encoding=base64 HTTP/1.1\r\naccept: text/event-stream\r\nlast-event-id: 1:0";
    let mut following = server.open(head).await;
    following.until("200 OK").await;
    server.stand.world().start(1);
    write(&server, 101, Stream::Stdout, 0, "one\n").await;
    following.until(r#"data: {"stream":"stdout","offset":0,"base64":"b25lCg=="}"#).await;
}
