//! Looks regularly for containers that are unknown or past their deadline.
//!
//! Of this worker's own containers it handles those older than two minutes. It adopts unknown ones, so that they are stopped, reported, and
//! removed after the acknowledgement; it removes only containers that never started. Containers of the cluster's other workers are only
//! reported, because the server knows whether their worker will return.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use protocol::report::Foreign;
use protocol::{Now, Token};
use worker::input::RuntimeEvent;

use super::container::{Container, Lifecycle};
use super::{DockerState, probe, survey};
use crate::clock;
use crate::runtime::Membership;

/// Runs as long as the membership holds. The first looks come soon, when there is most to find; later ones are rarer.
pub(super) async fn run(docker: Arc<DockerState>, membership: Membership) {
    let mut wait = LOOK_FIRST;
    let mut saw_foreign = false;
    loop {
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LOOK_SLOWEST);
        docker.engine.health.wait_until_up().await;
        if docker.registry.membership() != Some(membership) {
            return;
        }
        // An attempt that is tracked before or after the list is made is no leftover, although it may end and be forgotten in between.
        let before = docker.registry.tracked_or_being_removed();
        match docker.engine.list(membership.cluster).await {
            Ok(containers) => {
                let SortedContainers { ours, probes, foreign } =
                    sort(containers, membership, docker.engine.now());
                let sees_foreign = !foreign.is_empty();
                if sees_foreign || saw_foreign {
                    docker.send_event(RuntimeEvent::Foreign(foreign.clone()));
                }
                saw_foreign = sees_foreign;
                for probe in probes {
                    tracing::info!(container = probe.name(), "removing the container of an old probe");
                    docker.engine.remove_now(probe.name()).await;
                }
                // Before that, attempts of an earlier process are not tracked.
                if docker.registry.is_recovery_complete.load(Ordering::Acquire) {
                    let unknown = sweep(&docker, ours, &before).await;
                    survey::adopt(&docker, membership, unknown, foreign).await;
                }
            }
            Err(error) => tracing::warn!(%error, "cannot list containers; looking again later"),
        }
    }
}

#[derive(Default)]
struct SortedContainers {
    /// This worker's own containers, without very young ones.
    ours: Vec<(Token, Container)>,
    probes: Vec<Container>,
    foreign: Vec<Foreign>,
}

/// Sorts by owner; `now` is of the engine's clock.
fn sort(containers: Vec<Container>, membership: Membership, now: Now) -> SortedContainers {
    let mut sorted = SortedContainers::default();
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

/// Handles this worker's own containers; returns the unknown ones.
async fn sweep(
    docker: &DockerState,
    ours: Vec<(Token, Container)>,
    before: &HashSet<Token>,
) -> Vec<(Token, Container)> {
    let (now, after) = (clock::now(), docker.registry.tracked_or_being_removed());
    let mut unknown = Vec::new();
    for (token, container) in ours {
        let (name, lifecycle) = (container.name(), container.lifecycle());
        let is_known = before.contains(&token) || after.contains(&token);
        match (docker.registry.attempt(token), lifecycle) {
            (Some(attempt), Lifecycle::Running) if is_overdue(&container, now) && !attempt.is_stopping() => {
                tracing::warn!(container = name, "a container runs past its deadline; it will be stopped");
                docker.send_event(RuntimeEvent::Overdue(token));
            }
            (None, Lifecycle::Running) if docker.registry.removals.pending().contains(&token) => {
                stop(docker, name).await
            }
            (None, Lifecycle::Unstarted) if !is_known => {
                tracing::info!(container = name, "removing a container that was never started");
                docker.engine.remove_unstarted(name).await;
            }
            (None, Lifecycle::Running | Lifecycle::Failed(_) | Lifecycle::Ended) if !is_known => {
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

/// Stops a running container whose end was reported; it is removed after its end.
async fn stop(docker: &DockerState, name: &str) {
    tracing::warn!(container = name, "a container runs although its end was reported; stopping it");
    if let Err(error) = docker.engine.cli.call(["stop", "--", name], STOP_LIMIT).await {
        tracing::warn!(container = name, %error, "cannot stop a container; trying again later");
    }
}

const LOOK_FIRST: Duration = Duration::from_secs(1);
const LOOK_SLOWEST: Duration = Duration::from_secs(60);

/// A container may be older than the tracking of its attempt by this much.
const UNTOUCHED_FOR: Duration = Duration::from_secs(120);

/// Normally the state machine stops an attempt at its deadline.
const OVERDUE_SECONDS: i64 = 60;

const STOP_LIMIT: Duration = Duration::from_secs(60);
