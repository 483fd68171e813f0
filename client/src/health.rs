//! Health of a worker for checks from outside: a file with the end of its lease. If that time is over, the worker stands still or does not
//! hear its server. Without a file no worker is there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::Uptime;

use crate::{clock, identity};

/// The file of a running worker; removed when this is dropped.
pub(crate) struct HealthFile {
    path: PathBuf,
    until: Option<Uptime>,
}

impl HealthFile {
    pub(crate) const fn at(path: PathBuf) -> Self {
        Self { path, until: None }
    }

    /// Writes the end of the lease. Nothing else of the worker depends on it.
    pub(crate) fn keep(&mut self, until: Option<Uptime>) {
        if self.until == until {
            return;
        }
        self.until = until;
        if let Some(until) = until
            && let Err(error) = identity::write_uptime(&self.path, until)
        {
            tracing::warn!(file = %self.path.display(), %error, "cannot write the health file; health checks will fail");
        }
    }
}

impl Drop for HealthFile {
    fn drop(&mut self) {
        // If the file stays, its time is soon over.
        let _ = fs::remove_file(&self.path);
    }
}

/// The worker is not healthy, or cannot be checked.
#[derive(Debug, thiserror::Error)]
pub enum HealthCheckError {
    /// The file does not exist.
    #[error("no worker keeps {}: it was not started with --health-file, has not reached its server yet, or has left", .0.display())]
    Absent(PathBuf),
    /// The lease is over for this long.
    #[error("the worker has not heard its server in time: its lease was over {} s ago", .0.as_secs())]
    LeaseExpired(Duration),
    /// The file cannot be read, or is none of a worker's.
    #[error("cannot read the health file {}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
}

/// Checks that the worker hears its server: within the last lease, as the worker counts it.
///
/// # Errors
/// The worker does not hear its server, or the file cannot be read.
pub fn check(file: &Path) -> Result<(), HealthCheckError> {
    let unreadable = |cause| HealthCheckError::Unreadable { path: file.to_owned(), cause };
    let until = match identity::read_uptime(file) {
        Ok(Some(until)) => until,
        // The file is of an earlier boot: its worker is gone.
        Ok(None) => return Err(HealthCheckError::Absent(file.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(HealthCheckError::Absent(file.to_owned()));
        }
        Err(error) => return Err(unreadable(error)),
    };
    let now = clock::now().up;
    if now < until { Ok(()) } else { Err(HealthCheckError::LeaseExpired(now.since(until))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_healthy_until_its_lease_ends() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("health");
        assert!(matches!(check(&path), Err(HealthCheckError::Absent(_))));
        let mut file = HealthFile::at(path.clone());
        let now = clock::now().up;
        file.keep(None);
        assert!(matches!(check(&path), Err(HealthCheckError::Absent(_))), "not connected yet");
        file.keep(Some(now + Duration::from_secs(600)));
        check(&path).expect("well");
        file.keep(Some(now - Duration::from_secs(7)));
        assert!(matches!(check(&path), Err(HealthCheckError::LeaseExpired(since)) if since.as_secs() >= 7));
        drop(file);
        assert!(matches!(check(&path), Err(HealthCheckError::Absent(_))), "it has left");
    }

    #[test]
    fn a_file_of_another_program_is_not_a_health_file() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(matches!(check(dir.path()), Err(HealthCheckError::Unreadable { .. })));
        let path = dir.path().join("health");
        for text in ["another-boot 7\n", "7", ""] {
            fs::write(&path, text).expect("writes");
            assert!(matches!(check(&path), Err(HealthCheckError::Absent(_))), "{text:?}");
        }
    }
}
