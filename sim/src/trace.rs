//! The trace of a run, for people; and as one number, for machines. Nothing is put into words unless somebody wants to read it.

mod words;

use std::fmt::Write as _;

pub(crate) use words::{answer, change, input, order, worker_effect, worker_input};

use crate::clock::Moment;
use crate::dice::mix;

#[derive(Debug, Default)]
pub(crate) struct Trace {
    lines: Option<String>,
    pub(crate) hash: u64,
}

impl Trace {
    pub(crate) fn new(wanted: bool) -> Self {
        Self { lines: wanted.then(String::new), hash: 0 }
    }

    /// Takes a number into the hash.
    pub(crate) const fn mix(&mut self, word: u64) {
        self.hash = mix(self.hash.rotate_left(7) ^ word);
    }

    /// Notes a line; one without words is left out.
    pub(crate) fn say(&mut self, now: Moment, words: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            let millis = now.0 / 1_000_000;
            let _ = writeln!(lines, "{:>6}.{:03}  {}", millis / 1_000, millis % 1_000, words());
        }
    }

    pub(crate) fn into_lines(self) -> String {
        self.lines.unwrap_or_default()
    }
}
