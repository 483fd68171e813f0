//! The segments that may have output of one attempt: chosen under the lock, opened and read without it.
//!
//! A segment that was deleted since then has no output any more; its readers find a gap.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use protocol::report::OutputLengths;

use super::error::{LogsError, failed};
use super::index::IndexedRecords;
use super::output::{AttemptKey, Streams};
use super::record::RecordPosition;
use super::scan::Scan;
use super::segments::{Sealed, index_path, segment_path};

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
    Active(Vec<RecordPosition>),
    Sealed(IndexedRecords),
}

impl SegmentPart {
    pub(super) fn count(&self) -> usize {
        match &self.positions {
            Records::Active(positions) => positions.len(),
            Records::Sealed(positions) => positions.count,
        }
    }

    pub(super) fn range(&self, range: std::ops::Range<usize>) -> io::Result<Vec<RecordPosition>> {
        match &self.positions {
            Records::Active(positions) => {
                Ok(positions[range.start.min(positions.len())..range.end.min(positions.len())].to_vec())
            }
            Records::Sealed(positions) => positions.range(range),
        }
    }

    pub(super) fn first_behind(&self, streams: Streams, position: u64) -> io::Result<usize> {
        match &self.positions {
            Records::Active(positions) => {
                Ok(positions.partition_point(|record| record.ends(streams) <= position))
            }
            Records::Sealed(positions) => positions.first_behind(streams, position),
        }
    }
}

impl AttemptSegments {
    /// The parts with records that end behind this position, the oldest first, each opened when it is asked for.
    pub(super) fn parts_behind(
        self,
        streams: Streams,
        from: u64,
    ) -> Result<impl Iterator<Item = Result<SegmentPart, LogsError>>, LogsError> {
        let first = match &self.active {
            Some(active) if active.first.begins(streams) <= from => self.sealed.len(),
            _ => self.last_beginning_at(streams, from)?,
        };
        let Self { directory, attempt, sealed, active } = self;
        let sealed = sealed
            .into_iter()
            .skip(first)
            .filter_map(move |segment| open(&directory, &segment, attempt).transpose());
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

    /// How much of the attempt's output is here.
    pub(super) fn lengths(self) -> Result<OutputLengths, LogsError> {
        self.newest_first()
            .find_map(|part| part.and_then(|part| part.end()).transpose())
            .transpose()
            .map(Option::unwrap_or_default)
    }

    /// Likewise, also if an index cannot be read: the segment is read through instead. Output of one that cannot be read either counts as
    /// missing.
    pub(super) fn readable_lengths(self) -> OutputLengths {
        if let Some(last) = self.active.as_ref().and_then(|active| active.part.end().ok().flatten()) {
            return last;
        }
        let ends = self.sealed.iter().rev().map(|segment| {
            let by_index = open(&self.directory, segment, self.attempt).and_then(end_of);
            by_index.or_else(|_| end_by_scan(&self.directory, segment, self.attempt))
        });
        let mut readable = ends.filter_map(|end| {
            end.unwrap_or_else(|error| {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "a segment cannot be read: its output is missing, and what comes now is stored behind it"
                );
                None
            })
        });
        readable.next().unwrap_or_default()
    }

    /// The place of the last sealed segment in which the attempt's output begins at this position or before it; 0 if there is none.
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

    /// The lengths of the attempt's output at the end of this segment.
    fn end(&self) -> Result<Option<OutputLengths>, LogsError> {
        Ok(self.record(self.count().saturating_sub(1))?.map(|last| last.after()))
    }

    pub(super) fn unreadable(&self, source: io::Error) -> LogsError {
        LogsError::Io { what: format!("cannot read log segment {}", self.number), source }
    }
}

/// The attempt's records in a sealed segment; none if it has none there, or the segment was deleted.
fn open(directory: &Path, sealed: &Sealed, attempt: AttemptKey) -> Result<Option<SegmentPart>, LogsError> {
    let (index, segment) = (index_path(directory, sealed.number), segment_path(directory, sealed.number));
    let Some(file) = found(File::open(&index)).map_err(|error| failed("open", &index, error))? else {
        return Ok(None);
    };
    let records = sealed.summary.find(file, attempt).map_err(|error| failed("read", &index, error))?;
    let Some(records) = records else { return Ok(None) };
    let file = found(File::open(&segment)).map_err(|error| failed("open", &segment, error))?;
    Ok(file.map(|file| SegmentPart {
        segment: Arc::new(file),
        number: sealed.number,
        positions: Records::Sealed(records),
    }))
}

fn end_of(part: Option<SegmentPart>) -> Result<Option<OutputLengths>, LogsError> {
    part.map_or(Ok(None), |part| part.end())
}

fn end_by_scan(
    directory: &Path,
    sealed: &Sealed,
    attempt: AttemptKey,
) -> Result<Option<OutputLengths>, LogsError> {
    let segment = segment_path(directory, sealed.number);
    let found = File::open(&segment).and_then(|file| Scan::of(&file));
    let records = found.map_err(|error| failed("read", &segment, error))?.all();
    Ok(records.of(attempt).last().map(RecordPosition::after))
}

/// Nothing if there is no such file.
pub(super) fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}
