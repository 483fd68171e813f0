//! The command line.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;

/// Run the state machines of server and workers against each other in virtual time, with faults, and check what must hold.
#[derive(Clone, Debug, Parser)]
#[command(after_help = "Examples:
  cargo run --release -p longshore-sim -- --transitions 20000000
  cargo run --release -p longshore-sim -- --replay 1763654400000 --trace")]
pub(crate) struct Options {
    /// Run seeds until this number of transitions has been made: steps of a state machine that changed something or had an effect
    #[arg(long, value_name = "N", default_value_t = 5_000_000, value_parser = count)]
    pub(crate) transitions: u64,
    /// The first seed; by default taken from the clock, and printed
    #[arg(long, value_name = "S", conflicts_with = "seeds")]
    pub(crate) seed: Option<u64>,
    /// Exactly these seeds, whatever number of transitions they make
    #[arg(long, value_name = "A..B", value_parser = range)]
    pub(crate) seeds: Option<Range<u64>>,
    /// How many threads run seeds; by default one per core
    #[arg(long, visible_alias = "threads", value_name = "T")]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Run this seed only, and shrink what it violates
    #[arg(long, value_name = "SEED")]
    pub(crate) replay: Option<u64>,
    /// Print what happens
    #[arg(long, requires = "replay")]
    pub(crate) trace: bool,
    /// Only say what was violated: do not look for the shortest story that leads there
    #[arg(long)]
    pub(crate) brief: bool,
}

impl Options {
    /// The first seed, and the one after the last if that is said.
    pub(crate) fn range(&self) -> (u64, Option<u64>) {
        match (&self.seeds, self.seed) {
            (Some(seeds), _) => (seeds.start, Some(seeds.end)),
            (None, Some(first)) => (first, None),
            (None, None) => (fresh(), None),
        }
    }

    pub(crate) fn threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.jobs.map_or(cores, NonZeroUsize::get)
    }
}

/// A seed that no run before has begun with: milliseconds, so that two runs never share a range of any length that matters.
fn fresh() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64 * 1_000
}

/// `20000000`, `20_000_000`, `20M`, `1G`.
fn count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.strip_suffix(['M', 'G']) {
        Some(digits) => (digits, if text.ends_with('M') { 1_000_000 } else { 1_000_000_000 }),
        None => (text, 1),
    };
    let number: u64 = digits.replace('_', "").parse().map_err(|_| format!("{text:?} is no number"))?;
    Ok(number.saturating_mul(factor))
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("two seeds with .. between them")?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is no number"));
    let range = number(from)?..number(to)?;
    if range.is_empty() { Err("there is no seed in it".to_owned()) } else { Ok(range) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_be_written_short() {
        assert_eq!(count("20M"), Ok(20_000_000));
        assert_eq!(count("1_000"), Ok(1_000));
        assert_eq!(count("2G"), Ok(2_000_000_000));
        assert!(count("many").is_err());
    }

    #[test]
    fn a_range_of_seeds_has_at_least_one() {
        assert_eq!(range("3..5"), Ok(3..5));
        assert!(range("5..5").is_err());
        assert!(range("5").is_err());
    }
}
