//! Output of several jobs at once: whole lines, each with the job that wrote it.

use serde_json::{Value, json};

use crate::screen;
use crate::stream::Stream;
use crate::utf8::Utf8Stream;

/// A member of a batch whose output is printed beside that of others.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// The job.
    pub(crate) job: u64,
    /// Its position in the batch, from 0.
    pub(crate) index: u64,
    /// Columns of the longest name, so that all lines begin in one column.
    pub(crate) width: usize,
}

impl Member {
    /// The longest name in a batch of so many members from this job on.
    pub(crate) fn width(first: u64, count: u64) -> usize {
        let index = count.saturating_sub(1);
        Self { job: first + index, index, width: 0 }.name().len()
    }

    /// Lines with the name of the job before each.
    pub(super) fn prefixed(&self, lines: &str) -> String {
        let prefix = format!("{:<width$} | ", self.name(), width = self.width);
        lines.split_inclusive('\n').flat_map(|line| [prefix.as_str(), line]).collect()
    }

    /// Prints lines with the name of the job.
    pub(super) fn print(&self, stream: Stream, lines: &str) -> anyhow::Result<()> {
        screen::output(stream, self.prefixed(lines).as_bytes(), &mut Utf8Stream::default())
    }

    /// Adds the job to a JSON line about it.
    pub(super) fn add_to(&self, line: &mut Value) {
        line["job"] = json!(self.job);
        line["index"] = json!(self.index);
    }

    fn name(&self) -> String {
        format!("{}[{}]", self.job, self.index)
    }
}

/// The last lines of both streams of a job, until they are complete.
#[derive(Debug, Default)]
pub(super) struct OpenLines {
    stdout: String,
    stderr: String,
}

impl OpenLines {
    /// Adds text, and returns the lines that are complete with it, each with its line break. A very long line counts as complete.
    pub(super) fn push(&mut self, stream: Stream, text: &str) -> String {
        let line = self.of(stream);
        line.push_str(text);
        match line.rfind('\n') {
            Some(end) => line.drain(..=end).collect(),
            None if line.len() > LINE_BYTES_MAX => self.take(stream),
            None => String::new(),
        }
    }

    /// Returns the incomplete line as a complete one; empty if there is none.
    pub(super) fn take(&mut self, stream: Stream) -> String {
        let mut line = std::mem::take(self.of(stream));
        if !line.is_empty() {
            line.push('\n');
        }
        line
    }

    const fn of(&mut self, stream: Stream) -> &mut String {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

/// Memory for a line of a program that writes no line breaks.
const LINE_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_begin_in_one_column() {
        let member = Member { job: 98, index: 3, width: Member::width(95, 11) };
        assert_eq!(member.prefixed("a\n\nb\n"), "98[3]   | a\n98[3]   | \n98[3]   | b\n");
        let mut lines = OpenLines::default();
        assert_eq!(lines.push(Stream::Stdout, "one\ntw"), "one\n");
        assert_eq!(lines.push(Stream::Stderr, "x"), "");
        assert_eq!(lines.push(Stream::Stdout, "o\nthree\n"), "two\nthree\n");
        assert_eq!((lines.take(Stream::Stdout).as_str(), lines.take(Stream::Stderr).as_str()), ("", "x\n"));
        let long = "x".repeat(LINE_BYTES_MAX + 1);
        assert_eq!(lines.push(Stream::Stdout, &long).len(), long.len() + 1);
    }
}
