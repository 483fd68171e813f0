//! Members that can never run on the only worker that they may run on.

use protocol::WorkerId;

use crate::core::Scheduler;
use crate::ids::DefinitionNo;
use crate::job::Job;
use crate::run_on::{MemberRow, RunOnRole};

/// Reason of a member whose worker will not come back.
const WORKER_GONE: &str = "its worker was removed or revoked";
/// Reason of a member whose worker was taken from the list `workers` of its definition.
const WORKER_NOT_LISTED: &str = "its worker is not listed in jobs.yaml any more";
/// Reason of a member whose worker has another name than its job asks for.
const WORKER_NOT_ASKED_FOR: &str = "its worker has another name now than the job asks for";

/// Nothing runs on this worker any more, ever.
fn is_gone(scheduler: &Scheduler, worker: WorkerId) -> bool {
    scheduler.fleet.worker(worker).is_none_or(|worker| worker.row.revoked_at.is_some())
}

/// The reason why a job of this definition can never run on a worker.
pub(super) fn why_unreachable(
    scheduler: &Scheduler,
    number: DefinitionNo,
    worker: WorkerId,
) -> Option<&'static str> {
    if is_gone(scheduler, worker) {
        return Some(WORKER_GONE);
    }
    let need = scheduler.fleet.classes().need_of(number).zip(scheduler.fleet.worker(worker));
    let ((_, need), worker) = need?;
    let (id, name) = (worker.row.worker, &worker.row.name);
    match () {
        () if !need.is_listed_by_definition(id, name) => Some(WORKER_NOT_LISTED),
        () if !need.is_asked_for(id, name) => Some(WORKER_NOT_ASKED_FOR),
        () => None,
    }
}

/// The reason why a member can never run: its only worker was removed, revoked, or taken from the list of its definition.
pub(super) fn why_orphan(scheduler: &Scheduler, job: &Job) -> Option<&'static str> {
    let RunOnRole::Member(MemberRow { pinned: Some(worker), .. }) = job.role() else { return None };
    why_unreachable(scheduler, job.definition, worker)
}

/// The job is a member that can never run.
pub(crate) fn is_orphan(scheduler: &Scheduler, job: &Job) -> bool {
    why_orphan(scheduler, job).is_some()
}
