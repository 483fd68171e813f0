//! What of a chunk is new: the arithmetic of offsets, without any file.

use bytes::Bytes;
use protocol::order::OutputMark;
use protocol::report::{Chunk, ChunkData, OutputLengths, Stream};

use super::{Piece, PieceData};

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

/// Takes in a chunk: what is to be stored, each with its offset. Nothing if all of it is there; a gap first if bytes are missing
/// in front of it. `lengths` grows by what is returned.
pub(super) fn admit(lengths: &mut OutputLengths, chunk: Chunk) -> impl Iterator<Item = (u64, PieceData)> {
    let length = length_mut(lengths, chunk.stream);
    let known = *length;
    let end = chunk.end();
    let data = match chunk.data {
        ChunkData::Bytes(bytes) => PieceData::Bytes(Bytes::from(bytes)),
        ChunkData::Replayed(bytes) => PieceData::Replayed(Bytes::from(bytes)),
        // An absurd gap ends where offsets end.
        ChunkData::Gap(_) => PieceData::Gap(end - chunk.offset),
    };
    // Bytes beyond the last possible offset have no place: only a liar sends them.
    let fits = chunk.offset.checked_add(data.len()).is_some();
    let hole =
        (fits && end > known && chunk.offset > known).then(|| (known, PieceData::Gap(chunk.offset - known)));
    let news = (fits && end > known && !data.is_empty())
        .then(|| (known.max(chunk.offset), without_first(data, known.saturating_sub(chunk.offset))));
    if news.is_some() {
        *length = end;
    }
    hole.into_iter().chain(news)
}

/// What is left after the first `bytes` bytes.
pub(super) fn without_first(data: PieceData, bytes: u64) -> PieceData {
    let cut =
        |from: Bytes| from.slice(usize::try_from(bytes).map_or(from.len(), |bytes| bytes.min(from.len()))..);
    match data {
        PieceData::Bytes(from) => PieceData::Bytes(cut(from)),
        PieceData::Replayed(from) => PieceData::Replayed(cut(from)),
        PieceData::Gap(from) => PieceData::Gap(from.saturating_sub(bytes)),
    }
}

/// Where the last `lines` lines of these pieces begin, if the pieces hold as many. A newline at the very end ends the last line
/// and begins none.
pub(super) fn tail_of(pieces: &[Piece], lines: u64) -> Option<u64> {
    let end = pieces.last().map(|piece| piece.at + piece.data.len())?;
    if lines == 0 {
        return Some(end);
    }
    let mut found = 0;
    for piece in pieces.iter().rev() {
        let (PieceData::Bytes(bytes) | PieceData::Replayed(bytes)) = &piece.data else {
            continue;
        };
        for (index, _) in bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let begins = piece.at + index as u64 + 1;
            found += u64::from(begins != end);
            if found == lines {
                return Some(begins);
            }
        }
    }
    None
}

/// The furthest mark of each (attempt, stream), in the order of their first appearance.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<OutputMark>);

impl Marks {
    pub(super) fn put(&mut self, mark: OutputMark) {
        match self.0.iter_mut().find(|known| known.token == mark.token && known.stream == mark.stream) {
            Some(known) => known.offset = mark.offset,
            None => self.0.push(mark),
        }
    }

    pub(super) fn as_slice(&self) -> &[OutputMark] {
        &self.0
    }

    pub(super) fn into_vec(self) -> Vec<OutputMark> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use protocol::Token;

    use super::*;

    fn chunk(offset: u64, data: ChunkData) -> Chunk {
        Chunk { token: Token::default(), stream: Stream::Stdout, offset, data }
    }

    fn stored(lengths: &mut OutputLengths, offset: u64, text: &str) -> Vec<(u64, PieceData)> {
        admit(lengths, chunk(offset, ChunkData::Bytes(text.into()))).collect()
    }

    #[test]
    fn what_is_there_is_skipped_and_an_overlap_is_trimmed() {
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
        let mut lengths = OutputLengths::default();
        assert_eq!(stored(&mut lengths, u64::MAX, "ab"), []);
        let gap = admit(&mut lengths, chunk(5, ChunkData::Gap(u64::MAX))).collect::<Vec<_>>();
        assert_eq!(gap, [(0, PieceData::Gap(5)), (5, PieceData::Gap(u64::MAX - 5))]);
    }

    #[test]
    fn a_tail_counts_lines_from_the_end() {
        let piece = |at, text: &str| Piece {
            stream: Stream::Stdout,
            at,
            data: PieceData::Bytes(Bytes::copy_from_slice(text.as_bytes())),
        };
        let pieces = [piece(0, "one\ntw"), piece(6, "o\nthree\n")];
        assert_eq!(tail_of(&pieces, 0), Some(14));
        assert_eq!(tail_of(&pieces, 1), Some(8));
        assert_eq!(tail_of(&pieces, 2), Some(4));
        assert_eq!(tail_of(&pieces, 3), None, "there are no more than three");
        let unfinished = [piece(0, "one\ntwo")];
        assert_eq!(tail_of(&unfinished, 1), Some(4));
    }
}
