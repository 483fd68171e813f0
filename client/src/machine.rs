//! The machine: what a heartbeat tells about it, and whether there is room where output waits.

use std::path::{Path, PathBuf};

use tokio::time::{Duration, Instant};

/// How the machine is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// The load average of one minute, in thousandths.
    pub(crate) load_milli: u32,
    /// Free bytes for us where the state directory is, if that can be told.
    pub(crate) disk_free_bytes: Option<u64>,
}

/// Two system calls.
pub(crate) fn measure(state_dir: &Path) -> Machine {
    let load = rustix::system::sysinfo().loads[0];
    Machine {
        load_milli: u32::try_from(load.saturating_mul(1000) >> LOAD_FRACTION_BITS).unwrap_or(u32::MAX),
        disk_free_bytes: rustix::fs::statvfs(state_dir)
            .ok()
            .map(|it| it.f_bavail.saturating_mul(it.f_frsize)),
    }
}

/// Whether there is room in the directory where output waits. Asked often, it looks from time to time.
pub(crate) struct Room {
    directory: PathBuf,
    look_at: Instant,
    is_low: bool,
}

impl Room {
    /// In this directory; taken to be enough until somebody has looked.
    pub(crate) fn of(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), look_at: Instant::now(), is_low: false }
    }

    /// Whether it is low now, if that is new.
    pub(crate) fn changed(&mut self, now: Instant) -> Option<bool> {
        if now < self.look_at {
            return None;
        }
        self.look_at = now + LOOK_EVERY;
        let disk = rustix::fs::statvfs(&self.directory).ok()?;
        self.note(disk.f_bavail.saturating_mul(disk.f_frsize), disk.f_blocks.saturating_mul(disk.f_frsize))
    }

    fn note(&mut self, free: u64, total: u64) -> Option<bool> {
        let is_low = free < (total / 20).min(LOW_BYTES);
        if is_low == self.is_low {
            return None;
        }
        self.is_low = is_low;
        let directory = self.directory.display();
        if is_low {
            tracing::error!(%directory, free, total, "the disk is nearly full: output of ended jobs is kept for half a minute");
        } else {
            tracing::info!(%directory, free, total, "the disk has room again");
        }
        Some(is_low)
    }
}

/// Room is low below the smaller of 5 % and this, as it is for the server. DESIGN.md section 4.
const LOW_BYTES: u64 = 512 << 20;

/// One system call each.
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
    fn room_is_told_when_it_becomes_low_and_when_it_is_enough_again() {
        let mut room = Room::of(Path::new("/"));
        for (free, total, told) in [
            (5 << 20, 100 << 20, None),
            ((5 << 20) - 1, 100 << 20, Some(true)),
            (0, 100 << 20, None),
            (512 << 20, 1 << 40, Some(false)),
            ((512 << 20) - 1, 1 << 40, Some(true)),
        ] {
            assert_eq!(room.note(free, total), told, "{free} of {total}");
        }
    }

    #[test]
    fn a_directory_that_cannot_be_looked_at_changes_nothing() {
        assert_eq!(Room::of(Path::new("/nonexistent")).changed(Instant::now()), None);
    }
}
