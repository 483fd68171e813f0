//! The one thread that owns the store's write side: takes a group, makes it durable, says so.
//!
//! What a commit may end in decides what happens (DESIGN.md section 2). *Unavailable*: the same group again, in silence. *Fenced*: the
//! engine drops its scheduler. *Refused* and *fatal* end the process: a supervisor starts it anew, and it rebuilds from the store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use protocol::Epoch;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::evidence;
use super::refused::{Marks, Refused};
use crate::store::{CommitError, Group, Keep, Removed, Store};

/// The first wait before an unavailable store is tried again; it doubles up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// After this long without a group the store may do its upkeep.
const IDLE_AFTER: Duration = Duration::from_millis(500);

/// What the thread is asked for.
enum Task {
    /// Make a group durable that came of these inputs.
    Commit(Group, Marks),
    /// Delete some of what is no longer to be kept.
    Remove(Epoch, Keep, oneshot::Sender<Result<Step, CommitError>>),
    /// Close the store.
    Stop,
}

/// A step of retention.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// What was deleted.
    pub removed: Removed,
    /// How long commits had to wait for it.
    pub took: Duration,
}

/// Retention's end of the writer.
#[derive(Clone, Debug)]
pub struct Remover {
    tasks: Sender<Task>,
    epoch: Epoch,
}

impl Remover {
    /// Deletes some of what is no longer to be kept, between two commits; nothing if the store is being closed.
    ///
    /// # Errors
    /// As for a commit, but never [`CommitError::Fatal`]: that ends the process.
    pub async fn remove(&self, keep: Keep) -> Option<Result<Step, CommitError>> {
        let (reply, answer) = oneshot::channel();
        self.tasks.send(Task::Remove(self.epoch, keep, reply)).ok()?;
        answer.await.ok()
    }
}

/// The engine's end of the writer.
#[derive(Debug)]
pub(super) struct Writer {
    tasks: Sender<Task>,
    committed: UnboundedReceiver<Result<(), CommitError>>,
    thread: thread::JoinHandle<()>,
}

impl Writer {
    /// Starts the thread. A group that the store refuses is written to a file in the directory `evidence` before the process ends, and its
    /// inputs are remembered.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start(
        store: Box<dyn Store>,
        evidence: PathBuf,
        refused: Arc<Refused>,
    ) -> std::io::Result<Self> {
        let (tasks, inbox) = channel();
        let (outbox, committed) = unbounded_channel();
        let thread = thread::Builder::new()
            .name("store".into())
            .spawn(move || serve(store, &inbox, &outbox, &evidence, &refused))?;
        Ok(Self { tasks, committed, thread })
    }

    /// Hands over a group. At most one is under way at a time.
    pub(super) fn hand_over(&self, group: Group, marks: Marks) {
        // The thread ends only after it has said why: `committed` tells.
        let _ = self.tasks.send(Task::Commit(group, marks));
    }

    /// For retention under this epoch.
    pub(super) fn remover(&self, epoch: Epoch) -> Remover {
        Remover { tasks: self.tasks.clone(), epoch }
    }

    /// Waits until the group under way is durable.
    ///
    /// # Errors
    /// Only what the engine has to deal with: another epoch writes, or the process is about to end.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(super) async fn committed(&mut self) -> Result<(), CommitError> {
        self.committed
            .recv()
            .await
            .unwrap_or_else(|| Err(CommitError::Refused("the store's thread has ended".into())))
    }

    /// Lets the store finish and closes it.
    pub(super) fn stop(self) {
        // The thread may have ended already: with its reason told, or by a panic.
        let _ = self.tasks.send(Task::Stop);
        // A panic of that thread has been reported by the runtime's hook; there is nothing to add.
        let _ = self.thread.join();
    }
}

fn serve(
    mut store: Box<dyn Store>,
    inbox: &Receiver<Task>,
    outbox: &UnboundedSender<Result<(), CommitError>>,
    evidence: &Path,
    refused: &Refused,
) {
    loop {
        let (group, marks) = match inbox.recv_timeout(IDLE_AFTER) {
            Ok(Task::Commit(group, marks)) => (group, marks),
            Ok(Task::Remove(epoch, keep, reply)) => {
                // Retention may have been stopped meanwhile.
                let _ = reply.send(remove(store.as_mut(), epoch, &keep));
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Err(error) = store.idle() {
                    end_process(&error);
                }
                continue;
            }
            Ok(Task::Stop) | Err(RecvTimeoutError::Disconnected) => return,
        };
        let result = commit(store.as_mut(), &group);
        match &result {
            Ok(()) => refused.pardon(&marks.own),
            Err(error @ CommitError::Refused(_)) => {
                refused.remember(&marks);
                give_up(error, &group, evidence);
            }
            Err(error @ CommitError::Fatal(_)) => end_process(error),
            Err(CommitError::Fenced { .. } | CommitError::Unavailable(_)) => {}
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
                tracing::warn!(%error, group = group.number.0, "the store is unavailable; trying again");
                thread::sleep(wait);
                wait = (wait * 2).min(RETRY_MAX);
            }
            result => return result,
        }
    }
}

fn remove(store: &mut dyn Store, epoch: Epoch, keep: &Keep) -> Result<Step, CommitError> {
    let began = Instant::now();
    let removed = store.remove(epoch, keep);
    if let Err(error @ CommitError::Fatal(_)) = &removed {
        end_process(error);
    }
    Ok(Step { removed: removed?, took: began.elapsed() })
}

/// Leaves evidence of a group that was refused, and ends the process.
fn give_up(error: &CommitError, group: &Group, directory: &Path) -> ! {
    let file = directory.join(format!("refused-group-{}.txt", group.number.0));
    if let Err(error) = std::fs::write(&file, evidence::of(error, group)) {
        tracing::error!(%error, file = %file.display(), "cannot write down the refused group");
    }
    end_process(error)
}

/// Nothing that this scheduler thinks may be said any more: only a fresh read of the store can be believed.
fn end_process(error: &CommitError) -> ! {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    tracing::error!(%error, cause, "cannot go on: ending, to recover from the store");
    std::process::abort()
}
