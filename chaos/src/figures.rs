//! What came of rounds, as one line of JSON each: lines of many runs can be summed.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::check::Verdict;

/// The figures of one round, or the sum of many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Which kind of round.
    pub form: String,
    /// Its chance.
    pub seed: u64,
    /// How many rounds.
    pub rounds: u64,
    /// How long they took.
    pub seconds: u64,
    /// How often each fault struck.
    pub faults: BTreeMap<String, u64>,
    /// How many requests for jobs were sent.
    pub requests: u64,
    /// How requests were answered, by status; some were more than once, some never.
    pub answers: BTreeMap<u16, u64>,
    /// How many jobs there were, by what ran them.
    pub jobs: BTreeMap<String, u64>,
    /// How attempts ended.
    pub outcomes: BTreeMap<String, u64>,
    /// How many attempts have witnessed their start.
    pub starts_witnessed: u64,
    /// Reports of superseded attempts, recorded and not believed.
    pub late_reports: u64,
    /// How long it took until no container was left, in the slowest round.
    pub slowest_clearing_s: u64,
    /// What was wrong. Empty is what is wanted.
    pub verdicts: BTreeMap<Verdict, u64>,
    /// Rounds that could not be played to their end.
    pub broken: u64,
}

impl Figures {
    /// Whether every promise was kept.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.verdicts.is_empty() && self.broken == 0
    }

    /// Adds those of other rounds.
    pub fn add(&mut self, other: &Self) {
        self.rounds += other.rounds;
        self.seconds += other.seconds;
        self.requests += other.requests;
        self.starts_witnessed += other.starts_witnessed;
        self.late_reports += other.late_reports;
        self.slowest_clearing_s = self.slowest_clearing_s.max(other.slowest_clearing_s);
        self.broken += other.broken;
        add_all(&mut self.faults, &other.faults);
        add_all(&mut self.answers, &other.answers);
        add_all(&mut self.jobs, &other.jobs);
        add_all(&mut self.outcomes, &other.outcomes);
        add_all(&mut self.verdicts, &other.verdicts);
    }

    /// Adds a line to a file of results.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn append(&self, results: &Path) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        std::fs::File::options().create(true).append(true).open(results)?.write_all(&line)?;
        Ok(())
    }

    /// The sum of all lines of a file; nothing, if there is none.
    ///
    /// # Errors
    /// It cannot be read, or a line is not what [`Figures::append`] writes.
    pub fn sum(results: &Path) -> anyhow::Result<Self> {
        let mut sum = Self { form: "sum".to_owned(), ..Self::default() };
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
    fn lines_of_many_runs_are_summed() {
        let directory = tempfile::tempdir().unwrap();
        let results = directory.path().join("results.jsonl");
        assert_eq!(Figures::sum(&results).unwrap().rounds, 0);
        let mut one = Figures { rounds: 1, slowest_clearing_s: 7, ..Figures::default() };
        one.faults.insert("kill_server".to_owned(), 3);
        one.append(&results).unwrap();
        one.verdicts.insert(Verdict::Lost, 1);
        one.append(&results).unwrap();
        let sum = Figures::sum(&results).unwrap();
        assert_eq!((sum.rounds, sum.faults["kill_server"], sum.slowest_clearing_s), (2, 6, 7));
        assert_eq!(sum.verdicts[&Verdict::Lost], 1);
        assert!(!sum.is_clean());
    }
}
