//! Handlers add changes and effects to the running step. Grants and answers follow at its end.

use core::mem;

use protocol::{JobId, Order, SessionId, Timestamp, Token};

use super::{Accepted, Answer, Change, Effect, Grant};
use crate::core::Scheduler;
use crate::explain::pending;
use crate::ids::Ticket;
use crate::state::State;

impl Scheduler {
    pub(crate) fn change(&mut self, change: Change) {
        self.changed = true;
        self.out.changes.push(change);
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        self.out.effects.push(effect);
    }

    pub(crate) fn send(&mut self, session: SessionId, order: Order) {
        self.out.effects.push(Effect::Send(session, order));
    }

    pub(crate) fn reply(&mut self, ticket: Ticket, answer: Answer) {
        self.out.effects.push(Effect::Reply(ticket, answer));
    }

    /// Answers at the end of this step, when the state of the first accepted job is known.
    pub(crate) fn reply_accepted(&mut self, ticket: Ticket, first: JobId, count: u32, created_at: Timestamp) {
        let accepted = Accepted { first, count, created_at, state: State::Queued, pending: None };
        self.accepted.push((ticket, accepted));
    }

    pub(crate) fn grant(&mut self, session: SessionId, grant: Grant) {
        self.grants.entry(session).or_default().push(grant);
    }

    /// Takes back an attempt that this step was to send. Grants go out at the end of a step, behind the order to stop it.
    pub(crate) fn withdraw_grant(&mut self, session: SessionId, token: Token) {
        if let Some(grants) = self.grants.get_mut(&session) {
            grants.retain(|grant| grant.token != token);
        }
    }

    /// The state of a parent that has ended in the step in which it was made: there is no worker for it.
    fn end_of_new_parent(&self, job: JobId) -> Option<State> {
        if self.jobs.contains_key(&job) {
            return None;
        }
        let changes = &self.out.changes;
        let is_parent = changes.iter().any(|change| matches!(change, Change::Parent(row) if row.job == job));
        let mut ended = changes.iter().rev().filter(|_| is_parent);
        ended.find_map(|change| match change {
            Change::Ended(ended) if ended.job == job => Some(ended.state),
            _ => None,
        })
    }

    /// Sends grants and answers that had to wait for the end of the step.
    pub(crate) fn flush_replies(&mut self) {
        let grants = mem::take(&mut self.grants).into_iter().filter(|(_, grants)| !grants.is_empty());
        for (session, grants) in grants {
            self.effect(Effect::Enqueue(session, grants));
        }
        if !self.accepted.is_empty() {
            self.fleet.regroup();
        }
        for (ticket, mut accepted) in mem::take(&mut self.accepted) {
            (accepted.state, accepted.pending) =
                pending::state_and_reason(self, accepted.first, pending::why_waiting);
            if let Some(state) = self.end_of_new_parent(accepted.first) {
                accepted.state = state;
            }
            self.reply(ticket, Answer::Accepted(accepted));
        }
    }
}
