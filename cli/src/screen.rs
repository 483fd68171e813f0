//! Where verbs write: tables and JSON on standard output, safe for terminals.
//!
//! Text that comes from elsewhere (names, reasons, output of containers) could drive the terminal that shows it. In tables its control
//! characters are always shown as symbols; a container's output is only touched if it goes to a terminal. A reader that has gone away
//! (`longshore ls | head -1`) is no error.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use comfy_table::{CellAlignment, Table, presets};

use crate::failure::{Exit, Failure};
use crate::text::Text;

/// How results are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs: what the server answered.
    Json,
}

/// What every verb takes that needs no server.
#[derive(Debug, clap::Args)]
pub(crate) struct Shape {
    /// How the result is written: table for people, json for programs.
    #[arg(
        short = 'o',
        long = "output",
        env = "LONGSHORE_OUTPUT",
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        hide_possible_values = true
    )]
    pub(crate) format: Format,
}

/// Writes a line to standard output.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    raw(format!("{text}\n").as_bytes())
}

/// Writes bytes of our own to standard output.
pub(crate) fn raw(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(ended)
}

/// Writes a JSON value to standard output, over several lines if people may look at it.
pub(crate) fn json(value: &serde_json::Value) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    line(&text)
}

/// Writes rows under a heading, in columns. A column whose heading begins with `>` is aligned to the right.
pub(crate) fn table(heading: &[&str], rows: Vec<Vec<String>>) -> anyhow::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(heading.iter().map(|name| name.trim_start_matches('>')));
    for row in rows {
        table.add_row(row.iter().map(|cell| visible(cell).into_owned()));
    }
    for (column, name) in table.column_iter_mut().zip(heading) {
        column.set_padding((0, 2));
        if name.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    line(&table.trim_fmt())
}

/// Writes what there is to know of one thing, a line each; empty is what there is nothing to say of.
pub(crate) fn facts(facts: &[(&str, String)]) -> anyhow::Result<()> {
    for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
        line(&format!("{name:<12} {}", visible(value)))?;
    }
    Ok(())
}

/// Which of a container's streams some bytes belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stream {
    /// Its standard output goes to ours.
    Stdout,
    /// Its standard error goes to ours.
    Stderr,
}

impl Stream {
    /// As the API calls it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Writes a container's output as it is; to a terminal as the text of this stream, with its control characters made visible.
pub(crate) fn output(stream: Stream, bytes: &[u8], text: &mut Text) -> anyhow::Result<()> {
    match stream {
        Stream::Stdout => pass_on(&mut io::stdout().lock(), io::stdout().is_terminal(), bytes, text),
        Stream::Stderr => pass_on(&mut io::stderr().lock(), io::stderr().is_terminal(), bytes, text),
    }
}

fn pass_on(to: &mut dyn Write, is_terminal: bool, bytes: &[u8], text: &mut Text) -> anyhow::Result<()> {
    let written = if is_terminal {
        let text = text.go_on(bytes);
        to.write_all(shown(&text, |c| c == '\n' || c == '\t').as_bytes())
    } else {
        to.write_all(bytes)
    };
    written.and_then(|()| to.flush()).map_err(ended)
}

/// Tells a person something beside the result, on standard error.
pub(crate) fn note(text: &str) {
    // Nobody may be listening on standard error; the result does not depend on it.
    let _ = writeln!(io::stderr(), "{}", visible(text));
}

/// Tells a person something that takes more than a line, on standard error.
pub(crate) fn paragraph(text: &str) {
    let _ = writeln!(io::stderr(), "{}", shown(text, |c| c == '\n'));
}

/// Whether standard error takes colours.
pub(crate) fn stderr_has_colour() -> bool {
    io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// So many bytes, for people: `17 B`, `1.5 MiB`.
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

/// The text with every character that could drive a terminal shown as a symbol; one line stays one line.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    shown(text, |_| false)
}

fn shown(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| drives_terminal(c) && !keep(c)) {
        return Cow::Borrowed(text);
    }
    text.chars().map(|c| if drives_terminal(c) && !keep(c) { symbol(c) } else { c }).collect()
}

/// Control characters, and those that turn the direction of writing.
const fn drives_terminal(c: char) -> bool {
    matches!(c, '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn symbol(c: char) -> char {
    match c {
        // Unicode's pictures of the 32 control characters begin at U+2400.
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)).unwrap_or(char::REPLACEMENT_CHARACTER),
        '\x7f' => '\u{2421}',
        _ => char::REPLACEMENT_CHARACTER,
    }
}

fn ended(error: io::Error) -> anyhow::Error {
    if error.kind() == io::ErrorKind::BrokenPipe {
        Failure::silent(Exit::ReaderGone).into()
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

    #[test]
    fn output_for_a_file_stays_as_it_is_and_for_a_terminal_is_made_safe() {
        let (mut file, mut text) = (Vec::new(), Text::default());
        pass_on(&mut file, false, b"\x1b]0;x\x07\xff\n", &mut text).unwrap();
        assert_eq!(file, b"\x1b]0;x\x07\xff\n");
        let mut terminal = Vec::new();
        pass_on(&mut terminal, true, b"\x1b]0;x\x07\xff\tok\n", &mut text).unwrap();
        assert_eq!(String::from_utf8(terminal).unwrap(), "␛]0;x␇\u{fffd}\tok\n");
    }

    #[test]
    fn half_a_character_waits_for_its_rest_on_a_terminal_and_not_in_a_file() {
        let (first, second) = "€\n".as_bytes().split_at(2);
        for (is_terminal, at_once) in [(true, &b""[..]), (false, first)] {
            let (mut shown, mut text) = (Vec::new(), Text::default());
            pass_on(&mut shown, is_terminal, first, &mut text).unwrap();
            assert_eq!(shown, at_once);
            pass_on(&mut shown, is_terminal, second, &mut text).unwrap();
            assert_eq!(String::from_utf8(shown).unwrap(), "€\n");
        }
    }
}
