//! The durable record of one attempt: a directory per attempt, `<state>/attempts/<job>-<fence>/`.
//!
//! ```text
//! attempt.json   what is run, synced before anything may exist that runs
//! watcher        the process that writes the files: its pid and start time
//! program        the process that it watches, if that is no container; `null` before it is started
//! started        when, in the uptime of which boot
//! stdout stderr  what it wrote; the offset in the file is the offset told
//! acknowledged   how far the server has its output (may lag behind)
//! replayed       from where on output was read a second time
//! stopping       why it is being stopped, synced before it is
//! exit           how it ended, synced as soon as that is known
//! input.json     what the job may read
//! result.json    what it left there when it ended
//! secrets        the directory of its secrets, in a tmpfs: never a secret itself
//! usage          what it had used when the worker last looked
//! ```
//! Each file but the two outputs is replaced as a whole, so a crash leaves the old content or the new one. Content found after a crash
//! is true; a missing or torn file means that the step had not happened. A directory whose `attempt.json` cannot be read is moved
//! aside and logged.

mod error;
mod exchange;
mod fault;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod hidden_result;
mod outputs;
mod private_dir;
mod record;
mod removal;
mod start;
mod stopping;
mod store;
mod unreadable;
mod usage;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::{Usage, report::OutputLengths};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use worker::input::Exit;
use worker::step::Launch;

use crate::boot::{BootId, RecordedInstant};

pub use error::Error;
use error::io_error_at;
pub use exchange::ExchangeFiles;
pub(crate) use exchange::{INPUT_VARIABLE, RESULT_VARIABLE, check_result};
pub use stopping::Stopping;
pub use store::AttemptStore;

/// The directory of one attempt. The handle is cheap: every file is opened by name when it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptDir {
    path: Arc<Path>,
}

/// The content of an attempt directory that an earlier process has left.
#[derive(Clone, Debug)]
pub struct StoredAttempt {
    /// The directory that it was read from.
    pub dir: AttemptDir,
    /// The command and definition that were to be run.
    pub launch: Launch,
    /// The recorded stop, if it came before the end.
    pub stopping: Option<Stopping>,
    /// The recorded end; `None` as long as no process has recorded one.
    pub ending: Option<AttemptEnd>,
    /// The process that writes, or wrote, the output files.
    pub watcher: Option<ProcessId>,
    /// The state of the program of a plain process; `None` for containers.
    pub program: Option<ProgramState>,
}

/// State of the program of a plain process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramState {
    /// The shim was about to start it. It may run, and its process id is not recorded.
    Starting,
    /// The shim started it as this process.
    Started(ProcessId),
}

/// The end of an attempt as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptEnd {
    /// The way in which it ended.
    pub exit: Exit,
    /// Bytes that it wrote, gaps included.
    pub output: OutputLengths,
    /// Resources that it has used.
    pub usage: Usage,
    /// Time of the end.
    pub at: RecordedInstant,
}

/// The acknowledged part of an attempt's output, and the part that was freed in its middle: the content of `acknowledged`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputProgress {
    /// The server has all bytes before these offsets; they may be freed.
    pub acknowledged: OutputLengths,
    /// The freed middle of an output above its limit, from and to these offsets. The server is told of it as a gap.
    #[serde(default)]
    pub hollow: Option<(OutputLengths, OutputLengths)>,
}

/// The part of the output files that was read again from the engine's log: the content of `replayed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayRange {
    /// Offsets of the first byte that was read again.
    #[serde(flatten)]
    pub from: OutputLengths,
    /// The number of bytes after `from` that the log no longer had. The server is told of them as a gap.
    #[serde(default)]
    pub missing: OutputLengths,
}

/// A process, distinguished from later ones with the same number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its process number.
    pub pid: u32,
    /// Its start in clock ticks since boot, as in `/proc/<pid>/stat`.
    pub started: u64,
    /// The boot that it belongs to: another boot uses the same numbers again.
    #[serde(default)]
    pub boot: BootId,
}

impl OutputProgress {
    /// The union of two recorded states.
    #[must_use]
    pub fn later(self, other: Self) -> Self {
        let later = |a: OutputLengths, b: OutputLengths| OutputLengths {
            stdout: a.stdout.max(b.stdout),
            stderr: a.stderr.max(b.stderr),
        };
        Self {
            acknowledged: later(self.acknowledged, other.acknowledged),
            hollow: match (self.hollow, other.hollow) {
                // The beginning is decided once.
                (Some((from, to)), Some((_, other))) => Some((from, later(to, other))),
                (one, other) => one.or(other),
            },
        }
    }
}

impl AttemptDir {
    /// The directory at this path; it need not exist.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { path: path.into() }
    }

    /// Path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the command and definition of the attempt.
    ///
    /// # Errors
    /// The file is missing or torn: then nothing can have been run.
    pub fn launch(&self) -> Result<Launch, Error> {
        let record: record::LaunchRecord = self.read(ATTEMPT)?;
        Ok(record.into())
    }

    /// Records the cause of a stop. The cause that was recorded first stays and is returned.
    ///
    /// # Errors
    /// The disk is full.
    pub fn record_stopping(&self, stopping: Stopping) -> Result<Stopping, Error> {
        if let Some(first) = self.stopping()? {
            return Ok(first);
        }
        self.write_synced(STOPPING, &record::StoppingRecord::from(stopping))?;
        Ok(stopping)
    }

    /// The recorded stop, if there is one.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn stopping(&self) -> Result<Option<Stopping>, Error> {
        Ok(self.read_if_any::<record::StoppingRecord>(STOPPING)?.map(Stopping::from))
    }

    /// Records the end; the end that was recorded first stays.
    ///
    /// # Errors
    /// The disk is full.
    pub fn record_end(&self, ending: &AttemptEnd) -> Result<(), Error> {
        if self.end()?.is_some() {
            return Ok(());
        }
        self.write_synced(EXIT, &record::EndRecord::from(ending))
    }

    /// The recorded end, if there is one.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn end(&self) -> Result<Option<AttemptEnd>, Error> {
        Ok(self.read_if_any::<record::EndRecord>(EXIT)?.map(AttemptEnd::from))
    }

    /// Records acknowledged and freed output. The caller frees only afterwards.
    ///
    /// # Errors
    /// The disk is full.
    pub fn record_progress(&self, progress: OutputProgress) -> Result<(), Error> {
        self.write_synced(ACKNOWLEDGED, &progress)
    }

    /// The recorded progress: the server has at least this much.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn progress(&self) -> Result<OutputProgress, Error> {
        Ok(self.read_if_any(ACKNOWLEDGED)?.unwrap_or_default())
    }

    /// Records the offsets from which the files hold bytes of the engine's log. The first record stays and is returned.
    ///
    /// # Errors
    /// The disk is full.
    pub fn record_replayed(&self, replayed: ReplayRange) -> Result<ReplayRange, Error> {
        if let Some(first) = self.replayed()? {
            return Ok(first);
        }
        self.write_synced(REPLAYED, &replayed)?;
        Ok(replayed)
    }

    /// The recorded replay, if there was one.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn replayed(&self) -> Result<Option<ReplayRange>, Error> {
        self.read_if_any(REPLAYED)
    }

    /// Records the process that writes the output files.
    ///
    /// # Errors
    /// The disk is full.
    pub fn record_watcher(&self, pid: ProcessId) -> Result<(), Error> {
        self.write_unsynced(WATCHER, &pid)
    }

    /// Records the process that writes the output files, if none was recorded before. Returns `true` if it was recorded.
    ///
    /// # Errors
    /// The disk is full.
    pub fn claim_watcher(&self, pid: ProcessId) -> Result<bool, Error> {
        let path = self.path.join(WATCHER);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(_) => self.write_unsynced(WATCHER, &pid).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(io_error_at(&path)(error)),
        }
    }

    /// Records the state of the program of a plain process.
    ///
    /// # Errors
    /// The disk is full.
    pub fn record_program(&self, program: ProgramState) -> Result<(), Error> {
        let pid = match program {
            ProgramState::Starting => None,
            ProgramState::Started(pid) => Some(pid),
        };
        self.write_unsynced(PROGRAM, &pid)
    }

    /// The recorded state of the program; `None` if none was about to be started.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn program(&self) -> Result<Option<ProgramState>, Error> {
        let state = |pid: Option<ProcessId>| pid.map_or(ProgramState::Starting, ProgramState::Started);
        Ok(self.read_if_any(PROGRAM)?.map(state))
    }

    /// The recorded process that writes, or wrote, the output files.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn watcher(&self) -> Result<Option<ProcessId>, Error> {
        self.read_if_any(WATCHER)
    }

    /// Records the directory of its secrets.
    ///
    /// # Errors
    /// The disk is full.
    pub fn record_secrets(&self, path: &Path) -> Result<(), Error> {
        self.write_synced(SECRETS, &path)
    }

    /// The recorded directory of its secrets; `None` if it has none. It does not outlive the machine.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn secrets(&self) -> Result<Option<PathBuf>, Error> {
        self.read_if_any(SECRETS)
    }

    /// The attempt has secrets, also if the record of their directory is damaged.
    #[must_use]
    pub fn has_secrets(&self) -> bool {
        self.path.join(SECRETS).symlink_metadata().is_ok()
    }

    /// Removes the secrets of the attempt, then the directory and its files. A missing directory is success.
    ///
    /// # Errors
    /// The system refused to remove a file.
    pub fn remove(&self) -> Result<(), Error> {
        if let Some(secrets) = self.secrets()? {
            crate::secrets::remove(&secrets).map_err(io_error_at(&secrets))?;
        }
        removal::remove_tree(&self.path).map_err(io_error_at(&self.path))
    }

    fn entry(self) -> Result<StoredAttempt, Error> {
        let (stopping, ending) = (self.stopping()?, self.end()?);
        let stopping =
            stopping.filter(|stop| ending.as_ref().is_none_or(|ending| !ending.at.is_before(stop.at)));
        let (watcher, program) = (self.watcher()?, self.program()?);
        Ok(StoredAttempt { launch: self.launch()?, stopping, ending, watcher, program, dir: self })
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<T, Error> {
        let path = self.path.join(name);
        let bytes = fs::read(&path).map_err(io_error_at(&path))?;
        serde_json::from_slice(&bytes).map_err(|source| Error::Malformed { path, source })
    }

    fn read_if_any<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        match self.read(name) {
            Ok(value) => Ok(Some(value)),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(Error::Malformed { path, source }) => {
                tracing::warn!(path = %path.display(), %source, "ignoring an invalid file of an attempt");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes a temporary file, syncs it and renames it over the old one: a crash leaves one of the two, whole.
    fn write_synced<T: Serialize>(&self, name: &str, value: &T) -> Result<(), Error> {
        self.write_and_rename(name, value, File::sync_data)?;
        sync(&self.path)
    }

    /// Like `write_synced` without the syncs, for content that means nothing after a crash of the machine.
    fn write_unsynced<T: Serialize>(&self, name: &str, value: &T) -> Result<(), Error> {
        self.write_and_rename(name, value, |_| Ok(()))
    }

    fn write_and_rename<T: Serialize>(
        &self,
        name: &str,
        value: &T,
        sync_file: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<(), Error> {
        let path = self.path.join(name);
        let temporary = self.path.join(format!("{name}.new"));
        let bytes =
            serde_json::to_vec(value).map_err(|source| Error::Malformed { path: path.clone(), source })?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&temporary).map_err(io_error_at(&temporary))?;
        file.write_all(&bytes).and_then(|()| sync_file(&file)).map_err(io_error_at(&temporary))?;
        fs::rename(&temporary, &path).map_err(io_error_at(&path))
    }
}

fn sync(directory: &Path) -> Result<(), Error> {
    File::open(directory).and_then(|it| it.sync_all()).map_err(io_error_at(directory))
}

const ATTEMPT: &str = "attempt.json";
const STOPPING: &str = "stopping";
const EXIT: &str = "exit";
const ACKNOWLEDGED: &str = "acknowledged";
const REPLAYED: &str = "replayed";
const WATCHER: &str = "watcher";
const PROGRAM: &str = "program";
const SECRETS: &str = "secrets";

#[cfg(test)]
mod tests;
