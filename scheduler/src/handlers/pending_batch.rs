//! Creates large batches slice by slice. All members become visible together, or none do.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use protocol::{JobId, Now};

use crate::batches::BatchOptions;
use crate::core::Scheduler;
use crate::handlers::submit::{InitialWait, add};
use crate::handlers::{admission, batch as batches, batch_unique, dependency, expire, run_on};
use crate::ids::DefinitionNo;
use crate::input::{KeyHolder, Submit};
use crate::limits::gate;
use crate::pending_batch::{BatchInProgress, Demand, PendingBatch, weight};
use crate::step::{Answer, Change, Rejection};
use crate::timers::WallTimer;

/// Queues an accepted large batch. It gets its job numbers with its first slice.
pub(crate) fn queue_batch(
    scheduler: &mut Scheduler,
    request: Submit,
    definitions: BTreeSet<DefinitionNo>,
    demand: Demand,
) {
    if !scheduler.pending_batches.has_room(request.jobs.len()) {
        scheduler.reply(request.ticket, Answer::Rejected(Rejection::TooManyPendingBatches));
        return;
    }
    for number in &definitions {
        scheduler.definitions.add_reference(*number);
    }
    let predecessors = dependency::predecessors(&request.jobs);
    let batch = PendingBatch {
        ticket: request.ticket,
        key: request.idempotency_key.map(|key| (key.key, key.digest)),
        joined: Vec::new(),
        count: u32::try_from(request.jobs.len()).unwrap_or(u32::MAX),
        rest: request.jobs.into_iter(),
        unique_key: request.batch.as_ref().and_then(BatchOptions::unique_key),
        options: request.batch.unwrap_or_default(),
        definitions,
        demand,
    };
    scheduler.pending_batches.push(batch, predecessors);
}

/// Creates one slice, at most one per group.
pub(crate) fn create_slice(scheduler: &mut Scheduler, now: Now) {
    let group = scheduler.counters.group;
    let first = JobId(scheduler.counters.job.0 + 1);
    let begin = |pending| BatchInProgress {
        pending,
        first,
        created_at: now.utc,
        lanes: BTreeMap::new(),
        dates: Vec::new(),
        waiting: Vec::new(),
        parents: Vec::new(),
        expiring: Vec::new(),
    };
    let Some(mut batch) = scheduler.pending_batches.take(group, begin) else { return };
    if batch.made().is_empty() {
        scheduler.counters.job = batch.last();
        scheduler.change(Change::PendingBatch { first: batch.first, last: batch.last() });
        let options = core::mem::take(&mut batch.pending.options);
        batches::begin(scheduler, batch.created_at, batch.first, batch.pending.count, options);
    }
    let mut room = scheduler.config.slice;
    while room > 0 {
        let id = batch.next();
        let Some(new) = batch.pending.rest.next() else { break };
        room = room.saturating_sub(weight(&new));
        // The definition was found when the batch was accepted, and has been retained since.
        let Some(number) = scheduler.number_of(&new) else { continue };
        if !batch.pending.demand.permits.is_empty()
            && let Some(limit) = admission::permit_of(scheduler, number, &new)
        {
            scheduler.pending_batches.member_made(&mut batch.pending, &limit);
        }
        match add(scheduler, batch.created_at, id, new, number, Some(batch.first)) {
            InitialWait::Others => batch.waiting.push(id),
            InitialWait::Members => batch.parents.push(id),
            InitialWait::Until(at) => batch.dates.push((at, id)),
            InitialWait::In(lane, key) => drop(batch.lanes.entry(lane).or_default().insert(key)),
        }
        if scheduler.jobs.get(&id).is_some_and(|job| job.expires_at().is_some()) {
            batch.expiring.push(id);
        }
    }
    if batch.pending.rest.len() == 0 {
        complete(scheduler, now, batch);
    } else {
        scheduler.pending_batches.put_back(batch);
    }
}

/// Makes all members visible, as jobs like all others.
fn complete(scheduler: &mut Scheduler, now: Now, made: BatchInProgress) {
    let BatchInProgress { pending, first, created_at, lanes, dates, waiting, parents, expiring } = made;
    scheduler.pending_batches.completed(&pending);
    for (lane, keys) in lanes {
        for key in keys.iter().filter(|_| lane.is_limited()) {
            gate::enter_queue(scheduler, lane, key.job());
        }
        scheduler.ready.push_run(lane, keys);
    }
    for (at, job) in dates {
        scheduler.timers.set_wall(at, WallTimer::Due(job));
    }
    scheduler.pending_batches.forget_predecessors();
    for job in waiting {
        scheduler.dependencies.review(job);
    }
    for job in parents {
        run_on::begin(scheduler, job);
    }
    for job in expiring {
        expire::arm(scheduler, job);
    }
    for number in pending.definitions {
        scheduler.definitions.drop_reference(number);
    }
    scheduler.change(Change::BatchCompleted { first });
    // Only now, so that a crash before leaves the batch that it replaces as it was.
    let replaces = batch_unique::take_key(scheduler, now, first, pending.unique_key);
    scheduler.reply_accepted(pending.ticket, first, pending.count, created_at, replaces);
    let Some((key, digest)) = pending.key else { return };
    let holder = KeyHolder { job: first, count: pending.count, digest };
    scheduler.keys.remember(scheduler.counters.group, key.clone(), holder);
    scheduler.change(Change::IdempotencyKeyStored { key, holder, at: now.utc });
    for (ticket, asked) in pending.joined {
        let mismatch = Answer::Rejected(Rejection::KeyMismatch(holder));
        scheduler.reply(ticket, if asked == digest { Answer::Replayed(holder) } else { mismatch });
    }
}
