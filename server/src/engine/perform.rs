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
use super::bodies::Bodies;
use super::sessions::{Sessions, ToSession};

/// Whom to tell what.
#[derive(Debug)]
pub(super) struct Performer {
    /// All open sessions.
    pub(super) sessions: Sessions,
    answers: HashMap<Ticket, oneshot::Sender<Answer>>,
    ends: HashMap<JobId, Vec<oneshot::Sender<State>>>,
    publish: watch::Sender<Arc<Snapshot>>,
    bodies: Arc<Bodies>,
}

impl Performer {
    /// Publishes snapshots here; takes what jobs never handed out had added to their definitions out of there.
    pub(super) fn new(publish: watch::Sender<Arc<Snapshot>>, bodies: Arc<Bodies>) -> Self {
        Self { sessions: Sessions::default(), answers: HashMap::new(), ends: HashMap::new(), publish, bodies }
    }

    /// The answer to this ticket goes here.
    pub(super) fn await_answer(&mut self, ticket: Ticket, reply: oneshot::Sender<Answer>) {
        self.answers.insert(ticket, reply);
    }

    /// Whether the answer to this ticket is still to come.
    pub(super) fn awaits(&self, ticket: Ticket) -> bool {
        self.answers.contains_key(&ticket)
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
                Effect::JobEnded(job, state) => {
                    // A job that was cancelled before it was handed out would be kept for ever.
                    self.bodies.take(job);
                    self.tell_end(job, state);
                }
            }
        }
        for (reply, explanation) in effects.explained {
            let _ = reply.send(explanation);
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

#[cfg(test)]
mod tests {
    use protocol::container::Body;

    use super::*;

    #[test]
    fn a_job_that_ends_before_it_is_handed_out_leaves_no_body_behind() {
        let bodies = Arc::new(Bodies::default());
        let (publish, _snapshot) = watch::channel(Arc::default());
        let mut performer = Performer::new(publish, bodies.clone());
        bodies.put(JobId(1), &Body { args: vec!["one".into()], ..Body::default() });
        let list = vec![Effect::JobEnded(JobId(1), State::Cancelled)];
        performer.perform(Effects { list, ..Effects::default() });
        assert_eq!(bodies.take(JobId(1)), None);
    }
}
