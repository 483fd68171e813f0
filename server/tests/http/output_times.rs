//! Container output with the time at which the server received it: as text and as events.

use futures_util::StreamExt as _;
use longshore_server::rfc3339::Time;
use protocol::report::{ChunkData, OutputLengths, Stream};
use scheduler::job::State;
use tower::ServiceExt as _;

use crate::support::output::{arrive, end, running, silent, try_again, write};
use crate::support::{Server, within};

const EVENTS: (&str, &str) = ("accept", "text/event-stream");

/// The lines without their times, which are checked; other lines as they are.
fn without_times(text: &str) -> String {
    let plain = |line: &str| match line.split_once(' ') {
        Some(("longshore:", _)) | None => line.to_owned(),
        Some((time, rest)) => {
            assert!(is_recent(time), "{line}");
            rest.to_owned()
        }
    };
    text.split_inclusive('\n').map(plain).collect()
}

/// True for an instant of the last minutes in UTC, with milliseconds.
fn is_recent(text: &str) -> bool {
    let Ok(time) = serde_json::from_value::<Time>(text.into()) else { return false };
    let age = longshore_server::clock::now().utc.0 - time.0.0;
    time.to_string() == text && (0..600_000).contains(&age)
}

#[tokio::test]
async fn each_line_of_text_begins_with_its_time() {
    let server = running().await;
    // A line of three pieces, between which the other stream writes, and one that has no end.
    write(&server, 101, Stream::Stdout, 8, "th").await;
    write(&server, 101, Stream::Stderr, 5, "ouch\n").await;
    write(&server, 101, Stream::Stdout, 10, "re").await;
    write(&server, 101, Stream::Stdout, 12, "e\n\nno end").await;
    for query in ["", "&stream=stdout", "&stream=stderr", "&tail=2", "&offset=1", "&tail=0"] {
        let plain = server.get(&format!("/api/jobs/1/logs?timestamps=0{query}")).await;
        let timed = server.get(&format!("/api/jobs/1/logs?timestamps=true{query}")).await;
        assert_eq!((timed.status, timed.header("content-type")), (200, plain.header("content-type")));
        assert_eq!(without_times(&timed.body), plain.body, "{query}: {}", timed.body);
        let lines = plain.body.lines().count();
        assert_eq!(timed.body.matches("Z ").count(), lines, "{query}: {}", timed.body);
    }
    let whole = server.get("/api/jobs/1/logs").await.body;
    assert_eq!(whole, "one\noops\ntwo\nthouch\nree\n\nno end");
}

#[tokio::test]
async fn lines_of_the_server_have_no_time() {
    let server = running().await;
    write(&server, 101, Stream::Stdout, 8, "open").await;
    write(&server, 101, Stream::Stdout, 15, "late\n").await;
    arrive(&server, 101, Stream::Stdout, 20, ChunkData::Replayed(b"again\n".to_vec())).await;
    try_again(&server, OutputLengths { stdout: 26, stderr: 5 });
    write(&server, 202, Stream::Stdout, 0, "second\n").await;
    end(&server, State::Succeeded, 0, OutputLengths { stdout: 7, stderr: 0 });
    for query in ["attempt=1", "attempt=1&follow=1", "follow=1"] {
        let plain = server.get(&format!("/api/jobs/1/logs?{query}")).await.body;
        let timed = server.get(&format!("/api/jobs/1/logs?{query}&timestamps=1")).await.body;
        assert_eq!(without_times(&timed), plain);
        let ours = |text: &str| text.lines().filter(|line| line.starts_with("longshore: ")).count();
        assert_eq!((ours(&timed), ours(&plain) > 0), (ours(&plain), true), "{timed}");
    }
}

#[tokio::test]
async fn followed_lines_have_their_times_as_they_come() {
    let server = silent().await;
    let request =
        axum::http::Request::get("/api/jobs/1/logs?follow=1&timestamps=1").header("host", "localhost");
    let request = request.body(axum::body::Body::empty()).unwrap();
    let response = server.router.clone().oneshot(request).await.unwrap();
    let mut body = response.into_body().into_data_stream();
    let mut next = async || {
        let bytes = within(body.next()).await.expect("it goes on").expect("it does not break off");
        String::from_utf8(bytes.to_vec()).unwrap()
    };
    write(&server, 101, Stream::Stdout, 0, "be").await;
    assert_eq!(without_times(&next().await), "be");
    write(&server, 101, Stream::Stdout, 2, "gun\nmore").await;
    let rest = next().await;
    assert!(rest.starts_with("gun\n"), "the line has its time: {rest}");
    assert_eq!(without_times(&rest["gun\n".len()..]), "more");
    end(&server, State::Succeeded, 0, OutputLengths { stdout: 9, stderr: 0 });
    assert_eq!(next().await, "\nlongshore: job 1 succeeded\n");
}

#[tokio::test]
async fn output_begins_at_a_time() {
    let server = running().await;
    let parts = data(&server, "", "output").await;
    let last = parts.last().expect("it has output")["received_at"].as_str().expect("a time").to_owned();
    let since =
        async |time: &str, more: &str| server.get(&format!("/api/jobs/1/logs?since={time}{more}")).await.body;
    assert_eq!(since("2000-01-01T00:00:00Z", "").await, "one\noops\ntwo\n");
    assert_eq!(since("2000-01-01T00:00:00Z", "&tail=1").await, "two\n");
    assert_eq!(since("2000-01-01T00:00:00Z", "&stream=stderr").await, "oops\n");
    assert!(since(&last, "").await.ends_with("two\n"), "output of this very moment is shown");
    assert_eq!(since("2200-01-01T00:00:00Z", "").await, "");
    assert_eq!(since("2200-01-01T00:00:00Z", "&tail=1").await, "");
    let path = "/api/jobs/1/logs?since=2000-01-01T00:00:00Z";
    server.get(&format!("{path}&offset=1")).await.is_problem(400, "invalid_query");
    server.ask("GET", path, &[("range", "bytes=0-4")], "").await.is_problem(400, "invalid_query");
    server.get("/api/jobs/1/logs?since=10m").await.is_problem(400, "invalid_query");
    let resumed = [EVENTS, ("last-event-id", "1:4")];
    let events = server.ask("GET", "/api/jobs/1/logs?since=2200-01-01T00:00:00Z", &resumed, "").await.body;
    assert!(events.contains("two"), "a resumed client goes on where it was: {events}");
}

#[tokio::test]
async fn times_of_a_range_are_refused() {
    let server = running().await;
    let range = [("range", "bytes=0-4")];
    let problem = server.ask("GET", "/api/jobs/1/logs?timestamps=1", &range, "").await;
    let problem = problem.is_problem(400, "invalid_query");
    assert_eq!(problem["detail"], "they do not go together with a range");
    for (query, unit) in [("", "bytes"), ("?timestamps=1", "")] {
        let answer = server.get(&format!("/api/jobs/1/logs{query}")).await;
        assert_eq!(answer.header("accept-ranges"), unit, "{query}");
    }
    server.get("/api/jobs/1/logs?timestamps=maybe").await.is_problem(400, "invalid_query");
}

/// The data of all events of this name.
async fn data(server: &Server, query: &str, name: &str) -> Vec<serde_json::Value> {
    let body = server.ask("GET", &format!("/api/jobs/1/logs?timestamps=1{query}"), &[EVENTS], "").await.body;
    let events = body.split("\n\n").filter_map(|event| event.strip_prefix(&format!("event: {name}\ndata: ")));
    let data = |event: &str| serde_json::from_str(event.lines().next().unwrap_or_default());
    events.map(|event| data(event).expect("it is JSON")).collect()
}

#[tokio::test]
async fn output_events_have_the_time_if_it_is_asked_for() {
    let server = running().await;
    // A character in two pieces, and one that has no end.
    write(&server, 101, Stream::Stdout, 8, b"\xe2").await;
    write(&server, 101, Stream::Stdout, 9, b"\x82\xac\xe2").await;
    end(&server, State::Succeeded, 0, OutputLengths { stdout: 12, stderr: 5 });
    for (query, count) in [("", 5), ("&encoding=base64", 5), ("&stream=stderr", 1)] {
        let output = data(&server, query, "output").await;
        assert_eq!(output.len(), count, "{output:?}");
        assert!(output.iter().all(|data| is_recent(data["received_at"].as_str().unwrap())), "{output:?}");
    }
    let without = server.ask("GET", "/api/jobs/1/logs", &[EVENTS], "").await.body;
    assert!(without.contains("oops") && !without.contains("received_at"), "{without}");
}
