//! Lines of a stream that arrives in pieces.

/// Bytes that were not given out as lines yet.
#[derive(Debug)]
pub(super) struct Lines {
    bytes: Vec<u8>,
    /// Index of the first byte that was not given out.
    begin: usize,
    /// Offset of that byte in the stream.
    at: u64,
}

impl Lines {
    /// Lines from this offset on.
    pub(super) const fn from(at: u64) -> Self {
        Self { bytes: Vec::new(), begin: 0, at }
    }

    /// Appends bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.begin);
        self.begin = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The offset from which nothing was given out.
    pub(super) const fn position(&self) -> u64 {
        self.at
    }

    /// The next line without its line break, with its offset. `at_end` also gives out a line without a line break. A line longer than
    /// [`LINE_BYTES_MAX`] is given out in parts.
    pub(super) fn next(&mut self, at_end: bool) -> Option<(u64, &[u8])> {
        let rest = &self.bytes[self.begin..];
        // The break of a line of the largest size comes after its last byte.
        let window = &rest[..rest.len().min(LINE_BYTES_MAX + BREAK_BYTES_MAX)];
        let line_break = window.iter().position(|byte| *byte == b'\n').map(|newline| {
            let line = &window[..newline];
            (line.strip_suffix(b"\r").unwrap_or(line).len(), newline + 1)
        });
        let (length, taken) = match line_break.filter(|(length, _)| *length <= LINE_BYTES_MAX) {
            Some(line) => line,
            None if rest.len() >= LINE_BYTES_MAX + BREAK_BYTES_MAX => (LINE_BYTES_MAX, LINE_BYTES_MAX),
            None if at_end && !rest.is_empty() => {
                let length = rest.len().min(LINE_BYTES_MAX);
                (length, length)
            }
            None => return None,
        };
        let (begin, at) = (self.begin, self.at);
        self.begin += taken;
        self.at += taken as u64;
        Some((at, &self.bytes[begin..begin + length]))
    }
}

/// Bounds memory, and the time that a pattern takes for one line.
pub(super) const LINE_BYTES_MAX: usize = 16 << 10;

/// The bytes of a line break: `\r\n`.
const BREAK_BYTES_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lines: &mut Lines, at_end: bool) -> Vec<(u64, String)> {
        let mut all = Vec::new();
        while let Some((at, line)) = lines.next(at_end) {
            all.push((at, String::from_utf8(line.to_vec()).unwrap()));
        }
        all
    }

    #[test]
    fn lines_are_whole_over_pieces_and_have_their_offsets() {
        let mut lines = Lines::from(10);
        lines.push(b"one\r\ntw");
        assert_eq!(all(&mut lines, false), [(10, "one".to_owned())]);
        lines.push(b"o\n\nrest");
        assert_eq!(all(&mut lines, false), [(15, "two".to_owned()), (19, String::new())]);
        assert_eq!(lines.position(), 20);
        assert_eq!(all(&mut lines, true), [(20, "rest".to_owned())]);
    }

    #[test]
    fn a_long_line_comes_in_parts() {
        let mut lines = Lines::from(0);
        lines.push(&[b'x'; LINE_BYTES_MAX + 2]);
        assert_eq!(all(&mut lines, false).len(), 1);
        assert_eq!(all(&mut lines, true), [(LINE_BYTES_MAX as u64, "xx".to_owned())]);
    }

    /// Offsets and lengths of the lines, for each way in which the bytes can arrive in two pieces near the limit.
    fn sizes(bytes: &[u8]) -> Vec<(u64, usize)> {
        let sizes = |split: usize| {
            let mut lines = Lines::from(0);
            let mut found = Vec::new();
            for (piece, at_end) in [(&bytes[..split], false), (&bytes[split..], true)] {
                lines.push(piece);
                found.extend(all(&mut lines, at_end).into_iter().map(|(at, line)| (at, line.len())));
            }
            found
        };
        let whole = sizes(bytes.len());
        for split in LINE_BYTES_MAX - 2..bytes.len() {
            assert_eq!(sizes(split), whole, "{split}");
        }
        whole
    }

    #[test]
    fn a_line_of_the_largest_size_is_one_line() {
        for (line_break, next) in [("\n", LINE_BYTES_MAX + 1), ("\r\n", LINE_BYTES_MAX + 2)] {
            let text = format!("{}{line_break}next\n", "x".repeat(LINE_BYTES_MAX));
            assert_eq!(sizes(text.as_bytes()), [(0, LINE_BYTES_MAX), (next as u64, 4)]);
        }
        assert_eq!(sizes(&[b'x'; LINE_BYTES_MAX]), [(0, LINE_BYTES_MAX)], "without a line break");
    }

    #[test]
    fn a_carriage_return_that_ends_a_part_is_in_the_line() {
        let text = format!("{}\rxyz\r\n", "x".repeat(LINE_BYTES_MAX - 1));
        assert_eq!(sizes(text.as_bytes()), [(0, LINE_BYTES_MAX), (LINE_BYTES_MAX as u64, 3)]);
        assert_eq!(sizes(format!("{}\r", "x".repeat(LINE_BYTES_MAX)).as_bytes()).len(), 2, "no line break");
    }
}
