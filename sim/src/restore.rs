//! The store goes back in time, in one of the two ways of [`BackupKind`].
//!
//! Commits after the backup are gone, and with them their promises: jobs, keys, ends. Everything else holds. A slot that fired after a
//! backup of the kind [`BackupKind::Restored`] does not fire again.

use std::time::Duration;

use scheduler::job::State;

use crate::agenda::Event;
use crate::backup::{Backup, BackupKind};
use crate::server::CrashPoint;
use crate::world::{PendingBackup, World};

impl World {
    /// Copies the disk now, and schedules its restore. A proper backup waits until some job is assigned, because that case is the hardest.
    pub(crate) fn back_up(&mut self, kind: BackupKind, back_after: Duration, away: Duration) {
        let has_assigned_job = self.server.disk.rows().any(|(_, row)| row.state == State::Assigned);
        if kind == BackupKind::Restored && !has_assigned_job {
            self.pending_backup = Some(PendingBackup { back_after, away });
            return;
        }
        let number = self.backups.len() as u32;
        self.backups.push(Some(Backup { disk: self.server.disk.clone(), kind, away }));
        self.agenda.schedule(self.now + back_after, Event::Restore { backup: number });
    }

    /// Takes the backup that waits for an assigned job, or lets it wait on. Called after each commit.
    pub(crate) fn take_pending_backup(&mut self) {
        if let Some(PendingBackup { back_after, away }) = self.pending_backup.take() {
            self.back_up(BackupKind::Restored, back_after, away);
        }
    }

    /// Crashes the server if it runs, and puts the disk of a backup in the place of the present one, unless the script is over.
    pub(crate) fn restore_store(&mut self, number: u32) {
        let Some(Backup { mut disk, kind, away }) = self.backups[number as usize].take() else { return };
        if self.now >= self.script.ends {
            return;
        }
        self.trace.say(self.now, || format!("disk    is as it was when it had group {}", disk.group.0));
        if self.server.process.is_some() {
            self.server.planned_crash = Some((CrashPoint::AfterDecision, away));
            self.crash_server();
        }
        disk.go_on(kind, &self.server.disk);
        if kind == BackupKind::Restored {
            disk.schedules.go_on(&self.server.disk.schedules, self.server.clock.utc(self.now));
        }
        let present = std::mem::replace(&mut self.server.disk, disk);
        self.oracle.went_back(&self.server.disk, &present, kind);
    }
}
