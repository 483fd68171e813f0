//! Refusals that come again and again: a worker that is refused tries again every few seconds, for weeks. The log gets the first one at
//! once, and then a row with a count each hour, so that such a worker does not fill it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use protocol::Timestamp;

use super::key::{AuditKey, Span};

/// Refusals of the last hour.
#[derive(Debug, Default)]
pub(super) struct Repeats(HashMap<AuditKey, Repeat>);

#[derive(Debug)]
struct Repeat {
    /// When the last row was written.
    written: Timestamp,
    /// The refusals since then.
    since: Option<Span>,
}

impl Repeats {
    /// Counts a refusal that is like an earlier one of the last hour. Returns false for the first one, which gets a row now.
    pub(super) fn count(&mut self, key: &AuditKey, now: Timestamp, request_id: &str) -> bool {
        let Some(repeat) = self.0.get_mut(key) else {
            if self.0.len() < REPEATS_MAX {
                self.0.insert(key.clone(), Repeat { written: now, since: None });
            }
            return false;
        };
        repeat.since.get_or_insert_with(|| Span::new(now)).add(now, request_id);
        true
    }

    /// Counts a refusal of a network like [`Repeats::count`]. Beyond [`REPEATS_MAX`] the refusals of all further networks are counted together.
    pub(super) fn count_of_network(&mut self, key: AuditKey, now: Timestamp, request_id: &str) -> bool {
        if self.0.len() < REPEATS_MAX || self.0.contains_key(&key) {
            return self.count(&key, now, request_id);
        }
        match self.0.entry(AuditKey { address: None, ..key }) {
            Entry::Occupied(mut together) => {
                together.get_mut().since.get_or_insert_with(|| Span::new(now)).add(now, request_id);
                true
            }
            Entry::Vacant(first) => {
                first.insert(Repeat { written: now, since: None });
                false
            }
        }
    }

    /// Takes the counts that are due, or all of them, and forgets refusals that did not come again.
    pub(super) fn take(&mut self, now: Timestamp, are_all_due: bool) -> Vec<(AuditKey, Span)> {
        let mut due = Vec::new();
        self.0.retain(|key, repeat| {
            // The clock may have been set back.
            if !are_all_due && (0..EVERY_MS).contains(&(now.0 - repeat.written.0)) {
                return true;
            }
            repeat.written = now;
            let span = repeat.since.take();
            let has_repeated = span.is_some();
            due.extend(span.map(|span| (key.clone(), span)));
            has_repeated
        });
        due
    }
}

const EVERY_MS: i64 = 3_600_000;
/// Different refusals that are remembered; others get a row each time.
pub(super) const REPEATS_MAX: usize = 10_000;
