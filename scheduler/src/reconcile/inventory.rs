//! Compares a worker's inventory with the attempts that the scheduler believes it holds
//! (docs/design/failures.md, R14).
//!
//! The first inventory of a session covers all earlier attempts. A further one follows when a silent runtime
//! answers again. Attempts may be on their way to the worker by then, so it decides only about attempts that
//! the first inventory left open.

use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use protocol::order::{Cancel, Configure, ReconcileVerdict, Reconciled, StopCause};
use protocol::report::{Inventory, Outcome, Phase};
use protocol::{JobId, Now, Order, SessionId, Token, WorkerId};

use crate::core::Scheduler;
use crate::explain::pending;
use crate::handlers::{attempt_end, define, first_report, overrun};
use crate::ids::DefinitionNo;
use crate::job::{Job, Presence, Progress, StartState};
use crate::placement::recall;
use crate::reconcile::received_inventory::ReceivedInventory;
use crate::reconcile::{foreign, unconfirmed, unknown_attempts};
use crate::step::{BrokenRule, Change, CloseReason, ClosedAttempt, Effect, Note, PendingReason};
use crate::timers::UptimeTimer;

/// Attempts that an inventory may list: ten times the limit of a worker.
const ENTRIES_MAX: usize = 200_000;

pub(crate) fn inventory(
    scheduler: &mut Scheduler,
    now: Now,
    session: SessionId,
    id: WorkerId,
    part: Inventory,
) {
    let state = scheduler.fleet.worker_mut(id).and_then(|worker| worker.link.state_mut());
    let Some(state) = state else { return };
    state.inventory.extend(part.attempts);
    if state.inventory.len() > ENTRIES_MAX {
        state.inventory.clear();
        state.unknown.clear();
        let rule = BrokenRule::InventoryTooLong { max: ENTRIES_MAX };
        scheduler.effect(Effect::Close(session, CloseReason::Protocol(rule)));
        return;
    }
    foreign::stop_leftovers(scheduler, session, &part.foreign);
    if !part.last {
        return;
    }
    let Some(worker) = scheduler.fleet.worker_mut(id) else { return };
    let received =
        worker.link.state_mut().map(|state| (mem::take(&mut state.inventory), mem::take(&mut state.unknown)));
    let Some((known, announced)) = received else { return };
    worker.set_runtimes(part.runtimes.clone());
    let is_first = worker.link.become_ready();
    worker.lease.record_reconcile(now.up);
    let (settings, leaving) = (worker.settings(), worker.link.is_leaving());
    restore_reachable(scheduler, now, id);
    unknown_attempts::record_unknown(scheduler, now, id, &known, &announced);
    let attempts =
        known.iter().map(|(token, phase)| (*token, verdict_of(scheduler, id, *token, *phase))).collect();
    if is_first && (settings != Configure::default() || leaving) {
        // An operator's settings survive a reconnect, and so does their removal.
        scheduler.send(session, Order::Configure(settings));
    }
    define::update_heartbeat(scheduler, id);
    let complete = part.runtimes.iter().filter(|(_, answer)| answer.answers()).map(|(kind, _)| *kind);
    let (known, complete) = (known.into_iter().collect(), complete.collect());
    let received = ReceivedInventory { session, is_first, known, complete };
    reconcile_held(scheduler, now, id, &received);
    // The worker starts attempts after Reconciled, so it has received all cancels before.
    scheduler.send(session, Order::Reconciled(Reconciled { attempts, last: true }));
    unconfirmed::confirm_absent(scheduler, now, id, &received);
    scheduler.fleet.reclassify(id);
    scheduler.fleet.refresh(id);
    scheduler.fleet.mark_capacity_grown(id);
    scheduler.changed = true;
}

/// Cancels the pending losses of a worker that is reachable again. Attempts that were noted as unreachable are noted as back, also if a
/// suspension of the server has renewed the lease meanwhile.
fn restore_reachable(scheduler: &mut Scheduler, now: Now, id: WorkerId) {
    let Some(worker) = scheduler.fleet.worker_mut(id) else {
        return;
    };
    let was_unreachable = mem::take(&mut worker.lease.is_expired);
    let held: Vec<JobId> = worker.holdings.jobs.iter().copied().collect();
    for job in held {
        let Some(attempt) = scheduler.jobs.get_mut(&job).and_then(Job::attempt_mut) else {
            continue;
        };
        let token = attempt.token(job);
        let was_noted = mem::take(&mut attempt.noted_unreachable);
        if let Some(at) = attempt.loss_at.take() {
            scheduler.timers.clear_uptime(at, UptimeTimer::Loss(job, token.fence));
        }
        if was_noted {
            scheduler.change(Change::Noted { job, at: now.utc, note: Note::Revived { token, worker: id } });
        }
    }
    if was_unreachable {
        scheduler.arm_lease(id);
    }
}

fn verdict_of(scheduler: &mut Scheduler, id: WorkerId, token: Token, phase: Phase) -> ReconcileVerdict {
    let is_ours = scheduler.held(token, id).is_some();
    let is_unknown_kept = unknown_attempts::may_be_unknown(scheduler, id, token)
        && !unknown_attempts::is_unstarted_rival(scheduler, token, phase);
    if is_ours || phase == Phase::Ended || is_unknown_kept {
        // The worker removes an ended attempt after its report and output are acknowledged.
        ReconcileVerdict::Keep
    } else {
        ReconcileVerdict::Stop
    }
}

/// Compares the attempts that the scheduler believes this worker holds.
fn reconcile_held(scheduler: &mut Scheduler, now: Now, id: WorkerId, received: &ReceivedInventory) {
    let held: Vec<JobId> = scheduler
        .fleet
        .worker(id)
        .map(|worker| worker.holdings.jobs.iter().copied().collect())
        .unwrap_or_default();
    for job in held {
        let Some(live) = scheduler.jobs.get(&job) else {
            continue;
        };
        let (Some(attempt), Some(definition)) = (live.attempt(), scheduler.definition(live)) else {
            continue;
        };
        if !received.is_first && !attempt.was_missing_at_reconnect() {
            continue;
        }
        if let Some(phase) = received.known.get(&attempt.token(job)) {
            update_from_phase(scheduler, now, id, job, *phase, received.session);
        } else if received.complete.contains(&definition.runtime()) {
            resolve_absent(scheduler, now, job, received.session);
        } else {
            // Absence from an incomplete list proves nothing.
            first_report::end(scheduler, job);
            if let Some(attempt) = scheduler.jobs.get_mut(&job).and_then(Job::attempt_mut) {
                attempt.presence = Presence::MissingAtReconnect;
            }
        }
    }
}

/// Updates an attempt from the phase that its worker reports.
fn update_from_phase(
    scheduler: &mut Scheduler,
    now: Now,
    id: WorkerId,
    job: JobId,
    phase: Phase,
    session: SessionId,
) {
    first_report::end(scheduler, job);
    let Some(live) = scheduler.jobs.get_mut(&job) else { return };
    let key = live.queue_key(scheduler.config.priority_ageing, job);
    let Some(attempt) = live.attempt_mut() else { return };
    let token = attempt.token(job);
    attempt.recalled = false;
    attempt.presence = Presence::NotAwaited;
    attempt.start.raise(start_state(phase));
    if !attempt.has_started() {
        attempt.progress = if phase == Phase::Backlog { Progress::Backlog } else { Progress::Slot };
    }
    let (prefetched, stopping) = (attempt.is_prefetched(), attempt.stopping);
    if attempt.has_no_overrun_alarm() {
        // Its worker should have reported its age before the inventory; count from now.
        overrun::arm(scheduler, now, token, Duration::ZERO);
    }
    if prefetched {
        scheduler.fleet.enter_backlog(id, key);
    } else {
        scheduler.fleet.leave_backlog(id, key);
    }
    if let Some(cause) = stopping {
        scheduler.send(session, Order::Cancel(Cancel { token, grace: None, cause }));
    } else if prefetched && may_not_start(scheduler, now, id, job) {
        recall::recall_unstarted(scheduler, now, [job]);
    }
}

/// An attempt of this job that has not begun is recalled: the job has waited for too long, or is paused, or its worker is cordoned. Its worker has
/// its secrets already.
fn may_not_start(scheduler: &Scheduler, now: Now, worker: WorkerId, job: JobId) -> bool {
    let Some(live) = scheduler.jobs.get(&job) else { return false };
    let definition = scheduler.definitions.at(live.definition);
    live.has_expired(now.utc)
        || recalls_backlog(scheduler, worker)
        || scheduler.paused_batch(job, live).is_some()
        || definition.is_some_and(|definition| scheduler.pauses.hold_back(definition))
}

fn recalls_backlog(scheduler: &Scheduler, worker: WorkerId) -> bool {
    scheduler.fleet.worker(worker).is_some_and(|worker| worker.row.recalls_backlog())
}

/// The state of the start that a worker reports by this phase.
pub(crate) const fn start_state(phase: Phase) -> StartState {
    match phase {
        Phase::Starting | Phase::Running => StartState::Announced,
        Phase::Backlog => StartState::MustAsk,
        _ => StartState::MayStart,
    }
}

/// Handles an attempt that its worker does not hold: an attempt that was never begun is sent again, any other
/// is lost.
pub(crate) fn resolve_absent(scheduler: &mut Scheduler, now: Now, job: JobId, session: SessionId) {
    let Some(live) = scheduler.jobs.get(&job) else { return };
    let has_expired = live.has_expired(now.utc);
    let held_back = pending::why_job_held_back(scheduler, job, live);
    let Some(attempt) = live.attempt() else { return };
    let (token, started_at) = (attempt.token(job), attempt.started_at());
    let is_too_old = is_too_old(scheduler, attempt.worker, live.definition);
    let is_cordoned = scheduler.fleet.worker(attempt.worker).is_some_and(|worker| worker.row.cordoned);
    if started_at.is_some() || (attempt.start == StartState::Announced && attempt.stopping.is_none()) {
        attempt_end::close(
            scheduler,
            now,
            job,
            ClosedAttempt::lost(now, token, started_at, "its worker does not know of it any more"),
        );
    } else if attempt.stopping.is_some() {
        let outcome = match attempt.stopping {
            Some(StopCause::Cancel) => Outcome::Cancelled,
            _ => Outcome::Interrupted,
        };
        let closed =
            ClosedAttempt { outcome, ..ClosedAttempt::lost(now, token, None, "stopped before it started") };
        attempt_end::close(scheduler, now, job, closed);
    } else if has_expired || held_back.is_some() || is_cordoned || is_too_old {
        let message = match held_back {
            _ if has_expired => "given back: it had waited for too long when its worker came back without it",
            Some(PendingReason::SecretsMissing) => {
                "given back: its secrets were missing when its worker came back without it"
            }
            Some(_) => "given back: its definition was paused when its worker came back without it",
            None if is_cordoned => "given back: its worker was cordoned, and came back without it",
            None => "given back: its worker came back with a version of Longshore that is too old for it",
        };
        let lost = ClosedAttempt::lost(now, token, None, message);
        attempt_end::close(scheduler, now, job, ClosedAttempt { outcome: Outcome::Released, ..lost });
    } else {
        enqueue_again(scheduler, now, job, session);
    }
}

/// The worker cannot run containers of this definition: it was replaced by an older version.
pub(crate) fn is_too_old(scheduler: &Scheduler, id: WorkerId, number: DefinitionNo) -> bool {
    let needed = scheduler.definitions.at(number).map(|definition| definition.container.protocol_version());
    scheduler.fleet.worker(id).zip(needed).is_some_and(|(worker, needed)| worker.info.protocol < needed)
}

/// Sends the same token again, because its Enqueue was lost.
fn enqueue_again(scheduler: &mut Scheduler, now: Now, id: JobId, session: SessionId) {
    let Some(job) = scheduler.jobs.get_mut(&id) else {
        return;
    };
    let number = job.definition;
    let Some(attempt) = job.attempt_mut() else {
        return;
    };
    attempt.recalled = false;
    // It has just been sent; a recall now would overtake it.
    attempt.assigned_up = now.up;
    attempt.session = Some(session);
    let (token, worker) = (attempt.token(id), attempt.worker);
    let Some(definition) = scheduler.definitions.at(number).cloned() else {
        return;
    };
    let member = scheduler.batches.member(job.role().numbered_as(token.job));
    let grant = first_report::grant_of(scheduler.config.priority_ageing, job, token, &definition, member);
    define::send_definition(scheduler, worker, session, number);
    scheduler.grant(session, grant);
    first_report::arm(scheduler, now, id);
}
