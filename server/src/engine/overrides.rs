//! A cache of the overrides of recently submitted jobs, so that assigning them at once reads nothing from the store.
//!
//! It is bounded in bytes. An entry is removed by the assignment or by the job's end; a miss is read from the archive.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use protocol::JobId;
use protocol::container::Overrides;

/// The cache's size: enough for a burst of 60,000 jobs with a kilobyte each.
const BYTES_MAX: usize = 64 << 20;

/// Overrides of waiting jobs, by job.
#[derive(Debug, Default)]
pub struct OverridesCache {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    overrides: HashMap<JobId, Overrides>,
    bytes: usize,
}

impl OverridesCache {
    /// Adds overrides, if there is room.
    pub fn put(&self, job: JobId, overrides: Overrides) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let size = size_of(&overrides);
        if kept.bytes + size <= BYTES_MAX {
            kept.bytes += size;
            kept.overrides.insert(job, overrides);
        }
    }

    /// Removes and returns overrides. Attempts after the first find none and read the archive.
    pub fn take(&self, job: JobId) -> Option<Overrides> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let overrides = kept.overrides.remove(&job)?;
        kept.bytes -= size_of(&overrides);
        Some(overrides)
    }
}

/// Estimates the memory that overrides take, with the hash table's own part.
fn size_of(overrides: &Overrides) -> usize {
    let words: usize = overrides.environment.iter().map(|(name, value)| name.len() + value.len() + 48).sum();
    let args: usize = overrides.args.iter().map(|arg| arg.len() + 24).sum();
    128 + words + args + overrides.input.as_ref().map_or(0, String::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_overrides_make_room_again() {
        let cache = OverridesCache::default();
        let overrides = Overrides { args: vec!["x".repeat(BYTES_MAX / 2)], ..Overrides::default() };
        cache.put(JobId(1), overrides.clone());
        cache.put(JobId(2), overrides.clone());
        assert_eq!(cache.take(JobId(2)), None);
        assert_eq!(cache.take(JobId(1)), Some(overrides.clone()));
        cache.put(JobId(2), overrides.clone());
        assert_eq!(cache.take(JobId(2)), Some(overrides));
    }
}
