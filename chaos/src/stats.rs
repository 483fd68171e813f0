//! The result of a round as one line of JSON; the lines of many runs can be summed.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::check::Violation;

/// The result of one round, or the sum of many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundStats {
    /// The name of the plan.
    pub profile: String,
    /// The seed.
    pub seed: u64,
    /// Number of rounds.
    pub rounds: u64,
    /// Duration in seconds.
    pub seconds: u64,
    /// Number of times that each fault was injected.
    pub faults: BTreeMap<String, u64>,
    /// Number of requests for jobs.
    pub requests: u64,
    /// Number of answers by HTTP status. A request may have several answers or none.
    pub answers: BTreeMap<u16, u64>,
    /// Number of jobs by runtime.
    pub jobs: BTreeMap<String, u64>,
    /// Number of attempts by outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Number of attempts with a start mark.
    pub starts_marked: u64,
    /// Number of reports about superseded attempts, which were recorded and ignored.
    pub late_reports: u64,
    /// Seconds from the end of all jobs until no container was left, in the slowest round.
    pub slowest_clearing_s: u64,
    /// Number of findings by violation; empty if every promise was kept.
    pub violations: BTreeMap<Violation, u64>,
    /// Number of rounds that panicked.
    pub broken: u64,
}

impl RoundStats {
    /// Returns true if every promise was kept.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.broken == 0
    }

    /// Adds the result of other rounds.
    pub fn add(&mut self, other: &Self) {
        self.rounds += other.rounds;
        self.seconds += other.seconds;
        self.requests += other.requests;
        self.starts_marked += other.starts_marked;
        self.late_reports += other.late_reports;
        self.slowest_clearing_s = self.slowest_clearing_s.max(other.slowest_clearing_s);
        self.broken += other.broken;
        add_all(&mut self.faults, &other.faults);
        add_all(&mut self.answers, &other.answers);
        add_all(&mut self.jobs, &other.jobs);
        add_all(&mut self.outcomes, &other.outcomes);
        add_all(&mut self.violations, &other.violations);
    }

    /// Appends a line to a file of results.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append(&self, results: &Path) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        std::fs::File::options().create(true).append(true).open(results)?.write_all(&line)?;
        Ok(())
    }

    /// Sums all lines of a file; zero if the file is missing.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not what [`RoundStats::append`] writes.
    pub fn sum(results: &Path) -> anyhow::Result<Self> {
        let mut sum = Self { profile: "sum".to_owned(), ..Self::default() };
        if results.exists() {
            for line in std::fs::read_to_string(results)?.lines() {
                sum.add(&serde_json::from_str(line)?);
            }
        }
        Ok(sum)
    }
}

fn add_all<K: Ord + Clone>(sum: &mut BTreeMap<K, u64>, other: &BTreeMap<K, u64>) {
    for (name, count) in other {
        *sum.entry(name.clone()).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_several_runs_are_summed() {
        let directory = tempfile::tempdir().unwrap();
        let results = directory.path().join("results.jsonl");
        assert_eq!(RoundStats::sum(&results).unwrap().rounds, 0);
        let mut one = RoundStats { rounds: 1, slowest_clearing_s: 7, ..RoundStats::default() };
        one.faults.insert("kill_server".to_owned(), 3);
        one.append(&results).unwrap();
        one.violations.insert(Violation::LostOrAltered, 1);
        one.append(&results).unwrap();
        let sum = RoundStats::sum(&results).unwrap();
        assert_eq!((sum.rounds, sum.faults["kill_server"], sum.slowest_clearing_s), (2, 6, 7));
        assert_eq!(sum.violations[&Violation::LostOrAltered], 1);
        assert!(!sum.is_clean());
    }
}
