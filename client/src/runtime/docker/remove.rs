//! Removes containers and directories of forgotten attempts. Several containers go in one call, and each directory after its
//! container, because a container without a directory would be adopted again. A container that fails in a batch is tried alone, so it
//! does not delay others.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::cli::{CallError, CallOutput};
use super::{DockerContext, run_blocking};
use crate::attempt_dir::AttemptDir;
use crate::runtime::removals::RemovalGuard;

/// Container and directory of one attempt.
pub(super) struct QueuedRemoval {
    pub(super) name: String,
    pub(super) dir: AttemptDir,
    /// A new start of the attempt waits for the end of this removal.
    pub(super) _removal: RemovalGuard,
}

/// Removes queued attempts until the queue is closed.
pub(super) async fn run(shared: Arc<DockerContext>, mut leftovers: mpsc::UnboundedReceiver<QueuedRemoval>) {
    let mut batch = Vec::new();
    while leftovers.recv_many(&mut batch, BATCH_MAX).await > 0 {
        tokio::time::sleep(GATHER_FOR).await;
        while batch.len() < BATCH_MAX
            && let Ok(more) = leftovers.try_recv()
        {
            batch.push(more);
        }
        remove(&shared, std::mem::take(&mut batch)).await;
    }
}

async fn remove(shared: &Arc<DockerContext>, batch: Vec<QueuedRemoval>) {
    for stuck in remove_batch(shared, batch).await {
        shared.spawn(retry_until_removed(Arc::clone(shared), stuck));
    }
}

/// Tries one alone, with growing delays, until it is gone.
async fn retry_until_removed(shared: Arc<DockerContext>, stuck: QueuedRemoval) {
    let mut batch = vec![stuck];
    let mut wait = TRY_AGAIN_FIRST;
    loop {
        batch = remove_batch(&shared, batch).await;
        if batch.is_empty() {
            return;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(TRY_AGAIN_SLOWEST);
    }
}

/// Removes a batch and returns the rest. It waits for an unreachable engine. It does not force: a container that still runs is not
/// killed here.
async fn remove_batch(shared: &DockerContext, batch: Vec<QueuedRemoval>) -> Vec<QueuedRemoval> {
    let names = batch.iter().map(|it| it.name.as_str());
    let args: Vec<&str> = ["rm", "-v", "--"].into_iter().chain(names).collect();
    let answer = loop {
        shared.engine.health.wait_until_up().await;
        match shared.engine.call(&args).await {
            Ok(answer) => break Some(answer),
            Err(CallError::Slow(limit)) => {
                tracing::warn!(?limit, "removing containers took too long; trying each one alone");
                break None;
            }
            Err(error) => tracing::warn!(%error, "cannot remove containers yet; trying again"),
        }
        tokio::time::sleep(TRY_AGAIN_FIRST).await;
    };
    if let Some(refused) = answer.as_ref().filter(|it| !it.ok) {
        tracing::warn!(error = refused.error_line(), "cannot remove containers yet; trying again");
    }
    let is_gone =
        |it: &QueuedRemoval| answer.as_ref().is_some_and(|answer| answer.ok || says_gone(answer, &it.name));
    let (gone, left): (Vec<_>, Vec<_>) = batch.into_iter().partition(is_gone);
    // A directory that stays is found again at the next start; the others go on.
    for QueuedRemoval { dir, _removal, .. } in gone {
        run_blocking(move || dir.remove()).await;
    }
    left
}

/// `true` if this container was removed or did not exist.
pub(super) fn says_gone(answer: &CallOutput, name: &str) -> bool {
    answer.stdout.lines().any(|line| line == name) || answer.says_absent(name)
}

/// A removal costs 20 ms alone and 5 ms in a batch.
const BATCH_MAX: usize = 32;

/// Time to collect a batch.
const GATHER_FOR: Duration = Duration::from_millis(20);

/// First delay before another try; it doubles up to [`TRY_AGAIN_SLOWEST`].
const TRY_AGAIN_FIRST: Duration = Duration::from_secs(1);
const TRY_AGAIN_SLOWEST: Duration = Duration::from_secs(60);
