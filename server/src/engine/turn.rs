//! Inputs on their way into the open group, one after another. What the store has refused before is treated with care: it gets a group to
//! itself, or, if it was refused in one, is turned away.

use protocol::{Now, Report, SessionId};
use scheduler::input::{Input, Ticket};
use scheduler::step::{Answer, Rejection};

use super::refused::{self, MARKS_MAX, Mark, Standing};
use super::{Command, Engine, FromSession};

/// Inputs that were taken out of their inboxes and are to be stepped, the next one at the end.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) commands: Vec<Command>,
    pub(super) reports: Vec<FromSession>,
}

impl Turn {
    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.reports.is_empty()
    }
}

/// What is to be done with an input.
enum Way {
    /// Step it.
    In,
    /// Not into this group: it needs one to itself, and this one has begun.
    Later,
    /// Not at all.
    Out,
}

impl Engine {
    /// Steps what had piled up, until the open group is full: one command may be as large as a whole group.
    pub(super) fn take_turn(&mut self, turn: &mut Turn) {
        // One stamp for all of it: it happened before.
        let now = self.now();
        while self.has_room()
            && let Some(command) = turn.commands.pop()
        {
            if let Some(command) = self.take_command(now, command) {
                turn.commands.push(command);
            }
        }
        while self.has_room()
            && let Some(report) = turn.reports.pop()
        {
            if let Some(report) = self.take_report(now, report) {
                turn.reports.push(report);
            }
        }
    }

    /// Returns it if it has to wait for the next group.
    fn take_command(&mut self, now: Now, command: Command) -> Option<Command> {
        let Some(mark) = refused::mark_of_command(&command) else {
            self.command(now, command);
            return None;
        };
        match self.way(&[mark]) {
            Way::In => {
                if matches!(command, Command::Submit { batch: true, .. }) {
                    self.carry(mark);
                }
                self.command(now, command);
            }
            Way::Later => return Some(command),
            Way::Out => turn_away(command),
        }
        self.settle();
        None
    }

    /// Returns it, or what is left of it, if that has to wait for the next group.
    fn take_report(&mut self, now: Now, message: FromSession) -> Option<FromSession> {
        match message {
            FromSession::Said(session, reports) => return self.take_said(now, session, reports),
            FromSession::Opened { hello, outbox, heard } => {
                match self.way(&[refused::mark_of_hello(&hello)]) {
                    Way::In => {
                        self.performer.sessions.add(hello.session, outbox, heard);
                        self.step(now, Input::Connected(*hello));
                        self.snapshot_urgent = true;
                    }
                    Way::Later => return Some(FromSession::Opened { hello, outbox, heard }),
                    // Its outbox is dropped: so the session ends.
                    Way::Out => tell_closed(hello.session),
                }
                self.settle();
            }
            FromSession::Brought(session, strangers) => self.step(now, Input::Strangers(session, strangers)),
            FromSession::Closed(session, unsent) => self.closed(now, session, unsent),
        }
        None
    }

    fn take_said(&mut self, now: Now, session: SessionId, reports: Vec<Report>) -> Option<FromSession> {
        let mut marks = Vec::new();
        let mut reports = reports.into_iter();
        while let Some(report) = reports.next() {
            marks.clear();
            refused::marks_of_report(&report, &mut marks);
            match self.way(&marks) {
                Way::In => self.step(now, Input::Reported(session, report)),
                Way::Later => return Some(said(session, Some(report), reports)),
                Way::Out => {
                    // Nothing that it says later may be acknowledged before this: it ends here.
                    tell_closed(session);
                    self.closed(now, session, Vec::new());
                    return None;
                }
            }
            self.settle();
            if self.open.closed && reports.len() > 0 {
                return Some(said(session, None, reports));
            }
        }
        None
    }

    /// What is to be done with an input that has these marks. The open group knows it by them from now on, if it comes in.
    fn way(&mut self, marks: &[Mark]) -> Way {
        match self.refused.standing(marks) {
            Standing::Guilty => return Way::Out,
            Standing::Suspected if !self.open.is_empty() => {
                self.open.closed = true;
                return Way::Later;
            }
            Standing::Suspected => self.open.closed = true,
            Standing::Good => {}
        }
        let room = MARKS_MAX.saturating_sub(self.open.marks.len());
        self.open.marks.extend(marks.iter().take(room));
        Way::In
    }

    /// The next command is a request for many jobs: what it leads to may come in later groups than this one, until it is answered.
    fn carry(&mut self, mark: Mark) {
        self.open.marks.pop_if(|last| *last == mark);
        self.carried.push((Ticket(self.next_ticket), mark));
    }

    /// Requests for many jobs that have been answered are innocent.
    pub(super) fn settle_carried(&mut self) {
        if self.carried.is_empty() {
            return;
        }
        let performer = &self.performer;
        let (unanswered, answered): (Vec<_>, Vec<_>) =
            self.carried.drain(..).partition(|(ticket, _)| performer.awaits(*ticket));
        self.carried = unanswered;
        self.refused.pardon(&answered.into_iter().map(|(_, mark)| mark).collect::<Vec<_>>());
    }

    /// A suspected input that has led to nothing needs no group.
    fn settle(&mut self) {
        if self.open.closed && self.open.is_empty() {
            self.open.closed = false;
            self.refused.pardon(&std::mem::take(&mut self.open.marks));
        }
    }
}

fn said(session: SessionId, first: Option<Report>, rest: impl Iterator<Item = Report>) -> FromSession {
    FromSession::Said(session, first.into_iter().chain(rest).collect())
}

fn turn_away(command: Command) {
    tracing::error!(
        "turned away a request that the store has refused twice: see refused-inputs.txt in the data directory"
    );
    let answer = Answer::Rejected(Rejection::RefusedBefore);
    match command {
        Command::Submit { reply, .. }
        | Command::Cancel { reply, .. }
        | Command::Release { reply, .. }
        | Command::Operate { reply, .. } => {
            // Whoever asked may have gone.
            let _ = reply.send(answer);
        }
        // These have no mark.
        Command::Define { .. }
        | Command::Learn { .. }
        | Command::Explain { .. }
        | Command::AwaitEnd { .. } => {}
    }
}

fn tell_closed(session: SessionId) {
    tracing::error!(
        session = session.0,
        "closing the session of a worker: the store has refused twice what it says; see refused-inputs.txt in the data directory"
    );
}
