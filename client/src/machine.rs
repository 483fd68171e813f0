//! Load and free disk of the machine, for heartbeats and for the low-disk state of the worker.

use std::path::{Path, PathBuf};

use tokio::sync::watch;
use tokio::time::{Duration, Instant};

use crate::file_system::FileSystem;

/// The load average of one minute, in thousandths.
pub(crate) fn load_milli() -> u32 {
    let load = rustix::system::sysinfo().loads[0];
    u32::try_from(load.saturating_mul(1000) >> LOAD_FRACTION_BITS).unwrap_or(u32::MAX)
}

/// Free disk space in the state directory, which holds waiting output. A task measures it on a blocking thread, since the question may hang
/// as long as the disk does.
pub(crate) struct DiskSpace {
    directory: PathBuf,
    measured: watch::Receiver<Option<Measured>>,
    is_low: bool,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
struct Measured {
    free: u64,
    total: u64,
    at: Instant,
}

impl DiskSpace {
    /// Watches this directory as long as this lives, and assumes enough space until the first measurement.
    pub(crate) fn of(directory: &Path) -> Self {
        let (measures, measured) = watch::channel(None);
        let watched = directory.to_owned();
        tokio::spawn(async move {
            while !measures.is_closed() {
                let directory = watched.clone();
                let found = tokio::task::spawn_blocking(move || measure(&directory)).await.ok().flatten();
                measures.send_replace(found);
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        Self { directory: directory.to_owned(), measured, is_low: false }
    }

    /// Free bytes; `None` if the system does not say, or has not said for a while.
    pub(crate) fn free_bytes(&self, now: Instant) -> Option<u64> {
        let measured = *self.measured.borrow();
        measured.filter(|it| now < it.at + VALID_FOR).map(|it| it.free)
    }

    /// `Some(is_low)` if that changed since the last call.
    pub(crate) fn changed(&mut self) -> Option<bool> {
        let measured = *self.measured.borrow();
        measured.and_then(|it| self.update(it.free, it.total))
    }

    fn update(&mut self, free: u64, total: u64) -> Option<bool> {
        let is_low = free < (total / 20).min(LOW_BYTES);
        if is_low == self.is_low {
            return None;
        }
        self.is_low = is_low;
        let directory = self.directory.display();
        if is_low {
            tracing::error!(%directory, free, total, "the disk is nearly full: unacknowledged output of ended jobs is dropped after 30 s");
        } else {
            tracing::info!(%directory, free, total, "the disk has enough free space again");
        }
        Some(is_low)
    }
}

fn measure(directory: &Path) -> Option<Measured> {
    let disk = FileSystem::of(directory)?;
    Some(Measured { free: disk.available_bytes, total: disk.total_bytes, at: Instant::now() })
}

/// Disk space is low below the smaller of 5 % and this, as it is for the server. See docs/design/storage.md, S13.
const LOW_BYTES: u64 = 512 << 20;

/// A check is one system call.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Age at which a measurement is no longer reported: the disk has not answered for several heartbeats.
const VALID_FOR: Duration = Duration::from_secs(30);

/// `SI_LOAD_SHIFT` of sysinfo(2).
const LOAD_FRACTION_BITS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_machine_has_a_disk_and_a_sane_load() {
        let mut disk = DiskSpace::of(&std::env::temp_dir());
        assert_eq!(disk.free_bytes(Instant::now()), None, "not measured yet");
        disk.measured.wait_for(Option::is_some).await.expect("measured");
        let now = Instant::now();
        assert!(disk.free_bytes(now) > Some(0));
        assert_eq!(disk.free_bytes(now + VALID_FOR), None, "an old measurement is not reported");
        assert!(load_milli() < 10_000_000, "{}", load_milli());
    }

    #[tokio::test]
    async fn low_disk_space_is_reported_when_it_begins_and_ends() {
        let mut disk_space = DiskSpace::of(Path::new("/"));
        for (free, total, told) in [
            (5 << 20, 100 << 20, None),
            ((5 << 20) - 1, 100 << 20, Some(true)),
            (0, 100 << 20, None),
            (512 << 20, 1 << 40, Some(false)),
            ((512 << 20) - 1, 1 << 40, Some(true)),
        ] {
            assert_eq!(disk_space.update(free, total), told, "{free} of {total}");
        }
    }

    #[tokio::test]
    async fn an_unreadable_directory_changes_nothing() {
        let mut disk = DiskSpace::of(Path::new("/nonexistent"));
        disk.measured.changed().await.expect("looked at");
        assert_eq!((disk.changed(), disk.free_bytes(Instant::now())), (None, None));
    }
}
