//! A client that submits many small jobs: single ones and batches, with and without idempotency key.

use std::time::Duration;

use serde_json::{Value, json};

use super::Clients;
use crate::history::Event;
use testkit::SeededRng;

/// Submits until the clients are stopped.
pub(super) async fn run(client: u64, clients: &Clients, mut rng: SeededRng) {
    let mut number = 0;
    while clients.is_active() {
        number += 1;
        let label = format!("flood-{client}-{number}");
        let batch = (rng.below(8) == 0).then(|| 1 + rng.below(50));
        let count = batch.unwrap_or(1);
        let key = (rng.below(2) == 0).then(|| format!("key-{label}"));
        let (path, body) = request(&label, batch, &mut rng);
        clients.history.append(Event::Submit { label: label.clone(), count, key: key.clone() });
        let accepted = submit_until_accepted(clients, &path, &body, &label, key.as_deref()).await;
        if accepted && key.is_some() && rng.below(4) == 0 {
            // The same request once more must not make new jobs.
            clients.submit(&path, &body, &label, key.as_deref()).await;
        }
        if rng.below(8) == 0 {
            clients.observe_old_job(&mut rng).await;
        }
        tokio::time::sleep(PAUSE_PER_JOB * count as u32).await;
    }
}

/// Repeats a request with an idempotency key until its jobs are accepted or the clients are stopped. A request without a key is sent once,
/// because a repetition could make its jobs twice. Returns true if the jobs were accepted.
async fn submit_until_accepted(
    clients: &Clients,
    path: &str,
    body: &Value,
    label: &str,
    key: Option<&str>,
) -> bool {
    loop {
        if clients.submit(path, body, label, key).await.is_some() {
            return true;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
        if key.is_none() || !clients.is_active() {
            return false;
        }
    }
}

/// Builds the path and body of a request for a batch with this number of jobs, or for a single job.
fn request(label: &str, batch: Option<u64>, rng: &mut SeededRng) -> (String, Value) {
    let mut name = || *rng.choose(&["fake-quick", "fake-talk", "fake-slow"]);
    let labels = json!({ "submission": label });
    let Some(count) = batch else {
        return (format!("/api/jobs/{}", name()), json!({ "labels": labels }));
    };
    let jobs: Vec<Value> = (0..count).map(|_| json!({ "name": name(), "labels": labels })).collect();
    ("/api/jobs".to_owned(), Value::Array(jobs))
}

/// Pause for each submitted job. It leaves processor time for the rest of the system.
const PAUSE_PER_JOB: Duration = Duration::from_millis(8);
/// Pause after a request that was not accepted, as while the server is down.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
