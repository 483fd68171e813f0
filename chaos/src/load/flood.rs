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
        let count = if rng.below(8) == 0 { 1 + rng.below(50) } else { 0 };
        let key = (rng.below(2) == 0).then(|| format!("key-{label}"));
        let (path, body) = request(&label, count, &mut rng);
        clients.history.append(Event::Submit { label: label.clone(), count: count.max(1), key: key.clone() });
        let accepted = ask(clients, &path, &body, &label, key.as_deref()).await;
        if accepted && key.is_some() && rng.below(4) == 0 {
            // The same request once more must not make new jobs.
            clients.submit(&path, &body, &label, key.as_deref()).await;
        }
        if rng.below(8) == 0 {
            clients.observe_old_job(&mut rng).await;
        }
        tokio::time::sleep(PAUSE_PER_JOB * count.max(1) as u32).await;
    }
}

/// Repeats a request with a key until it is answered. A request without a key is sent once, because a repetition could make its jobs twice.
async fn ask(clients: &Clients, path: &str, body: &Value, label: &str, key: Option<&str>) -> bool {
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

/// Builds the request for a single job if `count` is zero, else for a batch.
fn request(label: &str, count: u64, rng: &mut SeededRng) -> (String, Value) {
    let mut name = || *rng.choose(&["fake-quick", "fake-talk", "fake-slow"]);
    let labels = json!({ "submission": label });
    if count == 0 {
        return (format!("/api/jobs/{}", name()), json!({ "labels": labels }));
    }
    let jobs: Vec<Value> = (0..count).map(|_| json!({ "name": name(), "labels": labels })).collect();
    ("/api/jobs".to_owned(), Value::Array(jobs))
}

/// Pause after each job, which leaves processor time for the faults.
const PAUSE_PER_JOB: Duration = Duration::from_millis(8);
/// Pause before a request is repeated while the server is down.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
