//! State of limits, for the API.

use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::{JobId, Now, Timestamp};

use super::rate::{self, Rate};
use super::{Force, LimitId, LimitKind, LimitNo, Limits};

/// State of one limit, for the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitFacts {
    /// The limit.
    pub id: LimitId,
    /// Jobs at once, if it is a limit of permits that is in force.
    pub permits: Option<u32>,
    /// The rate, if it is one that is in force.
    pub rate: Option<Rate>,
    /// Jobs that hold a permit.
    pub in_use: u64,
    /// Jobs that have not ended, need it, and hold no permit; for a rate, all that have not ended.
    pub waiting: u64,
    /// The oldest jobs that hold a permit, at most [`HOLDERS_SHOWN`].
    pub holders: Vec<JobId>,
    /// When the next start is allowed, if a rate does not allow one now.
    pub next_start: Option<Timestamp>,
}

/// The limits of all jobs, for the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitsReport {
    /// Jobs that may hold a worker at once, if that is limited.
    pub running_max: Option<usize>,
    /// Jobs that hold a worker.
    pub running: usize,
    /// Jobs that wait for a worker or a limit.
    pub queued: usize,
    /// Limits by kind, name and key; at most [`LIMITS_SHOWN`].
    pub limits: Vec<LimitFacts>,
}

/// The limits that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitSelection {
    /// All limits.
    All,
    /// Those of a definition, a group or a batch of this name.
    Named(Arc<str>),
    /// Those that jobs of a definition need: its own, its rate, and those of its group.
    OfDefinition {
        /// Name of the definition.
        name: Arc<str>,
        /// The group that its limit belongs to.
        group: Option<Arc<str>>,
    },
}

/// Limits in one answer.
pub const LIMITS_SHOWN: usize = 10_000;

/// Limits of each kind in an answer about one definition. Each value of a key is a limit.
pub const LIMITS_OF_DEFINITION: usize = 50;

/// Holders that are named.
pub const HOLDERS_SHOWN: usize = 10;

impl Limits {
    /// State of one limit.
    pub(crate) fn facts_of(&self, number: LimitNo, now: Now) -> Option<LimitFacts> {
        let limit = self.limit(number)?;
        let next = self.next_start(number, now.up);
        Some(LimitFacts {
            id: limit.id.clone(),
            permits: self.permits(number),
            rate: if let Force::Rate(rate) = limit.force { Some(rate) } else { None },
            in_use: limit.holders.len() as u64,
            holders: limit.holders.iter().copied().take(HOLDERS_SHOWN).collect(),
            waiting: limit.jobs - (limit.holders.len() as u64).min(limit.jobs),
            next_start: next.map(|at| rate::to_utc(at, now)),
        })
    }

    /// State of the selected limits, by kind, name and key. Walks the first [`LIMITS_SHOWN`] limits if all are asked for, else those with
    /// the name only.
    pub(crate) fn facts(&self, now: Now, selection: &LimitSelection) -> Vec<LimitFacts> {
        let facts = |number| self.facts_of(number, now);
        match selection {
            LimitSelection::All => {
                self.numbers.values().copied().filter_map(facts).take(LIMITS_SHOWN).collect()
            }
            LimitSelection::Named(name) => {
                let kinds = LimitKind::ALL.into_iter();
                kinds.flat_map(|kind| self.named(kind, name)).filter_map(facts).take(LIMITS_SHOWN).collect()
            }
            LimitSelection::OfDefinition { name, group } => {
                let group = group.iter().map(|group| (LimitKind::Group, group));
                let own = [(LimitKind::Definition, name)].into_iter();
                let names = own.chain(group).chain([(LimitKind::Rate, name)]);
                names
                    .flat_map(|(kind, name)| self.named(kind, name).take(LIMITS_OF_DEFINITION))
                    .filter_map(facts)
                    .collect()
            }
        }
    }

    /// The limits of one kind and name, by key.
    fn named(&self, kind: LimitKind, name: &Arc<str>) -> impl Iterator<Item = LimitNo> {
        let first = LimitId { kind, name: name.clone(), key: None };
        let from_first = self.numbers.range(first..);
        from_first.take_while(move |(id, _)| id.kind == kind && id.name == *name).map(|(_, number)| *number)
    }
}
