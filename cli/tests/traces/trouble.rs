//! A collector that is away, hangs or refuses holds up nothing.

use testkit::{ReservedPort, wait_until};
use tokio::net::TcpListener;

use crate::Stage;
use crate::collector::{Answer, Collector, endpoint};

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// How many traces the metrics count with this result.
async fn traces(stage: &Stage, result: &str) -> u64 {
    let text = String::from_utf8(stage.api.get_bytes("/metrics").await).unwrap();
    let sample = format!("longshore_job_traces_total{{result=\"{result}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(sample.as_str())?.parse().ok()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_wait_for_a_collector_that_is_away() {
    let port = ReservedPort::new();
    let stage = Stage::start(&[endpoint(port.number())]).await;
    let first = stage.run("shows", None).await;
    let says = "the collector does not take spans: Connection refused";
    wait_until("the log says so", async || stage.server.log().contains(says)).await;
    let second = stage.run("shows", None).await;
    let listener = TcpListener::bind(("127.0.0.1", port.number())).await.unwrap();
    let collector = Collector::serve(listener, Answer::Ok);
    collector.wait_for_job(first).await;
    collector.wait_for_job(second).await;
    wait_until("the traces are counted", async || traces(&stage, "exported").await == 2).await;
    assert_eq!(traces(&stage, "dropped").await, 0);
    assert!(stage.server.log().contains("the collector takes spans again"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_collector_refuses_for_good_is_dropped_and_counted() {
    let collector = Collector::start(Answer::Status("500 Internal Server Error")).await;
    let stage = Stage::start(&[collector.endpoint()]).await;
    stage.run("shows", None).await;
    wait_until("the trace is counted as dropped", async || traces(&stage, "dropped").await == 1).await;
    let says = "spans dropped: the collector refuses spans: it answers 500 Internal Server Error";
    assert!(stage.server.log().contains(says), "{}", stage.server.log());
    collector.set_answer(Answer::Ok);
    let next = stage.run("shows", None).await;
    collector.wait_for_job(next).await;
    assert_eq!(collector.posts(), 2, "a refused post is not repeated");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_overloaded_is_asked_again() {
    let collector = Collector::start(Answer::Status("503 Service Unavailable\r\nretry-after: 1")).await;
    let stage = Stage::start(&[collector.endpoint()]).await;
    let job = stage.run("shows", None).await;
    wait_until("a post was refused", async || collector.posts() > 0).await;
    collector.set_answer(Answer::Ok);
    collector.wait_for_job(job).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_holds_up_neither_jobs_nor_the_shutdown() {
    let collector = Collector::start(Answer::Hang).await;
    let mut stage = Stage::start(&[collector.endpoint()]).await;
    stage.run("shows", None).await;
    wait_until("a post is under way", async || collector.posts() > 0).await;
    stage.run("shows", None).await;
    stage.server.terminate().await;
    let log = stage.server.log();
    assert!(log.contains("the collector has not taken all spans within 5 s"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_that_is_not_answered_in_time_is_repeated() {
    let collector = Collector::start(Answer::Hang).await;
    let timeout = pair("OTEL_EXPORTER_OTLP_TIMEOUT", "200");
    let stage = Stage::start(&[collector.endpoint(), timeout]).await;
    let job = stage.run("shows", None).await;
    wait_until("the log says so", async || stage.server.log().contains("it does not answer in time")).await;
    collector.set_answer(Answer::Ok);
    collector.wait_for_job(job).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_find_no_room_in_the_queue_are_dropped_and_counted() {
    let collector = Collector::start(Answer::Hang).await;
    let stage = Stage::start(&[collector.endpoint(), pair("OTEL_BSP_MAX_QUEUE_SIZE", "1")]).await;
    stage.run("shows", None).await;
    wait_until("a post is under way", async || collector.posts() > 0).await;
    for _ in 0..3 {
        stage.run("shows", None).await;
    }
    wait_until("two of three are counted", async || traces(&stage, "dropped").await == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_that_the_collector_leaves_out_are_told() {
    let collector = Collector::start(Answer::Partial).await;
    let stage = Stage::start(&[collector.endpoint()]).await;
    stage.run("shows", None).await;
    let says = "the collector has left out 1 spans: too old";
    wait_until("the log says so", async || stage.server.log().contains(says)).await;
    assert_eq!(collector.posts(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_sends_what_is_left() {
    let collector = Collector::start(Answer::Ok).await;
    let mut stage = Stage::start(&[collector.endpoint()]).await;
    let job = stage.run("shows", None).await;
    stage.server.terminate().await;
    assert!(collector.spans().iter().any(|span| span.is_of_job(job)), "{:?}", collector.spans());
}
