//! Looks again and again for containers that nobody knows of or wants any more.
//!
//! Of this worker's own it stops what is older than two minutes, and removes only what never started: an outcome is removed when it is
//! acknowledged. Those of the cluster's other workers it only tells of; the server knows which of them somebody will come back for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use protocol::order::StopCause;
use protocol::report::Foreign;
use worker::input::RuntimeEvent;
use worker::step::StopStep;

use super::container::{Container, Meaning};
use super::{Shared, stop};
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
        match shared.list(membership.cluster).await {
            Ok(containers) => {
                let (ours, foreign) = sort(containers, membership);
                let sees_foreign = !foreign.is_empty();
                if sees_foreign || saw_foreign {
                    shared.tell(RuntimeEvent::Foreign(foreign));
                }
                saw_foreign = sees_foreign;
                // Before that, what an earlier process has left is not in the books.
                if shared.surveyed.load(Ordering::Acquire) {
                    sweep(&shared, ours).await;
                }
            }
            Err(error) => tracing::warn!(%error, "the sweeper gets no answer"),
        }
    }
}

fn sort(containers: Vec<Container>, membership: Membership) -> (Vec<Container>, Vec<Foreign>) {
    let (mut ours, mut foreign) = (Vec::new(), Vec::new());
    for container in containers {
        match container.owner() {
            Some((_, worker, _)) if worker == membership.worker => ours.push(container),
            Some((_, worker, token)) => foreign.push(Foreign { worker, token }),
            None => {}
        }
    }
    (ours, foreign)
}

async fn sweep(shared: &Arc<Shared>, ours: Vec<Container>) {
    let now = clock::now();
    for container in ours {
        if container.age(now) < UNTOUCHED_FOR {
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
            shared.remove_unstarted(name).await;
        }
        Meaning::Changing | Meaning::Failed(_) | Meaning::Ended => {}
    }
}

const LOOK_FIRST: Duration = Duration::from_secs(1);
const LOOK_SLOWEST: Duration = Duration::from_secs(60);

/// A container may be older than its attempt's place in our books by this much.
const UNTOUCHED_FOR: Duration = Duration::from_secs(120);

/// The brain stops at the deadline; this is for the case that it could not.
const OVERDUE_SECONDS: i64 = 60;

const STOP_LIMIT: Duration = Duration::from_secs(60);
