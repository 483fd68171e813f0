//! Reading an attempt's output: from any position, in pages, and from the end by lines.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;

use super::admit::{self, Tail};
use super::record::{self, HEADER_BYTES, Kind, Place};
use super::shelf::Part;
use super::{LogsError, Page, Piece, PieceData, Which};

/// See [`super::Logs::read`].
pub(super) fn page(parts: &[Part], which: Which, from: u64, max_bytes: usize) -> Result<Page, LogsError> {
    let mut page = Draft { which, pieces: Vec::new(), next: from, left: max_bytes.max(1) as u64 };
    for part in parts {
        part.fill(&mut page).map_err(|source| unreadable(part, source))?;
        if page.left == 0 {
            break;
        }
    }
    Ok(Page { pieces: page.pieces, next: page.next })
}

/// See [`super::Logs::tail`].
pub(super) fn tail(parts: &[Part], which: Which, lines: u64) -> Result<u64, LogsError> {
    let mut tail: Option<Tail> = None;
    for part in parts.iter().rev() {
        let mut end = part.count();
        while end > 0 {
            let begin = end.saturating_sub(WINDOW);
            let places = part.some(begin..end).map_err(|source| unreadable(part, source))?;
            for place in places.iter().rev().filter(|place| place.is_of(which)) {
                let tail = tail.get_or_insert_with(|| Tail::new(place.ends(which), lines));
                let data = part.one(place).map_err(|source| unreadable(part, source))?;
                if let Some(found) = tail.feed(place.begins(which), &data) {
                    return Ok(found);
                }
            }
            end = begin;
        }
    }
    Ok(0)
}

struct Draft {
    which: Which,
    pieces: Vec<Piece>,
    next: u64,
    /// Bytes that still fit.
    left: u64,
}

impl Draft {
    fn put(&mut self, place: &Place, data: PieceData) {
        let begins = place.begins(self.which);
        if begins > self.next {
            // Whole segments were deleted, and what they held with them.
            let missing = PieceData::Gap(begins - self.next);
            self.pieces.push(Piece { stream: place.stream, at: self.next, data: missing });
            self.next = begins;
        }
        let data = admit::without_first(data, self.next.saturating_sub(begins));
        self.left = self.left.saturating_sub(u64::from(place.payload).max(1));
        let at = self.next;
        self.next = at.saturating_add(data.len());
        self.pieces.push(Piece { stream: place.stream, at, data });
    }
}

impl Part {
    fn fill(&self, page: &mut Draft) -> io::Result<()> {
        let mut next = self.first_behind(page.which, page.next)?;
        while page.left > 0 && next < self.count() {
            let places = self.some(next..next + WINDOW)?;
            next += places.len();
            let mut wanted: Vec<Place> = Vec::with_capacity(places.len());
            let mut left = page.left;
            for place in places.into_iter().filter(|place| place.is_of(page.which) && place.covers > 0) {
                if left == 0 {
                    break;
                }
                left = left.saturating_sub(u64::from(place.payload).max(1));
                wanted.push(place);
            }
            for (place, data) in wanted.iter().zip(self.many(&wanted)?) {
                page.put(place, data);
            }
        }
        Ok(())
    }

    /// The contents of these records: by one read if they are close together.
    fn many(&self, places: &[Place]) -> io::Result<Vec<PieceData>> {
        let (Some(first), Some(last)) = (places.first(), places.last()) else { return Ok(Vec::new()) };
        let span = last.end() - u64::from(first.at);
        let needed: u64 = places.iter().map(|place| u64::from(place.payload) + HEADER_BYTES as u64).sum();
        if span > 2 * needed + CLOSE_BYTES {
            return places.iter().map(|place| self.one(place)).collect();
        }
        let bytes = read_at(&self.segment, u64::from(first.at), span)?;
        let of = |place: &Place| {
            let begin = (place.at - first.at) as usize;
            bytes.slice(begin..begin + HEADER_BYTES + place.payload as usize)
        };
        Ok(places.iter().map(|place| self.check(place, of(place))).collect())
    }

    fn one(&self, place: &Place) -> io::Result<PieceData> {
        let bytes = read_at(&self.segment, u64::from(place.at), place.end() - u64::from(place.at))?;
        Ok(self.check(place, bytes))
    }

    /// What the disk has damaged is shown as missing.
    fn check(&self, place: &Place, record: Bytes) -> PieceData {
        if !record::decode(&record, place.at).is_some_and(|(_, read, _)| read == *place) {
            tracing::error!(segment = self.number, at = place.at, "a damaged record of output");
            return PieceData::Gap(place.covers);
        }
        match place.kind {
            Kind::Bytes => PieceData::Bytes(record.slice(HEADER_BYTES..)),
            Kind::Replayed => PieceData::Replayed(record.slice(HEADER_BYTES..)),
            Kind::Gap => PieceData::Gap(place.covers),
        }
    }
}

fn read_at(file: &File, at: u64, length: u64) -> io::Result<Bytes> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, at)?;
    Ok(Bytes::from(bytes))
}

fn unreadable(part: &Part, source: io::Error) -> LogsError {
    LogsError::Io { what: format!("cannot read log segment {}", part.number), source }
}

/// Records looked at at a time.
const WINDOW: usize = 512;

/// Reading this much too much is cheaper than reading twice.
const CLOSE_BYTES: u64 = 64 << 10;
