//! The segments on disk, and where everything is in them. Readers share it; only the writer changes it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::JobId;
use protocol::report::OutputLengths;

use super::index::{Contents, Places, Summary};
use super::pen::Pen;
use super::record::Place;
use super::scan::Scan;
use super::{Attempt, LogsError, Which};
use crate::store::directory;

/// Every segment, the oldest first.
#[derive(Debug)]
pub(super) struct Shelf {
    directory: PathBuf,
    sealed: Vec<Sealed>,
    active: Active,
    #[cfg(test)]
    watched: Option<super::pen::Watch>,
}

/// A segment that does not change any more.
#[derive(Clone, Debug)]
pub(super) struct Sealed {
    pub(super) number: u64,
    pub(super) bytes: u64,
    summary: Summary,
}

/// The end of a segment and the beginning of the next.
pub(super) struct Turn {
    sealed: Sealed,
    next: Active,
}

/// The segment that is written to.
#[derive(Debug)]
struct Active {
    number: u64,
    file: Arc<File>,
    bytes: u64,
    contents: Contents,
}

/// One attempt's records in one segment.
pub(super) struct Part {
    pub(super) segment: Arc<File>,
    pub(super) number: u64,
    places: PlacesOf,
}

enum PlacesOf {
    Active(Vec<Place>),
    Sealed(Places),
}

impl Part {
    pub(super) fn count(&self) -> usize {
        match &self.places {
            PlacesOf::Active(places) => places.len(),
            PlacesOf::Sealed(places) => places.count,
        }
    }

    pub(super) fn some(&self, range: std::ops::Range<usize>) -> io::Result<Vec<Place>> {
        match &self.places {
            PlacesOf::Active(places) => {
                Ok(places[range.start.min(places.len())..range.end.min(places.len())].to_vec())
            }
            PlacesOf::Sealed(places) => places.some(range),
        }
    }

    pub(super) fn first_behind(&self, which: Which, position: u64) -> io::Result<usize> {
        match &self.places {
            PlacesOf::Active(places) => Ok(places.partition_point(|place| place.ends(which) <= position)),
            PlacesOf::Sealed(places) => places.first_behind(which, position),
        }
    }
}

impl Shelf {
    /// Reads what is there. What was half written at the end of the last segment is cut off. `unsynced_max` bytes at most may have been
    /// written and not synced when the server ended.
    pub(super) fn open(directory: &Path, unsynced_max: u64) -> Result<Self, LogsError> {
        directory::make(directory).map_err(|error| failed("make", directory, error))?;
        let mut numbers = numbers(directory).map_err(|error| failed("list", directory, error))?;
        numbers.sort_unstable();
        let last = numbers.pop();
        let mut sealed = Vec::with_capacity(numbers.len());
        for number in numbers {
            sealed.push(find_sealed(directory, number)?);
        }
        let active = match last {
            Some(number) => Active::recover(directory, number, &mut sealed, unsynced_max)?,
            None => Active::begin(directory, 1)?,
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
    pub(super) fn lengths(&self, attempt: Attempt) -> Result<OutputLengths, LogsError> {
        if let Some(last) = self.active.contents.of(attempt).last() {
            return Ok(last.after());
        }
        lengths_in(&self.directory, &self.sealed, attempt)
    }

    /// Where an attempt's records are, the oldest first. Of the segment that still grows only so many are told, those that end
    /// behind this position.
    pub(super) fn parts(&self, attempt: Attempt, which: Which, from: u64) -> Result<Vec<Part>, LogsError> {
        let places = self.active.contents.of(attempt);
        let places = &places[places.partition_point(|place| place.ends(which) <= from)..];
        self.all_parts(attempt, &places[..places.len().min(ACTIVE_PLACES_MAX)])
    }

    /// Where all of an attempt's records are, the oldest first.
    pub(super) fn whole(&self, attempt: Attempt) -> Result<Vec<Part>, LogsError> {
        self.all_parts(attempt, self.active.contents.of(attempt))
    }

    fn all_parts(&self, attempt: Attempt, active: &[Place]) -> Result<Vec<Part>, LogsError> {
        let mut parts = Vec::new();
        for sealed in &self.sealed {
            parts.extend(sealed_part(&self.directory, sealed, attempt)?);
        }
        if !active.is_empty() {
            let segment = Arc::clone(&self.active.file);
            parts.push(Part {
                segment,
                number: self.active.number,
                places: PlacesOf::Active(active.to_vec()),
            });
        }
        Ok(parts)
    }

    /// How to append, and where.
    pub(super) fn active(&self) -> (Pen, u64) {
        let pen = Pen {
            file: Arc::clone(&self.active.file),
            #[cfg(test)]
            watched: self.watched.clone(),
        };
        (pen, self.active.bytes)
    }

    /// Lets a disk watch what is appended from now on.
    #[cfg(test)]
    pub(super) fn watch(&mut self, watched: super::pen::Watch) {
        self.watched = Some(watched);
    }

    /// Another file to append to; gives back the one before.
    #[cfg(test)]
    pub(super) fn swap_file(&mut self, file: Arc<File>) -> Arc<File> {
        std::mem::replace(&mut self.active.file, file)
    }

    /// Takes note of records that are synced.
    pub(super) fn add(&mut self, records: impl IntoIterator<Item = (Attempt, Place)>) {
        for (attempt, place) in records {
            self.active.bytes = self.active.bytes.max(place.end());
            self.active.contents.add(attempt, place);
        }
    }

    pub(super) fn is_full(&self, segment_bytes: u64) -> bool {
        self.active.bytes >= segment_bytes || self.active.contents.records >= RECORDS_MAX
    }

    /// Makes all that is needed to seal the active segment and to go on with the next. Readers are not held up by it.
    pub(super) fn prepare_turn(&self) -> Result<Turn, LogsError> {
        let full = &self.active;
        let sealed = seal(&self.directory, full.number, full.bytes, &full.contents)?;
        Ok(Turn { sealed, next: Active::begin(&self.directory, full.number + 1)? })
    }

    /// Goes on with the next segment.
    pub(super) fn turn(&mut self, Turn { sealed, next }: Turn) {
        self.active = next;
        self.sealed.push(sealed);
    }

    /// Those that do not change any more, the oldest first.
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

    /// Forgets a sealed segment: it is for its taker to delete.
    pub(super) fn take(&mut self, number: u64) -> Option<Taken> {
        let at = self.sealed.iter().position(|sealed| sealed.number == number)?;
        self.sealed.remove(at);
        let (segment, index) = (segment_path(&self.directory, number), index_path(&self.directory, number));
        Some(Taken { segment, index })
    }
}

impl Sealed {
    pub(super) const fn whole_bytes(&self) -> u64 {
        self.bytes + self.summary.index_bytes()
    }
}

/// A segment that nobody knows any more.
pub(super) struct Taken {
    segment: PathBuf,
    index: PathBuf,
}

impl Taken {
    /// The index goes first: it can be made again from its segment, and without one it would be there for ever.
    pub(super) fn delete(self) -> Result<(), LogsError> {
        for path in [self.index, self.segment] {
            fs::remove_file(&path).map_err(|error| failed("delete", &path, error))?;
        }
        Ok(())
    }
}

impl Active {
    fn begin(directory: &Path, number: u64) -> Result<Self, LogsError> {
        let path = segment_path(directory, number);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|error| failed("make", &path, error))?;
        // So that the name survives what the bytes survive.
        File::open(directory)
            .and_then(|it| it.sync_all())
            .map_err(|error| failed("sync", directory, error))?;
        Ok(Self { number, file: Arc::new(file), bytes: 0, contents: Contents::default() })
    }

    /// Goes on with the last segment, or, if it is damaged in its middle, seals it as it is and goes on with the next.
    fn recover(
        directory: &Path,
        number: u64,
        sealed: &mut Vec<Sealed>,
        unsynced_max: u64,
    ) -> Result<Self, LogsError> {
        let path = segment_path(directory, number);
        let mut active = Self::begin(directory, number)?;
        let found = Scan::of(&active.file).map_err(|error| failed("read", &path, error))?;
        if found.is_damaged_inside() {
            tracing::error!(
                file = %path.display(), at = found.end, records_behind = found.behind.len(),
                "output is damaged: the file is kept as it is, and what is damaged is shown as missing"
            );
            let (bytes, kept) = (found.bytes, what_is_believed(directory, found, sealed, unsynced_max)?);
            sealed.push(seal(directory, number, bytes, &kept)?);
            return Self::begin(directory, number + 1);
        }
        if found.bytes > found.end {
            tracing::info!(file = %path.display(), bytes = found.bytes - found.end, "cut off output that was half written");
            active.file.set_len(found.end).map_err(|error| failed("cut", &path, error))?;
        }
        (active.contents, active.bytes) = (found.contents, found.end);
        Ok(active)
    }
}

/// What counts as written of a last segment that is damaged in its middle.
///
/// If the damage is where all was synced, that is every whole record. If it is near the end, the power may have failed before a sync, and
/// the disk may have kept a later part and not an earlier one, both of which were never acknowledged. So there only what goes on where
/// its attempt stood counts: were more believed, its worker could not send again what is missing.
fn what_is_believed(
    directory: &Path,
    mut found: Scan,
    sealed: &[Sealed],
    unsynced_max: u64,
) -> Result<Contents, LogsError> {
    if found.bytes - found.end > unsynced_max {
        return Ok(found.all());
    }
    for (attempt, place) in std::mem::take(&mut found.behind) {
        let stood = match found.contents.of(attempt).last() {
            Some(last) => last.after(),
            None => lengths_in(directory, sealed, attempt)?,
        };
        if place.before == stood {
            found.contents.add(attempt, place);
        }
    }
    Ok(found.contents)
}

fn lengths_in(directory: &Path, sealed: &[Sealed], attempt: Attempt) -> Result<OutputLengths, LogsError> {
    for sealed in sealed.iter().rev() {
        if let Some(part) = sealed_part(directory, sealed, attempt)? {
            let last = part.some(part.count().saturating_sub(1)..part.count());
            let last = last.map_err(|error| failed("read", &index_path(directory, sealed.number), error))?;
            return Ok(last.first().map(Place::after).unwrap_or_default());
        }
    }
    Ok(OutputLengths::default())
}

fn sealed_part(directory: &Path, sealed: &Sealed, attempt: Attempt) -> Result<Option<Part>, LogsError> {
    if !sealed.summary.may_have(attempt.job) {
        return Ok(None);
    }
    let index = index_path(directory, sealed.number);
    let found = File::open(&index).and_then(|file| sealed.summary.find(file, attempt));
    let Some(places) = found.map_err(|error| failed("read", &index, error))? else { return Ok(None) };
    let segment = segment_path(directory, sealed.number);
    let file = File::open(&segment).map_err(|error| failed("open", &segment, error))?;
    Ok(Some(Part { segment: Arc::new(file), number: sealed.number, places: PlacesOf::Sealed(places) }))
}

/// A sealed segment by its index, which is made again if it is missing.
fn find_sealed(directory: &Path, number: u64) -> Result<Sealed, LogsError> {
    let path = segment_path(directory, number);
    let read = |error| failed("read", &path, error);
    let file = File::open(&path).map_err(read)?;
    if let Some(summary) = Summary::read(&index_path(directory, number)) {
        return Ok(Sealed { number, bytes: file.metadata().map_err(read)?.len(), summary });
    }
    let found = Scan::of(&file).map_err(read)?;
    seal(directory, number, found.bytes, &found.all())
}

fn seal(directory: &Path, number: u64, bytes: u64, contents: &Contents) -> Result<Sealed, LogsError> {
    let path = index_path(directory, number);
    contents.write(&path).map_err(|error| failed("write", &path, error))?;
    let unreadable = || failed("read", &path, io::ErrorKind::InvalidData.into());
    Ok(Sealed { number, bytes, summary: Summary::read(&path).ok_or_else(unreadable)? })
}

pub(super) fn numbers(directory: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = PathBuf::from(entry?.file_name());
        if path.extension().is_some_and(|extension| extension == "seg") {
            numbers.extend(path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok()));
        }
    }
    Ok(numbers)
}

pub(super) fn failed(what: &str, path: &Path, source: io::Error) -> LogsError {
    LogsError::Io { what: format!("cannot {what} {}", path.display()), source }
}

pub(super) fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}.seg"))
}

pub(super) fn index_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}.idx"))
}

/// A reader of the growing segment is told this many records at once: it reads a page at a time, and copies them under a lock.
const ACTIVE_PLACES_MAX: usize = 4_096;

/// A segment is sealed when it has this many records: bounds the memory that the active one's index takes
/// to some 30 MiB, if each is of another attempt.
const RECORDS_MAX: usize = 1 << 18;
