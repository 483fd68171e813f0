//! The history of the definitions: each load that changes some leaves a row.
//!
//! A row is written when its definitions are in force, never before: a row never tells of a load that did not happen. The definitions
//! themselves are stored as hashes in the transaction of the row. So a process that dies between the two misses nothing: the next start
//! finds other definitions than the stored ones, and writes the row with the cause `start`. A deploy stores its intent before it replaces
//! the jobs file; the start after a crash takes requester and reason from there, if it loads exactly the deployed definitions.
//!
//! While the store takes no rows (its disk is full), they wait in memory, in their order.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::Revision;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Reloaded;
use crate::auth::actor::Actor;
use crate::catalogue::Definitions;
use crate::clock;
use crate::engine::RecordWriter;
use crate::store::{
    ChangedNames, CommitError, DefinitionArchive, DefinitionChange, DefinitionChangeRow, DeployIntent,
    LoadCause, ReadError, RecordChange,
};

mod loaded_set;

pub(super) use loaded_set::{loaded_set, since_last_load};

/// Rows that are kept, the latest ones: years of several loads a day. A row has 10 KB at most, and some 200 bytes usually.
const ROWS_MAX: u64 = 10_000;
/// Rows that wait for the store. Of more than these, the oldest but one is lost.
const WAITING_MAX: usize = 1_000;
/// How long a request waits for the store, which takes nothing while its disk is full or stalled.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after a row that the store did not take.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The requester of a load, and its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadOrigin {
    /// The cause.
    pub cause: LoadCause,
    /// The name of the token, or of the user.
    pub by: Option<Arc<str>>,
    /// The reason that the requester gave.
    pub reason: Option<Arc<str>>,
}

impl LoadOrigin {
    /// The origin of a load that no request asks for.
    #[must_use]
    pub const fn without_request(cause: LoadCause) -> Self {
        Self { cause, by: None, reason: None }
    }

    /// The origin of a load for the present request.
    #[must_use]
    pub fn of_request(cause: LoadCause, reason: Option<Arc<str>>) -> Self {
        Self { cause, by: Actor::current().token.clone(), reason }
    }

    /// The reason and the effect, for the audit log. The reason comes first, since a long text is cut.
    pub(crate) fn after_reason(&self, effect: String) -> String {
        match &self.reason {
            Some(reason) => format!("reason: {reason}; {effect}"),
            None => effect,
        }
    }
}

/// The reason why the history does not have something yet.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The store did not take it.
    #[error("the store did not take the change")]
    Store(#[source] CommitError),
    /// The store has not taken it in time, or not what comes before it.
    #[error("the store takes nothing now")]
    Busy,
    /// The server is being shut down.
    #[error("the server is shutting down")]
    Closed,
}

/// Writes and reads the history of the definitions.
pub struct DefinitionHistory {
    archive: Arc<dyn DefinitionArchive>,
    writer: RecordWriter,
    waiting: Mutex<VecDeque<Waiting>>,
    /// Notified after each addition to `waiting`.
    added: Notify,
    /// Held during a write, so that rows are written in their order.
    turn: tokio::sync::Mutex<()>,
    stop: CancellationToken,
}

impl fmt::Debug for DefinitionHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DefinitionHistory").finish_non_exhaustive()
    }
}

/// The right to write, so that rows are written in their order.
type WriteTurn<'h> = tokio::sync::MutexGuard<'h, ()>;

/// A change that waits for the store.
struct Waiting {
    change: DefinitionChange,
    /// Gets the result of the first try.
    tried: Option<oneshot::Sender<bool>>,
}

/// The result of the first try to write a row.
#[must_use]
pub(super) struct FirstTry(oneshot::Receiver<bool>);

impl FirstTry {
    /// True if the row is durable. A store that takes nothing now is not waited for.
    pub(super) async fn succeeded(self) -> bool {
        timeout(STORE_TIMEOUT, self.0).await.is_ok_and(|tried| tried.unwrap_or(false))
    }
}

impl DefinitionHistory {
    /// The history in this store.
    #[must_use]
    pub fn new(archive: Arc<dyn DefinitionArchive>, writer: RecordWriter) -> Self {
        Self {
            archive,
            writer,
            waiting: Mutex::default(),
            added: Notify::new(),
            turn: tokio::sync::Mutex::default(),
            stop: CancellationToken::new(),
        }
    }

    /// Adds the row of a start, if its definitions are other ones than those of the last load. Blocks on the disk.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn record_start(&self, definitions: &Definitions) -> Result<(), ReadError> {
        let last = self.archive.last_load()?;
        let loaded = loaded_set(definitions);
        if last.deploying.is_none() && last.loaded.as_ref() == Some(&loaded) {
            return Ok(());
        }
        let change = since_last_load(last.loaded.as_ref(), &loaded, definitions.revision());
        let origin = match last.deploying {
            Some(intent) if intent.after == loaded.revision => LoadOrigin {
                cause: LoadCause::Deploy,
                by: intent.by.map(Into::into),
                reason: intent.reason.map(Into::into),
            },
            _ => LoadOrigin::without_request(LoadCause::Start),
        };
        let before =
            last.loaded.and_then(|loaded| u128::from_str_radix(&loaded.revision, 16).ok().map(Revision));
        let row = change.changes().is_some().then(|| row(&origin, before, &change));
        let _unneeded = self.add(row, definitions);
        Ok(())
    }

    /// Adds the row of a load that is in force. It does not wait for the store, so nobody can cancel it.
    pub(super) fn record_load(
        &self,
        origin: &LoadOrigin,
        before: Revision,
        change: &Reloaded,
        definitions: &Definitions,
    ) -> FirstTry {
        self.add(Some(row(origin, Some(before), change)), definitions)
    }

    fn add(&self, row: Option<DefinitionChangeRow>, definitions: &Definitions) -> FirstTry {
        let (tried, first_try) = oneshot::channel();
        let (row, loaded) = (row.map(Box::new), loaded_set(definitions));
        let change = DefinitionChange::Loaded { row, loaded, rows_max: ROWS_MAX };
        let mut waiting = self.waiting();
        waiting.push_back(Waiting { change, tried: Some(tried) });
        if waiting.len() > WAITING_MAX {
            // The first one may be on its way. The row after the lost one has the revision before it, which shows the gap.
            waiting.remove(1);
            tracing::error!("a row of the history of the definitions is lost: the store has not taken it");
        }
        drop(waiting);
        self.added.notify_one();
        FirstTry(first_try)
    }

    /// Stores that a deploy is about to replace the jobs file.
    ///
    /// # Errors
    /// The store does not have it: nothing may be replaced.
    pub(super) async fn begin_deploy(
        self: &Arc<Self>,
        origin: &LoadOrigin,
        after: Revision,
    ) -> Result<(), HistoryError> {
        let LoadOrigin { cause: _, by, reason } = origin;
        let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
        let intent = DeployIntent { by: text(by), reason: text(reason), after: after.to_string() };
        let (reply, mut begun) = oneshot::channel();
        let history = self.clone();
        // A task of its own: the store may take the intent after the deploy has given up.
        tokio::spawn(async move {
            // Held until the end: between the intent and its withdrawal, no other deploy stores its own, which the withdrawal would delete.
            let turn = history.turn.lock().await;
            if reply.is_closed() {
                return;
            }
            let stored = history.store_intent(intent, &turn).await;
            let may_be_stored = !matches!(stored, Err(HistoryError::Busy));
            if reply.send(stored).is_err() && may_be_stored {
                history.withdraw_intent(&turn).await;
            }
        });
        if let Ok(stored) = timeout(STORE_TIMEOUT, &mut begun).await {
            return stored.unwrap_or(Err(HistoryError::Closed));
        }
        begun.close();
        // It may have come at this moment.
        begun.try_recv().unwrap_or(Err(HistoryError::Busy))
    }

    async fn store_intent(&self, intent: DeployIntent, turn: &WriteTurn<'_>) -> Result<(), HistoryError> {
        // A row that is written after the intent would end it.
        if !self.write_all(turn).await {
            return Err(HistoryError::Busy);
        }
        self.change(DefinitionChange::Deploying(intent)).await
    }

    /// Takes back the intent of a deploy that has replaced nothing. If that fails, the next row does so.
    pub(super) async fn cancel_deploy(&self) {
        let turn = self.turn.lock().await;
        self.withdraw_intent(&turn).await;
    }

    async fn withdraw_intent(&self, _turn: &WriteTurn<'_>) {
        if let Err(error) = self.change(DefinitionChange::NotDeployed).await {
            tracing::warn!(%error, "the store still has the intent of a deploy that was refused");
        }
    }

    /// Reads rows with numbers below `before`, the newest first, and returns the first `limit` of those that `fits` keeps. Blocks on the disk.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn read(
        &self,
        before: u64,
        limit: usize,
        fits: impl Fn(&DefinitionChangeRow) -> bool,
    ) -> Result<Vec<DefinitionChangeRow>, ReadError> {
        let (mut found, mut before) = (Vec::new(), before);
        loop {
            let rows = self.archive.definition_changes(before, ROWS_PER_READ)?;
            let Some(last) = rows.last() else { return Ok(found) };
            before = last.id;
            found.extend(rows.into_iter().filter(|row| fits(row)).take(limit - found.len()));
            if found.len() >= limit {
                return Ok(found);
            }
        }
    }

    /// Writes rows as they come, until [`Self::finish`].
    pub async fn run(&self) {
        while !self.stop.is_cancelled() {
            let is_written = self.write_waiting().await;
            let wait = async {
                match is_written {
                    true => self.added.notified().await,
                    false => tokio::time::sleep(RETRY_AFTER).await,
                }
            };
            tokio::select! {
                () = wait => {}
                () = self.stop.cancelled() => {}
            }
        }
    }

    /// Writes the rows that are left. Call it after the last request: those that are under way at a shutdown leave rows, too.
    pub async fn finish(&self) {
        self.stop.cancel();
        self.write_waiting().await;
    }

    /// Writes the rows that wait. Returns false if some still do.
    pub async fn write_waiting(&self) -> bool {
        let turn = self.turn.lock().await;
        self.write_all(&turn).await
    }

    async fn write_all(&self, _turn: &WriteTurn<'_>) -> bool {
        loop {
            let Some(change) = self.waiting().front().map(|first| first.change.clone()) else { return true };
            let result = self.change(change).await;
            let mut waiting = self.waiting();
            let tried = waiting.front_mut().and_then(|first| first.tried.take());
            let is_first = tried.is_some();
            if let Some(tried) = tried {
                // The requester may have gone.
                let _ = tried.send(result.is_ok());
            }
            match result {
                Ok(()) => drop(waiting.pop_front()),
                Err(error @ HistoryError::Store(CommitError::Refused(_))) => {
                    tracing::error!(%error, "a row of the history of the definitions is lost");
                    waiting.pop_front();
                }
                Err(error) => {
                    if is_first {
                        tracing::warn!(%error, "a row of the history of the definitions waits for the store");
                    }
                    return false;
                }
            }
        }
    }

    async fn change(&self, change: DefinitionChange) -> Result<(), HistoryError> {
        let changed = self.writer.change(RecordChange::Definitions(change)).await;
        changed.ok_or(HistoryError::Closed)?.map_err(HistoryError::Store)
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn row(origin: &LoadOrigin, before: Option<Revision>, change: &Reloaded) -> DefinitionChangeRow {
    let LoadOrigin { cause, by, reason } = origin;
    DefinitionChangeRow {
        id: 0,
        at: clock::now().utc,
        cause: *cause,
        by: by.as_deref().map(str::to_owned),
        reason: reason.as_deref().map(str::to_owned),
        before,
        after: change.revision,
        added: ChangedNames::of(&change.added),
        changed: ChangedNames::of(&change.changed),
        removed: ChangedNames::of(&change.removed),
        policy_changed: change.policy_changed,
    }
}

/// Adds a warning if the row of a load is not in the store yet.
pub(super) async fn warn_if_unwritten(row: Option<FirstTry>, warnings: &mut Vec<String>) {
    if let Some(row) = row
        && !row.succeeded().await
    {
        warnings.push(NOT_IN_HISTORY.to_owned());
    }
}

const NOT_IN_HISTORY: &str = "the load is not in the history of the definitions yet, since the store does not take it: the log of the server has the reason";

/// Rows of one read, so that a filter reads no more at once.
const ROWS_PER_READ: usize = 500;

#[cfg(test)]
mod tests;
