//! The rules that are void once the store has gone back in time: everything that was promised by commits that it has lost.

use protocol::{JobId, Token};

use super::Oracle;
use crate::backup::BackupKind;
use crate::disk::Disk;

impl Oracle {
    /// An old state of the store has come back. Keys of requests that it does not know stand for nothing, and attempts may be current in it
    /// that have ended since, and may have been forgotten.
    pub(crate) fn went_back(&mut self, disk: &Disk, undone: &Disk, kind: BackupKind) {
        self.keys = disk.keys.clone();
        self.endings.clear();
        self.cancelled.clear();
        self.rate_starts.clear();
        self.accepted.retain(|(first, count)| {
            (first.0..first.0 + u64::from(*count)).all(|job| disk.row(JobId(job)).is_some())
        });
        self.undone = self.undone.max(disk.last_fence()).max(undone.last_fence());
        if kind == BackupKind::Raw {
            self.given_again = self.undone;
        }
    }

    /// True if an attempt was given before the store last went back in time: what it does may rest on what was undone.
    pub(super) fn is_of_the_past(&self, token: Token) -> bool {
        token.fence <= self.undone
    }
}
