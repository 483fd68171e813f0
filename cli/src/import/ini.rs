//! Files of sections with `key = value` lines: Ofelia's configuration and systemd's units.
//!
//! Read by hand, because both know repeated keys and continued lines, and a fault must name its line.

use super::source::{Fault, Source};

/// A part of a file under a `[name]`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) entries: Vec<Entry>,
}

/// A line with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) line: usize,
}

impl Section {
    /// The last value of a key: it replaces earlier ones.
    pub(super) fn last(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().rev().find(|entry| entry.key == key)
    }
}

/// Reads a file into its sections.
///
/// # Errors
/// The first line that is not one of such a file.
pub(super) fn read(source: &Source) -> Result<Vec<Section>, Fault> {
    let mut sections: Vec<Section> = Vec::new();
    for (line, text) in logical_lines(&source.text) {
        let text = text.trim();
        if text.is_empty() || text.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = text.strip_prefix('[') {
            let name = rest
                .strip_suffix(']')
                .ok_or_else(|| source.fault(line, "the bracket of a section is not closed; write [name]"))?;
            sections.push(Section { name: name.trim().to_owned(), line, entries: Vec::new() });
            continue;
        }
        let wrong = || source.fault(line, "a line is [section], key = value, or a comment after # or ;");
        let (key, value) = text.split_once('=').ok_or_else(wrong)?;
        let section = sections
            .last_mut()
            .ok_or_else(|| source.fault(line, "a key stands above the first [section]"))?;
        section.entries.push(Entry { key: key.trim().to_owned(), value: value.trim().to_owned(), line });
    }
    Ok(sections)
}

/// Lines, with those joined that end with a backslash. Comments between them are left out.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        if open.is_some() && line.trim_start().starts_with(['#', ';']) {
            continue;
        }
        let (start, mut joined) = open.take().unwrap_or((number, String::new()));
        match line.strip_suffix('\\') {
            Some(part) => {
                joined.push_str(part);
                joined.push(' ');
                open = Some((start, joined));
            }
            None => {
                joined.push_str(line);
                lines.push((start, joined));
            }
        }
    }
    lines.extend(open);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_and_keep_their_first_number() {
        let text = "# c\n[a]\nx = 1 \\\n# between\n  2\ny=3\n";
        let source = Source { name: "f".into(), path: None, text: text.into() };
        let sections = read(&source).unwrap();
        let entries: Vec<_> = sections[0]
            .entries
            .iter()
            .map(|entry| (entry.key.as_str(), entry.value.as_str(), entry.line))
            .collect();
        assert_eq!(entries, [("x", "1    2", 3), ("y", "3", 6)]);
    }
}
