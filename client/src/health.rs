//! Whether a worker hears its server, for those who look from outside: a file that says until when it counts as connected. Whoever finds
//! that time over knows that the worker stands still or does not hear its server; without a file, that no worker is there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::Uptime;

use crate::{clock, identity};

/// The file, while its worker lives.
pub(crate) struct HealthFile {
    path: PathBuf,
    until: Option<Uptime>,
}

impl HealthFile {
    pub(crate) const fn at(path: PathBuf) -> Self {
        Self { path, until: None }
    }

    /// Keeps the file up with the end of the lease. Nothing else of the worker depends on it.
    pub(crate) fn keep(&mut self, until: Option<Uptime>) {
        if self.until == until {
            return;
        }
        self.until = until;
        if let Some(until) = until
            && let Err(error) = identity::put_moment(&self.path, until)
        {
            tracing::warn!(file = %self.path.display(), %error, "cannot keep the health file");
        }
    }
}

impl Drop for HealthFile {
    fn drop(&mut self) {
        // If it stays, it is soon over.
        let _ = fs::remove_file(&self.path);
    }
}

/// The worker that keeps a health file is not well.
#[derive(Debug, thiserror::Error)]
pub enum Unwell {
    /// There is no such file.
    #[error("no worker keeps {}: it was not started with --health-file, has not reached its server yet, or has left", .0.display())]
    Absent(PathBuf),
    /// Its lease is over.
    #[error("the worker has not heard its server in time: its lease was over {} s ago", .0.as_secs())]
    Silent(Duration),
    /// The file cannot be read, or is none of a worker's.
    #[error("cannot read the health file {}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
}

/// Whether the worker that keeps this file hears its server: within the last lease, as the worker counts it.
///
/// # Errors
/// It does not, or nobody can tell.
pub fn check(file: &Path) -> Result<(), Unwell> {
    let unreadable = |cause| Unwell::Unreadable { path: file.to_owned(), cause };
    let until = match identity::moment(file) {
        Ok(Some(until)) => until,
        // Of an earlier boot: whoever kept it is gone.
        Ok(None) => return Err(Unwell::Absent(file.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Unwell::Absent(file.to_owned()));
        }
        Err(error) => return Err(unreadable(error)),
    };
    let now = clock::now().up;
    if now < until { Ok(()) } else { Err(Unwell::Silent(now.since(until))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_well_until_its_lease_is_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("health");
        assert!(matches!(check(&path), Err(Unwell::Absent(_))));
        let mut file = HealthFile::at(path.clone());
        let now = clock::now().up;
        file.keep(None);
        assert!(matches!(check(&path), Err(Unwell::Absent(_))), "not connected yet");
        file.keep(Some(now + Duration::from_secs(600)));
        check(&path).expect("well");
        file.keep(Some(now - Duration::from_secs(7)));
        assert!(matches!(check(&path), Err(Unwell::Silent(since)) if since.as_secs() >= 7));
        drop(file);
        assert!(matches!(check(&path), Err(Unwell::Absent(_))), "it has left");
    }

    #[test]
    fn what_no_worker_has_written_is_no_health_file() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(matches!(check(dir.path()), Err(Unwell::Unreadable { .. })));
        let path = dir.path().join("health");
        for text in ["another-boot 7\n", "7", ""] {
            fs::write(&path, text).expect("writes");
            assert!(matches!(check(&path), Err(Unwell::Absent(_))), "{text:?}");
        }
    }
}
