//! Arithmetic of offsets: the part of a chunk that is new, and lines counted from the end. No files.

use std::collections::HashMap;

use bytes::Bytes;
use protocol::Token;
use protocol::order::OutputMark;
use protocol::report::{Chunk, ChunkData, OutputLengths, Stream};

use super::output::PieceData;
use super::progress::{Progress, records_max};

/// How long a stream is.
pub(super) const fn length(lengths: &OutputLengths, stream: Stream) -> u64 {
    match stream {
        Stream::Stdout => lengths.stdout,
        Stream::Stderr => lengths.stderr,
    }
}

const fn length_mut(lengths: &mut OutputLengths, stream: Stream) -> &mut u64 {
    match stream {
        Stream::Stdout => &mut lengths.stdout,
        Stream::Stderr => &mut lengths.stderr,
    }
}

/// Takes in a chunk of an attempt that may store `bytes_max` bytes: the pieces that are to be stored. See [`admit_all`]. The first bytes
/// above the limit become a cut, and everything after that is dropped.
pub(super) fn admit(progress: &mut Progress, chunk: Chunk, bytes_max: u64) -> Vec<PieceData> {
    let mut pieces = Vec::with_capacity(1);
    if progress.is_cut {
        return pieces;
    }
    let mut lengths = progress.lengths;
    for (_, data) in admit_all(&mut lengths, chunk) {
        let left = progress.left(bytes_max);
        let (kept, cut) = match data {
            PieceData::Bytes(mut bytes) if bytes.len() > left => {
                let cut = bytes.split_off(left);
                (PieceData::Bytes(bytes), cut.len() as u64)
            }
            PieceData::Replayed(mut bytes) if bytes.len() > left => {
                let cut = bytes.split_off(left);
                (PieceData::Replayed(bytes), cut.len() as u64)
            }
            PieceData::Gap(bytes) if progress.records >= records_max(bytes_max) => (PieceData::Gap(0), bytes),
            data => (data, 0),
        };
        let cut = (cut > 0).then_some(PieceData::Cut(cut));
        for data in [Some(kept).filter(|kept| !kept.is_empty()), cut].into_iter().flatten() {
            progress.count(&data);
            pieces.push(data);
        }
        if progress.is_cut {
            break;
        }
    }
    progress.lengths = lengths;
    pieces
}

/// Takes in a chunk: what is to be stored, each with its offset. Nothing if all of it is there; a gap first if bytes are missing
/// in front of it. `lengths` grows by what is returned.
fn admit_all(lengths: &mut OutputLengths, chunk: Chunk) -> impl Iterator<Item = (u64, PieceData)> {
    let other = lengths.stdout.wrapping_add(lengths.stderr).wrapping_sub(length(lengths, chunk.stream));
    let length = length_mut(lengths, chunk.stream);
    let known = *length;
    let end = chunk.end();
    let data = match chunk.data {
        ChunkData::Bytes(bytes) => PieceData::Bytes(Bytes::from(bytes)),
        ChunkData::Replayed(bytes) => PieceData::Replayed(Bytes::from(bytes)),
        ChunkData::Gap(bytes) => PieceData::Gap(bytes),
    };
    // Lengths of both streams together must fit into a u64; a chunk beyond that is dropped.
    let fits = chunk.offset.checked_add(data.len()).and_then(|end| end.checked_add(other)).is_some();
    let hole =
        (fits && end > known && chunk.offset > known).then(|| (known, PieceData::Gap(chunk.offset - known)));
    let news = (fits && end > known && !data.is_empty())
        .then(|| (known.max(chunk.offset), without_first(data, known.saturating_sub(chunk.offset))));
    if news.is_some() {
        *length = end;
    }
    hole.into_iter().chain(news)
}

/// Cuts off the first `bytes` bytes.
pub(super) fn without_first(data: PieceData, bytes: u64) -> PieceData {
    let cut =
        |from: Bytes| from.slice(usize::try_from(bytes).map_or(from.len(), |bytes| bytes.min(from.len()))..);
    match data {
        PieceData::Bytes(from) => PieceData::Bytes(cut(from)),
        PieceData::Replayed(from) => PieceData::Replayed(cut(from)),
        PieceData::Gap(from) => PieceData::Gap(from.saturating_sub(bytes)),
        PieceData::Cut(from) => PieceData::Cut(from.saturating_sub(bytes)),
    }
}

/// Looks for the beginning of the last N lines. A newline at the very end ends the last line and begins none.
#[derive(Debug)]
pub(super) struct Tail {
    end: u64,
    left: u64,
}

impl Tail {
    /// Of output that ends there.
    pub(super) const fn new(end: u64, lines: u64) -> Self {
        Self { end, left: lines }
    }

    /// Takes the piece before the last one fed. Answers as soon as the lines are found.
    pub(super) fn feed(&mut self, at: u64, data: &PieceData) -> Option<u64> {
        if self.left == 0 {
            return Some(self.end);
        }
        let (PieceData::Bytes(bytes) | PieceData::Replayed(bytes)) = data else { return None };
        for (index, _) in bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let begins = at + index as u64 + 1;
            self.left -= u64::from(begins != self.end);
            if self.left == 0 {
                return Some(begins);
            }
        }
        None
    }
}

/// The furthest mark of each (attempt, stream), in the order of their first appearance.
#[derive(Debug, Default)]
pub(super) struct Marks {
    marks: Vec<OutputMark>,
    positions: HashMap<(Token, Stream), usize>,
}

impl Marks {
    pub(super) fn put(&mut self, mark: OutputMark) {
        let next = self.marks.len();
        let position = *self.positions.entry((mark.token, mark.stream)).or_insert(next);
        match self.marks.get_mut(position) {
            Some(known) => known.offset = known.offset.max(mark.offset),
            None => self.marks.push(mark),
        }
    }

    pub(super) fn into_vec(self) -> Vec<OutputMark> {
        self.marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(offset: u64, data: ChunkData) -> Chunk {
        Chunk { token: Token::default(), stream: Stream::Stdout, offset, data }
    }

    fn stored(lengths: &mut OutputLengths, offset: u64, text: &str) -> Vec<(u64, PieceData)> {
        admit_all(lengths, chunk(offset, ChunkData::Bytes(text.into()))).collect()
    }

    #[test]
    fn stored_bytes_are_skipped_and_an_overlap_is_trimmed() {
        let mut lengths = OutputLengths::default();
        assert_eq!(stored(&mut lengths, 0, "abcd"), [(0, PieceData::Bytes("abcd".into()))]);
        assert_eq!(stored(&mut lengths, 0, "abcd"), []);
        assert_eq!(stored(&mut lengths, 2, "cdef"), [(4, PieceData::Bytes("ef".into()))]);
        assert_eq!(lengths, OutputLengths { stdout: 6, stderr: 0 });
    }

    #[test]
    fn a_hole_becomes_a_gap_in_front() {
        let mut lengths = OutputLengths::default();
        assert_eq!(stored(&mut lengths, 3, "d"), [(0, PieceData::Gap(3)), (3, PieceData::Bytes("d".into()))]);
        assert_eq!(stored(&mut lengths, 0, "abc"), [], "what comes after its gap comes too late");
    }

    #[test]
    fn offsets_that_run_over_are_not_believed() {
        let mut lengths = OutputLengths { stdout: 0, stderr: 3 };
        assert_eq!(stored(&mut lengths, u64::MAX, "ab"), []);
        assert_eq!(stored(&mut lengths, u64::MAX - 3, "ab"), [], "both streams together run over");
        assert_eq!(admit_all(&mut lengths, chunk(5, ChunkData::Gap(u64::MAX))).count(), 0);
        assert_eq!(lengths, OutputLengths { stdout: 0, stderr: 3 });
    }

    #[test]
    fn bytes_above_the_limit_are_cut_once_and_then_dropped() {
        let mut progress = Progress::default();
        let mut put = |offset, data| admit(&mut progress, chunk(offset, data), 8);
        assert_eq!(put(0, ChunkData::Bytes("abcd".into())), [PieceData::Bytes("abcd".into())]);
        assert_eq!(put(0, ChunkData::Bytes("abcd".into())), [], "what is here counts once");
        let gap = [PieceData::Gap(100)];
        assert_eq!(put(4, ChunkData::Gap(100)), gap, "a gap takes nothing of the limit");
        assert_eq!(put(104, ChunkData::Bytes("efgh".into())), [PieceData::Bytes("efgh".into())]);
        assert_eq!(put(108, ChunkData::Bytes("ij".into())), [PieceData::Cut(2)]);
        assert_eq!(put(110, ChunkData::Bytes("kl".into())), []);
        assert_eq!(put(110, ChunkData::Gap(9)), []);
        assert_eq!(progress.lengths.stdout, 110);

        let mut progress = Progress { stored: 5, ..Progress::default() };
        let kept = admit(&mut progress, chunk(0, ChunkData::Replayed("abcd".into())), 8);
        assert_eq!(kept, [PieceData::Replayed("abc".into()), PieceData::Cut(1)]);
        assert!(progress.is_cut);
    }

    #[test]
    fn tiny_records_and_gaps_without_end_are_cut() {
        for data in [ChunkData::Bytes("x".into()), ChunkData::Gap(1)] {
            let mut progress = Progress::default();
            let bytes_max = 4 << 20;
            let mut records = 0;
            for offset in 0..2 << 20 {
                records += admit(&mut progress, chunk(offset, data.clone()), bytes_max).len() as u64;
            }
            assert_eq!((progress.is_cut, records), (true, records_max(bytes_max) + 1));
        }
    }

    #[test]
    fn a_tail_counts_lines_from_the_end() {
        let begin_of_last = |lines, pieces: &[&str]| {
            let total: usize = pieces.iter().map(|piece| piece.len()).sum();
            let mut at = total as u64;
            let mut tail = Tail::new(at, lines);
            pieces.iter().rev().find_map(|piece| {
                at -= piece.len() as u64;
                tail.feed(at, &PieceData::Bytes(Bytes::copy_from_slice(piece.as_bytes())))
            })
        };
        let three = ["one\ntw", "o\nthree\n"];
        assert_eq!(begin_of_last(0, &three), Some(14));
        assert_eq!(begin_of_last(1, &three), Some(8));
        assert_eq!(begin_of_last(2, &three), Some(4));
        assert_eq!(begin_of_last(3, &three), None, "there are no more than three");
        assert_eq!(begin_of_last(1, &["one\ntwo"]), Some(4), "the last line is not finished");
    }

    #[test]
    fn marks_tell_the_furthest_offset_of_each_stream() {
        let mark = |stream, offset| OutputMark { token: Token::default(), stream, offset };
        let mut marks = Marks::default();
        for it in [mark(Stream::Stdout, 1), mark(Stream::Stderr, 5), mark(Stream::Stdout, 9)] {
            marks.put(it);
        }
        assert_eq!(marks.into_vec(), [mark(Stream::Stdout, 9), mark(Stream::Stderr, 5)]);
    }
}
