//! Counts of prefetched attempts by priority, over all workers. They tell whether a waiting job has a higher
//! priority than any prefetched attempt.

use alloc::collections::BTreeMap;

use crate::queue::{AgedPriority, QueueKey};

/// Number of attempts by priority; no entry is zero.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Backlogs(BTreeMap<AgedPriority, usize>);

impl Backlogs {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(super) fn add(&mut self, key: QueueKey) {
        *self.0.entry(key.priority()).or_default() += 1;
    }

    pub(super) fn remove(&mut self, key: QueueKey) {
        if let Some(count) = self.0.get_mut(&key.priority()) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&key.priority());
            }
        }
    }

    pub(super) fn lowest(&self) -> Option<AgedPriority> {
        self.0.first_key_value().map(|(priority, _)| *priority)
    }
}

impl<'p> FromIterator<&'p QueueKey> for Backlogs {
    fn from_iter<T: IntoIterator<Item = &'p QueueKey>>(keys: T) -> Self {
        let mut all = Self::new();
        keys.into_iter().for_each(|key| all.add(*key));
        all
    }
}
