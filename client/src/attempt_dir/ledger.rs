//! All attempt directories of a state directory: made, found again after a crash, set aside where they cannot be read.

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use protocol::report::{OutputLengths, Stream};
use protocol::{ContainerSpec, RuntimeKind, Token};
use worker::step::Launch;

use super::{ATTEMPT, AttemptDir, Entry, Error, at, describe, make_private, record, sync};

/// All attempt directories of one state directory.
#[derive(Clone, Debug)]
pub struct Ledger {
    root: Arc<Path>,
    aside: Arc<Path>,
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
            Err(error) if error.is_about_what_is_there() => {}
            Err(error) => return Err(error),
        }
        let made = self.fill(&dir, launch);
        // Half of one is nobody's: no attempt can be told by it, so nobody would ever remove it.
        if made.is_err()
            && is_blank(&dir.path)
            && let Err(error) = dir.remove()
        {
            tracing::warn!(error = describe(&error), "half of an attempt's directory stays");
        }
        made.map(|()| dir)
    }

    fn fill(&self, dir: &AttemptDir, launch: &Launch) -> Result<(), Error> {
        make_private(&dir.path)?;
        for stream in Stream::ALL {
            dir.output(stream)?;
        }
        let record = record::Record::from(&as_kept(launch));
        if launch.spec.runtime == RuntimeKind::Process {
            return dir.put(ATTEMPT, &record);
        }
        dir.replace(ATTEMPT, &record)?;
        sync(&self.root)
    }

    /// Where this attempt's directory is, whether it exists or not.
    #[must_use]
    pub fn dir(&self, token: Token) -> AttemptDir {
        AttemptDir { path: self.root.join(format!("{}-{}", token.job, token.fence)).into() }
    }

    /// Every attempt that an earlier process has left. What makes no sense is moved to `<state>/unreadable` and logged.
    ///
    /// # Errors
    /// The system does not let us read one of them, or the directory of directories: then nobody knows what there is.
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
                    if let Err(error) = (AttemptDir { path: path.as_path().into() }).remove() {
                        self.set_aside(&path, &describe(&error));
                    }
                }
                Err(error) if error.is_about_what_is_there() => self.set_aside(&path, &describe(&error)),
                Err(error) => return Err(error),
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

/// What is written down of an attempt. Values of an environment may be secrets: they are kept only for a plain process, whose shim reads
/// them again. A container has been given them, or is made for an attempt that is handed over once more, with them.
pub(super) fn as_kept(launch: &Launch) -> Launch {
    let mut kept = launch.clone();
    if launch.spec.runtime != RuntimeKind::Process {
        kept.spec = ContainerSpec { environment: Vec::new(), ..(*launch.spec).clone() }.into();
        kept.body = None;
    }
    kept
}

impl Error {
    /// Whether it is because of what is there, and not because the system could not look.
    fn is_about_what_is_there(&self) -> bool {
        use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
        match self {
            Self::Io { source, .. } => matches!(source.kind(), NotFound | NotADirectory | IsADirectory),
            Self::Taken { .. } | Self::Malformed { .. } => true,
        }
    }
}

/// Whether nothing was ever written here.
fn is_blank(path: &Path) -> bool {
    AttemptDir { path: path.into() }.lengths() == OutputLengths::default()
}
