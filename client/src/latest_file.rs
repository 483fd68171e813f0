//! Files of which only the latest content counts: the last contact with the server, the membership, the health of the worker. A task for
//! each file writes on a blocking thread, in order, so that a slow disk delays no heartbeat.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error_chain::error_chain;

/// Writes the latest value to one file.
pub(crate) struct LatestFile<T> {
    path: PathBuf,
    latest: watch::Sender<Option<T>>,
    task: JoinHandle<()>,
}

/// The file after the last value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtClose {
    /// The file stays, for the next process.
    Keep,
    /// The file is removed.
    Remove,
}

/// The way to write one file.
pub(crate) struct FileWriter<T, E> {
    /// Writes a value.
    pub(crate) write: fn(&Path, T) -> Result<(), E>,
    /// The consequence of a failure, for the log.
    pub(crate) if_it_fails: &'static str,
    /// The file after the last value.
    pub(crate) at_close: AtClose,
}

impl<T: Copy + PartialEq + Send + Sync + 'static> LatestFile<T> {
    /// Starts the task that writes to `path`. `written` is the value that the file has.
    pub(crate) fn at<E: std::error::Error + Send + 'static>(
        path: PathBuf,
        written: Option<T>,
        writer: FileWriter<T, E>,
    ) -> Self {
        let (latest, values) = watch::channel(None);
        let task = tokio::spawn(write_each(path.clone(), written, writer, values));
        Self { path, latest, task }
    }

    /// Records a value. If an earlier one is still being written, only the latest one follows it. A value that is in the file already is
    /// not written again.
    pub(crate) fn record(&self, value: T) {
        self.latest.send_replace(Some(value));
    }

    /// Waits until the last value is written, or the file removed, for this long at most.
    pub(crate) async fn close(self, limit: Duration) {
        drop(self.latest);
        if tokio::time::timeout(limit, self.task).await.is_err() {
            tracing::warn!(file = %self.path.display(), "leaving although the disk has not taken the last content of this file");
        }
    }
}

async fn write_each<T: Copy + PartialEq + Send + Sync + 'static, E: std::error::Error + Send + 'static>(
    path: PathBuf,
    mut written: Option<T>,
    writer: FileWriter<T, E>,
    mut values: watch::Receiver<Option<T>>,
) {
    let FileWriter { write, if_it_fails, at_close } = writer;
    while values.changed().await.is_ok() {
        let latest = *values.borrow_and_update();
        let Some(value) = latest.filter(|_| latest != written) else { continue };
        let to = path.clone();
        let result =
            tokio::task::spawn_blocking(move || write(&to, value).map_err(|error| error_chain(&error)));
        match result.await.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(()) => written = latest,
            Err(error) => {
                written = None;
                tracing::error!(file = %path.display(), "cannot write a file; {if_it_fails}: {error}");
            }
        }
    }
    if at_close == AtClose::Remove {
        // A failure does no harm: the time in the file is soon over.
        let _ = tokio::task::spawn_blocking(move || fs::remove_file(path)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;

    use protocol::Uptime;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;
    use crate::identity;

    #[tokio::test]
    async fn a_write_that_hangs_holds_up_nobody_and_the_latest_value_follows() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, fresh) = (dir.path().join("contact"), dir.path().join("contact.new"));
        // A writer of a pipe blocks until there is a reader.
        mknodat(CWD, &fresh, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        let file = LatestFile::at(path.clone(), None, identity::CONTACT_WRITER);
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

    #[tokio::test]
    async fn a_value_that_was_not_written_is_written_when_it_is_recorded_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("away").join("contact");
        let file = LatestFile::at(path.clone(), None, identity::CONTACT_WRITER);
        file.record(Uptime(5));
        file.close(Duration::from_secs(60)).await;
        assert!(!path.exists(), "its directory is missing");
        fs::create_dir(dir.path().join("away")).expect("made");
        let file = LatestFile::at(path.clone(), Some(Uptime(4)), identity::CONTACT_WRITER);
        file.record(Uptime(4));
        file.close(Duration::from_secs(60)).await;
        assert!(!path.exists(), "it is there already, as far as the writer knows");
        let file = LatestFile::at(path.clone(), None, identity::CONTACT_WRITER);
        file.record(Uptime(5));
        file.close(Duration::from_secs(60)).await;
        assert_eq!(identity::read_uptime(&path).expect("it is read"), Some(Uptime(5)));
    }
}
