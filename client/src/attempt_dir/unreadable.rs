//! Attempt directories that cannot be read. They are moved to `<state>/unreadable`, where a person may look at them, and are deleted after
//! 30 days, like what is left over in the server's data directory.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::private_dir::make_private;
use super::{Error, io_error_at};
use crate::error_chain::error_chain;

/// The directory for attempt directories that cannot be read.
#[derive(Clone, Debug)]
pub(super) struct UnreadableDirs {
    dir: Arc<Path>,
}

impl UnreadableDirs {
    pub(super) fn of(state: &Path) -> Self {
        Self { dir: state.join("unreadable").into() }
    }

    /// Moves a directory here, and logs why.
    pub(super) fn move_aside(&self, path: &Path, why: &str) {
        match self.move_here(path) {
            Ok(()) => {
                tracing::error!(path = %path.display(), why, moved_to = %self.dir.display(), "an attempt directory cannot be read and was moved aside")
            }
            Err(error) => {
                let error = error_chain(&error);
                tracing::error!(path = %path.display(), why, error, "an attempt directory can neither be read nor moved aside")
            }
        }
    }

    fn move_here(&self, path: &Path) -> Result<(), Error> {
        make_private(&self.dir)?;
        let name = path.file_name().unwrap_or_default();
        let mut target = self.dir.join(name);
        for n in 1.. {
            if !target.exists() {
                break;
            }
            target = self.dir.join(format!("{}.{n}", name.to_string_lossy()));
        }
        fs::rename(path, &target).map_err(io_error_at(path))?;
        // Its age counts from now. If that cannot be written, it counts from its last change.
        let moved_at = SystemTime::now();
        let stamped = File::open(&target).and_then(|it| it.set_modified(moved_at));
        stamped.unwrap_or_else(|error| {
            tracing::debug!(%error, path = %target.display(), "cannot set the time of a directory that was moved aside")
        });
        Ok(())
    }

    /// Deletes what was moved here 30 days before this time or earlier. What cannot be deleted is logged and left.
    pub(super) fn remove_old(&self, now: SystemTime) {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => {
                return tracing::warn!(%error, path = %self.dir.display(), "cannot list unreadable attempt directories");
            }
        };
        for entry in entries.flatten() {
            let moved_at = entry.metadata().and_then(|metadata| metadata.modified());
            let age = moved_at.ok().and_then(|at| now.duration_since(at).ok());
            if age.is_none_or(|age| age < KEPT_FOR) {
                continue;
            }
            let path = entry.path();
            let removed =
                if path.is_dir() { super::removal::remove_tree(&path) } else { fs::remove_file(&path) };
            match removed {
                Ok(()) => {
                    tracing::info!(path = %path.display(), "deleted an old unreadable attempt directory")
                }
                Err(error) => {
                    tracing::warn!(%error, path = %path.display(), "cannot delete an old unreadable attempt directory")
                }
            }
        }
    }
}

const KEPT_FOR: Duration = Duration::from_secs(30 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_directories_are_deleted_and_later_ones_stay() {
        let state = tempfile::tempdir().expect("a directory");
        let unreadable = UnreadableDirs::of(state.path());
        unreadable.remove_old(SystemTime::now());
        for name in ["1-1", "2-2"] {
            let broken = state.path().join(name);
            fs::create_dir(&broken).expect("made");
            fs::write(broken.join("stdout"), "text").expect("written");
            unreadable.move_aside(&broken, "a test");
        }
        let first = state.path().join("unreadable/1-1");
        let long_ago = SystemTime::now() - KEPT_FOR;
        File::open(&first).and_then(|it| it.set_modified(long_ago)).expect("set");
        unreadable.remove_old(SystemTime::now());
        assert!(!first.exists());
        assert!(state.path().join("unreadable/2-2/stdout").exists());
    }
}
