//! Masks secrets and matches of patterns in output: each byte of an occurrence becomes `*`, so all offsets stay as they are.
//!
//! A byte is masked if any occurrence covers it, wherever a chunk begins or ends. So a part of a file is read with as many bytes around it
//! as the longest value or line has. Bytes that may be the beginning of a value, or that belong to a line without an end, are held back
//! until more was written or the output is complete. The same offset then always gives the same byte, in every chunk and after every
//! reconnect.

mod patterns;

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use patterns::PatternSet;

/// The values and patterns to be masked in the output of one attempt.
#[derive(Debug)]
pub(crate) struct Mask {
    values: Option<ValueSet>,
    patterns: Option<PatternSet>,
}

#[derive(Debug)]
struct ValueSet {
    automaton: AhoCorasick,
    values: BTreeSet<Vec<u8>>,
    /// Bytes of the longest value; at least [`MASKED_BYTES_MIN`].
    longest: usize,
}

/// A part of an output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OutputPart {
    /// Its bytes; none if they do not exist.
    Bytes(Vec<u8>),
    /// Its first byte may belong to a secret of which the rest is not written yet.
    Undecided,
}

impl Mask {
    /// Masks these values, and what these patterns match within a line. `None` if nothing is to be masked.
    ///
    /// # Errors
    /// The text of a pattern that cannot be compiled.
    pub(crate) fn new<'v>(
        values: impl IntoIterator<Item = &'v [u8]>,
        patterns: &[String],
    ) -> Result<Option<Self>, String> {
        let patterns = (!patterns.is_empty()).then(|| PatternSet::new(patterns)).transpose()?;
        let mask = Self { values: ValueSet::new(values), patterns };
        Ok((mask.values.is_some() || mask.patterns.is_some()).then_some(mask))
    }

    /// Number of bytes before and after a part of an output that decide how it is masked.
    pub(super) fn context_bytes(&self) -> usize {
        let values = self.values.as_ref().map_or(0, |values| values.longest - 1);
        let lines = if self.patterns.is_some() { patterns::LINE_BYTES_MAX } else { 0 };
        values.max(lines)
    }

    /// The masked bytes at `offset`, at most `room`. `read` reads a number of bytes at an offset, fewer only at the end of the output.
    pub(super) fn read(
        &self,
        offset: u64,
        room: usize,
        is_complete: bool,
        read: impl FnOnce(u64, usize) -> io::Result<Vec<u8>>,
    ) -> io::Result<OutputPart> {
        let before = usize::try_from(offset).unwrap_or(usize::MAX).min(self.context_bytes());
        let mut bytes = read(offset - before as u64, before + room + self.context_bytes())?;
        if bytes.len() <= before {
            return Ok(OutputPart::Bytes(Vec::new()));
        }
        let decided = if is_complete { bytes.len() } else { bytes.len() - self.open_end(&bytes) };
        let end = decided.min(before + room);
        if end <= before {
            return Ok(OutputPart::Undecided);
        }
        let mut found = self.values.as_ref().map_or_else(Vec::new, |values| values.find(&bytes));
        if let Some(patterns) = &self.patterns {
            patterns.find(&bytes, offset - before as u64, before..end, &mut found);
        }
        hide(&mut bytes, found);
        bytes.truncate(end);
        bytes.drain(..before);
        Ok(OutputPart::Bytes(bytes))
    }

    /// A whole text with its values masked; `None` if it has none of them. Patterns are for lines of output, and are left out.
    pub(crate) fn whole(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let found = self.values.as_ref()?.find(bytes);
        let mut masked = (!found.is_empty()).then(|| bytes.to_vec())?;
        hide(&mut masked, found);
        Some(masked)
    }

    /// The number of bytes at the end about which more bytes may decide.
    fn open_end(&self, bytes: &[u8]) -> usize {
        let values = self.values.as_ref().map_or(0, |values| values.open_end(bytes));
        values.max(self.patterns.as_ref().map_or(0, |_| PatternSet::open_end(bytes)))
    }
}

impl ValueSet {
    /// Masks these values without line breaks at their ends, and each longer line of a value with several lines. Values that are too
    /// short are not masked; `None` if no value is left.
    fn new<'v>(values: impl IntoIterator<Item = &'v [u8]>) -> Option<Self> {
        let mut masked = BTreeSet::new();
        for value in values {
            let value = value.trim_ascii_end();
            let lines = value.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
            masked.extend(lines.filter(|line| line.len() >= LINE_BYTES_MIN).map(<[u8]>::to_vec));
            if value.len() >= MASKED_BYTES_MIN {
                masked.insert(value.to_vec());
            }
        }
        let longest = masked.iter().map(Vec::len).max()?;
        let automaton = AhoCorasick::builder().kind(Some(AhoCorasickKind::ContiguousNFA)).build(&masked);
        // It fails above 2^31 states only: the protocol bounds the values to much less.
        Some(Self { automaton: automaton.ok()?, values: masked, longest })
    }

    /// The bytes that occurrences cover. Occurrences of values within each other may be many times more than there are bytes, so ranges
    /// that touch become one as they are found. They are found in the order of their ends.
    fn find(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        for occurrence in self.automaton.find_overlapping_iter(bytes) {
            let Range { mut start, end } = occurrence.range();
            while let Some(last) = found.pop_if(|last| last.end >= start) {
                start = start.min(last.start);
            }
            found.push(start..end);
        }
        found
    }

    /// The number of bytes at the end that may be the beginning of a value.
    fn open_end(&self, bytes: &[u8]) -> usize {
        self.values.iter().map(|value| begun(value, bytes)).max().unwrap_or(0)
    }
}

/// Occurrences that overlap are many if a value repeats itself: each byte is written once.
fn hide(bytes: &mut [u8], mut found: Vec<Range<usize>>) {
    found.sort_unstable_by_key(|range| range.start);
    let mut hidden = 0;
    for range in found {
        let from = range.start.max(hidden);
        if from < range.end {
            bytes[from..range.end].fill(b'*');
            hidden = range.end;
        }
    }
}

/// The length of the longest beginning of `value`, shorter than the value, with which `bytes` ends. Knuth, Morris and Pratt: linear in the
/// length of the value, which may have many thousand bytes.
fn begun(value: &[u8], bytes: &[u8]) -> usize {
    let beginning = &value[..value.len().saturating_sub(1)];
    let end = &bytes[bytes.len().saturating_sub(beginning.len())..];
    // For each beginning of the value: the next shorter one with which it ends.
    let mut shorter = vec![0; beginning.len()];
    let mut length = 0;
    for index in 1..beginning.len() {
        length = extended(beginning, &shorter, length, beginning[index]);
        shorter[index] = length;
    }
    // `end` is no longer than `beginning`, so no step goes beyond it.
    end.iter().fold(0, |length, byte| extended(beginning, &shorter, length, *byte))
}

/// The longest beginning with which a text ends that ended with `length` bytes of it before this byte.
fn extended(beginning: &[u8], shorter: &[usize], mut length: usize, byte: u8) -> usize {
    loop {
        if beginning.get(length) == Some(&byte) {
            return length + 1;
        }
        if length == 0 {
            return 0;
        }
        length = shorter[length - 1];
    }
}

/// Shorter values would mask what is no secret.
pub(crate) const MASKED_BYTES_MIN: usize = 4;

/// Shorter lines of a value with several lines are often words such as `{` or `true`.
const LINE_BYTES_MIN: usize = 8;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn mask(values: &[&str]) -> Mask {
        Mask::new(values.iter().map(|value| value.as_bytes()), &[]).expect("no pattern").expect("a value")
    }

    /// Sends an output that grows to each of these lengths, in chunks of these sizes.
    fn send(mask: &Mask, output: &[u8], lengths: &[usize], rooms: &[usize]) -> Vec<u8> {
        let mut sent = Vec::new();
        let mut rooms = rooms.iter().cycle().copied();
        for (written, is_complete) in
            lengths.iter().map(|it| (*it % (output.len() + 1), false)).chain([(output.len(), true)])
        {
            while sent.len() < written {
                let room = rooms.next().unwrap_or(1).min(written - sent.len());
                let offset = sent.len() as u64;
                let read = |from: u64, length: usize| {
                    let from = usize::try_from(from).expect("small").min(written);
                    Ok(output[from..(from + length).min(written)].to_vec())
                };
                match mask.read(offset, room, is_complete, read).expect("read") {
                    OutputPart::Bytes(bytes) => {
                        assert!(!bytes.is_empty() && bytes.len() <= room);
                        sent.extend(bytes);
                    }
                    OutputPart::Undecided => {
                        assert!(!is_complete && written - sent.len() <= mask.context_bytes());
                        break;
                    }
                }
            }
        }
        sent
    }

    #[test]
    fn values_and_long_lines_are_masked_with_their_length() {
        let mask = mask(&["hunter22\n", "-----BEGIN KEY-----\nabcdefghij\ntrue\n", "abc"]);
        let output = b"x hunter22 y abcdefghij true abc";
        assert_eq!(send(&mask, output, &[], &[7]), b"x ******** y ********** true abc");
    }

    #[test]
    fn a_part_of_a_value_is_no_secret_once_the_output_is_complete() {
        assert_eq!(send(&mask(&["secret"]), b"a secre", &[4], &[100]), b"a secre");
    }

    #[test]
    fn short_values_alone_make_no_mask() {
        assert!(Mask::new([&b"abc"[..], b"\n", b""], &[]).expect("no pattern").is_none());
    }

    #[test]
    fn values_within_each_other_do_not_multiply_what_is_kept() {
        let values: Vec<Vec<u8>> = (4..=250).map(|length| vec![b'a'; length]).collect();
        let values = ValueSet::new(values.iter().map(Vec::as_slice)).expect("values");
        assert_eq!(values.find(&[b'a'; 10_000]), vec![0..10_000]);
        let output = [&[b'a'; 300][..], b"b", &[b'a'; 3], b"b", &[b'a'; 5]].concat();
        assert_eq!(values.find(&output), [0..300, 305..310]);
    }

    fn letters(range: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
        vec(prop_oneof![Just(b'a'), Just(b'b'), Just(b'c')], range)
    }

    proptest! {
        #[test]
        fn no_border_between_chunks_shows_a_value(
            values in vec(letters(4..9), 1..4),
            parts in vec((letters(0..6), any::<prop::sample::Index>()), 0..8),
            lengths in vec(any::<usize>(), 0..6),
            rooms in vec(1_usize..12, 1..5),
        ) {
            let mut output = Vec::new();
            for (text, index) in &parts {
                output.extend(text);
                output.extend(index.get(&values));
            }
            let mask = Mask::new(values.iter().map(Vec::as_slice), &[]).expect("no pattern").expect("a value");
            // The simplest rule: every byte that any occurrence covers.
            let mut expected = output.clone();
            for value in &values {
                for at in 0..output.len() {
                    if output[at..].starts_with(value) {
                        expected[at..at + value.len()].fill(b'*');
                    }
                }
            }
            prop_assert_eq!(send(&mask, &output, &lengths, &rooms), expected);
        }

        #[test]
        fn every_offset_gives_the_same_bytes_again(
            value in letters(4..7),
            output in letters(0..40),
            offset in 0_usize..40,
        ) {
            let mask = Mask::new([value.as_slice()], &[]).expect("no pattern").expect("a value");
            let whole = send(&mask, &output, &[], &[64]);
            let offset = offset.min(output.len());
            let read = |from: u64, length: usize| {
                let from = usize::try_from(from).expect("small");
                Ok(output[from..(from + length).min(output.len())].to_vec())
            };
            let part = mask.read(offset as u64, 64, true, read).expect("read");
            prop_assert_eq!(part, OutputPart::Bytes(whole[offset..].to_vec()));
        }
    }

    proptest! {
        #[test]
        fn the_beginning_of_a_value_is_found_as_by_comparing_every_length(
            value in vec(0_u8..3, 1..12),
            bytes in vec(0_u8..3, 0..24),
        ) {
            let is_begun = |length: &usize| *length <= bytes.len() && bytes.ends_with(&value[..*length]);
            prop_assert_eq!(begun(&value, &bytes), (0..value.len()).rev().find(is_begun).unwrap_or(0));
        }
    }
}
