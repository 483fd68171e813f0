//! Attempts of silent workers: when they are given up as lost, and when they wait because nobody could take their place.

use core::time::Duration;

use protocol::order::StopCause;
use protocol::{Fence, JobId, Now, Uptime};

use crate::core::Scheduler;
use crate::definition::OnLost;
use crate::handlers::forget::FORGOTTEN_AFTER;
use crate::handlers::{attempt_end, suspension};
use crate::job::Job;
use crate::placement::successor;
use crate::run_on::RunOnRole;
use crate::step::ClosedAttempt;
use crate::timers::UptimeTimer;

/// Declares an attempt of a silent worker lost, unless no successor is possible. It may still run; later reports about it are not believed.
pub(crate) fn lose(scheduler: &mut Scheduler, now: Now, id: JobId, fence: Fence) {
    let Some(attempt) = scheduler.jobs.get_mut(&id).and_then(Job::attempt_mut) else {
        return;
    };
    if attempt.fence != fence || attempt.loss_at.is_none_or(|at| at > now.up) {
        return;
    }
    attempt.loss_at = None;
    let (token, started_at) = (attempt.token(id), attempt.started_at());
    let lost_at = loss_due_at(scheduler, now, id).filter(|at| *at > now.up);
    match lost_at.or_else(|| next_successor_search(scheduler, now, id)) {
        Some(at) => arm(scheduler, id, at),
        None => {
            let closed = ClosedAttempt::lost(now, token, started_at, "its worker has not been heard of");
            attempt_end::lose(scheduler, now, id, closed);
        }
    }
}

/// Sets the time at which the attempt is given up, in place of an earlier one.
pub(crate) fn arm(scheduler: &mut Scheduler, id: JobId, at: Uptime) {
    let Some(attempt) = scheduler.jobs.get_mut(&id).and_then(Job::attempt_mut) else {
        return;
    };
    let alarm = UptimeTimer::Loss(id, attempt.fence);
    if let Some(old) = attempt.loss_at.replace(at) {
        scheduler.timers.clear_uptime(old, alarm);
    }
    scheduler.timers.set_uptime(at, alarm);
}

/// Time at which an attempt of a silent worker is lost. A worker that is joining gets one more lease for its inventory, from its first
/// Hello on if that came later: it has come back, and a cancel in between does not make it silent.
fn loss_due_at(scheduler: &Scheduler, now: Now, id: JobId) -> Option<Uptime> {
    let job = scheduler.jobs.get(&id)?;
    let attempt = job.attempt()?;
    let worker = scheduler.fleet.worker(attempt.worker)?;
    let is_joining = worker.link.is_joining();
    let grace = if is_joining { scheduler.config.intervals.lease } else { Duration::ZERO };
    let contact = if suspension::is_stalled(scheduler, now) { now.up } else { worker.lease.contact };
    let is_cancelled = attempt.stopping == Some(StopCause::Cancel);
    let silent = contact + scheduler.definition(job)?.given_up_after(is_cancelled)?;
    let joined = worker.lease.unreconciled_since.filter(|_| is_joining).unwrap_or_default();
    Some(silent.max(joined) + grace)
}

/// Time of the next look for a worker that could take the place of a silent one; none if there is one now, or the attempt waits for none.
/// To give up an attempt without a possible successor would only throw away its outcome.
fn next_successor_search(scheduler: &mut Scheduler, now: Now, id: JobId) -> Option<Uptime> {
    scheduler.fleet.regroup();
    let job = scheduler.jobs.get(&id)?;
    let attempt = job.attempt()?;
    let definition = scheduler.definition(job)?;
    // `Pinning`: its definition does not list the worker any more.
    let is_given_up = matches!(attempt.stopping, Some(StopCause::Cancel | StopCause::Pinning));
    let is_retried = definition.loss.on_lost == OnLost::Retry && !is_given_up;
    if !is_retried || holds_shared_permits(scheduler, id) {
        return None;
    }
    // A revoked worker does not come back.
    let holder = scheduler.fleet.worker(attempt.worker).filter(|worker| worker.row.revoked_at.is_none())?;
    // It waits no longer for this worker than it may wait in the queue, or than a worker without attempts is remembered.
    let in_queue = definition.waits.queue.map(|queue| definition.loss_timeout() + queue);
    let limit = holder.lease.contact + in_queue.unwrap_or(FORGOTTEN_AFTER).min(FORGOTTEN_AFTER);
    if limit <= now.up {
        return None;
    }
    let look = now.up + scheduler.config.intervals.lease;
    // Siblings of a member are left out of account: to look at each worker is too much for one attempt.
    let has_successor = !scheduler.ready.is_paused(job.definition)
        && scheduler.paused_batch(id, job).is_none()
        && job.role().pinned_to().is_none()
        && successor::may_run_elsewhere(scheduler, job.definition, attempt.worker);
    (!has_successor).then(|| limit.min(look))
}

/// True if jobs that other workers may take wait for permits that this job holds: jobs of other definitions, or its siblings.
fn holds_shared_permits(scheduler: &Scheduler, id: JobId) -> bool {
    let Some(job) = scheduler.jobs.get(&id) else { return false };
    let is_member = matches!(job.role(), RunOnRole::Member(_));
    // Other jobs of its definition may ask for other workers.
    let is_narrowed = scheduler.definitions.narrowing(job.definition).is_some();
    let is_grouped = scheduler.definition(job).is_some_and(|definition| {
        let concurrency = definition.limits.concurrency.as_ref();
        concurrency.is_some_and(|concurrency| is_member || is_narrowed || concurrency.group.is_some())
    });
    let has_server_limit = scheduler.config.server_limits.running_max.is_some();
    let is_of_limited_batch = scheduler.batches.permits(job.role().numbered_as(id)).is_some();
    is_grouped || has_server_limit || is_of_limited_batch
}
