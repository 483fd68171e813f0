//! Messages about batches: one at the end of each, and the batch of a job in messages about jobs.

use serde_json::{Value, json};
use testkit::Cluster;

use super::receiver::Receiver;
use super::{ALLOW, jobs_file, notifications, start};

/// Makes a batch with these exit codes and returns its number at its end.
async fn run_batch(cluster: &Cluster, body: &Value) -> u64 {
    let batch = cluster.api().post("/api/jobs/nightly", Some(body)).await["batch"].as_u64().unwrap();
    wait_for_end(cluster, batch).await;
    batch
}

/// Runs a verb of the command line, which succeeds.
fn verb(cluster: &Cluster, words: &[&str]) {
    let address = cluster.address();
    let (code, text) = cluster.run_cli(&[words, &["--server", &address]].concat());
    assert_eq!(code, 0, "{words:?}: {text}");
}

async fn wait_for_end(cluster: &Cluster, batch: u64) {
    let path = format!("/api/batches/{batch}");
    testkit::wait_until("the batch has ended", async || {
        cluster.api().get(&path).await["ended_at"].is_string()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_with_failed_members_sends_one_message_at_its_end() {
    let receiver = Receiver::start(&[]).await;
    let jobs = jobs_file(&format!(
        "[{{ webhook: 'http://127.0.0.1:{0}/hook', on: [batch_failed, batch_succeeded] }}, \
         {{ slack: 'http://127.0.0.1:{0}/slack', on: batch_failed }}]",
        receiver.port
    ));
    let flags = [ALLOW[0], ALLOW[1], "--public-url", "https://jobs.example"];
    let (cluster, _server, _worker) = start(&jobs, &flags).await;
    let each = json!([{ "code": 0 }, { "code": 3 }, { "code": 4 }]);
    let body = json!({ "each": each, "batch_name": "import" });
    let batch = run_batch(&cluster, &body).await;
    let received = receiver.wait_for(2).await;
    let of = |path: &str| received.iter().find(|message| message.path == path).unwrap();
    let message = of("/hook").json();
    assert_eq!(message["type"], "definition.batch_failed", "{message}");
    let data = &message["data"];
    assert_eq!((&data["batch"]["id"], &data["batch"]["name"]), (&json!(batch), &json!("import")), "{data}");
    let counts = &data["batch"]["counts"];
    assert_eq!((&counts["succeeded"], &counts["failed"]), (&json!(1), &json!(2)), "{data}");
    assert!(data["job"].is_null(), "{data}");
    let text = of("/slack").json()["text"].as_str().unwrap().to_owned();
    let fact = format!("nightly: batch {batch} \"import\" (3 jobs) failed: 1 succeeded, 2 failed, after ");
    assert!(text.starts_with(&fact), "{text}");
    assert!(text.ends_with(&format!("<https://jobs.example/batches/{batch}>")), "{text}");

    // A retry is another batch, with an end of its own.
    let path = format!("/api/batches/{batch}/retry");
    let again = cluster.api().post(&path, None).await["batch"].as_u64().unwrap();
    wait_for_end(&cluster, again).await;
    let received = receiver.wait_for(4).await;
    let retried = received[2..].iter().find(|message| message.path == "/hook").unwrap().json();
    assert_eq!(retried["data"]["batch"]["retry_of"], batch, "{retried}");
    run_batch(&cluster, &json!({ "params": { "code": 0 }, "count": 2 })).await;
    let last = receiver.wait_for(5).await[4].json();
    assert_eq!(last["type"], "definition.batch_succeeded", "{last}");
    assert_eq!(notifications(&cluster).await.len(), 5, "and none about a member");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_whose_members_were_cancelled_sends_one_message_if_none_failed() {
    let receiver = Receiver::start(&[]).await;
    let jobs = jobs_file(&format!(
        "{{ webhook: 'http://127.0.0.1:{}/hook', on: [batch_failed, batch_cancelled] }}",
        receiver.port
    ));
    let (cluster, _server, _worker) = start(&jobs, &ALLOW).await;
    verb(&cluster, &["cordon", "only"]);
    let body = json!({ "params": { "code": 0 }, "count": 2, "batch_name": "import" });
    let batch = cluster.api().post("/api/jobs/nightly", Some(&body)).await["batch"].as_u64().unwrap();
    cluster.api().post(&format!("/api/batches/{batch}/cancel"), None).await;
    wait_for_end(&cluster, batch).await;
    let message = receiver.wait_for(1).await[0].json();
    assert_eq!(message["type"], "definition.batch_cancelled", "{message}");
    let of_batch = &message["data"]["batch"];
    assert_eq!((&of_batch["id"], &of_batch["state"]), (&json!(batch), &json!("cancelled")), "{message}");
    assert_eq!(of_batch["counts"]["cancelled"], 2, "{message}");
    let text = message["data"]["text"].as_str().unwrap().to_owned();
    let fact = format!("nightly: batch {batch} \"import\" (2 jobs) was cancelled: 2 cancelled, after ");
    assert!(text.starts_with(&fact), "{text}");

    // One that failed says so, whatever else was cancelled.
    let failing = json!({ "params": { "code": 3 }, "count": 2 });
    let batch = cluster.api().post("/api/jobs/nightly", Some(&failing)).await["batch"].as_u64().unwrap();
    cluster.api().post(&format!("/api/jobs/{batch}/cancel"), None).await;
    verb(&cluster, &["uncordon", "only"]);
    wait_for_end(&cluster, batch).await;
    let last = receiver.wait_for(2).await[1].json();
    assert_eq!(last["type"], "definition.batch_failed", "{last}");
    assert_eq!(notifications(&cluster).await.len(), 2, "one for each end");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_a_removed_definition_still_send_messages_until_the_server_is_restarted() {
    let receiver = Receiver::start(&[]).await;
    let target =
        format!("{{ webhook: 'http://127.0.0.1:{}/hook', on: [failed, batch_failed] }}", receiver.port);
    let jobs = jobs_file(&target);
    let (cluster, mut server, _worker) = start(&jobs, &ALLOW).await;
    verb(&cluster, &["cordon", "only"]);
    let api = cluster.api();
    let batch = api.post("/api/jobs/nightly", Some(&json!({ "count": 2 }))).await["batch"].as_u64().unwrap();
    let load = |text: &str| {
        std::fs::write(cluster.path("jobs.yaml"), text).unwrap();
        verb(&cluster, &["reload"]);
    };
    let without = "version: 1\njobs: { other: { image: x } }\n";
    load(without);
    verb(&cluster, &["uncordon", "only"]);
    wait_for_end(&cluster, batch).await;
    let received = receiver.wait_for(2).await;
    let mut types: Vec<String> =
        received.iter().map(|message| message.json()["type"].as_str().unwrap().to_owned()).collect();
    types.sort();
    assert_eq!(types, ["definition.batch_failed", "definition.failed"]);

    // A start knows only the targets of its jobs.yaml.
    verb(&cluster, &["cordon", "only"]);
    load(&jobs);
    let last = api.post("/api/jobs/nightly", Some(&json!({ "count": 2 }))).await["batch"].as_u64().unwrap();
    load(without);
    let before = notifications(&cluster).await.len();
    server.terminate().await;
    let _server = cluster.start_server(&ALLOW).await;
    api.wait_for_ready_worker("only").await;
    verb(&cluster, &["uncordon", "only"]);
    wait_for_end(&cluster, last).await;
    assert_eq!(notifications(&cluster).await.len(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_about_a_member_names_its_batch_its_position_and_its_labels() {
    let receiver = Receiver::start(&[]).await;
    let jobs = jobs_file(&format!("{{ webhook: 'http://127.0.0.1:{}/hook' }}", receiver.port));
    let (cluster, _server, _worker) = start(&jobs, &ALLOW).await;
    let each = json!([{ "code": 0 }, { "code": 3 }]);
    let body = json!({ "each": each, "batch_name": "import", "labels": { "region": "eu" } });
    let batch = run_batch(&cluster, &body).await;
    // The success of the other member is a recovery if it comes later.
    let message = receiver.wait_for(1).await[0].json();
    let job = &message["data"]["job"];
    let expected = json!({ "id": batch, "name": "import", "index": 1, "count": 2 });
    assert_eq!((&job["batch"], &job["labels"]), (&expected, &json!({ "region": "eu" })), "{message}");
    let sent = notifications(&cluster).await;
    assert!(
        sent.iter().all(|row| row["batch"].is_null()),
        "nobody asked for a message about the batch: {sent:?}"
    );
}
