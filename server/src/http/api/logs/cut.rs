//! Output that was cut at `log.max_bytes`, told apart from output that was lost.

use protocol::report::{OutputLengths, Stream, head_bytes, tail_bytes};

use super::reader::length;
use crate::logs::{Piece, PieceData, Streams};
use crate::store::AttemptRow;

/// The facts that tell a cut of the output of an attempt from a loss.
#[derive(Clone, Copy, Debug)]
pub(super) struct CutRule {
    /// `log.max_bytes` of the definition.
    bytes_max: u64,
    /// How much the attempt wrote, as its final report says.
    written: Option<OutputLengths>,
}

impl CutRule {
    /// The rule for an attempt with this limit; without its row, for one that has not ended.
    pub(super) fn new(bytes_max: u64, attempt: Option<&AttemptRow>) -> Self {
        let written = attempt.filter(|row| row.ended_at.is_some()).map(|row| row.output);
        Self { bytes_max, written }
    }

    /// True once the final report has told how much was written.
    pub(super) const fn is_final(&self) -> bool {
        self.written.is_some()
    }

    /// True if the final report may still show that this gap is a cut. The output of a stream that is cut has at least half of the head before
    /// the gap, together with that of the other stream, and the tail after it. `stored` has both streams as far as they have come.
    pub(super) fn is_undecided(&self, piece: &Piece, which: Streams, stored: &OutputLengths) -> bool {
        let (of_stream, of_other) = match piece.stream {
            Stream::Stdout => (stored.stdout, stored.stderr),
            Stream::Stderr => (stored.stderr, stored.stdout),
        };
        let before = match which {
            Streams::Both => piece.at,
            Streams::Only(_) => piece.at.saturating_add(of_other),
        };
        !self.is_final()
            && matches!(piece.data, PieceData::Gap(_))
            && before >= head_bytes(self.bytes_max) / 2
            && of_stream.saturating_sub(piece.stream_end) <= tail_bytes(self.bytes_max)
    }

    /// The limit at which this piece was cut, in bytes; `None` if it is output, or was lost.
    ///
    /// A worker that has more output than its limit leaves out the middle: the gap ends an eighth of the limit before the end of its stream.
    pub(super) fn cut_at(&self, piece: &Piece) -> Option<u64> {
        let is_cut = match piece.data {
            PieceData::Bytes(_) | PieceData::Replayed(_) => false,
            PieceData::Cut(_) => true,
            PieceData::Gap(_) => self.written.is_some_and(|written| {
                let end =
                    length(&written, Streams::Only(piece.stream)).checked_sub(tail_bytes(self.bytes_max));
                length(&written, Streams::Both) > self.bytes_max && end == Some(piece.stream_end)
            }),
        };
        is_cut.then_some(self.bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_a_cut_if_it_ends_an_eighth_of_the_limit_before_the_end_of_a_longer_output() {
        let gap = |stream, stream_end| Piece {
            stream,
            at: 0,
            stream_end,
            received_at: None,
            data: PieceData::Gap(10),
        };
        let written = OutputLengths { stdout: 600, stderr: 500 };
        let rule = CutRule { bytes_max: 800, written: Some(written) };
        assert_eq!(rule.cut_at(&gap(Stream::Stdout, 500)), Some(800));
        assert_eq!(rule.cut_at(&gap(Stream::Stderr, 400)), Some(800));
        assert_eq!(rule.cut_at(&gap(Stream::Stdout, 499)), None, "lost before the tail");
        let fitting = CutRule { bytes_max: 1_100, written: Some(written) };
        assert_eq!(fitting.cut_at(&gap(Stream::Stdout, 600 - 1_100 / 8)), None, "all of it fits");
        let running = CutRule { bytes_max: 800, written: None };
        assert_eq!(running.cut_at(&gap(Stream::Stdout, 500)), None);
        let cut = Piece { data: PieceData::Cut(1), ..gap(Stream::Stdout, 1) };
        assert_eq!(running.cut_at(&cut), Some(800));
    }

    #[test]
    fn a_gap_may_be_a_cut_if_half_of_the_head_is_before_it_and_at_most_the_tail_behind_it() {
        let gap = |at| Piece {
            stream: Stream::Stdout,
            at,
            stream_end: at + 10,
            received_at: None,
            data: PieceData::Gap(10),
        };
        let running = CutRule { bytes_max: 800, written: None };
        let stored = |stdout, stderr| OutputLengths { stdout, stderr };
        let is_undecided = |at, which, stored| running.is_undecided(&gap(at), which, &stored);
        assert!(is_undecided(300, Streams::Both, stored(310, 0)));
        assert!(is_undecided(300, Streams::Both, stored(410, 0)), "a tail may be behind it");
        assert!(!is_undecided(300, Streams::Both, stored(411, 0)), "more than a tail is behind it");
        assert!(!is_undecided(299, Streams::Both, stored(309, 500)), "before half of the head");
        let one = Streams::Only(Stream::Stdout);
        assert!(is_undecided(100, one, stored(110, 200)), "the other stream may have the rest of the head");
        assert!(!is_undecided(100, one, stored(110, 199)));
        let ended = CutRule { written: Some(stored(310, 0)), ..running };
        assert!(!ended.is_undecided(&gap(300), Streams::Both, &stored(310, 0)));
    }
}
