//! Has one witnessed job running at all times, and follows each to its end.

use std::time::{Duration, Instant};

use serde_json::json;

use super::Desk;
use crate::history::Event;
use crate::load::jobs::{is_exclusive, is_fenced};
use crate::stage::Dice;

/// Goes on until the desk is closed.
pub(super) async fn run(client: usize, definition: &str, desk: &Desk, mut dice: Dice) {
    let path = format!("/api/jobs/{definition}");
    let mut number = 0;
    while desk.is_open() {
        number += 1;
        let label = format!("run-{client}-{number}");
        let key = format!("key-{label}");
        let nap_ms =
            if is_fenced(definition) || is_exclusive(definition) { LONG_MS } else { *dice.one_of(&NAPS_MS) };
        let body =
            json!({ "labels": { "submission": label }, "environment": { "NAP_MS": nap_ms.to_string() } });
        desk.history.note(Event::Submit { label: label.clone(), count: 1, key: Some(key.clone()) });
        let job = loop {
            if let Some(job) = desk.submit(&path, &body, &label, Some(&key)).await {
                break job;
            }
            if !desk.is_open() {
                return;
            }
            tokio::time::sleep(AGAIN).await;
        };
        let wants_end = (dice.below(CANCELLED_OF) == 0).then(|| dice.below(nap_ms + CANCELLED_WITHIN_MS));
        follow(desk, job, wants_end.map(Duration::from_millis)).await;
        desk.look_back(&mut dice).await;
    }
}

/// To its end; after a while it may be wanted no more.
async fn follow(desk: &Desk, job: u64, mut wanted_for: Option<Duration>) {
    let (mut before, began) = (None, Instant::now());
    while desk.is_open() {
        if wanted_for.is_some_and(|time| began.elapsed() > time) && desk.cancel(job).await {
            wanted_for = None;
        }
        let state = desk.look(job, &mut before).await;
        if matches!(state.as_deref(), Some("succeeded" | "failed" | "cancelled" | "expired" | "lost")) {
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Some are over before anybody looks, some outlast whatever strikes next.
const NAPS_MS: [u64; 6] = [0, 100, 500, 1_000, 2_000, 4_000];
/// Longer than a job waits for a lost worker: a successor that comes too early comes while it still runs.
const LONG_MS: u64 = 12_000;
/// One in so many is cancelled, before it is handed out, while it runs, or just behind its end.
const CANCELLED_OF: u64 = 6;
const CANCELLED_WITHIN_MS: u64 = 1_000;
const LOOK_EVERY: Duration = Duration::from_millis(150);
const AGAIN: Duration = Duration::from_millis(100);
