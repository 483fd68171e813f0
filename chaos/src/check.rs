//! Compares the answers that clients got, the marks that jobs wrote, and the database. Every promise that shows in these records has a
//! [`Violation`]. The checker does not use any code of Longshore.

mod answers;
mod attempts;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::history::Event;
use crate::marks::Mark;
use crate::store::{Attempt, Job, StoreContents, has_ended};

/// All records of a round that has ended.
#[derive(Clone, Debug, Default)]
pub struct RoundRecords {
    /// The requests of the clients and the answers to them.
    pub history: Vec<Event>,
    /// The marks that the jobs wrote.
    pub marks: Vec<Mark>,
    /// The rows of the database.
    pub store: StoreContents,
    /// Containers and processes that still existed at the end, in words.
    pub leftovers: Vec<String>,
}

/// A promise that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Violation {
    /// An accepted job is missing, or differs from the answer.
    LostOrAltered,
    /// A request made more jobs than it asked for, or one idempotency key has two jobs.
    Duplicated,
    /// Only a part of a batch exists.
    PartialBatch,
    /// A job exists that no client asked for.
    Unexpected,
    /// An ended job changed later.
    Changed,
    /// A report about a superseded attempt changed the job.
    StaleReportApplied,
    /// The stored outcome is not the one that the attempt had.
    WrongOutcome,
    /// An attempt started more than once.
    StartedTwice,
    /// An attempt ran that was never assigned.
    NeverAssigned,
    /// An attempt started although it was reported as released or as failed to start.
    StartContradicted,
    /// Two attempts of a job ran at once although the definition forbids it.
    Overlapped,
    /// An attempt of an `on_lost: wait` job got a successor before its container was reported gone.
    ReplacedTooEarly,
    /// A container went on after its job was reported as cancelled and its container as gone.
    RanAfterCancel,
    /// A fence was given twice, or the numbers of attempts have a gap.
    FenceOrNumberWrong,
    /// An attempt did not run to its end although the only faults were deploys.
    InterruptedByDeploy,
    /// A container or a process outlived the round.
    Orphaned,
    /// A job is still live, or ended as lost, although all faults were over.
    NotFinished,
    /// A client got an answer that the API must never give.
    WrongAnswer,
}

/// A violation with its details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The broken promise.
    pub violation: Violation,
    /// The job, attempt or request, in words.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.violation, self.text)
    }
}

/// Returns all violations; an empty list if every promise was kept.
#[must_use]
pub fn check(records: &RoundRecords) -> Vec<Finding> {
    let rows = Rows::of(&records.store);
    let mut findings = Vec::new();
    answers::check_requests(records, &rows, &mut findings);
    answers::check_seen_states(records, &rows, &mut findings);
    attempts::check_numbering(&rows, &mut findings);
    attempts::check_marks(records, &rows, &mut findings);
    attempts::check_losses(&rows, &mut findings);
    attempts::check_cancels(&records.marks, &rows, &mut findings);
    attempts::check_outcomes(&records.marks, &rows, &mut findings);
    attempts::check_deploys_interrupt_nothing(records, &rows, &mut findings);
    for job in &records.store.jobs {
        if !has_ended(&job.state) || job.state == "lost" {
            findings.push(finding(
                Violation::NotFinished,
                format!("job {} ({}) is {}", job.id, job.name, job.state),
            ));
        }
    }
    findings.extend(records.leftovers.iter().map(|it| finding(Violation::Orphaned, it.clone())));
    findings
}

/// Counts the findings of each violation.
#[must_use]
pub fn count_by_violation(findings: &[Finding]) -> BTreeMap<Violation, u64> {
    let mut counts = BTreeMap::new();
    for finding in findings {
        *counts.entry(finding.violation).or_default() += 1;
    }
    counts
}

/// The rows of the database, indexed by job.
struct Rows<'a> {
    jobs: BTreeMap<u64, &'a Job>,
    attempts: BTreeMap<u64, Vec<&'a Attempt>>,
}

impl<'a> Rows<'a> {
    fn of(store: &'a StoreContents) -> Self {
        let mut attempts: BTreeMap<u64, Vec<&Attempt>> = BTreeMap::new();
        for attempt in &store.attempts {
            attempts.entry(attempt.job).or_default().push(attempt);
        }
        for of_job in attempts.values_mut() {
            of_job.sort_by_key(|attempt| attempt.number);
        }
        Self { jobs: store.jobs.iter().map(|job| (job.id, job)).collect(), attempts }
    }

    fn attempts(&self, job: u64) -> &[&'a Attempt] {
        self.attempts.get(&job).map_or(&[], Vec::as_slice)
    }
}

fn finding(violation: Violation, text: String) -> Finding {
    Finding { violation, text }
}

#[cfg(test)]
mod tests;
