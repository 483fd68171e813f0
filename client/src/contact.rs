//! The file with the last contact with the server, for the next process. A task of its own writes it, so that a slow disk delays no
//! heartbeat. What is on the disk is never later than the last contact: a process that reads an earlier one only stops sooner.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use protocol::Uptime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::identity;

/// Writes the last contact.
pub(crate) struct ContactFile {
    latest: watch::Sender<Option<Uptime>>,
    task: JoinHandle<()>,
}

impl ContactFile {
    /// Starts the task that writes to `path`.
    pub(crate) fn at(path: PathBuf) -> Self {
        let (latest, contacts) = watch::channel(None);
        Self { latest, task: tokio::spawn(write_each(path, contacts)) }
    }

    /// Records a contact. If an earlier one is still being written, only the latest one follows it.
    pub(crate) fn record(&self, at: Uptime) {
        self.latest.send_replace(Some(at));
    }

    /// Waits until the last contact is written, for this long at most.
    pub(crate) async fn close(self, limit: Duration) {
        drop(self.latest);
        if tokio::time::timeout(limit, self.task).await.is_err() {
            tracing::warn!("leaving although the last contact with the server is not written");
        }
    }
}

async fn write_each(path: PathBuf, mut contacts: watch::Receiver<Option<Uptime>>) {
    while contacts.changed().await.is_ok() {
        let Some(at) = *contacts.borrow_and_update() else { continue };
        let to = path.clone();
        let written = tokio::task::spawn_blocking(move || identity::write_uptime(&to, at)).await;
        if let Err(error) = written.unwrap_or_else(|error| Err(io::Error::other(error))) {
            // The next process assumes the worst and stops attempts with `self_fence`.
            tracing::error!(
                file = %path.display(),
                "cannot record the last contact with the server; a restart may stop attempts with self_fence: {error}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Read as _;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[tokio::test]
    async fn a_write_that_hangs_holds_up_nobody_and_the_latest_contact_follows() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, fresh) = (dir.path().join("contact"), dir.path().join("contact.new"));
        // A writer of a pipe blocks until there is a reader.
        mknodat(CWD, &fresh, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        let file = ContactFile::at(path.clone());
        file.record(Uptime(5));
        let reader = tokio::task::spawn_blocking(move || {
            let mut text = String::new();
            File::open(fresh).and_then(|mut pipe| pipe.read_to_string(&mut text)).map(|_| text)
        });
        let text = reader.await.expect("it is read").expect("it is written");
        assert!(text.ends_with(" 5\n"), "{text:?}");
        file.record(Uptime(6));
        file.record(Uptime(7));
        file.close(Duration::from_secs(60)).await;
        assert!(fs::metadata(&path).expect("it is there").is_file());
        assert_eq!(identity::read_uptime(&path).expect("it is read"), Some(Uptime(7)));
    }
}
