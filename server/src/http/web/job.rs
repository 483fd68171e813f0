//! `/jobs/{id}`: one job with its attempts and its history.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use protocol::JobId;
use scheduler::dependencies::PredecessorId;
use scheduler::step::PendingReason;
use serde_json::Value;

use super::format::{self, Moment, ShownValue};
use super::jobs::Row;
use super::output::LastLines;
use super::page::{Frame, render};
use super::usage::{self, Curves};
use crate::http::api::{self, explain, jobs, pipelines};
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{Attempt, Event, Explanation, FullJob, Job, Time, Timeout, WorkerVerdict};
use crate::http::request::path::Id;
use crate::http::request::query::encode;
use crate::http::state::AppState;
use crate::logs::AttemptKey;
use crate::store::JobFilter;

/// An attempt as a row.
struct AttemptRow {
    attempt: Attempt,
    tone: &'static str,
    assigned: Moment,
    ran: String,
    output: String,
    /// The amount that is stored of output that was cut.
    cut: Option<String>,
    cpu: String,
    memory: String,
}

/// An entry of the history.
struct EventRow {
    event: Event,
    at: Moment,
    /// `event` in words.
    words: String,
}

/// A part of the bar that shows where the time went: waiting, preparing, running.
struct Part {
    x: u64,
    width: u64,
    tone: &'static str,
    title: String,
}

#[derive(Template)]
#[template(path = "job.html")]
struct JobPage {
    frame: Frame,
    row: Row,
    full: FullJob,
    /// The workers that it asks for; empty if any will do.
    asks_for: String,
    /// The query of the list of jobs with the same requester; empty if none is known.
    by_same: String,
    has_ended: bool,
    /// Its definition has another revision now, or has left jobs.yaml.
    is_of_former_revision: bool,
    can_release: bool,
    can_retry_pipeline: bool,
    attempts: Vec<AttemptRow>,
    events: Vec<EventRow>,
    parts: Vec<Part>,
    /// Its parameters, each with its value as text.
    params: Vec<(String, ShownValue)>,
    args: ShownValue,
    /// The names of its variables.
    variables: ShownValue,
    last_lines: LastLines,
    input: Option<Document>,
    result: Option<Document>,
    timeout: String,
    started: Option<Moment>,
    due: Moment,
    why: String,
    /// Its position in its lane, and the estimate of its wait.
    wait: Vec<String>,
    verdicts: Vec<WorkerVerdict>,
    /// Members of a job on several workers, the newest first; not all if there are many.
    members: Vec<Row>,
    can_retry_members: bool,
    /// Resources that the latest attempt has used.
    usage: Vec<(&'static str, String)>,
    curves: Option<Curves>,
}

/// `GET /jobs/{id}`
pub(crate) async fn show(State(state): State<Arc<AppState>>, Id(id): Id) -> Result<Response, Problem> {
    let record = jobs::find(&state, JobId(id)).await?;
    let latest = record.row.attempt.as_ref();
    let curve =
        latest.map(|it| api::usage::curve(&state, it.number, AttemptKey { job: JobId(id), fence: it.fence }));
    let last_lines = LastLines::of(&state, &record).await;
    let full = state.full_job(record).await;
    let members = match &full.job.members {
        Some(_) => members_of(&state, JobId(id)).await?,
        None => Vec::new(),
    };
    let waits = full.job.queuing || full.job.state == "scheduled" || full.job.state == "quarantined";
    let explanation = match waits {
        true => Some(explain::job(State(Arc::clone(&state)), Id(id)).await?.0),
        false => None,
    };
    let wait = explanation.as_ref().map(wait_lines).unwrap_or_default();
    let definitions = state.services.catalogue.current();
    let (why, verdicts) = explanation.map(|it| (it.reason.text.to_string(), it.workers)).unwrap_or_default();
    render(&JobPage {
        frame: Frame::new(&state, "jobs", format!("Job {id} {}", full.job.name)),
        has_ended: full.job.ended_at.is_some(),
        is_of_former_revision: definitions
            .find(&full.job.name)
            .is_none_or(|entry| entry.definition.revision.to_string() != full.job.revision),
        can_release: can_release(&full.job),
        can_retry_pipeline: has_unsuccessful(&state, &full).await?,
        attempts: full.attempts.iter().rev().cloned().map(attempt_row).collect(),
        events: full.timeline.iter().cloned().map(event_row).collect(),
        parts: parts(&full),
        params: full
            .params
            .iter()
            .map(|(name, value)| (name.clone(), ShownValue::of(value_text(value))))
            .collect(),
        args: ShownValue::of(full.args.join(" ")),
        variables: ShownValue::of(full.environment.join(", ")),
        last_lines,
        input: full.input.as_ref().map(document),
        result: full.result.as_ref().map(document),
        asks_for: full.job.asks_for_in_words(),
        by_same: full
            .job
            .submitted_by
            .as_ref()
            .map(|by| encode([("submitted_by", by.as_str())]))
            .unwrap_or_default(),
        timeout: match full.job.timeout {
            Some(Timeout::After(after)) => format::span(after),
            Some(Timeout::Never) => "none".to_owned(),
            None => String::new(),
        },
        started: full.job.started_at.map(format::moment),
        due: format::moment(full.job.due_at),
        usage: full.attempts.last().and_then(|it| it.usage).map(|it| usage::facts(&it)).unwrap_or_default(),
        curves: curve.as_ref().and_then(usage::curves),
        row: Row::of(full.job.clone()),
        members,
        can_retry_members: full.job.ended_at.is_some()
            && full.job.members.as_ref().is_some_and(|members| members.succeeded < members.total),
        why,
        wait,
        verdicts,
        full,
    })
}

/// A person can release a job that is held, or whose worker or runtime there does not answer. A queued job waits for another worker anyway.
fn can_release(job: &Job) -> bool {
    let is_silent = job
        .pending_reason
        .as_ref()
        .is_some_and(|reason| reason.code == PendingReason::RuntimeUnavailable.name());
    let has_attempt = matches!(&*job.state, "assigned" | "running");
    job.state == "quarantined" || job.worker_unreachable_since.is_some() || has_attempt && is_silent
}

/// The position of a waiting job, and the estimate of its wait.
fn wait_lines(explanation: &Explanation) -> Vec<String> {
    let position = explanation.position_in_words().map(|position| format!("Position {position}"));
    let estimate = explanation.estimate.as_ref();
    let estimate =
        estimate.map(|it| format!("Starts in about {}, if {}", format::span_ms(it.wait_ms), it.text));
    position.into_iter().chain(estimate).collect()
}

/// A value in JSON for people; its first part, if it is long.
struct Document {
    value: ShownValue,
    is_cut: bool,
}

/// Bytes of an input or a result that the page shows; the API has the rest.
const DOCUMENT_BYTES_MAX: usize = 16 << 10;

fn document(value: &Value) -> Document {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    let is_cut = text.len() > DOCUMENT_BYTES_MAX;
    if is_cut {
        text.truncate(text.floor_char_boundary(DOCUMENT_BYTES_MAX));
    }
    Document { value: ShownValue::of(text), is_cut }
}

/// The value of a parameter as people write it.
fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(value_text).collect::<Vec<_>>().join(", "),
        value => value.to_string(),
    }
}

/// Members that the page of their parent shows.
const MEMBERS_SHOWN: usize = 100;

async fn members_of(state: &Arc<AppState>, parent: JobId) -> Result<Vec<Row>, Problem> {
    let filter = JobFilter { parent: Some(parent), limit: MEMBERS_SHOWN, ..JobFilter::default() };
    let rows = state.read(move |archive| archive.jobs(&filter)).await?;
    let presenter = state.presenter();
    Ok(rows.into_iter().map(|row| Row::of(presenter.job(row))).collect())
}

/// The job, or one next to it in its pipeline, has ended without success, and no retry of it has succeeded or goes on.
async fn has_unsuccessful(state: &AppState, full: &FullJob) -> Result<bool, Problem> {
    let is_unsuccessful = |state: &str| matches!(state, "failed" | "cancelled" | "expired" | "lost");
    let near = full.after.iter().chain(&full.dependents);
    let near = near.filter_map(|it| Some((it.job?, it.state.as_deref()?)));
    let all = near.chain([(full.job.id, &*full.job.state)]);
    let failed: Vec<JobId> =
        all.filter(|(_, state)| is_unsuccessful(state)).map(|(job, _)| JobId(job)).collect();
    let retries = pipelines::retries_of_jobs(state, failed.iter().copied()).await?;
    let last = |job: &JobId| retries.get(&PredecessorId::Job(*job)).map(|(_, state)| state.name());
    Ok(failed.iter().any(|job| last(job).is_none_or(is_unsuccessful)))
}

fn attempt_row(attempt: Attempt) -> AttemptRow {
    let state = attempt.outcome.clone().or(attempt.released.clone()).unwrap_or("running".into());
    let written = attempt.output.map(|output| output.stdout_bytes + output.stderr_bytes);
    let used = attempt.usage.unwrap_or_default();
    AttemptRow {
        tone: format::tone(&state),
        assigned: format::moment(attempt.assigned_at),
        ran: attempt.ran_ms.map(format::span_ms).unwrap_or_default(),
        output: written.map(format::bytes).unwrap_or_default(),
        cut: attempt.output.and_then(|output| output.cut_in_words()),
        cpu: used.cpu_ms.map(format::span_ms).unwrap_or_default(),
        memory: used.memory_peak_bytes.map(format::bytes).unwrap_or_default(),
        attempt,
    }
}

fn event_row(event: Event) -> EventRow {
    EventRow { at: format::moment(event.at), words: event.event.replace('_', " "), event }
}

/// Width of the bar in its own units.
const WIDTH: u64 = 1_000;

/// The time of a job from its acceptance to its end, or to now: waiting, preparing and running of each attempt.
fn parts(full: &FullJob) -> Vec<Part> {
    let begin = full.job.created_at.0;
    let end = full.job.ended_at.map_or_else(|| crate::clock::now().utc, |end| end.0);
    let whole = u64::try_from(end.since(begin).as_millis()).unwrap_or(u64::MAX).max(1);
    let mut spans = Vec::new();
    let mut at = begin;
    for attempt in &full.attempts {
        let ended = attempt.ended_at.map_or(end, |ended| ended.0);
        let started = attempt.started_at.map_or(ended, |started| started.0);
        spans.push((at, attempt.assigned_at.0, "plain", "waited"));
        spans.push((attempt.assigned_at.0, started, "warn", "prepared"));
        let outcome = attempt.outcome.as_deref().unwrap_or("running");
        spans.push((started, ended, format::tone(outcome), "ran"));
        at = ended;
    }
    match full.job.started_at.filter(|_| full.job.members.is_some()) {
        // Its members run.
        Some(Time(started)) => {
            spans.push((at, started, "plain", "waited"));
            spans.push((started, end, format::tone(&full.job.state), "ran"));
        }
        None if full.job.ended_at.is_none() || full.attempts.is_empty() => {
            spans.push((at, end, "plain", "waited"));
        }
        None => {}
    }
    let part = |(from, to, tone, word): (protocol::Timestamp, protocol::Timestamp, &'static str, &str)| {
        let scaled = |ms: std::time::Duration| {
            u64::try_from(ms.as_millis()).unwrap_or(whole).min(whole).saturating_mul(WIDTH) / whole
        };
        let (x, until) = (scaled(from.since(begin)), scaled(to.since(begin)));
        let title = format!("{word} {}", format::span(to.since(from)));
        (until > x).then(|| Part { x, width: until - x, tone, title })
    };
    spans.into_iter().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use protocol::Timestamp;

    use super::*;
    use crate::http::present::shapes::Members;

    #[test]
    fn the_bar_shows_waiting_preparing_and_running_in_proportion() {
        let at = |ms| Time(Timestamp(ms));
        let attempt = Attempt {
            assigned_at: at(1_000),
            started_at: Some(at(1_500)),
            ended_at: Some(at(4_000)),
            outcome: Some("succeeded".into()),
            ..Attempt::default()
        };
        let job = Job { created_at: at(0), ended_at: Some(at(4_000)), ..Job::default() };
        let bar = parts(&FullJob { job, attempts: vec![attempt], ..FullJob::default() });
        let shown: Vec<_> = bar.iter().map(|part| (part.x, part.width, part.tone)).collect();
        assert_eq!(shown, [(0, 250, "plain"), (250, 125, "warn"), (375, 625, "good")]);
        assert_eq!(bar[2].title, "ran 2.50s");
    }

    #[test]
    fn the_bar_of_a_job_on_several_workers_shows_when_its_members_ran() {
        let at = |ms| Some(Time(Timestamp(ms)));
        let (started_at, ended_at, members) = (at(1_000), at(4_000), Some(Members::default()));
        let state = "succeeded".into();
        let job =
            Job { created_at: Time(Timestamp(0)), started_at, ended_at, members, state, ..Job::default() };
        let bar = parts(&FullJob { job, ..FullJob::default() });
        let shown: Vec<_> = bar.iter().map(|part| (part.x, part.width, part.tone)).collect();
        assert_eq!(shown, [(0, 250, "plain"), (250, 750, "good")]);
    }
}
