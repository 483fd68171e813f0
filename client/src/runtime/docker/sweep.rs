//! Looks again and again for containers that nobody knows of or wants any more.
//!
//! Of this worker's own it looks at what is older than two minutes. What nobody knows of it takes into the books, so that it is stopped,
//! reported, and removed when that is acknowledged; it removes only what never started. Those of the cluster's other workers it only
//! tells of; the server knows which of them somebody will come back for.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use protocol::report::Foreign;
use protocol::{Now, Token};
use worker::input::RuntimeEvent;

use super::container::{Container, Meaning};
use super::{Shared, probe, survey};
use crate::clock;
use crate::runtime::Membership;

/// Looks as long as this worker is who it is: soon after the beginning, when there is most to find, and less and less often.
pub(super) async fn run(shared: Arc<Shared>, membership: Membership) {
    let mut wait = LOOK_FIRST;
    let mut saw_foreign = false;
    loop {
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LOOK_SLOWEST);
        shared.health.wait_until_up().await;
        if shared.membership() != Some(membership) {
            return;
        }
        // Who is in the books before the list is made, or after, is no leftover, although it may end and be forgotten in between.
        let before = shared.known();
        match shared.list(membership.cluster).await {
            Ok(containers) => {
                let Sorted { ours, probes, foreign } = sort(containers, membership, shared.engine_now());
                let sees_foreign = !foreign.is_empty();
                if sees_foreign || saw_foreign {
                    shared.tell(RuntimeEvent::Foreign(foreign.clone()));
                }
                saw_foreign = sees_foreign;
                for probe in probes {
                    tracing::info!(container = probe.name(), "was left by a probe: it is removed");
                    shared.remove_now(probe.name()).await;
                }
                // Before that, what an earlier process has left is not in the books.
                if shared.surveyed.load(Ordering::Acquire) {
                    let unknown = sweep(&shared, ours, &before).await;
                    survey::adopt(&shared, membership, unknown, foreign).await;
                }
            }
            Err(error) => tracing::warn!(%error, "the sweeper gets no answer"),
        }
    }
}

#[derive(Default)]
struct Sorted {
    /// This worker's own, but for what is too young to be looked at.
    ours: Vec<(Token, Container)>,
    probes: Vec<Container>,
    foreign: Vec<Foreign>,
}

/// `now` by the engine's clock.
fn sort(containers: Vec<Container>, membership: Membership, now: Now) -> Sorted {
    let mut sorted = Sorted::default();
    for container in containers {
        let is_settled = container.age(now) >= UNTOUCHED_FOR;
        match container.owner() {
            Some((_, worker, token)) if worker == membership.worker => {
                sorted.ours.extend(is_settled.then_some((token, container)));
            }
            Some((_, worker, token)) => sorted.foreign.push(Foreign { worker, token }),
            None if is_settled && probe::is_own(&container, membership) => sorted.probes.push(container),
            None => {}
        }
    }
    sorted
}

/// Looks after this worker's own containers; gives back those that are there and that nobody knows of.
async fn sweep(
    shared: &Shared,
    ours: Vec<(Token, Container)>,
    before: &HashSet<Token>,
) -> Vec<(Token, Container)> {
    let (now, after) = (clock::now(), shared.known());
    let mut unknown = Vec::new();
    for (token, container) in ours {
        let (name, meaning) = (container.name(), container.meaning());
        let is_known = before.contains(&token) || after.contains(&token);
        match (shared.attempt(token), meaning) {
            (Some(attempt), Meaning::Running) if is_overdue(&container, now) && !attempt.is_stopping() => {
                tracing::warn!(container = name, "is past its deadline");
                shared.tell(RuntimeEvent::Overdue(token));
            }
            (None, Meaning::Running) if shared.removals.pending().contains(&token) => {
                stop(shared, name).await
            }
            (None, Meaning::Unstarted) if !is_known => {
                tracing::info!(container = name, "was made and never started: it is removed");
                shared.remove_unstarted(name).await;
            }
            (None, Meaning::Running | Meaning::Failed(_) | Meaning::Ended) if !is_known => {
                unknown.push((token, container));
            }
            _ => {}
        }
    }
    unknown
}

fn is_overdue(container: &Container, now: Now) -> bool {
    container.deadline().is_some_and(|at| now.utc.0 / 1000 > at.saturating_add(OVERDUE_SECONDS))
}

/// Stops what runs although everything about it is over: what is left of it is removed as soon as it has ended.
async fn stop(shared: &Shared, name: &str) {
    tracing::warn!(container = name, "runs although its end was reported: it is stopped");
    if let Err(error) = shared.cli.call(["stop", "--", name], STOP_LIMIT).await {
        tracing::warn!(container = name, %error, "cannot be stopped");
    }
}

const LOOK_FIRST: Duration = Duration::from_secs(1);
const LOOK_SLOWEST: Duration = Duration::from_secs(60);

/// A container may be older than its attempt's place in our books by this much.
const UNTOUCHED_FOR: Duration = Duration::from_secs(120);

/// The brain stops at the deadline; this is for the case that it could not.
const OVERDUE_SECONDS: i64 = 60;

const STOP_LIMIT: Duration = Duration::from_secs(60);
