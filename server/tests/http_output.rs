//! Container output over HTTP: as text, in parts, as events, and as it comes.

mod http_support;

use http_support::facts::attempt;
use http_support::{Server, within};
use protocol::report::{Chunk, ChunkData, OutputLengths, Stream};
use protocol::{Fence, JobId, Nonce, Timestamp, Token};
use scheduler::job::State;

async fn write(server: &Server, fence: u64, stream: Stream, offset: u64, text: &str) {
    let token = Token { job: JobId(1), fence: Fence(fence), nonce: Nonce(7) };
    let data = ChunkData::Bytes(text.as_bytes().to_vec());
    server.logs.append(vec![Chunk { token, stream, offset, data }]).await.expect("it is stored");
}

/// One job that runs and has written two lines and one between them.
async fn running() -> Server {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    server.stand.world().start(1);
    write(&server, 101, Stream::Stdout, 0, "one\n").await;
    write(&server, 101, Stream::Stderr, 0, "oops\n").await;
    write(&server, 101, Stream::Stdout, 4, "two\n").await;
    server
}

fn end(server: &Server, state: State, exit_code: i32, output: OutputLengths) {
    let mut world = server.stand.world();
    world.record(1).row.attempt.as_mut().expect("it runs").output = output;
    world.end(1, state, exit_code);
}

#[tokio::test]
async fn the_output_is_text_as_it_was_written() {
    let server = running().await;
    let answer = server.get("/api/jobs/1/logs").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "one\noops\ntwo\n"));
    assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(server.get("/api/jobs/1/logs?stream=stderr").await.body, "oops\n");
    assert_eq!(server.get("/api/jobs/1/logs?tail=1").await.body, "two\n");
    assert_eq!(server.get("/api/jobs/1/logs?offset=4").await.body, "oops\ntwo\n");
    assert_eq!(server.get("/api/jobs/1/logs?stream=stdout&offset=5").await.body, "wo\n");
}

#[tokio::test]
async fn what_is_missing_is_said() {
    let server = running().await;
    write(&server, 101, Stream::Stdout, 18, "late\n").await;
    let answer = server.get("/api/jobs/1/logs?stream=stdout").await;
    assert_eq!(answer.body, "one\ntwo\nlongshore: 10 bytes of output are missing\nlate\n");
}

#[tokio::test]
async fn what_never_came_is_said_long_after_the_end() {
    let server = running().await;
    end(&server, State::Succeeded, 0, OutputLengths { stdout: 11, stderr: 9 });
    let missing = |bytes| format!("longshore: {bytes} bytes of output are missing\n");
    let both = server.get("/api/jobs/1/logs").await.body;
    assert_eq!(both, format!("one\noops\ntwo\n{}{}", missing(3), missing(4)));
    let one = server.get("/api/jobs/1/logs?stream=stderr").await.body;
    assert_eq!(one, format!("oops\n{}", missing(4)));
    server.stand.world().record(1).row.attempt.as_mut().unwrap().ended_at = Some(Timestamp(i64::MAX));
    let fresh = server.get("/api/jobs/1/logs").await.body;
    assert_eq!(fresh, "one\noops\ntwo\n", "it may be on its way");
}

#[tokio::test]
async fn output_of_which_nothing_is_left_is_said_to_be_gone() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    server.stand.world().start(1);
    end(&server, State::Succeeded, 0, OutputLengths { stdout: 8, stderr: 5 });
    for query in ["", "?tail=3", "?stream=stderr", "?follow=1", "?attempt=1"] {
        let problem = server.get(&format!("/api/jobs/1/logs{query}")).await.is_problem(410, "output_removed");
        assert_eq!(problem["detail"], "attempt 1 of job 1 wrote 13 bytes; none of them is here any more");
    }
    server
        .ask("GET", "/api/jobs/1/logs", &[("range", "bytes=0-4")], "")
        .await
        .is_problem(410, "output_removed");
    let resumed = [("accept", "text/event-stream"), ("last-event-id", "1:4")];
    let rest = server.ask("GET", "/api/jobs/1/logs?follow=1", &resumed, "").await;
    assert!(rest.body.contains("event: gap") && rest.body.contains("event: end"), "{}", rest.body);
    server.stand.world().record(1).row.attempt.as_mut().unwrap().ended_at = Some(Timestamp(i64::MAX));
    assert_eq!(server.get("/api/jobs/1/logs").await.status, 200, "it may be on its way");
}

#[tokio::test]
async fn a_job_without_output_has_none() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    let answer = server.get("/api/jobs/1/logs").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
}

#[tokio::test]
async fn parts_are_served_as_of_a_file() {
    let server = running().await;
    let part = async |range: &str| server.ask("GET", "/api/jobs/1/logs", &[("range", range)], "").await;
    let answer = part("bytes=4-7").await;
    assert_eq!((answer.status, answer.body.as_str()), (206, "oops"));
    assert_eq!(answer.header("content-range"), "bytes 4-7/*", "it may still grow");
    end(&server, State::Succeeded, 0, OutputLengths { stdout: 8, stderr: 5 });
    let answer = part("bytes=-4").await;
    assert_eq!((answer.body.as_str(), answer.header("content-range")), ("two\n", "bytes 9-12/13"));
    for beyond in ["bytes=13-", "bytes=9-4", "bytes=0-1,3-4", "lines=1-2"] {
        let answer = part(beyond).await;
        answer.is_problem(416, "range_not_satisfiable");
        assert_eq!(answer.header("content-range"), "bytes */13");
    }
}

#[tokio::test]
async fn a_part_ends_before_what_is_missing() {
    let server = running().await;
    write(&server, 101, Stream::Stdout, 18, "late\n").await;
    let part = async |range: &str| {
        server.ask("GET", "/api/jobs/1/logs?stream=stdout", &[("range", range)], "").await
    };
    assert_eq!(part("bytes=0-").await.header("content-range"), "bytes 0-7/*");
    let behind = part("bytes=10-").await;
    assert_eq!((behind.body.as_str(), behind.header("content-range")), ("late\n", "bytes 18-22/*"));
}

#[tokio::test]
async fn who_follows_sees_output_as_it_comes_and_then_the_end() {
    let server = running().await;
    let mut following = server.open("GET /api/jobs/1/logs?follow=1 HTTP/1.1\r\nconnection: close").await;
    following.until("two\n").await;
    write(&server, 101, Stream::Stdout, 8, "three").await;
    following.until("three").await;
    end(&server, State::Failed, 3, OutputLengths { stdout: 14, stderr: 5 });
    // The report is faster than the last of the output: its end waits for it.
    write(&server, 101, Stream::Stdout, 13, "!").await;
    following.until_closed().await;
    assert!(following.seen.contains("longshore: job 1 failed, exit 3"), "{}", following.seen);
    let (before, _) = following.seen.split_once("longshore: job 1").unwrap();
    assert!(before.contains('!'), "{before}");
}

#[tokio::test]
async fn a_job_can_be_followed_from_its_submission_over_all_of_its_attempts() {
    let server = Server::start().await;
    let mut following = server.open("POST /api/jobs/resize?follow=1 HTTP/1.1\r\nconnection: close").await;
    following.until("/api/jobs/1").await;
    server.stand.world().start(1);
    write(&server, 101, Stream::Stdout, 0, "first\n").await;
    following.until("first").await;
    {
        let mut world = server.stand.world();
        let record = world.record(1);
        let mut past = record.row.attempt.take().unwrap();
        past.ended_at = Some(Timestamp(4_000));
        past.output.stdout = 6;
        record.past.push(past);
        record.row.attempt = Some(attempt(2, 202));
    }
    write(&server, 202, Stream::Stdout, 0, "second\n").await;
    following.until("second").await;
    assert!(following.seen.contains("longshore: attempt 2 on w1"), "{}", following.seen);
    end(&server, State::Succeeded, 0, OutputLengths { stdout: 7, stderr: 0 });
    following.until("longshore: job 1 succeeded\n").await;
}

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

#[tokio::test]
async fn a_resumed_stream_goes_on_over_later_attempts_to_the_end() {
    let server = running().await;
    {
        let mut world = server.stand.world();
        let record = world.record(1);
        let mut past = record.row.attempt.take().unwrap();
        past.ended_at = Some(Timestamp(4_000));
        past.output = OutputLengths { stdout: 8, stderr: 5 };
        record.past.push(past);
        record.row.attempt = Some(attempt(2, 202));
    }
    write(&server, 202, Stream::Stdout, 0, "again\n").await;
    end(&server, State::Succeeded, 0, OutputLengths { stdout: 6, stderr: 0 });
    for (last, seen, unseen) in [("1:9", "two", "oops"), ("1:13", "again", "two"), ("2:6", "end", "again")] {
        let headers = [("accept", "text/event-stream"), ("last-event-id", last)];
        let rest = server.ask("GET", "/api/jobs/1/logs?follow=1", &headers, "").await;
        assert!(rest.body.contains(seen) && !rest.body.contains(unseen), "{last}: {}", rest.body);
        assert!(rest.body.contains("event: end\n"), "{last}: {}", rest.body);
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

#[tokio::test]
async fn wishes_that_make_no_sense_are_refused() {
    let server = running().await;
    for query in ["stream=both", "encoding=hex", "tail=-1", "follow=perhaps", "tail=1&offset=2", "lines=3"] {
        server.get(&format!("/api/jobs/1/logs?{query}")).await.is_problem(400, "invalid_query");
    }
    server.get("/api/jobs/1/logs?attempt=2").await.is_problem(404, "unknown_attempt");
    let xml = [("accept", "application/xml")];
    server.ask("GET", "/api/jobs/1/logs", &xml, "").await.is_problem(406, "not_acceptable");
}

#[tokio::test]
async fn a_leaving_server_ends_what_is_followed() {
    let server = running().await;
    let mut following = server.open("GET /api/jobs/1/logs?follow=1 HTTP/1.1").await;
    following.until("two\n").await;
    server.leaving.cancel();
    following.until_closed().await;
    assert!(following.seen.contains("longshore: the server is leaving"), "{}", following.seen);
    within(server.served).await.unwrap();
}
