//! How much of the output of an attempt is stored, for the limit `log.max_bytes`.

use protocol::report::OutputLengths;

use super::attempt_segments::SegmentPart;
use super::error::LogsError;
use super::output::PieceData;
use super::record::{Kind, RecordPosition};

/// How far the output of an attempt has come, and how much of it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Lengths of both streams, with gaps.
    pub(super) lengths: OutputLengths,
    /// Stored bytes, without gaps.
    pub(super) stored: u64,
    /// Records that hold them and the gaps.
    pub(super) records: u64,
    /// Nothing more is stored: the attempt has reached its limit.
    pub(super) is_cut: bool,
}

impl Progress {
    /// Counts a stored record.
    pub(super) fn count(&mut self, data: &PieceData) {
        self.records += 1;
        match data {
            PieceData::Bytes(bytes) | PieceData::Replayed(bytes) => self.stored += bytes.len() as u64,
            PieceData::Gap(_) => {}
            PieceData::Cut(_) => self.is_cut = true,
        }
    }

    /// Reads it from the index of all records of an attempt.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub(super) fn read(
        parts: impl Iterator<Item = Result<SegmentPart, LogsError>>,
    ) -> Result<Self, LogsError> {
        let mut progress = Self::default();
        for part in parts {
            progress.add(&part?)?;
        }
        Ok(progress)
    }

    fn add(&mut self, part: &SegmentPart) -> Result<(), LogsError> {
        for_records(part, |records| {
            let stored = records.iter().filter(|record| !record.code.kind.is_missing());
            self.stored += stored.map(|record| u64::from(record.payload)).sum::<u64>();
            self.records += records.len() as u64;
            if let Some(last) = records.last() {
                (self.lengths, self.is_cut) = (last.after(), last.code.kind == Kind::Cut);
            }
        })
    }

    /// Bytes that may still be stored, if the limit is `bytes_max`.
    pub(super) fn left(&self, bytes_max: u64) -> usize {
        if self.records >= records_max(bytes_max) {
            return 0;
        }
        usize::try_from(bytes_max.saturating_sub(self.stored)).unwrap_or(usize::MAX)
    }
}

/// Reads all records of a part, a few thousand at a time.
pub(super) fn for_records(
    part: &SegmentPart,
    mut take: impl FnMut(&[RecordPosition]),
) -> Result<(), LogsError> {
    for first in (0..part.count()).step_by(RECORDS_READ) {
        take(&part.range(first..first + RECORDS_READ).map_err(|source| part.unreadable(source))?);
    }
    Ok(())
}

/// Records that one attempt may have. Each takes some 80 bytes beside its content, so many tiny ones would take the disk of others within
/// `log.max_bytes`. A worker reads output at most a hundred times a second: a program that writes a few bytes at a time has this
/// number after three hours at the earliest.
pub(super) const fn records_max(bytes_max: u64) -> u64 {
    (1 << 20) + bytes_max / 16
}

/// Records of an index that are read at a time.
const RECORDS_READ: usize = 4_096;
