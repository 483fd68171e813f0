//! Container output over HTTP: as text, in parts, and as it comes.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::Request;
use futures_util::StreamExt as _;
use longshore_server::logs::AttemptKey;
use protocol::report::{ChunkData, Outcome, OutputLengths, Stream};
use protocol::{Fence, JobId, Timestamp};
use scheduler::job::State;
use tower::ServiceExt as _;

use crate::support::output::{arrive, end, end_just_now, running, try_again, write};
use crate::support::{Server, within};

/// Text that is followed without a socket, so that the clock may run ahead.
struct Followed(BodyDataStream);

impl Followed {
    async fn begin(server: &Server, query: &str) -> Self {
        let request = Request::get(format!("/api/jobs/1/logs?follow=1{query}")).header("host", "localhost");
        let request = request.body(Body::empty()).expect("it is a request");
        let response = server.router.clone().oneshot(request).await.expect("it is answered");
        Self(response.into_body().into_data_stream())
    }

    async fn next(&mut self) -> Option<String> {
        let bytes = within(self.0.next()).await?.expect("it does not break off");
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads on until this has come.
    async fn until(&mut self, text: &str) {
        let mut seen = String::new();
        while !seen.contains(text) {
            seen.push_str(&self.next().await.expect("it goes on"));
        }
    }

    /// The next bytes, without a time limit.
    async fn next_at_last(&mut self) -> Option<String> {
        tokio::time::pause();
        let next = self.next().await;
        tokio::time::resume();
        next
    }

    /// True if nothing comes within this time.
    async fn is_silent(&mut self, seconds: u64) -> bool {
        tokio::time::pause();
        let next = tokio::time::timeout(Duration::from_secs(seconds), self.0.next()).await;
        tokio::time::resume();
        next.is_err()
    }
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
async fn missing_output_is_reported() {
    let server = running().await;
    write(&server, 101, Stream::Stdout, 18, "late\n").await;
    let answer = server.get("/api/jobs/1/logs?stream=stdout").await;
    assert_eq!(answer.body, "one\ntwo\nlongshore: 10 bytes of stdout are missing\nlate\n");
}

#[tokio::test]
async fn a_follower_gets_one_replay_notice_per_stream_and_attempt() {
    let server = running().await;
    let again = |text: &str| ChunkData::Replayed(text.as_bytes().to_vec());
    arrive(&server, 101, Stream::Stdout, 8, again("thr")).await;
    arrive(&server, 101, Stream::Stderr, 5, again("ouch\n")).await;
    arrive(&server, 101, Stream::Stdout, 11, again("ee\n")).await;
    try_again(&server, OutputLengths { stdout: 14, stderr: 10 });
    arrive(&server, 202, Stream::Stdout, 0, again("four\n")).await;
    end(&server, State::Succeeded, 0, OutputLengths { stdout: 5, stderr: 0 });
    let followed = server.get("/api/jobs/1/logs?follow=1&attempt=1").await.body;
    let label =
        |stream| format!("longshore: what follows of {stream} was read again from the engine's log\n");
    let (out, err) = (label("stdout"), label("stderr"));
    assert_eq!(followed, format!("one\noops\ntwo\n{out}thr\n{err}ouch\nee\n"));
    let second = server.get("/api/jobs/1/logs?follow=1").await.body;
    assert_eq!(second, format!("longshore: attempt 2 on w1\n{out}four\nlongshore: job 1 succeeded\n"));
    let exact = server.get("/api/jobs/1/logs?attempt=1").await.body;
    assert_eq!(exact, "one\noops\ntwo\nthrouch\nee\n", "not followed it is exactly what there is");
}

#[tokio::test]
async fn output_that_never_came_is_reported_long_after_the_end() {
    let server = running().await;
    end(&server, State::Succeeded, 0, OutputLengths { stdout: 11, stderr: 9 });
    let missing = |bytes, stream| format!("longshore: {bytes} bytes of {stream} are missing\n");
    let both = server.get("/api/jobs/1/logs").await.body;
    assert_eq!(both, format!("one\noops\ntwo\n{}{}", missing(3, "stdout"), missing(4, "stderr")));
    let one = server.get("/api/jobs/1/logs?stream=stderr").await.body;
    assert_eq!(one, format!("oops\n{}", missing(4, "stderr")));
    server.stand.world().record(1).row.attempt.as_mut().unwrap().ended_at = Some(Timestamp(i64::MAX));
    let fresh = server.get("/api/jobs/1/logs").await.body;
    assert_eq!(fresh, "one\noops\ntwo\n", "it may be on its way");
}

#[tokio::test]
async fn removed_output_is_answered_with_a_problem() {
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
    for page in ["/jobs/1/output", "/jobs/1/output?attempt=1"] {
        let page = server.get(page).await.body;
        assert!(
            page.contains("Attempt 1 wrote 13 B of output, and the server has none of it any more."),
            "{page}"
        );
        assert!(!page.contains("output.js") && !page.contains("Download"), "{page}");
    }
    let resumed = [("accept", "text/event-stream"), ("last-event-id", "1:4")];
    let rest = server.ask("GET", "/api/jobs/1/logs?follow=1", &resumed, "").await;
    assert!(rest.body.contains("event: gap") && rest.body.contains("event: end"), "{}", rest.body);
    server.stand.world().record(1).row.attempt.as_mut().unwrap().ended_at = Some(Timestamp(i64::MAX));
    assert_eq!(server.get("/api/jobs/1/logs").await.status, 200, "it may be on its way");
    assert!(server.get("/jobs/1/output").await.body.contains("output.js"), "so the page waits for it");
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
    for beyond in ["bytes=13-", "bytes=20-30", "bytes=-0"] {
        let answer = part(beyond).await;
        answer.is_problem(416, "range_not_satisfiable");
        assert_eq!(answer.header("content-range"), "bytes */13");
    }
}

#[tokio::test]
async fn a_range_that_is_not_understood_is_ignored() {
    let server = running().await;
    for range in ["lines=1-2", "bytes=9-4", "bytes=0-1,3-4", "bytes=x-", "4-7"] {
        let answer = server.ask("GET", "/api/jobs/1/logs", &[("range", range)], "").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "one\noops\ntwo\n"), "{range}");
    }
    let last = server.ask("GET", "/api/jobs/1/logs?tail=1", &[("range", "lines=1-2")], "").await;
    assert_eq!((last.status, last.body.as_str()), (200, "two\n"));
}

#[tokio::test]
async fn a_part_ends_before_a_gap() {
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
async fn a_follower_sees_output_as_it_comes_and_then_the_end() {
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
async fn a_follower_learns_of_late_output_before_the_end() {
    let server = running().await;
    end_just_now(&server, OutputLengths { stdout: 520, stderr: 5 });
    let mut following = Followed::begin(&server, "").await;
    following.until("two\n").await;
    assert!(following.is_silent(9).await, "it may be on its way");
    let late = following.next_at_last().await;
    assert_eq!(late.as_deref(), Some("longshore: 512 bytes of output have not arrived yet\n"));
    assert_eq!(following.next().await.as_deref(), Some("longshore: job 1 succeeded\n"));
    assert_eq!(following.next().await, None);
}

#[tokio::test]
async fn any_arrival_extends_the_wait_for_output() {
    let server = running().await;
    end_just_now(&server, OutputLengths { stdout: 10, stderr: 6 });
    let mut growth = server.logs.follow(AttemptKey { job: JobId(1), fence: Fence(101) });
    let mut following = Followed::begin(&server, "&stream=stdout").await;
    following.until("two\n").await;
    for (stream, offset, text) in
        [(Stream::Stdout, 8, "3"), (Stream::Stderr, 5, "!"), (Stream::Stdout, 9, "4")]
    {
        assert!(following.is_silent(6).await, "before {text}");
        write(&server, 101, stream, offset, text).await;
        within(growth.grown()).await;
        if stream == Stream::Stdout {
            assert_eq!(following.next().await.as_deref(), Some(text));
        }
    }
    assert_eq!(following.next().await.as_deref(), Some("\nlongshore: job 1 succeeded\n"));
    assert_eq!(following.next().await, None);
}

#[tokio::test]
async fn late_output_is_reported_once_and_shown_if_it_comes() {
    let server = running().await;
    let output = OutputLengths { stdout: 11, stderr: 5 };
    {
        let mut world = server.stand.world();
        let attempt = world.record(1).row.attempt.as_mut().unwrap();
        (attempt.ended_at, attempt.output) = (Some(Timestamp(i64::MAX)), output);
        attempt.outcome = Some(Outcome::Failed);
    }
    let mut following = Followed::begin(&server, "").await;
    following.until("two\n").await;
    let late = following.next_at_last().await;
    assert_eq!(late.as_deref(), Some("longshore: 3 bytes of output have not arrived yet\n"));
    let ended = following.next().await;
    assert_eq!(ended.as_deref(), Some("longshore: attempt 1 on w1 failed; job 1 waits again\n"));
    assert!(following.is_silent(60).await, "the job may be tried again");
    write(&server, 101, Stream::Stdout, 8, "end").await;
    assert_eq!(following.next().await.as_deref(), Some("end"));
    end(&server, State::Failed, 3, output);
    assert_eq!(following.next().await.as_deref(), Some("\nlongshore: job 1 failed, exit 3\n"));
}

#[tokio::test]
async fn a_job_can_be_followed_from_its_submission_over_all_of_its_attempts() {
    let server = Server::start().await;
    let mut following = server.open("POST /api/jobs/resize?follow=1 HTTP/1.1\r\nconnection: close").await;
    following.until("/api/jobs/1").await;
    server.stand.world().start(1);
    write(&server, 101, Stream::Stdout, 0, "first\n").await;
    following.until("first").await;
    try_again(&server, OutputLengths { stdout: 6, stderr: 0 });
    write(&server, 202, Stream::Stdout, 0, "second\n").await;
    following.until("second").await;
    assert!(following.seen.contains("longshore: attempt 2 on w1"), "{}", following.seen);
    end(&server, State::Succeeded, 0, OutputLengths { stdout: 7, stderr: 0 });
    following.until("longshore: job 1 succeeded\n").await;
}

#[tokio::test]
async fn contradictory_parameters_are_refused() {
    let server = running().await;
    for query in ["stream=both", "encoding=hex", "tail=-1", "follow=perhaps", "tail=1&offset=2", "lines=3"] {
        server.get(&format!("/api/jobs/1/logs?{query}")).await.is_problem(400, "invalid_query");
    }
    server.get("/api/jobs/1/logs?attempt=2").await.is_problem(404, "unknown_attempt");
    let xml = [("accept", "application/xml")];
    server.ask("GET", "/api/jobs/1/logs", &xml, "").await.is_problem(406, "not_acceptable");
}

#[tokio::test]
async fn a_shutdown_ends_followed_output() {
    let server = running().await;
    let mut following = server.open("GET /api/jobs/1/logs?follow=1 HTTP/1.1").await;
    following.until("two\n").await;
    server.shutdown.cancel();
    following.until_closed().await;
    assert!(following.seen.contains("longshore: the server is shutting down"), "{}", following.seen);
    within(server.served).await.unwrap();
}

#[tokio::test]
async fn a_follower_waits_once_for_the_end_of_an_attempt_that_has_gaps() {
    let server = running().await;
    let mut followed = Followed::begin(&server, "").await;
    followed.until("two\n").await;
    let (early, large) = (200 << 20, 400 << 20);
    arrive(&server, 101, Stream::Stdout, 8, ChunkData::Gap(early)).await;
    followed.until("missing\n").await;
    // The middle that a worker leaves out at the end may have this length.
    arrive(&server, 101, Stream::Stdout, 8 + early, ChunkData::Gap(large)).await;
    let first = followed.next_at_last().await.unwrap();
    assert_eq!(first, format!("longshore: {large} bytes of stdout are missing\n"));
    arrive(&server, 101, Stream::Stdout, 8 + early + large, ChunkData::Gap(5)).await;
    assert!(!followed.is_silent(1).await, "the report of an end was waited for before");
}

#[tokio::test]
async fn an_early_loss_takes_nothing_from_the_wait_for_the_end() {
    let server = running().await;
    let mut followed = Followed::begin(&server, "").await;
    followed.until("two\n").await;
    let (early, middle, tail) = (200 << 20, 300 << 20, 64 << 20);
    arrive(&server, 101, Stream::Stdout, 8, ChunkData::Gap(early)).await;
    followed.until(&format!("longshore: {early} bytes of stdout are missing\n")).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
    arrive(&server, 101, Stream::Stdout, 8 + early, ChunkData::Gap(middle)).await;
    assert!(followed.is_silent(1).await, "the final report says if it was lost or cut");
    end(&server, State::Succeeded, 0, OutputLengths { stdout: 8 + early + middle + tail, stderr: 5 });
    followed.until(&format!("longshore: {middle} bytes of stdout cut at log.max_bytes (512 MiB)\n")).await;
}
