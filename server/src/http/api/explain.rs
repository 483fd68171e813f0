//! `GET /api/jobs/{id}/explain`: the reason why a job is not running, and a verdict for each worker.
//!
//! The scheduler computes the verdicts (`scheduler::explain`); this module turns them into text. Additional facts about workers come from
//! the published snapshot, which is never older, and may be slightly younger.

mod away;
mod estimate;
mod obstacle_text;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use obstacle_text::{ObstacleText, name_of};
use protocol::report::Outcome;
use protocol::{JobId, WorkerId};
use scheduler::batches::{BY_BATCH, STOPPED};
use scheduler::explain::{Explanation, JobsBefore, Obstacle, PlacementVerdict, WorkerVerdict};
use scheduler::job::State as JobState;
use scheduler::limits::LimitFacts;
use scheduler::placement::narrowing::Narrowing;
use scheduler::run_on::ParentFacts;
use scheduler::snapshot::Snapshot;
use scheduler::step::{Note, PendingReason};

use crate::clock;
use crate::http::api::jobs::find;
use crate::http::api::limits;
use crate::http::middleware::problem::Problem;
use crate::http::present::presenter::{self, Presenter};
use crate::http::present::shapes::{self, Intervention, Pause, Reason, Time, WorkerRef};
use crate::http::present::timeline::worker_of;
use crate::http::present::waiting;
use crate::http::request::path::Id;
use crate::http::state::AppState;
use crate::store::{AttemptRow, JobRecord, JobRow};

pub(crate) async fn job(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
) -> Result<Json<shapes::Explanation>, Problem> {
    explain(&state, id).await.map(Json)
}

/// Explains a job.
///
/// # Errors
/// `job_not_found`, and those of the engine and of a read.
pub(super) async fn explain(state: &AppState, id: u64) -> Result<shapes::Explanation, Problem> {
    let explanation = state.services.engine.explain(JobId(id)).await?;
    // Read after the engine's answer, which is durable: a job that has left the scheduler has ended in the archive.
    let record = find(state, JobId(id)).await?;
    let requester = requester(state, &record).await?;
    let row = &record.row;
    let explanation = explanation.filter(|_| !row.state.has_ended());
    let snapshot = state.services.engine.snapshot();
    let workers = explanation.as_ref().map(|it| verdicts(&record, it, &snapshot)).unwrap_or_default();
    let estimate = match &explanation {
        Some(explanation) => estimate::of(state, explanation).await?,
        None => None,
    };
    let before = explanation.as_ref().and_then(|it| it.before);
    Ok(shapes::Explanation {
        id,
        name: row.definition.clone(),
        state: row.state.name().into(),
        reason: reason(&state.presenter(), row, explanation.as_ref(), &workers, requester)
            .and(explanation.as_ref().and_then(|it| asked_workers_text(it, &workers)))
            .and(explanation.as_ref().and_then(|it| away::departed(it, &snapshot)))
            .and(waiting::removal_text(&state.services.catalogue.current(), row)),
        limits: explanation.iter().flat_map(|it| &it.limits).map(limits::limit).collect(),
        pauses: explanation
            .iter()
            .flat_map(|it| &it.pauses)
            .map(|(target, pause)| Pause::of(target, pause))
            .collect(),
        before: before.map(|(JobsBefore::Exactly(count) | JobsBefore::MoreThan(count))| count),
        before_at_least: matches!(before, Some(JobsBefore::MoreThan(_))),
        lane_jobs: explanation.as_ref().and_then(|it| it.lane_jobs),
        other_jobs: explanation.as_ref().and_then(|it| it.other_jobs),
        estimate,
        aged_steps: explanation.as_ref().and_then(|it| it.aged_steps),
        workers,
    })
}

/// The requester of the cancel of a job that a worker had. Its reason does not tell if an earlier version has ended it.
///
/// # Errors
/// Those of a read.
async fn requester(state: &AppState, record: &JobRecord) -> Result<Option<String>, Problem> {
    let row = &record.row;
    if row.state != JobState::Cancelled || row.reason != STOPPED {
        return Ok(None);
    }
    let requested = record.notes.iter().rev().find_map(|(_, note)| match note {
        Note::CancelRequested { by } => Some(by.clone()),
        _ => None,
    });
    let (None, Some(first)) = (&requested, row.batch) else { return Ok(requested) };
    // An earlier version wrote no note for a batch.
    let batch = state.read(move |archive| archive.batch(first)).await?;
    let is_stopped = batch.is_some_and(|batch| batch.has_reached_max_failures());
    Ok(is_stopped.then(|| BY_BATCH.to_owned()))
}

/// The reason of the job itself. The row is younger than the scheduler's answer, so the state may differ.
fn reason(
    presenter: &Presenter,
    row: &JobRow,
    explanation: Option<&Explanation>,
    verdicts: &[shapes::WorkerVerdict],
    requester: Option<String>,
) -> Reason {
    let queued = explanation.filter(|it| it.state == row.state && row.state == JobState::Queued);
    if let Some((explanation, pending)) = queued.and_then(|it| Some((it, it.pending?))) {
        let mut reason = match pending {
            PendingReason::PinnedWorkerAway => {
                presenter.pinned_worker_away(row, |only| Some(name_of(explanation, only)))
            }
            PendingReason::Members => members_reason(explanation.parent),
            PendingReason::SecretsMissing => presenter.secrets_missing(row),
            _ => presenter::pending_of(pending, explanation.narrowing.as_deref()),
        };
        let text = match pending {
            PendingReason::Paused => paused_by(explanation),
            PendingReason::Members => {
                paused_by(explanation).map(|pauses| format!("{}; {pauses}", reason.text))
            }
            _ => limit_text(explanation, pending)
                .or_else(|| only_worker_text(explanation, pending, verdicts))
                .or_else(|| away::text(explanation, pending))
                .or_else(|| Some(format!("{}: {}", reason.text, cordon_text(explanation, pending)?))),
        };
        if let Some(text) = text {
            reason.text = text.into();
        }
        let steps = explanation.aged_steps.filter(|steps| *steps > 0);
        return reason.and(steps.map(|steps| age_text(row.priority, steps)));
    }
    if let Some(reason) = presenter.waits_for(row) {
        let waits = explanation.filter(|it| it.state == row.state && waits_for_the_queue(row));
        return reason.and(waits.and_then(paused_by));
    }
    let text = match &row.attempt {
        Some(attempt) if !row.state.has_ended() => {
            let held = || format!("it is {} on {}", row.state.name(), display_name(&worker_of(attempt)));
            let starting = presenter.job(row.clone()).starting_in_words(clock::now().utc.0);
            format!("{}, as its attempt {}", starting.unwrap_or_else(held), row.attempts)
        }
        None if !row.state.has_ended() => "one of its members has started".to_owned(),
        _ if row.reason.is_empty() || row.reason == row.state.name() => {
            let requested = requester.map(|by| format!(", requested by {by}")).unwrap_or_default();
            format!("it has ended: {}{requested}", row.state.name())
        }
        _ => format!("it has ended: {}, {}", row.state.name(), row.reason),
    };
    let code = if row.state.has_ended() { "ended" } else { row.state.name() };
    Reason { code: code.into(), text: text.into() }
}

/// The reason of a job on several workers of which no member has started.
fn members_reason(parent: Option<ParentFacts>) -> Reason {
    let reason = presenter::pending(PendingReason::Members);
    let text = match parent {
        Some(ParentFacts { settling_until: Some(until), .. }) => {
            let now = clock::now();
            let until = Time(now.utc + until.since(now.up));
            format!(
                "its members are made once workers that have just lost their connection are back, at {until} at the latest"
            )
        }
        Some(ParentFacts { total: 0, is_complete: false, .. }) => "its members are being made".to_owned(),
        _ => return reason,
    };
    Reason { text: text.into(), ..reason }
}

/// The priority that a job has gained by waiting.
fn age_text(priority: i8, steps: u64) -> String {
    let counts_as = i64::from(priority).saturating_add(i64::try_from(steps).unwrap_or(i64::MAX));
    let plural = if steps == 1 { "" } else { "s" };
    format!("its priority {priority} is aged by {steps} step{plural} and counts as {counts_as}")
}

/// The job is not in the queue yet. A pause will hold it back there.
const fn waits_for_the_queue(row: &JobRow) -> bool {
    matches!(row.state, JobState::Scheduled | JobState::Quarantined)
}

/// The pauses that keep a job from a start.
fn paused_by(explanation: &Explanation) -> Option<String> {
    let pauses = explanation.pauses.iter().map(|(target, pause)| (target.clone(), pause));
    presenter::paused_by(pauses, usize::MAX)
}

/// The obstacles of the workers that a job asks for, if no worker is allowed to run it.
fn asked_workers_text(explanation: &Explanation, verdicts: &[shapes::WorkerVerdict]) -> Option<String> {
    let asks = explanation.narrowing.as_ref().is_some_and(|narrowing| !narrowing.workers.is_empty());
    if explanation.pending != Some(PendingReason::NoMatch) || !asks {
        return None;
    }
    let is_asked_for = |worker: &WorkerVerdict| match &worker.verdict {
        PlacementVerdict::Unable(all) => !all.contains(&Obstacle::NotAskedFor),
        _ => false,
    };
    let first = |worker: &WorkerVerdict| {
        let verdict = verdicts.iter().find(|it| it.worker.id == worker.worker.0)?;
        Some(format!("{}: {}", display_name(&verdict.worker), verdict.obstacles.first()?.text))
    };
    let asked = explanation.workers.iter().filter(|worker| is_asked_for(worker));
    let named: Vec<String> = asked.filter_map(first).take(REASONS_NAMED).collect();
    (!named.is_empty()).then(|| named.join("; "))
}

/// The only worker that may run a job, and why it does not take the job.
fn only_worker_text(
    explanation: &Explanation,
    pending: PendingReason,
    verdicts: &[shapes::WorkerVerdict],
) -> Option<String> {
    if !waiting::is_of_allowed_worker(pending) {
        return None;
    }
    let pinned_to = |it: &WorkerVerdict| match &it.verdict {
        PlacementVerdict::Unable(all) => all.iter().find_map(|obstacle| match obstacle {
            Obstacle::PinnedElsewhere(only) => Some(*only),
            _ => None,
        }),
        _ => None,
    };
    let (lead, only) = match explanation.workers.iter().find_map(pinned_to) {
        Some(only) => (format!("it may only run on {}", name_of(explanation, only)), only),
        None => {
            let listed = &explanation.definition.placement.workers;
            let (lead, list) = match explanation.narrowing.as_ref() {
                Some(asked) if asked.workers.len() == 1 => {
                    (format!("this job asks for {asked}"), asked.as_ref().clone())
                }
                _ => {
                    let [only] = listed.as_slice() else { return None };
                    (
                        format!("its definition lists worker {only}"),
                        Narrowing::new(listed.clone(), Vec::new()),
                    )
                }
            };
            (lead, explanation.workers.iter().find(|it| list.lists(it.worker, &it.name))?.worker)
        }
    };
    let obstacles = &verdicts.iter().find(|it| it.worker.id == only.0)?.obstacles;
    let named: Vec<&str> = obstacles.iter().map(|it| it.text.as_ref()).take(REASONS_NAMED).collect();
    (!named.is_empty()).then(|| format!("{lead}, which does not take it: {}", named.join("; ")))
}

/// The reasons of the cordons and drains that keep a job waiting: those of workers that could take it otherwise.
fn cordon_text(explanation: &Explanation, pending: PendingReason) -> Option<String> {
    if pending != PendingReason::Cordoned {
        return None;
    }
    // The first obstacle: a worker that could not take it anyway has another one before it.
    let first = |worker: &WorkerVerdict| match &worker.verdict {
        PlacementVerdict::Unable(all) => match all.first()? {
            Obstacle::Cordoned => Some("cordoned"),
            Obstacle::Draining => Some("drained"),
            _ => None,
        },
        _ => None,
    };
    let with_reason = explanation.workers.iter().filter_map(|worker| {
        let verb = first(worker)?;
        let cordon = worker.cordon.as_ref().filter(|cordon| cordon.origin.reason.is_some())?;
        Some(format!("{}, {verb}{}", worker.name, Intervention::of(cordon).why()))
    });
    let named: Vec<String> = with_reason.take(REASONS_NAMED).collect();
    (!named.is_empty()).then(|| named.join("; "))
}

/// Workers or obstacles that are named in the reason of a job. The verdicts have all of them.
const REASONS_NAMED: usize = 3;

/// The limit that keeps a job waiting, with its holders and the jobs before this one.
fn limit_text(explanation: &Explanation, pending: PendingReason) -> Option<String> {
    let kept_by = |it: &&LimitFacts| match pending {
        PendingReason::Limited => it.permits.is_some(),
        PendingReason::RateLimited => it.rate.is_some(),
        _ => false,
    };
    let limit = explanation.limits.iter().find(kept_by)?;
    let before = match explanation.before {
        None | Some(JobsBefore::Exactly(0)) => "it is the next one of its kind".to_owned(),
        Some(JobsBefore::Exactly(1)) => "1 job of its kind goes before it".to_owned(),
        Some(JobsBefore::Exactly(more)) => format!("{more} jobs of its kind go before it"),
        Some(JobsBefore::MoreThan(counted)) => format!("more than {counted} jobs of its kind go before it"),
    };
    let Some(permits) = limit.permits else {
        return Some(format!("the {} allows no start now; {before}", limit.id));
    };
    let holders: Vec<String> = limit.holders.iter().map(ToString::to_string).collect();
    let more = if limit.in_use > limit.holders.len() as u64 { " and others" } else { "" };
    Some(format!(
        "the limit {} has no permit left: {} of {permits} are held, by {}{more}; {before}",
        limit.id,
        limit.in_use,
        holders.join(", ")
    ))
}

fn verdicts(
    record: &JobRecord,
    explanation: &Explanation,
    snapshot: &Snapshot,
) -> Vec<shapes::WorkerVerdict> {
    let now = clock::now();
    let is_late = explanation.parent.is_some_and(|parent| parent.is_for_all && parent.is_complete);
    let verdict = |it: &WorkerVerdict| {
        let facts = snapshot.workers.get(it.worker);
        let refusal = last_refusal(record, it.worker);
        let texts = ObstacleText { now, job: record.row.job, explanation, worker: it, facts, refusal };
        let obstacles = match &it.verdict {
            PlacementVerdict::Unable(obstacles) => obstacles.iter().map(|it| texts.obstacle(*it)).collect(),
            PlacementVerdict::Holding | PlacementVerdict::Able | PlacementVerdict::LastResort => Vec::new(),
        };
        let (verdict, text) = match (it.member, &it.verdict) {
            (Some(member), _) => ("has_member", format!("its member is job {member}").into()),
            (None, PlacementVerdict::Able) if is_late => {
                ("unable", "the members were made before it could take one".into())
            }
            (None, PlacementVerdict::Holding) => ("has_it", "it has the job".into()),
            (None, PlacementVerdict::Able) => ("able", able_text(explanation).into()),
            (None, PlacementVerdict::LastResort) => (
                "last_resort",
                "the last attempt was here: it gets the job only if nobody else can take it".into(),
            ),
            (None, PlacementVerdict::Unable(_)) => ("unable", joined(&obstacles)),
        };
        let worker = WorkerRef { id: it.worker.0, name: it.name.to_string() };
        shapes::WorkerVerdict { worker, verdict: verdict.into(), text, obstacles }
    };
    explanation.workers.iter().map(verdict).collect()
}

/// The text for a worker without obstacles. The job itself may wait for something else.
fn able_text(explanation: &Explanation) -> &'static str {
    match explanation.pending {
        None => "it could take the job, which is placed already",
        _ if !explanation.pauses.is_empty() => "it could take the job once the pause ends",
        Some(PendingReason::Soon) => "it could take the job now",
        Some(_) => "it could take the job, which waits for something else",
    }
}

/// The last attempt that this worker gave back or failed to start.
fn last_refusal(record: &JobRecord, worker: WorkerId) -> Option<&AttemptRow> {
    let is_refusal = |attempt: &&AttemptRow| {
        let outcome = attempt.outcome;
        attempt.worker == worker && matches!(outcome, Some(Outcome::Released | Outcome::HostFailed))
    };
    record.row.attempt.iter().chain(record.past.iter().rev()).find(is_refusal)
}

fn joined(obstacles: &[shapes::Obstacle]) -> shapes::Text {
    let texts: Vec<&str> = obstacles.iter().map(|obstacle| obstacle.text.as_ref()).collect();
    texts.join("; ").into()
}

fn display_name(worker: &WorkerRef) -> String {
    if worker.name.is_empty() { format!("worker {}", worker.id) } else { worker.name.clone() }
}
