//! Checks answers against the database: accepted jobs exist once and completely, and do not change after their end.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Violation::{
    Changed, Duplicated, LostOrAltered, PartialBatch, StaleReportApplied, Unexpected, WrongAnswer,
};
use super::{Finding, RoundRecords, Rows, finding};
use crate::history::Event;
use crate::store::has_ended;

/// One request, with all answers to it.
#[derive(Default)]
struct Request<'a> {
    count: u64,
    key: Option<&'a str>,
    answered_jobs: BTreeSet<u64>,
}

/// Checks the answers to requests for new jobs.
pub(super) fn check_requests(records: &RoundRecords, rows: &Rows<'_>, findings: &mut Vec<Finding>) {
    let requests = gather(&records.history, findings);
    let mut by_label: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for job in rows.jobs.values() {
        match job.label.as_deref().filter(|label| requests.contains_key(label)) {
            Some(label) => by_label.entry(label).or_default().push(job.id),
            None => findings
                .push(finding(Unexpected, format!("job {} ({}): no client asked for it", job.id, job.name))),
        }
    }
    let keys: HashMap<&str, u64> =
        records.store.keys.iter().map(|(key, job, _)| (key.as_str(), *job)).collect();
    for (label, request) in &requests {
        let made = by_label.get(label).map_or(&[][..], Vec::as_slice);
        compare(label, request, made, findings);
        let answered = request.answered_jobs.first();
        if let (Some(key), Some(answered)) = (request.key, answered)
            && keys.get(key) != Some(answered)
        {
            let text =
                format!("the key {key} was answered with job {answered}, and belongs to {:?}", keys.get(key));
            findings.push(finding(Duplicated, text));
        }
    }
}

fn gather<'a>(history: &'a [Event], findings: &mut Vec<Finding>) -> BTreeMap<&'a str, Request<'a>> {
    let mut requests: BTreeMap<&str, Request<'_>> = BTreeMap::new();
    for event in history {
        match event {
            Event::Submit { label, count, key } => {
                let request = requests.entry(label).or_default();
                (request.count, request.key) = (*count, key.as_deref());
            }
            Event::Answered { label, status, job } => {
                if !EXPECTED_STATUSES.contains(status) || (*status < 300) != job.is_some() {
                    findings.push(finding(WrongAnswer, format!("request {label}: {status}, job {job:?}")));
                }
                if let Some(request) = requests.get_mut(label.as_str()) {
                    request.answered_jobs.extend(job);
                }
            }
            // Expected: cancelled, already ended, server busy, or storage unavailable.
            Event::Cancelled { job, status } if !matches!(status, 200 | 202 | 409 | 503) => {
                findings.push(finding(WrongAnswer, format!("cancel of job {job}: {status}")));
            }
            Event::Cancelled { .. } | Event::Seen { .. } | Event::Fault { .. } => {}
        }
    }
    requests
}

fn compare(label: &str, request: &Request<'_>, made: &[u64], findings: &mut Vec<Finding>) {
    let mut report_finding = |violation, what: &str| {
        let text = format!(
            "request {label} for {} jobs, answered with {:?}, made {made:?}: {what}",
            request.count, request.answered_jobs
        );
        findings.push(finding(violation, text));
    };
    if request.answered_jobs.len() > 1 {
        report_finding(Duplicated, "it was answered with different jobs");
    }
    let Some(first) = made.first() else {
        if !request.answered_jobs.is_empty() {
            report_finding(LostOrAltered, "accepted, and missing");
        }
        return;
    };
    let in_a_row = made.iter().zip(*first..).all(|(made, expected)| *made == expected);
    match (made.len() as u64).cmp(&request.count) {
        std::cmp::Ordering::Greater => report_finding(Duplicated, "too many jobs"),
        std::cmp::Ordering::Less => report_finding(PartialBatch, "jobs are missing"),
        std::cmp::Ordering::Equal if !in_a_row => report_finding(PartialBatch, "ids are not consecutive"),
        std::cmp::Ordering::Equal => {}
    }
    if request.answered_jobs.iter().any(|job| job != first) {
        report_finding(LostOrAltered, "the first job is not the one in the answer");
    }
}

/// Checks the job states that clients saw, in order.
pub(super) fn check_seen_states(records: &RoundRecords, rows: &Rows<'_>, findings: &mut Vec<Finding>) {
    let mut ended: HashMap<u64, &Event> = HashMap::new();
    let mut newest: HashMap<u64, u64> = HashMap::new();
    for event in &records.history {
        let Event::Seen { job, status, state, fence, exit_code } = event else { continue };
        if matches!(*status, 404 | 410) {
            findings.push(finding(
                LostOrAltered,
                format!("job {job} was accepted, and later there was no such job"),
            ));
        } else if !matches!(*status, 200 | 503) {
            findings.push(finding(WrongAnswer, format!("job {job}: {status}")));
        }
        if *status != 200 {
            continue;
        }
        if let Some(before) = ended.get(job)
            && *before != event
        {
            findings.push(finding(Changed, format!("job {job} had ended as {before:?}, then as {event:?}")));
        }
        if let Some(fence) = fence {
            let newest = newest.entry(*job).or_insert(*fence);
            if fence < newest {
                let text = format!("job {job}: its fence was {newest}, and then {fence}");
                findings.push(finding(StaleReportApplied, text));
            }
            *newest = (*newest).max(*fence);
        }
        if has_ended(state) {
            ended.entry(*job).or_insert(event);
            check_end(*job, state, (*fence, *exit_code), rows, findings);
        }
    }
}

/// Checks that a job that a client saw as ended has the same end in the database.
fn check_end(
    job: u64,
    state: &str,
    end: (Option<u64>, Option<i64>),
    rows: &Rows<'_>,
    findings: &mut Vec<Finding>,
) {
    let Some(row) = rows.jobs.get(&job) else {
        findings.push(finding(
            LostOrAltered,
            format!("job {job} was seen as {state}, and is not in the database"),
        ));
        return;
    };
    let code = rows.attempts(job).iter().find(|it| Some(it.fence) == row.fence).and_then(|it| it.exit_code);
    if (row.state.as_str(), row.fence, code) != (state, end.0, end.1) {
        let text = format!(
            "job {job} was seen as {state} by {end:?}, and is stored as {} by {:?}",
            row.state,
            (row.fence, code)
        );
        findings.push(finding(Changed, text));
    }
}

/// Created by an earlier request with the key, created, unavailable, disk full.
const EXPECTED_STATUSES: [u16; 4] = [200, 201, 503, 507];
