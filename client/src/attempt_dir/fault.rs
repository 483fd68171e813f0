//! The fault for which the state directory records no attempts: its disk is full, has no inodes left, or was mounted read-only.
//!
//! A record that fails may have a cause of its own, so a trial follows. If that fails too, the worker takes no jobs until a later trial
//! succeeds.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

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

    /// The fault, and each change of it.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<String>> {
        self.present.subscribe()
    }

    /// Tries to record something, and remembers the result. Blocks as long as the disk does.
    pub(super) fn try_now(&self) {
        let _one = self.trial.lock().unwrap_or_else(PoisonError::into_inner);
        let tried = try_to_record(&self.attempts.join(TRIAL));
        let directory = self.attempts.parent().unwrap_or(&self.attempts).display();
        let fault = tried
            .err()
            .map(|error| format!("the worker cannot write to its state directory {directory}: {error}"));
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

    /// Repeats failed trials, and tries when the space is nearly used up, until nobody subscribes any more.
    pub(super) async fn watch(self) {
        while !self.present.is_closed() {
            tokio::time::sleep(TRY_AGAIN).await;
            let this = self.clone();
            let look = move || {
                if this.present.borrow().is_some() || is_nearly_used_up(&this.attempts) {
                    this.try_now();
                }
            };
            if let Err(error) = tokio::task::spawn_blocking(look).await {
                tracing::error!(%error, "the state directory was not looked at");
            }
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
        file.write_all(&[0; TRIAL_BYTES])?;
        file.sync_all()
    });
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => written.and(Err(error)),
        _ => written,
    }
}

/// The next attempt may not fit, or the system does not say how much is free.
fn is_nearly_used_up(attempts: &Path) -> bool {
    rustix::fs::statvfs(attempts).is_ok_and(|disk| {
        // A file system without a limit of inodes says that it has none at all.
        let has_no_inodes = disk.f_files > 0 && disk.f_favail == 0;
        has_no_inodes || disk.f_bavail.saturating_mul(disk.f_frsize) < TRIAL_BYTES as u64
    })
}

/// The directory of trials, among those of attempts.
pub(super) const TRIAL: &str = "trial";

/// More than the record of an attempt takes.
const TRIAL_BYTES: usize = 128 << 10;

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
        assert!(!is_nearly_used_up(&attempts));
    }
}
