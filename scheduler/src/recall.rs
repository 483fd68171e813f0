//! What sits in a backlog is asked back: when a slot is free elsewhere and nobody else waits, and when somebody waits who goes before it.
//!
//! Only what has sat for [`SITTING_MIN`], the last in order first. Its worker gives it back as released, unless it has started it meanwhile.

use core::cmp::Reverse;
use core::time::Duration;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use protocol::{JobId, Now, Order, SessionId, Token, Uptime, WorkerId};

use crate::fleet::{Link, Worker};
use crate::job::{Attempt, Job};
use crate::place;
use crate::ready::{LaneKey, Place};
use crate::scheduler::Scheduler;
use crate::timers::Alarm;

/// What has been in a backlog for less than this is not asked back: it may be on its way into a slot (DESIGN.md section 8).
const SITTING_MIN: Duration = Duration::from_millis(200);
/// How often all backlogs are searched for what has to give way.
const SEARCH_EVERY: Duration = Duration::from_millis(100);
/// For so many of a lane at once.
const OF_A_LANE_MAX: usize = 256;

/// When all backlogs were last searched: that costs, and is not done at every step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Searched {
    /// For what has to give way to a higher priority.
    for_higher: Option<Uptime>,
    /// For what free slots would suit, and there was nothing.
    in_vain: Option<Uptime>,
}

/// Asks back what sits in backlogs while slots are free elsewhere and nobody else waits.
pub(crate) fn recall_idle(it: &mut Scheduler, now: Now) {
    if it.fleet.lowest_prefetched().is_none() || it.ready.first().is_some() {
        return;
    }
    let free = || it.fleet.open().take_while(|(_, free)| *free).map(|(worker, _)| worker);
    let mut wanted: u32 = free().map(|worker| worker.slots().saturating_sub(worker.held_count())).sum();
    if wanted == 0 {
        return;
    }
    // Slots that suit nobody may be free for ever, and be asked for at every step.
    if let Some(at) = it.searched.in_vain.map(|at| at + SEARCH_EVERY).filter(|at| *at > now.up) {
        it.timers.set_alarm(at, Alarm::Recall);
        return;
    }
    let mut recalls = Recalls::default();
    let mut takers: BTreeMap<LaneKey, Vec<WorkerId>> = BTreeMap::new();
    let mut is_vain = true;
    for (_, worker) in it.fleet.iter() {
        for sitting in sitting(it, worker) {
            let Some((job, definition)) =
                it.jobs.get(&sitting.job()).and_then(|job| Some((job, it.definitions.at(job.definition)?)))
            else {
                continue;
            };
            let lane = place::lane_of(it, job);
            let able = takers.entry(lane).or_insert_with(|| {
                let able = free().filter(|worker| place::may_run(worker, lane, definition));
                // A job avoids one worker at most.
                able.take(2).map(|worker| worker.row.worker).collect()
            });
            if !able.iter().any(|taker| !place::avoids(job, definition, *taker)) {
                continue;
            }
            // What stays, stays for as long as its engine is silent, say.
            if sitting.is_fixed() {
                continue;
            }
            is_vain = false;
            if wanted > 0 {
                wanted -= u32::from(recalls.add(&sitting, now));
            }
        }
    }
    it.searched.in_vain = is_vain.then_some(now.up);
    recalls.send(it);
}

/// Asks the last ones in backlogs back for the sake of waiting jobs with a higher priority that find no room: one for each.
pub(crate) fn recall_for_higher(it: &mut Scheduler, now: Now) {
    let Some(lowest) = it.fleet.lowest_prefetched() else {
        return;
    };
    if it.ready.highest_priority().is_none_or(|highest| highest <= lowest) {
        return;
    }
    let next_search = it.searched.for_higher.map(|at| at + SEARCH_EVERY);
    if let Some(at) = next_search.filter(|at| *at > now.up) {
        // What came after the last search is for the next one; whoever found nothing then is not asked again for that alone.
        if it.searched.for_higher != Some(now.up) {
            it.timers.set_alarm(at, Alarm::Recall);
        }
        return;
    }
    it.searched.for_higher = Some(now.up);

    let open = it.fleet.iter().filter(|(_, worker)| worker.is_open());
    let mut givers: Vec<(WorkerId, Sitting<'_>)> =
        open.flat_map(|(id, worker)| sitting(it, worker).map(move |sitting| (id, sitting))).collect();
    givers.sort_unstable_by_key(|(_, sitting)| Reverse(sitting.place));
    // Where a place is being made already.
    let mut coming: Vec<WorkerId> =
        givers.iter().filter(|(_, sitting)| sitting.attempt.recalled).map(|(id, _)| *id).collect();
    givers.retain(|(_, sitting)| !sitting.is_fixed());

    let mut recalls = Recalls::default();
    // For whoever comes later in such a lane there is nothing either.
    let mut vain: BTreeSet<LaneKey> = BTreeSet::new();
    for (lane, place) in it.ready.firsts_of_lanes((givers.len() + coming.len()).min(OF_A_LANE_MAX)) {
        if place.priority() <= lowest || givers.is_empty() {
            break;
        }
        if vain.contains(&lane) {
            continue;
        }
        if let Some(at) = coming.iter().position(|id| may_run(it, lane, *id)) {
            coming.remove(at);
            continue;
        }
        let gives_way = |(id, sitting): &(WorkerId, Sitting<'_>)| {
            sitting.place.priority() < place.priority() && may_run(it, lane, *id)
        };
        if let Some(at) = givers.iter().position(gives_way) {
            recalls.add(&givers.remove(at).1, now);
        } else {
            vain.insert(lane);
        }
    }
    recalls.send(it);
}

/// An attempt in a backlog.
struct Sitting<'s> {
    session: SessionId,
    place: Place,
    attempt: &'s Attempt,
}

impl Sitting<'_> {
    const fn job(&self) -> JobId {
        self.place.job()
    }

    /// Whether it stays where it is. One that its worker could not tell about may not be there: asked for, it would be "unknown" after
    /// it was sent again.
    const fn is_fixed(&self) -> bool {
        self.attempt.recalled || self.attempt.unsettled || self.attempt.stopping.is_some()
    }
}

/// What sits in the backlog of a worker that can be asked, the last in order first.
fn sitting<'s>(it: &'s Scheduler, worker: &'s Worker) -> impl Iterator<Item = Sitting<'s>> {
    let session = if let Link::Ready(session) = worker.link { Some(session) } else { None };
    let last = worker.prefetched.iter().rev().take(worker.queued() as usize);
    last.filter_map(move |place| {
        let attempt = it.jobs.get(&place.job()).and_then(Job::attempt)?;
        Some(Sitting { session: session?, place: *place, attempt })
    })
}

fn may_run(it: &Scheduler, lane: LaneKey, worker: WorkerId) -> bool {
    let definition = it.definitions.at(lane.definition());
    let worker = it.fleet.worker(worker);
    definition.zip(worker).is_some_and(|(definition, worker)| place::may_run(worker, lane, definition))
}

/// What is to be asked back now, and when to look again for what has not sat for long enough.
#[derive(Default)]
struct Recalls {
    tokens: Vec<(SessionId, Token)>,
    soonest: Option<Uptime>,
}

impl Recalls {
    /// Returns whether it is asked back now.
    fn add(&mut self, sitting: &Sitting<'_>, now: Now) -> bool {
        let ripe = sitting.attempt.assigned_up + SITTING_MIN;
        if ripe <= now.up {
            self.tokens.push((sitting.session, sitting.attempt.token(sitting.job())));
            return true;
        }
        self.soonest = Some(self.soonest.map_or(ripe, |soonest| soonest.min(ripe)));
        false
    }

    fn send(self, it: &mut Scheduler) {
        let mut by_session: Vec<(SessionId, Vec<Token>)> = Vec::new();
        for (session, token) in self.tokens {
            if let Some(attempt) = it.jobs.get_mut(&token.job).and_then(Job::attempt_mut) {
                attempt.recalled = true;
            }
            match by_session.iter_mut().find(|(to, _)| *to == session) {
                Some((_, tokens)) => tokens.push(token),
                None => by_session.push((session, alloc::vec![token])),
            }
        }
        for (session, tokens) in by_session {
            it.send(session, Order::Recall(tokens));
        }
        if let Some(soonest) = self.soonest {
            it.timers.set_alarm(soonest, Alarm::Recall);
        }
    }
}
