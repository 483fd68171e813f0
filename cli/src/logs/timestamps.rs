//! Times at the beginning of lines.

use crate::stream::Stream;

/// Puts the time of receipt in front of each line of both streams.
#[derive(Debug, Default)]
pub(super) struct LineTimes {
    /// True for a stream, stdout first, whose last line has not ended.
    is_inside_line: [bool; 2],
}

impl LineTimes {
    /// Adds the time of these bytes to each line that begins in them, or `-` if it is unknown.
    pub(super) fn stamp(&mut self, stream: Stream, bytes: &[u8], received_at: Option<&str>) -> Vec<u8> {
        let is_inside_line = &mut self.is_inside_line[usize::from(stream == Stream::Stderr)];
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_begins_with_the_time_of_its_first_byte() {
        let mut times = LineTimes::default();
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
