//! Recalls prefetched attempts from backlogs: when a slot is free elsewhere and no job waits, when a job with a
//! higher priority waits, and when they must not start on their worker any more.
//!
//! For another job, an attempt is recalled after [`RECALL_AGE_MIN`] at the earliest, last in order first. Its
//! worker releases it unless it has started it meanwhile.

use core::cmp::Reverse;
use core::time::Duration;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use protocol::{JobId, Now, Order, SessionId, Token, Uptime, WorkerId};

use crate::core::Scheduler;
use crate::fleet::Worker;
use crate::fleet::classes::ClassId;
use crate::handlers::first_report;
use crate::job::{Attempt, Job};
use crate::placement;
use crate::placement::searches::{BACKLOGS_EVERY, not_before};
use crate::queue::{LaneKey, QueueKey};
use crate::timers::UptimeTimer;

/// Minimum time in a backlog before a recall: a younger attempt may be on its way into a slot
/// (docs/design/scheduling.md, Q8).
const RECALL_AGE_MIN: Duration = Duration::from_millis(200);
/// Waiting jobs of a lane that one search looks at.
const PER_LANE_MAX: usize = 256;

/// Recalls attempts that must not start on their workers any more. A worker releases each of them that it has not begun to prepare.
pub(crate) fn recall_unstarted(scheduler: &mut Scheduler, now: Now, jobs: impl IntoIterator<Item = JobId>) {
    let mut recalls = Recalls::default();
    for job in jobs {
        // The next inventory decides about an unconfirmed attempt.
        let attempt = scheduler.jobs.get(&job).and_then(Job::attempt).filter(|attempt| {
            !attempt.recalled
                && !attempt.was_missing_at_reconnect()
                && attempt.stopping.is_none()
                && !attempt.has_started()
        });
        if let Some(attempt) = attempt
            && let Some(session) = scheduler.ready_session(attempt.worker)
        {
            recalls.tokens.push((session, attempt.token(job)));
        }
    }
    recalls.send(scheduler, now);
}

/// Recalls prefetched attempts while slots are free elsewhere and no job waits.
pub(crate) fn recall_idle(scheduler: &mut Scheduler, now: Now) {
    if scheduler.fleet.lowest_prefetched().is_none() || scheduler.has_more_to_place {
        return;
    }
    if !scheduler.fleet.has_free_slot() {
        return;
    }
    let free = || scheduler.fleet.with_free_slot();
    // A search walks over all workers with free slots and all backlogs, so it is not done in each step.
    if let Some(at) = not_before(scheduler.searches.for_idle, BACKLOGS_EVERY, now) {
        scheduler.timers.set_uptime(at, UptimeTimer::Recall);
        return;
    }
    let slots: u32 = free().map(|worker| worker.slots().saturating_sub(worker.holdings.count())).sum();
    // Each recall in flight will take one of the free slots.
    let entries = || scheduler.fleet.with_backlog().flat_map(|worker| backlog_entries(scheduler, worker));
    let in_flight = entries().filter(|entry| entry.attempt.recalled).count();
    let mut wanted = slots.saturating_sub(u32::try_from(in_flight).unwrap_or(u32::MAX));
    let mut recalls = Recalls::default();
    let mut takers: BTreeMap<LaneKey, Vec<WorkerId>> = BTreeMap::new();
    for worker in scheduler.fleet.with_backlog() {
        if wanted == 0 {
            break;
        }
        for entry in backlog_entries(scheduler, worker) {
            let Some((job, definition)) = scheduler
                .jobs
                .get(&entry.job())
                .and_then(|job| Some((job, scheduler.definitions.at(job.definition)?)))
            else {
                continue;
            };
            let lane = placement::lane_once_resumed(scheduler, job);
            let able = takers.entry(lane).or_insert_with(|| {
                let able = free().filter(|worker| placement::may_run(scheduler, lane, worker));
                // A job avoids one worker at most.
                able.take(2).map(|worker| worker.row.worker).collect()
            });
            if !able.iter().any(|taker| !placement::avoids(job, definition, *taker)) {
                continue;
            }
            // A fixed attempt may stay fixed for long, such as while its engine is silent.
            if entry.is_fixed() {
                continue;
            }
            if wanted > 0 {
                wanted -= u32::from(recalls.add(&entry, now));
            }
        }
    }
    scheduler.searches.for_idle = Some(now.up);
    recalls.send(scheduler, now);
}

/// Recalls the last attempts in backlogs for waiting jobs with a higher priority, one for each.
pub(crate) fn recall_for_higher(scheduler: &mut Scheduler, now: Now) {
    let Some(lowest) = scheduler.fleet.lowest_prefetched() else {
        return;
    };
    if scheduler.ready.highest_priority().is_none_or(|highest| highest <= lowest) {
        return;
    }
    if let Some(at) = not_before(scheduler.searches.for_higher, BACKLOGS_EVERY, now) {
        // Jobs that arrived after the last search wait for the next one.
        scheduler.timers.set_uptime(at, UptimeTimer::Recall);
        return;
    }
    scheduler.searches.for_higher = Some(now.up);

    let open = scheduler.fleet.with_backlog().filter(|worker| worker.is_open());
    let mut candidates: Vec<(WorkerId, BacklogEntry<'_>)> = open
        .flat_map(|worker| backlog_entries(scheduler, worker).map(|entry| (worker.row.worker, entry)))
        .collect();
    candidates.sort_unstable_by_key(|(_, entry)| Reverse(entry.key));
    // A recall in flight makes room for one job.
    let mut recalls_in_flight: Vec<WorkerId> =
        candidates.iter().filter(|(_, entry)| entry.attempt.recalled).map(|(id, _)| *id).collect();
    candidates.retain(|(_, entry)| !entry.is_fixed());

    let mut recalls = Recalls::default();
    // Later jobs of such a lane find nothing either.
    let mut unplaceable_lanes: BTreeSet<LaneKey> = BTreeSet::new();
    let makers_of_room = MakersOfRoom::of(
        scheduler,
        candidates.iter().map(|(id, _)| *id).chain(recalls_in_flight.iter().copied()),
    );
    let count = (candidates.len() + recalls_in_flight.len()).min(PER_LANE_MAX);
    let first_keys = scheduler.ready.first_keys_of_lanes(count, |lane, head| {
        head.priority() > lowest && makers_of_room.may_meet(scheduler, lane)
    });
    for (lane, key) in first_keys {
        if key.priority() <= lowest || candidates.is_empty() {
            break;
        }
        if unplaceable_lanes.contains(&lane) {
            continue;
        }
        if let Some(at) = recalls_in_flight.iter().position(|id| may_follow(scheduler, lane, key, *id)) {
            recalls_in_flight.remove(at);
            continue;
        }
        let gives_way = |(id, entry): &(WorkerId, BacklogEntry<'_>)| {
            entry.key.priority() < key.priority() && may_follow(scheduler, lane, key, *id)
        };
        if let Some(at) = candidates.iter().position(gives_way) {
            recalls.add(&candidates.remove(at).1, now);
        } else {
            unplaceable_lanes.insert(lane);
        }
    }
    recalls.send(scheduler, now);
}

/// Workers that have attempts which may be recalled, by their classes. Lanes that none of them can run are left out before their jobs are
/// sorted: thousands of definitions may wait for a worker that is absent.
struct MakersOfRoom {
    classes: BTreeSet<ClassId>,
    workers: BTreeSet<WorkerId>,
}

impl MakersOfRoom {
    fn of(scheduler: &Scheduler, workers: impl Iterator<Item = WorkerId>) -> Self {
        let workers: BTreeSet<WorkerId> = workers.collect();
        let class_of = |id: &WorkerId| scheduler.fleet.worker(*id).and_then(Worker::class);
        Self { classes: workers.iter().filter_map(class_of).collect(), workers }
    }

    /// One of the workers may run jobs of this lane, as far as its class tells.
    fn may_meet(&self, scheduler: &Scheduler, lane: LaneKey) -> bool {
        if let Some(only) = lane.pinned_to() {
            return self.workers.contains(&only);
        }
        let classes = scheduler.fleet.classes();
        classes
            .need_of(lane.definition())
            .is_some_and(|(need, _)| self.classes.iter().any(|class| classes.score(need, *class).is_some()))
    }
}

/// An attempt in a backlog.
pub(super) struct BacklogEntry<'s> {
    session: SessionId,
    pub(super) key: QueueKey,
    pub(super) attempt: &'s Attempt,
}

impl BacklogEntry<'_> {
    const fn job(&self) -> JobId {
        self.key.job()
    }

    /// When it will be old enough for a recall.
    pub(super) fn ripe_at(&self) -> Uptime {
        self.attempt.assigned_up + RECALL_AGE_MIN
    }

    /// The attempt cannot be recalled. An unconfirmed one may not be there: the worker would answer `unknown`
    /// after it was sent again.
    pub(super) const fn is_fixed(&self) -> bool {
        self.attempt.recalled || self.attempt.was_missing_at_reconnect() || self.attempt.stopping.is_some()
    }
}

/// Attempts in the backlog of a connected worker, last in order first.
pub(super) fn backlog_entries<'s>(
    scheduler: &'s Scheduler,
    worker: &'s Worker,
) -> impl Iterator<Item = BacklogEntry<'s>> {
    let session = worker.link.ready();
    let last = worker.holdings.prefetched.iter().rev().take(worker.queued() as usize);
    last.filter_map(move |key| {
        let attempt = scheduler.jobs.get(&key.job()).and_then(Job::attempt)?;
        Some(BacklogEntry { session: session?, key: *key, attempt })
    })
}

/// A job with this key may have the room that a recall makes on the worker.
fn may_follow(scheduler: &Scheduler, lane: LaneKey, key: QueueKey, worker: WorkerId) -> bool {
    let may_run = |worker: &Worker| placement::may_run(scheduler, lane, worker);
    scheduler.fleet.worker(worker).is_some_and(|worker| !worker.is_set_aside_before(key) && may_run(worker))
}

/// Attempts to recall now, and the time at which the next one is old enough.
#[derive(Default)]
pub(super) struct Recalls {
    tokens: Vec<(SessionId, Token)>,
    soonest: Option<Uptime>,
}

impl Recalls {
    /// Returns whether the attempt is recalled now.
    pub(super) fn add(&mut self, entry: &BacklogEntry<'_>, now: Now) -> bool {
        let ripe = entry.ripe_at();
        if ripe <= now.up {
            self.tokens.push((entry.session, entry.attempt.token(entry.job())));
            return true;
        }
        self.soonest = Some(self.soonest.map_or(ripe, |soonest| soonest.min(ripe)));
        false
    }

    pub(super) fn send(self, scheduler: &mut Scheduler, now: Now) {
        let mut by_session: BTreeMap<SessionId, Vec<Token>> = BTreeMap::new();
        for (session, token) in self.tokens {
            if let Some(attempt) = scheduler.jobs.get_mut(&token.job).and_then(Job::attempt_mut) {
                attempt.recalled = true;
            }
            first_report::recalled(scheduler, now, token.job);
            by_session.entry(session).or_default().push(token);
        }
        for (session, tokens) in by_session {
            scheduler.send(session, Order::Recall(tokens));
        }
        if let Some(soonest) = self.soonest {
            scheduler.timers.set_uptime(soonest, UptimeTimer::Recall);
        }
    }
}
