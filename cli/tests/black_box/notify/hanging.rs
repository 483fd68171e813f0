//! A receiver that accepts messages and never answers.

use serde_json::Value;
use testkit::wait_until;

use super::receiver::Receiver;
use super::{ALLOW, jobs_file, notifications, run, start};

/// The text of the log and the API about a try without an answer.
const SILENT: &str = "the target did not answer within 10 s";

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_hangs_delays_no_other_and_is_tried_again() {
    let (silent, good) = (Receiver::silent().await, Receiver::start(&[]).await);
    let jobs = jobs_file(&format!(
        "[{{ webhook: 'http://127.0.0.1:{}/silent', on: failed }}, {{ webhook: 'http://127.0.0.1:{}/good', on: failed, period: 1s }}]",
        silent.port, good.port
    ));
    let (cluster, mut server, _worker) = start(&jobs, &ALLOW).await;
    let host = format!("127.0.0.1:{}", silent.port);
    // The first one; a second one counts what failed since.
    let hanging = async || -> Value {
        notifications(&cluster).await.into_iter().rfind(|row| row["host"] == host.as_str()).unwrap()
    };
    run(&cluster, 3).await;
    silent.wait_for(1).await;
    good.wait_for(1).await;
    // The other one gets the next message while the first try hangs, or between two tries: there are no more of them yet.
    let second = run(&cluster, 4).await;
    let received = good.wait_for(2).await;
    assert_eq!(received[1].json()["data"]["job"]["id"], second);

    let is_recorded =
        async || hanging().await["error"].as_str().is_some_and(|error| error.starts_with(SILENT));
    wait_until("the try without an answer is recorded", is_recorded).await;
    let row = hanging().await;
    assert_eq!((&row["state"], &row["tries"]), (&"waiting".into(), &1.into()), "{row}");
    assert!(row["due_at"].as_str() > row["tried_at"].as_str(), "it waits before the next try: {row}");
    let log = server.log();
    let line = log.lines().find(|line| line.contains("notification not delivered")).unwrap_or_default();
    assert!(line.contains(SILENT) && line.contains(&host) && line.contains("retry_s"), "{log}");

    // The next try is under way: the server leaves without its end, and makes it once more after a start.
    let received = silent.wait_for(2).await;
    let id = |at: usize| received[at].headers["webhook-id"].clone();
    assert_eq!(id(0), id(1));
    server.terminate().await;
    let log = server.log();
    assert_eq!(log.matches(SILENT).count(), 1, "it did not wait for the second try: {log}");
    let _server = cluster.start_server(&ALLOW).await;
    let received = silent.wait_for(3).await;
    assert_eq!(received[2].headers["webhook-id"], id(0));
}
