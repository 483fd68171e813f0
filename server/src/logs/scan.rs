//! What a segment holds, read from end to end: its whole records, also those behind a damaged one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use protocol::wire::FRAME_BYTES_MAX;

use super::Attempt;
use super::index::Contents;
use super::record::{self, HEADER_BYTES, Place};

/// What was found in a segment.
pub(super) struct Scan {
    /// The records in front of the first byte that belongs to none.
    pub(super) contents: Contents,
    /// Where they end.
    pub(super) end: u64,
    /// Whole records behind that, in order.
    pub(super) behind: Vec<(Attempt, Place)>,
    /// Whether there may be more of them: looking for them took too long.
    is_given_up: bool,
    /// The size of the segment.
    pub(super) bytes: u64,
}

impl Scan {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        // Segments are bounded: one is read in whole.
        let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, 0)?;
        let (mut contents, mut behind) = (Contents::default(), Vec::new());
        let end = whole_from(&bytes, 0, |attempt, place| contents.add(attempt, place));
        let (mut at, mut effort) = (end, EFFORT_MAX);
        while let Some(next) = next_whole(&bytes, at, &mut effort) {
            at = whole_from(&bytes, next, |attempt, place| behind.push((attempt, place)));
        }
        Ok(Self { contents, end: end as u64, behind, is_given_up: effort == 0, bytes: bytes.len() as u64 })
    }

    /// Whether something is there behind the damage. If not, what follows the whole records was half written.
    pub(super) const fn is_damaged_inside(&self) -> bool {
        self.is_given_up || !self.behind.is_empty()
    }

    /// All whole records, wherever they are.
    pub(super) fn all(mut self) -> Contents {
        for (attempt, place) in self.behind {
            self.contents.add(attempt, place);
        }
        self.contents
    }
}

/// Tells of the records that follow one another from here on, and where the last one ends.
fn whole_from(bytes: &[u8], mut at: usize, mut tell: impl FnMut(Attempt, Place)) -> usize {
    while let Some((attempt, place)) = whole(bytes, at) {
        tell(attempt, place);
        at = usize::try_from(place.end()).unwrap_or(usize::MAX);
    }
    at
}

fn whole(bytes: &[u8], at: usize) -> Option<(Attempt, Place)> {
    let start = u32::try_from(at).ok()?;
    record::decode(bytes.get(at..)?, start).map(|(attempt, place, _)| (attempt, place))
}

/// Where the next whole record begins, behind the one at `at` that is not: where that one would end, if its length can be believed,
/// or else wherever there is one.
fn next_whole(bytes: &[u8], at: usize, effort: &mut usize) -> Option<usize> {
    let length = payload_length(bytes, at)?;
    let behind = at.saturating_add(HEADER_BYTES).saturating_add(length);
    if whole(bytes, behind).is_some() {
        return Some(behind);
    }
    let plausible = |start: usize| {
        let length = payload_length(bytes, start).filter(|length| *length <= FRAME_BYTES_MAX)?;
        record::meaning(bytes[start + 40]).map(|_| length)
    };
    // The last one was half written. What is in it are a program's own words, even where they look like records.
    if plausible(at).is_some() && behind > bytes.len() {
        return None;
    }
    (at + 1..bytes.len()).find(|start| {
        let length = plausible(*start).filter(|length| start + HEADER_BYTES + length <= bytes.len());
        let Some(length) = length.filter(|_| *effort > 0) else {
            return false;
        };
        *effort = effort.saturating_sub(length);
        whole(bytes, *start).is_some()
    })
}

/// What the header at `at` says of its payload; nothing if no header fits there.
fn payload_length(bytes: &[u8], at: usize) -> Option<usize> {
    let header = bytes.get(at..)?.get(..HEADER_BYTES)?;
    let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    usize::try_from(length).ok()
}

/// So many bytes of payload are checked in vain while a whole record is looked for: far more than chance makes of a segment. A container
/// may have written what looks like the beginnings of records.
const EFFORT_MAX: usize = 64 << 20;
