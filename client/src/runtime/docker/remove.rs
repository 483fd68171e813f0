//! Removes containers and directories of forgotten attempts. Several containers go in one call, and each directory after its
//! container, because a container without a directory would be adopted again. A container that fails in a batch is tried alone, so it
//! does not delay others.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::cli::{CallError, CallOutput};
use super::{DockerState, run_blocking};
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
pub(super) async fn run(docker: Arc<DockerState>, mut leftovers: mpsc::UnboundedReceiver<QueuedRemoval>) {
    let mut batch = Vec::new();
    while leftovers.recv_many(&mut batch, BATCH_MAX).await > 0 {
        tokio::time::sleep(GATHER_FOR).await;
        while batch.len() < BATCH_MAX
            && let Ok(more) = leftovers.try_recv()
        {
            batch.push(more);
        }
        remove(&docker, std::mem::take(&mut batch)).await;
    }
}

async fn remove(docker: &Arc<DockerState>, batch: Vec<QueuedRemoval>) {
    for remaining in remove_batch(docker, batch).await {
        docker.spawn(retry_until_removed(Arc::clone(docker), remaining));
    }
}

/// Tries one removal alone, with growing delays, until the container is gone.
async fn retry_until_removed(docker: Arc<DockerState>, removal: QueuedRemoval) {
    let mut batch = vec![removal];
    let mut wait = RETRY_DELAY_FIRST;
    loop {
        batch = remove_batch(&docker, batch).await;
        if batch.is_empty() {
            return;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY_DELAY_MAX);
    }
}

/// Removes a batch. Returns the removals that remain to be done. It waits for an unreachable engine. It does not force: a container that
/// still runs is not killed here.
async fn remove_batch(docker: &DockerState, batch: Vec<QueuedRemoval>) -> Vec<QueuedRemoval> {
    let names = batch.iter().map(|it| it.name.as_str());
    let args: Vec<&str> = ["rm", "-v", "--"].into_iter().chain(names).collect();
    let next = if batch.len() == 1 { "trying again" } else { "trying each one alone" };
    let answer = loop {
        docker.engine.health.wait_until_up().await;
        match docker.engine.call(&args).await {
            Ok(answer) => break Some(answer),
            Err(CallError::Slow(limit)) => {
                let containers = first_names(batch.iter().map(|it| it.name.as_str()));
                tracing::warn!(containers, ?limit, "removing containers took too long; {next}");
                break None;
            }
            Err(error) => {
                let containers = first_names(batch.iter().map(|it| it.name.as_str()));
                tracing::warn!(containers, %error, "cannot remove containers yet; trying again");
            }
        }
        tokio::time::sleep(RETRY_DELAY_FIRST).await;
    };
    let is_gone = |it: &QueuedRemoval| {
        answer.as_ref().is_some_and(|answer| answer.ok || confirms_removal(answer, &it.name))
    };
    let (gone, remaining): (Vec<_>, Vec<_>) = batch.into_iter().partition(is_gone);
    if let Some(refused) = answer.as_ref().filter(|it| !it.ok && !remaining.is_empty()) {
        let containers = first_names(remaining.iter().map(|it| it.name.as_str()));
        tracing::warn!(containers, error = refused.error_line(), "cannot remove containers yet; {next}");
    }
    // A directory that cannot be removed is found again at the next start.
    for QueuedRemoval { dir, _removal, .. } in gone {
        run_blocking(move || dir.remove()).await;
    }
    remaining
}

/// The names of the first containers, and how many more there are.
fn first_names<'n>(mut names: impl ExactSizeIterator<Item = &'n str>) -> String {
    let first = names.by_ref().take(NAMES_LOGGED).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// `true` if this container was removed or did not exist.
pub(super) fn confirms_removal(answer: &CallOutput, name: &str) -> bool {
    answer.stdout.lines().any(|line| line == name) || answer.says_absent(name)
}

/// Containers of one call. A removal takes 20 ms alone and 5 ms in a batch.
const BATCH_MAX: usize = 32;

/// Containers that a line of the log names.
const NAMES_LOGGED: usize = 5;

/// Time to collect a batch.
const GATHER_FOR: Duration = Duration::from_millis(20);

/// First delay before another try; it doubles up to [`RETRY_DELAY_MAX`].
const RETRY_DELAY_FIRST: Duration = Duration::from_secs(1);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_names_a_bounded_number_of_containers() {
        let all: Vec<String> = (1..=32).map(|n| format!("job-{n}")).collect();
        let names = |count: usize| first_names(all[..count].iter().map(String::as_str));
        assert_eq!(names(1), "job-1");
        assert_eq!(names(NAMES_LOGGED), "job-1, job-2, job-3, job-4, job-5");
        assert_eq!(names(BATCH_MAX), "job-1, job-2, job-3, job-4, job-5 and 27 more");
    }
}
