//! Reading an attempt's output: from any position, in pages, and from the end by lines.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use protocol::Timestamp;

use super::admit::{self, Tail};
use super::attempt_segments::{AttemptSegments, SegmentPart};
use super::error::LogsError;
use super::output::{Page, Piece, PieceData, Streams};
use super::record::{self, Kind, RecordPosition};

/// See [`super::Logs::read`].
pub(super) fn page(
    parts: impl Iterator<Item = Result<SegmentPart, LogsError>>,
    streams: Streams,
    from: u64,
    max_bytes: usize,
) -> Result<Page, LogsError> {
    let mut page = Draft { streams, pieces: Vec::new(), next: from, left: max_bytes.max(1) as u64 };
    for part in parts {
        let part = part?;
        part.fill(&mut page).map_err(|source| part.unreadable(source))?;
        if page.left == 0 {
            break;
        }
    }
    Ok(Page { pieces: page.pieces, next: page.next })
}

/// See [`super::Logs::tail`].
pub(super) fn tail(segments: AttemptSegments, streams: Streams, lines: u64) -> Result<u64, LogsError> {
    let mut tail: Option<Tail> = None;
    find_from_the_end(segments, streams, |part, position| {
        let tail = tail.get_or_insert_with(|| Tail::new(position.ends(streams), lines));
        let (_, data) = part.read_one(position)?;
        Ok(tail.feed(position.begins(streams), &data))
    })
}

/// See [`super::Logs::since`].
pub(super) fn since(segments: AttemptSegments, streams: Streams, since: Timestamp) -> Result<u64, LogsError> {
    find_from_the_end(segments, streams, |part, position| {
        Ok(part.is_older(position, since)?.then(|| position.ends(streams)))
    })
}

/// Looks at the records of these streams, the newest first, until one of them tells a position; 0 if none does.
fn find_from_the_end(
    segments: AttemptSegments,
    streams: Streams,
    mut look: impl FnMut(&SegmentPart, &RecordPosition) -> io::Result<Option<u64>>,
) -> Result<u64, LogsError> {
    for part in segments.newest_first() {
        let part = part?;
        let mut end = part.count();
        while end > 0 {
            let begin = end.saturating_sub(WINDOW);
            let positions = part.range(begin..end).map_err(|source| part.unreadable(source))?;
            for position in positions.iter().rev().filter(|position| position.is_of(streams)) {
                if let Some(found) = look(&part, position).map_err(|source| part.unreadable(source))? {
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
    fn put(&mut self, position: &RecordPosition, received_at: Option<Timestamp>, data: PieceData) {
        let stream = position.code.stream;
        let begins = position.begins(self.streams);
        if begins > self.next {
            // Whole segments were deleted, and what they held with them.
            let missing = PieceData::Gap(begins - self.next);
            let stream_end = position.begins(Streams::Only(stream));
            self.pieces.push(Piece { stream, at: self.next, stream_end, received_at: None, data: missing });
            self.next = begins;
        }
        let data = admit::without_first(data, self.next.saturating_sub(begins));
        self.left = self.left.saturating_sub(u64::from(position.payload).max(1));
        let at = self.next;
        self.next = at.saturating_add(data.len());
        let stream_end = position.ends(Streams::Only(stream));
        self.pieces.push(Piece { stream, at, stream_end, received_at, data });
    }
}

impl SegmentPart {
    fn fill(&self, page: &mut Draft) -> io::Result<()> {
        let mut next = self.first_after(page.streams, page.next)?;
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
            for (position, (received_at, data)) in wanted.iter().zip(self.read_all(&wanted)?) {
                page.put(position, received_at, data);
            }
        }
        Ok(())
    }

    /// The contents of these records, and when they were received: by one read if they are close together.
    fn read_all(&self, positions: &[RecordPosition]) -> io::Result<Vec<(Option<Timestamp>, PieceData)>> {
        let (Some(first), Some(last)) = (positions.first(), positions.last()) else { return Ok(Vec::new()) };
        let span = last.end() - u64::from(first.at);
        let needed: u64 = positions.iter().map(RecordPosition::bytes).sum();
        if span > 2 * needed + CLOSE_BYTES {
            return positions.iter().map(|position| self.read_one(position)).collect();
        }
        let bytes = read_at(&self.segment, u64::from(first.at), span)?;
        let of = |position: &RecordPosition| {
            let begin = (position.at - first.at) as usize;
            bytes.slice(begin..begin + position.code.header_bytes() + position.payload as usize)
        };
        Ok(positions.iter().map(|position| self.verify(position, of(position))).collect())
    }

    fn read_one(&self, position: &RecordPosition) -> io::Result<(Option<Timestamp>, PieceData)> {
        let bytes = read_at(&self.segment, u64::from(position.at), position.bytes())?;
        Ok(self.verify(position, bytes))
    }

    /// True if a record was received before this time, or is of an earlier version and has none. A damaged record tells nothing.
    fn is_older(&self, position: &RecordPosition, since: Timestamp) -> io::Result<bool> {
        if !position.code.has_time {
            return Ok(true);
        }
        let at = u64::from(position.at);
        let header = read_at(&self.segment, at, position.code.header_bytes() as u64)?;
        if record::time_of(&header).is_none_or(|at| at >= since) {
            return Ok(false);
        }
        // Only the whole record shows that its header is right.
        let (received_at, _) = self.read_one(position)?;
        Ok(received_at.is_some_and(|at| at < since))
    }

    /// Checks a record; damaged bytes are returned as a gap.
    fn verify(&self, position: &RecordPosition, record: Bytes) -> (Option<Timestamp>, PieceData) {
        let read = record::decode(&record, position.at).filter(|read| read.position == *position);
        let Some(received_at) = read.map(|read| read.received_at) else {
            tracing::error!(segment = self.number, at = position.at, "a damaged record of output");
            return (None, PieceData::Gap(position.covers));
        };
        let data = match position.code.kind {
            Kind::Bytes => PieceData::Bytes(record.slice(position.code.header_bytes()..)),
            Kind::Replayed => PieceData::Replayed(record.slice(position.code.header_bytes()..)),
            Kind::Gap => PieceData::Gap(position.covers),
            Kind::Cut => PieceData::Cut(position.covers),
        };
        (received_at, data)
    }
}

fn read_at(file: &File, at: u64, length: u64) -> io::Result<Bytes> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, at)?;
    Ok(Bytes::from(bytes))
}

/// Records looked at at a time.
const WINDOW: usize = 512;

/// Reading this much too much is cheaper than reading twice.
const CLOSE_BYTES: u64 = 64 << 10;
