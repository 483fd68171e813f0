//! The pattern of a search, and the form of a line that fits.

use regex_automata::meta::{BuildError, Config, Regex};
use regex_automata::util::syntax;

use crate::escape_sequence;

/// The kind of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The text itself.
    Literal,
    /// A regular expression.
    Regex,
}

/// A compiled pattern. It matches in time linear in the length of a line.
#[derive(Debug)]
pub(super) struct Matcher(Regex);

/// A line that fits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// The line, or a part of it that begins before the first match.
    pub(super) text: String,
    /// The matches: byte offsets in `text`, the end exclusive.
    pub(super) ranges: Vec<[usize; 2]>,
    /// True if `text` is only a part of the line.
    pub(super) truncated: bool,
}

impl Matcher {
    /// # Errors
    /// The pattern is not a regular expression, or compiles to more than [`COMPILED_BYTES_MAX`].
    pub(super) fn new(pattern: &str, kind: Kind, ignores_case: bool) -> Result<Self, Box<BuildError>> {
        let pattern = match kind {
            Kind::Literal => escape(pattern),
            Kind::Regex => pattern.to_owned(),
        };
        let config = Config::new()
            .nfa_size_limit(Some(COMPILED_BYTES_MAX))
            .onepass_size_limit(Some(COMPILED_BYTES_MAX));
        let syntax = syntax::Config::new().case_insensitive(ignores_case);
        Regex::builder().configure(config).syntax(syntax).build(&pattern).map(Self).map_err(Box::new)
    }

    /// Searches a line without its line break, as people see it: without escape sequences, which may colour any part of it. Bytes that are not
    /// UTF-8 count as U+FFFD.
    pub(super) fn find(&self, line: &[u8]) -> Option<Match> {
        let line = String::from_utf8_lossy(line);
        let line = escape_sequence::remove(&line);
        let mut found = self.0.find_iter(&*line).take(RANGES_MAX).peekable();
        let first = found.peek()?.start();
        let (begin, end) = if line.len() <= TEXT_BYTES_MAX {
            (0, line.len())
        } else {
            let begin = line.floor_char_boundary(first.saturating_sub(CONTEXT_BYTES));
            (begin, line.floor_char_boundary(begin + TEXT_BYTES_MAX))
        };
        let ranges = found
            .filter(|range| !range.is_empty() && range.start() < end)
            .map(|range| [range.start() - begin, range.end().min(end) - begin]);
        Some(Match {
            ranges: ranges.collect(),
            truncated: end - begin < line.len(),
            text: line[begin..end].to_owned(),
        })
    }
}

/// Escapes what has a meaning in regular expressions.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        if r"\.+*?()|[]{}^$#&-~".contains(char) {
            escaped.push('\\');
        }
        escaped.push(char);
    }
    escaped
}

/// The time for a line grows with the size of the pattern, and the scan looks at its deadline between lines only. Several Unicode classes
/// such as `\w` fit.
const COMPILED_BYTES_MAX: usize = 128 << 10;

/// Matches of one line that are told; a line of one letter matches everywhere.
const RANGES_MAX: usize = 16;

/// The longest text of a match: a thousand of them are 2 MB.
const TEXT_BYTES_MAX: usize = 2_000;

/// The part of a truncated line that is shown before its first match.
const CONTEXT_BYTES: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_stands_for_itself_and_case_can_be_ignored() {
        let all = r"a.b*c? \(x)|[y]{2}^$#&-~<>/";
        let literal = Matcher::new(all, Kind::Literal, false).unwrap();
        assert_eq!(literal.find(format!("é {all}").as_bytes()).unwrap().ranges, [[3, 3 + all.len()]]);
        assert_eq!(literal.find(all.to_uppercase().as_bytes()), None);
        let insensitive = Matcher::new("größe", Kind::Literal, true).unwrap();
        assert!(insensitive.find("GRÖßE".as_bytes()).is_some());
    }

    #[test]
    fn ranges_are_those_of_the_text_also_if_it_is_cut_or_no_text() {
        let matcher = Matcher::new("o+", Kind::Regex, false).unwrap();
        assert_eq!(matcher.find(b"\xfffoo boo").unwrap().ranges, [[4, 6], [8, 10]]);
        let long = format!("{}foo{}", "é".repeat(4_000), "é".repeat(4_000));
        let found = matcher.find(long.as_bytes()).unwrap();
        let [begin, end] = found.ranges[0];
        assert_eq!((&found.text[begin..end], found.truncated), ("oo", true));
        assert!(found.text.len() <= TEXT_BYTES_MAX);
        let everything = Matcher::new("o|", Kind::Regex, false).unwrap();
        assert_eq!(everything.find(b"xx").unwrap().ranges, [[0; 2]; 0]);
        let whole = Matcher::new(".*", Kind::Regex, false).unwrap();
        assert_eq!(whole.find(long.as_bytes()).unwrap().ranges, [[0, TEXT_BYTES_MAX]]);
    }

    #[test]
    fn colours_do_not_hide_a_match() {
        let line = b"\x1b[1;31merror\x1b[0m: no space";
        for (pattern, kind) in [("error: no", Kind::Literal), ("^error", Kind::Regex)] {
            let found = Matcher::new(pattern, kind, false).unwrap().find(line).unwrap();
            assert_eq!((found.text.as_str(), found.ranges[0][0]), ("error: no space", 0));
        }
        assert_eq!(Matcher::new("1;31m", Kind::Literal, false).unwrap().find(line), None);
    }

    #[test]
    fn a_wrong_or_large_pattern_is_refused() {
        assert!(Matcher::new(r"\w+ took \d+ ms in \w+", Kind::Regex, true).is_ok());
        for pattern in ["(", "[z-a]", "(?:a{1000}){1000}"] {
            assert!(Matcher::new(pattern, Kind::Regex, false).is_err(), "{pattern}");
        }
    }
}
