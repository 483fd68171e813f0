//! Fills the JSON of events from their facts.

use protocol::report::Outcome;
use scheduler::job::State;
use scheduler::pauses::{PauseChange, PauseTarget};

use crate::events::{AttemptSubject, EventRecord, JobSubject, Subject, WorkerName};
use crate::http::present::definition::expectation;
use crate::http::present::presenter::{hook, job_in_state};
use crate::http::present::schedule::fire;
use crate::http::present::shapes::{self, Time};
use crate::http::present::worker::{live_worker, stored_worker};
use crate::http::state::AppState;

impl AppState {
    /// The JSON of an event.
    pub(crate) fn event_json(&self, record: &EventRecord) -> String {
        serde_json::to_string(&self.event(record)).unwrap_or_default()
    }

    fn event(&self, record: &EventRecord) -> shapes::CommittedEvent {
        let event = shapes::CommittedEvent {
            id: record.id.to_string(),
            at: Time(record.at),
            kind: record.kind.into(),
            ..shapes::CommittedEvent::default()
        };
        match &record.subject {
            Subject::Job(subject) => shapes::CommittedEvent {
                job: Some(Box::new(job(subject))),
                attempt: subject.attempt.as_ref().map(|it| Box::new(attempt(it))),
                by: subject.by.as_deref().map(Into::into),
                ..event
            },
            Subject::Attempt { attempt: subject, job } => shapes::CommittedEvent {
                attempt: Some(Box::new(attempt(subject))),
                job_id: Some(job.0),
                said: subject.said.as_deref().map(Into::into),
                ..event
            },
            Subject::Batch { first, count, name } => {
                let name = name.as_ref().map(|definition| definition.name.to_string());
                let batch = Some(shapes::EventBatch { batch: first.0, count: *count, name });
                shapes::CommittedEvent { batch, ..event }
            }
            Subject::Hook(row) => {
                shapes::CommittedEvent { hook: Some(hook(row, None)), job_id: Some(row.parent.0), ..event }
            }
            Subject::Fire(row) => {
                let definitions = self.services.catalogue.current();
                let definition = definitions.find(&row.definition).map(|entry| &*entry.definition);
                let (fire, name) = (Some(fire(row, None, definition)), Some(row.definition.to_string()));
                shapes::CommittedEvent { fire, name, ..event }
            }
            Subject::Pause(target, pause) => {
                let schedules = match target {
                    PauseTarget::Schedules => Some(shapes::EventSchedules::default()),
                    PauseTarget::Schedule(name, id) => Some(shapes::EventSchedules {
                        name: Some(name.to_string()),
                        id: Some(id.to_string()),
                    }),
                    PauseTarget::Server
                    | PauseTarget::Group(_)
                    | PauseTarget::Definition(_)
                    | PauseTarget::Batch(_) => None,
                };
                let by = match pause {
                    PauseChange::Resumed { by } => Some(by.to_string()).filter(|by| !by.is_empty()),
                    PauseChange::Set(_) | PauseChange::Ended(_) | PauseChange::BatchEnded => None,
                };
                let pause = Some(shapes::Pause::after(target, pause));
                shapes::CommittedEvent { schedules, pause, by, ..event }
            }
            Subject::Definition(definition) => {
                let (name, revision) = (definition.name.to_string(), definition.revision.to_string());
                let definition = Some(shapes::EventDefinition { name, revision });
                shapes::CommittedEvent { definition, ..event }
            }
            Subject::Expectation(row) => {
                let definitions = self.services.catalogue.current();
                let expect = definitions.find(&row.definition).map(|entry| entry.definition.expect);
                let expectation = Some(expectation(expect.unwrap_or_default(), Some(row)));
                shapes::CommittedEvent { expectation, name: Some(row.definition.to_string()), ..event }
            }
            Subject::Worker(facts, cluster) => {
                let mut worker = live_worker(self, facts, *cluster);
                if let Some(state) = record.state() {
                    worker.state = state.into();
                }
                shapes::CommittedEvent { worker: Some(Box::new(worker)), ..event }
            }
            Subject::WorkerRow { row, state, cordon_ended } => {
                let worker = shapes::Worker { state: (*state).into(), ..stored_worker(row) };
                let cordon_ended = cordon_ended.map(Time);
                shapes::CommittedEvent { worker: Some(Box::new(worker)), cordon_ended, ..event }
            }
            Subject::WorkerRef(worker) => {
                shapes::CommittedEvent { forgotten: Some(worker_ref(worker)), ..event }
            }
        }
    }
}

fn job(subject: &JobSubject) -> shapes::Job {
    let attempt = subject.attempt.as_ref();
    let attempt_end = attempt.and_then(|attempt| attempt.end.as_ref());
    let end = subject.end.as_ref();
    let accepted = subject.accepted.as_ref();
    let slot = accepted.and_then(|accepted| accepted.slot.as_ref());
    let definition = &subject.definition;
    let is_held = matches!(subject.state, State::Assigned | State::Running);
    shapes::Job {
        stopping: attempt.filter(|_| is_held).and_then(|it| it.stopping).map(|cause| cause.name().into()),
        assigned_at: attempt
            .filter(|_| subject.state == State::Assigned)
            .and_then(|it| it.assigned_at)
            .map(Time),
        priority: subject.priority,
        due_at: Time(subject.due_at),
        started_at: attempt.and_then(|attempt| attempt.started_at).or(subject.members_started_at).map(Time),
        ended_at: end.map(|end| Time(end.at)),
        ran_ms: attempt.and_then(ran_ms).or_else(|| members_ran_ms(subject)),
        attempt_count: subject.attempts,
        worker: attempt.map(|attempt| worker_ref(&attempt.worker)),
        outcome: attempt_end.map(|end| end.outcome.name().into()),
        exit_code: attempt_end.and_then(|end| end.exit_code),
        reason: end.map(|end| end.reason.clone()).unwrap_or_default(),
        confirmed: end.filter(|_| subject.state == State::Cancelled).map(|end| end.confirmed),
        batch: subject.batch.map(|first| first.0),
        member_of: subject.parent.map(|parent| parent.0),
        retry_of: accepted.and_then(|accepted| accepted.retry_of).map(|job| job.0),
        submitted_by: accepted.and_then(|accepted| accepted.submitted_by.as_deref()).map(str::to_owned),
        schedule: slot.map(|slot| slot.schedule.clone()),
        scheduled_at: slot.map(|slot| Time(slot.at)),
        labels: accepted.map(|accepted| accepted.labels.iter().cloned().collect()).unwrap_or_default(),
        ..job_in_state(
            subject.job,
            definition.name.to_string(),
            definition.revision.to_string(),
            subject.state,
            Time(subject.created_at),
        )
    }
}

fn attempt(subject: &AttemptSubject) -> shapes::Attempt {
    let end = subject.end.as_ref();
    shapes::Attempt {
        number: subject.number.0,
        fence: subject.fence.0,
        worker: worker_ref(&subject.worker),
        assigned_at: subject.assigned_at.map(Time).unwrap_or_default(),
        started_at: subject.started_at.map(Time),
        ended_at: end.map(|end| Time(end.at)),
        ran_ms: ran_ms(subject),
        container: subject.container.to_string(),
        stopping: subject.stopping.map(|cause| cause.name().into()),
        outcome: end.map(|end| end.outcome.name().into()),
        released: end.and_then(|end| end.released).map(|cause| cause.name().into()),
        exit_code: end.and_then(|end| end.exit_code),
        message: end.map(|end| end.message.clone()).unwrap_or_default(),
        output: end.map(|end| shapes::OutputBytes {
            stdout_bytes: end.output.0,
            stderr_bytes: end.output.1,
            cut: None,
        }),
        usage: end.and_then(|end| shapes::Usage::of(&end.usage)),
    }
}

/// Milliseconds between start and end of the container. Unknown for a lost attempt.
fn ran_ms(attempt: &AttemptSubject) -> Option<u64> {
    let end = attempt.end.as_ref().filter(|end| end.outcome != Outcome::Lost)?;
    Some(shapes::millis(end.at.since(attempt.started_at?)))
}

/// Milliseconds between the first start of a member and the end of the job that runs on several workers.
fn members_ran_ms(subject: &JobSubject) -> Option<u64> {
    let end = subject.end.as_ref()?;
    Some(shapes::millis(end.at.since(subject.members_started_at?)))
}

fn worker_ref(worker: &WorkerName) -> shapes::WorkerRef {
    shapes::WorkerRef { id: worker.id.0, name: worker.name.to_string() }
}
