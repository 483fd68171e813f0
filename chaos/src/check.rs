//! Compares what clients were told, what jobs have witnessed, and what the database holds. Every promise that shows in these three has
//! a verdict here; nothing is known of how it is kept.

mod runs;
mod told;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::history::Event;
use crate::store::{Attempt, Job, Kept};
use crate::truth::Mark;

/// All that is known of a run once it is over.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// What clients did and were told.
    pub history: Vec<Event>,
    /// What jobs have witnessed.
    pub truth: Vec<Mark>,
    /// What the database holds.
    pub kept: Kept,
    /// Containers and processes that were still there when their time was up, in words.
    pub left: Vec<String>,
}

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A job was accepted, and is not there, or not as it was promised.
    Lost,
    /// A request has made more jobs than it asked for, or a key stands for two.
    Duplicated,
    /// A batch is there in part.
    Torn,
    /// A job is there that nobody asked for.
    Unexpected,
    /// An ended job looked different later.
    Changed,
    /// A report about a superseded attempt was believed.
    StaleAccepted,
    /// An outcome is told that the attempt itself did not have.
    Invented,
    /// An attempt was started more than once.
    StartedTwice,
    /// An attempt ran that was never granted.
    Ungranted,
    /// An attempt was given back as unstarted, or is said to have failed to start, and had started.
    StartDenied,
    /// Two attempts of a job ran at once whose definition forbids it.
    Overlapped,
    /// An attempt of an `on_lost: wait` job got a successor, and nobody had told that its container is gone.
    GivenUp,
    /// A job was told to be cancelled, and its container gone, and that one went on.
    WentOn,
    /// A fence was given twice, or attempts are counted with holes.
    Misnumbered,
    /// Nothing but deploys struck, and an attempt did not get to its own end.
    Disturbed,
    /// A container or a process outlived everything.
    Orphaned,
    /// A job has not ended although nothing hindered it any more, or was given up.
    NotEnded,
    /// A client got an answer that it must never get.
    Misanswered,
}

/// A verdict with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub verdict: Verdict,
    /// Where, in words.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.verdict, self.text)
    }
}

/// Everything that is wrong; nothing, if every promise was kept.
#[must_use]
pub fn check(evidence: &Evidence) -> Vec<Finding> {
    let rows = Rows::of(&evidence.kept);
    let mut findings = Vec::new();
    told::requests(evidence, &rows, &mut findings);
    told::sights(evidence, &rows, &mut findings);
    runs::numbers(&rows, &mut findings);
    runs::marks(evidence, &rows, &mut findings);
    runs::losses(&rows, &mut findings);
    runs::cancels(&evidence.truth, &rows, &mut findings);
    runs::outcomes(&evidence.truth, &rows, &mut findings);
    runs::deploys(evidence, &rows, &mut findings);
    for job in &evidence.kept.jobs {
        if !matches!(job.state.as_str(), "succeeded" | "failed" | "cancelled" | "expired") {
            findings
                .push(finding(Verdict::NotEnded, format!("job {} ({}) is {}", job.id, job.name, job.state)));
        }
    }
    findings.extend(evidence.left.iter().map(|it| finding(Verdict::Orphaned, it.clone())));
    findings
}

/// How many of each.
#[must_use]
pub fn count(findings: &[Finding]) -> BTreeMap<Verdict, u64> {
    let mut counts = BTreeMap::new();
    for finding in findings {
        *counts.entry(finding.verdict).or_default() += 1;
    }
    counts
}

/// Rows of the database by what they are looked up by.
struct Rows<'a> {
    jobs: BTreeMap<u64, &'a Job>,
    attempts: BTreeMap<u64, Vec<&'a Attempt>>,
}

impl<'a> Rows<'a> {
    fn of(kept: &'a Kept) -> Self {
        let mut attempts: BTreeMap<u64, Vec<&Attempt>> = BTreeMap::new();
        for attempt in &kept.attempts {
            attempts.entry(attempt.job).or_default().push(attempt);
        }
        for of_job in attempts.values_mut() {
            of_job.sort_by_key(|attempt| attempt.number);
        }
        Self { jobs: kept.jobs.iter().map(|job| (job.id, job)).collect(), attempts }
    }

    fn attempts(&self, job: u64) -> &[&'a Attempt] {
        self.attempts.get(&job).map_or(&[], Vec::as_slice)
    }
}

fn finding(verdict: Verdict, text: String) -> Finding {
    Finding { verdict, text }
}

#[cfg(test)]
mod tests;
