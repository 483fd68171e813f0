//! The limit on members of a batch at once, of which the value can change while the batch is live.

use alloc::string::ToString;

use protocol::JobId;

use super::keys::{JobKeys, KeySetNo};
use super::{Force, LimitId, LimitKind, LimitNo, Limits, RequiredLimits};

impl Limits {
    /// Sets the number of members that may be on workers at once. Returns the limit, if a member needs it.
    pub(crate) fn set_batch_permits(&mut self, batch: JobId, permits: u32) -> Option<LimitNo> {
        let id = LimitId { kind: LimitKind::Batch, name: batch.to_string().into(), key: None };
        let number = self.numbers.get(&id).copied()?;
        self.limit_mut(number)?.force = Force::Permits(permits);
        Some(number)
    }

    /// The values of the keys of these jobs.
    pub(crate) fn keys_of(&self, key_set: KeySetNo) -> JobKeys {
        self.key_sets.get(key_set).cloned().unwrap_or_default()
    }

    /// A job that holds permits needs these limits from now on, instead of the former ones. It holds a permit of each, also beyond their number.
    pub(crate) fn change_needs_of_holder(
        &mut self,
        job: JobId,
        before: RequiredLimits,
        after: RequiredLimits,
    ) {
        for number in before.permits() {
            if let Some(limit) = self.limit_mut(number) {
                limit.holders.remove(&job);
            }
        }
        self.take_permits(job, after);
    }
}
