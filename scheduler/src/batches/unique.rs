//! Unique keys of batches: at most one batch that has not ended has a key. `handlers::batch_unique` decides about new batches.
//!
//! - A key belongs to the server, not to a definition: a batch may have members of several.
//! - A batch has its key from the commit that makes its members visible until its last member has ended, or until another batch replaces it.
//!   A batch that somebody cancelled has it until the last of its containers is gone.

use alloc::sync::Arc;

use protocol::JobId;

use super::{Batches, LiveBatch};
use crate::limits::rules::OnDuplicate;

/// The unique key of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BatchUnique {
    /// The value of the key.
    pub key: Arc<str>,
    /// The answer to a request whose key is taken. A retry of the batch has the same one.
    pub on_duplicate: OnDuplicate,
    /// The batch that the requester may replace. Not stored.
    pub may_replace: MayReplace,
}

/// The batch that a requester may replace: a replacement is a cancel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MayReplace {
    /// None: no batch had the key when the rights of the requester were looked up.
    #[default]
    None,
    /// This one, which had the key then.
    Only(JobId),
    /// Every one.
    Any,
}

impl MayReplace {
    /// The batch may be replaced.
    #[must_use]
    pub fn allows(self, first: JobId) -> bool {
        match self {
            Self::Any => true,
            Self::Only(known) => known == first,
            Self::None => false,
        }
    }
}

impl Batches {
    /// The batch that has a key.
    #[must_use]
    pub fn holder(&self, key: &str) -> Option<&LiveBatch> {
        self.live.get(self.holders.get(key)?)
    }

    /// The batch has its key from now on; the caller has replaced the batch that had it.
    pub fn take_key(&mut self, first: JobId) {
        if let Some(key) = self.live.get(&first).and_then(|batch| batch.unique_key.clone()) {
            self.holders.insert(key, first);
        }
    }

    /// Takes the key away from the batch that has it. Returns that batch.
    pub fn replace(&mut self, key: &str) -> Option<JobId> {
        let first = self.holders.remove(key)?;
        if let Some(batch) = self.live.get_mut(&first) {
            batch.unique_key = None;
        }
        Some(first)
    }

    /// Frees the key of a batch that has ended.
    pub(super) fn free_key(&mut self, ended: Option<&LiveBatch>) {
        let key = ended.and_then(|batch| Some((batch.first, batch.unique_key.as_ref()?)));
        if let Some((first, key)) = key
            && self.holders.get(key) == Some(&first)
        {
            self.holders.remove(key);
        }
    }

    /// The number of keys that are taken, for the audit.
    #[must_use]
    pub fn keys_taken(&self) -> usize {
        self.holders.len()
    }
}

#[cfg(test)]
mod tests {
    use protocol::Timestamp;

    use super::*;
    use crate::batches::{BatchOptions, NewBatch};
    use crate::state::State;

    fn with_key(batches: &mut Batches, first: u64) {
        let (on_duplicate, may_replace) = (OnDuplicate::Return, MayReplace::Any);
        let unique = Some(BatchUnique { key: "main".into(), on_duplicate, may_replace });
        let options = BatchOptions { unique, ..BatchOptions::default() };
        batches.add(LiveBatch::new(&NewBatch {
            first: JobId(first),
            count: 1,
            options,
            created_at: Timestamp(0),
        }));
        batches.take_key(JobId(first));
    }

    fn holder(batches: &Batches) -> Option<u64> {
        batches.holder("main").map(|batch| batch.first.0)
    }

    #[test]
    fn a_batch_has_its_key_until_its_end_or_until_it_is_replaced() {
        let mut batches = Batches::default();
        with_key(&mut batches, 1);
        assert_eq!(holder(&batches), Some(1));
        assert_eq!(batches.replace("main"), Some(JobId(1)));
        assert_eq!(holder(&batches), None);
        with_key(&mut batches, 2);
        batches.count_end(JobId(1), State::Cancelled);
        assert_eq!(holder(&batches), Some(2), "the end of the one that was replaced frees nothing");
        batches.count_end(JobId(2), State::Succeeded);
        assert_eq!((holder(&batches), batches.keys_taken()), (None, 0));
    }

    #[test]
    fn a_requester_replaces_only_the_batch_that_was_looked_up() {
        assert!(MayReplace::Any.allows(JobId(1)) && MayReplace::Only(JobId(1)).allows(JobId(1)));
        assert!(!MayReplace::Only(JobId(1)).allows(JobId(2)) && !MayReplace::None.allows(JobId(1)));
    }
}
