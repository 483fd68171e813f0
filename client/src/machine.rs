//! Load and free disk of the machine, for heartbeats and for the low-disk state of the worker.

use std::path::{Path, PathBuf};

use tokio::time::{Duration, Instant};

/// Load and free disk at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// The load average of one minute, in thousandths.
    pub(crate) load_milli: u32,
    /// Free bytes in the file system of the state directory; `None` if the system does not say.
    pub(crate) disk_free_bytes: Option<u64>,
}

/// Measures load and free disk with two system calls.
pub(crate) fn measure(state_dir: &Path) -> Machine {
    let load = rustix::system::sysinfo().loads[0];
    Machine {
        load_milli: u32::try_from(load.saturating_mul(1000) >> LOAD_FRACTION_BITS).unwrap_or(u32::MAX),
        disk_free_bytes: rustix::fs::statvfs(state_dir)
            .ok()
            .map(|it| it.f_bavail.saturating_mul(it.f_frsize)),
    }
}

/// Free disk space in the directory that holds waiting output, checked from time to time.
pub(crate) struct DiskSpace {
    directory: PathBuf,
    look_at: Instant,
    is_low: bool,
}

impl DiskSpace {
    /// Watches this directory, and assumes enough space until the first check.
    pub(crate) fn of(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), look_at: Instant::now(), is_low: false }
    }

    /// `Some(is_low)` if that changed since the last call.
    pub(crate) fn changed(&mut self, now: Instant) -> Option<bool> {
        if now < self.look_at {
            return None;
        }
        self.look_at = now + LOOK_EVERY;
        let disk = rustix::fs::statvfs(&self.directory).ok()?;
        self.update(disk.f_bavail.saturating_mul(disk.f_frsize), disk.f_blocks.saturating_mul(disk.f_frsize))
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

/// Disk space is low below the smaller of 5 % and this, as it is for the server. See docs/design/storage.md, S13.
const LOW_BYTES: u64 = 512 << 20;

/// A check is one system call.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// `SI_LOAD_SHIFT` of sysinfo(2).
const LOAD_FRACTION_BITS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_a_disk_and_a_sane_load() {
        let machine = measure(&std::env::temp_dir());
        assert!(machine.disk_free_bytes > Some(0));
        assert!(machine.load_milli < 10_000_000, "{}", machine.load_milli);
        assert_eq!(measure(Path::new("/nonexistent")).disk_free_bytes, None);
    }

    #[test]
    fn low_disk_space_is_reported_when_it_begins_and_ends() {
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

    #[test]
    fn an_unreadable_directory_changes_nothing() {
        assert_eq!(DiskSpace::of(Path::new("/nonexistent")).changed(Instant::now()), None);
    }
}
