//! The segments on disk and their indexes. Readers share the set; only the writer changes it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::JobId;

use super::attempt_segments::{ActiveRecords, AttemptSegments, Records, SegmentPart, found};
use super::error::{LogsError, failed};
use super::index::{IndexSummary, SegmentIndex};
use super::limits::{Limits, Unsynced};
use super::output::{AttemptKey, Streams};
use super::paths::{index_path, indexed, numbers, segment_path};
use super::record::RecordPosition;
use super::scan::Scan;
use super::segment_writer::SegmentWriter;
use super::stored::StoredVersion;
use crate::store::directory;

/// Every segment, the oldest first.
#[derive(Debug)]
pub(super) struct SegmentSet {
    directory: Arc<Path>,
    sealed: Vec<Sealed>,
    active: Active,
    #[cfg(test)]
    watched: Option<super::segment_writer::Watch>,
}

/// A segment that no longer changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sealed {
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) summary: IndexSummary,
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

impl SegmentSet {
    /// Opens all segments. A half-written record at the end of the last one is cut off.
    pub(super) fn open(directory: &Path, limits: &Limits) -> Result<Self, LogsError> {
        let directory: Arc<Path> = directory.into();
        directory::make(&directory).map_err(|error| failed("make", &directory, error))?;
        let mut numbers = numbers(&directory).map_err(|error| failed("list", &directory, error))?;
        numbers.sort_unstable();
        delete_lone_indexes(&directory, &numbers).map_err(|error| failed("list", &directory, error))?;
        let last = numbers.pop();
        let sealed: Result<Vec<Sealed>, LogsError> =
            numbers.into_iter().map(|number| find_sealed(&directory, number)).collect();
        let mut sealed = sealed?;
        let active = match last {
            Some(number) => Active::recover(&directory, number, &mut sealed, limits)?,
            None => Active::open_or_create(&directory, 1)?,
        };
        Ok(Self {
            directory,
            sealed,
            active,
            #[cfg(test)]
            watched: None,
        })
    }

    /// The segments that may have output of an attempt that ends after this position.
    pub(super) fn ending_after(&self, attempt: AttemptKey, streams: Streams, from: u64) -> AttemptSegments {
        let records = self.active.contents.of(attempt);
        let later = &records[records.partition_point(|record| record.ends(streams) <= from)..];
        self.of_attempt(attempt, &later[..later.len().min(ACTIVE_RECORDS_MAX)])
    }

    /// The segments that may have output of an attempt.
    pub(super) fn all(&self, attempt: AttemptKey) -> AttemptSegments {
        self.of_attempt(attempt, self.active.contents.of(attempt))
    }

    /// A mark of the segments that may have output of an attempt.
    pub(super) fn version(&self, attempt: AttemptKey) -> StoredVersion {
        let sealed = self.sealed.iter().filter(|sealed| sealed.summary.may_have(attempt.job));
        let sealed = sealed.fold((0, 0), |(count, sum), sealed| (count + 1, sum + sealed.number));
        StoredVersion { sealed, active: self.active.contents.of(attempt).len() }
    }

    /// Those that may have the end of an attempt's output.
    pub(super) fn last(&self, attempt: AttemptKey) -> AttemptSegments {
        let records = self.active.contents.of(attempt);
        self.of_attempt(attempt, &records[records.len().saturating_sub(1)..])
    }

    fn of_attempt(&self, attempt: AttemptKey, active: &[RecordPosition]) -> AttemptSegments {
        let part = |first: &RecordPosition| ActiveRecords {
            part: SegmentPart {
                segment: Arc::clone(&self.active.file),
                number: self.active.number,
                positions: Records::Listed(active.to_vec()),
            },
            first: *first,
        };
        AttemptSegments {
            active: self.active.contents.of(attempt).first().map(part),
            ..sealed_of(&self.directory, &self.sealed, attempt)
        }
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

    /// The index of a sealed segment, to be read without the lock.
    pub(super) fn sealed_index(&self, number: u64) -> Option<SealedIndex> {
        let sealed = self.sealed.iter().find(|sealed| sealed.number == number)?;
        Some(SealedIndex { path: index_path(&self.directory, number), summary: sealed.summary })
    }

    /// Removes a sealed segment from the set; the caller deletes its files.
    pub(super) fn detach(&mut self, number: u64) -> Option<DetachedSegment> {
        let at = self.sealed.iter().position(|sealed| sealed.number == number)?;
        let sealed = self.sealed.remove(at);
        let (segment, index) = (segment_path(&self.directory, number), index_path(&self.directory, number));
        Some(DetachedSegment { sealed, segment, index })
    }

    /// Takes back a segment whose file could not be deleted.
    pub(super) fn attach(&mut self, detached: &DetachedSegment) {
        let at = self.sealed.partition_point(|sealed| sealed.number < detached.sealed.number);
        self.sealed.insert(at, detached.sealed);
    }
}

impl Sealed {
    pub(super) const fn whole_bytes(&self) -> u64 {
        self.bytes + self.summary.index_bytes()
    }
}

/// The index of a segment that no longer changes.
pub(super) struct SealedIndex {
    path: PathBuf,
    summary: IndexSummary,
}

impl SealedIndex {
    /// Jobs in the segment, the highest first, from one of them down.
    pub(super) fn jobs(self, highest: JobId, count: usize) -> Result<Vec<JobId>, LogsError> {
        let jobs = File::open(&self.path).and_then(|file| self.summary.jobs(&file, highest, count));
        jobs.map_err(|error| failed("read", &self.path, error))
    }
}

/// A segment that was removed from the set.
pub(super) struct DetachedSegment {
    sealed: Sealed,
    segment: PathBuf,
    index: PathBuf,
}

impl DetachedSegment {
    /// Deletes the segment itself, first: an index alone is nothing that anybody reads.
    pub(super) fn delete_segment(&self) -> Result<(), LogsError> {
        found(fs::remove_file(&self.segment)).map_err(|error| failed("delete", &self.segment, error))?;
        Ok(())
    }

    /// Deletes its index. One that stays is deleted at the next start.
    pub(super) fn delete_index(self) -> Result<(), LogsError> {
        found(fs::remove_file(&self.index)).map_err(|error| failed("delete", &self.index, error))?;
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
        directory: &Arc<Path>,
        number: u64,
        sealed: &mut Vec<Sealed>,
        limits: &Limits,
    ) -> Result<Self, LogsError> {
        let unsynced = Unsynced::of(limits);
        let path = segment_path(directory, number);
        let mut active = Self::open_or_create(directory, number)?;
        let found = Scan::of(&active.file).map_err(|error| failed("read", &path, error))?;
        // A process that ends in the middle of a write leaves the beginning of a record, which is shorter than it says.
        if found.is_damaged_inside() || (unsynced == Unsynced::Kept && found.ends_with_damage()) {
            tracing::error!(
                file = %path.display(), at = found.end, records_behind = found.after_damage.len(),
                "a segment of output is damaged: the file is kept, and damaged output is shown as missing"
            );
            sync_again(&active.file, found.bytes, limits).map_err(|error| failed("write", &path, error))?;
            let (bytes, kept) = (found.bytes, accepted_records(directory, found, sealed, unsynced)?);
            sealed.push(seal(directory, number, bytes, &kept)?);
            return Self::open_or_create(directory, number + 1);
        }
        if found.bytes > found.end {
            tracing::info!(file = %path.display(), bytes = found.bytes - found.end, "cut off a half-written record; its worker sends it again");
            active.file.set_len(found.end).map_err(|error| failed("cut", &path, error))?;
        }
        sync_again(&active.file, found.end, limits).map_err(|error| failed("write", &path, error))?;
        (active.contents, active.bytes) = (found.contents, found.end);
        Ok(active)
    }
}

/// Writes the end of a segment once more, as it is, and syncs it. A server whose sync failed has ended itself; the system may show what it
/// wrote, keep it in memory only, and say that there is nothing to sync.
fn sync_again(file: &File, end: u64, limits: &Limits) -> io::Result<()> {
    let mut at = end.saturating_sub(limits.unsynced_bytes());
    let mut piece = vec![0; 1 << 20];
    while at < end {
        let length = usize::try_from(end - at).map_or(piece.len(), |left| left.min(piece.len()));
        let piece = &mut piece[..length];
        file.read_exact_at(piece, at)?;
        match file.write_all_at(piece, at) {
            // Some file systems need room for that. What is here is as safe as it was.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
            {
                return Ok(());
            }
            written => written?,
        }
        at += length as u64;
    }
    file.sync_data()
}

/// The records that count as written in a last segment that is damaged in its middle.
///
/// If the damage is where all was synced, that is every whole record, and every damaged one whose header can be believed: its output is
/// shown as missing. If it is near the end, the power may have failed before a sync, and
/// the disk may have kept a later part and not an earlier one, both of which were never acknowledged. So there only what goes on where
/// its attempt stood counts: were more believed, its worker could not send again what is missing.
fn accepted_records(
    directory: &Arc<Path>,
    mut found: Scan,
    sealed: &[Sealed],
    unsynced: Unsynced,
) -> Result<SegmentIndex, LogsError> {
    match unsynced {
        Unsynced::AtMost(max) if found.bytes - found.end <= max => {}
        Unsynced::Kept | Unsynced::AtMost(_) => return Ok(found.all()),
    }
    for (attempt, position) in std::mem::take(&mut found.after_damage) {
        let stood = match found.contents.of(attempt).last() {
            Some(last) => last.after(),
            None => {
                sealed_of(directory, sealed, attempt).last()?.map(|last| last.after()).unwrap_or_default()
            }
        };
        if position.before == stood {
            found.contents.add(attempt, position);
        }
    }
    Ok(found.contents)
}

/// Those of the sealed segments that may have output of an attempt.
fn sealed_of(directory: &Arc<Path>, sealed: &[Sealed], attempt: AttemptKey) -> AttemptSegments {
    let sealed = sealed.iter().filter(|sealed| sealed.summary.may_have(attempt.job)).copied().collect();
    AttemptSegments { directory: Arc::clone(directory), attempt, sealed, active: None }
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

/// Deletes indexes whose segments have gone. `numbers` are those of the segments, in order.
fn delete_lone_indexes(directory: &Path, numbers: &[u64]) -> io::Result<()> {
    for number in indexed(directory)?.into_iter().filter(|number| numbers.binary_search(number).is_err()) {
        found(fs::remove_file(index_path(directory, number)))?;
    }
    Ok(())
}

/// A reader of the growing segment is told this many records at once: it reads a page at a time, and copies them under a lock.
const ACTIVE_RECORDS_MAX: usize = 4_096;

/// A segment is sealed when it has this many records: bounds the memory that the active one's index takes
/// to some 30 MiB, if each is of another attempt.
const RECORDS_MAX: usize = 1 << 18;
