//! I29: a worker that is set aside for a job takes none that comes later, and is open again once the job does not wait.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{JobId, WorkerId};
use scheduler::definition::RetryOn;
use scheduler::job::State;
use scheduler::step::{Change, Step};

use super::Oracle;
use crate::clock::Moment;
use crate::disk::{Disk, Row};
use crate::workload::Workload;

/// Workers that are set aside, each with its job.
pub(crate) type SetAside = BTreeMap<WorkerId, JobId>;

impl Oracle {
    /// A step of the scheduler, with what was set aside after it. Rows are those before it, as far as they are on disk.
    pub(crate) fn respects_set_aside(
        &mut self,
        now: Moment,
        (disk, workload, is_aged): (&Disk, &Workload, bool),
        after: &SetAside,
        step: &Step,
    ) {
        let before = std::mem::take(&mut self.set_aside);
        let assigned = step.changes.iter().filter_map(|change| match change {
            Change::Assigned(it) => Some(it),
            _ => None,
        });
        // Workers that had room for their job, and that an earlier one took: for the rest of the step they were open to all.
        let mut opened: BTreeSet<WorkerId> = BTreeSet::new();
        for it in assigned {
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
                // One that waits for a certain worker goes first within a priority.
                let may_go_first =
                    definition.retry.on == RetryOn::Same || !definition.placement.workers.is_empty();
                taken.priority < row.priority || (!may_go_first && place(job, taken) > place(*first, row))
            };
            if rows.as_ref().is_some_and(|it| !is_later(it)) {
                opened.insert(it.worker);
            }
            let is_open = opened.contains(&it.worker);
            if let Some((first, ..)) = rows.filter(|it| !is_aged && !is_open && is_later(it)) {
                let what =
                    format!("{} goes to worker {}, which is set aside for job {first}", it.token, it.worker);
                self.violated(now, "I29 a worker that is set aside takes nothing later", what);
            }
        }
    }
}

/// The workers that are set aside for jobs which do not wait.
pub(crate) fn not_awaited(disk: &Disk, set_aside: impl Iterator<Item = (WorkerId, JobId)>) -> Vec<String> {
    let waits = |job: JobId| disk.row(job).is_some_and(|row| row.state == State::Queued);
    let idle = set_aside.filter(|(_, job)| !waits(*job));
    idle.map(|(worker, job)| format!("worker {worker} is set aside for job {job}, which does not wait"))
        .collect()
}
