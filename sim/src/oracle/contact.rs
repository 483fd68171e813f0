//! The last contact of the server with each worker: no attempt is lost whose worker reconciled, or sent a frame after that, a moment ago.

use std::time::Duration;

use protocol::order::StopCause;
use protocol::{Order, SessionId, WorkerId};
use scheduler::Scheduler;
use scheduler::definition::OnLost;
use scheduler::job::State;
use scheduler::step::{CloseReason, ClosedAttempt, Effect, Step};

use super::rows::UNHEARD;
use super::{Oracle, Scene};
use crate::clock::Moment;
use crate::disk::Disk;
use crate::workload::Workload;

/// The session on which a worker was let in last, and when anything came on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contact {
    worker: WorkerId,
    /// Nothing, once the server has closed it: what still comes on it is not believed.
    session: Option<SessionId>,
    /// The session is reconciled: until then nothing on it renews the lease.
    is_reconciled: bool,
    /// How often it was let in since it reconciled last.
    welcomes: u32,
    /// Absent before the first reconcile in this process of the server.
    at: Option<Moment>,
}

impl Oracle {
    /// A lease is renewed by a completed reconcile. A Hello alone renews nothing.
    pub(super) fn check_contacts(&mut self, now: Moment, step: &Step) {
        for effect in &step.effects {
            match effect {
                Effect::Send(session, Order::Welcome(it)) => {
                    let before = self.contacts.iter().find(|before| before.worker == it.worker);
                    let (at, welcomes) = before.map_or((None, 0), |before| (before.at, before.welcomes));
                    let contact = Contact {
                        worker: it.worker,
                        session: Some(*session),
                        is_reconciled: false,
                        welcomes: welcomes + 1,
                        at,
                    };
                    self.contacts.retain(|before| before.worker != it.worker);
                    self.contacts.push(contact);
                }
                Effect::Send(session, Order::Reconciled(part)) if part.last => {
                    let on_it = self.contacts.iter_mut().filter(|contact| contact.session == Some(*session));
                    on_it.for_each(|contact| {
                        (contact.is_reconciled, contact.welcomes, contact.at) = (true, 0, Some(now));
                    });
                }
                // Of copies nothing is believed, and so not what one of them has said that was not taken in before. Nor is what had arrived
                // from a worker that left an attempt unanswered for so long that the server closed its session.
                Effect::Close(session, CloseReason::Refused | CloseReason::Unanswered(_)) => {
                    self.contacts.retain(|contact| contact.session != Some(*session));
                }
                Effect::Close(session, _) => {
                    let on_it = self.contacts.iter_mut().filter(|contact| contact.session == Some(*session));
                    on_it.for_each(|contact| contact.session = None);
                }
                _ => {}
            }
        }
    }

    /// R18: nobody is let in under the name of another worker that is connected, but for who has attempts.
    pub(super) fn check_names_are_unique(&mut self, now: Moment, scheduler: &Scheduler, step: &Step) {
        for effect in &step.effects {
            let Effect::Send(_, Order::Welcome(it)) = effect else { continue };
            let workers: Vec<_> = scheduler.worker_facts().collect();
            let Some(own) = workers.iter().find(|facts| facts.id == it.worker) else { continue };
            let name = &own.name;
            if own.busy + own.queued > 0 {
                continue;
            }
            let mut others = workers.iter().filter(|facts| facts.id != it.worker && facts.session.is_some());
            if let Some(other) = others.find(|facts| facts.name == *name) {
                let what = format!("workers {} and {} are both called {name}", it.worker, other.id);
                self.violated(now, "R18 a name belongs to one", what);
            }
        }
    }

    /// The server has received a report on this session.
    pub(crate) fn session_heard(&mut self, now: Moment, session: SessionId) {
        let on_it = |contact: &&mut Contact| contact.session == Some(session) && contact.is_reconciled;
        if let Some(contact) = self.contacts.iter_mut().find(on_it) {
            contact.at = Some(now);
        }
    }

    /// I13: a worker that connects again and again, and never reconciles, keeps nothing for it. The server has renewed no lease by itself
    /// since a moment.
    pub(crate) fn check_hello_keeps_nothing(
        &mut self,
        now: Moment,
        undisturbed_since: Moment,
        (disk, workload): (&Disk, &Workload),
    ) {
        if !self.decisions.is_multiple_of(SILENCE_EVERY) {
            return;
        }
        let there_for = now.since(undisturbed_since);
        for (_, row) in disk.rows() {
            let Some(latest) = row.latest.as_ref().filter(|_| row.current().is_some()) else { continue };
            let Some(silent_for) = self.silent_for(now, latest.worker) else { continue };
            let is_cancelled = latest.stopping == Some(StopCause::Cancel);
            let definition = workload.definition(row.revision);
            // It is kept as long as no other worker could take its place. Once the world is quiet, this ends as well.
            if definition.loss.on_lost == OnLost::Retry && !is_cancelled {
                continue;
            }
            let limit = definition.given_up_after(is_cancelled);
            let is_kept = |limit: Duration| silent_for.min(there_for) > limit + LONGEST_DELAY;
            if limit.is_some_and(is_kept) {
                let what = format!("{} is kept after {silent_for:?} of silence", latest.token);
                return self.violated(now, "I13 a worker that only says Hello keeps nothing", what);
            }
        }
    }

    /// It was let in more than once, and has not told what it has: then its time runs out although it is connected.
    pub(super) fn comes_and_goes(&self, worker: WorkerId) -> bool {
        self.contacts.iter().any(|contact| contact.worker == worker && contact.welcomes > 1)
    }

    /// I13: an attempt is given up only if some worker was there lately that might take its place.
    pub(super) fn check_successor(
        &mut self,
        scene: Scene<'_>,
        (disk, workload): (&Disk, &Workload),
        scheduler: &Scheduler,
        (closed, state): (&ClosedAttempt, State),
    ) {
        let Some(row) = disk.row(closed.token.job).filter(|_| closed.message.starts_with(UNHEARD)) else {
            return;
        };
        let Some(latest) = &row.latest else { return };
        let definition = workload.definition(row.revision);
        // The cancel may be a part of the same step.
        let is_given_up = state == State::Cancelled
            || matches!(latest.stopping, Some(StopCause::Cancel | StopCause::Pinning));
        let is_member = disk.is_member(closed.token.job);
        let concurrency = definition.limits.concurrency.as_ref();
        // Other jobs of its definition may run on workers that it does not ask for.
        let is_narrowed = row.narrowing.is_some();
        let is_grouped = concurrency.is_some_and(|rule| is_member || is_narrowed || rule.group.is_some());
        let is_of_limited_batch =
            disk.batch_limit(closed.token.job).is_some() || self.is_of_changed_batch(disk, closed.token.job);
        let holds_shared_permits = is_grouped || is_of_limited_batch;
        let waits = definition.loss.on_lost == OnLost::Retry
            && definition.waits.queue.is_none()
            && !is_given_up
            && !holds_shared_permits;
        let is_recent = |at: Moment| scene.now.since(at) < LONGEST_DELAY * 2;
        let is_connected =
            scheduler.worker_facts().any(|facts| facts.id != latest.worker && facts.session.is_some());
        let mut others = self.contacts.iter().filter(|contact| contact.worker != latest.worker);
        if waits && !is_connected && !others.any(|contact| contact.at.is_some_and(is_recent)) {
            let what = format!("{} is lost although no worker is there to take its place", closed.token);
            self.violated(scene.now, "I13 who cannot be replaced is waited for", what);
        }
    }

    /// For how long nothing was heard of a worker, if anything ever was.
    pub(super) fn silent_for(&self, now: Moment, worker: WorkerId) -> Option<Duration> {
        let contact = self.contacts.iter().find(|contact| contact.worker == worker)?;
        Some(now.since(contact.at?))
    }
}

/// Looking at all jobs costs as much as some steps, and silence lasts.
const SILENCE_EVERY: u64 = 100;
/// A worker that has come back has a lease more for its inventory, clocks run at different rates, and the server may be slow.
const LONGEST_DELAY: Duration = Duration::from_secs(60);
