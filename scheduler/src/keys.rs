//! Idempotency keys of recent commits.
//!
//! The handler looks a key up in the archive and passes the answer along with the number of the last commit that it had seen. What
//! was keyed *after* that commit is remembered here, so a key never slips between the lookup and the commit. Older readings than
//! we remember are sent back to be read again.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;

use crate::input::{GroupNo, Key, KeyHolder};
use crate::step::Rejection;

/// How many commits are remembered: at 4,000 commits a second, the most that a disk allows, this is four seconds for a lookup.
const GROUPS_REMEMBERED: u64 = 16_384;

/// How many keys are remembered, whatever the commits: some 30 MB.
const KEYS_REMEMBERED: usize = 262_144;

/// Idempotency keys of recent commits.
#[derive(Debug, Default)]
pub struct RecentKeys {
    holders: BTreeMap<Arc<str>, KeyHolder>,
    by_group: VecDeque<(GroupNo, Arc<str>)>,
    /// Readings up to the one before this may have missed a key that is no longer remembered.
    floor: GroupNo,
}

impl RecentKeys {
    /// Starts to remember after this commit.
    #[must_use]
    pub fn starting_after(group: GroupNo) -> Self {
        Self { floor: group, ..Self::default() }
    }

    /// Who holds this key, as far as the reading and the memory together can tell.
    ///
    /// # Errors
    /// The reading is too old, or the key stands for another request.
    pub fn holder(&self, key: &Key) -> Result<Option<KeyHolder>, Rejection> {
        let holder = match (self.holders.get(&key.key), key.found) {
            (Some(holder), _) => *holder,
            (None, Some(holder)) => holder,
            (None, None) if key.read_at < self.floor => return Err(Rejection::KeyReadingTooOld),
            (None, None) => return Ok(None),
        };
        if holder.digest == key.digest { Ok(Some(holder)) } else { Err(Rejection::KeyMismatch(holder)) }
    }

    /// Remembers a key of the group that is being decided.
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

    /// Forgets what readings of the last few thousand commits must have seen.
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

    fn key(read_at: u64, digest: u128) -> Key {
        Key { key: "api:a".into(), digest, found: None, read_at: GroupNo(read_at) }
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
        let found = Key { found: Some(HOLDER), ..key(10, 7) };
        assert_eq!(keys.holder(&found), Ok(Some(HOLDER)));
    }
}
