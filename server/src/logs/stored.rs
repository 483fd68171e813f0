//! How many bytes of an attempt's output are stored. To count them takes a walk through its index, so the numbers are kept until its segments
//! change.

use std::collections::HashMap;

use protocol::report::{OutputLengths, Stream};

use super::attempt_segments::SegmentPart;
use super::error::LogsError;
use super::output::AttemptKey;
use super::progress::for_records;

/// The output of an attempt that can be read, without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredOutput {
    /// Bytes of both streams.
    Counted(OutputLengths),
    /// It has too many records to count.
    Uncounted,
}

/// The segments that may have output of an attempt. While this is equal, its stored output is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredVersion {
    /// Sealed segments, and the sum of their numbers: a later one has a higher number than any that was deleted.
    pub(super) sealed: (u64, u64),
    /// Records in the segment that grows.
    pub(super) active: usize,
}

/// The latest counts, of at most [`CACHED_MAX`] attempts.
#[derive(Debug, Default)]
pub(super) struct StoredCache {
    known: HashMap<AttemptKey, (StoredVersion, StoredOutput)>,
}

impl StoredCache {
    /// The stored output of an attempt, if it was counted and has not changed since.
    pub(super) fn get(&self, attempt: AttemptKey, version: StoredVersion) -> Option<StoredOutput> {
        self.known.get(&attempt).filter(|(known, _)| *known == version).map(|(_, stored)| *stored)
    }

    pub(super) fn insert(&mut self, attempt: AttemptKey, version: StoredVersion, stored: StoredOutput) {
        if self.known.len() >= CACHED_MAX && !self.known.contains_key(&attempt) {
            self.known.clear();
        }
        self.known.insert(attempt, (version, stored));
    }
}

/// Counts the stored bytes of these parts, unless they have more records than that.
///
/// # Errors
/// The disk cannot be read.
pub(super) fn count(
    parts: impl Iterator<Item = Result<SegmentPart, LogsError>>,
    records_max: usize,
) -> Result<StoredOutput, LogsError> {
    let (mut stored, mut left) = (OutputLengths::default(), records_max);
    for part in parts {
        let part = part?;
        let Some(after) = left.checked_sub(part.count()) else { return Ok(StoredOutput::Uncounted) };
        left = after;
        for_records(&part, |records| {
            for record in records.iter().filter(|record| !record.code.kind.is_missing()) {
                let length = match record.code.stream {
                    Stream::Stdout => &mut stored.stdout,
                    Stream::Stderr => &mut stored.stderr,
                };
                *length += u64::from(record.payload);
            }
        })?;
    }
    Ok(StoredOutput::Counted(stored))
}

/// Records of one attempt that are counted, which takes some milliseconds.
pub(super) const RECORDS_MAX: usize = 100_000;

/// Attempts whose numbers are kept, at some 80 bytes each.
const CACHED_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use protocol::{Fence, JobId};

    use super::*;

    #[test]
    fn the_numbers_of_few_attempts_are_kept() {
        let mut cache = StoredCache::default();
        let version = StoredVersion { sealed: (0, 0), active: 1 };
        let attempt = |job| AttemptKey { job: JobId(job), fence: Fence(1) };
        for job in 0..CACHED_MAX as u64 {
            cache.insert(attempt(job), version, StoredOutput::Uncounted);
        }
        cache.insert(attempt(0), version, StoredOutput::Counted(OutputLengths::default()));
        assert_eq!(cache.known.len(), CACHED_MAX);
        cache.insert(attempt(u64::MAX), version, StoredOutput::Uncounted);
        assert_eq!((cache.known.len(), cache.get(attempt(0), version)), (1, None));
    }
}
