//! Steps inputs into the open group, one after another. A suspected input gets a group of its own; a blocked one is rejected.

use protocol::{Now, Report, SessionId};
use scheduler::ids::Ticket;
use scheduler::input::{Connected, Input};
use scheduler::step::{Answer, Rejection};

use super::joins::JOINS_PER_MINUTE;
use super::refused::{self, FINGERPRINTS_MAX, Fingerprint, InputStatus};
use super::sessions::RefusedSession;
use super::{Command, Engine, FromSession, Outbox, ToSession};

/// Inputs that were taken from their inboxes and wait to be stepped, the next one at the end.
#[derive(Debug, Default)]
pub(super) struct InputBatch {
    pub(super) commands: Vec<Command>,
    pub(super) reports: Vec<FromSession>,
}

impl InputBatch {
    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.reports.is_empty()
    }
}

/// The decision on whether an input enters the open group.
enum Admission {
    /// The scheduler steps it now.
    Accept,
    /// It needs a group of its own, and the open one has other inputs.
    NextGroup,
    /// It is blocked.
    Reject,
}

impl Engine {
    /// Steps waiting inputs until the open group is full: one command may be as large as a whole group.
    pub(super) fn process_inputs(&mut self, batch: &mut InputBatch) {
        // One time for all of them: they arrived before now.
        let now = self.now();
        while self.has_room()
            && let Some(command) = batch.commands.pop()
        {
            if let Some(command) = self.process_command(now, command) {
                batch.commands.push(command);
            }
        }
        while self.has_room()
            && let Some(report) = batch.reports.pop()
        {
            if let Some(report) = self.process_message(now, report) {
                batch.reports.push(report);
            }
        }
    }

    /// Returns the command if it has to wait for the next group.
    fn process_command(&mut self, now: Now, command: Command) -> Option<Command> {
        let Some(fingerprint) = refused::fingerprint_command(&command) else {
            self.step_command(now, command);
            return None;
        };
        match self.admit(&[fingerprint]) {
            Admission::Accept => {
                if matches!(command, Command::Submit { batch: Some(_), .. }) {
                    self.track_batch(fingerprint);
                }
                self.step_command(now, command);
            }
            Admission::NextGroup => return Some(command),
            Admission::Reject => reject(command),
        }
        self.reopen_if_empty();
        None
    }

    /// Returns the message, or the rest of it, if that has to wait for the next group.
    fn process_message(&mut self, now: Now, message: FromSession) -> Option<FromSession> {
        match message {
            FromSession::Reported(session, reports) => return self.process_reports(now, session, reports),
            FromSession::Opened { hello, outbox, .. } if !self.joins.admits(&hello.secret_hash, now.up) => {
                tracing::warn!(
                    name = %hello.name,
                    address = hello.address,
                    limit = JOINS_PER_MINUTE,
                    "more new workers than may join in a minute: closed the session, the worker tries again"
                );
                refuse(&outbox, RefusedSession::TooManyJoins);
            }
            FromSession::Opened { mut hello, outbox, heard } => {
                self.prepare(&mut hello);
                match self.admit(&[refused::fingerprint_hello(&hello)]) {
                    Admission::Accept => {
                        self.dispatcher.sessions.add(hello.session, outbox, heard);
                        self.step(now, Input::Connected(*hello));
                        self.snapshot_urgent = true;
                    }
                    Admission::NextGroup => return Some(FromSession::Opened { hello, outbox, heard }),
                    Admission::Reject => {
                        log_closed(hello.session);
                        refuse(&outbox, RefusedSession::ByStore);
                    }
                }
                self.reopen_if_empty();
            }
            FromSession::UnknownAttempts(session, unknown) => {
                self.step(now, Input::UnknownAttempts(session, unknown))
            }
            FromSession::AttemptsNotOwned(session, tokens) => {
                self.step(now, Input::AttemptsNotOwned(session, tokens))
            }
            FromSession::Closed(session, unsent) => self.session_closed(now, session, unsent),
        }
        None
    }

    /// Completes a Hello in the order of decisions: a worker that joined just before counts for its token.
    fn prepare(&self, hello: &mut Connected) {
        let dropped = self.workers.prepare(hello);
        if !dropped.is_empty() {
            tracing::warn!(
                worker = %hello.name,
                labels = dropped.join(","),
                "worker claims labels that only a join token grants; they are ignored"
            );
        }
    }

    fn process_reports(&mut self, now: Now, session: SessionId, reports: Vec<Report>) -> Option<FromSession> {
        let mut fingerprints = Vec::new();
        let mut reports = reports.into_iter();
        while let Some(report) = reports.next() {
            fingerprints.clear();
            refused::fingerprint_report(&report, &mut fingerprints);
            match self.admit(&fingerprints) {
                Admission::Accept => self.step(now, Input::Reported(session, report)),
                Admission::NextGroup => return Some(reported(session, Some(report), reports)),
                Admission::Reject => {
                    // No later report may be acknowledged before this one, so the session ends.
                    log_closed(session);
                    self.dispatcher.sessions.send(session, ToSession::Refuse(RefusedSession::ByStore));
                    self.session_closed(now, session, Vec::new());
                    return None;
                }
            }
            self.reopen_if_empty();
            if self.open.closed && reports.len() > 0 {
                return Some(reported(session, None, reports));
            }
        }
        None
    }

    /// Decides on an input with these fingerprints, and adds them to the open group if the input is accepted.
    fn admit(&mut self, fingerprints: &[Fingerprint]) -> Admission {
        match self.refused.status(fingerprints) {
            InputStatus::Blocked => return Admission::Reject,
            InputStatus::Suspected if !self.open.is_empty() => {
                self.open.closed = true;
                return Admission::NextGroup;
            }
            InputStatus::Suspected => self.open.closed = true,
            InputStatus::Clear => {}
        }
        let room = FINGERPRINTS_MAX.saturating_sub(self.open.fingerprints.len());
        self.open.fingerprints.extend(fingerprints.iter().take(room));
        Admission::Accept
    }

    /// Tracks a batch: its changes may come in later groups than this one, until it is answered.
    fn track_batch(&mut self, fingerprint: Fingerprint) {
        self.open.fingerprints.pop_if(|last| *last == fingerprint);
        self.unanswered.push((Ticket(self.next_ticket), fingerprint));
    }

    /// Clears batches that have been answered.
    pub(super) fn clear_answered(&mut self) {
        if self.unanswered.is_empty() {
            return;
        }
        let dispatcher = &self.dispatcher;
        let (unanswered, answered): (Vec<_>, Vec<_>) =
            self.unanswered.drain(..).partition(|(ticket, _)| dispatcher.awaits(*ticket));
        self.unanswered = unanswered;
        self.refused.clear(&answered.into_iter().map(|(_, fingerprint)| fingerprint).collect::<Vec<_>>());
    }

    /// Reopens the group if its suspected input has changed nothing.
    fn reopen_if_empty(&mut self) {
        if self.open.closed && self.open.is_empty() {
            self.open.closed = false;
            self.refused.clear(&std::mem::take(&mut self.open.fingerprints));
        }
    }
}

fn reported(session: SessionId, first: Option<Report>, rest: impl Iterator<Item = Report>) -> FromSession {
    FromSession::Reported(session, first.into_iter().chain(rest).collect())
}

fn reject(command: Command) {
    tracing::error!(
        "rejected a request whose changes the store refused twice; to accept it again, stop the server and delete refused-inputs.txt in the data directory"
    );
    let answer = Answer::Rejected(Rejection::RefusedBefore);
    match command {
        Command::Submit { reply, .. }
        | Command::Cancel { reply, .. }
        | Command::CancelBatch { reply, .. }
        | Command::ChangeBatch { reply, .. }
        | Command::Release { reply, .. }
        | Command::Update { reply, .. }
        | Command::Operate { reply, .. }
        | Command::ReserveLabels { reply, .. }
        | Command::Pause { reply, .. }
        | Command::Backfill { reply, .. } => {
            // The caller may have disconnected.
            let _ = reply.send(answer);
        }
        // These have no fingerprint.
        Command::ReplaceDefinitions { .. }
        | Command::AddDefinition { .. }
        | Command::MissingSecrets(_)
        | Command::Explain { .. }
        | Command::PendingReasons { .. }
        | Command::Limits { .. }
        | Command::AwaitEnd { .. } => {}
    }
}

fn refuse(outbox: &Outbox, cause: RefusedSession) {
    // The session may have ended by itself meanwhile.
    let _ = outbox.send(ToSession::Refuse(cause));
}

fn log_closed(session: SessionId) {
    tracing::error!(
        session = session.0,
        "closed a worker's session: the store refused the changes of its message twice; to accept it again, stop the server and delete refused-inputs.txt in the data directory"
    );
}
