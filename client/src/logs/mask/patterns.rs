//! Regular expressions of a definition, matched within lines.
//!
//! A line of at most [`LINE_BYTES_MAX`] bytes is searched as a whole, once its end is known. A longer one is cut at the multiples of that
//! number of the stream, so that each byte belongs to one piece only, and at most [`LINE_BYTES_MAX`] bytes on both sides of a byte decide
//! about it.

use std::ops::Range;

use protocol::container::LOG_MASK_COMPILED_BYTES_MAX;
use regex_automata::meta::{Config, Regex};
use regex_automata::util::syntax;

/// Compiled patterns of a definition.
#[derive(Debug)]
pub(super) struct PatternSet(Vec<Regex>);

impl PatternSet {
    /// # Errors
    /// The text of the first pattern that cannot be compiled.
    pub(super) fn new(patterns: &[String]) -> Result<Self, String> {
        patterns.iter().map(|it| compile(it)).collect::<Result<_, _>>().map(Self)
    }

    /// The number of bytes at the end that belong to a line of which too little is known.
    pub(super) fn open_end(bytes: &[u8]) -> usize {
        let line =
            bytes.iter().rposition(|byte| *byte == b'\n').map_or(bytes.len(), |at| bytes.len() - at - 1);
        line.min(LINE_BYTES_MAX)
    }

    /// Adds the matches in all lines that reach into `part` of these bytes, of which the first one is at `offset` in the stream. There are
    /// [`LINE_BYTES_MAX`] bytes on both sides of the part, fewer only at the ends of the stream.
    pub(super) fn find(&self, bytes: &[u8], offset: u64, part: Range<usize>, found: &mut Vec<Range<usize>>) {
        let mut at = part.start;
        while at < part.end {
            let piece = piece_around(bytes, offset, at);
            let line = &bytes[piece.clone()];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            for pattern in &self.0 {
                let matches = pattern.find_iter(line).filter(|it| !it.is_empty());
                found.extend(matches.map(|it| piece.start + it.start()..piece.start + it.end()));
            }
            // A line break is no part of a line.
            let end = piece.end.max(at);
            at = if bytes.get(end) == Some(&b'\n') { end + 1 } else { end };
        }
    }
}

/// The line, or the piece of a long line, that the byte at index `at` belongs to; without the line break.
fn piece_around(bytes: &[u8], offset: u64, at: usize) -> Range<usize> {
    let far = at.saturating_sub(LINE_BYTES_MAX);
    let break_before = bytes[far..at].iter().rposition(|byte| *byte == b'\n');
    let ahead = &bytes[at..bytes.len().min(at + LINE_BYTES_MAX + 1)];
    let break_after = ahead.iter().position(|byte| *byte == b'\n');
    let start = break_before.map(|it| far + it + 1).or((far == 0 && offset == 0).then_some(0));
    let end = break_after.map(|it| at + it).or((ahead.len() <= LINE_BYTES_MAX).then_some(bytes.len()));
    if let (Some(start), Some(end)) = (start, end)
        && end - start <= LINE_BYTES_MAX
    {
        return start..end;
    }
    let within = usize::try_from((offset + at as u64) % LINE_BYTES_MAX as u64).unwrap_or(0);
    let (cut_before, cut_after) = (at.saturating_sub(within), at + LINE_BYTES_MAX - within);
    start.map_or(cut_before, |start| start.max(cut_before))
        ..end.map_or(cut_after, |end| end.min(cut_after)).min(bytes.len())
}

fn compile(pattern: &str) -> Result<Regex, String> {
    let config = Config::new()
        .nfa_size_limit(Some(LOG_MASK_COMPILED_BYTES_MAX))
        .onepass_size_limit(Some(LOG_MASK_COMPILED_BYTES_MAX))
        // Output is often no UTF-8.
        .utf8_empty(false);
    let syntax = syntax::Config::new();
    Regex::builder().configure(config).syntax(syntax).build(pattern).map_err(|_| pattern.to_owned())
}

/// The longest line that is searched as a whole. As much of a line without end is held back, and as much is read around each part.
pub(super) const LINE_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::{Mask, OutputPart};
    use super::*;

    fn mask(patterns: &[&str]) -> Mask {
        let patterns: Vec<_> = patterns.iter().map(|it| (*it).to_owned()).collect();
        Mask::new([], &patterns).expect("patterns").expect("a mask")
    }

    /// The whole output, sent as it grows to each of these lengths, in chunks of at most `room` bytes.
    fn send(mask: &Mask, output: &[u8], lengths: &[usize], room: usize) -> Vec<u8> {
        let mut sent = Vec::new();
        let growing = lengths.iter().map(|it| (*it % (output.len() + 1), false));
        for (written, is_complete) in growing.chain([(output.len(), true)]) {
            while sent.len() < written {
                let read = |from: u64, length: usize| {
                    let from = usize::try_from(from).expect("small");
                    Ok(output[from..(from + length).min(written)].to_vec())
                };
                let room = room.min(written - sent.len());
                match mask.read(sent.len() as u64, room, is_complete, read).expect("read") {
                    OutputPart::Bytes(bytes) => {
                        assert!(!bytes.is_empty() && bytes.len() <= room);
                        sent.extend(bytes);
                    }
                    OutputPart::Undecided => {
                        assert!(!is_complete && written - sent.len() <= LINE_BYTES_MAX);
                        break;
                    }
                }
            }
        }
        sent
    }

    #[test]
    fn a_match_is_masked_within_its_line_only() {
        let mask = mask(&[r"key=\w+", "^end$", r"a\sb"]);
        let output = b"key=abc, Key=abc\nend\r\nthe end\na b a\nb\nx key=\xff key=\xc3\xa9!";
        let expected = b"*******, Key=abc\n***\r\nthe end\n*** a\nb\nx key=\xff ******!";
        for room in [1, 7, 1_000] {
            assert_eq!(
                send(&mask, output, &[3, 20, 30], room).escape_ascii().to_string(),
                expected.escape_ascii().to_string()
            );
        }
    }

    #[test]
    fn patterns_that_overlap_and_values_are_masked_together() {
        let patterns = ["abcd".to_owned(), "cdef".to_owned()];
        let mask = Mask::new([&b"hunter22"[..]], &patterns).expect("patterns").expect("a mask");
        assert_eq!(send(&mask, b"abcdef hunter22 x", &[12], 5), b"****** ******** x");
    }

    #[test]
    fn a_pattern_that_matches_nothing_or_everything_ends() {
        assert_eq!(send(&mask(&["x*"]), b"axxa\n\nx", &[], 3), b"a**a\n\n*");
        assert_eq!(send(&mask(&[".*"]), b"ab\ncd", &[], 3), b"**\n**");
        assert!(Mask::new([], &["(".to_owned()]).is_err());
    }

    #[test]
    fn a_line_of_the_longest_length_is_whole_and_a_longer_one_is_cut_at_multiples() {
        let mask = mask(&["key=[0-9]+"]);
        let longest = [&b"key="[..], &vec![b'1'; LINE_BYTES_MAX - 4]].concat();
        for before in [&b""[..], b"x\n"] {
            let output = [before, &longest, b"\nkey=1"].concat();
            let expected = [before, &vec![b'*'; LINE_BYTES_MAX], b"\n*****"].concat();
            assert_eq!(send(&mask, &output, &[LINE_BYTES_MAX, LINE_BYTES_MAX + 2], 1_000), expected);
        }
        let longer = [&longest[..], b"11 key=2\nkey=3"].concat();
        let expected = [&vec![b'*'; LINE_BYTES_MAX][..], b"11 *****\n*****"].concat();
        assert_eq!(send(&mask, &longer, &[LINE_BYTES_MAX, LINE_BYTES_MAX + 5], 1_000), expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_border_between_chunks_changes_a_byte(
            lines in vec(("(key=[0-9]{1,4}|[ab ]){0,6}", 0_usize..40_000), 1..4),
            lengths in vec(any::<usize>(), 0..4),
            room in 500_usize..40_000,
        ) {
            let output: Vec<u8> = lines
                .iter()
                .flat_map(|(text, filler)| [text.as_bytes(), &vec![b'.'; *filler], text.as_bytes(), b"\n"].concat())
                .collect();
            let mask = mask(&["key=[0-9]+"]);
            let whole = send(&mask, &output, &[], output.len());
            prop_assert_eq!(&send(&mask, &output, &lengths, room), &whole);
            // A session starts again at any offset.
            let offset = room % output.len();
            let read = |from: u64, length: usize| {
                let from = usize::try_from(from).expect("small");
                Ok(output[from..(from + length).min(output.len())].to_vec())
            };
            let part = mask.read(offset as u64, 1_000, true, read).expect("read");
            let expected = whole[offset..(offset + 1_000).min(whole.len())].to_vec();
            prop_assert_eq!(part, OutputPart::Bytes(expected));
        }
    }
}
