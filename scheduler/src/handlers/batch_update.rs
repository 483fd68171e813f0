//! Somebody changes the limits of a live batch.

use alloc::vec::Vec;

use protocol::{JobId, Now};

use crate::batches::BatchLimits;
use crate::core::Scheduler;
use crate::handlers::batch;
use crate::input::ChangeBatchRequest;
use crate::job::LiveState;
use crate::limits::gate;
use crate::limits::keys::{JobKeys, KeySetNo};
use crate::placement;
use crate::run_on::RunOnRole;
use crate::step::{Answer, Change, Rejection};

/// Changes the limits of a batch. If as many members have failed as may, the batch stops in this step. Members that are on workers stay there,
/// also if they are more than may be at once.
pub(crate) fn change(scheduler: &mut Scheduler, now: Now, request: ChangeBatchRequest) {
    let ChangeBatchRequest { ticket, batch: first, update } = request;
    let is_visible = batch::is_visible(scheduler, first);
    let Some(before) = scheduler.batches.get(first).filter(|_| is_visible).map(|batch| batch.limits()) else {
        scheduler.reply(ticket, Answer::Rejected(Rejection::NotLive));
        return;
    };
    let after = BatchLimits {
        max_failures: update.max_failures.instead_of(before.max_failures),
        concurrency: update.concurrency.instead_of(before.concurrency),
    };
    if after != before {
        scheduler.batches.set_limits(first, after);
        scheduler.change(Change::BatchChanged { first, limits: after });
        match (before.concurrency, after.concurrency) {
            (former, permits) if former == permits => {}
            (Some(_), Some(permits)) => {
                if let Some(limit) = scheduler.limits.set_batch_permits(first, permits) {
                    scheduler.ready.recheck_limit(limit);
                }
            }
            _ => change_needs(scheduler, now, first),
        }
    }
    scheduler.reply(ticket, Answer::Done);
}

/// Gives the members of a batch the limit of the batch, or takes it away. Walks all of them, for an operator's command.
fn change_needs(scheduler: &mut Scheduler, now: Now, first: JobId) {
    let permits = scheduler.batches.permits(first);
    let mut former = Vec::new();
    for id in batch::members(scheduler, first) {
        let Some(job) = scheduler.jobs.get(&id).filter(|job| job.role() != RunOnRole::Parent) else {
            continue;
        };
        let (number, key_set) = (job.definition, placement::key_set_of(scheduler, job));
        let is_held = matches!(job.live_state, LiveState::Held(_));
        let Some(definition) = scheduler.definitions.at(number).cloned() else { continue };
        let keys = JobKeys { batch: permits, ..scheduler.limits.keys_of(key_set) };
        let keys = Some(keys).filter(|keys| *keys != JobKeys::default());
        let changed = scheduler.limits.add_job((number, &definition), keys.as_ref());
        if is_held {
            let needs = |key_set| scheduler.limits.needs(number, key_set);
            let (before, after) = (needs(key_set), needs(changed));
            scheduler.limits.change_needs_of_holder(id, before, after);
        }
        if let Some(job) = scheduler.jobs.get_mut(&id)
            && (changed.is_keyed() || job.extras.is_some())
        {
            job.extras_mut().key_set = if changed.is_keyed() { changed } else { KeySetNo::UNLIMITED };
        }
        former.push((number, key_set));
    }
    batch::requeue_members(scheduler, first);
    // Only now, so that the lanes that were left know their limits.
    for job in former {
        gate::forget_job(scheduler, job, now);
    }
}
