//! Finds out whether an attempt of a silent worker could have a successor: to give it up without one would only throw away its outcome.

use protocol::WorkerId;

use crate::core::Scheduler;
use crate::explain::pending::{reason_of, reason_of_group};
use crate::fleet::groups::{Intake, WorkerGroup};
use crate::ids::DefinitionNo;
use crate::limits::keys::KeySetNo;
use crate::queue::LaneKey;
use crate::step::PendingReason;

/// True if a connected worker other than `holder` may run jobs of this definition, now or after something that passes: it is full, cordoned,
/// excluded, or its runtime does not answer. One that is leaving takes nothing any more. The groups of workers must be up to date
/// ([`Fleet::regroup`](crate::fleet::Fleet::regroup)).
pub(crate) fn may_run_elsewhere(scheduler: &Scheduler, number: DefinitionNo, holder: WorkerId) -> bool {
    let need = scheduler.fleet.classes().need_of(number);
    let (Some(definition), Some((need_id, need))) = (scheduler.definitions.at(number), need) else {
        return false;
    };
    let may_run = |reason: PendingReason| reason >= PendingReason::Cordoned;
    if need.has_list() {
        let lane = LaneKey::Definition(number, KeySetNo::UNLIMITED);
        let mut listed = need.list().iter().flat_map(|listed| scheduler.fleet.selected(listed));
        return listed.any(|id| {
            let worker = scheduler.fleet.worker(id).filter(|worker| id != holder && !worker.is_draining());
            worker.is_some_and(|worker| may_run(reason_of(scheduler, worker, lane)))
        });
    }
    let groups = scheduler.fleet.groups();
    let own = groups.group_of(holder);
    let is_leaving =
        |group: &WorkerGroup| matches!(group, WorkerGroup::Connected { intake: Intake::Leaving, .. });
    let mut staying = groups.of_revision(definition.revision).filter(|(group, _)| !is_leaving(group));
    staying.any(|(group, count)| {
        let others = count.others + count.excluding - usize::from(own == Some(group));
        others > 0 && may_run(reason_of_group(scheduler, group, definition.runtime(), (need_id, need)))
    })
}
