//! Removing what is left of attempts about which everything is durable: a few containers by one call, the directory after its container.
//! In this order, because a container without a directory would be adopted again. What does not go with the others is tried alone, so
//! that one container which the engine cannot let go of keeps nothing else.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::cli::{Answer, CallError};
use super::{Shared, blocking};
use crate::attempt_dir::AttemptDir;
use crate::runtime::removals::Removal;

/// What is left of one attempt.
pub(super) struct Leftover {
    pub(super) name: String,
    pub(super) dir: AttemptDir,
    /// A new start of the attempt waits for its end.
    pub(super) _removal: Removal,
}

/// Removes what comes in, until nothing can come any more.
pub(super) async fn run(shared: Arc<Shared>, mut leftovers: mpsc::UnboundedReceiver<Leftover>) {
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

async fn remove(shared: &Arc<Shared>, batch: Vec<Leftover>) {
    for stuck in try_to_remove(shared, batch).await {
        shared.spawn(insist(Arc::clone(shared), stuck));
    }
}

/// Tries alone, less and less often, until it is gone.
async fn insist(shared: Arc<Shared>, stuck: Leftover) {
    let mut batch = vec![stuck];
    let mut wait = TRY_AGAIN_FIRST;
    loop {
        batch = try_to_remove(&shared, batch).await;
        if batch.is_empty() {
            return;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(TRY_AGAIN_SLOWEST);
    }
}

/// Removes what the engine lets go of; gives back what it does not. An engine that is not there is waited for. Without force: one that
/// runs after all, whatever was said of it, is nobody's to kill here.
async fn try_to_remove(shared: &Shared, batch: Vec<Leftover>) -> Vec<Leftover> {
    let names = batch.iter().map(|it| it.name.as_str());
    let args: Vec<&str> = ["rm", "-v", "--"].into_iter().chain(names).collect();
    let answer = loop {
        shared.health.wait_until_up().await;
        match shared.call(&args).await {
            Ok(answer) => break Some(answer),
            Err(CallError::Slow(limit)) => {
                tracing::warn!(?limit, "containers are not removed in time");
                break None;
            }
            Err(error) => tracing::warn!(%error, "containers cannot be removed yet"),
        }
        tokio::time::sleep(TRY_AGAIN_FIRST).await;
    };
    if let Some(refused) = answer.as_ref().filter(|it| !it.ok) {
        tracing::warn!(complaint = refused.complaint(), "containers cannot be removed yet");
    }
    let is_gone =
        |it: &Leftover| answer.as_ref().is_some_and(|answer| answer.ok || tells_gone(answer, &it.name));
    let (gone, left): (Vec<_>, Vec<_>) = batch.into_iter().partition(is_gone);
    // One that cannot be removed is no reason to keep the others; it is found again at the next start.
    for Leftover { dir, _removal, .. } in gone {
        blocking(move || dir.remove()).await;
    }
    left
}

/// Whether this one was removed, or was not there.
pub(super) fn tells_gone(answer: &Answer, name: &str) -> bool {
    answer.stdout.lines().any(|line| line == name) || answer.tells_absent(name)
}

/// Removing costs 20 ms alone and 5 ms each in a batch.
const BATCH_MAX: usize = 32;

/// How long the first one waits for company.
const GATHER_FOR: Duration = Duration::from_millis(20);

/// The first wait before another try; it doubles up to [`TRY_AGAIN_SLOWEST`].
const TRY_AGAIN_FIRST: Duration = Duration::from_secs(1);
const TRY_AGAIN_SLOWEST: Duration = Duration::from_secs(60);
