//! A model of the store: the rows after each change, the changes that it must refuse, and the effects that are allowed after them.

mod batch_ends;
mod sets;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use proptest::prelude::*;

use crate::walk::STRANGE;
use crate::world::World;
use crate::world::protocol::order::ReconcileVerdict;
use crate::world::protocol::{JobId, Order, Timestamp, Token};
use crate::world::scheduler::batches::NewBatch;
use crate::world::scheduler::dependencies::{PredecessorId, RequiredEnd, SKIPPED};
use crate::world::scheduler::hooks::{HookEvent, HookRow};
use crate::world::scheduler::ids::Ticket;
use crate::world::scheduler::input::KeyHolder;
use crate::world::scheduler::job::State;
use crate::world::scheduler::pauses::PauseTarget;
use crate::world::scheduler::schedule::ScheduleId;
use crate::world::scheduler::schedules::{FireRow, FireVerdict};
use crate::world::scheduler::step::{Answer, Change, Effect, Note, Rejection};

/// State of a job by the changes so far.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shown {
    state: State,
    current: Option<Token>,
    /// The last one that is not current any more.
    before: Option<Token>,
}

/// The rows of one schedule.
type FireRows = BTreeMap<Timestamp, (Timestamp, FireVerdict)>;

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
    /// The batches with members that have not ended.
    batches: BTreeMap<JobId, NewBatch>,
    keys: BTreeMap<String, KeyHolder>,
    /// The rows of each schedule by their first slots: up to which they go, and what became of them.
    fires: BTreeMap<(Arc<str>, ScheduleId), FireRows>,
    /// Jobs that slots became.
    fired: BTreeSet<JobId>,
    /// Slots that became jobs, at once or by a backfill.
    slots: BTreeSet<(Arc<str>, ScheduleId, Timestamp)>,
    /// Hooks that were decided, and the jobs that were made for them.
    hooks: BTreeSet<(JobId, HookEvent, Arc<str>)>,
    hooked: BTreeSet<JobId>,
    /// The jobs that each job comes after, with the end that it requires and the one that it learned of.
    after: BTreeMap<JobId, BTreeMap<PredecessorId, (RequiredEnd, Option<State>)>>,
    /// How batches ended.
    ended_batches: BTreeMap<JobId, State>,
    /// Batches that were cancelled as a whole.
    pub(super) cancelled_batches: BTreeSet<JobId>,
    /// Batches that are paused.
    pub(super) paused_batches: BTreeSet<JobId>,
    /// Jobs that were skipped.
    skipped: BTreeSet<JobId>,
    cursors: BTreeMap<(Arc<str>, ScheduleId), Timestamp>,
    answered: BTreeSet<Ticket>,
    sets: sets::Sets,
}

impl Ledger {
    /// Takes in what has been decided since it was last asked.
    pub(crate) fn follow(&mut self, world: &World) -> Result<(), TestCaseError> {
        for (_, step) in &world.steps[self.steps..] {
            for change in &step.changes {
                self.enter(change)?;
                self.sets.enter(change)?;
            }
            for effect in &step.effects {
                self.hear(effect)?;
            }
        }
        self.sets.check_rows()?;
        self.steps = world.steps.len();
        let live = self.rows.iter().filter(|(id, row)| !row.state.has_ended() && !self.hides(**id));
        prop_assert_eq!(live.count(), world.scheduler.live_jobs());
        prop_assert!(self.rows.keys().all(|id| !self.hides(*id) || !world.scheduler.is_live(*id)));
        Ok(())
    }

    /// A large batch is being made.
    #[allow(dead_code, reason = "only the walk of jobs on several workers asks")]
    pub(crate) fn is_forming(&self) -> bool {
        self.forming.is_some()
    }

    /// At the end: everybody has got an answer.
    pub(crate) fn close(&self, world: &World) -> Result<(), TestCaseError> {
        prop_assert_eq!(&self.forming, &None, "a batch was never finished");
        prop_assert_eq!(self.answered.len() as u64, world.tickets(), "somebody got no answer");
        Ok(())
    }

    /// This slot is decided and made no job.
    #[allow(dead_code, reason = "only the walk of schedules asks")]
    pub(crate) fn may_backfill(&self, definition: &str, schedule: &ScheduleId, slot: Timestamp) -> bool {
        let key = (Arc::from(definition), schedule.clone());
        let is_decided = self.cursors.get(&key).is_some_and(|cursor| slot <= *cursor);
        is_decided && !self.slots.contains(&(key.0, key.1, slot))
    }

    /// The last decided slot.
    #[allow(dead_code, reason = "only the walk of schedules asks")]
    pub(crate) fn cursor(&self, definition: &str, schedule: &ScheduleId) -> Option<Timestamp> {
        self.cursors.get(&(Arc::from(definition), schedule.clone())).copied()
    }

    /// This slot has a verdict.
    #[allow(dead_code, reason = "only the walk of schedules asks")]
    pub(crate) fn has_row(&self, definition: &str, schedule: &ScheduleId, slot: Timestamp) -> bool {
        let rows = self.fires.get(&(Arc::from(definition), schedule.clone()));
        let row = rows.and_then(|rows| rows.range(..=slot).next_back());
        row.is_some_and(|(_, (to, _))| slot <= *to)
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
                prop_assert!(!self.is_stopped(it.token.job), "{} of a stopped batch is assigned", it.token);
                prop_assert!(!self.is_of_paused_batch(it.token.job), "{} of a paused batch", it.token);
                prop_assert!(self.may_start(it.token.job), "{} waits for another job", it.token);
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
                prop_assert!(self.row(token.job)?.current == Some(*token), "an unknown attempt is stopped");
            }
            Change::AttemptClosed { job, closed, state, .. } => {
                let row = self.row(*job)?;
                prop_assert!(row.current == Some(closed.token), "{row:?} waits after {closed:?}");
                *row = Shown { state: *state, current: None, before: row.current };
            }
            Change::BecameDue { job } => {
                let row = self.row(*job)?;
                prop_assert!(row.state == State::Scheduled, "{row:?} due");
                row.state = State::Queued;
            }
            Change::QuarantineReleased { job } => {
                let row = self.row(*job)?;
                prop_assert!(row.state == State::Quarantined, "{row:?} freed");
                row.state = State::Queued;
            }
            Change::Expiry { job, .. } => {
                let row = self.rows.get(job).unwrap();
                prop_assert!(!row.state.has_ended(), "job {} expires after its end", job);
            }
            Change::Updated(it) => {
                let row = self.row(it.job)?;
                prop_assert!(matches!(row.state, State::Scheduled | State::Queued), "{row:?} updated");
                row.state = it.state;
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
                self.skipped.extend(it.reason.starts_with(SKIPPED).then_some(it.job));
                self.unconfirmed.extend((!it.confirmed).then_some(it.job));
            }
            Change::ContainerGone { token, .. } => {
                prop_assert!(self.tried.contains(token), "{token} was never given");
                prop_assert!(self.unconfirmed.remove(&token.job), "{token} was not in doubt");
            }
            // Whatever a worker makes up; the store keeps it only if there is such a job.
            Change::Noted { note: Note::LateReport { .. }, .. } => {}
            Change::Noted { job, .. } => prop_assert!(!self.hides(*job), "a note on a hidden job"),
            Change::NumbersSkipped { after, job, fence, .. } => {
                prop_assert!(self.last_job <= after.0, "a given number is left out");
                prop_assert!(job >= after && fence.0 >= self.last_fence);
                (self.last_job, self.last_fence) = (job.0, fence.0);
            }
            Change::BatchAdded(batch) => {
                prop_assert!(self.batches.insert(batch.first, batch.clone()).is_none());
            }
            Change::BatchReplaced { first, by } => self.batch_replaced(*first, *by)?,
            Change::BatchCancelled { first, .. } => {
                prop_assert!(self.batches.contains_key(first) && self.cancelled_batches.insert(*first));
            }
            Change::BatchChanged { first, limits } => self.batch_changed(*first, *limits)?,
            Change::BatchEnded { .. } => self.batch_ended(change)?,
            Change::PendingBatch { first, last } => {
                prop_assert_eq!(&self.forming, &None, "one after the other");
                prop_assert!(first.0 > self.last_job, "numbers from {} were given before", first);
                self.last_job = last.0;
                self.forming = Some(*first..=*last);
            }
            Change::BatchCompleted { first } => {
                let members = self.forming.take().unwrap();
                prop_assert_eq!(members.start(), first);
                prop_assert_eq!(
                    self.members(*first, members.end().0 - first.0 + 1),
                    None,
                    "a member is missing"
                );
            }
            Change::IdempotencyKeyStored { key, holder, .. } => {
                prop_assert!(self.keys.insert(key.to_string(), *holder).is_none(), "a key made two requests");
                prop_assert_eq!(self.members(holder.job, u64::from(holder.count)), None);
            }
            Change::Fire(row) => self.fire(row)?,
            Change::Schedule(row) => {
                let key = (row.definition.clone(), row.schedule.clone());
                let before = self.cursors.insert(key, row.cursor);
                prop_assert!(before.is_none_or(|before| before <= row.cursor), "a cursor goes back: {row:?}");
            }
            Change::Hook(row) => self.hook(row)?,
            Change::Dependency(row) => {
                if let Some(state) = row.ended {
                    let shown = match row.on {
                        PredecessorId::Job(job) => self.rows.get(&job).map(|on| on.state),
                        PredecessorId::Batch(first) => self.ended_batches.get(&first).copied(),
                    };
                    prop_assert_eq!(shown, Some(state), "{:?}", row);
                }
                self.after.entry(row.job).or_default().insert(row.on, (row.requires, row.ended));
            }
            Change::DependenciesDropped { job, .. } => {
                self.after.remove(job);
            }
            Change::ResultsTaken { job, .. } => {
                let unmet = self
                    .after
                    .get(job)
                    .into_iter()
                    .flatten()
                    .find(|(_, (requires, ended))| ended.is_none_or(|state| !requires.is_met_by(state)));
                prop_assert!(unmet.is_none(), "job {} takes results before {:?}", job, unmet);
            }
            // The rules of these are in `sets`.
            Change::Parent(it) => {
                if let (Some(row), true) = (self.rows.get_mut(&it.job), it.started_at.is_some()) {
                    row.state = State::Running;
                }
            }
            Change::Paused { target: PauseTarget::Batch(it), pause } => self.pause(*it, pause)?,
            Change::Paused { .. } => {}
            Change::Member(_) | Change::WorkerUsed(_) => {}
            Change::Worker(_)
            | Change::CordonEnded { .. }
            | Change::WorkerForgotten(_)
            | Change::Unique(_)
            | Change::RateUsed(_) => {}
            Change::Expectation(_) | Change::ExpectationDropped { .. } => {}
        }
        Ok(())
    }

    /// Each hook of an event is decided once, and its job is one of the same step.
    fn hook(&mut self, row: &HookRow) -> Result<(), TestCaseError> {
        let parent = *self.row(row.parent)?;
        let has_happened = match row.event {
            HookEvent::Start => true,
            HookEvent::Success | HookEvent::Failure => HookEvent::of_end(parent.state) == Some(row.event),
            HookEvent::End => parent.state.has_ended(),
        };
        prop_assert!(has_happened, "{row:?} of {parent:?}");
        let is_new = self.hooks.insert((row.parent, row.event, row.target.clone()));
        prop_assert!(is_new, "decided twice: {row:?}");
        if let Some(job) = row.result.job() {
            prop_assert!(self.rows.contains_key(&job), "its job is missing: {row:?}");
            prop_assert!(self.hooked.insert(job), "job {job} has two parents");
        }
        Ok(())
    }

    /// Each slot has one row, and each job of a schedule one slot.
    fn fire(&mut self, row: &FireRow) -> Result<(), TestCaseError> {
        let key = (row.definition.clone(), row.schedule.clone());
        if let (true, Some(job)) = (row.verdict.has_fired(), row.verdict.job()) {
            prop_assert!(row.from == row.to && row.count.count == 1, "{row:?}");
            prop_assert!(self.fired.insert(job), "job {} has two slots", job);
            let slot = (key.0.clone(), key.1.clone(), row.from);
            prop_assert!(self.slots.insert(slot), "a slot became two jobs: {row:?}");
        }
        if matches!(row.verdict, FireVerdict::Backfilled(_)) {
            let cursor = self.cursors.get(&key);
            prop_assert!(cursor.is_some_and(|cursor| row.from <= *cursor), "too early: {row:?}");
            return Ok(());
        }
        let rows = self.fires.entry(key).or_default();
        let earlier = rows.range(..row.from).next_back().map(|(_, (to, _))| *to);
        prop_assert!(earlier.is_none_or(|to| to < row.from), "a slot has two rows: {row:?}");
        let before = rows.insert(row.from, (row.to, row.verdict));
        if let Some((to, verdict)) = before {
            prop_assert!(to <= row.to && verdict == row.verdict && !verdict.has_fired(), "{row:?}");
        }
        Ok(())
    }

    fn hear(&mut self, effect: &Effect) -> Result<(), TestCaseError> {
        match effect {
            Effect::JobEnded(job, state) => {
                prop_assert!(self.rows[job].state == *state, "told the end of job {} before its change", job);
            }
            Effect::Send(_, order) => prop_assert!(!self.stops_unknown(order), "{order:?}"),
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

    /// All jobs that it comes after have ended as it requires.
    fn may_start(&self, job: JobId) -> bool {
        self.after.get(&job).is_none_or(|after| {
            after.values().all(|(requires, ended)| ended.is_some_and(|state| requires.is_met_by(state)))
        })
    }

    /// The first of these jobs that is not there for all to see.
    fn members(&self, first: JobId, count: u64) -> Option<u64> {
        (first.0..first.0 + count).find(|id| !self.rows.contains_key(&JobId(*id)) || self.hides(JobId(*id)))
    }
}

/// Checks stop orders for attempts that this server never assigned.
impl Ledger {
    /// An unknown attempt is never stopped, unless an attempt was created under its number with another nonce.
    fn stops_unknown(&self, order: &Order) -> bool {
        match order {
            Order::Cancel(cancel) => self.is_unknown(cancel.token),
            Order::Reconciled(it) => it
                .attempts
                .iter()
                .any(|(token, verdict)| self.is_unknown(*token) && *verdict == ReconcileVerdict::Stop),
            _ => false,
        }
    }

    fn is_unknown(&self, token: Token) -> bool {
        let has_its_number = |it: &Token| (it.job, it.fence) == (token.job, token.fence);
        token.nonce == STRANGE && !self.tried.iter().any(has_its_number)
    }
}
