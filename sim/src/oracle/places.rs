//! Where jobs go again: not to the worker on which the platform failed them, as long as another can take them; and where they failed by
//! themselves, as their definition says.

use std::collections::BTreeMap;

use protocol::report::Outcome;
use protocol::{JobId, WorkerId};
use scheduler::Scheduler;
use scheduler::definition::RetryOn;
use scheduler::explain::{Obstacle, Verdict};
use scheduler::job::Stay;
use scheduler::step::{Assigned, Change, Step};

use super::Oracle;
use crate::clock::Moment;
use crate::disk::{Disk, uses_platform_budget};
use crate::workload::Workload;

/// Where jobs are and were, as far as it is decided.
#[derive(Debug, Default)]
pub(super) struct Places {
    holders: BTreeMap<JobId, WorkerId>,
    last: BTreeMap<JobId, Stay>,
}

impl Oracle {
    /// What was decided and did not become durable never was.
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
        brain: &Scheduler,
        step: &Step,
    ) {
        let ours = &mut self.places;
        let mut wrong = None;
        for change in &step.changes {
            match change {
                Change::Assigned(it) => {
                    let last = ours.last.get(&it.token.job).copied();
                    wrong = wrong
                        .or(last.filter(|last| !may_go(brain, (disk, workload), it, *last)).zip(Some(it)));
                    ours.holders.insert(it.token.job, it.worker);
                }
                Change::Waiting { job, closed, .. } if closed.outcome != Outcome::Released => {
                    if let Some(worker) = ours.holders.get(job).copied() {
                        let failed_by_platform = uses_platform_budget(closed.outcome);
                        ours.last.insert(*job, Stay { worker, failed_by_platform });
                    }
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
            self.fault(now, "F5 where a job goes again", what);
        }
    }
}

fn may_go(brain: &Scheduler, (disk, workload): (&Disk, &Workload), it: &Assigned, last: Stay) -> bool {
    let Some(row) = disk.row(it.token.job) else { return true };
    let on = workload.definition(row.revision).retry.on;
    let is_back = it.worker == last.worker;
    if on == RetryOn::Same && !last.failed_by_platform && !is_back {
        return !brain.snapshot().workers.iter().any(|worker| worker.id == last.worker);
    }
    if !is_back || (on != RetryOn::Other && !last.failed_by_platform) {
        return true;
    }
    // Whoever can take one more now could before.
    let verdicts = brain.explain(it.token.job).map(|why| why.workers).unwrap_or_default();
    !verdicts.iter().any(|other| other.worker != it.worker && is_able(&other.verdict))
}

/// Whether nothing keeps a worker from a job but what the scheduler takes for its place.
fn is_able(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Able => true,
        Verdict::Unable(obstacles) => obstacles.iter().all(|it| matches!(it, Obstacle::PinnedElsewhere(_))),
        Verdict::HasIt | Verdict::LastResort => false,
    }
}
