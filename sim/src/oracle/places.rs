//! The placement of retries: not on the worker on which the platform failed them, as long as another can take them; and where they failed by
//! themselves, as their definition says.

use std::collections::BTreeMap;

use protocol::report::Outcome;
use protocol::{JobId, WorkerId};
use scheduler::Scheduler;
use scheduler::definition::RetryOn;
use scheduler::explain::{Obstacle, PlacementVerdict, WorkerVerdict};
use scheduler::job::LastPlacement;
use scheduler::step::{Assigned, Change, Step};

use super::Oracle;
use super::set_aside::SetAside;
use crate::clock::Moment;
use crate::disk::{Disk, uses_platform_budget};
use crate::workload::Workload;

/// The workers of jobs now and before, as decided.
#[derive(Debug, Default)]
pub(super) struct Places {
    holders: BTreeMap<JobId, WorkerId>,
    last: BTreeMap<JobId, LastPlacement>,
}

impl Oracle {
    /// Decisions that did not become durable are void.
    pub(super) fn places_loaded(&mut self, disk: &Disk) {
        let live = || disk.rows().filter(|(_, row)| !row.state.has_ended());
        let holder = |(job, row): (JobId, &crate::disk::Row)| Some((job, row.latest.as_ref()?.worker));
        self.places = Places {
            holders: live().filter_map(holder).collect(),
            last: live().filter_map(|(job, row)| Some((job, row.last?))).collect(),
        };
    }

    /// A step of the scheduler, told in order.
    pub(super) fn places_change(
        &mut self,
        now: Moment,
        (disk, workload): (&Disk, &Workload),
        scheduler: &Scheduler,
        step: &Step,
    ) {
        let is_of_changed = |job| self.is_of_changed_batch(disk, job);
        let assigned = step.changes.iter().filter_map(|change| match change {
            Change::Assigned(it) => Some(it.token.job),
            _ => None,
        });
        // Jobs with limits take free slots only.
        let excused: Vec<JobId> = assigned.filter(|job| is_of_changed(*job)).collect();
        let (ours, set_aside) = (&mut self.places, &self.set_aside);
        let mut wrong = None;
        for change in &step.changes {
            match change {
                Change::Assigned(it) => {
                    let last = ours.last.get(&it.token.job).copied();
                    wrong = wrong.or(last
                        .filter(|_| !excused.contains(&it.token.job))
                        .filter(|last| !may_go(scheduler, (disk, workload), set_aside, it, *last))
                        .zip(Some(it)));
                    ours.holders.insert(it.token.job, it.worker);
                }
                Change::AttemptClosed { job, closed, .. } if closed.outcome != Outcome::Released => {
                    if let Some(worker) = ours.holders.get(job).copied() {
                        let infrastructure_failure = uses_platform_budget(closed.outcome);
                        ours.last.insert(*job, LastPlacement { worker, infrastructure_failure });
                    }
                }
                // A definition lists names: a job that waited for this worker under a name that is not listed may wait for any worker now.
                Change::Worker(row) | Change::CordonEnded { row, .. }
                    if disk.workers.get(&row.worker).is_some_and(|before| before.name != row.name) =>
                {
                    ours.last.retain(|_, last| last.worker != row.worker);
                }
                Change::Ended(it) => {
                    ours.holders.remove(&it.job);
                    ours.last.remove(&it.job);
                }
                _ => {}
            }
        }
        if let Some((last, it)) = wrong {
            let what = format!("{} goes to worker {} after {last:?}", it.token, it.worker);
            self.violated(now, "F5 where a job goes again", what);
        }
    }
}

fn may_go(
    scheduler: &Scheduler,
    (disk, workload): (&Disk, &Workload),
    set_aside: &SetAside,
    it: &Assigned,
    last: LastPlacement,
) -> bool {
    // A member that has one worker only waits for it, whatever happened there.
    let Some(row) = disk.row(it.token.job).filter(|_| !disk.is_pinned(it.token.job)) else { return true };
    let on = workload.definition(row.revision).retry.on;
    let is_back = it.worker == last.worker;
    let verdicts = || {
        scheduler.explain(protocol::Now::default(), it.token.job).map(|why| why.workers).unwrap_or_default()
    };
    if on == RetryOn::Same && !last.infrastructure_failure && !is_back {
        // It waits for no worker that was forgotten, that jobs.yaml does not list any more, or whose name it does not ask for.
        let is_awaited = |other: &WorkerVerdict| other.worker == last.worker && !is_unlisted(&other.verdict);
        return !verdicts().iter().any(is_awaited);
    }
    // A job with limits takes free slots only.
    let is_limited = row.limited_by.is_some() || workload.definition(row.revision).takes_free_slots_only();
    if is_limited || !is_back || (on != RetryOn::Other && !last.infrastructure_failure) {
        return true;
    }
    // A worker that can take one more now could before, unless it was set aside.
    let could = |other: &WorkerVerdict| !set_aside.contains_key(&other.worker) && is_able(&other.verdict);
    !verdicts().iter().any(|other| other.worker != it.worker && could(other))
}

fn is_unlisted(verdict: &PlacementVerdict) -> bool {
    matches!(verdict, PlacementVerdict::Unable(obstacles) if obstacles.iter().any(|it| matches!(it, Obstacle::NotListed | Obstacle::NotAskedFor)))
}

/// True if nothing keeps a worker from a job but what the scheduler takes for its place.
fn is_able(verdict: &PlacementVerdict) -> bool {
    match verdict {
        PlacementVerdict::Able => true,
        PlacementVerdict::Unable(obstacles) => {
            obstacles.iter().all(|it| matches!(it, Obstacle::PinnedElsewhere(_)))
        }
        PlacementVerdict::Holding | PlacementVerdict::LastResort => false,
    }
}
