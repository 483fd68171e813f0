//! A thread with a connection of its own, which writes the log's pages back into the file beside the writer.
//!
//! SQLite copies what is in the log without holding anybody up (a *passive* checkpoint), but it syncs the file only if the log has not
//! grown meanwhile. Under load it always has. So the file is synced here, by a handle of our own: that is where the time goes, and
//! what is left for the writer, which alone can begin the log anew, is a short rest.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;

use super::connections::open_writing;
use super::faults;
use super::wal_state::WalState;
use crate::store::{CommitError, LoadError};

/// The writer's end of the thread.
#[derive(Debug)]
pub(super) struct Checkpointer {
    asks: Option<Sender<()>>,
    done: Receiver<Result<(), CommitError>>,
    in_flight: bool,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Starts the thread. `file` is an open handle of the database; see [`super::archive::Pool`] for when it may be closed.
    ///
    /// # Errors
    /// The file cannot be opened once more, or the system gives no thread.
    pub(super) fn start(path: &Path, file: Arc<File>) -> Result<Self, LoadError> {
        let connection = open_writing(path).map_err(|error| faults::of_load(path, error))?;
        let (asks, inbox) = channel();
        let (outbox, done) = channel();
        let serve = move || {
            while inbox.recv().is_ok() {
                // The writer may have gone meanwhile: then nobody needs to know.
                let _ = outbox.send(checkpoint(&connection, &file));
            }
        };
        let thread = thread::Builder::new().name("store-log".into()).spawn(serve);
        let thread = thread.map_err(|error| LoadError::Io(Box::new(error)))?;
        Ok(Self { asks: Some(asks), done, in_flight: false, thread: Some(thread) })
    }

    /// Asks for what is in the log by now to be written back, and returns at once; false if something is under way already.
    pub(super) fn request(&mut self) -> bool {
        let Some(asks) = self.asks.as_ref().filter(|_| !self.in_flight) else { return false };
        self.in_flight = asks.send(()).is_ok();
        self.in_flight
    }

    /// True if no checkpoint is under way.
    ///
    /// # Errors
    /// The checkpoint failed.
    pub(super) fn is_idle(&mut self) -> Result<bool, CommitError> {
        if self.in_flight {
            match self.done.try_recv() {
                Ok(result) => {
                    self.in_flight = false;
                    result?;
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Err(thread_ended()),
            }
        }
        Ok(!self.in_flight)
    }

    /// Waits until nothing is under way.
    ///
    /// # Errors
    /// The checkpoint failed.
    pub(super) fn wait_idle(&mut self) -> Result<(), CommitError> {
        if !std::mem::take(&mut self.in_flight) {
            return Ok(());
        }
        self.done.recv().unwrap_or_else(|_| Err(thread_ended()))
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.asks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Without the thread the log would grow without bound, so its end is fatal: the supervisor restarts the server.
fn thread_ended() -> CommitError {
    CommitError::Fatal("the thread that moves the log into the store has ended".into())
}

fn checkpoint(connection: &Connection, file: &File) -> Result<(), CommitError> {
    let before = WalState::of(connection, "NOOP").map_err(faults::of_commit)?;
    let after = WalState::of(connection, "PASSIVE").map_err(faults::of_commit)?;
    // Readers that began earlier can be in the way of all of it: then there is nothing to sync.
    if after.copied_pages == before.copied_pages {
        return Ok(());
    }
    file.sync_data().map_err(|error| CommitError::Fatal(Box::new(error)))
}
