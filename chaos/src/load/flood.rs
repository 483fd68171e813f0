//! Asks for many small jobs: one or a batch, with a key or without.

use std::time::Duration;

use serde_json::{Value, json};

use super::Desk;
use crate::history::Event;
use crate::stage::Dice;

/// Goes on until the desk is closed.
pub(super) async fn pour(client: u64, desk: &Desk, mut dice: Dice) {
    let mut number = 0;
    while desk.is_open() {
        number += 1;
        let label = format!("flood-{client}-{number}");
        let count = if dice.below(8) == 0 { 1 + dice.below(50) } else { 0 };
        let key = (dice.below(2) == 0).then(|| format!("key-{label}"));
        let (path, body) = request(&label, count, &mut dice);
        desk.history.note(Event::Submit { label: label.clone(), count: count.max(1), key: key.clone() });
        let promised = ask(desk, &path, &body, &label, key.as_deref()).await;
        if promised && key.is_some() && dice.below(4) == 0 {
            // The same request once more makes nothing new.
            desk.submit(&path, &body, &label, key.as_deref()).await;
        }
        if dice.below(8) == 0 {
            desk.look_back(&mut dice).await;
        }
        tokio::time::sleep(BREATH * count.max(1) as u32).await;
    }
}

/// With a key: until there is an answer. Without one: once, since nobody could know what became of a request without an answer.
async fn ask(desk: &Desk, path: &str, body: &Value, label: &str, key: Option<&str>) -> bool {
    loop {
        if desk.submit(path, body, label, key).await.is_some() {
            return true;
        }
        tokio::time::sleep(AGAIN).await;
        if key.is_none() || !desk.is_open() {
            return false;
        }
    }
}

/// A single job if `count` is zero, else a batch.
fn request(label: &str, count: u64, dice: &mut Dice) -> (String, Value) {
    let mut name = || *dice.one_of(&["fake-quick", "fake-talk", "fake-slow"]);
    let labels = json!({ "submission": label });
    if count == 0 {
        return (format!("/api/jobs/{}", name()), json!({ "labels": labels }));
    }
    let jobs: Vec<Value> = (0..count).map(|_| json!({ "name": name(), "labels": labels })).collect();
    ("/api/jobs".to_owned(), Value::Array(jobs))
}

/// After each job asked for: the machine is needed for faults, too.
const BREATH: Duration = Duration::from_millis(8);
/// The server is away.
const AGAIN: Duration = Duration::from_millis(50);
