//! Facts about the database that the writer remembers, to save writes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use protocol::{Revision, Timestamp};

use crate::store::sqlite::member_counts::MemberCounts;

/// A row of `definition_ends`: the definition's name, whether the ends are bad, the block.
pub(super) type EndKey = (i64, bool, i64);

/// Facts that are known to be in the database already, to save writes. Cleared when a group fails, because its rows are rolled back.
#[derive(Debug, Default)]
pub(in crate::store::sqlite) struct WriteCache {
    pub(super) definitions: HashMap<Revision, DefinitionIds>,
    pub(super) seen: HashSet<(i64, i64, i64)>,
    /// The span of ends in each block that the block's row covers already: the earliest, and an upper bound of the latest.
    pub(super) ends: HashMap<i64, EndSpan>,
    /// For each name, kind of end and block: an end that the row in `definition_ends` is not later than.
    pub(super) definition_ends: HashMap<EndKey, i64>,
    /// The first row with the same name, by row of a definition.
    pub(super) names: HashMap<i64, i64>,
    /// The numbers of requesters by name: their rows in the table `submitters`.
    pub(super) requester_ids: HashMap<Arc<str>, i64>,
    /// Batches that have not ended, and changes of the present transaction in their counts.
    pub(super) members: MemberCounts,
}

impl WriteCache {
    /// Knows nothing of the database, as at the beginning.
    pub(in crate::store::sqlite) fn forget(&mut self) {
        *self = Self::default();
    }
}

impl WriteCache {
    /// Forgets facts of a kind of which there are too many: they are only there to save writes, and are read again when they are needed.
    pub(super) fn shrink(&mut self) {
        let Self { definitions, seen, ends, definition_ends, names, requester_ids, members: _ } = self;
        if definitions.len() > FACTS_MAX {
            definitions.clear();
        }
        if seen.len() > FACTS_MAX {
            seen.clear();
        }
        if ends.len() > FACTS_MAX {
            ends.clear();
        }
        if definition_ends.len() > FACTS_MAX {
            definition_ends.clear();
        }
        if names.len() > FACTS_MAX {
            names.clear();
        }
        if requester_ids.len() > FACTS_MAX {
            requester_ids.clear();
        }
    }
}

/// Times between which jobs of a block ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndSpan {
    pub(super) oldest: i64,
    /// Rounded up to a full minute, so that the row of a block is written once a minute at most.
    pub(super) newest: i64,
}

impl EndSpan {
    pub(super) fn of(at: Timestamp) -> Self {
        Self { oldest: at.0, newest: at.0.div_euclid(MINUTE_MS).saturating_add(1).saturating_mul(MINUTE_MS) }
    }

    pub(super) fn join(self, other: Self) -> Self {
        Self { oldest: self.oldest.min(other.oldest), newest: self.newest.max(other.newest) }
    }

    pub(super) const fn covers(self, other: Self) -> bool {
        self.oldest <= other.oldest && self.newest >= other.newest
    }
}

const MINUTE_MS: i64 = 60_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct DefinitionIds {
    pub(super) id: i64,
    /// The first row with the same name.
    pub(super) name: i64,
}

/// How many facts of each kind are remembered from one transaction to the next.
const FACTS_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_fact_is_bounded() {
        let fill = |count: usize| {
            let numbers = || (0..count).filter_map(|n| i64::try_from(n).ok());
            let ids = DefinitionIds { id: 1, name: 1 };
            WriteCache {
                definitions: (0..count as u128).map(|n| (Revision(n), ids)).collect(),
                seen: numbers().map(|n| (n, n, n)).collect(),
                ends: numbers().map(|n| (n, EndSpan::of(Timestamp(n)))).collect(),
                definition_ends: numbers().map(|n| ((n, true, n), n)).collect(),
                names: numbers().map(|n| (n, n)).collect(),
                requester_ids: numbers().map(|n| (n.to_string().into(), n)).collect(),
                members: MemberCounts::default(),
            }
        };
        let lengths = |cache: &WriteCache| {
            let WriteCache { definitions, seen, ends, definition_ends, names, requester_ids, members: _ } =
                cache;
            [
                definitions.len(),
                seen.len(),
                ends.len(),
                definition_ends.len(),
                names.len(),
                requester_ids.len(),
            ]
        };
        for (count, left) in [(FACTS_MAX, FACTS_MAX), (FACTS_MAX + 1, 0)] {
            let mut cache = fill(count);
            cache.shrink();
            assert_eq!(lengths(&cache), [left; 6]);
        }
    }
}
