//! The store goes back in time: a backup is restored as `longshore restore` does it, which leaves out all numbers that may have been given
//! since, and all slots that may have fired; or an old state comes back as it was, as after a failover that lost commits, and numbers are given a second time.
//!
//! Commits after the backup are gone, and with them their promises: jobs, keys, ends. Everything else holds. A slot that fired after a
//! proper backup does not fire again.

use std::time::Duration;

use scheduler::job::State;

use crate::agenda::Event;
use crate::backup::Backup;
use crate::world::{WantedBackup, World};

impl World {
    /// The store is kept as it is, and comes back after a while. A proper backup is made when something is assigned in it: what becomes of
    /// that meanwhile is the hardest to guess.
    pub(crate) fn back_up(&mut self, is_raw: bool, back_after: Duration, away: Duration) {
        let is_telling = self.server.disk.rows().any(|(_, row)| row.state == State::Assigned);
        if !is_raw && !is_telling {
            self.wanted_backup = Some(WantedBackup { back_after, away });
            return;
        }
        let number = self.backups.len() as u32;
        self.backups.push(Some(Backup { disk: self.server.disk.clone(), is_raw, away }));
        self.agenda.schedule(self.now + back_after, Event::Restore { backup: number });
    }

    /// A group has become durable.
    pub(crate) fn make_wanted_backup(&mut self) {
        if let Some(WantedBackup { back_after, away }) = self.wanted_backup.take() {
            self.back_up(false, back_after, away);
        }
    }

    pub(crate) fn restore_store(&mut self, number: u32) {
        let Some(Backup { mut disk, is_raw, away }) = self.backups[number as usize].take() else { return };
        if self.now >= self.script.ends {
            return;
        }
        self.trace.say(self.now, || format!("disk    is as it was when it had group {}", disk.group.0));
        if self.server.process.is_some() {
            self.server.doom = Some((crate::server::Doom::Decided, away));
            self.crash_server();
        }
        disk.go_on(is_raw, &self.server.disk);
        if !is_raw {
            disk.schedules.go_on(&self.server.disk.schedules, self.server.clock.utc(self.now));
        }
        let present = std::mem::replace(&mut self.server.disk, disk);
        self.oracle.went_back(&self.server.disk, &present, is_raw);
    }
}
