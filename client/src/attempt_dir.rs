//! The ledger for what was said: one directory per attempt, `<state>/attempts/<job>-<fence>/`.
//!
//! ```text
//! attempt.json   what is run, synced before anything may exist that runs      stopping       why it is being stopped, synced before it is
//! stdout stderr  what it wrote; the offset in the file is the offset told     exit           how it ended, synced as soon as that is known
//! acknowledged   how far the server has its output (may lag behind)           replayed       from where on output was read a second time
//! watcher        the process that writes the files: its pid and start time                program        the one it watches, if it is no container;
//! started        when, in the uptime of which boot                                `null` as long as it is only about to be started
//! ```
//! Each file but the two outputs is replaced as a whole, so a crash leaves the old one or the new one. The one idea: whatever is found here after a crash is true; what is
//! missing had not happened, and what is torn counts as missing. A directory that does not say which attempt it is for is set aside, never fatal.

#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod ledger;
mod outputs;
mod record;
mod start;
mod stopping;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::Timestamp;
use protocol::report::OutputLengths;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use worker::input::Exit;
use worker::step::Launch;

pub use ledger::Ledger;
pub use stopping::Stopping;

/// The directory of one attempt. A cheap handle: everything is read and written by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptDir {
    path: Arc<Path>,
}

/// What a directory of an earlier process says.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Where.
    pub dir: AttemptDir,
    /// What was run.
    pub launch: Launch,
    /// Why it was being stopped, if that came before its end.
    pub stopping: Option<Stopping>,
    /// How it ended.
    pub ending: Option<Ending>,
    /// Which process writes, or wrote, the output files.
    pub watcher: Option<Pid>,
    /// What is known of the process that is the attempt itself.
    pub program: Option<Program>,
}

/// The process that is an attempt itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// It was about to be started: it may be there, and nobody has written down which it is.
    Begun,
    /// This one.
    Is(Pid),
}

/// How an attempt ended, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// How.
    pub exit: Exit,
    /// How much it wrote.
    pub output: OutputLengths,
    /// When; a wall clock, because a machine's uptime means nothing after a reboot.
    pub at: Timestamp,
}

/// How far the server has an attempt's output, and what of the rest is no longer in the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The server has everything before; it may be freed.
    pub acknowledged: OutputLengths,
    /// The middle of an output that grew too long, from where to where: freed, and to be told as a gap.
    pub hollow: Option<(OutputLengths, OutputLengths)>,
}

/// From where on the files hold what was read again from the engine's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Here it begins.
    pub from: OutputLengths,
    /// The first bytes of it are none: in their place something is missing that the log had no longer, and it is told as a gap.
    pub missing: OutputLengths,
}

/// A process, told apart from later ones with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pid {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since boot, as `/proc/<pid>/stat` has it.
    pub started: u64,
}

/// Why a directory cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another attempt with the same job and fence is there: the server's database went back in time, or the directory is shared.
    #[error("{} belongs to another attempt with the same number (nonce {other})", path.display())]
    Taken {
        /// Where.
        path: PathBuf,
        /// Whose.
        other: protocol::Nonce,
    },
    /// The system refused.
    #[error("cannot use {}", path.display())]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{} cannot be understood", path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

impl Progress {
    /// What is true if both were true at some time.
    #[must_use]
    pub fn later(self, other: Self) -> Self {
        let later = |a: OutputLengths, b: OutputLengths| OutputLengths {
            stdout: a.stdout.max(b.stdout),
            stderr: a.stderr.max(b.stderr),
        };
        Self {
            acknowledged: later(self.acknowledged, other.acknowledged),
            hollow: match (self.hollow, other.hollow) {
                // Where it begins is decided once.
                (Some((from, to)), Some((_, other))) => Some((from, later(to, other))),
                (one, other) => one.or(other),
            },
        }
    }
}

impl AttemptDir {
    /// The directory at this path.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is, or was, run.
    ///
    /// # Errors
    /// It is missing, or torn: then nothing can have been run.
    pub fn launch(&self) -> Result<Launch, Error> {
        let record: record::Record = self.read(ATTEMPT)?;
        Ok(record.into())
    }

    /// Keeps why it is being stopped; the cause that was kept first stays and is given back.
    ///
    /// # Errors
    /// The disk is full.
    pub fn record_stopping(&self, stopping: Stopping) -> Result<Stopping, Error> {
        if let Some(first) = self.stopping()? {
            return Ok(first);
        }
        self.replace(STOPPING, &record::Stopped::from(stopping))?;
        Ok(stopping)
    }

    /// Why it is being stopped, if somebody had said so.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn stopping(&self) -> Result<Option<Stopping>, Error> {
        Ok(self.read_if_any::<record::Stopped>(STOPPING)?.map(Stopping::from))
    }

    /// Keeps how it ended; what was kept first stays.
    ///
    /// # Errors
    /// The disk is full.
    pub fn record_ending(&self, ending: &Ending) -> Result<(), Error> {
        if self.ending()?.is_some() {
            return Ok(());
        }
        self.replace(EXIT, &record::Ended::from(ending))
    }

    /// How it ended, if that is known.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn ending(&self) -> Result<Option<Ending>, Error> {
        Ok(self.read_if_any::<record::Ended>(EXIT)?.map(Ending::from))
    }

    /// Keeps how far the server has its output and what was freed of it: before anything is freed.
    ///
    /// # Errors
    /// The disk is full.
    pub fn record_progress(&self, progress: Progress) -> Result<(), Error> {
        self.replace(ACKNOWLEDGED, &record::Sent::from(progress))
    }

    /// How far the server has its output, at least, and what was freed.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn progress(&self) -> Result<Progress, Error> {
        Ok(self.read_if_any::<record::Sent>(ACKNOWLEDGED)?.map(Progress::from).unwrap_or_default())
    }

    /// Keeps from where on the files hold what was read again from the engine's log; what was kept first stays and is given back.
    ///
    /// # Errors
    /// The disk is full.
    pub fn record_replayed(&self, replayed: Replayed) -> Result<Replayed, Error> {
        if let Some(first) = self.replayed()? {
            return Ok(first);
        }
        self.replace(REPLAYED, &record::Again::from(replayed))?;
        Ok(replayed)
    }

    /// From where on the files hold what was read again.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn replayed(&self) -> Result<Option<Replayed>, Error> {
        Ok(self.read_if_any::<record::Again>(REPLAYED)?.map(Replayed::from))
    }

    /// Keeps which process writes the output files.
    ///
    /// # Errors
    /// The disk is full.
    pub fn record_watcher(&self, pid: Pid) -> Result<(), Error> {
        self.put(WATCHER, &pid)
    }

    /// As [`AttemptDir::record_watcher`], but only the first one: whether this is it.
    ///
    /// # Errors
    /// The disk is full.
    pub fn claim_watcher(&self, pid: Pid) -> Result<bool, Error> {
        let path = self.path.join(WATCHER);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(_) => self.put(WATCHER, &pid).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(at(&path)(error)),
        }
    }

    /// Keeps what is known of the process that is the attempt itself.
    ///
    /// # Errors
    /// The disk is full.
    pub fn record_program(&self, program: Program) -> Result<(), Error> {
        let pid = match program {
            Program::Begun => None,
            Program::Is(pid) => Some(pid),
        };
        self.put(PROGRAM, &pid)
    }

    /// Which process is, or was, the attempt itself; nothing if none was about to be started.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn program(&self) -> Result<Option<Program>, Error> {
        let kept: Option<Option<Pid>> = self.read_if_any(PROGRAM)?;
        Ok(kept.map(|pid| pid.map_or(Program::Begun, Program::Is)))
    }

    /// Which process writes, or wrote, the output files.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn watcher(&self) -> Result<Option<Pid>, Error> {
        self.read_if_any(WATCHER)
    }

    /// Removes all of it. Removing what is gone is success.
    ///
    /// # Errors
    /// The system refused.
    pub fn remove(&self) -> Result<(), Error> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(&self.path)(error)),
            _ => Ok(()),
        }
    }

    fn entry(self) -> Result<Entry, Error> {
        let (stopping, ending) = (self.stopping()?, self.ending()?);
        // Both are kept by the same clock: if that was set back since, both are of the future, and their order is all that is left.
        let stopping = stopping.filter(|stop| ending.as_ref().is_none_or(|ending| ending.at >= stop.at));
        let (watcher, program) = (self.watcher()?, self.program()?);
        Ok(Entry { launch: self.launch()?, stopping, ending, watcher, program, dir: self })
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<T, Error> {
        let path = self.path.join(name);
        let bytes = fs::read(&path).map_err(at(&path))?;
        serde_json::from_slice(&bytes).map_err(|source| Error::Malformed { path, source })
    }

    fn read_if_any<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        match self.read(name) {
            Ok(value) => Ok(Some(value)),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(Error::Malformed { path, source }) => {
                tracing::warn!(path = %path.display(), %source, "a torn file of an attempt is ignored");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes a file beside, syncs it, and puts it in the place of the old one: a crash leaves one of the two, whole.
    fn replace<T: Serialize>(&self, name: &str, value: &T) -> Result<(), Error> {
        self.swap(name, value, File::sync_data)?;
        sync(&self.path)
    }

    /// As `replace`, for what means nothing after a crash of the machine.
    fn put<T: Serialize>(&self, name: &str, value: &T) -> Result<(), Error> {
        self.swap(name, value, |_| Ok(()))
    }

    fn swap<T: Serialize>(
        &self,
        name: &str,
        value: &T,
        settle: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<(), Error> {
        let path = self.path.join(name);
        let beside = self.path.join(format!("{name}.new"));
        let bytes =
            serde_json::to_vec(value).map_err(|source| Error::Malformed { path: path.clone(), source })?;
        let mut new = OpenOptions::new();
        let mut file =
            new.write(true).create(true).truncate(true).mode(0o600).open(&beside).map_err(at(&beside))?;
        file.write_all(&bytes).and_then(|()| settle(&file)).map_err(at(&beside))?;
        fs::rename(&beside, &path).map_err(at(&path))
    }
}

/// An error with all its causes, in one line.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}

fn make_private(path: &Path) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at(path))
}

fn sync(directory: &Path) -> Result<(), Error> {
    File::open(directory).and_then(|it| it.sync_all()).map_err(at(directory))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.to_path_buf();
    |source| Error::Io { path, source }
}

const ATTEMPT: &str = "attempt.json";
const STOPPING: &str = "stopping";
const EXIT: &str = "exit";
const ACKNOWLEDGED: &str = "acknowledged";
const REPLAYED: &str = "replayed";
const WATCHER: &str = "watcher";
const PROGRAM: &str = "program";

#[cfg(test)]
mod tests;
