//! The questions of placement about limits: which lane is next, what blocks it, and may a job without limits be prefetched.
//!
//! Rules:
//! - A job with limits goes to a free slot only, never into a backlog: a permit is for a job that may start. With `--max-running` this holds
//!   for every job.
//! - A backlog gets no job while one with limits waits before it that lacks only a free slot. Otherwise backlogs would take each slot as
//!   it becomes free, and a job with limits would wait as long as others arrive.

use alloc::vec::Vec;

use protocol::{JobId, Now};

use crate::core::Scheduler;
use crate::fleet::Worker;
use crate::ids::DefinitionNo;
use crate::limits::keys::KeySetNo;
use crate::limits::{LimitNo, RequiredLimits};
use crate::placement::{self, choice};
use crate::queue::{First, LaneKey, PriorityAgeing, QueueKey, ReadyQueue};
use crate::reservation::Reservation;
use crate::step::Change;

/// The answer about the next lane.
pub(crate) enum NextLane {
    /// Nothing can be placed now.
    Nothing,
    /// This lane is next; it takes free slots only, or also room in a backlog.
    Lane { lane: LaneKey, job: JobId, free_only: bool },
}

/// The next lane to place a job of. Lanes that are parked on the way are counted off `lane_budget`; if it is used up, the rest is left to the next
/// step.
pub(crate) fn next_lane(scheduler: &mut Scheduler, now: Now, lane_budget: &mut usize) -> NextLane {
    let running_max = scheduler.config.server_limits.running_max;
    let has_room_aside = scheduler.fleet.set_aside_with_room().next().is_some();
    if is_server_full(scheduler) || !(scheduler.fleet.has_room() || has_room_aside) {
        return NextLane::Nothing;
    }
    let Scheduler { ready, fleet, .. } = scheduler;
    ready.wake_next_for_room(|parked_for, position| choice::has_room(fleet, parked_for, position));
    if scheduler.fleet.has_free_slot() || has_room_aside {
        wake(scheduler, now);
    }
    // Without this check each step would look at all lanes while a worker keeps its only free slot for a waiting job.
    let may_have_slot_aside = |first: First| scheduler.fleet.may_have_slot_aside(first.position);
    if scheduler.fleet.has_free_slot() || scheduler.ready.next().is_some_and(may_have_slot_aside) {
        return next_lane_of_all(scheduler, now, running_max.is_some(), lane_budget);
    }
    if running_max.is_some() {
        return NextLane::Nothing;
    }
    let Some((position, lane)) = scheduler.ready.first_unlimited() else { return NextLane::Nothing };
    let is_behind_limited = is_behind_limited(scheduler, now, position);
    match scheduler.ready.head(lane) {
        Some(head) if !is_behind_limited => NextLane::Lane { lane, job: head.job(), free_only: false },
        _ => NextLane::Nothing,
    }
}

/// As many jobs hold a worker as the server may have.
pub(crate) fn is_server_full(scheduler: &Scheduler) -> bool {
    scheduler.config.server_limits.running_max.is_some_and(|max| scheduler.limits.held >= max)
}

/// The next of all lanes. A lane that gives its position to the others of its definition must have room in its limits.
fn next_lane_of_all(
    scheduler: &mut Scheduler,
    now: Now,
    free_only: bool,
    lane_budget: &mut usize,
) -> NextLane {
    while let Some(First { holder, lane, .. }) = scheduler.ready.next() {
        if *lane_budget == 0 {
            scheduler.has_more_to_place = true;
            return NextLane::Nothing;
        }
        if holder != lane
            && let Some(limit) = blocking(scheduler, holder, now)
        {
            park_under(scheduler, holder, limit, now);
            *lane_budget -= 1;
            wake(scheduler, now);
            continue;
        }
        if wake_earlier_turn(scheduler, lane, now) {
            *lane_budget -= 1;
            continue;
        }
        let Some(head) = scheduler.ready.head(lane) else { break };
        return NextLane::Lane { lane, job: head.job(), free_only: free_only || lane.is_limited() };
    }
    NextLane::Nothing
}

/// Parked lanes are woken in the order of their aged first jobs, but lanes of the same priority take turns whatever their age. So one that is
/// still parked may have its turn before this one, which is next: wakes it if it can start now, or parks it under the limit that it lacks.
fn wake_earlier_turn(scheduler: &mut Scheduler, lane: LaneKey, now: Now) -> bool {
    let is_aged = scheduler.config.priority_ageing != PriorityAgeing::OFF;
    if !is_aged || !lane.takes_turns() || blocking(scheduler, lane, now).is_some() {
        return false;
    }
    let limits = needs(scheduler, lane).all();
    let parked_for = placement::parked_for(scheduler, lane);
    let Some(earlier) = scheduler.ready.parked_with_earlier_turn(lane, parked_for, limits) else {
        return false;
    };
    if let Some(limit) = blocking(scheduler, earlier, now) {
        park_under(scheduler, earlier, limit, now);
        return true;
    }
    let head = scheduler.ready.head(earlier);
    let can_start = head.is_some_and(|it| choice::find(scheduler, earlier, it.job(), true).is_some());
    if can_start {
        scheduler.ready.unpark_lane(earlier);
    }
    can_start
}

/// Unparks the next lanes of limits that have room, and of workers with free slots.
pub(crate) fn wake(scheduler: &mut Scheduler, now: Now) {
    while let Some(limit) = scheduler.ready.take_limit_to_recheck() {
        if scheduler.limits.has_room(limit, now.up) {
            scheduler.ready.unpark_next_under(limit);
        } else if let Some(at) = scheduler.limits.next_start(limit, now.up) {
            scheduler.limits.set_due(limit, Some(at));
        }
    }
    let Scheduler { ready, fleet, .. } = scheduler;
    ready.unpark_rechecked_slots(|parked_for, position| choice::has_free_slot(fleet, parked_for, position));
}

/// Nothing behind this position may be prefetched: a job with limits waits before it that lacks only a free slot. Lanes that turn out to
/// wait for something else are parked for that.
pub(crate) fn is_behind_limited(scheduler: &mut Scheduler, now: Now, position: QueueKey) -> bool {
    loop {
        wake(scheduler, now);
        let waiter = scheduler.ready.first_slot_waiter();
        let candidates = [waiter, scheduler.ready.first_limited()];
        let first = candidates.into_iter().flatten().min_by_key(|(key, _)| *key);
        let Some((_, lane)) = first.filter(|(key, _)| *key < position) else { return false };
        if let Some(limit) = blocking(scheduler, lane, now) {
            park_under(scheduler, lane, limit, now);
        } else if has_taker(scheduler, lane) {
            return true;
        } else {
            park_for_workers(scheduler, lane, false);
        }
    }
}

/// A worker may run jobs of this lane, and has enough left of what they reserve.
pub(crate) fn can_run(scheduler: &Scheduler, worker: &Worker, lane: LaneKey) -> bool {
    let classes = scheduler.fleet.classes();
    let reservation = classes.need_of(lane.definition()).and_then(|(need, _)| classes.reservation_of(need));
    placement::may_run(scheduler, lane, worker) && reservation.is_none_or(|it| worker.fits(it))
}

/// Selects waiting jobs that no limit blocks. Of lanes that take turns, `first` selects one, and if a limit blocked that lane, it would hide
/// the others: so it is parked under the limit, and `first` selects again. Returns `None` if one search would have to park too many lanes.
pub(crate) fn select_unblocked(
    scheduler: &mut Scheduler,
    now: Now,
    first: impl Fn(&ReadyQueue) -> Vec<(QueueKey, LaneKey)>,
) -> Option<Vec<(QueueKey, LaneKey)>> {
    let mut parked = 0;
    while parked < PARKED_PER_SEARCH {
        let selected = first(&scheduler.ready);
        let limits = selected.iter().filter_map(|(_, lane)| Some((*lane, blocking(scheduler, *lane, now)?)));
        let blocked: Vec<(LaneKey, LimitNo)> = limits.collect();
        if blocked.is_empty() {
            return Some(selected);
        }
        parked += blocked.len();
        for (lane, limit) in blocked {
            park_under(scheduler, lane, limit, now);
        }
        wake(scheduler, now);
    }
    None
}

/// Lanes after which a search parks no further ones.
const PARKED_PER_SEARCH: usize = 1_000;

/// A worker with room may take the first job of this lane.
pub(crate) fn has_taker(scheduler: &Scheduler, lane: LaneKey) -> bool {
    let head = scheduler.ready.head(lane);
    head.is_some_and(|head| choice::find(scheduler, lane, head.job(), false).is_some())
}

/// The limit that lets no job of this lane start now.
pub(crate) fn blocking(scheduler: &Scheduler, lane: LaneKey, now: Now) -> Option<LimitNo> {
    let needs = needs(scheduler, lane);
    needs.all().find(|limit| !scheduler.limits.has_room(*limit, now.up))
}

pub(crate) fn needs(scheduler: &Scheduler, lane: LaneKey) -> RequiredLimits {
    scheduler.limits.needs(lane.definition(), lane.key_set())
}

/// Parks a lane under a limit. If that is a rate, a timer wakes it. It leaves the slot that it was woken for to the next lane.
pub(crate) fn park_under(scheduler: &mut Scheduler, lane: LaneKey, limit: LimitNo, now: Now) {
    if scheduler.limits.is_rate(limit) {
        scheduler.ready.park_under_rate(lane, limit);
    } else {
        scheduler.ready.park_under(lane, limit);
    }
    if let Some(at) = scheduler.limits.next_start(limit, now.up) {
        scheduler.limits.set_due(limit, Some(at));
    }
    recheck_next_lanes(scheduler, lane);
}

/// No worker can take a job of this lane now, or none has a free slot for it. Other lanes of its limits may go.
pub(crate) fn park_for_workers(scheduler: &mut Scheduler, lane: LaneKey, lacks_slot: bool) {
    let parked_for = placement::parked_for(scheduler, lane);
    let reserves = scheduler
        .definitions
        .at(lane.definition())
        .is_some_and(|it| Reservation::is_made_by(&it.container.resources));
    if lacks_slot || reserves {
        if lacks_slot {
            scheduler.ready.park_for_slot(lane, parked_for);
        } else {
            scheduler.ready.park_for_resources(lane, parked_for);
        }
        // Its definition is excluded from the worker with the free slot; others with the same need may not be.
        let Scheduler { ready, fleet, .. } = scheduler;
        ready.unpark_slot_after(lane, parked_for, |parked_for, position| {
            choice::has_free_slot(fleet, parked_for, position)
        });
    } else {
        scheduler.ready.park(lane, parked_for);
        scheduler.ready.recheck_slots(parked_for);
    }
    recheck_limits_of(scheduler, lane);
}

/// Takes the permits of a job that was assigned to a free slot or a backlog, and lets the next lanes of its limits go on.
pub(crate) fn take_permits(scheduler: &mut Scheduler, lane: LaneKey, job: JobId, now: Now) {
    scheduler.limits.held += 1;
    if !lane.is_limited() {
        return;
    }
    let needs = needs(scheduler, lane);
    if let Some(row) = scheduler.limits.start(job, needs, now) {
        scheduler.change(Change::RateUsed(row));
    }
    recheck_next_lanes(scheduler, lane);
}

/// Lets a job that was added to a lane compete for the permits of its limit.
pub(crate) fn enter_queue(scheduler: &mut Scheduler, lane: LaneKey, job: JobId) {
    if lane.is_limited() {
        let needs = needs(scheduler, lane);
        let cancels_oldest = cancels_oldest(scheduler, lane.definition());
        scheduler.limits.enter_queue(job, needs, cancels_oldest);
    }
}

/// New jobs of this definition cancel the oldest ones of their limit.
pub(crate) fn cancels_oldest(scheduler: &Scheduler, number: DefinitionNo) -> bool {
    let rule = scheduler.definitions.at(number).and_then(|it| it.limits.concurrency.as_ref());
    rule.is_some_and(|rule| rule.on_full.cancels_oldest())
}

/// Ends the competition of a job for permits, because its attempt is being cancelled.
pub(crate) fn leave_competition(scheduler: &mut Scheduler, id: JobId) {
    let Some(job) = scheduler.jobs.get(&id) else { return };
    let needs = scheduler.limits.needs(job.definition, placement::key_set_of(scheduler, job));
    scheduler.limits.leave_competition(id, needs);
}

/// Ends the competition of a job for permits, because it leaves the queue without a start.
pub(crate) fn leave_queue(scheduler: &mut Scheduler, lane: LaneKey, job: JobId) {
    let needs = needs(scheduler, lane);
    scheduler.limits.leave_queue(job, needs);
    recheck_after_leaving(scheduler, lane);
}

/// A job leaves a lane without a start. If it was woken in place of others, they go on.
pub(crate) fn recheck_after_leaving(scheduler: &mut Scheduler, lane: LaneKey) {
    if lane.is_limited() {
        recheck_next_lanes(scheduler, lane);
    }
}

/// Lets the next lanes have what a lane does not take: its limits and its slot.
fn recheck_next_lanes(scheduler: &mut Scheduler, lane: LaneKey) {
    recheck_limits_of(scheduler, lane);
    let parked_for = placement::parked_for(scheduler, lane);
    scheduler.ready.recheck_slots(parked_for);
}

/// Lets the next lanes of a lane's limits have a look.
fn recheck_limits_of(scheduler: &mut Scheduler, lane: LaneKey) {
    for limit in needs(scheduler, lane).all() {
        scheduler.ready.recheck_limit(limit);
    }
}

/// Gives the permits of a job back, because its attempt is not current any more. This is the only place where permits are given back.
pub(crate) fn release_permits(scheduler: &mut Scheduler, job: JobId) {
    scheduler.limits.held = scheduler.limits.held.saturating_sub(1);
    let Some(needs) = scheduler
        .jobs
        .get(&job)
        .map(|job| scheduler.limits.needs(job.definition, placement::key_set_of(scheduler, job)))
    else {
        return;
    };
    let given: Vec<LimitNo> = scheduler.limits.release_permits(job, needs).collect();
    for limit in given {
        scheduler.ready.recheck_limit(limit);
    }
}

/// Counts off a job that has ended for good. Its rate is remembered until it has recovered.
pub(crate) fn forget_job(scheduler: &mut Scheduler, (number, key_set): (DefinitionNo, KeySetNo), now: Now) {
    if let Some(rate) = scheduler.limits.drop_job(number, key_set) {
        forget_rate(scheduler, rate, now);
    }
}

/// Wakes the next lanes of rates that allow a start now, and forgets rates that have recovered and that no job needs.
pub(crate) fn fire_rates(scheduler: &mut Scheduler, now: Now) {
    while let Some(rate) = scheduler.limits.take_due(now.up) {
        scheduler.ready.recheck_limit(rate);
        forget_rate(scheduler, rate, now);
    }
}

/// Lets the next lane of a limit be tried again, because the value of the limit has changed.
pub(crate) fn recheck_limit(scheduler: &mut Scheduler, limit: LimitNo, now: Now) {
    scheduler.ready.recheck_limit(limit);
    forget_rate(scheduler, limit, now);
}

/// Forgets a rate that no job needs, now or when it has recovered.
pub(crate) fn forget_rate(scheduler: &mut Scheduler, rate: LimitNo, now: Now) {
    if !scheduler.limits.is_unused(rate) {
        return;
    }
    let recovered = scheduler.limits.recovered(rate).filter(|at| *at > now.up);
    scheduler.limits.set_due(rate, recovered);
    if recovered.is_none() {
        scheduler.limits.forget_unused(rate);
    }
}
