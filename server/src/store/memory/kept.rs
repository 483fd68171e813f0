//! One job, and what a change makes of it.

use std::sync::Arc;

use protocol::report::{Outcome, OutputLengths};
use protocol::{SessionId, Timestamp, Token, WorkerId};
use scheduler::definition::RetryPolicy;
use scheduler::job::{State, Stay};
use scheduler::retry::{self, Budget};
use scheduler::step::{Assigned, ClosedAttempt, Ended, Note};

use crate::store::{AttemptRow, JobRecord, LiveAttempt, LiveJob, Unconfirmed, late};

/// A job with what is not shown of it.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) record: JobRecord,
    pub(super) session: SessionId,
    pub(super) own_failures: u32,
    pub(super) losses: Vec<Timestamp>,
}

impl Kept {
    pub(super) fn current(&self) -> Option<Token> {
        let attempt = self.record.row.attempt.as_ref().filter(|attempt| attempt.outcome.is_none())?;
        Some(Token { job: self.record.row.job, fence: attempt.fence, nonce: attempt.nonce })
    }

    /// Whether it was cancelled, and nobody knows whether everything of it is gone.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.record.row.state == State::Cancelled && !self.record.row.confirmed
    }

    /// The attempts of such a job that nobody knows to be gone.
    pub(super) fn unconfirmed(&self) -> Vec<Unconfirmed> {
        let revision = self.record.row.revision;
        let lost = if self.is_unconfirmed() { self.lost() } else { Vec::new() };
        lost.into_iter().map(|(token, worker)| Unconfirmed { token, worker, revision }).collect()
    }

    /// Whether this attempt was given to this worker.
    pub(super) fn was_given(&self, token: Token, worker: WorkerId) -> bool {
        self.attempts().any(|(_, it)| it == (token, worker))
    }

    fn attempts(&self) -> impl Iterator<Item = (Option<Outcome>, (Token, WorkerId))> {
        let job = self.record.row.job;
        let attempts = self.record.past.iter().chain(&self.record.row.attempt);
        attempts.map(move |it| (it.outcome, (Token { job, fence: it.fence, nonce: it.nonce }, it.worker)))
    }

    /// Attempts that were lost, and of which nobody has told since that their containers are gone.
    fn lost(&self) -> Vec<(Token, WorkerId)> {
        let gone = |token: Token| {
            let is_it = |note: &Note| matches!(note, Note::Confirmed { token: of, .. } if *of == token);
            self.record.notes.iter().any(|(_, note)| is_it(note))
        };
        let lost =
            self.attempts().filter(|(outcome, (token, _))| *outcome == Some(Outcome::Lost) && !gone(*token));
        lost.map(|(_, of)| of).collect()
    }

    /// Whether it is a late report of what its attempt's row says already.
    pub(super) fn repeats(&self, note: &Note) -> bool {
        let Note::LateReport { token, worker, said } = note else { return false };
        let attempts = self.record.past.iter().chain(&self.record.row.attempt);
        attempts
            .filter(|it| (it.fence, it.nonce, it.worker) == (token.fence, token.nonce, *worker))
            .any(|it| late::repeats(said, it.started_at.is_some(), it.outcome))
    }

    pub(super) fn leave_out_surplus(&mut self) {
        let notes = &mut self.record.notes;
        let is_late = |(_, (_, note)): &(usize, &(Timestamp, Note))| matches!(note, Note::LateReport { .. });
        let late: Vec<usize> = notes.iter().enumerate().filter(is_late).map(|(at, _)| at).collect();
        if let Some(surplus) = late::surplus(late.len()) {
            notes.remove(late[surplus]);
            self.record.late_left_out += 1;
        }
    }

    pub(super) fn assign(&mut self, assigned: &Assigned) {
        let row = &mut self.record.row;
        row.state = State::Assigned;
        row.attempts = assigned.number;
        self.session = assigned.session;
        let attempt = AttemptRow {
            number: assigned.number,
            fence: assigned.token.fence,
            nonce: assigned.token.nonce,
            worker: assigned.worker,
            worker_name: Arc::from(""),
            assigned_at: assigned.at,
            started_at: None,
            container: String::new(),
            stopping: None,
            ended_at: None,
            outcome: None,
            exit_code: None,
            message: String::new(),
            output: OutputLengths::default(),
            result: None,
            released: None,
        };
        self.record.past.extend(row.attempt.replace(attempt));
    }

    pub(super) fn start(&mut self, at: Timestamp, container: &str) {
        self.record.row.state = State::Running;
        if let Some(attempt) = &mut self.record.row.attempt {
            attempt.started_at = Some(at);
            container.clone_into(&mut attempt.container);
        }
    }

    pub(super) fn wait(&mut self, closed: &ClosedAttempt, due_at: Timestamp, state: State) {
        self.close(closed);
        self.own_failures += u32::from(RetryPolicy::OWN_BUDGET.contains(&closed.outcome));
        if retry::budget(closed.outcome) == Budget::Platform {
            retry::note_loss(&mut self.losses, closed.ended_at);
        }
        let row = &mut self.record.row;
        (row.state, row.due_at) = (state, due_at);
    }

    pub(super) fn end(&mut self, ended: &Ended) {
        if let Some(closed) = &ended.closed {
            self.close(closed);
        }
        let row = &mut self.record.row;
        (row.state, row.ended_at, row.confirmed) = (ended.state, Some(ended.at), ended.confirmed);
        row.reason.clone_from(&ended.reason);
    }

    fn close(&mut self, closed: &ClosedAttempt) {
        let Some(attempt) = &mut self.record.row.attempt else { return };
        attempt.started_at = closed.started_at.or(attempt.started_at);
        attempt.ended_at = Some(closed.ended_at);
        attempt.outcome = Some(closed.outcome);
        attempt.exit_code = closed.exit_code;
        attempt.message.clone_from(&closed.message);
        attempt.output = closed.output;
        attempt.result.clone_from(&closed.result);
        attempt.released = closed.released;
    }

    /// Where the last attempt was that is over and was not given back.
    fn last(&self) -> Option<Stay> {
        let attempts = self.record.past.iter().chain(&self.record.row.attempt);
        attempts.rev().find_map(|attempt| Stay::after(attempt.worker, attempt.outcome?))
    }

    fn oom_kills(&self) -> u32 {
        let attempts = self.record.past.iter().chain(&self.record.row.attempt);
        attempts.fold(0, |kills, it| kills + u32::from(it.outcome == Some(Outcome::OomKilled)))
    }

    pub(super) fn live(&self) -> LiveJob {
        let row = &self.record.row;
        let attempt = row.attempt.as_ref().zip(self.current()).map(|(attempt, token)| LiveAttempt {
            token,
            worker: attempt.worker,
            session: self.session,
            assigned_at: attempt.assigned_at,
            started_at: attempt.started_at,
            stopping: attempt.stopping,
            begun: false,
        });
        LiveJob {
            job: row.job,
            revision: row.revision,
            state: row.state,
            priority: row.priority,
            due_at: row.due_at,
            timeout: row.timeout,
            has_body: !self.record.body.is_empty(),
            own_failures: self.own_failures,
            oom_kills: self.oom_kills(),
            losses: self.losses.clone(),
            attempts: row.attempts,
            last: self.last(),
            lost: self.lost(),
            attempt,
        }
    }
}
