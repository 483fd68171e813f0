//! One `docker events` per worker: tells at once that a container has started. A hint, never the truth: the engine keeps few of them and
//! forgets them at a restart.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::Shared;
use crate::clock;
use crate::runtime::Membership;

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "Action")]
    action: String,
    #[serde(rename = "Actor")]
    actor: Actor,
}

#[derive(Deserialize)]
struct Actor {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Attributes", default)]
    attributes: HashMap<String, String>,
}

/// Listens for ever.
pub(super) async fn listen(shared: Arc<Shared>, membership: Membership) {
    loop {
        shared.health.wait_until_up().await;
        listen_once(&shared, membership).await;
        // It ends when the daemon does: that is the first sign of it.
        if let Err(error) = shared.ping().await {
            tracing::warn!(%error, "the engine is gone");
        }
        tokio::time::sleep(LISTEN_AGAIN).await;
    }
}

async fn listen_once(shared: &Shared, membership: Membership) {
    let cluster = format!("label=longshore.cluster={}", membership.cluster);
    let worker = format!("label=longshore.worker={}", membership.worker);
    let filters = [&cluster, &worker, "event=start", "event=oom"].map(|it| ["--filter", it]);
    let args = ["events", "--format", "{{json .}}"].into_iter().chain(filters.into_iter().flatten());
    let Ok(mut child) = shared.cli.spawn(args) else { return };
    let Some(stdout) = child.stdout.take() else { return };
    // Nobody reads its complaints; a full pipe must not stop it.
    drop(child.stderr.take());
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(event) = serde_json::from_str::<Event>(&line) {
            heard(shared, &event);
        }
    }
}

fn heard(shared: &Shared, event: &Event) {
    let Some(attempt) = event.actor.attributes.get("name").and_then(|name| shared.attempt_named(name)) else {
        return;
    };
    match event.action.as_str() {
        "start" => attempt.saw_start(shared, &event.actor.id, clock::now().up),
        "oom" => attempt.saw_oom(),
        _ => {}
    }
}

/// Before a new one is started.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);
