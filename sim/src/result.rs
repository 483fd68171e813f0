//! The sum of many runs: one line of JSON for machines, a few lines for people.

use std::process::ExitCode;

use crate::coverage::Coverage;
use crate::oracle::Violation;
use crate::world::Outcome;

/// The sum of many runs.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    pub(crate) first: u64,
    pub(crate) threads: usize,
    pub(crate) seconds: f64,
    pub(crate) seeds: u64,
    pub(crate) transitions: u64,
    pub(crate) coverage: Coverage,
    pub(crate) failure: Option<Failure>,
}

#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) seed: u64,
    pub(crate) violation: Violation,
}

impl Sum {
    pub(crate) fn take(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.transitions += outcome.transitions;
        self.coverage.add(&outcome.coverage);
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.transitions += other.transitions;
        self.coverage.add(&other.coverage);
        self.failure = self.failure.take().or(other.failure);
    }

    pub(crate) fn print(&self) {
        for (name, count) in self.coverage.counts() {
            println!("{count:>12}  {name}");
        }
        let rate = self.transitions as f64 / self.seconds / self.threads as f64;
        println!(
            "{{\"seed\":{},\"seeds\":{},\"transitions\":{},\"seconds\":{:.1},\"threads\":{},\
             \"transitions_per_second_and_thread\":{rate:.0},\"missed\":{},\"violations\":{},\"rule\":{}}}",
            self.first,
            self.seeds,
            self.transitions,
            self.seconds,
            self.threads,
            self.coverage.missed().len(),
            u32::from(self.failure.is_some()),
            self.failure.as_ref().map_or("null".to_owned(), |it| format!("{:?}", it.violation.rule)),
        );
    }

    /// A run that is large enough must have hit everything.
    pub(crate) fn verdict(&self) -> ExitCode {
        let missed = self.coverage.missed();
        if self.transitions < LARGE || missed.is_empty() {
            return ExitCode::SUCCESS;
        }
        println!("never hit: {}", missed.join(", "));
        ExitCode::FAILURE
    }
}

/// From this number of transitions on, what was never hit cannot be chance.
const LARGE: u64 = 5_000_000;
