//! Reads a segment from end to end: all whole records, also those after a damaged one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use protocol::wire::FRAME_BYTES_MAX;

use super::index::SegmentIndex;
use super::output::AttemptKey;
use super::record::{self, RecordCode, RecordPosition, SHORT_HEADER_BYTES, TIMED_HEADER_BYTES};

/// The content of a segment.
pub(super) struct Scan {
    /// The records in front of the first byte that belongs to none.
    pub(super) contents: SegmentIndex,
    /// The end of the last of them.
    pub(super) end: u64,
    /// Whole records after that, in order.
    pub(super) after_damage: Vec<(AttemptKey, RecordPosition)>,
    /// Damaged records between whole ones, or at the end, by what their headers say. The damage may be in these.
    damaged: Vec<(AttemptKey, RecordPosition)>,
    /// True if there may be more of them: the search was stopped at its limit.
    is_incomplete: bool,
    /// The size of the segment.
    pub(super) bytes: u64,
}

impl Scan {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        // Segments are bounded: one is read in whole.
        let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, 0)?;
        let (mut contents, mut after_damage, mut damaged) = (SegmentIndex::default(), Vec::new(), Vec::new());
        let end = scan_records(&bytes, 0, |attempt, position| contents.add(attempt, position));
        let (mut at, mut budget) = (end, SEARCH_BYTES_MAX);
        while let Some(next) = find_next_record(&bytes, at, &mut budget) {
            damaged.extend(damaged_record(&bytes, at, next));
            at = scan_records(&bytes, next, |attempt, position| after_damage.push((attempt, position)));
        }
        damaged.extend(damaged_record(&bytes, at, bytes.len()));
        let (is_incomplete, bytes) = (budget == 0, bytes.len() as u64);
        Ok(Self { contents, end: end as u64, after_damage, damaged, is_incomplete, bytes })
    }

    /// True if the last record has its full length, but a wrong checksum.
    pub(super) fn ends_with_damage(&self) -> bool {
        self.damaged.last().is_some_and(|(_, position)| position.end() == self.bytes)
    }

    /// True if there are records after the damage. If not, the bytes after the whole records are a half-written record.
    pub(super) const fn is_damaged_inside(&self) -> bool {
        self.is_incomplete || !self.after_damage.is_empty()
    }

    /// A whole record has the time of its receipt.
    pub(super) fn has_times(&self) -> bool {
        let positions = self.contents.all().map(|(_, position)| position);
        positions.chain(self.after_damage.iter().map(|(_, position)| position)).any(|it| it.code.has_time)
    }

    /// All whole records, wherever they are.
    pub(super) fn whole(self) -> SegmentIndex {
        Self { damaged: Vec::new(), ..self }.all()
    }

    /// All whole records, wherever they are, and the damaged ones that go on where their attempt stood. A header that was damaged itself
    /// hardly ever does so.
    pub(super) fn all(mut self) -> SegmentIndex {
        let whole = self.after_damage.into_iter().map(|record| (record, true));
        let mut all: Vec<_> = whole.chain(self.damaged.into_iter().map(|record| (record, false))).collect();
        all.sort_by_key(|((_, position), _)| position.at);
        for ((attempt, position), is_whole) in all {
            let goes_on =
                self.contents.of(attempt).last().is_some_and(|last| last.after() == position.before);
            if is_whole || goes_on {
                self.contents.add(attempt, position);
            }
        }
        self.contents
    }
}

/// Visits consecutive whole records, and returns the end of the last one.
fn scan_records(bytes: &[u8], mut at: usize, mut visit: impl FnMut(AttemptKey, RecordPosition)) -> usize {
    while let Some((attempt, position)) = decode_at(bytes, at) {
        visit(attempt, position);
        at = usize::try_from(position.end()).unwrap_or(usize::MAX);
    }
    at
}

fn decode_at(bytes: &[u8], at: usize) -> Option<(AttemptKey, RecordPosition)> {
    let start = u32::try_from(at).ok()?;
    record::decode(bytes.get(at..)?, start).map(|record| (record.attempt, record.position))
}

/// Reads the header of a damaged record between two offsets; none if the record does not fill the space between them. The length of a gap stands in its
/// payload, which may be what is damaged.
fn damaged_record(bytes: &[u8], at: usize, end: usize) -> Option<(AttemptKey, RecordPosition)> {
    let record = record::decode_unchecked(bytes.get(at..end)?, u32::try_from(at).ok()?)?;
    let is_believed = record.position.end() == end as u64 && !record.position.code.kind.is_missing();
    is_believed.then_some((record.attempt, record.position))
}

/// The beginning of the next whole record after a damaged one at `at`: the end of that one, if its length is plausible, or else the next
/// offset at which a whole record can be decoded.
fn find_next_record(bytes: &[u8], at: usize, budget: &mut usize) -> Option<usize> {
    let length = payload_length(bytes, at)?;
    let code = RecordCode::parse(bytes[at + CODE_AT]);
    // The damage may be in the code, which says how long the header is.
    let headers = [code.map(RecordCode::header_bytes), Some(SHORT_HEADER_BYTES), Some(TIMED_HEADER_BYTES)];
    let mut ends =
        headers.into_iter().flatten().map(|header| at.saturating_add(header).saturating_add(length));
    if let Some(end) = ends.find(|end| decode_at(bytes, *end).is_some()) {
        return Some(end);
    }
    // The length of a whole record that may begin there.
    let plausible = |start: usize| {
        let length = payload_length(bytes, start).filter(|length| *length <= FRAME_BYTES_MAX)?;
        RecordCode::parse(bytes[start + CODE_AT]).map(|code| code.header_bytes() + length)
    };
    // The last one was half written. What is in it are a program's own words, even where they look like records.
    if plausible(at).is_some_and(|record| at + record > bytes.len()) {
        return None;
    }
    (at + 1..bytes.len()).find(|start| {
        let record = plausible(*start).filter(|record| start + record <= bytes.len());
        let Some(record) = record.filter(|_| *budget > 0) else {
            return false;
        };
        *budget = budget.saturating_sub(record);
        decode_at(bytes, *start).is_some()
    })
}

/// The payload length in the header at `at`; none if no header fits there.
fn payload_length(bytes: &[u8], at: usize) -> Option<usize> {
    let header = bytes.get(at..)?.get(..SHORT_HEADER_BYTES)?;
    let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    usize::try_from(length).ok()
}

/// The code's place in a record.
const CODE_AT: usize = 40;

/// The most bytes that are checked in vain while a whole record is looked for: far more than chance makes of a segment. A container
/// may have written what looks like the beginnings of records.
const SEARCH_BYTES_MAX: usize = 64 << 20;
