//! Reading an attempt's output: from any position, in pages, and from the end by lines.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;

use super::admit::{self, Tail};
use super::record::{self, HEADER_BYTES, Kind, RecordPosition};
use super::segments::SegmentPart;
use super::{LogsError, Page, Piece, PieceData, Streams};

/// See [`super::Logs::read`].
pub(super) fn page(
    parts: &[SegmentPart],
    streams: Streams,
    from: u64,
    max_bytes: usize,
) -> Result<Page, LogsError> {
    let mut page = Draft { streams, pieces: Vec::new(), next: from, left: max_bytes.max(1) as u64 };
    for part in parts {
        part.fill(&mut page).map_err(|source| unreadable(part, source))?;
        if page.left == 0 {
            break;
        }
    }
    Ok(Page { pieces: page.pieces, next: page.next })
}

/// See [`super::Logs::tail`].
pub(super) fn tail(parts: &[SegmentPart], streams: Streams, lines: u64) -> Result<u64, LogsError> {
    let mut tail: Option<Tail> = None;
    for part in parts.iter().rev() {
        let mut end = part.count();
        while end > 0 {
            let begin = end.saturating_sub(WINDOW);
            let positions = part.range(begin..end).map_err(|source| unreadable(part, source))?;
            for position in positions.iter().rev().filter(|position| position.is_of(streams)) {
                let tail = tail.get_or_insert_with(|| Tail::new(position.ends(streams), lines));
                let data = part.read_one(position).map_err(|source| unreadable(part, source))?;
                if let Some(found) = tail.feed(position.begins(streams), &data) {
                    return Ok(found);
                }
            }
            end = begin;
        }
    }
    Ok(0)
}

struct Draft {
    streams: Streams,
    pieces: Vec<Piece>,
    next: u64,
    /// Bytes that still fit.
    left: u64,
}

impl Draft {
    fn put(&mut self, position: &RecordPosition, data: PieceData) {
        let begins = position.begins(self.streams);
        if begins > self.next {
            // Whole segments were deleted, and what they held with them.
            let missing = PieceData::Gap(begins - self.next);
            self.pieces.push(Piece { stream: position.stream, at: self.next, data: missing });
            self.next = begins;
        }
        let data = admit::without_first(data, self.next.saturating_sub(begins));
        self.left = self.left.saturating_sub(u64::from(position.payload).max(1));
        let at = self.next;
        self.next = at.saturating_add(data.len());
        self.pieces.push(Piece { stream: position.stream, at, data });
    }
}

impl SegmentPart {
    fn fill(&self, page: &mut Draft) -> io::Result<()> {
        let mut next = self.first_behind(page.streams, page.next)?;
        while page.left > 0 && next < self.count() {
            let positions = self.range(next..next + WINDOW)?;
            next += positions.len();
            let mut wanted: Vec<RecordPosition> = Vec::with_capacity(positions.len());
            let mut left = page.left;
            for position in
                positions.into_iter().filter(|position| position.is_of(page.streams) && position.covers > 0)
            {
                if left == 0 {
                    break;
                }
                left = left.saturating_sub(u64::from(position.payload).max(1));
                wanted.push(position);
            }
            for (position, data) in wanted.iter().zip(self.read_all(&wanted)?) {
                page.put(position, data);
            }
        }
        Ok(())
    }

    /// The contents of these records: by one read if they are close together.
    fn read_all(&self, positions: &[RecordPosition]) -> io::Result<Vec<PieceData>> {
        let (Some(first), Some(last)) = (positions.first(), positions.last()) else { return Ok(Vec::new()) };
        let span = last.end() - u64::from(first.at);
        let needed: u64 =
            positions.iter().map(|position| u64::from(position.payload) + HEADER_BYTES as u64).sum();
        if span > 2 * needed + CLOSE_BYTES {
            return positions.iter().map(|position| self.read_one(position)).collect();
        }
        let bytes = read_at(&self.segment, u64::from(first.at), span)?;
        let of = |position: &RecordPosition| {
            let begin = (position.at - first.at) as usize;
            bytes.slice(begin..begin + HEADER_BYTES + position.payload as usize)
        };
        Ok(positions.iter().map(|position| self.verify(position, of(position))).collect())
    }

    fn read_one(&self, position: &RecordPosition) -> io::Result<PieceData> {
        let bytes = read_at(&self.segment, u64::from(position.at), position.end() - u64::from(position.at))?;
        Ok(self.verify(position, bytes))
    }

    /// Checks a record; damaged bytes are returned as a gap.
    fn verify(&self, position: &RecordPosition, record: Bytes) -> PieceData {
        if !record::decode(&record, position.at).is_some_and(|(_, read, _)| read == *position) {
            tracing::error!(segment = self.number, at = position.at, "a damaged record of output");
            return PieceData::Gap(position.covers);
        }
        match position.kind {
            Kind::Bytes => PieceData::Bytes(record.slice(HEADER_BYTES..)),
            Kind::Replayed => PieceData::Replayed(record.slice(HEADER_BYTES..)),
            Kind::Gap => PieceData::Gap(position.covers),
        }
    }
}

fn read_at(file: &File, at: u64, length: u64) -> io::Result<Bytes> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, at)?;
    Ok(Bytes::from(bytes))
}

fn unreadable(part: &SegmentPart, source: io::Error) -> LogsError {
    LogsError::Io { what: format!("cannot read log segment {}", part.number), source }
}

/// Records looked at at a time.
const WINDOW: usize = 512;

/// Reading this much too much is cheaper than reading twice.
const CLOSE_BYTES: u64 = 64 << 10;
