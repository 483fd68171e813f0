//! State of the expectations (`expect`), kept by the name of their definition and not by its revision. `handlers::expect` decides.
//!
//! A definition is *stale* after `success_within` without a success, and *slow* after a run longer than `max_duration`. The state is stored,
//! so a restart changes nothing. It is forgotten when jobs.yaml has no expectation under that name any more.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::{JobId, Timestamp};

use crate::definition::Expect;
use crate::ids::ExpectationNo;

/// The stored state of an expectation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectationRow {
    /// The name of the definition.
    pub definition: Arc<str>,
    /// Wall-clock time from which the next success is awaited: the last success, or the first reading of `success_within`; none without it.
    pub awaited_since: Option<Timestamp>,
    /// Since when it is stale.
    pub stale_since: Option<Timestamp>,
    /// The last run that was noticed to be too long, unless a shorter one has succeeded since.
    pub slow: Option<SlowRun>,
}

/// A run that took longer than expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowRun {
    /// Its job.
    pub job: JobId,
    /// Time since which the definition has been slow: the first of such runs was noticed.
    pub since: Timestamp,
}

impl ExpectationRow {
    /// A run takes too long.
    pub fn record_slow(&mut self, job: JobId, now: Timestamp) {
        self.slow = Some(SlowRun { job, since: self.slow.map_or(now, |before| before.since) });
    }

    /// Neither stale nor slow.
    #[must_use]
    pub const fn is_met(&self) -> bool {
        self.stale_since.is_none() && self.slow.is_none()
    }
}

/// All expectations.
#[derive(Debug, Default)]
pub struct ExpectationTable {
    pub(crate) entries: BTreeMap<ExpectationNo, ExpectationEntry>,
    numbers: BTreeMap<Arc<str>, ExpectationNo>,
    /// Those that are stale or slow, for the snapshot.
    missed: BTreeMap<Arc<str>, ExpectationRow>,
}

/// One expectation.
#[derive(Debug)]
pub(crate) struct ExpectationEntry {
    pub(crate) row: ExpectationRow,
    /// The expectations of jobs.yaml; none before it is read.
    pub(crate) expect: Expect,
    /// Time of its timer.
    pub(crate) stale_at: Option<Timestamp>,
}

impl ExpectationTable {
    /// Adds one.
    pub(crate) fn add(&mut self, row: ExpectationRow) -> ExpectationNo {
        let last = self.entries.last_key_value();
        let number = last.map_or(ExpectationNo(0), |(last, _)| ExpectationNo(last.0.saturating_add(1)));
        self.numbers.insert(row.definition.clone(), number);
        self.entries.insert(number, ExpectationEntry { row, expect: Expect::default(), stale_at: None });
        self.publish(number);
        number
    }

    /// The expectation of a definition.
    pub(crate) fn find(&self, name: &str) -> Option<ExpectationNo> {
        self.numbers.get(name).copied()
    }

    /// Removes one.
    pub(crate) fn remove(&mut self, number: ExpectationNo) -> Option<ExpectationEntry> {
        let entry = self.entries.remove(&number)?;
        self.numbers.remove(&entry.row.definition);
        self.missed.remove(&entry.row.definition);
        Some(entry)
    }

    /// Takes over a changed row into the snapshot.
    pub(crate) fn publish(&mut self, number: ExpectationNo) {
        let Some(row) = self.entries.get(&number).map(|entry| &entry.row) else { return };
        if row.is_met() {
            self.missed.remove(&row.definition);
        } else {
            self.missed.insert(row.definition.clone(), row.clone());
        }
    }

    /// Those that are stale or slow, by name.
    pub(crate) fn missed(&self) -> Vec<ExpectationRow> {
        self.missed.values().cloned().collect()
    }
}
