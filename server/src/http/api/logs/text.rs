//! Output as text, decoding of UTF-8 in pieces, and byte ranges.

use bytes::Bytes;
use protocol::Timestamp;
use protocol::report::{ChunkData, Stream};

use crate::http::present::missing_output::missing_text;
use crate::logs::{Piece, PieceData};
use crate::rfc3339::Time;

/// Output as plain text: the bytes unchanged, other facts as separate lines.
#[derive(Debug)]
pub(super) struct PlainText {
    /// True if each line of output begins with the time at which its first byte was received.
    timestamps: bool,
    at_line_start: bool,
    /// The streams of this attempt whose replay was announced.
    replayed: Streams,
}

impl PlainText {
    pub(super) fn new(timestamps: bool) -> Self {
        Self { timestamps, at_line_start: true, replayed: Streams::default() }
    }

    /// Starts another attempt.
    pub(super) fn start_attempt(&mut self) {
        self.replayed = Streams::default();
    }

    /// A line that announces replayed output, before the first replayed piece of a stream; else empty.
    pub(super) fn replay_notice(&mut self, piece: &Piece) -> Bytes {
        let is_replayed = matches!(piece.data, PieceData::Replayed(_));
        if !is_replayed || self.replayed.has(piece.stream) {
            return Bytes::new();
        }
        self.replayed.add(piece.stream);
        let stream = piece.stream.name();
        self.line(&format!("longshore: what follows of {stream} was read again from the engine's log"))
    }

    /// The text of a piece, which was cut at this limit if there is one.
    pub(super) fn piece(&mut self, piece: Piece, cut_at: Option<u64>) -> Bytes {
        match piece.data {
            PieceData::Bytes(bytes) | PieceData::Replayed(bytes) => {
                let is_inside_line = !self.at_line_start;
                if let Some(last) = bytes.last() {
                    self.at_line_start = *last == b'\n';
                }
                if self.timestamps { stamp(&bytes, is_inside_line, piece.received_at) } else { bytes }
            }
            data @ (PieceData::Gap(_) | PieceData::Cut(_)) => {
                self.line(&missing_line(piece.stream, piece.stream_end, &data, cut_at))
            }
        }
    }

    /// A line written by the server.
    pub(super) fn line(&mut self, text: &str) -> Bytes {
        let before = if self.at_line_start { "" } else { "\n" };
        self.at_line_start = true;
        format!("{before}{text}\n").into()
    }
}

/// Puts the time of receipt in front of each line that begins in these bytes, or `-` if it is unknown.
fn stamp(bytes: &[u8], is_inside_line: bool, received_at: Option<Timestamp>) -> Bytes {
    let time = received_at.map_or_else(|| "-".to_owned(), |at| Time(at).to_string());
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
    let mut stamped = Vec::with_capacity(2 * bytes.len());
    for (index, line) in lines {
        if index > 0 || !is_inside_line {
            stamped.extend_from_slice(time.as_bytes());
            stamped.push(b' ');
        }
        stamped.extend_from_slice(line);
    }
    stamped.into()
}

/// The line in place of missing output, which ends there in its stream.
pub(super) fn missing_line(stream: Stream, stream_end: u64, data: &PieceData, cut_at: Option<u64>) -> String {
    let bytes = missing_bytes(data);
    // A worker's output that the server cuts off ends for both streams; and more can be missing than one stream alone had.
    let is_of_both = matches!(data, PieceData::Cut(_)) || bytes.is_some_and(|bytes| bytes > stream_end);
    missing_text((!is_of_both).then(|| stream.name()), bytes, cut_at)
}

/// The number of bytes missing in a gap; `None` if it is unknown. Bytes after a cut are not counted.
pub(super) fn missing_bytes(data: &PieceData) -> Option<u64> {
    match data {
        PieceData::Gap(gap) => (*gap != ChunkData::UNKNOWN_GAP).then_some(*gap),
        _ => None,
    }
}

/// A set of output streams.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Streams([bool; 2]);

impl Streams {
    pub(super) const fn has(self, stream: Stream) -> bool {
        self.0[index(stream)]
    }

    pub(super) const fn add(&mut self, stream: Stream) {
        self.0[index(stream)] = true;
    }
}

pub(super) const fn index(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

/// Decodes the bytes of two streams, also across pieces that split a character.
#[derive(Debug, Default)]
pub(super) struct LossyText {
    cut: [Cut; 2],
}

/// An incomplete character and its offset. Empty if there is none.
#[derive(Debug, Default)]
struct Cut {
    at: u64,
    bytes: Vec<u8>,
}

impl LossyText {
    /// Decodes these bytes, which begin at offset `at`; returns the text and its offset. An incomplete character at the end waits for its
    /// rest.
    pub(super) fn decode(&mut self, stream: Stream, at: u64, bytes: &[u8]) -> (u64, String) {
        let cut = self.cut(stream);
        let first = if cut.bytes.is_empty() { at } else { cut.at };
        cut.bytes.extend_from_slice(bytes);
        let begun = incomplete_bytes(&cut.bytes);
        let whole = cut.bytes.len() - begun;
        let text = String::from_utf8_lossy(&cut.bytes[..whole]).into_owned();
        cut.bytes.drain(..whole);
        // After the first complete character, the incomplete one is at the end of these bytes.
        cut.at = if whole == 0 { first } else { at + (bytes.len() - begun) as u64 };
        (first, text)
    }

    /// Takes the incomplete character as text, with its offset: the rest will not come.
    pub(super) fn take(&mut self, stream: Stream) -> Option<(u64, String)> {
        let cut = self.cut(stream);
        let text = String::from_utf8_lossy(&cut.bytes).into_owned();
        cut.bytes.clear();
        (!text.is_empty()).then_some((cut.at, text))
    }

    /// Offset and length of the incomplete character.
    pub(super) fn incomplete(&self) -> Option<(u64, u64)> {
        let cuts = self.cut.iter().filter(|cut| !cut.bytes.is_empty());
        let bytes = cuts.clone().map(|cut| cut.bytes.len() as u64).sum();
        Some((cuts.map(|cut| cut.at).min()?, bytes))
    }

    fn cut(&mut self, stream: Stream) -> &mut Cut {
        &mut self.cut[index(stream)]
    }
}

/// The length of an incomplete character at the end of these bytes.
fn incomplete_bytes(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3);
    match bytes[tail..].iter().rposition(|byte| !(0x80..0xC0).contains(byte)) {
        None => 0,
        Some(at) => {
            let last = &bytes[tail + at..];
            match std::str::from_utf8(last) {
                Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => last.len(),
                _ => 0,
            }
        }
    }
}

/// The single part that a `Range` header requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    /// First and last offset, both included.
    Between(u64, u64),
    /// Everything from this offset on.
    From(u64),
    /// The last bytes, by number.
    Last(u64),
}

impl Range {
    /// Parses a `Range` header. `None` for other units, several parts and malformed values: RFC 9110 (14.2) says to ignore them.
    pub(super) fn parse(header: &str) -> Option<Self> {
        let (unit, part) = header.split_once('=')?;
        let (first, last) = part.trim().split_once('-')?;
        let range = match (first, last) {
            ("", bytes) => Self::Last(digits(bytes)?),
            (first, "") => Self::From(digits(first)?),
            (first, last) => Self::Between(digits(first)?, digits(last)?),
        };
        let is_empty = matches!(range, Self::Between(first, last) if last < first);
        (unit.eq_ignore_ascii_case("bytes") && !is_empty).then_some(range)
    }

    /// The range as (start, end), end excluded; `None` if it is outside of the output.
    pub(super) fn within(self, total: u64) -> Option<(u64, u64)> {
        let (from, to) = match self {
            Self::Between(first, last) => (first, last.saturating_add(1).min(total)),
            Self::From(first) => (first, total),
            Self::Last(bytes) => (total.saturating_sub(bytes), total),
        };
        (from < to).then_some((from, to))
    }
}

/// A number with any number of digits; one that does not fit is beyond any output.
fn digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(received_at: Option<i64>, data: PieceData) -> Piece {
        Piece {
            stream: Stream::Stdout,
            at: 0,
            stream_end: data.len(),
            received_at: received_at.map(Timestamp),
            data,
        }
    }

    #[test]
    fn a_line_of_ours_stands_alone() {
        let mut plain = PlainText::new(false);
        assert_eq!(plain.piece(piece(Some(0), PieceData::Bytes("no end".into())), None), "no end");
        assert_eq!(plain.line("done"), "\ndone\n");
        let missing = plain.piece(piece(None, PieceData::Gap(7)), None);
        assert_eq!(missing, "longshore: 7 bytes of stdout are missing\n");
        let of_both = Piece { stream_end: 6, ..piece(None, PieceData::Gap(7)) };
        assert_eq!(plain.piece(of_both, None), "longshore: 7 bytes of output are missing\n");
        let unknown = plain.piece(piece(None, PieceData::Gap(ChunkData::UNKNOWN_GAP)), None);
        assert_eq!(unknown, "longshore: some of stdout is missing\n");
        let end = plain.piece(piece(None, PieceData::Cut(7)), Some(64 << 10));
        assert_eq!(end, "longshore: output cut at log.max_bytes (64 KiB)\n");
    }

    #[test]
    fn lines_begin_with_the_time_of_their_first_byte() {
        let mut plain = PlainText::new(true);
        let mut text =
            |time, bytes: &'static str| plain.piece(piece(time, PieceData::Bytes(bytes.into())), None);
        assert_eq!(text(Some(1_500), "on"), "1970-01-01T00:00:01.500Z on");
        assert_eq!(text(Some(2_000), "e\n\nt"), "e\n1970-01-01T00:00:02.000Z \n1970-01-01T00:00:02.000Z t");
        assert_eq!(text(Some(3_000), ""), "");
        assert_eq!(text(Some(3_000), "wo\n"), "wo\n");
        assert_eq!(text(None, "three\nfour"), "- three\n- four");
        let missing = plain.piece(piece(Some(4_000), PieceData::Gap(7)), None);
        assert_eq!(missing, "\nlongshore: 7 bytes of stdout are missing\n");
        let replayed = plain.piece(piece(Some(5_000), PieceData::Replayed("five".into())), None);
        assert_eq!(replayed, "1970-01-01T00:00:05.000Z five");
    }

    #[test]
    fn a_character_that_is_cut_in_two_is_shown_whole() {
        let mut lossy = LossyText::default();
        let euro = "€".as_bytes();
        let told = |at: u64, text: &str| (at, text.to_owned());
        assert_eq!(lossy.decode(Stream::Stdout, 0, &euro[..1]), told(0, ""));
        assert_eq!(lossy.decode(Stream::Stderr, 1, b"x"), told(1, "x"));
        assert_eq!(lossy.decode(Stream::Stdout, 2, &euro[1..2]), told(0, ""));
        assert_eq!(lossy.incomplete(), Some((0, 2)));
        assert_eq!(lossy.decode(Stream::Stdout, 3, &euro[2..]), told(0, "€"));
        assert_eq!(lossy.incomplete(), None);
        assert_eq!(lossy.decode(Stream::Stdout, 4, b"\xffa\xe2"), told(4, "\u{fffd}a"));
        assert_eq!(lossy.decode(Stream::Stdout, 7, b"b"), told(6, "\u{fffd}b"));
    }

    #[test]
    fn a_character_that_is_never_completed_is_shown_where_it_stands() {
        let mut lossy = LossyText::default();
        assert_eq!(lossy.decode(Stream::Stdout, 0, b"caf\xe9"), (0, "caf".to_owned()));
        assert_eq!(lossy.decode(Stream::Stderr, 4, b"\xf0\x9f"), (4, String::new()));
        assert_eq!(lossy.incomplete(), Some((3, 3)));
        assert_eq!(lossy.take(Stream::Stdout), Some((3, "\u{fffd}".to_owned())));
        assert_eq!(lossy.incomplete(), Some((4, 2)));
        assert_eq!(lossy.take(Stream::Stderr), Some((4, "\u{fffd}".to_owned())));
        assert_eq!((lossy.take(Stream::Stdout), lossy.incomplete()), (None, None));
        assert_eq!(lossy.decode(Stream::Stdout, 9, b"a"), (9, "a".to_owned()));
    }

    #[test]
    fn ranges_are_read_as_files_have_them() {
        let part = |header: &str, total: u64| Range::parse(header).expect("it is a range").within(total);
        assert_eq!(part("bytes=0-9", 100), Some((0, 10)));
        assert_eq!(part("Bytes=90-", 100), Some((90, 100)));
        assert_eq!(part("bytes= -10 ", 100), Some((90, 100)));
        assert_eq!(part("bytes=-500", 100), Some((0, 100)));
        assert_eq!(part("bytes=50-500", 100), Some((50, 100)));
        assert_eq!(part("bytes=50-99999999999999999999", 100), Some((50, 100)));
        for none in ["bytes=100-", "bytes=200-300", "bytes=-0", "bytes=99999999999999999999-"] {
            assert_eq!(part(none, 100), None, "{none}");
        }
        assert_eq!(part("bytes=0-", 0), None);
    }

    #[test]
    fn other_units_and_several_parts_are_no_range() {
        for other in
            ["lines=0-1", "bytes=0-1,5-6", "bytes=5-4", "bytes=x-y", "bytes=+1-2", "bytes=-", "bytes=", "0-1"]
        {
            assert_eq!(Range::parse(other), None, "{other}");
        }
    }
}
