//! Idempotency keys of recent commits.
//!
//! The HTTP handler looks a key up in the archive and passes the result with the number of the last commit
//! that the lookup had seen. Keys committed *after* it are kept here, so no key is missed between lookup and
//! commit. If a lookup is older than the memory, the handler must repeat it.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;

use crate::ids::GroupNo;
use crate::input::{IdempotencyKey, KeyHolder};
use crate::step::Rejection;

/// Commits that are remembered: four seconds for a lookup at 4,000 commits a second, the most that a disk
/// allows.
const GROUPS_REMEMBERED: u64 = 16_384;

/// Keys that are remembered: some 30 MB.
const KEYS_REMEMBERED: usize = 262_144;

/// Idempotency keys of recent commits.
#[derive(Debug, Default)]
pub struct RecentKeys {
    holders: BTreeMap<Arc<str>, KeyHolder>,
    by_group: VecDeque<(GroupNo, Arc<str>)>,
    /// Lookups before this commit may have missed a forgotten key.
    floor: GroupNo,
}

impl RecentKeys {
    /// Creates an empty memory that begins after this commit.
    #[must_use]
    pub fn starting_after(group: GroupNo) -> Self {
        Self { floor: group, ..Self::default() }
    }

    /// The request that holds this key, if any.
    ///
    /// # Errors
    /// The lookup is too old, or the key belongs to another request.
    pub fn holder(&self, key: &IdempotencyKey) -> Result<Option<KeyHolder>, Rejection> {
        let holder = match (self.holders.get(&key.key), key.found) {
            (Some(holder), _) => *holder,
            (None, Some(holder)) => holder,
            (None, None) if key.read_at < self.floor => return Err(Rejection::KeyReadingTooOld),
            (None, None) => return Ok(None),
        };
        if holder.digest == key.digest { Ok(Some(holder)) } else { Err(Rejection::KeyMismatch(holder)) }
    }

    /// Remembers a key of the current group.
    pub fn remember(&mut self, group: GroupNo, key: Arc<str>, holder: KeyHolder) {
        self.holders.insert(key.clone(), holder);
        self.by_group.push_back((group, key));
        while self.by_group.len() > KEYS_REMEMBERED {
            if let Some((group, key)) = self.by_group.pop_front() {
                self.holders.remove(&key);
                self.floor = self.floor.max(group);
            }
        }
    }

    /// Forgets keys that all lookups must have seen.
    pub fn begin(&mut self, group: GroupNo) {
        let floor = GroupNo(group.0.saturating_sub(GROUPS_REMEMBERED));
        if floor <= self.floor {
            return;
        }
        self.floor = floor;
        while self.by_group.front().is_some_and(|(group, _)| *group <= floor) {
            if let Some((_, key)) = self.by_group.pop_front() {
                self.holders.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::JobId;

    use super::*;

    fn key(read_at: u64, digest: u128) -> IdempotencyKey {
        IdempotencyKey { key: "api:a".into(), digest, found: None, read_at: GroupNo(read_at) }
    }

    const HOLDER: KeyHolder = KeyHolder { job: JobId(1), count: 1, digest: 7 };

    #[test]
    fn a_key_committed_after_the_reading_is_found() {
        let mut keys = RecentKeys::starting_after(GroupNo(10));
        assert_eq!(keys.holder(&key(10, 7)), Ok(None));
        keys.remember(GroupNo(11), "api:a".into(), HOLDER);
        assert_eq!(keys.holder(&key(10, 7)), Ok(Some(HOLDER)));
        assert_eq!(keys.holder(&key(10, 8)), Err(Rejection::KeyMismatch(HOLDER)));
    }

    #[test]
    fn a_reading_older_than_the_memory_is_sent_back() {
        let mut keys = RecentKeys::starting_after(GroupNo(10));
        keys.remember(GroupNo(11), "api:a".into(), HOLDER);
        keys.begin(GroupNo(11 + GROUPS_REMEMBERED));
        assert_eq!(keys.holder(&key(10, 7)), Err(Rejection::KeyReadingTooOld));
        let found = IdempotencyKey { found: Some(HOLDER), ..key(10, 7) };
        assert_eq!(keys.holder(&found), Ok(Some(HOLDER)));
    }
}
