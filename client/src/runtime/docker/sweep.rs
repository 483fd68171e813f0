//! Looks once a minute for containers of ours that nobody knows of or wants any more. Only this cluster's and this worker's, only
//! those older than two minutes; it stops, and removes only what never started: an outcome is removed when it is acknowledged.

use std::sync::Arc;
use std::time::Duration;

use protocol::order::StopCause;
use tokio::time::{MissedTickBehavior, interval};
use worker::step::StopStep;

use super::container::{Container, Meaning};
use super::{Shared, stop};
use crate::clock;
use crate::runtime::Membership;

/// Looks for ever.
pub(super) async fn run(shared: Arc<Shared>, membership: Membership) {
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first one is at once, and a survey is under way then.
    looks.tick().await;
    loop {
        looks.tick().await;
        shared.health.wait_until_up().await;
        match shared.list(membership.cluster).await {
            Ok(containers) => sweep(&shared, membership, containers).await,
            Err(error) => tracing::warn!(%error, "the sweeper gets no answer"),
        }
    }
}

async fn sweep(shared: &Arc<Shared>, membership: Membership, containers: Vec<Container>) {
    let now = clock::now();
    for container in containers {
        let ours = container
            .owner()
            .is_some_and(|(cluster, worker, _)| Membership { cluster, worker } == membership);
        if !ours || container.age(now) < UNTOUCHED_FOR {
            continue;
        }
        match shared.attempt_named(container.name()) {
            Some(attempt) => {
                let deadline = container.label("deadline").and_then(|it| it.parse::<i64>().ok());
                let overdue =
                    deadline.is_some_and(|at| now.utc.0 / 1000 > at.saturating_add(OVERDUE_SECONDS));
                if overdue && container.meaning() == Meaning::Running && !attempt.is_stopping() {
                    tracing::warn!(container = container.name(), "is past its deadline and is stopped");
                    let grace = attempt.launch.spec.stop_grace;
                    shared.spawn(stop::step(
                        Arc::clone(shared),
                        attempt,
                        StopCause::Timeout,
                        StopStep::Ask { grace },
                    ));
                }
            }
            None => leftover(shared, &container).await,
        }
    }
}

async fn leftover(shared: &Shared, container: &Container) {
    let name = container.name();
    match container.meaning() {
        Meaning::Running => {
            tracing::warn!(
                container = name,
                "nobody knows of it: it is stopped, and reported at the next start"
            );
            if let Err(error) = shared.cli.call(["stop", "--", name], STOP_LIMIT).await {
                tracing::warn!(container = name, %error, "cannot be stopped");
            }
        }
        Meaning::Unstarted => {
            tracing::info!(container = name, "was made and never started: it is removed");
            shared.remove_now(name).await;
        }
        Meaning::Changing | Meaning::Failed(_) | Meaning::Ended => {}
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(60);

/// A container may be older than its attempt's place in our books by this much.
const UNTOUCHED_FOR: Duration = Duration::from_secs(120);

/// The brain stops at the deadline; this is for the case that it could not.
const OVERDUE_SECONDS: i64 = 60;

const STOP_LIMIT: Duration = Duration::from_secs(60);
