//! The list of what a person should look at, with a link to each page behind it. Counts come from the published snapshot: nothing here
//! scans waiting jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::{Timestamp, WorkerId};
use scheduler::expectations::ExpectationRow;
use scheduler::fleet::row::WorkerRow as StoredWorker;
use scheduler::origin::Intervention;
use scheduler::pauses::PauseTarget;
use scheduler::snapshot::Snapshot;
use scheduler::step::PendingReason;

use super::format;
use super::jobs::first_page;
use super::workers::WorkerRow;
use crate::auth::actor::Actor;
use crate::auth::role::Permission;
use crate::clock;
use crate::http::api::{health, notifications};
use crate::http::middleware::problem::Problem;
use crate::http::present::pending_text::pending_text;
use crate::http::present::shapes::{Pause, Worker};
use crate::http::request::query::encode;
use crate::http::state::AppState;
use crate::store::{Archive, TokenRow};

/// Something that a person should look at.
pub(super) struct Attention {
    pub(super) tone: &'static str,
    pub(super) text: String,
    /// The page behind it, below the base path; empty if there is none.
    pub(super) link: String,
}

/// Quarantined jobs that are counted.
const QUARANTINED_MAX: usize = 100;
/// Failing targets of notifications that are named; the page behind the link has all of them.
const FAILING_TARGETS: usize = 5;
/// Pauses that are named.
const PAUSES: usize = 10;
/// Workers, and definitions with a missed expectation, that are named.
const NAMED: usize = 20;
/// Tokens in use that expire within this time are named.
const TOKEN_EXPIRES_WITHIN: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Definitions that the text about waiting jobs names, and that its link selects.
const WAITING_NAMED: usize = 3;

fn entry(tone: &'static str, text: String, link: &str) -> Attention {
    Attention { tone, text, link: link.to_owned() }
}

/// The most urgent first: the server itself, workers, jobs that wait in vain or for a decision, missed expectations, definitions that fail,
/// and what is paused.
pub(super) async fn list(
    state: &AppState,
    all_workers: &[Worker],
    unresolved: &BTreeMap<String, u64>,
) -> Result<Vec<Attention>, Problem> {
    let snapshot = state.services.engine.snapshot();
    let mut all: Vec<Attention> =
        health::server_warnings(state).into_iter().map(|text| entry("bad", text, "")).collect();
    if Actor::current().role.allows(Permission::Administer) {
        all.extend(capped(tokens(state), "/audit", "more tokens in use expire soon"));
    }
    let mut of_workers = workers(all_workers);
    of_workers.extend(lost_workers(state, all_workers).await?);
    all.extend(capped(of_workers, "/workers?all=1", "more workers need attention"));
    all.extend(capped(missing_secrets(state), "/definitions", "more definitions wait for secrets"));
    all.extend(waiting(&snapshot));
    for message in notifications::failing(state).await?.into_iter().take(FAILING_TARGETS) {
        let error = message.error.unwrap_or_default();
        let text = format!("notifications to {} {} fail: {error}", message.kind, message.host);
        all.push(entry("bad", text, "/notifications"));
    }
    let limit = QUARANTINED_MAX.to_string();
    let quarantined = first_page(state, &[("state", "quarantined"), ("limit", limit.as_str())]).await?.len();
    if quarantined > 0 {
        let text = match quarantined {
            1 => "1 job is quarantined: it waits for a decision".to_owned(),
            QUARANTINED_MAX.. => {
                format!("{quarantined} or more jobs are quarantined: each waits for a decision")
            }
            _ => format!("{quarantined} jobs are quarantined: each waits for a decision"),
        };
        all.push(entry("warn", text, "/jobs?state=quarantined"));
    }
    let missed = snapshot.missed.iter().map(|row| missed(state, row)).collect();
    all.extend(capped(missed, "/definitions", "more definitions are stale or slow"));
    all.extend(capped(
        failing(unresolved),
        "/jobs?unresolved=1",
        "more definitions have failures that nobody has dealt with",
    ));
    all.extend(paused(&snapshot).map(|(text, link)| entry("warn", text, &link)));
    Ok(all)
}

/// Definitions with failures that nobody has dealt with, those with the most first.
fn failing(unresolved: &BTreeMap<String, u64>) -> Vec<Attention> {
    let mut all: Vec<(&String, &u64)> = unresolved.iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let line = |(name, count): (&String, &u64)| {
        let query = encode([("name", name.as_str()), ("unresolved", "1")]);
        let failures = if *count == 1 { "failure" } else { "failures" };
        let text = format!("{name}: {count} {failures} that nobody has dealt with");
        entry("bad", text, &format!("/jobs?{query}"))
    };
    all.into_iter().map(line).collect()
}

/// A line for each pause, with the page where it can be ended.
fn paused(snapshot: &Snapshot) -> impl Iterator<Item = (String, String)> {
    let line = |(target, pause): (&PauseTarget, &Intervention)| {
        let link = match target {
            PauseTarget::Server | PauseTarget::Group(_) => "/definitions".to_owned(),
            PauseTarget::Schedules => "/schedules".to_owned(),
            PauseTarget::Definition(name) | PauseTarget::Schedule(name, _) => format!("/definitions/{name}"),
            PauseTarget::Batch(first) => format!("/batches/{first}"),
        };
        let are = if *target == PauseTarget::Schedules { "are" } else { "is" };
        let shown = Pause::of(target, pause);
        (format!("{} {are} paused{}", shown.words(), shown.why()), link)
    };
    let left_out = snapshot.pauses.iter().skip(PAUSES);
    let (batches, others): (Vec<_>, Vec<_>) =
        left_out.partition(|(target, _)| matches!(target, PauseTarget::Batch(_)));
    // Each page shows the pauses of its own kind only. A batch that has ended is not paused.
    let rest = [
        (others.len(), "more pauses", "/definitions"),
        (batches.len(), "more batches are paused", "/batches?state=waiting%2Crunning"),
    ];
    let rest = rest.into_iter().filter(|(count, ..)| *count > 0);
    let rest = rest.map(|(count, what, link)| (format!("{count} {what}"), link.to_owned()));
    snapshot.pauses.iter().take(PAUSES).map(line).chain(rest)
}

/// The first entries, and one for the others.
fn capped(mut entries: Vec<Attention>, link: &str, others: &str) -> Vec<Attention> {
    let left_out = entries.len().saturating_sub(NAMED);
    if left_out > 0 {
        entries.truncate(NAMED);
        entries.push(entry("warn", format!("{left_out} {others}"), link));
    }
    entries
}

/// Tokens in use that expire soon. Their names are for administrators, who can make others.
fn tokens(state: &AppState) -> Vec<Attention> {
    let now = clock::now().utc;
    let expiring = state.services.records.tokens.expiring(now).into_iter();
    let soon = expiring.take_while(|(end, _)| end.since(now) < TOKEN_EXPIRES_WITHIN);
    let line = |(end, row): (Timestamp, TokenRow)| {
        let left = format::span(end.since(now));
        let text = format!("the token {} ({}) is in use and expires in {left}", row.name, row.role);
        entry("warn", text, &format!("/audit?by={}", row.name))
    };
    soon.map(line).collect()
}

fn workers(workers: &[Worker]) -> Vec<Attention> {
    let mut all = Vec::new();
    for worker in workers {
        let link = format!("/workers/{}", worker.id);
        let row = WorkerRow::of(worker.clone());
        if matches!(row.tone, "bad" | "warn") {
            let cause = worker.suspect.as_ref().map(|it| format!(": {}", it.cause)).unwrap_or_default();
            all.push(entry(row.tone, format!("worker {} is {}{cause}", worker.name, worker.state), &link));
        }
        for away in row.away {
            all.push(entry("warn", format!("worker {}: {away}", worker.name), &link));
        }
    }
    all
}

/// Workers that went without leaving and have no attempts: they are on no list of present workers.
async fn lost_workers(state: &AppState, present: &[Worker]) -> Result<Vec<Attention>, Problem> {
    let now = clock::now().utc;
    let mut lost = state.services.machines.lost(now);
    let present: BTreeSet<WorkerId> = present.iter().map(|worker| WorkerId(worker.id)).collect();
    // One whose connection broke comes back within a lease.
    lost.retain(|id, since| now.since(*since) >= state.services.intervals.lease && !present.contains(id));
    if lost.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<WorkerId> = lost.keys().copied().collect();
    let rows = move |archive: &dyn Archive| ids.iter().map(|id| archive.worker(*id)).collect();
    let rows: Vec<Option<StoredWorker>> = state.read(rows).await?;
    let line = |row: &StoredWorker| {
        let since = lost.get(&row.worker).filter(|_| row.revoked_at.is_none())?;
        let text =
            format!("worker {} went {} ago without leaving", row.name, format::span(now.since(*since)));
        Some(entry("bad", text, &format!("/workers/{}", row.worker)))
    };
    Ok(rows.iter().flatten().filter_map(line).collect())
}

/// Definitions whose jobs wait for secrets. Several revisions of one may lack the same secret.
fn missing_secrets(state: &AppState) -> Vec<Attention> {
    let found = state.services.missing_secrets.found();
    let missing: BTreeSet<_> = found.values().map(|it| (&it.definition, &it.reason)).collect();
    let line = |(name, reason): (&String, &String)| {
        entry("bad", format!("jobs of {name} wait: {reason}"), &format!("/definitions/{name}"))
    };
    missing.into_iter().map(line).collect()
}

/// Jobs that wait for a reason that does not pass by itself, by reason.
fn waiting(snapshot: &Snapshot) -> Vec<Attention> {
    let mut reasons: BTreeMap<PendingReason, (u64, BTreeSet<&str>)> = BTreeMap::new();
    for waiting in &snapshot.waiting {
        let (count, names) = reasons.entry(waiting.reason).or_default();
        *count += waiting.count;
        names.extend(snapshot.definitions.get(&waiting.revision).map(|definition| definition.name.as_str()));
    }
    let entries = reasons.into_iter().filter_map(|(reason, (count, names))| {
        let why = lasting(reason)?;
        let wait = if count == 1 { "waits" } else { "wait" };
        let shown = names.iter().take(WAITING_NAMED).copied().collect::<Vec<_>>();
        let more = if names.len() > shown.len() { " and others" } else { "" };
        let text = format!("{} of {}{more} {wait}: {why}", counted(count), shown.join(", "));
        let selected = if more.is_empty() { shown.join(",") } else { String::new() };
        let pairs = [("state", "queued"), ("name", selected.as_str())];
        let query = encode(pairs.into_iter().filter(|(_, value)| !value.is_empty()));
        Some(entry("warn", text, &format!("/jobs?{query}")))
    });
    entries.collect()
}

/// The reason in words, if it stays until somebody does something.
const fn lasting(reason: PendingReason) -> Option<&'static str> {
    Some(match reason {
        PendingReason::NoWorker => "no worker is connected",
        PendingReason::PinnedWorkerAway => "the only worker that is allowed is not connected",
        PendingReason::NoRuntime => "no connected worker offers the runtime",
        PendingReason::NoMatch => "no connected worker has the required labels, name or version",
        PendingReason::TooLarge => "no connected worker offers enough of a reserved resource",
        PendingReason::Cordoned => "the workers that fit are cordoned or draining",
        PendingReason::RuntimeUnavailable => {
            "the workers that fit can start nothing now: their container engine does not answer, or their disk is full"
        }
        PendingReason::Excluded => "the workers that fit have refused the job, or failed to start it",
        // The list names each pause, and each definition without its secrets.
        PendingReason::Paused
        | PendingReason::SecretsMissing
        | PendingReason::NotDue
        | PendingReason::Dependencies
        | PendingReason::Replacing
        | PendingReason::Members
        | PendingReason::ServerFull
        | PendingReason::Limited
        | PendingReason::RateLimited
        | PendingReason::Busy
        | PendingReason::Resources
        | PendingReason::SetAside
        | PendingReason::Soon
        | PendingReason::Quarantined => return None,
    })
}

fn missed(state: &AppState, row: &ExpectationRow) -> Attention {
    let expect = state.services.catalogue.current().find(&row.definition).map(|it| it.definition.expect);
    let expect = expect.unwrap_or_default();
    let mut faults = Vec::new();
    if row.stale_since.is_some() {
        let within = expect.success_within.map(|within| format!(" within {}", format::span(within)));
        faults.push(format!("it had no success{}", within.unwrap_or_default()));
    }
    if let Some(slow) = row.slow {
        let max = expect.max_duration.map(|max| format!("{}, as job {} did", format::span(max), slow.job));
        faults.push(format!("a run took longer than {}", max.unwrap_or_else(|| "expected".to_owned())));
    }
    let condition = match (row.stale_since, row.slow) {
        (Some(_), Some(_)) => "stale and slow",
        (Some(_), None) => "stale",
        _ => "slow",
    };
    let text = format!("{} is {condition}: {}", row.definition, faults.join("; "));
    entry("bad", text, &format!("/definitions/{}", row.definition))
}

/// Numbers of waiting jobs with their reason as a sentence, the most first.
pub(super) fn by_reason(snapshot: &Snapshot) -> Vec<(&'static str, u64)> {
    let mut reasons: BTreeMap<PendingReason, u64> = BTreeMap::new();
    for waiting in &snapshot.waiting {
        *reasons.entry(waiting.reason).or_default() += waiting.count;
    }
    let mut reasons: Vec<_> = reasons.into_iter().map(|(why, count)| (pending_text(why), count)).collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    reasons
}

fn counted(count: u64) -> String {
    if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") }
}
