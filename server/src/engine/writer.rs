//! The one thread that owns the store's write side: takes a group, makes it durable, says so.
//!
//! What a commit may end in decides what happens (DESIGN.md section 2). *Unavailable*: the same group again, in silence. *Fenced*: the
//! engine drops its scheduler. *Refused* and *fatal* end the process: a supervisor starts it anew, and it rebuilds from the store.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::store::{CommitError, Group, Store};

/// The first wait before an unavailable store is tried again; it doubles up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// After this long without a group the store may do its upkeep.
const IDLE_AFTER: Duration = Duration::from_millis(500);

/// The engine's end of the writer.
#[derive(Debug)]
pub(super) struct Writer {
    groups: Sender<Group>,
    committed: UnboundedReceiver<Result<(), CommitError>>,
    thread: thread::JoinHandle<()>,
}

impl Writer {
    /// Starts the thread. A group that the store refuses is written to a file beside `evidence` before the process ends.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start(store: Box<dyn Store>, evidence: PathBuf) -> std::io::Result<Self> {
        let (groups, inbox) = channel();
        let (outbox, committed) = unbounded_channel();
        let thread = thread::Builder::new()
            .name("store".into())
            .spawn(move || serve(store, &inbox, &outbox, &evidence))?;
        Ok(Self { groups, committed, thread })
    }

    /// Hands over a group. At most one is under way at a time.
    pub(super) fn hand_over(&self, group: Group) {
        // The thread ends only after it has said why: `committed` tells.
        let _ = self.groups.send(group);
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
        drop(self.groups);
        // A panic of that thread has been reported by the runtime's hook; there is nothing to add.
        let _ = self.thread.join();
    }
}

fn serve(
    mut store: Box<dyn Store>,
    inbox: &Receiver<Group>,
    outbox: &UnboundedSender<Result<(), CommitError>>,
    evidence: &std::path::Path,
) {
    loop {
        let group = match inbox.recv_timeout(IDLE_AFTER) {
            Ok(group) => group,
            Err(RecvTimeoutError::Timeout) => {
                store.idle();
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let result = commit(store.as_mut(), &group);
        if let Err(error @ (CommitError::Refused(_) | CommitError::Fatal(_))) = &result {
            give_up(error, &group, evidence);
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

/// Ends the process: nothing that this scheduler thinks may be said any more, and only a fresh read of the store can be believed.
fn give_up(error: &CommitError, group: &Group, evidence: &std::path::Path) -> ! {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    tracing::error!(%error, cause, group = group.number.0, "cannot go on: ending, to recover from the store");
    if matches!(error, CommitError::Refused(_)) {
        let file = evidence.join(format!("refused-group-{}.txt", group.number.0));
        if let Err(error) = std::fs::write(&file, format!("{error}\n\n{group:#?}\n")) {
            tracing::error!(%error, file = %file.display(), "cannot write down the refused group");
        }
    }
    std::process::abort()
}
