//! Stopping what another worker has left on our engine, on the server's order: that worker was scaled down, or has lost its state
//! directory, and will never do it.
//!
//! Nothing of it is kept: its labels are all that is known, and its outcome is nobody's any more. What does not succeed is ordered again
//! when somebody has looked around the next time.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::Token;

use super::Shared;
use super::cli::CallError;
use super::container::{Container, Meaning};
use crate::attempt_dir::describe;
use crate::runtime::Membership;

/// What is being evicted.
#[derive(Default)]
pub(super) struct Evictions(Mutex<HashSet<Token>>);

impl Evictions {
    fn under_way(&self) -> MutexGuard<'_, HashSet<Token>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stops and removes it, unless that is under way already.
pub(super) async fn evict(shared: Arc<Shared>, token: Token, membership: Membership) {
    if !shared.evictions.under_way().insert(token) {
        return;
    }
    let name = token.container_name(membership.cluster);
    if let Err(error) = try_once(&shared, &name, token, membership).await {
        tracing::warn!(container = name, error = describe(&error), "cannot be evicted yet");
    }
    shared.evictions.under_way().remove(&token);
}

async fn try_once(
    shared: &Shared,
    name: &str,
    token: Token,
    membership: Membership,
) -> Result<(), CallError> {
    let Some(container) = shared.inspect(&[name]).await?.into_iter().next() else { return Ok(()) };
    if !is_anothers(&container, token, membership) {
        tracing::error!(container = name, "is not what the server took it for: it is left alone");
        return Ok(());
    }
    if container.meaning() == Meaning::Changing {
        return Ok(());
    }
    if container.meaning() == Meaning::Running {
        // Its own grace is in the container.
        let answer = shared.cli.call(["stop", "--", name], STOP_LIMIT).await?;
        if !answer.ok {
            return Err(CallError::Unreachable(answer.complaint()));
        }
    }
    tracing::info!(container = name, "is removed: the worker that it belonged to is gone");
    shared.remove_now(name).await;
    Ok(())
}

/// Whether the labels say so: the same name may be an attempt's of another life of the database.
fn is_anothers(container: &Container, token: Token, membership: Membership) -> bool {
    container.owner().is_some_and(|(cluster, worker, whose)| {
        cluster == membership.cluster && worker != membership.worker && whose == token
    })
}

/// A container with a longer grace is stopped all the same: the engine goes on with it when the call is given up, and the next order
/// finds it gone or ended.
const STOP_LIMIT: Duration = Duration::from_secs(60);
