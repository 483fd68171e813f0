//! The choice of a worker for one job.
//!
//! Only workers of classes that meet the need of the job are looked at, in each class in the order of the definition's strategy. The first
//! one of a class that is not excluded and not to be avoided stands for it, and the best of these gets the job. Of equals, a worker that
//! has the image goes first: the few that have used it last are looked at, too. So the cost depends on the number of classes and not on the
//! number of workers.

use core::cmp::Reverse;

use protocol::{JobId, WorkerId};

use crate::core::Scheduler;
use crate::definition::Definition;
use crate::fleet::classes::{ClassId, OpenWorkers};
use crate::fleet::{FULL, Fleet, Worker};
use crate::ids::NeedId;
use crate::job::Job;
use crate::placement::rules::PlacementStrategy;
use crate::placement::{avoids, may_run};
use crate::queue::{LaneKey, ParkedFor, QueueKey};

/// The best worker for this job, and whether it has a free slot. The last worker is avoided if the job asks for another one, unless there
/// is no other.
pub(crate) fn choose(scheduler: &Scheduler, lane: LaneKey, id: JobId, free_only: bool) -> Choice {
    match find(scheduler, lane, id, free_only) {
        Some((worker, free)) => Choice::Worker(worker, free),
        None if free_only && find(scheduler, lane, id, false).is_some() => Choice::NoFreeSlot,
        None => Choice::Nobody,
    }
}

/// A worker for a job, or the reason why there is none.
pub(crate) enum Choice {
    /// This worker; true if it has a free slot.
    Worker(WorkerId, bool),
    /// Workers that may take it have room in their backlogs only, and it takes free slots only.
    NoFreeSlot,
    /// No worker with room may take it.
    Nobody,
}

/// The best worker, of those with free slots or of all with room.
pub(crate) fn find(
    scheduler: &Scheduler,
    lane: LaneKey,
    id: JobId,
    free_only: bool,
) -> Option<(WorkerId, bool)> {
    let job = scheduler.jobs.get(&id)?;
    let definition = scheduler.definitions.at(job.definition)?;
    let (need_id, need) = scheduler.fleet.classes().need_of(lane.definition())?;
    let holders = match definition.placement.strategy {
        PlacementStrategy::Spread | PlacementStrategy::Pack => {
            scheduler.fleet.images.of(&definition.container.image)
        }
        PlacementStrategy::Random => &[],
    };
    let mut search = Search {
        scheduler,
        lane,
        id,
        job,
        definition,
        free_only,
        need: need_id,
        holders,
        best: None,
        last_resort: None,
    };
    if let Some(only) = lane.pinned_to() {
        search.consider(only);
    } else if !need.has_list() {
        for (class, _) in scheduler.fleet.classes().meeting(need_id) {
            search.consider_class(class);
        }
        search.consider_holders();
        search.consider_set_aside();
    } else {
        for selector in need.list() {
            scheduler.fleet.selected(selector).for_each(|worker| {
                search.consider(worker);
            });
        }
    }
    let (rank, worker) = search.best.or(search.last_resort)?;
    Some((worker, !rank.is_full))
}

/// One of these workers has room for a job without limits at this position.
pub(crate) fn has_room(fleet: &Fleet, parked_for: ParkedFor, position: QueueKey) -> bool {
    let is_listed = |id| fleet.worker(id).and_then(Worker::listing).is_some();
    let is_open = match parked_for {
        ParkedFor::Worker(only) => is_listed(only),
        ParkedFor::Need(id) => {
            let classes = fleet.classes();
            let Some(need) = classes.need(id) else { return false };
            if !need.has_list() {
                let open = classes.meeting(id).filter_map(|(class, _)| classes.open_for(class, id));
                open.into_iter().any(|workers| !workers.by_load.is_empty())
            } else {
                need.list().iter().flat_map(|selector| fleet.selected(selector)).any(is_listed)
            }
        }
    };
    is_open || set_aside_admits(fleet.set_aside_with_room(), fleet, parked_for, position)
}

/// One of these workers has a free slot for a job at this position. Definitions may be excluded from it.
pub(crate) fn has_free_slot(fleet: &Fleet, parked_for: ParkedFor, position: QueueKey) -> bool {
    let is_free = |worker: &Worker| worker.listing().is_some_and(|(load, ..)| load < FULL);
    let is_open = match parked_for {
        // Other lanes of this worker may reserve less.
        ParkedFor::Worker(only) => fleet.worker(only).is_some_and(is_free),
        ParkedFor::Need(id) => {
            let classes = fleet.classes();
            let Some(need) = classes.need(id) else { return false };
            if !need.has_list() {
                let full = (FULL, 0, WorkerId(0));
                let open = classes.meeting(id).filter_map(|(class, _)| classes.open_for(class, id));
                open.into_iter().any(|workers| workers.by_load.range(..full).next().is_some())
            } else {
                let has_left = |worker: &Worker| classes.reservation_of(id).is_none_or(|it| worker.fits(it));
                let mut listed = need.list().iter().flat_map(|selector| fleet.selected(selector));
                listed.any(|id| fleet.worker(id).is_some_and(|worker| has_left(worker) && is_free(worker)))
            }
        }
    };
    is_open || set_aside_admits(fleet.set_aside_with_slot(), fleet, parked_for, position)
}

/// One of the workers `set_aside` is among those that `parked_for` names, and admits a job at this position.
fn set_aside_admits<'f>(
    mut set_aside: impl Iterator<Item = &'f Worker>,
    fleet: &Fleet,
    parked_for: ParkedFor,
    position: QueueKey,
) -> bool {
    let classes = fleet.classes();
    set_aside.any(|worker| {
        let id = worker.row.worker;
        match parked_for {
            // Its reservation is not known here.
            ParkedFor::Worker(only) => only == id,
            ParkedFor::Need(need_id) => {
                let meets = worker.class().is_some_and(|class| classes.score(need_id, class).is_some());
                let need = classes.need(need_id).filter(|need| meets && need.lists(id, &worker.row.name));
                need.is_some_and(|need| {
                    classes.reservation_of(need_id).is_none_or(|it| worker.fits(it))
                        && worker.admits(position, &need.reserves)
                })
            }
        }
    })
}

/// Rank of a worker for a job; the lowest is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// No slot is free, so the job would wait in its backlog.
    is_full: bool,
    /// It is set aside for a waiting job.
    is_set_aside: bool,
    score: Reverse<i64>,
    /// The load as the strategy counts it.
    load: u32,
    /// It is not known to have the image.
    lacks_image: bool,
    tie: u32,
}

struct Search<'s> {
    scheduler: &'s Scheduler,
    lane: LaneKey,
    id: JobId,
    job: &'s Job,
    definition: &'s Definition,
    free_only: bool,
    need: NeedId,
    /// Workers that have used the image last, each with the number of that use.
    holders: &'s [(u64, WorkerId)],
    best: Option<(Rank, WorkerId)>,
    last_resort: Option<(Rank, WorkerId)>,
}

impl Search<'_> {
    /// Looks at the workers of a class until one is able that needs not be avoided. Workers that are passed are excluded from the jobs of
    /// this definition, which is rare.
    fn consider_class(&mut self, class: ClassId) {
        let classes = self.scheduler.fleet.classes();
        let Some(OpenWorkers { by_load, by_tie }) = classes.open_for(class, self.need) else { return };
        let full = (FULL, 0, WorkerId(0));
        match self.definition.placement.strategy {
            PlacementStrategy::Spread if self.free_only => {
                by_load.range(..full).any(|(_, _, id)| self.consider(*id))
            }
            PlacementStrategy::Pack if self.free_only => {
                by_load.range(..full).rev().any(|(_, _, id)| self.consider(*id))
            }
            PlacementStrategy::Spread => by_load.iter().any(|(_, _, id)| self.consider(*id)),
            PlacementStrategy::Pack => {
                by_load.range(..full).rev().chain(by_load.range(full..)).any(|(_, _, id)| self.consider(*id))
            }
            PlacementStrategy::Random => by_tie.iter().any(|(_, _, id)| self.consider(*id)),
        };
    }

    /// Looks at the workers that have the image, unless the best one has it already. They are in the classes that were looked at, where
    /// others stood for them.
    fn consider_holders(&mut self) {
        for (_, id) in self.holders {
            let best = self.best.map(|(rank, _)| rank);
            if best.is_some_and(|best| !best.lacks_image) {
                return;
            }
            let rank = self.scheduler.fleet.worker(*id).and_then(|worker| self.rank(worker));
            if rank.is_some_and(|rank| best.is_none_or(|best| rank < best)) {
                self.consider(*id);
            }
        }
    }

    /// Looks at the workers that are set aside, unless another one has a free slot. They are listed in no class.
    fn consider_set_aside(&mut self) {
        if self.best.is_none_or(|(rank, _)| rank.is_full || rank.is_set_aside) {
            let fleet = &self.scheduler.fleet;
            fleet.set_aside_with_room().for_each(|worker| {
                self.consider(worker.row.worker);
            });
        }
    }

    /// Considers a worker. Returns true if it is able to take the job and needs not be avoided.
    fn consider(&mut self, id: WorkerId) -> bool {
        let Some(worker) = self.scheduler.fleet.worker(id) else { return false };
        let Some(rank) = self.rank(worker).filter(|_| may_run(self.scheduler, self.lane, worker)) else {
            return false;
        };
        let is_avoided = avoids(self.job, self.definition, id);
        let place = if is_avoided { &mut self.last_resort } else { &mut self.best };
        if place.is_none_or(|(best, _)| rank < best) {
            *place = Some((rank, id));
        }
        !is_avoided
    }

    /// Absent if the worker has no room, too little left of a resource, or is set aside for a job that does not let this one have it.
    fn rank(&self, worker: &Worker) -> Option<Rank> {
        let (load, tie) = worker.listed_at()?;
        let classes = self.scheduler.fleet.classes();
        let score = classes.score(self.need, worker.class()?)?;
        if classes.reservation_of(self.need).is_some_and(|it| !worker.fits(it)) {
            return None;
        }
        let is_full = load >= FULL;
        if is_full && self.free_only {
            return None;
        }
        let is_set_aside = worker.set_aside().is_some();
        if is_set_aside && !self.is_admitted(worker) {
            return None;
        }
        let load = match self.definition.placement.strategy {
            PlacementStrategy::Pack if !is_full => FULL - load,
            PlacementStrategy::Spread | PlacementStrategy::Pack => load,
            PlacementStrategy::Random => 0,
        };
        let lacks_image = !self.holders.iter().any(|(_, holder)| *holder == worker.row.worker);
        Some(Rank { is_full, is_set_aside, score: Reverse(score), load, lacks_image, tie })
    }

    fn is_admitted(&self, worker: &Worker) -> bool {
        let Scheduler { config, fleet, .. } = self.scheduler;
        let key = self.job.queue_key(config.priority_ageing, self.id);
        fleet.classes().need(self.need).is_some_and(|need| worker.admits(key, &need.reserves))
    }
}
