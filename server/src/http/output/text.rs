//! Output dressed as text, and the arithmetic of ranges.

use bytes::Bytes;
use protocol::report::Stream;

use crate::logs::PieceData;

/// Output as plain text: bytes as they are, other facts as lines of their own.
#[derive(Debug)]
pub(super) struct Plain {
    at_line_start: bool,
}

impl Default for Plain {
    fn default() -> Self {
        Self { at_line_start: true }
    }
}

impl Plain {
    /// What a piece looks like.
    pub(super) fn piece(&mut self, data: PieceData) -> Bytes {
        match data {
            PieceData::Bytes(bytes) | PieceData::Replayed(bytes) => {
                if let Some(last) = bytes.last() {
                    self.at_line_start = *last == b'\n';
                }
                bytes
            }
            PieceData::Gap(missing) => {
                self.line(&format!("longshore: {missing} bytes of output are missing"))
            }
        }
    }

    /// A line of ours.
    pub(super) fn line(&mut self, text: &str) -> Bytes {
        let before = if self.at_line_start { "" } else { "\n" };
        self.at_line_start = true;
        format!("{before}{text}\n").into()
    }
}

/// Turns the bytes of two streams into text, also where a character is cut in two.
#[derive(Debug, Default)]
pub(super) struct LossyText {
    cut: [Vec<u8>; 2],
}

impl LossyText {
    /// The text of these bytes. The beginning of a character at their end waits for the rest of it.
    pub(super) fn decode(&mut self, stream: Stream, bytes: &[u8]) -> String {
        let cut = &mut self.cut[usize::from(stream == Stream::Stderr)];
        cut.extend_from_slice(bytes);
        let whole = cut.len() - begun(cut);
        let text = String::from_utf8_lossy(&cut[..whole]).into_owned();
        cut.drain(..whole);
        text
    }
}

/// How many bytes at the end begin a character that may still be completed.
fn begun(bytes: &[u8]) -> usize {
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

/// The one range of a `Range` header, as (from, to) with `to` behind its last byte. `None` if there is no such part.
pub(super) fn range(header: &str, total: u64) -> Option<(u64, u64)> {
    let (first, last) = header.strip_prefix("bytes=")?.trim().split_once('-')?;
    let (from, to) = match (first.trim(), last.trim()) {
        ("", suffix) => (total.saturating_sub(suffix.parse().ok()?), total),
        (first, "") => (first.parse().ok()?, total),
        (first, last) => (first.parse().ok()?, last.parse::<u64>().ok()?.saturating_add(1).min(total)),
    };
    (from < to).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_ours_stands_alone() {
        let mut plain = Plain::default();
        assert_eq!(plain.piece(PieceData::Bytes("no end".into())), "no end");
        assert_eq!(plain.line("done"), "\ndone\n");
        assert_eq!(plain.piece(PieceData::Gap(7)), "longshore: 7 bytes of output are missing\n");
    }

    #[test]
    fn a_character_that_is_cut_in_two_is_shown_whole() {
        let mut lossy = LossyText::default();
        let euro = "€".as_bytes();
        assert_eq!(lossy.decode(Stream::Stdout, &euro[..1]), "");
        assert_eq!(lossy.decode(Stream::Stderr, b"x"), "x");
        assert_eq!(lossy.decode(Stream::Stdout, &euro[1..2]), "");
        assert_eq!(lossy.decode(Stream::Stdout, &euro[2..]), "€");
        assert_eq!(lossy.decode(Stream::Stdout, b"\xffa\xe2"), "\u{fffd}a");
        assert_eq!(lossy.decode(Stream::Stdout, b"b"), "\u{fffd}b");
    }

    #[test]
    fn ranges_are_read_as_files_have_them() {
        assert_eq!(range("bytes=0-9", 100), Some((0, 10)));
        assert_eq!(range("bytes=90-", 100), Some((90, 100)));
        assert_eq!(range("bytes=-10", 100), Some((90, 100)));
        assert_eq!(range("bytes=-500", 100), Some((0, 100)));
        assert_eq!(range("bytes=50-500", 100), Some((50, 100)));
        for none in
            ["bytes=100-", "bytes=5-4", "bytes=-0", "bytes=x-y", "lines=0-1", "bytes=0-1,5-6", "bytes="]
        {
            assert_eq!(range(none, 100), None, "{none}");
        }
        assert_eq!(range("bytes=0-", 0), None);
    }
}
