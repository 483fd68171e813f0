//! The thread that owns the store's write side: it takes a group, makes it durable, and reports the result.
//!
//! The error of a commit decides the reaction (docs/design/storage.md, S3 to S7). *Unavailable*: the same group is tried again, and nothing
//! is answered. *EpochReplaced*: the engine ends. *Refused* and *fatal* end the process: the supervisor restarts it, and it rebuilds its
//! state from the store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use protocol::Epoch;
use scheduler::hooks::{HookResult, HookRow};
use scheduler::pauses::{PauseChange, PauseTarget};
use scheduler::step::Change;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::EngineError;
use super::health::Health;
use super::refused::{GroupFingerprints, Refused};
use super::refused_group;
use crate::store::{CommitError, DefinitionRemoval, Group, RecordChange, Removed, RetentionCutoffs, Store};

/// The first wait before an unavailable store is tried again; it doubles up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// After this long without a group the store may do its upkeep.
const IDLE_AFTER: Duration = Duration::from_millis(500);

/// Space is managed this often while groups follow one another: a step may take some milliseconds.
const SPACE_INTERVAL: Duration = Duration::from_secs(5);

/// A task of the writer thread.
enum WriterTask {
    /// Make a group durable that came of these inputs.
    Commit(Arc<Group>, GroupFingerprints),
    /// Delete some of what is no longer to be kept.
    Remove(Epoch, Removal, oneshot::Sender<Result<RemovalStep, CommitError>>),
    /// Change rows that are no part of the scheduler's state.
    ChangeRecord(Epoch, RecordChange, oneshot::Sender<Result<(), CommitError>>),
    /// Close the store.
    Stop,
}

/// The limits that a step of retention goes by.
#[derive(Clone, Debug)]
pub enum Removal {
    /// Those of the server.
    ByServer(RetentionCutoffs),
    /// Those of definitions.
    ByDefinition(DefinitionRemoval),
}

/// A step of retention.
#[derive(Clone, Copy, Debug)]
pub struct RemovalStep {
    /// The rows that were deleted.
    pub removed: Removed,
    /// Time that commits had to wait for it.
    pub took: Duration,
}

/// The handle by which retention deletes rows.
#[derive(Clone, Debug)]
pub struct Remover {
    tasks: Sender<WriterTask>,
    epoch: Epoch,
    health: Arc<Health>,
}

impl Remover {
    /// Receives the result of each step.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Deletes some of what is no longer to be kept, between two commits; nothing if the store is being closed.
    ///
    /// # Errors
    /// As for a commit, but never [`CommitError::Fatal`]: that ends the process.
    pub async fn remove(&self, removal: Removal) -> Option<Result<RemovalStep, CommitError>> {
        let (reply, answer) = oneshot::channel();
        self.tasks.send(WriterTask::Remove(self.epoch, removal, reply)).ok()?;
        answer.await.ok()
    }
}

/// The handle by which rows are changed that are no part of the scheduler's state.
#[derive(Clone, Debug)]
pub struct RecordWriter {
    tasks: Sender<WriterTask>,
    epoch: Epoch,
}

impl RecordWriter {
    /// A handle of a store that is closed: it takes no change.
    #[must_use]
    pub fn closed() -> Self {
        Self { tasks: channel().0, epoch: Epoch(0) }
    }

    /// Makes a change durable, between two commits; `None` if the store is being closed.
    ///
    /// # Errors
    /// As for a commit, but never [`CommitError::Fatal`]: that ends the process.
    pub async fn change(&self, change: RecordChange) -> Option<Result<(), CommitError>> {
        let (reply, answer) = oneshot::channel();
        self.tasks.send(WriterTask::ChangeRecord(self.epoch, change, reply)).ok()?;
        answer.await.ok()
    }
}

/// The handle by which the engine commits.
#[derive(Debug)]
pub(super) struct StoreWriter {
    tasks: Sender<WriterTask>,
    committed: UnboundedReceiver<Result<(), CommitError>>,
    thread: thread::JoinHandle<()>,
}

impl StoreWriter {
    /// Starts the thread. Before a refused group ends the process, a report of it is written to `data_dir`, and its inputs are recorded.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start(
        store: Box<dyn Store>,
        data_dir: PathBuf,
        refused: Arc<Refused>,
    ) -> std::io::Result<Self> {
        let (tasks, inbox) = channel();
        let (outbox, committed) = unbounded_channel();
        let thread = thread::Builder::new()
            .name("store".into())
            .spawn(move || serve(store, &inbox, &outbox, &data_dir, &refused))?;
        Ok(Self { tasks, committed, thread })
    }

    /// Hands over a group. At most one is under way at a time.
    pub(super) fn hand_over(&self, group: Arc<Group>, fingerprints: GroupFingerprints) {
        // The thread ends only after it has reported the reason through `committed`.
        let _ = self.tasks.send(WriterTask::Commit(group, fingerprints));
    }

    /// The handle of retention under this epoch.
    pub(super) fn remover(&self, epoch: Epoch, health: Arc<Health>) -> Remover {
        Remover { tasks: self.tasks.clone(), epoch, health }
    }

    /// The handle for rows that are no part of the scheduler's state, under this epoch.
    pub(super) fn record_writer(&self, epoch: Epoch) -> RecordWriter {
        RecordWriter { tasks: self.tasks.clone(), epoch }
    }

    /// Waits until the group under way is durable.
    ///
    /// # Errors
    /// Another epoch writes, or the thread has panicked.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(super) async fn committed(&mut self) -> Result<(), EngineError> {
        let committed = self.committed.recv().await.ok_or(EngineError::StoreThreadEnded)?;
        committed.map_err(EngineError::EpochReplaced)
    }

    /// Lets the store finish and closes it.
    pub(super) fn stop(self) {
        // The thread may have ended already: with its reason told, or by a panic.
        let _ = self.tasks.send(WriterTask::Stop);
        // A panic of that thread has been reported by the runtime's hook; there is nothing to add.
        let _ = self.thread.join();
    }
}

fn serve(
    mut store: Box<dyn Store>,
    inbox: &Receiver<WriterTask>,
    outbox: &UnboundedSender<Result<(), CommitError>>,
    data_dir: &Path,
    refused: &Refused,
) {
    let mut space_managed_at = Instant::now();
    loop {
        if space_managed_at.elapsed() >= SPACE_INTERVAL {
            space_managed_at = Instant::now();
            if let Err(error) = store.manage_space() {
                abort_process(&error);
            }
        }
        let (group, fingerprints) = match inbox.recv_timeout(IDLE_AFTER) {
            Ok(WriterTask::Commit(group, fingerprints)) => (group, fingerprints),
            Ok(WriterTask::Remove(epoch, removal, reply)) => {
                // Retention may have been stopped meanwhile.
                let _ = reply.send(remove(store.as_mut(), epoch, &removal));
                continue;
            }
            Ok(WriterTask::ChangeRecord(epoch, change, reply)) => {
                let changed = store.change_record(epoch, &change);
                if let Err(error @ CommitError::Fatal(_)) = &changed {
                    abort_process(error);
                }
                // The caller may have gone.
                let _ = reply.send(changed);
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Err(error) = store.idle() {
                    abort_process(&error);
                }
                continue;
            }
            Ok(WriterTask::Stop) | Err(RecvTimeoutError::Disconnected) => return,
        };
        let result = commit(store.as_mut(), &group);
        match &result {
            Ok(()) => {
                refused.clear(&fingerprints.own);
                log_hooks_left_out(&group);
                log_ended_interventions(&group);
            }
            Err(error @ CommitError::Refused(_)) => {
                refused.record_refusal(&fingerprints);
                abort_refused(error, &group, data_dir);
            }
            Err(error @ CommitError::Fatal(_)) => abort_process(error),
            Err(CommitError::EpochReplaced { .. } | CommitError::Unavailable(_)) => {}
        }
        if outbox.send(result).is_err() {
            return;
        }
    }
}

fn commit(store: &mut dyn Store, group: &Group) -> Result<(), CommitError> {
    let mut wait = RETRY_FIRST;
    loop {
        match store.commit(group) {
            Err(CommitError::Unavailable(error)) => {
                tracing::warn!(%error, group = group.number.0, retry_ms = wait.as_millis() as u64, "the store is unavailable: nothing is answered until the commit succeeds");
                thread::sleep(wait);
                wait = (wait * 2).min(RETRY_MAX);
            }
            result => return result,
        }
    }
}

/// Logs the pauses and cordons that have ended by themselves in a committed group. The audit log has what people have asked for.
fn log_ended_interventions(group: &Group) {
    for change in &group.changes {
        match change {
            Change::Paused { target: target @ PauseTarget::Batch(_), pause: PauseChange::Ended(_) } => {
                tracing::info!(%target, "pause ended at the time that was given with it: waiting members go on");
            }
            Change::Paused { target, pause: PauseChange::Ended(_) } => {
                tracing::info!(%target, "pause ended at the time that was given with it: jobs and schedules go on");
            }
            Change::CordonEnded { row, .. } => {
                tracing::info!(worker = %row.worker, name = %row.name, "cordon ended at the time that was given with it: the worker may take jobs again");
            }
            _ => {}
        }
    }
}

/// Logs the hooks of a committed group that made no job.
fn log_hooks_left_out(group: &Group) {
    for change in &group.changes {
        if let Change::Hook(HookRow { parent, event, target, result: HookResult::LeftOut(refusal), .. }) =
            change
        {
            tracing::warn!(job = parent.0, hook = event.name(), definition = %target, reason = refusal.name(),
                "hook left out: {}", refusal.words());
        }
    }
}

fn remove(store: &mut dyn Store, epoch: Epoch, removal: &Removal) -> Result<RemovalStep, CommitError> {
    let began = Instant::now();
    let removed = match removal {
        Removal::ByServer(cutoffs) => store.remove(epoch, cutoffs),
        Removal::ByDefinition(removal) => store.remove_by_definition(epoch, removal),
    };
    if let Err(error @ CommitError::Fatal(_)) = &removed {
        abort_process(error);
    }
    Ok(RemovalStep { removed: removed?, took: began.elapsed() })
}

/// Writes a report of the refused group, and ends the process.
fn abort_refused(error: &CommitError, group: &Group, directory: &Path) -> ! {
    let file = directory.join(format!("refused-group-{}.txt", group.number.0));
    if let Err(error) = std::fs::write(&file, refused_group::describe(error, group)) {
        tracing::error!(%error, file = %file.display(), "cannot write the report of the refused group");
    }
    abort_process(error)
}

/// Ends the process. The scheduler's state may differ from the store: only a fresh start from the store is safe.
fn abort_process(error: &CommitError) -> ! {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    tracing::error!(%error, cause, "the store failed: ending the process; the next start recovers from the store");
    std::process::abort()
}

#[cfg(test)]
impl RecordWriter {
    /// A handle of a store that stalls: it takes changes only when the other part says so.
    pub fn stalled() -> (Self, StalledStore) {
        let (tasks, inbox) = channel();
        (Self { tasks, epoch: Epoch(0) }, StalledStore(inbox))
    }
}

/// The changes that wait for a store that stalls.
#[cfg(test)]
pub struct StalledStore(Receiver<WriterTask>);

#[cfg(test)]
impl StalledStore {
    /// Makes the next waiting change, if there is one.
    pub fn take_one(&self) -> Option<RecordChange> {
        let WriterTask::ChangeRecord(_, change, reply) = self.0.try_recv().ok()? else { return None };
        // The requester may have gone.
        let _ = reply.send(Ok(()));
        Some(change)
    }
}
