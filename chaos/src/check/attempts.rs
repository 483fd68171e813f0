//! Checks marks against the database: an attempt ran only if it was assigned, started once, and its stored outcome is its own.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Violation::{
    FenceOrNumberWrong, InterruptedByDeploy, NeverAssigned, Overlapped, RanAfterCancel, ReplacedTooEarly,
    StaleReportApplied, StartContradicted, StartedTwice, WrongOutcome,
};
use super::{Finding, RoundRecords, Rows, finding};
use crate::history::Event;
use crate::load::jobs;
use crate::marks::{Mark, MarkKind};
use crate::store::Attempt;

/// Fences are unique and grow with the number of the attempt. Numbers have no gaps. The latest attempt decides the job.
pub(super) fn check_numbering(rows: &Rows<'_>, findings: &mut Vec<Finding>) {
    let mut given = HashSet::new();
    for (job, attempts) in &rows.attempts {
        for (attempt, expected) in attempts.iter().zip(1..) {
            if attempt.number != expected {
                let text = format!("job {job}: attempt {} where {expected} was expected", attempt.number);
                findings.push(finding(FenceOrNumberWrong, text));
            }
            if !given.insert(attempt.fence) {
                findings.push(finding(
                    FenceOrNumberWrong,
                    format!("the fence {} was given twice", attempt.fence),
                ));
            }
        }
        if !attempts.is_sorted_by_key(|attempt| attempt.fence) {
            findings.push(finding(
                FenceOrNumberWrong,
                format!("job {job}: fences do not grow with the attempt number"),
            ));
        }
        let latest = attempts.iter().map(|attempt| attempt.fence).max();
        let believed = rows.jobs.get(job).and_then(|row| row.fence);
        if latest != believed {
            let text = format!(
                "job {job} has the outcome of fence {believed:?}, and the latest fence is {latest:?}"
            );
            findings.push(finding(StaleReportApplied, text));
        }
    }
}

/// Each attempt starts once, and only if it was assigned. Attempts of an exclusive job do not overlap.
pub(super) fn check_marks(records: &RoundRecords, rows: &Rows<'_>, findings: &mut Vec<Finding>) {
    let marks = &records.marks;
    let mut seen = HashSet::new();
    for mark in marks {
        let (job, fence) = (mark.job, mark.fence);
        if mark.mark != MarkKind::Alive && !seen.insert((job, fence, mark.mark == MarkKind::Start)) {
            let text = format!(
                "job {job}, fence {fence}: a second {:?} mark (pid {} on {})",
                mark.mark, mark.pid, mark.host
            );
            findings.push(finding(StartedTwice, text));
        }
        match rows.attempts(job).iter().find(|attempt| attempt.fence == fence) {
            None if mark.mark == MarkKind::Alive => {}
            None => findings.push(finding(
                NeverAssigned,
                format!("job {job}: fence {fence} ran, and was never assigned"),
            )),
            Some(attempt) => {
                let outcome = attempt.outcome.as_deref().filter(|it| DENIES_A_START.contains(it));
                if let Some(outcome) = outcome.filter(|_| mark.mark == MarkKind::Start) {
                    let text = format!(
                        "job {job}: fence {fence} ran, and is stored as {outcome}, which means never started"
                    );
                    findings.push(finding(StartContradicted, text));
                }
            }
        }
    }
    check_overlaps(records, rows, findings);
}

/// Outcomes that only attempts that never started can have. After `lost` and `daemon_lost` the start is unknown, and `cancelled`,
/// `timed_out` and `interrupted` leave it open.
const DENIES_A_START: [&str; 4] = ["released", "pull_failed", "start_failed", "host_failed"];

/// `self_fence` can stop a container as long as its worker is not killed or frozen and the engine answers.
fn self_fence_works(history: &[Event]) -> bool {
    history.iter().all(|event| match event {
        Event::Fault { kind, .. } => FAULTS_THAT_SPARE_SELF_FENCE.contains(&kind.as_str()),
        _ => true,
    })
}

/// Faults of the server and of its network only.
const FAULTS_THAT_SPARE_SELF_FENCE: [&str; 5] =
    ["kill_server", "pause_server", "deploy_server", "cut", "fill_disk"];

/// After a confirmed cancel, the job's last attempt neither starts nor continues nor ends.
pub(super) fn check_cancels(marks: &[Mark], rows: &Rows<'_>, findings: &mut Vec<Finding>) {
    for mark in marks {
        let Some(row) = rows.jobs.get(&mark.job).filter(|row| row.state == "cancelled" && row.confirmed)
        else {
            continue;
        };
        let is_last = row.fence == Some(mark.fence);
        if let Some(ended) = row.ended_up_ms.filter(|_| is_last)
            && i64::try_from(mark.up_ms).unwrap_or(i64::MAX) > ended + CLOCKS_MS
        {
            let text = format!(
                "job {} was cancelled at {ended}, and fence {}: {:?} at {}",
                mark.job, mark.fence, mark.mark, mark.up_ms
            );
            findings.push(finding(RanAfterCancel, text));
        }
    }
}

/// Tolerance between the wall clock and the boot clock of one machine.
const CLOCKS_MS: i64 = 100;

fn check_overlaps(records: &RoundRecords, rows: &Rows<'_>, findings: &mut Vec<Finding>) {
    let self_fence_works = self_fence_works(&records.history);
    let is_exclusive = |job| {
        rows.jobs.get(&job).is_some_and(|row| {
            jobs::is_exclusive(&row.name) || (self_fence_works && jobs::is_self_fenced(&row.name))
        })
    };
    // A killed attempt has no stop mark. It ran at least until its last sign of life.
    let mut spans: BTreeMap<(u64, u64), (u64, u64)> = BTreeMap::new();
    for mark in records.marks.iter().filter(|mark| is_exclusive(mark.job)) {
        let (began, ended) = spans.entry((mark.job, mark.fence)).or_insert((mark.up_ms, mark.up_ms));
        (*began, *ended) = (mark.up_ms.min(*began), mark.up_ms.max(*ended));
    }
    for ((job, fence), (began, _)) in &spans {
        let earlier = spans
            .range((*job, 0)..=(*job, u64::MAX))
            .filter(|((_, other), span)| other != fence && (span.0, other) < (*began, fence));
        for ((_, other), (_, ended)) in earlier {
            if ended > began {
                let text = format!("job {job}: fence {fence} started while {other} ran");
                findings.push(finding(Overlapped, text));
            }
        }
    }
}

/// An attempt of an `on_lost: wait` job gets no successor before its worker reports that the container is gone.
pub(super) fn check_losses(rows: &Rows<'_>, findings: &mut Vec<Finding>) {
    for (job, _) in rows.jobs.iter().filter(|(_, row)| jobs::is_exclusive(&row.name)) {
        for pair in rows.attempts(*job).windows(2) {
            let [lost, successor] = pair else { continue };
            let Some(assigned) = successor.assigned_ms else { continue };
            let is_lost = lost.outcome.as_deref() == Some("lost");
            if is_lost && lost.reported_gone_ms.is_none_or(|gone| gone > assigned) {
                let text = format!(
                    "job {job}: fence {} was lost, reported gone at {:?}, and {} assigned at {assigned}",
                    lost.fence, lost.reported_gone_ms, successor.fence
                );
                findings.push(finding(ReplacedTooEarly, text));
            }
        }
    }
}

/// The stored exit code of an attempt is the one in its stop mark, and the job ends as its latest attempt did.
pub(super) fn check_outcomes(marks: &[Mark], rows: &Rows<'_>, findings: &mut Vec<Finding>) {
    let stops: HashMap<(u64, u64), i64> =
        marks.iter().filter_map(|mark| Some(((mark.job, mark.fence), mark.code?))).collect();
    for (job, row) in &rows.jobs {
        for attempt in rows.attempts(*job).iter().filter(|_| jobs::leaves_marks(&row.name)) {
            check_outcome(attempt, rows.attempts(*job), &stops, findings);
        }
        let latest = rows.attempts(*job).iter().find(|attempt| Some(attempt.fence) == row.fence);
        let end = latest.and_then(|attempt| attempt.outcome.as_deref());
        if matches!(row.state.as_str(), "succeeded" | "failed") && end != Some(row.state.as_str()) {
            findings.push(finding(
                WrongOutcome,
                format!("job {job} is {}, its latest attempt {end:?}", row.state),
            ));
        }
    }
}

/// A deploy interrupts no job: if there were no other faults, every started attempt stops by itself and none is lost.
pub(super) fn check_deploys_interrupt_nothing(
    records: &RoundRecords,
    rows: &Rows<'_>,
    findings: &mut Vec<Finding>,
) {
    let are_deploys: Vec<bool> = records
        .history
        .iter()
        .filter_map(|event| match event {
            Event::Fault { kind, .. } => Some(kind.starts_with("deploy")),
            _ => None,
        })
        .collect();
    if are_deploys.is_empty() || are_deploys.contains(&false) {
        return;
    }
    let stopped: HashSet<u64> =
        records.marks.iter().filter(|it| it.mark == MarkKind::Stop).map(|it| it.fence).collect();
    let cancelled = |mark: &&Mark| {
        rows.attempts(mark.job)
            .iter()
            .any(|it| it.fence == mark.fence && it.outcome.as_deref() == Some("cancelled"))
    };
    let started = records.marks.iter().filter(|it| it.mark == MarkKind::Start);
    for mark in started.filter(|it| !stopped.contains(&it.fence) && !cancelled(it)) {
        findings.push(finding(
            InterruptedByDeploy,
            format!("job {}: fence {} never stopped by itself", mark.job, mark.fence),
        ));
    }
    for (job, row) in rows.jobs.iter().filter(|(_, row)| jobs::leaves_marks(&row.name)) {
        for attempt in rows.attempts(*job) {
            if !matches!(attempt.outcome.as_deref(), Some("succeeded" | "failed" | "released" | "cancelled"))
            {
                let text =
                    format!("job {job} ({}): fence {} is {:?}", row.name, attempt.fence, attempt.outcome);
                findings.push(finding(InterruptedByDeploy, text));
            }
        }
    }
}

fn check_outcome(
    attempt: &Attempt,
    all: &[&Attempt],
    stops: &HashMap<(u64, u64), i64>,
    findings: &mut Vec<Finding>,
) {
    let Some(outcome @ ("succeeded" | "failed")) = attempt.outcome.as_deref() else { return };
    let (job, fence) = (attempt.job, attempt.fence);
    let actual = stops.get(&(job, fence)).copied();
    if actual.is_some() && actual == attempt.exit_code && (actual == Some(0)) == (outcome == "succeeded") {
        return;
    }
    let of_another =
        all.iter().find(|it| it.fence != fence && stops.get(&(job, it.fence)).copied() == attempt.exit_code);
    let stored = attempt.exit_code;
    match of_another.filter(|_| stored.is_some()) {
        Some(other) => {
            let text =
                format!("job {job}: fence {fence} has the exit code {stored:?} of fence {}", other.fence);
            findings.push(finding(StaleReportApplied, text));
        }
        None => {
            let text = format!(
                "job {job}: fence {fence} {outcome} with {stored:?}, and its stop mark has {actual:?}"
            );
            findings.push(finding(WrongOutcome, text));
        }
    }
}
