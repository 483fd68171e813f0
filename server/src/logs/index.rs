//! Which records of a segment belong to which attempt: in memory while the segment grows, in a file beside it once it is sealed.
//!
//! ```text
//! magic 8 bytes · attempts u32 · records u32 · lowest job u64 · highest job u64
//! for each attempt, sorted: job u64 · fence u64 · first of its records u32 · how many u32
//! for each record, by attempt and then in order: at u32 · payload u32 · stream and kind u8 · stdout before u64 · stderr before u64 · covers u64
//! ```
//! Both lists are of fixed width, so an attempt is found by halving, and a position in its output by halving again: memory is
//! needed for neither.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use protocol::report::OutputLengths;
use protocol::{Fence, JobId};

use super::record::{self, Place};
use super::{Attempt, Which};

/// The records of a segment that still grows.
#[derive(Debug, Default)]
pub(super) struct Contents {
    by_attempt: BTreeMap<Attempt, Vec<Place>>,
    pub(super) records: usize,
}

impl Contents {
    pub(super) fn add(&mut self, attempt: Attempt, place: Place) {
        // Most attempts write once: no room is made for more before it is needed.
        self.by_attempt.entry(attempt).or_insert_with(|| Vec::with_capacity(1)).push(place);
        self.records += 1;
    }

    pub(super) fn of(&self, attempt: Attempt) -> &[Place] {
        self.by_attempt.get(&attempt).map_or(&[], Vec::as_slice)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (Attempt, &Place)> {
        self.by_attempt.iter().flat_map(|(attempt, places)| places.iter().map(|place| (*attempt, place)))
    }

    /// Writes the index of a sealed segment: whole or not at all.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(
            HEADER_BYTES + self.by_attempt.len() * ATTEMPT_BYTES + self.records * PLACE_BYTES,
        );
        let jobs = (self.by_attempt.first_key_value(), self.by_attempt.last_key_value());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&number(self.by_attempt.len()).to_le_bytes());
        bytes.extend_from_slice(&number(self.records).to_le_bytes());
        for (attempt, _) in [jobs.0, jobs.1].into_iter().flatten() {
            bytes.extend_from_slice(&attempt.job.0.to_le_bytes());
        }
        bytes.resize(HEADER_BYTES, 0);
        let mut first = 0;
        for (attempt, places) in &self.by_attempt {
            bytes.extend_from_slice(&attempt.job.0.to_le_bytes());
            bytes.extend_from_slice(&attempt.fence.0.to_le_bytes());
            bytes.extend_from_slice(&number(first).to_le_bytes());
            bytes.extend_from_slice(&number(places.len()).to_le_bytes());
            first += places.len();
        }
        for place in self.by_attempt.values().flatten() {
            bytes.extend_from_slice(&place.at.to_le_bytes());
            bytes.extend_from_slice(&place.payload.to_le_bytes());
            bytes.push(record::code(place.stream, place.kind));
            for number in [place.before.stdout, place.before.stderr, place.covers] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        let draft = path.with_extension("idx-draft");
        let mut file = File::create(&draft)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(draft, path)
    }
}

/// What is kept in memory of a sealed segment's index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Summary {
    attempts: u32,
    records: u32,
    lowest: JobId,
    highest: JobId,
}

impl Summary {
    /// Reads it from the index; nothing if that is not a whole index.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0).ok()?;
        let (magic, rest) = header.split_at(8);
        let summary = Self {
            attempts: u32_at(rest, 0),
            records: u32_at(rest, 4),
            lowest: JobId(u64_at(rest, 8)),
            highest: JobId(u64_at(rest, 16)),
        };
        let is_whole = magic == MAGIC && file.metadata().ok()?.len() == summary.index_bytes();
        is_whole.then_some(summary)
    }

    /// How large the index is.
    pub(super) const fn index_bytes(&self) -> u64 {
        self.places_at() + self.records as u64 * PLACE_BYTES as u64
    }

    const fn places_at(&self) -> u64 {
        HEADER_BYTES as u64 + self.attempts as u64 * ATTEMPT_BYTES as u64
    }

    /// Whether the segment may have anything of this job.
    pub(super) fn may_have(&self, job: JobId) -> bool {
        self.attempts > 0 && (self.lowest..=self.highest).contains(&job)
    }

    /// The records of an attempt in a sealed segment; nothing if it has none there.
    pub(super) fn find(self, index: File, attempt: Attempt) -> io::Result<Option<Places>> {
        let at = self.first_from(&index, attempt)?;
        if at == u64::from(self.attempts) {
            return Ok(None);
        }
        let entry = entry(&index, at)?;
        if attempt_of(&entry) != attempt {
            return Ok(None);
        }
        let base = self.places_at() + u64::from(u32_at(&entry, 16)) * PLACE_BYTES as u64;
        Ok(Some(Places { index, base, count: u32_at(&entry, 20) as usize }))
    }

    /// Jobs that have anything in the segment, the highest first, from one of them down.
    pub(super) fn jobs(self, index: &File, highest: JobId, count: usize) -> io::Result<Vec<JobId>> {
        let end =
            self.first_from(index, Attempt { job: JobId(highest.0.saturating_add(1)), fence: Fence(0) })?;
        let begin = end.saturating_sub(count as u64);
        let mut bytes = vec![0; usize::try_from(end - begin).unwrap_or(usize::MAX) * ATTEMPT_BYTES];
        index.read_exact_at(&mut bytes, entry_at(begin))?;
        let mut jobs: Vec<JobId> =
            bytes.chunks_exact(ATTEMPT_BYTES).rev().map(|entry| attempt_of(entry).job).collect();
        jobs.dedup();
        Ok(jobs)
    }

    /// The place in the list of attempts of the first that is not lower than this one.
    fn first_from(self, index: &File, attempt: Attempt) -> io::Result<u64> {
        let (mut low, mut high) = (0, u64::from(self.attempts));
        while low < high {
            let middle = u64::midpoint(low, high);
            if attempt_of(&entry(index, middle)?) < attempt { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }
}

const fn entry_at(place: u64) -> u64 {
    HEADER_BYTES as u64 + place * ATTEMPT_BYTES as u64
}

fn entry(index: &File, place: u64) -> io::Result<[u8; ATTEMPT_BYTES]> {
    let mut entry = [0; ATTEMPT_BYTES];
    index.read_exact_at(&mut entry, entry_at(place))?;
    Ok(entry)
}

fn attempt_of(entry: &[u8]) -> Attempt {
    Attempt { job: JobId(u64_at(entry, 0)), fence: Fence(u64_at(entry, 8)) }
}

/// The records of one attempt in one sealed segment.
#[derive(Debug)]
pub(super) struct Places {
    index: File,
    base: u64,
    pub(super) count: usize,
}

impl Places {
    /// Some of them, in order.
    pub(super) fn some(&self, range: Range<usize>) -> io::Result<Vec<Place>> {
        let range = range.start.min(self.count)..range.end.min(self.count);
        let mut bytes = vec![0; range.len() * PLACE_BYTES];
        self.index.read_exact_at(&mut bytes, self.base + range.start as u64 * PLACE_BYTES as u64)?;
        bytes.chunks_exact(PLACE_BYTES).map(place).collect()
    }

    /// The first that ends behind this position.
    pub(super) fn first_behind(&self, which: Which, position: u64) -> io::Result<usize> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = usize::midpoint(low, high);
            let is_before =
                self.some(middle..middle + 1)?.first().is_some_and(|place| place.ends(which) <= position);
            (low, high) = if is_before { (middle + 1, high) } else { (low, middle) };
        }
        Ok(low)
    }
}

fn place(bytes: &[u8]) -> io::Result<Place> {
    let (stream, kind) = record::meaning(bytes[8]).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "an index with a record of no known kind")
    })?;
    Ok(Place {
        at: u32_at(bytes, 0),
        payload: u32_at(bytes, 4),
        stream,
        kind,
        before: OutputLengths { stdout: u64_at(bytes, 9), stderr: u64_at(bytes, 17) },
        covers: u64_at(bytes, 25),
    })
}

/// Segments have far fewer than 2^32 records: they are sealed before.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | (u64::from(u32_at(bytes, at + 4)) << 32)
}

const MAGIC: &[u8; 8] = b"LSLOGIX1";
const HEADER_BYTES: usize = 32;
const ATTEMPT_BYTES: usize = 24;
const PLACE_BYTES: usize = 33;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use protocol::report::Stream;

    use super::*;
    use crate::logs::record::Kind;

    /// A record as it comes in: whose, of which stream and kind, and how much it stands for.
    fn record() -> impl Strategy<Value = (Attempt, Stream, Kind, u64)> {
        let attempt =
            (1..5_u64, 1..4_u64).prop_map(|(job, fence)| Attempt { job: JobId(job), fence: Fence(fence) });
        let stream = prop::sample::select(&Stream::ALL[..]);
        (attempt, stream, prop::sample::select(&[Kind::Bytes, Kind::Replayed, Kind::Gap][..]), 0..5_u64)
    }

    /// All records in the order in which they came, as a list that is searched from end to end.
    fn lay_down(records: Vec<(Attempt, Stream, Kind, u64)>) -> Vec<(Attempt, Place)> {
        let mut list: Vec<(Attempt, Place)> = Vec::new();
        for (attempt, stream, kind, covers) in records {
            let last = list.iter().rev().find(|(known, _)| *known == attempt);
            let before = last.map(|(_, place)| place.after()).unwrap_or_default();
            let at = list.last().map_or(0, |(_, place)| place.end()) as u32;
            let payload = if kind == Kind::Gap { 8 } else { covers as u32 };
            list.push((attempt, Place { at, payload, stream, kind, before, covers }));
        }
        list
    }

    proptest! {
        #[test]
        fn whoever_searches_the_list_finds_the_same(
            records in prop::collection::vec(record(), 0..60),
            from in 0..30_u64,
            range in (0..8_usize, 0..8_usize),
            torn in any::<prop::sample::Index>(),
        ) {
            let list = lay_down(records);
            let mut contents = Contents::default();
            for (attempt, place) in &list {
                contents.add(*attempt, *place);
            }
            let directory = tempfile::tempdir()?;
            let path = directory.path().join("1.idx");
            contents.write(&path)?;
            let summary = Summary::read(&path).expect("a whole index");
            for job in 0..6 {
                for fence in 0..5 {
                    let attempt = Attempt { job: JobId(job), fence: Fence(fence) };
                    let places: Vec<Place> = list.iter().filter(|(whose, _)| *whose == attempt).map(|(_, place)| *place).collect();
                    prop_assert_eq!(contents.of(attempt), &*places);
                    let Some(found) = summary.find(File::open(&path)?, attempt)? else {
                        prop_assert!(places.is_empty(), "{:?} is not found", attempt);
                        continue;
                    };
                    prop_assert!(summary.may_have(attempt.job));
                    prop_assert_eq!(&found.some(0..usize::MAX)?, &places);
                    let some: Vec<Place> = places.iter().take(range.1).skip(range.0).copied().collect();
                    prop_assert_eq!(found.some(range.0..range.1.max(range.0))?, some);
                    for which in [Which::Both, Which::Only(Stream::Stdout), Which::Only(Stream::Stderr)] {
                        let first = places.iter().position(|place| place.ends(which) > from).unwrap_or(places.len());
                        prop_assert_eq!(found.first_behind(which, from)?, first);
                    }
                }
            }
            let bytes = fs::read(&path)?;
            fs::write(&path, &bytes[..torn.index(bytes.len())])?;
            prop_assert!(Summary::read(&path).is_none(), "a torn index was believed");
        }
    }
}
