//! Sends pending messages in a fixed order: heartbeat, condition, numbered reports, inventory, other
//! messages.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem;

use protocol::report::{Condition, Heartbeat, Inventory};
use protocol::{Report, Token, Uptime};

use crate::attempt::{Attempt, Stage};
use crate::core::Worker;
use crate::outbox::{ENTRIES_MAX, Entry};
use crate::step::Effect;

impl Worker {
    /// Sends all pending messages.
    pub(crate) fn send_pending(&mut self, now: Uptime) {
        let notices = mem::take(&mut self.notices);
        if let Some(number) = self.link.next_heartbeat(now) {
            let (busy, queued) = self.load();
            self.effects.push(Effect::Send(Report::Heartbeat(Heartbeat {
                number,
                busy,
                queued,
                ..Heartbeat::default()
            })));
        }
        if notices.condition {
            let condition = self.condition();
            self.effects.push(Effect::Send(Report::Condition(condition)));
        }
        let attempts = &self.attempts;
        self.outbox.pack(notices.running.iter().filter_map(|token| running_entry(attempts, *token)));
        let effects = &mut self.effects;
        self.outbox.send_unsent(now, |report| effects.push(Effect::Send(report)));
        if notices.inventory {
            self.send_inventory();
        }
        self.send_list(notices.status, Report::Status);
        let progress =
            notices.progress.iter().filter_map(|token| Some((*token, self.attempts.get(token)?.phase())));
        self.send_list(progress.collect(), Report::Progress);
        self.send_list(notices.wanted, Report::Wanted);
        if notices.foreign && !notices.inventory {
            self.send_list(self.foreign.clone(), Report::Foreign);
        }
    }

    fn send_list<T: Clone>(&mut self, list: Vec<T>, report: impl Fn(Vec<T>) -> Report) {
        for part in list.chunks(ENTRIES_MAX) {
            self.effects.push(Effect::Send(report(part.to_vec())));
        }
    }

    fn send_inventory(&mut self) {
        let runtimes = self.runtimes();
        let unavailable = runtimes.iter().filter(|(_, it)| !it.is_available());
        self.incomplete = unavailable.map(|(kind, _)| *kind).collect();
        let attempts: Vec<_> =
            self.attempts.iter().map(|(token, attempt)| (*token, attempt.phase())).collect();
        let mut attempts = attempts.chunks(ENTRIES_MAX);
        let mut foreign = self.foreign.chunks(ENTRIES_MAX);
        loop {
            let inventory = Inventory {
                runtimes: runtimes.clone(),
                attempts: attempts.next().unwrap_or_default().to_vec(),
                foreign: foreign.next().unwrap_or_default().to_vec(),
                last: attempts.len() == 0 && foreign.len() == 0,
            };
            let last = inventory.last;
            self.effects.push(Effect::Send(Report::Inventory(inventory)));
            if last {
                return;
            }
        }
    }

    fn condition(&self) -> Condition {
        Condition {
            runtimes: self.runtimes(),
            slots: self.slots.count(),
            draining: self.shutdown_mode().is_some(),
        }
    }
}

/// The Running report of an attempt. If it has ended meanwhile, its final report contains everything.
fn running_entry(attempts: &BTreeMap<Token, Attempt>, token: Token) -> Option<Entry> {
    let Stage::Running { container, at } = &attempts.get(&token)?.stage else {
        return None;
    };
    Some(Entry::Running { token, container: container.clone(), at: *at })
}
