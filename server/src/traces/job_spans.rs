//! Makes the spans of an ended job: one for the job, from its acceptance to its end; below it one for each wait and each attempt.
//!
//! Nothing of a job's environment, arguments, parameters, input, output or result is in a span. Its reason is: notifications have it, too.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{Event, Link, SpanContext, SpanId, SpanKind, Status, TraceFlags};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use protocol::report::Outcome;
use protocol::{Fence, JobId, Timestamp};
use scheduler::job::State;
use scheduler::step::Note;

use super::ids::{JobTrace, Tracer};
use crate::http::present::ending::why_ended;
use crate::http::request::trace_context::request_of;
use crate::store::{AttemptRow, JobRecord, JobRow, RunOnRole};

/// The relation of a job to one in another trace, or elsewhere in this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Relation {
    pub(super) job: JobId,
    /// `after`, `hook_of`, `member_of` or `retry_of`.
    pub(super) name: &'static str,
}

/// The jobs that the span of a job links to. A member is below its parent if the submission brought a trace.
pub(super) fn relations(record: &JobRecord) -> Vec<Relation> {
    let relation = |name| move |job| Relation { job, name };
    let mut found: Vec<Relation> = record.row.retry_of.map(relation("retry_of")).into_iter().collect();
    found.extend(record.parent.as_ref().map(|hook| hook.parent).map(relation("hook_of")));
    found.extend(parent_of(&record.row).map(relation("member_of")));
    found.extend(record.after.iter().filter_map(|it| it.other.job()).map(relation("after")).take(AFTER_MAX));
    found
}

/// The spans of one job.
pub(super) struct JobSpans<'r> {
    pub(super) tracer: &'r Tracer,
    pub(super) record: &'r JobRecord,
    pub(super) trace: &'r JobTrace,
    /// The related jobs and their traces.
    pub(super) related: &'r [(Relation, JobTrace)],
    /// The address of the dashboard.
    pub(super) public_url: Option<&'r str>,
}

impl JobSpans<'_> {
    /// The span of the job, then the others in the order of their starts; none if it has not ended.
    pub(super) fn make(&self) -> Vec<SpanData> {
        let row = &self.record.row;
        let Some(ended_at) = row.ended_at else { return Vec::new() };
        let attempts: Vec<&AttemptRow> = self.record.past.iter().chain(row.attempt.as_ref()).collect();
        let mut spans = vec![self.job(ended_at, &attempts)];
        // The wait under way begins here.
        let mut waits_since = Some(row.created_at);
        for attempt in &attempts {
            if let Some(since) = waits_since {
                spans.push(self.wait(attempt.number.0, since, attempt.assigned_at));
            }
            spans.push(self.attempt(attempt, ended_at));
            waits_since = Some(attempt.ended_at.unwrap_or(ended_at));
        }
        // A parent does not wait for a worker: its members do.
        let has_members = matches!(row.run_on_role, RunOnRole::Parent(_));
        if let Some(since) = waits_since.filter(|_| !has_members && ended_while_it_waited(row)) {
            spans.push(self.wait(row.attempts.0 + 1, since, ended_at));
        }
        spans
    }

    fn job(&self, ended_at: Timestamp, attempts: &[&AttemptRow]) -> SpanData {
        let row = &self.record.row;
        let mut attributes = vec![
            number("longshore.job.id", row.job.0),
            text("longshore.job.name", row.definition.clone()),
            text("longshore.job.revision", row.revision.to_string()),
            text("longshore.job.state", row.state.name()),
            number("longshore.job.attempts", row.attempts.0),
        ];
        let reason = why_ended(row);
        let last = attempts.last();
        attributes.extend(present("longshore.job.reason", &reason));
        attributes
            .extend(last.and_then(|it| it.outcome).map(|it| text("longshore.attempt.outcome", it.name())));
        attributes.extend(last.and_then(|it| it.exit_code).map(|it| number("process.exit.code", it)));
        attributes.extend(row.batch.map(|batch| number("longshore.job.batch", batch.0)));
        attributes
            .extend(row.slot.as_ref().map(|slot| text("longshore.job.schedule", slot.schedule.clone())));
        let request = request_of(&self.record.overrides.environment);
        attributes.extend(request.map(|id| text("longshore.request.id", id.to_owned())));
        let url = self.public_url.map(|url| format!("{}/jobs/{}", url.trim_end_matches('/'), row.job));
        attributes.extend(url.map(|url| text("longshore.job.url", url)));
        let status = match row.state {
            State::Failed | State::Expired | State::Lost if reason.is_empty() => {
                Status::error(row.state.name())
            }
            State::Failed | State::Expired | State::Lost => Status::error(reason),
            _ => Status::Unset,
        };
        let (parent, is_remote) = match parent_of(row).filter(|_| self.trace.parent.is_some()) {
            Some(parent) => (self.tracer.job_span(parent), false),
            None => (self.trace.parent.unwrap_or(SpanId::INVALID), self.trace.parent.is_some()),
        };
        let span = self.span(self.tracer.job_span(row.job), (row.created_at, ended_at));
        SpanData {
            name: format!("job {}", row.definition).into(),
            parent_span_id: parent,
            parent_span_is_remote: is_remote,
            span_kind: SpanKind::Consumer,
            attributes,
            events: events(self.notes(None)),
            links: self.links(parent),
            status,
            ..span
        }
    }

    fn wait(&self, before: u32, since: Timestamp, until: Timestamp) -> SpanData {
        let row = &self.record.row;
        let span = self.span(self.tracer.wait_span(row.job, before), (since, until));
        // The due time of the last wait is known.
        let is_last = before >= row.attempts.0;
        let due = Some(row.due_at).filter(|due| is_last && (since..=until).contains(due) && *due > since);
        SpanData {
            name: "wait".into(),
            attributes: vec![number("longshore.attempt.number", before)],
            events: events(due.map(|at| event("due", at)).into_iter().collect()),
            ..span
        }
    }

    fn attempt(&self, row: &AttemptRow, job_ended_at: Timestamp) -> SpanData {
        let ended_at = row.ended_at.unwrap_or(job_ended_at);
        let mut attributes = vec![
            number("longshore.attempt.number", row.number.0),
            number("longshore.worker.id", row.worker.0),
        ];
        attributes.extend(present("longshore.worker.name", &row.worker_name));
        attributes.extend(row.outcome.map(|outcome| text("longshore.attempt.outcome", outcome.name())));
        attributes.extend(row.released.map(|cause| text("longshore.attempt.released", cause.name())));
        attributes.extend(row.stopping.map(|cause| text("longshore.attempt.stopping", cause.name())));
        attributes.extend(row.exit_code.map(|code| number("process.exit.code", code)));
        attributes.extend(present("container.id", &row.container));
        attributes.extend(row.usage.cpu_ms.map(|cpu| number("longshore.attempt.cpu_ms", cpu)));
        let memory = row.usage.memory_peak_bytes;
        attributes.extend(memory.map(|bytes| number("longshore.attempt.memory_peak_bytes", bytes)));
        let mut happened = self.notes(Some(row.fence));
        happened.extend(row.started_at.map(|at| event("started", at)));
        let status = match row.outcome {
            Some(Outcome::Succeeded | Outcome::Released | Outcome::Cancelled) | None => Status::Unset,
            Some(outcome) if row.message.is_empty() => Status::error(outcome.name()),
            Some(_) => Status::error(row.message.clone()),
        };
        let span = self.span(self.tracer.attempt_span(row.fence, row.nonce), (row.assigned_at, ended_at));
        SpanData { name: "attempt".into(), attributes, events: events(happened), status, ..span }
    }

    /// A span below that of the job, with nothing but its place and its times.
    fn span(&self, id: SpanId, (from, to): (Timestamp, Timestamp)) -> SpanData {
        SpanData {
            span_context: self.context(self.trace, id),
            parent_span_id: self.tracer.job_span(self.record.row.job),
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: Cow::Borrowed(""),
            start_time: time(from),
            // The clocks of two machines may differ, and a clock may be set back.
            end_time: time(to.max(from)),
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::builder("longshore")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        }
    }

    fn context(&self, trace: &JobTrace, span: SpanId) -> SpanContext {
        let flags = TraceFlags::default().with_sampled(trace.is_sampled);
        SpanContext::new(trace.trace, span, flags, false, trace.state.clone())
    }

    /// Links to related jobs, without the one whose span is the parent.
    fn links(&self, parent: SpanId) -> SpanLinks {
        let mut links = SpanLinks::default();
        for (relation, trace) in self.related {
            let context = self.context(trace, self.tracer.job_span(relation.job));
            if trace.trace != self.trace.trace || context.span_id() != parent {
                let attributes = vec![
                    text("longshore.relation", relation.name),
                    number("longshore.job.id", relation.job.0),
                ];
                links.links.push(Link::new(context, attributes, 0));
            }
        }
        links
    }

    /// Events of the job, or of the attempt with this fence. Requesters are not named.
    fn notes(&self, fence: Option<Fence>) -> Vec<Event> {
        let happened = |(at, note): &(Timestamp, Note)| {
            let (name, of) = match note {
                Note::CancelRequested { .. } => ("cancel_requested", None),
                Note::Released { .. } => ("released", None),
                Note::Updated { .. } => ("updated", None),
                Note::ResultLeftOut { .. } => ("result_left_out", None),
                Note::WorkersLeftOut { .. } => ("workers_left_out", None),
                Note::Unreachable { token, .. } => ("worker_unreachable", Some(token.fence)),
                Note::Revived { token, .. } => ("worker_returned", Some(token.fence)),
                // They may come after the end.
                Note::ContainerGone { .. } | Note::LateReport { .. } => return None,
            };
            (of == fence).then(|| event(name, *at))
        };
        self.record.notes.iter().filter_map(happened).collect()
    }
}

/// True if a job ended without a current attempt. The last attempt is then not what ended it.
fn ended_while_it_waited(row: &JobRow) -> bool {
    let Some(last) = &row.attempt else { return true };
    match row.state {
        State::Expired => true,
        State::Cancelled => last.outcome != Some(Outcome::Cancelled) && last.stopping.is_none(),
        _ => false,
    }
}

const fn parent_of(row: &JobRow) -> Option<JobId> {
    match &row.run_on_role {
        RunOnRole::Member(member) => Some(member.parent),
        RunOnRole::Alone | RunOnRole::Parent(_) => None,
    }
}

fn events(mut happened: Vec<Event>) -> SpanEvents {
    happened.sort_by_key(|event| event.timestamp);
    let mut events = SpanEvents::default();
    events.events = happened;
    events
}

fn event(name: &'static str, at: Timestamp) -> Event {
    Event::new(name, time(at), Vec::new(), 0)
}

fn time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(at.0).unwrap_or(0))
}

fn text(name: &'static str, value: impl Into<opentelemetry::StringValue>) -> KeyValue {
    KeyValue::new(name, value.into())
}

fn present(name: &'static str, value: &str) -> Option<KeyValue> {
    (!value.is_empty()).then(|| text(name, value.to_owned()))
}

fn number(name: &'static str, value: impl TryInto<i64>) -> KeyValue {
    KeyValue::new(name, value.try_into().unwrap_or(i64::MAX))
}

/// Links of this kind; a pipeline has more predecessors than a trace can show.
const AFTER_MAX: usize = 20;
