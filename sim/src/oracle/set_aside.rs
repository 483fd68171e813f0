//! I29: a worker that is set aside for a job takes a later one only if it leaves what that job needs, and is open again once the job does not
//! wait.

use std::collections::BTreeMap;

use protocol::{JobId, WorkerId};
use scheduler::Scheduler;
use scheduler::definition::{Definition, RetryOn};
use scheduler::job::State;
use scheduler::reservation::Reserved;
use scheduler::snapshot::WorkerFacts;
use scheduler::step::{Assigned, Change, Step};

use super::Oracle;
use super::allowed::revision_of;
use crate::clock::Moment;
use crate::disk::{Disk, Row};
use crate::workload::Workload;

/// Workers that are set aside, each with its job.
pub(crate) type SetAside = BTreeMap<WorkerId, JobId>;

impl Oracle {
    /// A step of the scheduler, with what was set aside after it. Rows are those before it, and tell the order only if all that was decided
    /// before is on disk: a job that waits again, on a disk that stalls, still has the due time of its last wait there.
    pub(crate) fn check_set_aside(
        &mut self,
        now: Moment,
        (disk, workload, has_order): (&Disk, &Workload, bool),
        scheduler: &Scheduler,
        step: &Step,
    ) {
        let after: SetAside = scheduler.workers_set_aside().collect();
        let before = std::mem::take(&mut self.set_aside);
        let assigned = step.changes.iter().filter_map(|change| match change {
            Change::Assigned(it) => Some(it),
            _ => None,
        });
        let assigned: Vec<&Assigned> = assigned.collect();
        for (index, it) in assigned.iter().enumerate() {
            let job = it.token.job;
            if let Some((worker, _)) = after.iter().find(|(_, held)| **held == job) {
                let what = format!("{} is assigned, and worker {worker} is set aside for it", it.token);
                self.violated(now, "I29 a worker is set aside for a waiting job", what);
            }
            let first = before.get(&it.worker).filter(|first| after.get(&it.worker) == Some(first));
            let rows = first.and_then(|first| Some((*first, disk.row(*first)?, disk.row(job)?)));
            let is_later = |(first, row, taken): &(JobId, &Row, &Row)| {
                // Jobs of one definition have an order of their own, since their keys take turns.
                if row.revision == taken.revision {
                    return false;
                }
                let place = |id: JobId, row: &Row| (-i64::from(row.priority), row.due_at.0, id.0);
                let definition = workload.definition(taken.revision);
                // One that waits for certain workers goes first within a priority. The list of any revision may be in force.
                let mut revisions = workload.of_name(&definition.name);
                let may_go_first = definition.retry.on == RetryOn::Same
                    || revisions.any(|it| !it.placement.workers.is_empty())
                    || taken.narrowing.as_ref().is_some_and(|asked| !asked.workers.is_empty())
                    || disk.is_member(job);
                taken.priority < row.priority || (!may_go_first && place(job, taken) > place(*first, row))
            };
            let left_enough = |(first, row, taken): &(JobId, &Row, &Row)| {
                let definitions =
                    (&**workload.definition(row.revision), &**workload.definition(taken.revision));
                let mut workers = scheduler.worker_facts();
                let Some(mut worker) = workers.find(|facts| facts.set_aside_for == Some(*first)) else {
                    return false;
                };
                // An earlier job may have taken the rest after it, in the same step.
                for after in assigned.iter().skip(index + 1).filter(|after| after.worker == it.worker) {
                    let revision = revision_of(disk, step, after.token.job);
                    take_back(&mut worker, after, revision.map(|it| &**workload.definition(it)));
                }
                leaves_enough(&worker, definitions)
            };
            if let Some((first, ..)) = rows.filter(|it| has_order && is_later(it) && !left_enough(it)) {
                let what =
                    format!("{} goes to worker {}, which is set aside for job {first}", it.token, it.worker);
                self.violated(now, "I29 a worker that is set aside takes nothing later", what);
            }
        }
    }
}

/// The facts of a worker before this attempt was assigned to it.
fn take_back(worker: &mut WorkerFacts, it: &Assigned, definition: Option<&Definition>) {
    if worker.queued > 0 {
        worker.queued -= 1;
    } else {
        worker.busy -= 1;
    }
    let resources = definition.map(|definition| &definition.container.resources);
    if let Some(reserved) = resources.and_then(|resources| Reserved::of(resources, it.gpus.clone())) {
        worker.in_use.remove(&reserved);
    }
}

/// A worker has a slot left for a job of the first definition, and what that job reserves of all that one of the second reserves.
fn leaves_enough(worker: &WorkerFacts, (first, taken): (&Definition, &Definition)) -> bool {
    let (offer, used) = (&worker.offer, &worker.in_use);
    let (wanted, others) = (&first.container.resources, &taken.container.resources);
    let free_gpus = offer.gpus.iter().filter(|id| !used.gpus.contains_key(*id)).count();
    let kept_memory = others.memory_bytes.map(|_| used.memory_bytes + wanted.memory_bytes.unwrap_or(0));
    let mut custom = wanted.custom.iter().filter(|(name, _)| others.custom.iter().any(|it| it.0 == *name));
    let has_custom = |(name, amount): &(String, u32)| {
        let offered = offer.custom.iter().find(|it| it.0 == *name).map_or(0, |it| u64::from(it.1));
        used.custom.get(name).copied().unwrap_or(0) + u64::from(*amount) <= offered
    };
    worker.busy < worker.slots
        && (others.gpus == 0 || free_gpus >= wanted.gpus as usize)
        && offer.memory_bytes.zip(kept_memory).is_none_or(|(all, kept)| kept <= all)
        && custom.all(has_custom)
}

/// The workers that are set aside for jobs which do not wait.
pub(crate) fn not_awaited(disk: &Disk, set_aside: impl Iterator<Item = (WorkerId, JobId)>) -> Vec<String> {
    let waits = |job: JobId| disk.row(job).is_some_and(|row| row.state == State::Queued);
    let idle = set_aside.filter(|(_, job)| !waits(*job));
    idle.map(|(worker, job)| format!("worker {worker} is set aside for job {job}, which does not wait"))
        .collect()
}
