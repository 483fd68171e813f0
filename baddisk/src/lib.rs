//! A disk for SQLite that remembers what was synced, loses the rest, and fails when told. For tests only.
//!
//! ```text
//! store ─▶ SQLite ─▶ [ this ] ─▶ SQLite's own file system ─▶ files
//!                       └─▶ recording: every write, change of length, sync, new and deleted name, in order
//! ```
//! [`Disk::at`] stands between SQLite and the files of one directory from then on. Nothing changes for SQLite; but from what was recorded
//! a [`Recording`] makes the files that a loss of power at any moment could have left behind: what was synced, and of the rest
//! whatever chance decides, torn and in any order. [`Disk::fail`] makes writes and syncs fail instead.
//!
//! Files that are not written through SQLite are not seen, unless their writer notes what happens ([`Disk::note`]).

mod image;
mod recording;
mod rng;
mod vfs;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use image::{Image, Loss};
pub use recording::{Event, Recording};
pub use rng::Rng;

/// The files that SQLite has in one directory, as long as this lives.
#[derive(Debug)]
pub struct Disk(Arc<Watched>);

/// The calls that fail, until [`Disk::clear_fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no room: nothing can be written.
    Full,
    /// Nothing can be written, for a reason that nobody knows.
    Writes,
    /// Syncs fail, and unsynced writes are lost.
    Syncs,
}

impl Disk {
    /// Watches what SQLite does in this directory from now on. What is there already counts as synced.
    ///
    /// # Errors
    /// The directory or a file in it cannot be read.
    ///
    /// # Panics
    /// SQLite has no file system of its own.
    pub fn at(directory: &Path) -> std::io::Result<Self> {
        // SQLite names files by their real place.
        let directory = directory.canonicalize()?;
        let recording = Recording::of(&directory)?;
        let watched = Arc::new(Watched { directory, state: Mutex::new(State { recording, fault: None }) });
        vfs::watch(&watched);
        Ok(Self(watched))
    }

    /// Notes that a commit was acknowledged: it must survive from here on.
    pub fn acknowledge(&self, what: u64) {
        self.0.state().recording.add(Event::Acknowledged(what));
    }

    /// The number of the file with this name: for events of files that SQLite does not write.
    #[must_use]
    pub fn file(&self, name: &str) -> usize {
        self.0.state().recording.open(name)
    }

    /// Notes something that happened to a file that SQLite does not write.
    pub fn note(&self, event: Event) {
        self.0.state().recording.add(event);
    }

    /// Lets this fail after this number of further writes or syncs has worked.
    pub fn fail(&self, fault: Fault, after: u64) {
        self.0.state().fault = Some((fault, after));
    }

    /// Ends the fault.
    pub fn clear_fault(&self) {
        self.0.state().fault = None;
    }

    /// The recording so far.
    #[must_use]
    pub fn recording(&self) -> Recording {
        self.0.state().recording.clone()
    }
}

#[derive(Debug)]
struct Watched {
    directory: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    recording: Recording,
    fault: Option<(Fault, u64)>,
}

impl Watched {
    /// Held during each call to the file system, so that the recording has the order in which things happened.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The fault to return now, if one of these is due.
    fn fails(&mut self, kinds: &[Fault]) -> Option<Fault> {
        let (fault, left) = self.fault.as_mut().filter(|(fault, _)| kinds.contains(fault))?;
        if *left == 0 {
            return Some(*fault);
        }
        *left -= 1;
        None
    }
}
