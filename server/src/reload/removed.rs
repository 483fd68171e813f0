//! Cancels the waiting jobs of definitions that jobs.yaml no longer has, if the operator wants that (`--removed-definitions cancel`).
//!
//! The definitions are derived from the state after each load, so a crash between two jobs leaves nothing behind: the next start goes on. Jobs
//! that a worker has by then run to their end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use scheduler::job::State;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::Reloader;
use crate::engine::Busy;
use crate::store::{Archive, JobFilter, ReadError, RunOnRole};

/// The reason why a round ended early.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error("the store cannot be read: {0}")]
    Read(#[from] ReadError),
    #[error("the thread that read the store panicked: {0}")]
    Panicked(#[from] tokio::task::JoinError),
    #[error("the server is busy")]
    Busy,
}

impl From<Busy> for RoundError {
    fn from(Busy: Busy) -> Self {
        Self::Busy
    }
}

impl Reloader {
    /// Cancels waiting jobs of removed definitions at the start and after each load, until `shutdown` is cancelled.
    pub async fn cancel_removed(&self, archive: Arc<dyn Archive>, shutdown: CancellationToken) {
        let cancelling = async {
            loop {
                let loaded = self.loaded.notified();
                while let Err(error) = self.cancel_round(&archive).await {
                    tracing::warn!(%error, "cannot cancel jobs of removed definitions; trying again in some seconds");
                    sleep(TRY_AGAIN).await;
                }
                loaded.await;
            }
        };
        tokio::select! {
            () = cancelling => {}
            () = shutdown.cancelled() => {}
        }
    }

    /// Cancels what waits now.
    async fn cancel_round(&self, archive: &Arc<dyn Archive>) -> Result<(), RoundError> {
        let names = self.removed_names();
        if names.is_empty() {
            return Ok(());
        }
        let mut filter = JobFilter {
            states: vec![State::Scheduled, State::Queued],
            names: names.iter().cloned().collect(),
            limit: PAGE,
            ..JobFilter::default()
        };
        let mut cancelled = 0_u64;
        loop {
            let (archive, page) = (Arc::clone(archive), filter.clone());
            let rows = tokio::task::spawn_blocking(move || archive.jobs(&page)).await??;
            // A member of a job on several workers goes with its parent: it ends with one that waits, and runs with one that has started.
            let whole = rows.iter().filter(|row| !matches!(row.run_on_role, RunOnRole::Member(_)));
            for row in whole {
                // A job that has started or ended meanwhile is refused, and that is right.
                self.engine.cancel_waiting(row.job, REQUESTER.to_owned()).await?;
                cancelled += 1;
            }
            let Some(last) = rows.last().filter(|_| rows.len() == PAGE) else { break };
            filter.before = Some(last.job);
        }
        if cancelled > 0 {
            tracing::info!(jobs = cancelled, definitions = ?names, "cancelled waiting jobs of removed definitions");
        }
        Ok(())
    }

    /// Names of definitions that jobs refer to and the present file does not have. None if it has no jobs at all: a reload to such a file is
    /// refused as a mistake, and a start with one must not cancel all jobs either.
    fn removed_names(&self) -> BTreeSet<String> {
        let current = self.catalogue.current();
        if current.iter().next().is_none() {
            return BTreeSet::new();
        }
        let snapshot = self.engine.snapshot();
        let in_use = snapshot.definitions.values().map(|definition| &definition.name);
        in_use.filter(|name| current.find(name).is_none()).cloned().collect()
    }
}

/// The requester in the reason of a job: "cancelled by the removal …".
const REQUESTER: &str = "the removal of its definition from jobs.yaml";
/// Jobs that are read at once.
const PAGE: usize = 200;
const TRY_AGAIN: Duration = Duration::from_secs(5);
