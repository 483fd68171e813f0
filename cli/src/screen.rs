//! Output of verbs: tables and JSON on standard output, notes on standard error, safe for terminals.
//!
//! Names, reasons and job output could contain control sequences. Tables always show control characters as symbols. [Job output](job_output)
//! is changed only if it goes to a terminal. A closed standard output (`longshore ls, piped into head`) is not an error.

pub(crate) mod job_output;

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use comfy_table::{CellAlignment, ColumnConstraint, Table, Width, presets};
use protocol::terminal::is_terminal_control;

use self::job_output::JobOutput;
use crate::failure::{Exit, Failure};
use crate::stream::Stream;
use crate::utf8::Utf8Stream;

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Text for people.
    #[default]
    Table,
    /// Text for people with more columns, and without shortened cells.
    Wide,
    /// JSON for programs, as the server sent it.
    Json,
    /// A JSON object a line.
    Ndjson,
    /// CSV for spreadsheets.
    Csv,
    /// Only the ids or names, a line each, for other commands.
    Name,
}

impl Format {
    /// The word of the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Wide => "wide",
            Self::Json => "json",
            Self::Ndjson => "ndjson",
            Self::Csv => "csv",
            Self::Name => "name",
        }
    }

    /// Text for people.
    pub(crate) const fn is_text(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }

    /// JSON in one piece, or a line for each object.
    pub(crate) const fn is_json(self) -> bool {
        matches!(self, Self::Json | Self::Ndjson)
    }
}

/// Prints a line.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    raw(format!("{text}\n").as_bytes())
}

/// Prints bytes unchanged.
pub(crate) fn raw(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(ended)
}

/// Prints JSON with indentation.
pub(crate) fn json(value: &serde_json::Value) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    line(&text)
}

/// Prints an entry of a JSON array whose entries come one by one, as [`json`] would print the whole array.
pub(crate) fn array_entry(value: &serde_json::Value, has_begun: bool) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)?.replace('\n', "\n  ");
    let before = if has_begun { ",\n" } else { "[\n" };
    raw(format!("{before}  {text}").as_bytes())
}

/// Ends such an array.
pub(crate) fn array_end(has_begun: bool) -> anyhow::Result<()> {
    line(if has_begun { "\n]" } else { "[]" })
}

/// Prints rows below a heading, in columns. A heading that begins with `>` aligns its column to the right.
pub(crate) fn table(heading: &[&'static str], rows: Vec<Vec<String>>) -> anyhow::Result<()> {
    StreamedTable::new(heading).print(rows)
}

/// A table whose rows come in parts. Its columns grow with later parts.
pub(crate) struct StreamedTable {
    heading: Vec<&'static str>,
    /// The width of each column so far, with its padding; none before the first part.
    widths: Vec<u16>,
}

impl StreamedTable {
    /// A table with this heading, as of [`table`].
    pub(crate) fn new(heading: &[&'static str]) -> Self {
        Self { heading: heading.to_vec(), widths: Vec::new() }
    }

    /// Prints rows, and the heading before the first ones.
    pub(crate) fn print(&mut self, rows: Vec<Vec<String>>) -> anyhow::Result<()> {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        match self.widths.is_empty() {
            true => drop(table.set_header(self.heading.iter().map(|name| name.trim_start_matches('>')))),
            // A table without rows would be an empty line.
            false if rows.is_empty() => return Ok(()),
            false => {}
        }
        for row in rows {
            table.add_row(row.iter().map(|cell| visible(cell).into_owned()));
        }
        for (index, (column, name)) in table.column_iter_mut().zip(&self.heading).enumerate() {
            column.set_padding((0, PADDING));
            if name.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
            if let Some(width) = self.widths.get(index) {
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(*width)));
            }
        }
        let before = self.widths.iter().copied().chain(std::iter::repeat(0));
        let now = table.column_max_content_widths();
        self.widths = now.into_iter().zip(before).map(|(now, before)| before.max(now + PADDING)).collect();
        line(&table.trim_fmt())
    }

    /// Prints the heading if there were no rows.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        self.print(Vec::new())
    }
}

/// Spaces after a column.
const PADDING: u16 = 2;

/// Prints names and values, a line each. Empty values are left out.
pub(crate) fn fields(fields: &[(&str, String)]) -> anyhow::Result<()> {
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
        line(&format!("{name:<12} {}", visible(value)))?;
    }
    Ok(())
}

/// Writes job output unchanged to a file, or without what could drive it to a terminal.
pub(crate) fn output(stream: Stream, bytes: &[u8], look: &mut JobOutput) -> anyhow::Result<()> {
    with_stream(stream, |to, is_terminal| {
        if is_terminal { to.write_all(look.for_terminal(bytes).as_bytes()) } else { to.write_all(bytes) }
    })
}

/// Ends the colours of job output on a terminal.
pub(crate) fn end_output(stream: Stream, look: &mut JobOutput) -> anyhow::Result<()> {
    with_stream(stream, |to, is_terminal| {
        let end = look.end();
        if is_terminal { to.write_all(end.as_bytes()) } else { Ok(()) }
    })
}

/// Returns true if a stream goes to a terminal.
pub(crate) fn is_terminal(stream: Stream) -> bool {
    match stream {
        Stream::Stdout => io::stdout().is_terminal(),
        Stream::Stderr => io::stderr().is_terminal(),
    }
}

/// Begins a new line on a terminal.
pub(crate) fn end_line(stream: Stream) -> anyhow::Result<()> {
    with_stream(stream, |to, is_terminal| if is_terminal { to.write_all(b"\n") } else { Ok(()) })
}

fn with_stream(
    stream: Stream,
    write: impl FnOnce(&mut dyn Write, bool) -> io::Result<()>,
) -> anyhow::Result<()> {
    let written = match stream {
        Stream::Stdout => {
            let (mut to, is_terminal) = (io::stdout().lock(), io::stdout().is_terminal());
            write(&mut to, is_terminal).and_then(|()| to.flush())
        }
        Stream::Stderr => write(&mut io::stderr().lock(), io::stderr().is_terminal()),
    };
    written.map_err(ended)
}

/// Writes records unchanged to a file, or with visible control characters to a terminal.
pub(crate) fn records(bytes: &[u8], text: &mut Utf8Stream) -> anyhow::Result<()> {
    if !io::stdout().is_terminal() {
        return raw(bytes);
    }
    // CSV ends its lines with CRLF; a terminal needs no CR.
    let text = text.decode(bytes).replace('\r', "");
    raw(shown(&text, |c| c == '\n' || c == '\t').as_bytes())
}

/// Prints a line to standard error, beside the result.
pub(crate) fn note(text: &str) {
    // Writing fails if standard error is closed, which does not matter for the result.
    // One write for the whole line: standard error is not buffered, and others may write to it.
    let _ = io::stderr().write_all(format!("{}\n", visible(text)).as_bytes());
}

/// Prints several lines to standard error.
pub(crate) fn note_lines(text: &str) {
    let _ = io::stderr().write_all(format!("{}\n", shown(text, |c| c == '\n')).as_bytes());
}

/// Returns true if standard error is a terminal that shows colours.
pub(crate) fn stderr_has_colour() -> bool {
    io::stderr().is_terminal() && wants_colour()
}

/// Returns true if standard output is a terminal that shows colours.
pub(crate) fn stdout_has_colour() -> bool {
    io::stdout().is_terminal() && wants_colour()
}

fn wants_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Formats a number of bytes: `17 B`, `1.5 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    let unit = UNITS.iter().rev().find(|(_, shift)| bytes >> shift > 0);
    match unit {
        None => format!("{bytes} B"),
        Some((name, shift)) => {
            let tenths = (u128::from(bytes) * 10) >> shift;
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
    }
}

const UNITS: [(&str, u32); 4] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];

/// A number with its noun, such as `1 job` or `2 jobs`.
pub(crate) fn counted(count: impl Into<u64>, noun: &str) -> String {
    match count.into() {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

/// Replaces every control character by a symbol, so that one line stays one line.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    shown(text, |_| false)
}

fn shown(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| is_terminal_control(c) && !keep(c)) {
        return Cow::Borrowed(text);
    }
    text.chars().map(|c| if is_terminal_control(c) && !keep(c) { symbol(c) } else { c }).collect()
}

fn symbol(c: char) -> char {
    match c {
        // Unicode has symbols for the 32 control characters from U+2400 on.
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)).unwrap_or(char::REPLACEMENT_CHARACTER),
        '\x7f' => '\u{2421}',
        _ => char::REPLACEMENT_CHARACTER,
    }
}

fn ended(error: io::Error) -> anyhow::Error {
    if error.kind() == io::ErrorKind::BrokenPipe {
        Failure::silent(Exit::OutputClosed).into()
    } else {
        anyhow::Error::new(error).context("cannot write the result")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_drive_terminals_are_shown_as_symbols() {
        assert_eq!(visible("a\x1b[2Jb\r\n\x7f\u{9b}\u{202e}"), "a␛[2Jb␍␊␡\u{fffd}\u{fffd}");
        assert_eq!(visible("größer 🚢"), "größer 🚢");
    }

    #[test]
    fn sizes_are_told_in_the_unit_that_fits() {
        let told = [0, 1_023, 1_024, 1_535, 5 << 20, 3 << 40].map(size);
        assert_eq!(told, ["0 B", "1023 B", "1.0 KiB", "1.4 KiB", "5.0 MiB", "3.0 TiB"]);
    }
}
