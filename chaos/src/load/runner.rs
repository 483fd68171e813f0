//! A client that keeps one job running and follows each job to its end. The jobs write marks ([`crate::marks`]).

use std::time::{Duration, Instant};

use serde_json::json;

use super::Clients;
use crate::history::Event;
use crate::load::jobs::{is_exclusive, is_self_fenced};
use crate::store;
use testkit::SeededRng;

/// Submits one job after the other until the clients are stopped.
pub(super) async fn run(client: usize, definition: &str, clients: &Clients, mut rng: SeededRng) {
    let path = format!("/api/jobs/{definition}");
    let mut number = 0;
    while clients.is_active() {
        number += 1;
        let label = format!("run-{client}-{number}");
        let key = format!("key-{label}");
        let run_ms = if is_self_fenced(definition) || is_exclusive(definition) {
            LONG_RUN_MS
        } else {
            *rng.choose(&RUN_TIMES_MS)
        };
        let body =
            json!({ "labels": { "submission": label }, "environment": { "RUN_MS": run_ms.to_string() } });
        clients.history.append(Event::Submit { label: label.clone(), count: 1, key: Some(key.clone()) });
        let job = loop {
            if let Some(job) = clients.submit(&path, &body, &label, Some(&key)).await {
                break job;
            }
            if !clients.is_active() {
                return;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        };
        let cancel_after =
            (rng.below(CANCEL_ONE_OF) == 0).then(|| rng.below(run_ms + CANCEL_AFTER_RUN_MAX_MS));
        follow(clients, job, cancel_after.map(Duration::from_millis)).await;
        clients.observe_old_job(&mut rng).await;
    }
}

/// Follows a job to its end, and cancels it after `cancel_after`, if that is given.
async fn follow(clients: &Clients, job: u64, mut cancel_after: Option<Duration>) {
    let (mut before, began) = (None, Instant::now());
    while clients.is_active() {
        if cancel_after.is_some_and(|delay| began.elapsed() > delay) && clients.cancel(job).await {
            cancel_after = None;
        }
        let state = clients.observe_job(job, &mut before).await;
        if state.as_deref().is_some_and(store::has_ended) {
            return;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Run times of jobs: some end at once, some outlast the next fault.
const RUN_TIMES_MS: [u64; 6] = [0, 100, 500, 1_000, 2_000, 4_000];
/// Run time of self-fenced and exclusive jobs. It is longer than `lost_after`, so a successor that starts too early overlaps with its predecessor.
const LONG_RUN_MS: u64 = 12_000;
/// One of this number of jobs is cancelled: before its assignment, while it runs, or just after its end.
const CANCEL_ONE_OF: u64 = 6;
/// A cancel comes at most this long after the job's run time.
const CANCEL_AFTER_RUN_MAX_MS: u64 = 1_000;
const POLL_INTERVAL: Duration = Duration::from_millis(150);
const RETRY_PAUSE: Duration = Duration::from_millis(100);
