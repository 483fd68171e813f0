//! Health of a worker for checks from outside: a file with the end of its lease. If that time is over, the worker stands still or does not
//! hear its server. Without a file no worker is there.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::Uptime;

use crate::latest_file::{AtClose, FileWriter, LatestFile};
use crate::{clock, identity};

/// The file of a running worker.
pub(crate) struct HealthFile {
    file: LatestFile<Uptime>,
}

impl HealthFile {
    pub(crate) fn at(path: PathBuf) -> Self {
        let writer = FileWriter {
            write: identity::write_uptime,
            if_it_fails: "health checks of this worker will fail",
            at_close: AtClose::Remove,
        };
        Self { file: LatestFile::at(path, None, writer) }
    }

    /// Records the end of the lease. Nothing else of the worker depends on it.
    pub(crate) fn record_lease_end(&self, until: Option<Uptime>) {
        if let Some(until) = until {
            self.file.record(until);
        }
    }

    /// Removes the file, and waits for that for this long at most. If the file stays, its time is soon over.
    pub(crate) async fn close(self, limit: Duration) {
        self.file.close(limit).await;
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
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn a_worker_is_healthy_until_its_lease_ends() {
        const LIMIT: Duration = Duration::from_secs(60);
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("health");
        assert!(matches!(check(&path), Err(HealthCheckError::Absent(_))));
        let file = HealthFile::at(path.clone());
        let now = clock::now().up;
        file.record_lease_end(None);
        assert!(matches!(check(&path), Err(HealthCheckError::Absent(_))), "not connected yet");
        let checked = async |expected: fn(&Result<(), HealthCheckError>) -> bool| {
            let wait = async {
                while !expected(&check(&path)) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(LIMIT, wait).await.expect("written in time");
        };
        file.record_lease_end(Some(now + Duration::from_secs(600)));
        checked(Result::is_ok).await;
        file.record_lease_end(Some(now - Duration::from_secs(7)));
        checked(|it| matches!(it, Err(HealthCheckError::LeaseExpired(since)) if since.as_secs() >= 7)).await;
        file.close(LIMIT).await;
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
