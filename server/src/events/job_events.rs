//! Events of jobs, attempts and batches.

use protocol::report::Outcome;
use protocol::{AttemptNo, JobId, Timestamp, Token, WorkerId};
use scheduler::job::State;
use scheduler::run_on::ParentRow;
use scheduler::step::{AddedJob, Assigned, Change, ClosedAttempt, Ended, Note};

use super::feed_state::{EventSink, FeedState, PendingCount, is_loss};
use super::live_jobs::JobFacts;
use super::record::{AcceptedSubject, AttemptEnd, AttemptSubject, EndSubject, JobSubject, Subject};
use crate::store::slot_in;

impl FeedState {
    /// Follows a change of a job, and makes its events.
    pub(super) fn job_change(&mut self, change: &Change, at: Timestamp, sink: &mut EventSink<'_>) {
        match change {
            Change::Added(added) => self.added(added, sink),
            Change::Assigned(assigned) => self.assigned(assigned, sink),
            Change::Started { token, at, container } => {
                self.set_state(token.job, State::Running);
                if let Some(facts) = self.jobs.get(token.job) {
                    self.metrics.job_started(at.since(facts.due_at));
                }
                if let Some(attempt) = self.attempts.get_mut(&token.job) {
                    (attempt.started_at, attempt.container) = (Some(*at), container.as_str().into());
                }
                self.job_event(token.job, *at, "job.started", None, sink);
            }
            Change::Stopping { token, cause, at, by } => {
                if let Some(attempt) = self.attempts.get_mut(&token.job) {
                    attempt.stopping = Some(*cause);
                }
                self.job_event(token.job, *at, "job.stopping", Some(by), sink);
            }
            Change::AttemptClosed { job, closed, due_at, state } => {
                // It happened before the job waits again.
                self.unreported_start(*job, closed, sink);
                self.jobs.update(*job, |facts| (facts.state, facts.due_at) = (*state, *due_at));
                self.attempt_ended(*job, closed, sink);
                let kind = match state {
                    State::Quarantined => "job.quarantined",
                    State::Scheduled => "job.scheduled",
                    _ => "job.queued",
                };
                self.job_event(*job, closed.ended_at, kind, None, sink);
            }
            Change::BecameDue { job } => {
                self.set_state(*job, State::Queued);
                self.job_event(*job, at, "job.queued", None, sink);
            }
            // An operator has released a quarantined job. `attempt.released` is something else: a worker hands an attempt back.
            Change::QuarantineReleased { job } => {
                self.set_state(*job, State::Queued);
                self.job_event(*job, at, "job.released", None, sink);
            }
            Change::Updated(updated) => {
                self.jobs.update(updated.job, |facts| {
                    (facts.state, facts.due_at) = (updated.state, updated.due_at);
                    facts.priority = updated.priority;
                });
                self.job_event(updated.job, at, "job.updated", None, sink);
            }
            Change::Ended(ended) => self.ended(ended, sink),
            Change::ContainerGone { token, worker, at } => {
                self.attempt_event(token, *worker, *at, "job.confirmed", None, sink);
            }
            Change::Noted { job, at, note } => self.noted(*job, *at, note, sink),
            Change::Member(member) => {
                self.members.insert(member.job, member.parent);
            }
            Change::Parent(row) => self.parent_changed(row, sink),
            Change::PendingBatch { first, .. } => {
                self.pending.insert(*first, PendingCount::default());
            }
            Change::BatchCompleted { first } => {
                if let Some(PendingCount { count, definition }) = self.pending.remove(first) {
                    let name = definition.map(|index| self.definition(index).clone());
                    sink.add(at, "batch.accepted", Subject::Batch { first: *first, count, name });
                }
            }
            Change::BatchEnded { first, count, at, .. } => {
                let subject = Subject::Batch { first: *first, count: u64::from(*count), name: None };
                sink.add(*at, "batch.ended", subject);
            }
            // Changes of other things have their events in `known`.
            _ => {}
        }
    }

    fn added(&mut self, added: &AddedJob, sink: &mut EventSink<'_>) {
        let definition = self.definition_index(added.revision);
        let times = (added.created_at, added.due_at);
        let mut facts = JobFacts::new(added.job, added.batch, definition, times);
        (facts.state, facts.priority) = (added.state, added.priority);
        self.jobs.insert(added.job, facts);
        // Its parent counts.
        if !self.members.contains_key(&added.job) {
            self.metrics.job_accepted(&self.definition(definition).name);
        }
        if let Some(pending) = added.batch.and_then(|first| self.pending.get_mut(&first)) {
            let is_first = pending.count == 0;
            pending.definition = Some(definition).filter(|it| is_first || pending.definition == Some(*it));
            pending.count += 1;
            return;
        }
        let labels = added.details.as_ref().map_or_else(Vec::new, |details| details.labels.clone());
        let has_slot = added.retry_of.is_some() || self.fired.contains(&added.job);
        let details = added.details.as_ref().filter(|_| has_slot);
        let slot = details.and_then(|details| slot_in(&details.overrides.environment));
        let submitted_by = added.submitted_by.clone();
        let accepted = AcceptedSubject { labels, retry_of: added.retry_of, submitted_by, slot };
        if let Some(mut subject) = self.subject(added.job) {
            subject.accepted = Some(Box::new(accepted));
            sink.add(added.created_at, "job.accepted", Subject::Job(subject));
        }
    }

    /// The first start of a member is the start of its parent. Starts in metrics are those of members.
    fn parent_changed(&mut self, row: &ParentRow, sink: &mut EventSink<'_>) {
        let Some(at) = row.started_at else { return };
        if self.started_parents.insert(row.job, at).is_none() {
            self.set_state(row.job, State::Running);
            self.job_event(row.job, at, "job.started", None, sink);
        }
    }

    fn assigned(&mut self, assigned: &Assigned, sink: &mut EventSink<'_>) {
        let Assigned { token, number, worker, at, .. } = assigned;
        self.jobs.update(token.job, |facts| {
            (facts.state, facts.attempts) = (State::Assigned, number.0);
        });
        let mut attempt = self.unknown_attempt(token, *worker);
        (attempt.number, attempt.assigned_at) = (*number, Some(*at));
        self.attempts.insert(token.job, attempt);
        self.job_event(token.job, *at, "job.assigned", None, sink);
    }

    /// The end of an attempt whose job waits again.
    fn attempt_ended(&mut self, job: JobId, closed: &ClosedAttempt, sink: &mut EventSink<'_>) {
        let kind = match closed.outcome {
            Outcome::Released => "attempt.released",
            outcome if is_loss(outcome) => "attempt.lost",
            _ => "attempt.ended",
        };
        self.close_attempt(job, closed);
        self.job_event(job, closed.ended_at, kind, None, sink);
        self.attempts.remove(&job);
    }

    /// Makes the event of a start that was not reported: a worker leaves the report out if the program has ended before it is sent.
    fn unreported_start(&mut self, job: JobId, closed: &ClosedAttempt, sink: &mut EventSink<'_>) {
        let Some(at) = closed.started_at else { return };
        let Some(attempt) = self.attempts.get_mut(&job).filter(|it| it.started_at.is_none()) else { return };
        attempt.started_at = Some(at);
        self.set_state(job, State::Running);
        if let Some(facts) = self.jobs.get(job) {
            self.metrics.job_started(at.since(facts.due_at));
        }
        self.job_event(job, at, "job.started", None, sink);
    }

    /// Notes in the current attempt how it ended.
    fn close_attempt(&mut self, job: JobId, closed: &ClosedAttempt) {
        if let Some(facts) = self.jobs.get(job) {
            let known = closed.started_at.filter(|_| closed.outcome != Outcome::Lost);
            let ran = known.map(|from| closed.ended_at.since(from));
            let name = &self.definition(facts.definition).name;
            self.metrics.attempt_ended(name, closed.outcome, ran);
            self.metrics.attempt_used(name, &closed.usage);
        }
        if let Some(attempt) = self.attempts.get_mut(&job) {
            attempt.started_at = closed.started_at.or(attempt.started_at);
            attempt.end = Some(Box::new(AttemptEnd {
                at: closed.ended_at,
                outcome: closed.outcome,
                released: closed.released,
                exit_code: closed.exit_code,
                message: closed.message.clone(),
                output: (closed.output.stdout, closed.output.stderr),
                usage: closed.usage,
            }));
        }
    }

    fn ended(&mut self, ended: &Ended, sink: &mut EventSink<'_>) {
        if let Some(closed) = &ended.closed {
            self.unreported_start(ended.job, closed, sink);
            self.close_attempt(ended.job, closed);
            if is_loss(closed.outcome) {
                self.job_event(ended.job, closed.ended_at, "attempt.lost", None, sink);
            }
        }
        self.set_state(ended.job, ended.state);
        if let Some(mut subject) = self.subject(ended.job) {
            let (at, confirmed) = (ended.at, ended.confirmed);
            subject.end = Some(Box::new(EndSubject { at, reason: ended.reason.clone(), confirmed }));
            sink.add(ended.at, "job.ended", Subject::Job(subject));
        }
        self.started_parents.remove(&ended.job);
        let is_member = self.members.remove(&ended.job).is_some();
        if let Some(facts) = self.jobs.remove(ended.job).filter(|_| !is_member) {
            self.metrics.job_ended(&self.definition(facts.definition).name, ended.state);
        }
        self.attempts.remove(&ended.job);
    }

    fn noted(&mut self, job: JobId, at: Timestamp, note: &Note, sink: &mut EventSink<'_>) {
        match note {
            Note::CancelRequested { by } => self.job_event(job, at, "job.cancel_requested", Some(by), sink),
            // Changes of their own say the same, or the job itself does.
            Note::Released { .. }
            | Note::Updated { .. }
            | Note::ResultLeftOut { .. }
            | Note::WorkersLeftOut { .. } => {}
            Note::ContainerGone { token, worker } => {
                self.attempt_event(token, *worker, at, "attempt.gone", None, sink);
            }
            Note::LateReport { token, worker, said } => {
                self.attempt_event(token, *worker, at, "attempt.late_report", Some(said), sink);
            }
            Note::Unreachable { token, worker } => {
                self.attempt_event(token, *worker, at, "attempt.unreachable", None, sink);
            }
            Note::Revived { token, worker } => {
                self.attempt_event(token, *worker, at, "attempt.returned", None, sink);
            }
        }
    }

    fn set_state(&mut self, job: JobId, state: State) {
        self.jobs.update(job, |facts| facts.state = state);
    }

    fn job_event(
        &mut self,
        job: JobId,
        at: Timestamp,
        kind: &'static str,
        by: Option<&String>,
        sink: &mut EventSink<'_>,
    ) {
        if let Some(mut subject) = self.subject(job) {
            subject.by = by.filter(|by| !by.is_empty()).map(|by| by.as_str().into());
            sink.add(at, kind, Subject::Job(subject));
        }
    }

    /// An event about an attempt. The job is shown if the attempt is its current one.
    fn attempt_event(
        &mut self,
        token: &Token,
        worker: WorkerId,
        at: Timestamp,
        kind: &'static str,
        said: Option<&String>,
        sink: &mut EventSink<'_>,
    ) {
        let is_current = self.attempts.get(&token.job).is_some_and(|it| it.fence == token.fence);
        match self.subject(token.job).filter(|_| is_current && said.is_none()) {
            Some(subject) => sink.add(at, kind, Subject::Job(subject)),
            None => {
                let current = self.attempts.get(&token.job).filter(|_| is_current).cloned();
                let mut attempt = current.unwrap_or_else(|| self.unknown_attempt(token, worker));
                attempt.said = said.map(|said| said.as_str().into());
                sink.add(at, kind, Subject::Attempt { attempt, job: token.job });
            }
        }
    }

    /// An attempt of which only the token and the worker are known.
    fn unknown_attempt(&self, token: &Token, worker: WorkerId) -> AttemptSubject {
        AttemptSubject {
            number: AttemptNo(0),
            fence: token.fence,
            worker: self.worker_name(worker),
            assigned_at: None,
            started_at: None,
            container: Box::default(),
            stopping: None,
            end: None,
            said: None,
        }
    }

    fn subject(&mut self, job: JobId) -> Option<Box<JobSubject>> {
        let facts = self.jobs.get(job)?;
        Some(Box::new(JobSubject {
            job,
            definition: self.definition(facts.definition).clone(),
            state: facts.state,
            priority: facts.priority,
            created_at: facts.created_at,
            due_at: facts.due_at,
            attempts: facts.attempts,
            batch: facts.batch(job),
            parent: self.members.get(&job).copied(),
            attempt: self.attempts.get(&job).cloned(),
            members_started_at: self.started_parents.get(&job).copied(),
            accepted: None,
            end: None,
            by: None,
        }))
    }
}
