//! Handlers add changes and effects to the running step. Grants and answers follow at its end.

use protocol::{JobId, Order, SessionId, Timestamp, Token};

use super::Scheduler;
use crate::ids::Ticket;
use crate::state::State;
use crate::step::{Accepted, Answer, Change, Effect, Grant};

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
    /// `replaces` is the batch that the new one replaces.
    pub(crate) fn reply_accepted(
        &mut self,
        ticket: Ticket,
        first: JobId,
        count: u32,
        created_at: Timestamp,
        replaces: Option<JobId>,
    ) {
        let accepted = Accepted { first, count, created_at, state: State::Queued, pending: None, replaces };
        self.accepted.push((ticket, accepted));
    }

    pub(crate) fn grant(&mut self, session: SessionId, grant: Grant) {
        self.grants.entry(session).or_default().push(grant);
    }

    /// Takes back an attempt that this step was to send. Grants go out at the end of a step, after the order to stop it.
    pub(crate) fn withdraw_grant(&mut self, session: SessionId, token: Token) {
        if let Some(grants) = self.grants.get_mut(&session) {
            grants.retain(|grant| grant.token != token);
        }
    }
}
