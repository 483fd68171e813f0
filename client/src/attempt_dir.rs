//! The ledger for what was said: one directory per attempt, `<state>/attempts/<job>-<fence>/`.
//!
//! ```text
//! attempt.json   what is run, synced before anything may exist that runs      stopping       why it is being stopped, synced before it is
//! stdout stderr  what it wrote; the offset in the file is the offset told     exit           how it ended, synced as soon as that is known
//! acknowledged   how far the server has its output (may lag behind)           replayed       from where on output was read a second time
//! watcher        the process that writes the files: its pid and start time                program        the one it watches, if it is no container
//! ```
//! Each file but the two outputs is replaced as a whole, so a crash leaves the old one or the new one. The one idea: whatever is
//! found here after a crash is true; what is missing had not happened, and what is torn counts as missing. A directory that does not
//! say which attempt it is for is set aside, never fatal.

mod record;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::order::StopCause;
use protocol::report::{OutputLengths, Stream};
use protocol::{RuntimeKind, Timestamp, Token};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use worker::input::Exit;
use worker::step::Launch;

/// All attempt directories of one state directory.
#[derive(Clone, Debug)]
pub struct Ledger {
    root: Arc<Path>,
    aside: Arc<Path>,
}

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
    /// Why it was being stopped.
    pub stopping: Option<StopCause>,
    /// How it ended.
    pub ending: Option<Ending>,
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

impl Ledger {
    /// The ledger of this state directory; made if it is missing, readable for its owner only.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn open(state: &Path) -> Result<Self, Error> {
        let root = state.join("attempts");
        make_private(&root)?;
        Ok(Self { root: root.into(), aside: state.join("unreadable").into() })
    }

    /// Makes the directory of an attempt, with everything that its container needs: on disk when this returns. For an attempt that
    /// has one already, that one. A plain process does not survive the machine, so its directory need not either.
    ///
    /// # Errors
    /// The disk is full, or the name is taken by another attempt.
    pub fn create(&self, launch: &Launch) -> Result<AttemptDir, Error> {
        let dir = self.dir(launch.token);
        match dir.launch() {
            Ok(known) if known.token == launch.token => return Ok(dir),
            Ok(other) => {
                return Err(Error::Taken { path: dir.path.to_path_buf(), other: other.token.nonce });
            }
            // Left by a crash before anything could run.
            Err(_) => {}
        }
        make_private(&dir.path)?;
        for stream in Stream::ALL {
            dir.output(stream)?;
        }
        let record = record::Record::from(launch);
        if launch.spec.runtime == RuntimeKind::Process {
            dir.put(ATTEMPT, &record)?;
        } else {
            dir.replace(ATTEMPT, &record)?;
            sync(&self.root)?;
        }
        Ok(dir)
    }

    /// Where this attempt's directory is, whether it exists or not.
    #[must_use]
    pub fn dir(&self, token: Token) -> AttemptDir {
        AttemptDir { path: self.root.join(format!("{}-{}", token.job, token.fence)).into() }
    }

    /// Every attempt that an earlier process has left. What cannot be read is moved to `<state>/unreadable` and logged.
    ///
    /// # Errors
    /// The directory of directories cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>, Error> {
        let listing = fs::read_dir(&self.root).map_err(at(&self.root))?;
        let mut entries = Vec::new();
        for found in listing {
            let path = found.map_err(at(&self.root))?.path();
            match (AttemptDir { path: path.as_path().into() }).entry() {
                Ok(entry) if self.dir(entry.launch.token) == entry.dir => entries.push(entry),
                Ok(_) => self.set_aside(&path, "it holds an attempt with another number"),
                // A crash while it was made: nothing can have run.
                Err(Error::Io { source, .. })
                    if source.kind() == io::ErrorKind::NotFound && is_blank(&path) =>
                {
                    AttemptDir { path: path.into() }.remove()?;
                }
                Err(error) => self.set_aside(&path, &describe(&error)),
            }
        }
        Ok(entries)
    }

    fn set_aside(&self, path: &Path, why: &str) {
        let name = path.file_name().unwrap_or_default();
        let moved = make_private(&self.aside).map_err(|error| describe(&error)).and_then(|()| {
            let mut target = self.aside.join(name);
            for n in 1.. {
                if !target.exists() {
                    break;
                }
                target = self.aside.join(format!("{}.{n}", name.to_string_lossy()));
            }
            fs::rename(path, &target).map_err(|error| error.to_string())
        });
        match moved {
            Ok(()) => {
                tracing::error!(path = %path.display(), why, aside = %self.aside.display(), "an attempt directory cannot be read and was set aside")
            }
            Err(error) => {
                tracing::error!(path = %path.display(), why, error, "an attempt directory can neither be read nor set aside")
            }
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

    /// One of its outputs, to be appended to.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn output(&self, stream: Stream) -> Result<File, Error> {
        let path = self.path.join(stream.name());
        OpenOptions::new().append(true).create(true).mode(0o600).open(&path).map_err(at(&path))
    }

    /// One of its outputs, to be read and to be freed behind the reader.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn reader(&self, stream: Stream) -> Result<File, Error> {
        let path = self.path.join(stream.name());
        OpenOptions::new().read(true).write(true).open(&path).map_err(at(&path))
    }

    /// How much is in the output files, freed parts included.
    #[must_use]
    pub fn lengths(&self) -> OutputLengths {
        let length = |stream: Stream| fs::metadata(self.path.join(stream.name())).map_or(0, |it| it.size());
        OutputLengths { stdout: length(Stream::Stdout), stderr: length(Stream::Stderr) }
    }

    /// Keeps why it is being stopped; the cause that was kept first stays and is given back.
    ///
    /// # Errors
    /// The disk is full.
    pub fn record_stopping(&self, cause: StopCause) -> Result<StopCause, Error> {
        if let Some(first) = self.stopping()? {
            return Ok(first);
        }
        self.replace(STOPPING, &record::Cause::from(cause))?;
        Ok(cause)
    }

    /// Why it is being stopped, if somebody had said so.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn stopping(&self) -> Result<Option<StopCause>, Error> {
        Ok(self.read_if_any::<record::Cause>(STOPPING)?.map(StopCause::from))
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
    pub fn record_replayed(&self, from: OutputLengths) -> Result<OutputLengths, Error> {
        if let Some(first) = self.replayed()? {
            return Ok(first);
        }
        self.replace(REPLAYED, &record::Lengths::from(from))?;
        Ok(from)
    }

    /// From where on the files hold what was read again.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn replayed(&self) -> Result<Option<OutputLengths>, Error> {
        Ok(self.read_if_any::<record::Lengths>(REPLAYED)?.map(OutputLengths::from))
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

    /// Keeps which process is the attempt itself.
    ///
    /// # Errors
    /// The disk is full.
    pub fn record_program(&self, pid: Pid) -> Result<(), Error> {
        self.put(PROGRAM, &pid)
    }

    /// Which process is, or was, the attempt itself.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn program(&self) -> Result<Option<Pid>, Error> {
        self.read_if_any(PROGRAM)
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
        Ok(Entry { launch: self.launch()?, stopping: self.stopping()?, ending: self.ending()?, dir: self })
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

/// Whether nothing was ever written here.
fn is_blank(path: &Path) -> bool {
    AttemptDir { path: path.into() }.lengths() == OutputLengths::default()
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
mod tests {
    use std::time::Duration;

    use protocol::container::{Body, Volume};
    use protocol::{ContainerSpec, Fence, JobId, Nonce, Revision};

    use super::*;

    fn launch(job: u64) -> Launch {
        let spec = ContainerSpec {
            image: "app:1".into(),
            entrypoint: Some(vec!["/bin/app".into(), "-v".into()]),
            command: vec!["a b".into(), String::new()],
            environment: vec![("A".into(), "ü=1".into())],
            volumes: vec![Volume { source: "/srv".into(), target: "/data".into(), read_only: true }],
            stop_grace: Duration::from_millis(1500),
            self_fence: Some(Duration::from_secs(5)),
            log_bytes_max: 1 << 26,
            ..ContainerSpec::default()
        };
        Launch {
            token: Token { job: JobId(job), fence: Fence(3), nonce: Nonce(u64::MAX) },
            revision: Revision(u128::MAX - 1),
            name: "resize".into(),
            spec: spec.into(),
            body: Some(Body { args: vec!["--x".into()], ..Body::default() }),
            time_left: Some(Duration::from_secs(60)),
        }
    }

    fn ledger() -> (tempfile::TempDir, Ledger) {
        let state = tempfile::tempdir().expect("a directory");
        let ledger = Ledger::open(state.path()).expect("a ledger");
        (state, ledger)
    }

    #[test]
    fn what_was_written_is_read_again() {
        let (_state, ledger) = ledger();
        let dir = ledger.create(&launch(1)).expect("made");
        let ending = Ending {
            exit: Exit::Ran {
                code: 3,
                oom: true,
                memory_limited: false,
                ran: Duration::from_nanos(1_500_000_001),
                result: Some("{}".into()),
            },
            output: OutputLengths { stdout: 5, stderr: 0 },
            at: Timestamp(1_700_000_000_000),
        };
        assert_eq!(dir.record_stopping(StopCause::Timeout).expect("kept"), StopCause::Timeout);
        dir.record_ending(&ending).expect("kept");
        let entries = ledger.entries().expect("read");
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].launch, launch(1));
        assert_eq!(entries[0].stopping, Some(StopCause::Timeout));
        assert_eq!(entries[0].ending.as_ref(), Some(&ending));
        dir.remove().expect("gone");
        dir.remove().expect("still gone");
        assert!(ledger.entries().expect("read").is_empty());
    }

    #[test]
    fn the_cause_and_the_end_that_were_kept_first_stay() {
        let (_state, ledger) = ledger();
        let dir = ledger.create(&launch(1)).expect("made");
        dir.record_stopping(StopCause::Timeout).expect("kept");
        assert_eq!(dir.record_stopping(StopCause::Cancel).expect("kept"), StopCause::Timeout);
        let first = Ending { exit: Exit::Vanished, output: OutputLengths::default(), at: Timestamp(1) };
        dir.record_ending(&first).expect("kept");
        dir.record_ending(&Ending { at: Timestamp(2), ..first.clone() }).expect("ignored");
        assert_eq!(dir.ending().expect("read"), Some(first));
    }

    #[test]
    fn a_second_creation_is_the_first_one_and_another_nonce_is_refused() {
        let (_state, ledger) = ledger();
        let dir = ledger.create(&launch(1)).expect("made");
        assert_eq!(ledger.create(&launch(1)).expect("found"), dir);
        let mut other = launch(1);
        other.token.nonce = Nonce(5);
        assert!(matches!(ledger.create(&other), Err(Error::Taken { .. })));
    }

    #[test]
    fn torn_directories_are_set_aside_and_hide_no_other() {
        let (state, ledger) = ledger();
        ledger.create(&launch(1)).expect("made");
        let torn = ledger.create(&launch(2)).expect("made");
        fs::write(torn.path().join(ATTEMPT), b"{\"token\":").expect("torn");
        let strange = state.path().join("attempts/no-attempt");
        fs::write(&strange, b"").expect("a file");
        let exit = ledger.create(&launch(4)).expect("made");
        fs::write(exit.path().join(EXIT), b"\0\0\0").expect("torn");

        let mut entries = ledger.entries().expect("read");
        entries.sort_by_key(|it| it.launch.token);
        assert_eq!(entries.iter().map(|it| it.launch.token.job.0).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(entries[1].ending, None, "a torn end is no end");
        assert_eq!(fs::read_dir(state.path().join("unreadable")).expect("aside").count(), 2);
        // A crash in the middle of making one leaves nothing in the way of the next try.
        fs::create_dir(state.path().join("attempts/5-3")).expect("empty");
        ledger.create(&launch(5)).expect("made after all");
    }

    #[test]
    fn nobody_else_can_read_what_holds_values() {
        let (_state, ledger) = ledger();
        let dir = ledger.create(&launch(1)).expect("made");
        assert_eq!(fs::metadata(dir.path()).expect("there").mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(dir.path().join(ATTEMPT)).expect("there").mode() & 0o777, 0o600);
    }
}
