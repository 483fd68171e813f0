//! State of limits, for the API.

use alloc::vec::Vec;

use protocol::{JobId, Now, Timestamp};

use super::rate::{self, Rate};
use super::{Force, LimitId, LimitNo, Limits};

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
pub struct LimitsFacts {
    /// Jobs that may hold a worker at once, if that is limited.
    pub running_max: Option<usize>,
    /// Jobs that hold a worker.
    pub running: usize,
    /// Jobs that wait for a worker or a limit.
    pub queued: usize,
    /// Limits by kind, name and key; at most [`LIMITS_SHOWN`].
    pub limits: Vec<LimitFacts>,
}

/// Limits in one answer.
pub const LIMITS_SHOWN: usize = 10_000;

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

    /// State of all limits of a name, or of all limits, by kind, name and key. Answers an operator's request.
    pub(crate) fn facts(&self, now: Now, name: Option<&str>) -> Vec<LimitFacts> {
        let named = self.numbers.iter().filter(|(id, _)| name.is_none_or(|name| *id.name == *name));
        named.filter_map(|(_, number)| self.facts_of(*number, now)).take(LIMITS_SHOWN).collect()
    }
}
