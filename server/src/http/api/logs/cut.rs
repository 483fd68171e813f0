//! Output that was cut at `log.max_bytes`, told apart from output that was lost.

use protocol::report::{OutputLengths, tail_bytes};

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

    /// True if the final report may still show that this gap is a cut: a worker sends the gap of an output above its limit after the end of
    /// the attempt, and half of the limit or more before it.
    pub(super) fn is_undecided(&self, piece: &Piece) -> bool {
        self.written.is_none()
            && matches!(piece.data, PieceData::Gap(_))
            && piece.at.saturating_add(piece.data.len()) >= self.bytes_max / 2
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
    use protocol::report::Stream;

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
}
