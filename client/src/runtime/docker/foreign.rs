//! Removes containers of other workers on this engine, on the server's order. Their worker was scaled down or has lost its state directory,
//! and will never do it.
//!
//! No record is kept: only the labels are known, and the outcome is dropped. A failed removal is ordered again after the next look at
//! the engine.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::Token;

use super::DockerState;
use super::cli::CallError;
use super::container::{Container, Lifecycle};
use crate::error_chain::error_chain;
use crate::runtime::Membership;

/// Removals under way.
#[derive(Default)]
pub(super) struct UnmanagedRemovals(Mutex<HashSet<Token>>);

impl UnmanagedRemovals {
    fn in_progress(&self) -> MutexGuard<'_, HashSet<Token>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stops and removes the container, unless that is under way.
pub(super) async fn remove(docker: Arc<DockerState>, token: Token, membership: Membership) {
    if !docker.registry.unmanaged_removals.in_progress().insert(token) {
        return;
    }
    let name = token.container_name(membership.cluster);
    if let Err(error) = try_once(&docker, &name, token, membership).await {
        tracing::warn!(
            container = name,
            error = error_chain(&error),
            "cannot remove a container of another worker yet; the server will ask again"
        );
    }
    docker.registry.unmanaged_removals.in_progress().remove(&token);
}

async fn try_once(
    docker: &DockerState,
    name: &str,
    token: Token,
    membership: Membership,
) -> Result<(), CallError> {
    let Some(container) = docker.engine.inspect(&[name]).await?.into_iter().next() else { return Ok(()) };
    if !belongs_to_other_worker(&container, token, membership) {
        tracing::error!(
            container = name,
            "the labels of a container do not fit the order to remove it; leaving it alone"
        );
        return Ok(());
    }
    if container.lifecycle() == Lifecycle::Changing {
        return Ok(());
    }
    if container.lifecycle() == Lifecycle::Running {
        // The container carries its own grace.
        let answer = docker.engine.cli.call(["stop", "--", name], STOP_LIMIT).await?;
        if !answer.ok {
            return Err(CallError::Unreachable(answer.error_line()));
        }
    }
    tracing::info!(container = name, "removing a container of a worker that is gone");
    docker.engine.remove_now(name).await;
    Ok(())
}

/// `true` if the labels confirm it. The same name may belong to an attempt of an older database.
fn belongs_to_other_worker(container: &Container, token: Token, membership: Membership) -> bool {
    container.owner().is_some_and(|(cluster, worker, whose)| {
        cluster == membership.cluster && worker != membership.worker && whose == token
    })
}

/// A container with a longer grace is stopped all the same: the engine continues after the call is killed, and the next order finds the
/// container ended or gone.
const STOP_LIMIT: Duration = Duration::from_secs(60);
