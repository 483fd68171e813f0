//! What a store would make of the changes, and what it would refuse; and what may be said once they are in it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use proptest::prelude::*;

use crate::walk::STRANGE;
use crate::world::World;
use crate::world::protocol::order::Verdict;
use crate::world::protocol::{JobId, Order, Token};
use crate::world::scheduler::input::{KeyHolder, Ticket};
use crate::world::scheduler::job::State;
use crate::world::scheduler::step::{Answer, Change, Effect, Note, Rejection};

/// What the changes have said about a job so far.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shown {
    state: State,
    current: Option<Token>,
    /// The last one that is not current any more.
    before: Option<Token>,
}

/// Follows the changes as a store would, and complains where one does not fit the row that it changes.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    steps: usize,
    rows: BTreeMap<JobId, Shown>,
    last_job: u64,
    last_fence: u64,
    /// The batch whose members are being made.
    forming: Option<RangeInclusive<JobId>>,
    /// Every attempt that was given.
    tried: BTreeSet<Token>,
    /// Cancelled jobs of which nobody knows whether everything is gone.
    unconfirmed: BTreeSet<JobId>,
    keys: BTreeMap<String, KeyHolder>,
    answered: BTreeSet<Ticket>,
}

impl Ledger {
    /// Takes in what has been decided since it was last asked.
    pub(crate) fn follow(&mut self, world: &World) -> Result<(), TestCaseError> {
        for (_, step) in &world.steps[self.steps..] {
            for change in &step.changes {
                self.enter(change)?;
            }
            for effect in &step.effects {
                self.hear(effect)?;
            }
        }
        self.steps = world.steps.len();
        let live = self.rows.iter().filter(|(id, row)| !row.state.has_ended() && !self.hides(**id));
        prop_assert_eq!(live.count(), world.scheduler.live_jobs());
        prop_assert!(self.rows.keys().all(|id| !self.hides(*id) || !world.scheduler.is_live(*id)));
        Ok(())
    }

    /// At the end: everybody has got an answer.
    pub(crate) fn close(&self, world: &World) -> Result<(), TestCaseError> {
        prop_assert_eq!(&self.forming, &None, "a batch was never finished");
        prop_assert_eq!(self.answered.len() as u64, world.tickets(), "somebody got no answer");
        Ok(())
    }

    fn enter(&mut self, change: &Change) -> Result<(), TestCaseError> {
        match change {
            Change::Added(it) => {
                if !self.hides(it.job) {
                    prop_assert!(it.job.0 > self.last_job, "number {} was given before", it.job);
                    self.last_job = it.job.0;
                }
                let old = self.rows.insert(it.job, Shown { state: it.state, current: None, before: None });
                prop_assert!(old.is_none(), "job {} added twice", it.job);
            }
            Change::Assigned(it) => {
                prop_assert!(it.token.fence.0 > self.last_fence, "fences must grow");
                self.last_fence = it.token.fence.0;
                self.tried.insert(it.token);
                let row = self.row(it.token.job)?;
                prop_assert!(row.state == State::Queued && row.current.is_none(), "{row:?} assigned");
                (row.state, row.current) = (State::Assigned, Some(it.token));
            }
            Change::Started { token, .. } => {
                let row = self.row(token.job)?;
                prop_assert!(row.state == State::Assigned && row.current == Some(*token), "{row:?} started");
                row.state = State::Running;
            }
            Change::Stopping { token, .. } => {
                prop_assert!(self.row(token.job)?.current == Some(*token), "a stranger is stopped");
            }
            Change::Waiting { job, closed, state, .. } => {
                let row = self.row(*job)?;
                prop_assert!(row.current == Some(closed.token), "{row:?} waits after {closed:?}");
                *row = Shown { state: *state, current: None, before: row.current };
            }
            Change::Due { job } => {
                let row = self.row(*job)?;
                prop_assert!(row.state == State::Scheduled, "{row:?} due");
                row.state = State::Queued;
            }
            Change::Freed { job } => {
                let row = self.row(*job)?;
                prop_assert!(row.state == State::Quarantined, "{row:?} freed");
                row.state = State::Queued;
            }
            Change::Ended(it) => {
                let row = self.row(it.job)?;
                prop_assert!(!row.state.has_ended(), "job {} ended twice", it.job);
                prop_assert!(
                    row.current == it.closed.as_ref().map(|closed| closed.token),
                    "{row:?} ended by {it:?}"
                );
                prop_assert!(it.confirmed || it.state == State::Cancelled, "{it:?} has nothing to confirm");
                let last = row.current.or(row.before);
                prop_assert!(it.confirmed || last.is_some(), "{it:?} has nobody who could confirm it");
                *row = Shown { state: it.state, current: None, before: last };
                self.unconfirmed.extend((!it.confirmed).then_some(it.job));
            }
            Change::Confirmed { token, .. } => {
                prop_assert!(self.tried.contains(token), "{token} was never given");
                prop_assert!(self.unconfirmed.remove(&token.job), "{token} was not in doubt");
            }
            // Whatever a worker makes up; the store keeps it only if there is such a job.
            Change::Noted { note: Note::LateReport { .. }, .. } => {}
            Change::Noted { job, .. } => prop_assert!(!self.hides(*job), "a note on a hidden job"),
            Change::Skipped { after, job, fence, .. } => {
                prop_assert!(self.last_job <= after.0, "a given number is left out");
                prop_assert!(job >= after && fence.0 >= self.last_fence);
                (self.last_job, self.last_fence) = (job.0, fence.0);
            }
            Change::Forming { first, last } => {
                prop_assert_eq!(&self.forming, &None, "one after the other");
                prop_assert!(first.0 > self.last_job, "numbers from {} were given before", first);
                self.last_job = last.0;
                self.forming = Some(*first..=*last);
            }
            Change::Formed { first } => {
                let members = self.forming.take().unwrap();
                prop_assert_eq!(members.start(), first);
                prop_assert_eq!(
                    self.members(*first, members.end().0 - first.0 + 1),
                    None,
                    "a member is missing"
                );
            }
            Change::Keyed { key, holder, .. } => {
                prop_assert!(self.keys.insert(key.to_string(), *holder).is_none(), "a key made two requests");
                prop_assert_eq!(self.members(holder.job, u64::from(holder.count)), None);
            }
            Change::Worker(_) | Change::WorkerForgotten(_) => {}
        }
        Ok(())
    }

    fn hear(&mut self, effect: &Effect) -> Result<(), TestCaseError> {
        match effect {
            Effect::JobEnded(job, state) => {
                prop_assert!(self.rows[job].state == *state, "told the end of job {} before its change", job);
            }
            Effect::Send(_, order) => prop_assert!(!stops_a_stranger(order), "{order:?}"),
            Effect::Reply(ticket, answer) => {
                prop_assert!(self.answered.insert(*ticket), "answered twice");
                match answer {
                    Answer::Accepted(it) => {
                        prop_assert_eq!(self.members(it.first, u64::from(it.count)), None, "{:?}", it);
                    }
                    Answer::Replayed(holder) | Answer::Rejected(Rejection::KeyMismatch(holder)) => {
                        prop_assert!(
                            self.keys.values().any(|kept| kept == holder),
                            "{:?} holds no key",
                            holder
                        );
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A row that may be changed.
    fn row(&mut self, job: JobId) -> Result<&mut Shown, TestCaseError> {
        prop_assert!(!self.hides(job), "job {} takes part before its batch is made", job);
        Ok(self.rows.get_mut(&job).unwrap())
    }

    fn hides(&self, job: JobId) -> bool {
        self.forming.as_ref().is_some_and(|members| members.contains(&job))
    }

    /// The first of these jobs that is not there for all to see.
    fn members(&self, first: JobId, count: u64) -> Option<u64> {
        (first.0..first.0 + count).find(|id| !self.rows.contains_key(&JobId(*id)) || self.hides(JobId(*id)))
    }
}

/// Whether a worker is told to stop an attempt that was never given here.
fn stops_a_stranger(order: &Order) -> bool {
    match order {
        Order::Cancel(cancel) => cancel.token.nonce == STRANGE,
        Order::Reconciled(it) => {
            it.attempts.iter().any(|(token, verdict)| token.nonce == STRANGE && *verdict == Verdict::Stop)
        }
        _ => false,
    }
}
