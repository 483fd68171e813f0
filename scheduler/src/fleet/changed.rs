//! Workers that changed are grouped and published anew, and no others: when a pending reason or a snapshot is asked for.

use super::facts::WorkerFacts;
use super::groups::Groups;
use super::table::WorkerTable;
use super::{Fleet, Worker};

impl Fleet {
    /// Counts the workers that changed in the groups of their new facts.
    pub fn regroup(&mut self) {
        for id in core::mem::take(&mut self.touched) {
            let worker = self.workers.get(id);
            self.groups.set(id, worker);
            match worker.is_some_and(Worker::may_reconnect) {
                true => self.reconnecting.insert(id),
                false => self.reconnecting.remove(&id),
            };
            self.unpublished.insert(id);
        }
    }

    /// A worker that is not ready may be soon, because its lease lasts. As of the last [`Self::regroup`].
    #[must_use]
    pub fn may_reconnect(&self) -> bool {
        !self.reconnecting.is_empty()
    }

    /// No worker has changed since the last [`Self::regroup`].
    #[must_use]
    pub fn is_grouped(&self) -> bool {
        self.touched.is_empty()
    }

    /// Workers by what keeps them from jobs, as of the last [`Self::regroup`].
    #[must_use]
    pub const fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The facts of all workers. Only those that changed since the last call are copied.
    pub fn publish(&mut self) -> WorkerTable {
        self.regroup();
        for id in self.unpublished.drain() {
            self.published.set(id, self.workers.get(id).and_then(WorkerFacts::of));
        }
        self.published.clone()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use protocol::report::Availability;
    use protocol::{
        Fence, JobId, Nonce, Revision, RuntimeKind, SessionId, Timestamp, Token, Uptime, WorkerId,
    };
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;
    use crate::fleet::groups::GroupCount;
    use crate::fleet::row::WorkerRow;
    use crate::fleet::{Link, Session, Worker};
    use crate::placement::exclusion::{Excluded, ExclusionBackoff};
    use crate::queue::{PriorityAgeing, QueueKey};
    use crate::table::Seed;

    const WORKERS: u64 = 10_000;

    fn fleet() -> Fleet {
        let mut fleet = Fleet::new(SmallRng::seed_from_u64(7), Seed(7));
        for number in 1..=WORKERS {
            let mut secret_hash = [0; 32];
            secret_hash[..8].copy_from_slice(&number.to_be_bytes());
            let row = WorkerRow {
                worker: WorkerId(number),
                name: "w".into(),
                secret_hash,
                joined_at: Timestamp(0),
                seen_at: Timestamp(0),
                cordoned: false,
                cordon: None,
                slots: None,
                drain: None,
                labels: vec![("host".into(), alloc::format!("h{number}"))],
                process: None,
                join_token: None,
                granted: Vec::new(),
                revoked_at: None,
            };
            let mut worker = Worker::away(row, Uptime(0));
            worker.capacity.slots = 2;
            worker.set_runtimes(vec![(RuntimeKind::Docker, Availability::Available)]);
            fleet.add(worker);
            fleet.connect(WorkerId(number), SessionId(number));
            fleet.worker_mut(WorkerId(number)).expect("known").link =
                Link::Ready(Session::new(SessionId(number)));
            fleet.reclassify(WorkerId(number));
            fleet.refresh(WorkerId(number));
        }
        fleet
    }

    #[test]
    fn workers_of_one_kind_are_one_group_and_only_changed_ones_are_published_anew() {
        let mut fleet = fleet();
        let before = fleet.publish();
        assert_eq!(before.iter().count() as u64, WORKERS);
        let all = GroupCount { others: 10_000, excluding: 0 };
        let counts = |fleet: &Fleet| fleet.groups().of_revision(Revision(1)).map(|it| it.1).collect();
        let one: alloc::vec::Vec<GroupCount> = counts(&fleet);
        assert_eq!(one, [all]);

        fleet.heard_mut(WorkerId(3)).expect("known").lease.last_heard = Uptime(9);
        assert!(fleet.is_grouped(), "a heartbeat changes nothing that is shown");
        let worker = fleet.worker_mut(WorkerId(5)).expect("known");
        worker.health.exclusions.add(
            Uptime(0),
            Excluded::Revision(Revision(1)),
            ExclusionBackoff::UNTIL_RESTART,
        );
        fleet.worker_mut(WorkerId(6)).expect("known").row.cordoned = true;
        fleet.refresh(WorkerId(6));
        fleet.regroup();
        let two: alloc::vec::Vec<GroupCount> = counts(&fleet);
        let cordoned = GroupCount { others: 1, excluding: 0 };
        assert_eq!(two, [cordoned, GroupCount { others: 9_998, excluding: 1 }]);
        assert!(fleet.groups().excludes(Revision(1)) && !fleet.groups().excludes(Revision(2)));

        let after = fleet.publish();
        let changed: alloc::vec::Vec<u64> =
            after.differences(&before).filter_map(|(_, new)| new).map(|it| it.id.0).collect();
        assert_eq!(changed, [5, 6], "an exclusion of one revision is shown");

        fleet.remove(WorkerId(5));
        fleet.regroup();
        assert!(!fleet.groups().excludes(Revision(1)) && fleet.faults().is_empty());
    }

    #[test]
    fn an_attempt_that_leaves_the_backlog_is_shown() {
        let mut fleet = fleet();
        let worker = WorkerId(5);
        let key = |job| QueueKey::new(PriorityAgeing::OFF, 0, false, Timestamp(0), JobId(job));
        for job in 1..=3 {
            fleet.hold(worker, Token { job: JobId(job), fence: Fence(job), nonce: Nonce(0) }, None);
            fleet.enter_backlog(worker, key(job));
        }
        let shown = |fleet: &mut Fleet| {
            fleet.regroup();
            fleet.publish().get(worker).map(|facts| (facts.busy, facts.queued))
        };
        assert_eq!(shown(&mut fleet), Some((2, 1)));
        (1..=3).for_each(|job| fleet.leave_backlog(worker, key(job)));
        assert_eq!(shown(&mut fleet), Some((3, 0)), "it has more containers than slots");
        assert!(fleet.faults().is_empty());
    }
}
