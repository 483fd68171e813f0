//! Space that is reserved on the disk: a commit that finds the disk full gets it, so that what workers report is still taken in.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::storage::{RESERVE, START_BYTES, low_water_mark, reserve};

/// The file that holds it.
#[derive(Debug)]
pub(super) struct Reserve {
    file: PathBuf,
    /// When it was last seen to be there, or no room for it.
    looked: Instant,
    /// Some file systems cannot reserve space.
    is_impossible: bool,
}

const LOOK_EVERY: Duration = Duration::from_secs(2);

impl Reserve {
    /// Of the store in this directory; reserved at once if there is room.
    pub(super) fn lay(directory: &Path) -> Self {
        let mut reserve =
            Self { file: directory.join(RESERVE), looked: Instant::now(), is_impossible: false };
        reserve.lay_if_missing();
        reserve
    }

    /// Deletes the reserve; false if there was none.
    pub(super) fn release(&self) -> bool {
        release(&self.file)
    }

    /// Reserves it again once there is room; looks every few seconds.
    pub(super) fn renew(&mut self) {
        if self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            self.lay_if_missing();
        }
    }

    /// A reserve is good to have, no more: what is in the way of it is not told.
    fn lay_if_missing(&mut self) {
        if self.is_impossible || self.file.exists() {
            return;
        }
        let Some(bytes) = self.affordable() else { return };
        let Ok(file) = File::create_new(&self.file) else { return };
        if let Err(error) = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            tracing::debug!(%error, "no reserve of disk space");
            let _ = fs::remove_file(&self.file);
            self.is_impossible = error == Errno::OPNOTSUPP;
        }
    }

    /// How much the disk can spare, if that leaves twice what new jobs need.
    fn affordable(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(self.file.parent().unwrap_or(Path::new("."))).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        spared(bytes(disk.f_bavail), bytes(disk.f_blocks))
    }
}

/// A start needs some room before it can do anything, even to take in what workers report: it has the reserve, if there is one.
pub(super) fn make_room(directory: &Path) {
    let is_short = rustix::fs::statvfs(directory)
        .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < START_BYTES);
    if is_short {
        release(&directory.join(RESERVE));
    }
}

fn release(file: &Path) -> bool {
    let released = fs::remove_file(file).is_ok();
    if released {
        tracing::warn!("the disk is full: the reserve is in use");
    }
    released
}

fn spared(free: u64, total: u64) -> Option<u64> {
    let bytes = reserve(total);
    (free >= bytes + 2 * low_water_mark(total)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn small_disks_have_a_reserve_and_full_ones_none() {
        for (free, total, bytes) in [
            (1 << 39, 1 << 40, Some(64 * MIB)),
            ((64 + 1_024) * MIB, 1 << 40, Some(64 * MIB)),
            ((64 + 1_024) * MIB - 1, 1 << 40, None),
            (256 * MIB, 256 * MIB, Some(64 * MIB)),
            (100 * MIB, 100 * MIB, Some(25 * MIB)),
            (35 * MIB - 1, 100 * MIB, None),
            (0, 100 * MIB, None),
        ] {
            assert_eq!(spared(free, total), bytes, "{free} of {total}");
        }
    }

    #[test]
    fn released_reserve_is_allocated_again() {
        let place = tempfile::tempdir().unwrap();
        let mut reserve = Reserve::lay(place.path());
        reserve.release();
        assert!(!reserve.release());
        reserve.looked = Instant::now().checked_sub(LOOK_EVERY).unwrap();
        let is_affordable = reserve.affordable().is_some();
        reserve.renew();
        assert_eq!(place.path().join(RESERVE).exists(), is_affordable);
    }
}
