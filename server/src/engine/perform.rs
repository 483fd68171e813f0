//! What follows a commit: answers, orders, wake-ups, the published snapshot. Everything here may be lost in a crash.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::JobId;
use scheduler::input::Ticket;
use scheduler::job::State;
use scheduler::snapshot::Snapshot;
use scheduler::step::{Answer, Effect};
use tokio::sync::{oneshot, watch};

use super::Effects;
use super::sessions::{Sessions, ToSession};

/// Whom to tell what.
#[derive(Debug)]
pub(super) struct Performer {
    /// All open sessions.
    pub(super) sessions: Sessions,
    answers: HashMap<Ticket, oneshot::Sender<Answer>>,
    ends: HashMap<JobId, Vec<oneshot::Sender<State>>>,
    publish: watch::Sender<Arc<Snapshot>>,
}

impl Performer {
    /// Publishes snapshots here.
    pub(super) fn new(publish: watch::Sender<Arc<Snapshot>>) -> Self {
        Self { sessions: Sessions::default(), answers: HashMap::new(), ends: HashMap::new(), publish }
    }

    /// The answer to this ticket goes here.
    pub(super) fn await_answer(&mut self, ticket: Ticket, reply: oneshot::Sender<Answer>) {
        self.answers.insert(ticket, reply);
    }

    /// Tells when this job has ended.
    pub(super) fn await_end(&mut self, job: JobId, reply: oneshot::Sender<State>) {
        let waiting = self.ends.entry(job).or_default();
        waiting.retain(|reply| !reply.is_closed());
        waiting.push(reply);
    }

    /// Does what a committed group asks for, in order. Whoever has gone away in the meantime is passed over.
    pub(super) fn perform(&mut self, effects: Effects) {
        if let Some(snapshot) = effects.snapshot {
            self.publish.send_replace(snapshot);
        }
        for effect in effects.list {
            match effect {
                Effect::Reply(ticket, answer) => {
                    if let Some(reply) = self.answers.remove(&ticket) {
                        let _ = reply.send(answer);
                    }
                }
                Effect::Send(session, order) => self.sessions.send(session, ToSession::Order(order)),
                Effect::Define(session, definition) => {
                    self.sessions.send(session, ToSession::Define(definition))
                }
                Effect::Enqueue(session, grants) => self.sessions.send(session, ToSession::Enqueue(grants)),
                Effect::Close(session, reason) => self.sessions.send(session, ToSession::Close(reason)),
                Effect::JobEnded(job, state) => self.tell_end(job, state),
            }
        }
        drop(effects.too_late);
    }

    fn tell_end(&mut self, job: JobId, state: State) {
        if self.ends.is_empty() {
            return;
        }
        for reply in self.ends.remove(&job).unwrap_or_default() {
            let _ = reply.send(state);
        }
    }
}
