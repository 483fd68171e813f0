//! The fault for which the state directory records no attempts: its disk is full, has no inodes left, or was mounted read-only.
//!
//! A record that fails may have a cause of its own, so a trial follows. If that fails too, the worker takes no jobs until a later trial
//! succeeds.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use protocol::wire::cut_text;
use tokio::sync::watch;

use crate::file_system::FileSystem;

/// The present fault of one state directory.
#[derive(Clone, Debug)]
pub(super) struct RecordingFault {
    /// The directory of all attempts.
    attempts: Arc<Path>,
    present: watch::Sender<Option<String>>,
    /// One trial at a time: all use the same path.
    trial: Arc<Mutex<()>>,
}

impl RecordingFault {
    /// No fault is known of these directories of attempts.
    pub(super) fn of(attempts: Arc<Path>) -> Self {
        Self { attempts, present: watch::Sender::new(None), trial: Arc::default() }
    }

    /// The fault, and each change of it. A fault that is known already is a change.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<String>> {
        let mut changes = self.present.subscribe();
        if changes.borrow().is_some() {
            changes.mark_changed();
        }
        changes
    }

    /// Tries to record something, and remembers the result. Blocks as long as the disk does.
    pub(super) fn try_now(&self) {
        let _one = self.trial.lock().unwrap_or_else(PoisonError::into_inner);
        // A trial on a full disk would take the last space from running jobs.
        let fault = disk_fault(&self.attempts)
            .or_else(|| try_to_record(&self.attempts.join(TRIAL)).err().map(|error| error.to_string()));
        let directory = self.attempts.parent().unwrap_or(&self.attempts).display();
        let fault = fault.map(|why| {
            let mut why = format!("the worker cannot write to its state directory {directory}: {why}");
            cut_text(&mut why);
            why
        });
        self.present.send_if_modified(|present| {
            match (&present, &fault) {
                (None, Some(why)) => tracing::error!("{why}; it takes no jobs until it can"),
                (Some(_), None) => tracing::info!(%directory, "the state directory can be written again"),
                _ => {}
            }
            let is_new = *present != fault;
            *present = fault;
            is_new
        });
    }

    /// Looks at the disk now and then, and repeats failed trials, until nobody subscribes any more.
    pub(super) async fn watch(self) {
        while !self.present.is_closed() {
            let this = self.clone();
            let look = move || {
                if this.present.borrow().is_some() || disk_fault(&this.attempts).is_some() {
                    this.try_now();
                }
            };
            if let Err(error) = tokio::task::spawn_blocking(look).await {
                tracing::error!(%error, "the state directory was not looked at");
            }
            tokio::time::sleep(TRY_AGAIN).await;
        }
    }
}

/// Makes a directory and a file as an attempt does, and removes both.
fn try_to_record(path: &Path) -> io::Result<()> {
    let made = fs::create_dir(path).or_else(|error| match error.kind() {
        // A crash left it.
        io::ErrorKind::AlreadyExists => Ok(()),
        _ => Err(error),
    });
    let written = made.and_then(|()| {
        let mut file = File::create(path.join("bytes"))?;
        file.write_all(&[0; FREE_BYTES_MIN as usize])?;
        file.sync_all()
    });
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => written.and(Err(error)),
        _ => written,
    }
}

/// The fault that the numbers of the file system tell; none if the system does not answer.
fn disk_fault(attempts: &Path) -> Option<String> {
    let disk = FileSystem::of(attempts)?;
    let usable = if rustix::process::geteuid().is_root() { disk.free_bytes } else { disk.available_bytes };
    fault_of(&disk, usable)
}

/// `usable_bytes` are those that this user may write.
fn fault_of(disk: &FileSystem, usable_bytes: u64) -> Option<String> {
    match disk {
        FileSystem { is_read_only: true, .. } => Some("it is mounted read-only".to_owned()),
        FileSystem { total_bytes: 1.., .. } if usable_bytes < FREE_BYTES_MIN => {
            // Without the number: a text that changes would be told to the server each time.
            Some("no space left on its disk".to_owned())
        }
        FileSystem { inodes: 1.., free_inodes: 0, .. } => Some("no inodes left on its disk".to_owned()),
        _ => None,
    }
}

/// The directory of trials, among those of attempts.
pub(super) const TRIAL: &str = "trial";

/// More than the record of an attempt takes.
const FREE_BYTES_MIN: u64 = 128 << 10;

/// A trial writes little, and a person who has made room waits for it.
const TRY_AGAIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_written_is_a_fault_until_it_can() {
        let state = tempfile::tempdir().expect("a directory");
        let attempts = state.path().join("attempts");
        let fault = RecordingFault::of(attempts.as_path().into());
        let mut told = fault.subscribe();
        fault.try_now();
        let why = told.borrow_and_update().clone().expect("there is no such directory");
        assert!(why.contains(&state.path().display().to_string()), "{why}");
        fault.try_now();
        assert!(!told.has_changed().expect("it lives"), "the same fault is told once");

        fs::create_dir(&attempts).expect("made");
        // A crash left it in the middle of a trial.
        fs::create_dir(attempts.join(TRIAL)).expect("made");
        fs::write(attempts.join(TRIAL).join("bytes"), "half").expect("written");
        fault.try_now();
        assert_eq!(*told.borrow_and_update(), None);
        assert_eq!(fs::read_dir(&attempts).expect("listed").count(), 0, "a trial leaves nothing");
    }

    #[test]
    fn a_fault_from_before_the_subscription_is_a_change() {
        let fault = RecordingFault::of(Path::new("/nonexistent/attempts").into());
        fault.try_now();
        let changes = fault.subscribe();
        assert!(changes.has_changed().expect("it lives") && changes.borrow().is_some());
    }

    #[test]
    fn a_file_system_tells_that_nothing_can_be_recorded() {
        let good = FileSystem {
            is_read_only: false,
            total_bytes: 1 << 20,
            free_bytes: FREE_BYTES_MIN,
            available_bytes: FREE_BYTES_MIN,
            inodes: 10,
            free_inodes: 1,
        };
        let fault = |disk: FileSystem| fault_of(&disk, disk.free_bytes).unwrap_or_default();
        assert_eq!(fault(good), "");
        assert_eq!(fault(FileSystem { inodes: 0, free_inodes: 0, ..good }), "", "there is no limit");
        assert!(fault(FileSystem { is_read_only: true, ..good }).contains("read-only"));
        assert!(fault(FileSystem { free_bytes: FREE_BYTES_MIN - 1, ..good }).contains("no space left"));
        assert_eq!(fault(FileSystem { total_bytes: 0, free_bytes: 0, ..good }), "", "a trial tells");
        assert!(fault(FileSystem { free_inodes: 0, ..good }).contains("inodes"));
    }
}
