//! Removing what is left of attempts about which everything is durable: a few containers by one call, the directory after its container.
//! In this order, because a container without a directory would be adopted again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

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

async fn remove(shared: &Shared, batch: Vec<Leftover>) {
    let names = batch.iter().map(|it| it.name.as_str());
    let args: Vec<&str> = ["rm", "-f", "-v", "--"].into_iter().chain(names).collect();
    loop {
        shared.health.wait_until_up().await;
        match shared.call(&args).await {
            Ok(answer) if answer.ok || is_gone(&answer.stderr) => break,
            Ok(answer) => tracing::warn!(complaint = answer.complaint(), "containers cannot be removed yet"),
            Err(error) => tracing::warn!(%error, "containers cannot be removed yet"),
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
    blocking(move || batch.iter().try_for_each(|it| it.dir.remove())).await;
}

/// Whether all that is wrong is that some of them are not there.
fn is_gone(stderr: &str) -> bool {
    stderr.lines().all(|line| line.contains("No such container"))
}

/// Removing costs 20 ms alone and 5 ms each in a batch.
const BATCH_MAX: usize = 32;

/// How long the first one waits for company.
const GATHER_FOR: Duration = Duration::from_millis(20);

const TRY_AGAIN: Duration = Duration::from_secs(5);
