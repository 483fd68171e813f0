//! We were not there: the process stood still, or the machine slept. What workers said meanwhile may still be on its way to us, so nobody
//! is held to have been silent: every lease counts as renewed, as at a start (DESIGN.md section 5).
//!
//! The same holds while a commit takes long: whoever comes back meanwhile cannot be answered (FAULTS.md R16, F11).

use core::time::Duration;

use alloc::vec::Vec;

use protocol::{JobId, Now, Uptime, WorkerId};

use crate::TICK_WITHIN;
use crate::job::Job;
use crate::scheduler::Scheduler;
use crate::timers::Alarm;

/// Twice as long as a body may let pass between two steps.
const ABSENT_AFTER: Duration = TICK_WITHIN.saturating_mul(2);

/// The store's part in whether we are there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Commits {
    /// When the commit under way began.
    since: Option<Uptime>,
    /// One that has ended since the last step took too long.
    stalled: bool,
}

impl Commits {
    pub(crate) const fn begin(&mut self, at: Uptime) {
        self.since = Some(at);
    }

    pub(crate) fn end(&mut self, at: Uptime, lease: Duration) {
        self.stalled |= self.is_stalled(at, lease);
        self.since = None;
    }

    fn is_stalled(self, now: Uptime, lease: Duration) -> bool {
        self.since.is_some_and(|since| now.since(since) > ABSENT_AFTER.min(lease / 3))
    }
}

/// Finds out whether we were away, and makes up for it before anything else is decided.
pub(crate) fn notice_absence(it: &mut Scheduler, now: Now) {
    let last = it.stepped_at.replace(now.up);
    let was_away = last.is_some_and(|last| now.up.since(last) > ABSENT_AFTER);
    let is_stalled = it.commits.is_stalled(now.up, it.config.intervals.lease);
    if core::mem::take(&mut it.commits.stalled) || is_stalled || was_away {
        renew_leases(it, now);
    }
}

fn renew_leases(it: &mut Scheduler, now: Now) {
    let workers: Vec<WorkerId> = it.fleet.iter().map(|(id, _)| id).collect();
    for id in workers {
        let Some(worker) = it.fleet.worker_mut(id) else { continue };
        worker.heard = worker.heard.max(now.up);
        if core::mem::take(&mut worker.unreachable) {
            let held: Vec<JobId> = worker.held.iter().copied().collect();
            keep(it, &held);
        }
        it.watch_lease(id);
    }
    it.changed = true;
}

/// Nothing of this is about to be given up any more.
fn keep(it: &mut Scheduler, held: &[JobId]) {
    for job in held {
        let Some(attempt) = it.jobs.get_mut(job).and_then(Job::attempt_mut) else { continue };
        if let Some(at) = attempt.loss_at.take() {
            let fence = attempt.fence;
            it.timers.clear_alarm(at, Alarm::Loss(*job, fence));
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::{ClusterId, Epoch, Timestamp, Uptime};

    use super::*;
    use crate::input::Input;
    use crate::scheduler::{Config, Counters};
    use crate::step::WorkerRow;

    #[test]
    fn a_server_that_stands_still_before_its_first_step_holds_nobody_to_have_been_silent() {
        let config = Config {
            cluster: ClusterId(1),
            epoch: Epoch(1),
            intervals: protocol::order::Intervals::default(),
            seed: 1,
            slice: 1_000,
        };
        let mut scheduler = Scheduler::new(config, Counters::default());
        let at = |seconds: u64| Now { utc: Timestamp(0), up: Uptime(seconds * 1_000_000_000) };
        let worker = WorkerId(1);
        scheduler.restore_worker(
            at(1),
            WorkerRow {
                worker,
                name: "w1".into(),
                secret_hash: [1; 32],
                joined_at: Timestamp(0),
                seen_at: Timestamp(0),
                cordoned: false,
                slots: None,
                drain: None,
                labels: Vec::new(),
                process: None,
            },
        );

        scheduler.step(at(121), Input::Tick);
        assert!(scheduler.fleet.worker(worker).is_some_and(|it| !it.unreachable && it.heard == at(121).up));

        for seconds in (125..156).step_by(4) {
            scheduler.step(at(seconds), Input::Tick);
        }
        assert!(scheduler.fleet.worker(worker).is_some_and(|it| it.unreachable), "it is silent now");
    }
}
