//! Container output of all attempts of a job, and how much of it is stored.

use protocol::Timestamp;
use protocol::report::{OutputLengths, Stream};
use scheduler::job::State;

use crate::support::facts::attempt;
use crate::support::output::{end, running, silent, try_again, write};

#[tokio::test]
async fn the_output_of_all_attempts_comes_in_order_each_below_a_heading() {
    let server = running().await;
    try_again(&server, OutputLengths { stdout: 8, stderr: 5 });
    write(&server, 202, Stream::Stdout, 0, "again").await;
    let all = server.get("/api/jobs/1/logs?attempt=all").await.body;
    let first = all.split_once("\n\n==> attempt 2 on w1: has not ended <==\nagain");
    assert!(
        first.is_some_and(|(first, rest)| first.ends_with("<==\none\noops\ntwo") && rest.is_empty()),
        "{all}"
    );
    let one = server.get("/api/jobs/1/logs?attempt=all&stream=stderr").await.body;
    assert!(one.contains("<==\noops\n\n==> attempt 2"), "{one}");
    for query in ["tail=1", "offset=1", "since=2026-03-01"] {
        let problem = server.get(&format!("/api/jobs/1/logs?attempt=all&{query}")).await;
        assert_eq!(problem.is_problem(400, "invalid_query")["field"], "?attempt", "{query}");
    }
    let ranged = server.ask("GET", "/api/jobs/1/logs?attempt=all", &[("range", "bytes=0-4")], "").await;
    ranged.is_problem(400, "invalid_query");
    server.get("/api/jobs/1/logs?attempt=some").await.is_problem(400, "invalid_query");
    let events =
        server.ask("GET", "/api/jobs/1/logs?attempt=all", &[("accept", "text/event-stream")], "").await;
    assert!(events.body.contains("oops") && events.body.contains("again"), "{}", events.body);
}

#[tokio::test]
async fn the_output_of_all_attempts_shows_that_the_first_one_was_removed() {
    let server = silent().await;
    try_again(&server, OutputLengths { stdout: 8, stderr: 0 });
    write(&server, 202, Stream::Stdout, 0, "again\n").await;
    let all = server.get("/api/jobs/1/logs?attempt=all").await;
    let (heading, rest) = all.body.split_once('\n').unwrap();
    assert!(heading.starts_with("==> attempt 1 on w1"), "{heading}");
    let second = "==> attempt 2 on w1: has not ended <==";
    assert_eq!(rest, format!("longshore: 8 bytes of stdout are missing\n\n{second}\nagain\n"));
    assert_eq!(all.header("accept-ranges"), "", "a part of all attempts cannot be requested");
    let timed = server.get("/api/jobs/1/logs?attempt=all&timestamps=1").await.body;
    let (rest, last) = timed.trim_end().rsplit_once('\n').unwrap();
    assert!(last.ends_with("Z again") && !rest.contains('Z'), "{timed}");
    assert_eq!(rest.lines().last(), Some(second));
}

#[tokio::test]
async fn the_output_of_many_attempts_takes_few_reads_of_the_job() {
    let server = silent().await;
    for number in 2..12 {
        let mut world = server.stand.world();
        let record = world.record(1);
        let mut past = record.row.attempt.take().unwrap();
        past.ended_at = Some(Timestamp(4_000));
        record.past.push(past);
        record.row.attempt = Some(attempt(number, 200 + u64::from(number)));
        world.job_reads = 0;
    }
    let all = server.get("/api/jobs/1/logs?attempt=all").await.body;
    assert_eq!(all.matches("==> attempt ").count(), 11, "{all}");
    let reads = server.stand.world().job_reads;
    assert!(reads <= 4, "{reads} reads for 11 attempts");
}

#[tokio::test]
async fn cut_output_says_how_much_is_stored_until_it_is_removed() {
    let written = OutputLengths { stdout: 600 << 20, stderr: 5 };
    let server = running().await;
    end(&server, State::Succeeded, 0, written);
    let cut = server.get("/api/jobs/1").await.json()["attempts"][0]["output"]["cut"].clone();
    let stored =
        serde_json::json!({ "max_bytes": 512 << 20, "stdout_stored_bytes": 8, "stderr_stored_bytes": 5 });
    assert_eq!(cut, stored);
    let found = server.get("/api/logs/search?q=nothing").await.json();
    assert_eq!(found["cut_jobs"], serde_json::json!([1]));

    let removed = silent().await;
    end(&removed, State::Succeeded, 0, written);
    let output = removed.get("/api/jobs/1").await.json()["attempts"][0]["output"].clone();
    assert_eq!(output, serde_json::json!({ "stdout_bytes": 600 << 20, "stderr_bytes": 5 }));
    assert!(!removed.get("/jobs/1").await.body.contains("log.max_bytes"));
    let found = removed.get("/api/logs/search?q=nothing").await.json();
    assert_eq!((found["scanned_jobs"].as_u64(), found.get("cut_jobs")), (Some(1), None), "{found}");
}
