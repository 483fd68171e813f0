//! Deletes ended jobs, idempotency keys and late reports once they have been kept long enough, in small steps.
//!
//! Each step is a transaction of the store's one writer, so commits have to wait for it. Therefore a step is short, and between two of
//! them commits have the writer to themselves for several times as long. What is due is found by index: looking costs the same
//! whether the store holds a thousand jobs or ten million.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use protocol::{Now, Timestamp};
use tokio::time::sleep;

use super::leftovers;
use super::trusted_clock::TrustedClock;
use crate::catalogue::Catalogue;
use crate::config::Retention as ServerRetention;
use crate::engine::{Removal, RemovalStep, Remover};
use crate::retention_time::RetentionTime;
use crate::store::{CommitError, DefinitionCutoffs, DefinitionRemoval, Removed, RetentionCutoffs};

/// Deletes what has been kept long enough.
pub(super) struct JobRetention<C> {
    remover: Remover,
    retention: ServerRetention,
    /// The definitions, for their own rules.
    catalogue: Arc<Catalogue>,
    /// The time of the last step, for the other tasks.
    time: RetentionTime,
    /// The data directory, for leftovers.
    data: PathBuf,
    clock: C,
    trusted_clock: TrustedClock,
}

/// Nobody deletes anything any more: the store is closed, or another server's.
struct StoreClosed;

/// The end of a round: all that was due is deleted, or an error wants a pause.
enum Round {
    Done,
    Failed(Duration),
}

impl<C: Fn() -> Now> JobRetention<C> {
    /// `last_trusted` is the time that an earlier process used last.
    pub(super) fn new(
        remover: Remover,
        retention: ServerRetention,
        data: PathBuf,
        last_trusted: Option<Timestamp>,
        clock: C,
    ) -> Self {
        let trusted_clock = TrustedClock::new(last_trusted, clock());
        let (catalogue, time) = (Arc::default(), RetentionTime::unknown());
        Self { remover, retention, catalogue, time, data, clock, trusted_clock }
    }

    /// Goes by the rules of these definitions as well, and writes down the time that it goes by.
    pub(super) fn with_definitions(self, catalogue: Arc<Catalogue>, time: RetentionTime) -> Self {
        Self { catalogue, time, ..self }
    }

    /// Goes on until the store is closed.
    ///
    /// # Cancel safety
    /// Dropping the future leaves at most one step under way.
    pub(super) async fn run(&mut self) {
        while let Ok(pause) = self.run_once().await {
            sleep(pause).await;
        }
    }

    /// Deletes all that is due, and says when to look again.
    async fn run_once(&mut self) -> Result<Duration, StoreClosed> {
        let mut sum = Removed::default();
        let mut round = self.apply_server_retention(&mut sum).await?;
        if let Round::Done = round {
            round = self.remove_by_definition(&mut sum).await?;
        }
        let Removed { jobs, keys, late_reports, .. } = sum;
        if jobs + keys + late_reports > 0 {
            tracing::info!(jobs, keys, late_reports, "deleted rows beyond retention");
        }
        Ok(match round {
            Round::Done => CHECK_EVERY,
            Round::Failed(pause) => pause,
        })
    }

    /// Deletes what is beyond the limits of the server.
    async fn apply_server_retention(&mut self, sum: &mut Removed) -> Result<Round, StoreClosed> {
        loop {
            let now = (self.clock)();
            let time = self.trusted_clock.time(now);
            self.time.set(time);
            let by = self.trusted_clock.to_write(now.up);
            let cutoffs = RetentionCutoffs { by, ..self.retention.cutoffs(time, ROWS_MAX) };
            let step = match self.step(Removal::ByServer(cutoffs)).await? {
                Ok(step) => step,
                Err(pause) => return Ok(Round::Failed(pause)),
            };
            if let Some(time) = by {
                self.trusted_clock.wrote(now.up);
                self.remove_leftovers(time).await;
            }
            add(sum, step.removed);
            if !step.removed.more {
                return Ok(Round::Done);
            }
            sleep(step.took * OTHERS_SHARE).await;
        }
    }

    /// Deletes what is beyond the limits of definitions. Each step reads the rules again, so that a reload counts at once.
    async fn remove_by_definition(&mut self, sum: &mut Removed) -> Result<Round, StoreClosed> {
        let mut after = String::new();
        loop {
            let now = self.trusted_clock.time((self.clock)());
            let definitions = self.catalogue.current();
            let rules = definitions.retention_rules(&after, RULES_AT_ONCE);
            let Some((last, _)) = rules.last() else { return Ok(Round::Done) };
            let cutoffs: Arc<[DefinitionCutoffs]> =
                rules.iter().filter_map(|(name, rule)| rule.cutoffs(name, now)).collect();
            let kept_since = now - self.retention.age_min;
            let removal = DefinitionRemoval { definitions: cutoffs, kept_since, now, rows_max: ROWS_MAX };
            let step = match self.step(Removal::ByDefinition(removal)).await? {
                Ok(step) => step,
                Err(pause) => return Ok(Round::Failed(pause)),
            };
            add(sum, step.removed);
            if !step.removed.more {
                after = (*last).to_owned();
            }
            sleep(step.took * OTHERS_SHARE).await;
        }
    }

    /// Makes one step. After an error the inner result is the time until the next try.
    async fn step(&self, removal: Removal) -> Result<Result<RemovalStep, Duration>, StoreClosed> {
        match self.remover.remove(removal).await.ok_or(StoreClosed)? {
            Ok(step) => {
                self.remover.health().note_retention(Ok::<_, CommitError>(()));
                Ok(Ok(step))
            }
            // The engine meets the same, and says it.
            Err(CommitError::EpochReplaced { .. }) => Err(StoreClosed),
            Err(error @ CommitError::Refused(_)) => {
                self.remover.health().note_retention(Err(&error));
                tracing::error!(%error, "the store refused to delete old rows; trying again in an hour");
                Ok(Err(AFTER_REFUSAL))
            }
            Err(error) => {
                self.remover.health().note_retention(Err(&error));
                tracing::warn!(%error, "the store is unavailable: retention tries again in some seconds");
                Ok(Err(CHECK_EVERY))
            }
        }
    }
}

fn add(sum: &mut Removed, removed: Removed) {
    sum.jobs += removed.jobs;
    sum.keys += removed.keys;
    sum.late_reports += removed.late_reports;
}

impl<C> JobRetention<C> {
    /// Deletes old leftovers, once for each time that is written down: hourly.
    async fn remove_leftovers(&self, time: Timestamp) {
        let data = self.data.clone();
        // A panic has been reported by its hook; the next hour tries again.
        let _ = tokio::task::spawn_blocking(move || leftovers::remove_old(&data, time)).await;
    }
}

/// Rows of one kind in a step: a few milliseconds.
const ROWS_MAX: usize = 500;
/// Definitions with rules in a step: each costs some lookups in indexes, and all of them some milliseconds.
const RULES_AT_ONCE: usize = 200;
/// The pause after a step, in multiples of its length: commits have the writer for themselves meanwhile.
const OTHERS_SHARE: u32 = 4;
/// Rows become due within minutes and days; a check costs some microseconds.
const CHECK_EVERY: Duration = Duration::from_secs(10);
const AFTER_REFUSAL: Duration = Duration::from_secs(3_600);

#[cfg(test)]
pub(super) mod tests;
