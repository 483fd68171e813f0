//! The segments that may have output of one attempt: chosen under the lock, opened and read without it.
//!
//! A segment that was deleted since then has no output any more; its readers find a gap.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::error::{LogsError, failed};
use super::index::IndexedRecords;
use super::output::{AttemptKey, Streams};
use super::paths::{index_path, segment_path};
use super::record::RecordPosition;
use super::scan::Scan;
use super::segments::Sealed;

/// The segments that may have output of one attempt, the oldest first.
pub(super) struct AttemptSegments {
    pub(super) directory: Arc<Path>,
    pub(super) attempt: AttemptKey,
    pub(super) sealed: Vec<Sealed>,
    pub(super) active: Option<ActiveRecords>,
}

/// The attempt's records in the segment that grows.
pub(super) struct ActiveRecords {
    pub(super) part: SegmentPart,
    /// The first of them, also if the part has later ones only.
    pub(super) first: RecordPosition,
}

/// One attempt's records in one segment.
pub(super) struct SegmentPart {
    pub(super) segment: Arc<File>,
    pub(super) number: u64,
    pub(super) positions: Records,
}

pub(super) enum Records {
    /// Of the segment that grows, or of one that was read through.
    Listed(Vec<RecordPosition>),
    Sealed(IndexedRecords),
}

impl SegmentPart {
    pub(super) fn count(&self) -> usize {
        match &self.positions {
            Records::Listed(positions) => positions.len(),
            Records::Sealed(positions) => positions.count,
        }
    }

    pub(super) fn range(&self, range: Range<usize>) -> io::Result<Vec<RecordPosition>> {
        match &self.positions {
            Records::Listed(positions) => {
                Ok(positions[range.start.min(positions.len())..range.end.min(positions.len())].to_vec())
            }
            Records::Sealed(positions) => positions.range(range),
        }
    }

    pub(super) fn first_after(&self, streams: Streams, position: u64) -> io::Result<usize> {
        match &self.positions {
            Records::Listed(positions) => {
                Ok(positions.partition_point(|record| record.ends(streams) <= position))
            }
            Records::Sealed(positions) => positions.first_after(streams, position),
        }
    }
}

impl AttemptSegments {
    /// The parts with records that end after this position, the oldest first, each opened when it is asked for.
    pub(super) fn parts_after(
        self,
        streams: Streams,
        from: u64,
    ) -> Result<impl Iterator<Item = Result<SegmentPart, LogsError>>, LogsError> {
        let first = match &self.active {
            Some(active) if active.first.begins(streams) <= from => self.sealed.len(),
            _ => self.last_beginning_at(streams, from)?,
        };
        let Self { directory, attempt, sealed, active } = self;
        let sealed = sealed.into_iter().skip(first);
        let sealed = sealed.filter_map(move |segment| open(&directory, &segment, attempt).transpose());
        Ok(sealed.chain(active.map(|active| Ok(active.part))))
    }

    /// All parts, the newest first, each opened when it is asked for.
    pub(super) fn newest_first(self) -> impl Iterator<Item = Result<SegmentPart, LogsError>> {
        let Self { directory, attempt, sealed, active } = self;
        let sealed = sealed
            .into_iter()
            .rev()
            .filter_map(move |segment| open(&directory, &segment, attempt).transpose());
        active.map(|active| Ok(active.part)).into_iter().chain(sealed)
    }

    /// All parts that can be read, the oldest first, also without a usable index. Output of the others counts as missing, but for errors that
    /// may pass.
    pub(super) fn readable(self) -> impl Iterator<Item = Result<SegmentPart, LogsError>> {
        let Self { directory, attempt, sealed, active } = self;
        let sealed =
            sealed.into_iter().filter_map(move |segment| match open_or_scan(&directory, &segment, attempt) {
                Err(error) if !error.is_transient() => {
                    log_missing(&error);
                    None
                }
                part => part.transpose(),
            });
        sealed.chain(active.map(|active| Ok(active.part)))
    }

    /// The attempt's last record.
    pub(super) fn last(self) -> Result<Option<RecordPosition>, LogsError> {
        let mut last = self.newest_first().map(|part| part.and_then(|part| part.last()));
        last.find_map(Result::transpose).transpose()
    }

    /// The index in `sealed` of the last segment in which the attempt's output begins at this position or before it; 0 if there is none.
    fn last_beginning_at(&self, streams: Streams, from: u64) -> Result<usize, LogsError> {
        let (mut low, mut high, mut found) = (0, self.sealed.len(), 0);
        while low < high {
            let middle = usize::midpoint(low, high);
            // The attempt need not have output in each of them.
            let mut begin = None;
            let mut at = middle;
            while begin.is_none() && at < high {
                if let Some(part) = open(&self.directory, &self.sealed[at], self.attempt)? {
                    begin = part.record(0)?.map(|record| (at, record.begins(streams)));
                }
                at += 1;
            }
            match begin {
                Some((at, position)) if position <= from => (low, found) = (at + 1, at),
                _ => high = middle,
            }
        }
        Ok(found)
    }
}

impl SegmentPart {
    fn record(&self, at: usize) -> Result<Option<RecordPosition>, LogsError> {
        let records = self.range(at..at + 1);
        let records = records.map_err(|source| self.unreadable(source))?;
        Ok(records.first().copied())
    }

    fn last(&self) -> Result<Option<RecordPosition>, LogsError> {
        self.record(self.count().saturating_sub(1))
    }

    pub(super) fn unreadable(&self, source: io::Error) -> LogsError {
        LogsError::Io { what: format!("cannot read log segment {}", self.number), source }
    }
}

/// The attempt's records in a sealed segment; none if it has none there, or the segment was deleted.
fn open(directory: &Path, sealed: &Sealed, attempt: AttemptKey) -> Result<Option<SegmentPart>, LogsError> {
    let (index, segment) = (index_path(directory, sealed.number), segment_path(directory, sealed.number));
    let file = found(File::open(&segment)).map_err(|error| failed("open", &segment, error))?;
    let Some(file) = file else { return Ok(None) };
    let records = File::open(&index).and_then(|index| sealed.summary.find(index, attempt));
    let records = match records {
        // It was deleted just now: the segment goes first.
        Err(error) if error.kind() == io::ErrorKind::NotFound && !segment.exists() => return Ok(None),
        records => records.map_err(|error| failed("read", &index, error))?,
    };
    let part = |records| SegmentPart {
        segment: Arc::new(file),
        number: sealed.number,
        positions: Records::Sealed(records),
    };
    Ok(records.map(part))
}

/// As [`open`]; if the index cannot be used, reads the segment through and makes its index again. Only the writer does so, since two threads
/// that write the same file would spoil it.
fn open_or_scan(
    directory: &Path,
    sealed: &Sealed,
    attempt: AttemptKey,
) -> Result<Option<SegmentPart>, LogsError> {
    open(directory, sealed, attempt).or_else(|error| {
        if error.is_transient() {
            return Err(error);
        }
        let segment = segment_path(directory, sealed.number);
        let file = found(File::open(&segment)).map_err(|error| failed("open", &segment, error))?;
        file.map_or(Ok(None), |file| scan(file, directory, sealed, attempt))
    })
}

fn scan(
    segment: File,
    directory: &Path,
    sealed: &Sealed,
    attempt: AttemptKey,
) -> Result<Option<SegmentPart>, LogsError> {
    let path = || segment_path(directory, sealed.number);
    let contents = Scan::of(&segment).map_err(|error| failed("read", &path(), error))?.all();
    if sealed.summary.has_size_of(&contents) {
        let index = index_path(directory, sealed.number);
        match contents.write(&index) {
            Ok(()) => {
                tracing::warn!(index = %index.display(), "an index was unusable and has been made again")
            }
            Err(error) => {
                tracing::warn!(%error, index = %index.display(), "an index is unusable and cannot be made again")
            }
        }
    }
    let records = contents.of(attempt).to_vec();
    let part = SegmentPart {
        segment: Arc::new(segment),
        number: sealed.number,
        positions: Records::Listed(records),
    };
    Ok(Some(part).filter(|part| part.count() > 0))
}

/// Logs that a segment cannot be read.
fn log_missing(error: &LogsError) {
    tracing::error!(
        error = error as &dyn std::error::Error,
        "a segment cannot be read: its output is missing until it can, and new output follows after it"
    );
}

/// Nothing if there is no such file.
pub(super) fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}
