//! Job output on a terminal.
//!
//! Colours pass, and so do the carriage returns of a progress bar. Each other control character is shown as a symbol: output could
//! otherwise move the cursor, set the title, or answer for the keyboard.

use super::{shown, wants_colour};
use crate::stream::Stream;
use crate::utf8::Utf8Stream;

/// The look of the output of a job.
#[derive(Debug, Default)]
pub(crate) struct JobOutputs {
    stdout: JobOutput,
    stderr: JobOutput,
}

impl JobOutputs {
    /// Output whose lines have a prefix if `has_prefixes` says so.
    pub(crate) fn new(has_prefixes: bool) -> Self {
        Self { stdout: JobOutput::new(has_prefixes), stderr: JobOutput::new(has_prefixes) }
    }

    /// The look of a stream.
    pub(crate) const fn of(&mut self, stream: Stream) -> &mut JobOutput {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

/// The look of the output of one stream, from chunk to chunk.
#[derive(Debug, Default)]
pub(crate) struct JobOutput {
    /// An incomplete character at the end of the last chunk.
    pub(crate) text: Utf8Stream,
    /// An incomplete sequence at its end, or a carriage return that may belong to a line break.
    begun: String,
    /// The sequences that have set colours and styles since all of them ended.
    styles: String,
    /// Lines have a prefix, which a carriage return would overwrite.
    has_prefixes: bool,
}

impl JobOutput {
    /// Output whose lines have a prefix if `has_prefixes` says so.
    pub(crate) fn new(has_prefixes: bool) -> Self {
        Self { has_prefixes, ..Self::default() }
    }

    /// The text that a terminal gets for these bytes.
    pub(super) fn for_terminal(&mut self, bytes: &[u8]) -> String {
        let text = self.text.decode(bytes);
        self.filter(&text, wants_colour())
    }

    /// Styles end with each chunk and are set again before the next one: a note in between, or a program that is interrupted, is not printed
    /// in the job's colours.
    fn filter(&mut self, text: &str, with_colours: bool) -> String {
        if text.is_empty() {
            return String::new();
        }
        let mut out = self.styles.clone();
        out.reserve(text.len());
        for c in text.chars() {
            if self.continues_sequence(c) {
                self.begun.push(c);
                if c == SEQUENCE_END {
                    self.end_sequence(&mut out, with_colours);
                }
                continue;
            }
            if c == '\n' && self.begun == "\r" {
                self.begun.clear();
            }
            self.give_up_sequence(&mut out);
            match c {
                ESCAPE => self.begun.push(c),
                '\r' if self.has_prefixes => self.begun.push(c),
                '\n' | '\t' | '\r' => out.push(c),
                _ => out.push_str(&shown(c.encode_utf8(&mut [0; 4]), |_| false)),
            }
        }
        if !self.styles.is_empty() {
            out.push_str(RESET);
        }
        out
    }

    /// An incomplete sequence, whose rest will not come. Further output begins without styles.
    pub(super) fn end(&mut self) -> String {
        let mut out = String::new();
        self.give_up_sequence(&mut out);
        self.styles.clear();
        out
    }

    /// The character may belong to a sequence `ESC [ … m`, which sets colours and styles.
    fn continues_sequence(&self, c: char) -> bool {
        match self.begun.as_str() {
            "" | "\r" => false,
            "\x1b" => c == '[',
            begun => {
                begun.len() < SEQUENCE_MAX && (c.is_ascii_digit() || matches!(c, ';' | ':' | SEQUENCE_END))
            }
        }
    }

    fn end_sequence(&mut self, out: &mut String, with_colours: bool) {
        let sequence = std::mem::take(&mut self.begun);
        if !with_colours {
            return;
        }
        out.push_str(&sequence);
        let is_end = ["\x1b[m", RESET].contains(&sequence.as_str());
        if is_end || self.styles.len() > STYLES_MAX {
            self.styles.clear();
        }
        if !is_end {
            self.styles.push_str(&sequence);
        }
    }

    /// Shows what looked like a sequence and is none.
    fn give_up_sequence(&mut self, out: &mut String) {
        if !self.begun.is_empty() {
            out.push_str(&shown(&std::mem::take(&mut self.begun), |_| false));
        }
    }
}

const ESCAPE: char = '\x1b';

/// The last character of a sequence that sets colours and styles.
const SEQUENCE_END: char = 'm';

/// Characters of a sequence; the longest useful one sets two colours by their red, green and blue.
const SEQUENCE_MAX: usize = 64;

/// Bytes of the sequences that are set again. A job that sets one after another without an end keeps the latest ones.
const STYLES_MAX: usize = 512;

/// Ends all colours and styles.
const RESET: &str = "\x1b[0m";

#[cfg(test)]
mod tests {
    use super::*;

    fn filtered(chunks: &[&str], with_colours: bool) -> String {
        let mut output = JobOutput::default();
        let text: String = chunks.iter().map(|chunk| output.filter(chunk, with_colours)).collect();
        text + &output.end()
    }

    #[test]
    fn colours_pass_and_end_with_the_output() {
        assert_eq!(filtered(&["\x1b[1;31mred\x1b[0m plain\n"], true), "\x1b[1;31mred\x1b[0m plain\n");
        assert_eq!(filtered(&["\x1b[38:2:1:2:3mred\n"], true), "\x1b[38:2:1:2:3mred\n\x1b[0m");
        assert_eq!(filtered(&["\x1b[32mok\x1b[m"], true), "\x1b[32mok\x1b[m", "the short form of the end");
    }

    #[test]
    fn colours_end_with_each_chunk_and_go_on_with_the_next() {
        let mut output = JobOutput::default();
        assert_eq!(output.filter("\x1b[1m\x1b[31mred\n", true), "\x1b[1m\x1b[31mred\n\x1b[0m");
        assert_eq!(output.filter("", true), "");
        assert_eq!(output.filter("more\n\x1b[0mplain\n", true), "\x1b[1m\x1b[31mmore\n\x1b[0mplain\n");
        assert_eq!(output.filter("plain\n", true), "plain\n");
        let endless = output.filter(&"\x1b[31mx".repeat(1_000), true);
        assert!(endless.ends_with("x\x1b[0m") && output.styles.len() <= STYLES_MAX + SEQUENCE_MAX);
        let _ = output.end();
        assert_eq!(
            output.filter("plain\n", true),
            "plain\n",
            "an attempt begins without those of the one before"
        );
    }

    #[test]
    fn a_sequence_in_several_chunks_is_one() {
        assert_eq!(filtered(&["a\x1b", "[3", "1mb\x1b[0m"], true), "a\x1b[31mb\x1b[0m");
        assert_eq!(filtered(&["a\x1b", "[3"], true), "a␛[3", "its end did not come");
    }

    #[test]
    fn colours_are_left_out_if_nobody_wants_them() {
        assert_eq!(filtered(&["\x1b[1;31mred\x1b[0m\n"], false), "red\n");
    }

    #[test]
    fn other_sequences_are_shown() {
        assert_eq!(filtered(&["\x1b[2J\x1b]0;x\x07\x1b[?25l"], true), "␛[2J␛]0;x␇␛[?25l");
        assert_eq!(filtered(&["\x1b\x1b[31mx\x1b[0m"], true), "␛\x1b[31mx\x1b[0m");
        let endless = format!("\x1b[{}m", "1;".repeat(40));
        assert!(!filtered(&[&endless], true).contains(ESCAPE), "longer than any that is of use");
    }

    #[test]
    fn a_progress_bar_may_return_to_the_start_of_its_line_but_not_to_that_of_a_prefix() {
        assert_eq!(filtered(&["10 %\r20 %\r\n"], true), "10 %\r20 %\r\n");
        let mut prefixed = JobOutput::new(true);
        assert_eq!(prefixed.filter("12:00 10 %\r20 %\r\n", true), "12:00 10 %␍20 %\n");
        assert_eq!(prefixed.filter("a\r", true) + &prefixed.filter("\nb\r", true) + &prefixed.end(), "a\nb␍");
    }
}
