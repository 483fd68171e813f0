//! All attempt directories of a state directory: creates them, lists them after a restart, moves unreadable ones aside.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use std::{fs, io};

use protocol::report::{OutputLengths, Stream};
use protocol::{ContainerSpec, RuntimeKind, Token};
use tokio::sync::watch;
use worker::step::Launch;

use super::fault::{RecordingFault, TRIAL};
use super::private_dir::make_private;
use super::unreadable::UnreadableDirs;
use super::{ATTEMPT, AttemptDir, Error, StoredAttempt, io_error_at, record, sync};
use crate::error_chain::error_chain;
use crate::secrets::SecretDirs;

/// All attempt directories of one state directory.
#[derive(Clone, Debug)]
pub struct AttemptStore {
    root: Arc<Path>,
    unreadable: UnreadableDirs,
    secrets: Option<SecretDirs>,
    fault: RecordingFault,
}

impl AttemptStore {
    /// Opens the store of this state directory. It is created if missing, readable for its owner only. Directories that were moved aside long
    /// ago are deleted.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn open(state: &Path) -> Result<Self, Error> {
        let root: Arc<Path> = state.join("attempts").into();
        make_private(&root)?;
        let unreadable = UnreadableDirs::of(state);
        unreadable.remove_old(SystemTime::now());
        Ok(Self { fault: RecordingFault::of(Arc::clone(&root)), root, unreadable, secrets: None })
    }

    /// The state directory, which holds the directories of attempts.
    #[must_use]
    pub fn state_dir(&self) -> &Path {
        self.root.parent().unwrap_or(&self.root)
    }

    /// Keeps secrets of attempts in these directories, and removes those of attempts that are not here.
    #[must_use]
    pub fn with_secrets(self, secrets: SecretDirs) -> Self {
        secrets.sweep(|name| self.root.join(name).is_dir());
        Self { secrets: Some(secrets), ..self }
    }

    /// The directories for secrets; `None` if this worker has no place for them.
    #[must_use]
    pub const fn secrets(&self) -> Option<&SecretDirs> {
        self.secrets.as_ref()
    }

    /// The reason why no attempt can be recorded in this state directory, and each change of it. A task looks after it as long as somebody
    /// has the receiver.
    pub(crate) fn watch_fault(&self) -> watch::Receiver<Option<String>> {
        let changes = self.fault.subscribe();
        tokio::spawn(self.fault.clone().watch());
        changes
    }

    /// Creates the directory of an attempt, synced to disk when this returns. An existing directory of the same attempt is returned as it
    /// is. The directory of a plain process is not synced, because the process does not survive the machine either.
    ///
    /// # Errors
    /// The disk is full, or another attempt has the directory.
    pub fn create(&self, launch: &Launch) -> Result<AttemptDir, Error> {
        let dir = self.dir(launch.token);
        match dir.launch() {
            Ok(known) if known.token == launch.token => {
                self.place_secrets(&dir, launch)?;
                return Ok(dir);
            }
            Ok(other) => {
                return Err(Error::Taken { path: dir.path.to_path_buf(), other: other.token.nonce });
            }
            // A crash left it before anything could run.
            Err(error) if error.is_about_content() => {}
            Err(error) => return Err(error),
        }
        let made = self.write_new(&dir, launch).and_then(|()| self.place_secrets(&dir, launch));
        // A half-made directory names no attempt, so no later step would remove it.
        if made.is_err()
            && has_no_output(&dir.path)
            && let Err(error) = dir.remove()
        {
            tracing::warn!(error = error_chain(&error), "cannot remove a half-made attempt directory");
        }
        if made.is_err() {
            self.fault.try_now();
        }
        made.map(|()| dir)
    }

    /// Writes the secrets of a launch. A launch without secrets may be that of a container whose directory was lost: then those that are
    /// there still mask its output.
    fn place_secrets(&self, dir: &AttemptDir, launch: &Launch) -> Result<(), Error> {
        let Some(secrets) = &self.secrets else { return Ok(()) };
        if !launch.secrets.is_empty() {
            let path = secrets.path(launch.token);
            // Recorded first: what is written is found and removed, whatever happens in between.
            dir.record_secrets(&path)?;
            return secrets.write(launch.token, &launch.secrets).map_err(io_error_at(&path));
        }
        secrets.find(launch.token).map_or(Ok(()), |path| dir.record_secrets(&path))
    }

    /// Records that an attempt whose directory was lost had secrets. Unless their values are still here, its output and its result are withheld,
    /// because they cannot be masked.
    ///
    /// # Errors
    /// The disk is full.
    pub(crate) fn record_lost_secrets(&self, dir: &AttemptDir, token: Token) -> Result<(), Error> {
        if dir.has_secrets() {
            return Ok(());
        }
        let path = self.secrets.as_ref().map_or_else(|| self.root.join("no-secrets"), |it| it.path(token));
        dir.record_secrets(&path)
    }

    fn write_new(&self, dir: &AttemptDir, launch: &Launch) -> Result<(), Error> {
        make_private(&dir.path)?;
        for stream in Stream::ALL {
            dir.output(stream)?;
        }
        let record = record::LaunchRecord::from(&without_secrets(launch));
        if launch.spec.runtime == RuntimeKind::Process {
            return dir.write_unsynced(ATTEMPT, &record);
        }
        dir.write_synced(ATTEMPT, &record)?;
        sync(&self.root)
    }

    /// The directory of this attempt, whether it exists or not.
    #[must_use]
    pub fn dir(&self, token: Token) -> AttemptDir {
        AttemptDir { path: self.root.join(format!("{}-{}", token.job, token.fence)).into() }
    }

    /// Reads every attempt that an earlier process has left. Invalid directories are moved to `<state>/unreadable` and logged.
    ///
    /// # Errors
    /// The system does not let us read one of them or the list; then the result would be incomplete.
    pub fn entries(&self) -> Result<Vec<StoredAttempt>, Error> {
        let listing = fs::read_dir(&self.root).map_err(io_error_at(&self.root))?;
        let mut entries = Vec::new();
        for found in listing {
            let path = found.map_err(io_error_at(&self.root))?.path();
            if path.ends_with(TRIAL) {
                continue;
            }
            match (AttemptDir { path: path.as_path().into() }).entry() {
                Ok(entry) if self.dir(entry.launch.token) == entry.dir => entries.push(entry),
                Ok(entry) => {
                    let token = entry.launch.token;
                    let proper = self.dir(token).path;
                    let why = format!(
                        "it holds attempt {} of job {}, whose directory is {}",
                        token.fence,
                        token.job,
                        proper.display()
                    );
                    self.unreadable.move_aside(&path, &why);
                }
                // The worker crashed while it made the directory: nothing can have run.
                Err(Error::Io { source, .. })
                    if source.kind() == io::ErrorKind::NotFound && has_no_output(&path) =>
                {
                    if let Err(error) = (AttemptDir { path: path.as_path().into() }).remove() {
                        self.unreadable.move_aside(&path, &error_chain(&error));
                    }
                }
                Err(error) if error.is_about_content() => {
                    self.unreadable.move_aside(&path, &error_chain(&error))
                }
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }
}

/// The launch without its environment, which may hold secrets. It is kept only for a plain process, because the shim reads it from here. A
/// container already has it, or gets it with the next hand-over.
pub(super) fn without_secrets(launch: &Launch) -> Launch {
    let mut kept = launch.clone();
    if launch.spec.runtime != RuntimeKind::Process {
        kept.spec = ContainerSpec { environment: Vec::new(), ..(*launch.spec).clone() }.into();
        kept.overrides = None;
    }
    kept.secrets = Arc::default();
    kept
}

impl Error {
    /// `true` if the content is wrong, `false` if the system could not read it.
    fn is_about_content(&self) -> bool {
        use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
        match self {
            Self::Io { source, .. } => matches!(source.kind(), NotFound | NotADirectory | IsADirectory),
            Self::Taken { .. } | Self::Malformed { .. } => true,
        }
    }
}

/// `true` if no byte of output was written here.
fn has_no_output(path: &Path) -> bool {
    AttemptDir { path: path.into() }.try_lengths().is_ok_and(|it| it == OutputLengths::default())
}
