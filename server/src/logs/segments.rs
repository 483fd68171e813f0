//! The segments on disk and their indexes. Readers share the set; only the writer changes it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::JobId;
use protocol::report::OutputLengths;

use super::error::{LogsError, failed};
use super::index::{IndexSummary, IndexedRecords, SegmentIndex};
use super::limits::Unsynced;
use super::output::{AttemptKey, Streams};
pub(super) use super::paths::{index_path, numbers, segment_path};
use super::record::RecordPosition;
use super::scan::Scan;
use super::segment_writer::SegmentWriter;
use crate::store::directory;

/// Every segment, the oldest first.
#[derive(Debug)]
pub(super) struct SegmentSet {
    directory: PathBuf,
    sealed: Vec<Sealed>,
    active: Active,
    #[cfg(test)]
    watched: Option<super::segment_writer::Watch>,
}

/// A segment that no longer changes.
#[derive(Clone, Debug)]
pub(super) struct Sealed {
    pub(super) number: u64,
    pub(super) bytes: u64,
    summary: IndexSummary,
}

/// A sealed segment and its successor, prepared while readers go on.
pub(super) struct Rollover {
    sealed: Sealed,
    next: Active,
}

/// The segment that is written to.
#[derive(Debug)]
struct Active {
    number: u64,
    file: Arc<File>,
    bytes: u64,
    contents: SegmentIndex,
}

/// One attempt's records in one segment.
pub(super) struct SegmentPart {
    pub(super) segment: Arc<File>,
    pub(super) number: u64,
    positions: Records,
}

enum Records {
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

impl SegmentSet {
    /// Opens all segments. A half-written record at the end of the last one is cut off.
    pub(super) fn open(directory: &Path, unsynced: Unsynced) -> Result<Self, LogsError> {
        directory::make(directory).map_err(|error| failed("make", directory, error))?;
        let mut numbers = numbers(directory).map_err(|error| failed("list", directory, error))?;
        numbers.sort_unstable();
        let last = numbers.pop();
        let sealed: Result<Vec<Sealed>, LogsError> =
            numbers.into_iter().map(|number| find_sealed(directory, number)).collect();
        let mut sealed = sealed?;
        let active = match last {
            Some(number) => Active::recover(directory, number, &mut sealed, unsynced)?,
            None => Active::open_or_create(directory, 1)?,
        };
        Ok(Self {
            directory: directory.to_owned(),
            sealed,
            active,
            #[cfg(test)]
            watched: None,
        })
    }

    /// How much of an attempt's output is here.
    pub(super) fn lengths(&self, attempt: AttemptKey) -> Result<OutputLengths, LogsError> {
        Ok(self.last(attempt)?.as_ref().map(RecordPosition::after).unwrap_or_default())
    }

    /// The last record of an attempt.
    pub(super) fn last(&self, attempt: AttemptKey) -> Result<Option<RecordPosition>, LogsError> {
        match self.active.contents.of(attempt).last() {
            Some(last) => Ok(Some(*last)),
            None => last_in(&self.directory, &self.sealed, attempt),
        }
    }

    /// An attempt's records that end behind this position, the oldest first. Of the active segment only the first so many are copied.
    pub(super) fn parts(
        &self,
        attempt: AttemptKey,
        streams: Streams,
        from: u64,
    ) -> Result<Vec<SegmentPart>, LogsError> {
        let positions = self.active.contents.of(attempt);
        let positions = &positions[positions.partition_point(|position| position.ends(streams) <= from)..];
        self.parts_with(attempt, &positions[..positions.len().min(ACTIVE_PLACES_MAX)])
    }

    /// All records of an attempt, the oldest first.
    pub(super) fn all_parts(&self, attempt: AttemptKey) -> Result<Vec<SegmentPart>, LogsError> {
        self.parts_with(attempt, self.active.contents.of(attempt))
    }

    fn parts_with(
        &self,
        attempt: AttemptKey,
        active: &[RecordPosition],
    ) -> Result<Vec<SegmentPart>, LogsError> {
        let mut parts = Vec::new();
        for sealed in &self.sealed {
            parts.extend(sealed_part(&self.directory, sealed, attempt)?);
        }
        if !active.is_empty() {
            let segment = Arc::clone(&self.active.file);
            parts.push(SegmentPart {
                segment,
                number: self.active.number,
                positions: Records::Active(active.to_vec()),
            });
        }
        Ok(parts)
    }

    /// The writer of the active segment, and its end.
    pub(super) fn active(&self) -> (SegmentWriter, u64) {
        let writer = SegmentWriter {
            file: Arc::clone(&self.active.file),
            #[cfg(test)]
            watched: self.watched.clone(),
        };
        (writer, self.active.bytes)
    }

    /// Lets a disk watch what is appended from now on.
    #[cfg(test)]
    pub(super) fn watch(&mut self, watched: super::segment_writer::Watch) {
        self.watched = Some(watched);
    }

    /// Another file to append to; gives back the one before.
    #[cfg(test)]
    pub(super) fn swap_file(&mut self, file: Arc<File>) -> Arc<File> {
        std::mem::replace(&mut self.active.file, file)
    }

    /// Adds records that are synced.
    pub(super) fn add(&mut self, records: impl IntoIterator<Item = (AttemptKey, RecordPosition)>) {
        for (attempt, position) in records {
            self.active.bytes = self.active.bytes.max(position.end());
            self.active.contents.add(attempt, position);
        }
    }

    pub(super) fn is_full(&self, segment_bytes: u64) -> bool {
        self.active.bytes >= segment_bytes || self.active.contents.records >= RECORDS_MAX
    }

    /// Writes the index of the active segment and creates the next segment. Readers are not blocked.
    pub(super) fn prepare_rollover(&self) -> Result<Rollover, LogsError> {
        let full = &self.active;
        let sealed = seal(&self.directory, full.number, full.bytes, &full.contents)?;
        Ok(Rollover { sealed, next: Active::open_or_create(&self.directory, full.number + 1)? })
    }

    /// Makes the prepared segment the active one.
    pub(super) fn roll_over(&mut self, Rollover { sealed, next }: Rollover) {
        self.active = next;
        self.sealed.push(sealed);
    }

    /// The sealed segments, the oldest first.
    pub(super) fn sealed(&self) -> &[Sealed] {
        &self.sealed
    }

    /// Jobs in a sealed segment, the highest first, from one of them down.
    pub(super) fn jobs(&self, number: u64, highest: JobId, count: usize) -> Result<Vec<JobId>, LogsError> {
        let Some(sealed) = self.sealed.iter().find(|sealed| sealed.number == number) else {
            return Ok(Vec::new());
        };
        let index = index_path(&self.directory, number);
        let jobs = File::open(&index).and_then(|file| sealed.summary.jobs(&file, highest, count));
        jobs.map_err(|error| failed("read", &index, error))
    }

    /// Removes a sealed segment from the set; the caller deletes its files.
    pub(super) fn detach(&mut self, number: u64) -> Option<DetachedSegment> {
        let at = self.sealed.iter().position(|sealed| sealed.number == number)?;
        self.sealed.remove(at);
        let (segment, index) = (segment_path(&self.directory, number), index_path(&self.directory, number));
        Some(DetachedSegment { segment, index })
    }
}

impl Sealed {
    pub(super) const fn whole_bytes(&self) -> u64 {
        self.bytes + self.summary.index_bytes()
    }
}

/// A segment that was removed from the set.
pub(super) struct DetachedSegment {
    segment: PathBuf,
    index: PathBuf,
}

impl DetachedSegment {
    /// The index goes first: it can be made again from its segment, and nothing would ever delete an index without one.
    pub(super) fn delete(self) -> Result<(), LogsError> {
        for path in [self.index, self.segment] {
            fs::remove_file(&path).map_err(|error| failed("delete", &path, error))?;
        }
        Ok(())
    }
}

impl Active {
    fn open_or_create(directory: &Path, number: u64) -> Result<Self, LogsError> {
        let path = segment_path(directory, number);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|error| failed("make", &path, error))?;
        // The name must survive a power failure as the bytes do.
        File::open(directory)
            .and_then(|it| it.sync_all())
            .map_err(|error| failed("sync", directory, error))?;
        Ok(Self { number, file: Arc::new(file), bytes: 0, contents: SegmentIndex::default() })
    }

    /// Opens the last segment; if it is damaged in its middle, seals it as it is and begins the next.
    fn recover(
        directory: &Path,
        number: u64,
        sealed: &mut Vec<Sealed>,
        unsynced: Unsynced,
    ) -> Result<Self, LogsError> {
        let path = segment_path(directory, number);
        let mut active = Self::open_or_create(directory, number)?;
        let found = Scan::of(&active.file).map_err(|error| failed("read", &path, error))?;
        // A process that ends in the middle of a write leaves the beginning of a record, which is shorter than it says.
        if found.is_damaged_inside() || (unsynced == Unsynced::Kept && found.ends_with_damage()) {
            tracing::error!(
                file = %path.display(), at = found.end, records_behind = found.behind.len(),
                "a segment of output is damaged: the file is kept, and damaged output is shown as missing"
            );
            let (bytes, kept) = (found.bytes, accepted_records(directory, found, sealed, unsynced)?);
            sealed.push(seal(directory, number, bytes, &kept)?);
            return Self::open_or_create(directory, number + 1);
        }
        if found.bytes > found.end {
            tracing::info!(file = %path.display(), bytes = found.bytes - found.end, "cut off a half-written record; its worker sends it again");
            active.file.set_len(found.end).map_err(|error| failed("cut", &path, error))?;
        }
        (active.contents, active.bytes) = (found.contents, found.end);
        Ok(active)
    }
}

/// The records that count as written in a last segment that is damaged in its middle.
///
/// If the damage is where all was synced, that is every whole record, and every damaged one whose header can be believed: its output is
/// shown as missing. If it is near the end, the power may have failed before a sync, and
/// the disk may have kept a later part and not an earlier one, both of which were never acknowledged. So there only what goes on where
/// its attempt stood counts: were more believed, its worker could not send again what is missing.
fn accepted_records(
    directory: &Path,
    mut found: Scan,
    sealed: &[Sealed],
    unsynced: Unsynced,
) -> Result<SegmentIndex, LogsError> {
    match unsynced {
        Unsynced::AtMost(max) if found.bytes - found.end <= max => {}
        Unsynced::Kept | Unsynced::AtMost(_) => return Ok(found.all()),
    }
    for (attempt, position) in std::mem::take(&mut found.behind) {
        let stood = match found.contents.of(attempt).last() {
            Some(last) => last.after(),
            None => {
                last_in(directory, sealed, attempt)?.as_ref().map(RecordPosition::after).unwrap_or_default()
            }
        };
        if position.before == stood {
            found.contents.add(attempt, position);
        }
    }
    Ok(found.contents)
}

fn last_in(
    directory: &Path,
    sealed: &[Sealed],
    attempt: AttemptKey,
) -> Result<Option<RecordPosition>, LogsError> {
    for sealed in sealed.iter().rev() {
        if let Some(part) = sealed_part(directory, sealed, attempt)? {
            let last = part.range(part.count().saturating_sub(1)..part.count());
            let last = last.map_err(|error| failed("read", &index_path(directory, sealed.number), error))?;
            return Ok(last.first().copied());
        }
    }
    Ok(None)
}

fn sealed_part(
    directory: &Path,
    sealed: &Sealed,
    attempt: AttemptKey,
) -> Result<Option<SegmentPart>, LogsError> {
    if !sealed.summary.may_have(attempt.job) {
        return Ok(None);
    }
    let index = index_path(directory, sealed.number);
    let found = File::open(&index).and_then(|file| sealed.summary.find(file, attempt));
    let Some(positions) = found.map_err(|error| failed("read", &index, error))? else { return Ok(None) };
    let segment = segment_path(directory, sealed.number);
    let file = File::open(&segment).map_err(|error| failed("open", &segment, error))?;
    Ok(Some(SegmentPart {
        segment: Arc::new(file),
        number: sealed.number,
        positions: Records::Sealed(positions),
    }))
}

/// A sealed segment by its index, which is made again if it is missing or lacks records that its version did not know.
fn find_sealed(directory: &Path, number: u64) -> Result<Sealed, LogsError> {
    let (path, index) = (segment_path(directory, number), index_path(directory, number));
    let read = |error| failed("read", &path, error);
    let file = File::open(&path).map_err(read)?;
    let bytes = file.metadata().map_err(read)?.len();
    if let Some(summary) = IndexSummary::read(&index, bytes) {
        return Ok(Sealed { number, bytes, summary });
    }
    let found = Scan::of(&file).map_err(read)?;
    match IndexSummary::read_incomplete(&index) {
        Some(summary) if !found.has_times() => Ok(Sealed { number, bytes, summary }),
        _ => seal(directory, number, found.bytes, &found.all()),
    }
}

fn seal(directory: &Path, number: u64, bytes: u64, contents: &SegmentIndex) -> Result<Sealed, LogsError> {
    let path = index_path(directory, number);
    contents.write(&path).map_err(|error| failed("write", &path, error))?;
    let unreadable = || failed("read", &path, io::ErrorKind::InvalidData.into());
    Ok(Sealed { number, bytes, summary: IndexSummary::read(&path, bytes).ok_or_else(unreadable)? })
}

/// A reader of the growing segment is told this many records at once: it reads a page at a time, and copies them under a lock.
const ACTIVE_PLACES_MAX: usize = 4_096;

/// A segment is sealed when it has this many records: bounds the memory that the active one's index takes
/// to some 30 MiB, if each is of another attempt.
const RECORDS_MAX: usize = 1 << 18;
