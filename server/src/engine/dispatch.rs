//! Performs the effects of a committed group: answers, orders, wake-ups, the published snapshot. All of it may be lost in a crash.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::JobId;
use scheduler::ids::Ticket;
use scheduler::job::State;
use scheduler::snapshot::Snapshot;
use scheduler::step::{Answer, Effect};
use tokio::sync::{oneshot, watch};

use super::group::GroupEffects;
use super::overrides::OverridesCache;
use super::sessions::{Sessions, ToSession};
use super::watch::JobWatches;
use crate::events::EventSender;

/// Delivers effects to sessions, callers and waiters.
#[derive(Debug)]
pub(super) struct EffectDispatcher {
    /// All open sessions.
    pub(super) sessions: Sessions,
    answers: HashMap<Ticket, oneshot::Sender<Answer>>,
    ends: HashMap<JobId, Vec<oneshot::Sender<State>>>,
    publish: watch::Sender<Arc<Snapshot>>,
    overrides: Arc<OverridesCache>,
    watches: JobWatches,
    pub(super) events: EventSender,
}

impl EffectDispatcher {
    /// Publishes snapshots to `publish`, and removes ended jobs from `overrides`.
    pub(super) fn new(
        publish: watch::Sender<Arc<Snapshot>>,
        overrides: Arc<OverridesCache>,
        watches: JobWatches,
        events: EventSender,
    ) -> Self {
        let (sessions, answers, ends) = (Sessions::default(), HashMap::new(), HashMap::new());
        Self { sessions, answers, ends, publish, overrides, watches, events }
    }

    /// Registers the channel for the answer to this ticket.
    pub(super) fn await_answer(&mut self, ticket: Ticket, reply: oneshot::Sender<Answer>) {
        self.answers.insert(ticket, reply);
    }

    /// True while the answer to this ticket has not been sent.
    pub(super) fn awaits(&self, ticket: Ticket) -> bool {
        self.answers.contains_key(&ticket)
    }

    /// Registers a waiter for the end of this job.
    pub(super) fn await_end(&mut self, job: JobId, reply: oneshot::Sender<State>) {
        let waiting = self.ends.entry(job).or_default();
        waiting.retain(|reply| !reply.is_closed());
        waiting.push(reply);
    }

    /// Performs the effects of a committed group, in order. Callers and sessions that are gone are skipped.
    pub(super) fn perform(&mut self, effects: GroupEffects) {
        self.events.publish(effects.group, effects.snapshot.clone());
        if let Some(snapshot) = effects.snapshot {
            self.publish.send_replace(snapshot);
        }
        self.watches.notify(&effects.changed_jobs);
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
                    // A job that was cancelled before its assignment would stay in the cache for ever.
                    self.overrides.take(job);
                    self.notify_waiters(job, state);
                }
            }
        }
        for (reply, limits) in effects.limits {
            let _ = reply.send(limits);
        }
        for (reply, reasons) in effects.reasons {
            let _ = reply.send(reasons);
        }
        for (reply, explanation) in effects.explanations {
            let _ = reply.send(explanation);
        }
        drop(effects.not_live);
    }

    fn notify_waiters(&mut self, job: JobId, state: State) {
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
    use protocol::container::Overrides;

    use super::*;

    #[test]
    fn ended_job_leaves_no_overrides_in_the_cache() {
        let overrides = Arc::new(OverridesCache::default());
        let (publish, _snapshot) = watch::channel(Arc::default());
        let (events, ..) = crate::events::channel(crate::events::FeedState::default());
        let mut dispatcher = EffectDispatcher::new(publish, overrides.clone(), JobWatches::default(), events);
        overrides.put(JobId(1), Overrides { args: vec!["one".into()], ..Overrides::default() });
        let list = vec![Effect::JobEnded(JobId(1), State::Cancelled)];
        dispatcher.perform(GroupEffects { list, ..GroupEffects::default() });
        assert_eq!(overrides.take(JobId(1)), None);
    }
}
