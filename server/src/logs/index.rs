//! The index of a segment: the records of each attempt. In memory while the segment grows, in a file beside it once it is sealed.
//!
//! ```text
//! magic 8 bytes · checksum of all that follows u32 · attempts u32 · records u32 · unused u32 · lowest job u64 · highest job u64
//! for each attempt, sorted: job u64 · fence u64 · first of its records u32 · how many u32
//! for each record, by attempt and then in order: at u32 · payload u32 · code u8 · stdout before u64 · stderr before u64 · covers u64
//! ```
//! Entries of the file have a fixed width, so look-ups are binary searches in the file; nothing of a sealed segment is held in memory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use protocol::report::OutputLengths;
use protocol::{Fence, JobId};

use super::output::{AttemptKey, Streams};
use super::record::{self, RecordCode, RecordPosition};

/// The records of a segment that still grows.
#[derive(Debug, Default)]
pub(super) struct SegmentIndex {
    by_attempt: BTreeMap<AttemptKey, Vec<RecordPosition>>,
    pub(super) records: usize,
}

impl SegmentIndex {
    pub(super) fn add(&mut self, attempt: AttemptKey, position: RecordPosition) {
        // Most attempts write once: no room is made for more before it is needed.
        self.by_attempt.entry(attempt).or_insert_with(|| Vec::with_capacity(1)).push(position);
        self.records += 1;
    }

    pub(super) fn of(&self, attempt: AttemptKey) -> &[RecordPosition] {
        self.by_attempt.get(&attempt).map_or(&[], Vec::as_slice)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (AttemptKey, &RecordPosition)> {
        self.by_attempt
            .iter()
            .flat_map(|(attempt, positions)| positions.iter().map(|position| (*attempt, position)))
    }

    /// Writes the index of a sealed segment: whole or not at all.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(
            HEADER_BYTES + self.by_attempt.len() * ATTEMPT_BYTES + self.records * POSITION_BYTES,
        );
        let jobs = (self.by_attempt.first_key_value(), self.by_attempt.last_key_value());
        bytes.extend_from_slice(&MAGIC);
        // The checksum comes last.
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&number(self.by_attempt.len()).to_le_bytes());
        bytes.extend_from_slice(&number(self.records).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for (attempt, _) in [jobs.0, jobs.1].into_iter().flatten() {
            bytes.extend_from_slice(&attempt.job.0.to_le_bytes());
        }
        bytes.resize(HEADER_BYTES, 0);
        let mut first = 0;
        for (attempt, positions) in &self.by_attempt {
            bytes.extend_from_slice(&attempt.job.0.to_le_bytes());
            bytes.extend_from_slice(&attempt.fence.0.to_le_bytes());
            bytes.extend_from_slice(&number(first).to_le_bytes());
            bytes.extend_from_slice(&number(positions.len()).to_le_bytes());
            first += positions.len();
        }
        for position in self.by_attempt.values().flatten() {
            bytes.extend_from_slice(&position.at.to_le_bytes());
            bytes.extend_from_slice(&position.payload.to_le_bytes());
            bytes.push(position.code.to_byte());
            for number in [position.before.stdout, position.before.stderr, position.covers] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        let sum = record::checksum(&bytes[SUMMED_FROM..]);
        bytes[MAGIC.len()..SUMMED_FROM].copy_from_slice(&sum.to_le_bytes());
        let draft = path.with_extension("idx-draft");
        let mut file = File::create(&draft)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(draft, path)
    }
}

/// The header of a sealed segment's index, kept in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexSummary {
    attempts: u32,
    records: u32,
    lowest: JobId,
    highest: JobId,
}

impl IndexSummary {
    /// Reads it from the index of a segment of this size, and checks the whole file; none if that is torn, damaged, of an unknown version,
    /// or of version 2 without the end of its segment: the index may have to be made again.
    pub(super) fn read(path: &Path, segment_bytes: u64) -> Option<Self> {
        let (summary, index) = Self::load(path)?;
        let is_complete = index.starts_with(&MAGIC) || summary.last_end(&index) == segment_bytes;
        is_complete.then_some(summary)
    }

    /// Likewise, also without the end of its segment.
    pub(super) fn read_incomplete(path: &Path) -> Option<Self> {
        Self::load(path).map(|(summary, _)| summary)
    }

    fn load(path: &Path) -> Option<(Self, Vec<u8>)> {
        let bytes = fs::read(path).ok()?;
        let (header, _) = bytes.split_at_checked(HEADER_BYTES)?;
        let (magic, rest) = header.split_at(MAGIC.len());
        let summary = Self {
            attempts: u32_at(rest, 4),
            records: u32_at(rest, 8),
            lowest: JobId(u64_at(rest, 16)),
            highest: JobId(u64_at(rest, 24)),
        };
        let is_whole = [MAGIC, MAGIC_WITHOUT_TIMES].iter().any(|known| magic == known)
            && bytes.len() as u64 == summary.index_bytes()
            && record::checksum(&bytes[SUMMED_FROM..]) == u32_at(rest, 0);
        is_whole.then_some((summary, bytes))
    }

    /// The end of the last record in the segment.
    fn last_end(self, index: &[u8]) -> u64 {
        let positions =
            index.get(usize::try_from(self.positions_at()).unwrap_or(usize::MAX)..).unwrap_or_default();
        let ends = positions.chunks_exact(POSITION_BYTES).flat_map(position).map(|position| position.end());
        ends.max().unwrap_or(0)
    }

    /// How large the index is.
    pub(super) const fn index_bytes(&self) -> u64 {
        self.positions_at() + self.records as u64 * POSITION_BYTES as u64
    }

    const fn positions_at(&self) -> u64 {
        HEADER_BYTES as u64 + self.attempts as u64 * ATTEMPT_BYTES as u64
    }

    /// True if the index of these records is as large as this one.
    pub(super) fn has_size_of(&self, contents: &SegmentIndex) -> bool {
        (self.attempts as usize, self.records as usize) == (contents.by_attempt.len(), contents.records)
    }

    /// False if the segment certainly has no output of this job.
    pub(super) fn may_have(&self, job: JobId) -> bool {
        self.attempts > 0 && (self.lowest..=self.highest).contains(&job)
    }

    /// The records of an attempt in a sealed segment; nothing if it has none there.
    pub(super) fn find(self, index: File, attempt: AttemptKey) -> io::Result<Option<IndexedRecords>> {
        let at = self.first_from(&index, attempt)?;
        if at == u64::from(self.attempts) {
            return Ok(None);
        }
        let entry = entry(&index, at)?;
        if attempt_of(&entry) != attempt {
            return Ok(None);
        }
        let base = self.positions_at() + u64::from(u32_at(&entry, 16)) * POSITION_BYTES as u64;
        Ok(Some(IndexedRecords { index, base, count: u32_at(&entry, 20) as usize }))
    }

    /// Jobs that have anything in the segment, the highest first, from one of them down.
    pub(super) fn jobs(self, index: &File, highest: JobId, count: usize) -> io::Result<Vec<JobId>> {
        let end =
            self.first_from(index, AttemptKey { job: JobId(highest.0.saturating_add(1)), fence: Fence(0) })?;
        let begin = end.saturating_sub(count as u64);
        let mut bytes = vec![0; usize::try_from(end - begin).unwrap_or(usize::MAX) * ATTEMPT_BYTES];
        index.read_exact_at(&mut bytes, entry_at(begin))?;
        let mut jobs: Vec<JobId> =
            bytes.chunks_exact(ATTEMPT_BYTES).rev().map(|entry| attempt_of(entry).job).collect();
        jobs.dedup();
        Ok(jobs)
    }

    /// The place in the list of attempts of the first that is not lower than this one.
    fn first_from(self, index: &File, attempt: AttemptKey) -> io::Result<u64> {
        let (mut low, mut high) = (0, u64::from(self.attempts));
        while low < high {
            let middle = u64::midpoint(low, high);
            if attempt_of(&entry(index, middle)?) < attempt { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }
}

const fn entry_at(position: u64) -> u64 {
    HEADER_BYTES as u64 + position * ATTEMPT_BYTES as u64
}

fn entry(index: &File, position: u64) -> io::Result<[u8; ATTEMPT_BYTES]> {
    let mut entry = [0; ATTEMPT_BYTES];
    index.read_exact_at(&mut entry, entry_at(position))?;
    Ok(entry)
}

fn attempt_of(entry: &[u8]) -> AttemptKey {
    AttemptKey { job: JobId(u64_at(entry, 0)), fence: Fence(u64_at(entry, 8)) }
}

/// The records of one attempt in one sealed segment.
#[derive(Debug)]
pub(super) struct IndexedRecords {
    index: File,
    base: u64,
    pub(super) count: usize,
}

impl IndexedRecords {
    /// Some of them, in order.
    pub(super) fn range(&self, range: Range<usize>) -> io::Result<Vec<RecordPosition>> {
        let range = range.start.min(self.count)..range.end.min(self.count);
        let mut bytes = vec![0; range.len() * POSITION_BYTES];
        self.index.read_exact_at(&mut bytes, self.base + range.start as u64 * POSITION_BYTES as u64)?;
        bytes.chunks_exact(POSITION_BYTES).map(position).collect()
    }

    /// The first that ends after this position.
    pub(super) fn first_after(&self, streams: Streams, position: u64) -> io::Result<usize> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = usize::midpoint(low, high);
            let is_before = self
                .range(middle..middle + 1)?
                .first()
                .is_some_and(|record| record.ends(streams) <= position);
            (low, high) = if is_before { (middle + 1, high) } else { (low, middle) };
        }
        Ok(low)
    }
}

fn position(bytes: &[u8]) -> io::Result<RecordPosition> {
    let code = RecordCode::parse(bytes[8]).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "an index with a record of no known kind")
    })?;
    Ok(RecordPosition {
        at: u32_at(bytes, 0),
        payload: u32_at(bytes, 4),
        code,
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

/// The last digit is the version of the format. Version 1 had no checksum.
const MAGIC: [u8; 8] = *b"LSLOGIX3";
/// Version 2 is laid out in the same way; its writers did not know records with a time. One that lacks the end of its segment counts only if
/// no record there has a time: a server of that version may have made it again from a segment of a later one.
const MAGIC_WITHOUT_TIMES: [u8; 8] = *b"LSLOGIX2";
/// The first byte that the checksum covers.
const SUMMED_FROM: usize = 12;
const HEADER_BYTES: usize = 40;
const ATTEMPT_BYTES: usize = 24;
const POSITION_BYTES: usize = 33;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use protocol::report::Stream;

    use super::*;
    use crate::logs::record::Kind;

    /// A record as it comes in: whose, of which stream and kind, and how much it stands for.
    fn record() -> impl Strategy<Value = (AttemptKey, RecordCode, u64)> {
        let attempt =
            (1..5_u64, 1..4_u64).prop_map(|(job, fence)| AttemptKey { job: JobId(job), fence: Fence(fence) });
        let kind = prop::sample::select(&[Kind::Bytes, Kind::Replayed, Kind::Gap, Kind::Cut][..]);
        let code = (prop::sample::select(&Stream::ALL[..]), kind, any::<bool>())
            .prop_map(|(stream, kind, has_time)| RecordCode { stream, kind, has_time });
        (attempt, code, 0..5_u64)
    }

    /// All records in the order in which they came, as a list that is searched from end to end.
    fn lay_down(records: Vec<(AttemptKey, RecordCode, u64)>) -> Vec<(AttemptKey, RecordPosition)> {
        let mut list: Vec<(AttemptKey, RecordPosition)> = Vec::new();
        for (attempt, code, covers) in records {
            let last = list.iter().rev().find(|(known, _)| *known == attempt);
            let before = last.map(|(_, position)| position.after()).unwrap_or_default();
            let at = list.last().map_or(0, |(_, position)| position.end()) as u32;
            let payload = if code.kind.is_missing() { 8 } else { covers as u32 };
            list.push((attempt, RecordPosition { at, payload, code, before, covers }));
        }
        list
    }

    proptest! {
        #[test]
        fn index_finds_the_same_as_a_linear_search(
            records in prop::collection::vec(record(), 0..60),
            from in 0..30_u64,
            range in (0..8_usize, 0..8_usize),
            torn in any::<prop::sample::Index>(),
            damaged in any::<prop::sample::Index>(),
        ) {
            let list = lay_down(records);
            let mut contents = SegmentIndex::default();
            for (attempt, position) in &list {
                contents.add(*attempt, *position);
            }
            let directory = tempfile::tempdir()?;
            let path = directory.path().join("1.idx");
            contents.write(&path)?;
            let end = list.last().map_or(0, |(_, position)| position.end());
            let summary = IndexSummary::read(&path, end).expect("a whole index");
            for job in 0..6 {
                for fence in 0..5 {
                    let attempt = AttemptKey { job: JobId(job), fence: Fence(fence) };
                    let positions: Vec<RecordPosition> = list.iter().filter(|(whose, _)| *whose == attempt).map(|(_, position)| *position).collect();
                    prop_assert_eq!(contents.of(attempt), &*positions);
                    let Some(found) = summary.find(File::open(&path)?, attempt)? else {
                        prop_assert!(positions.is_empty(), "{:?} is not found", attempt);
                        continue;
                    };
                    prop_assert!(summary.may_have(attempt.job));
                    prop_assert_eq!(&found.range(0..usize::MAX)?, &positions);
                    let some: Vec<RecordPosition> = positions.iter().take(range.1).skip(range.0).copied().collect();
                    prop_assert_eq!(found.range(range.0..range.1.max(range.0))?, some);
                    for streams in [Streams::Both, Streams::Only(Stream::Stdout), Streams::Only(Stream::Stderr)] {
                        let first = positions.iter().position(|position| position.ends(streams) > from).unwrap_or(positions.len());
                        prop_assert_eq!(found.first_after(streams, from)?, first);
                    }
                }
            }
            let bytes = fs::read(&path)?;
            fs::write(&path, &bytes[..torn.index(bytes.len())])?;
            prop_assert!(IndexSummary::read(&path, end).is_none(), "a torn index was accepted");
            let mut earlier = bytes.clone();
            earlier[..MAGIC.len()].copy_from_slice(&MAGIC_WITHOUT_TIMES);
            fs::write(&path, &earlier)?;
            prop_assert!(IndexSummary::read(&path, end).is_some(), "an index of version 2 was refused");
            prop_assert!(IndexSummary::read(&path, end + 1).is_none(), "an index without the last record was accepted");
            let (at, bit) = (damaged.index(bytes.len()), 1 << (torn.index(8)));
            let mut flipped = bytes;
            flipped[at] ^= bit;
            fs::write(&path, &flipped)?;
            // One bit makes version 2 of it, which does not reach the end of this segment.
            prop_assert!(IndexSummary::read(&path, end + 1).is_none(), "an index with a flipped bit was accepted");
        }
    }
}
