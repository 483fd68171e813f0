//! The ends of lines: whether a stream's last line has ended, and times at the beginning of lines.

use crate::stream::Stream;

/// The printed lines of both streams.
#[derive(Debug, Default)]
pub(super) struct PrintedLines {
    /// True for a stream, stdout first, whose last line has not ended.
    is_inside_line: [bool; 2],
}

impl PrintedLines {
    /// Records that these bytes are printed as they are.
    pub(super) fn record(&mut self, stream: Stream, bytes: &[u8]) {
        if let Some(last) = bytes.last() {
            *self.is_inside(stream) = *last != b'\n';
        }
    }

    /// Ends the last line, and returns true if it needs a line break for that.
    pub(super) const fn end(&mut self, stream: Stream) -> bool {
        std::mem::replace(self.is_inside(stream), false)
    }

    /// Adds the time of these bytes to each line that begins in them, or `-` if it is unknown.
    pub(super) fn stamp(&mut self, stream: Stream, bytes: &[u8], received_at: Option<&str>) -> Vec<u8> {
        let is_inside_line = self.is_inside(stream);
        let mut stamped = Vec::with_capacity(2 * bytes.len());
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !*is_inside_line {
                stamped.extend_from_slice(received_at.unwrap_or("-").as_bytes());
                stamped.push(b' ');
            }
            stamped.extend_from_slice(line);
            *is_inside_line = line.last() != Some(&b'\n');
        }
        stamped
    }

    const fn is_inside(&mut self, stream: Stream) -> &mut bool {
        let [stdout, stderr] = &mut self.is_inside_line;
        match stream {
            Stream::Stdout => stdout,
            Stream::Stderr => stderr,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_that_has_not_ended_needs_a_line_break() {
        let mut lines = PrintedLines::default();
        assert!(!lines.end(Stream::Stdout), "nothing is printed");
        lines.record(Stream::Stdout, b"a\nb");
        lines.record(Stream::Stdout, b"");
        lines.record(Stream::Stderr, b"x\n");
        assert!(!lines.end(Stream::Stderr));
        assert!(lines.end(Stream::Stdout) && !lines.end(Stream::Stdout), "one line break");
        assert_eq!(lines.stamp(Stream::Stdout, b"c", Some("T1")), b"T1 c");
        assert!(lines.end(Stream::Stdout), "a line with its time");
        assert_eq!(lines.stamp(Stream::Stdout, b"d\n", Some("T2")), b"T2 d\n", "the next line has a time");
    }

    #[test]
    fn each_line_begins_with_the_time_of_its_first_byte() {
        let mut times = PrintedLines::default();
        let mut text = |stream, bytes: &str, time| {
            String::from_utf8(times.stamp(stream, bytes.as_bytes(), time)).unwrap()
        };
        assert_eq!(text(Stream::Stdout, "a\n\nb", Some("T1")), "T1 a\nT1 \nT1 b");
        assert_eq!(text(Stream::Stderr, "x\n", Some("T2")), "T2 x\n", "a line of its own");
        assert_eq!(text(Stream::Stdout, "", Some("T3")), "");
        assert_eq!(text(Stream::Stdout, "c\n", Some("T3")), "c\n");
        assert_eq!(text(Stream::Stdout, "d\n", None), "- d\n");
    }
}
