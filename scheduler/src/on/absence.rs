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

/// How long a body may let pass between two steps: with a short lease, a sixth of that. So whoever was away for long enough to be missed can
/// be told from who slept because there was nothing to do.
pub(crate) fn tick_within(lease: Duration) -> Duration {
    TICK_WITHIN.min(lease / 6)
}

/// Twice as long: whoever speaks as often as it should has said something within a lease before that.
fn absent_after(lease: Duration) -> Duration {
    tick_within(lease) * 2
}

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
        self.since.is_some_and(|since| now.since(since) > absent_after(lease))
    }
}

/// Finds out whether we were away, and makes up for it before anything else is decided.
pub(crate) fn notice_absence(it: &mut Scheduler, now: Now) {
    let last = it.stepped_at.replace(now.up);
    let lease = it.config.intervals.lease;
    let was_away = last.is_some_and(|last| now.up.since(last) > absent_after(lease));
    let is_stalled = it.commits.is_stalled(now.up, lease);
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
    use protocol::order::Intervals;
    use protocol::{Timestamp, Uptime};

    use super::*;
    use crate::config::{Config, Counters};
    use crate::input::Input;
    use crate::step::WorkerRow;

    const WORKER: WorkerId = WorkerId(1);

    const fn at(millis: u64) -> Now {
        Now { utc: Timestamp(0), up: Uptime(millis * 1_000_000) }
    }

    /// It has known one worker since its first second.
    fn scheduler(lease: Duration) -> Scheduler {
        let intervals = Intervals { heartbeat: lease / 6, lease, start_gate: lease / 10 };
        let config = Config { intervals, ..Config::for_tests() };
        let mut scheduler = Scheduler::new(config, Counters::default());
        scheduler.restore_worker(
            at(1_000),
            WorkerRow {
                worker: WORKER,
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
        scheduler
    }

    fn is_reachable(scheduler: &Scheduler) -> bool {
        scheduler.fleet.worker(WORKER).is_some_and(|it| !it.unreachable)
    }

    /// Steps when that is wanted, until then.
    fn attend(scheduler: &mut Scheduler, until: Now) {
        while let Some(up) = scheduler.wake_at().up.filter(|up| *up <= until.up) {
            scheduler.step(Now { up, ..until }, Input::Tick);
        }
    }

    #[test]
    fn a_server_that_stands_still_before_its_first_step_holds_nobody_to_have_been_silent() {
        let mut scheduler = scheduler(Duration::from_secs(30));
        scheduler.step(at(121_000), Input::Tick);
        assert!(
            scheduler.fleet.worker(WORKER).is_some_and(|it| !it.unreachable && it.heard == at(121_000).up)
        );

        for seconds in (125..156).step_by(4) {
            scheduler.step(at(seconds * 1_000), Input::Tick);
        }
        assert!(!is_reachable(&scheduler), "it is silent now");
    }

    #[test]
    fn with_a_short_lease_a_shorter_standstill_is_an_absence_too() {
        for lease in [1_000, 3_000, 5_000, 30_000, 60_000] {
            let mut scheduler = scheduler(Duration::from_millis(lease));
            // It was heard a heartbeat ago; then nothing is read for as long as a worker may be silent.
            attend(&mut scheduler, at(1_000 + lease / 6));
            scheduler.step(at(1_000 + lease / 6 + lease), Input::Tick);
            assert!(is_reachable(&scheduler), "{lease} ms: nobody was there to hear it");

            let end = 1_000 + lease / 6 + 2 * lease;
            attend(&mut scheduler, at(end - 1));
            assert!(is_reachable(&scheduler), "{lease} ms: its lease is a whole one");
            attend(&mut scheduler, at(end));
            assert!(!is_reachable(&scheduler), "{lease} ms: it is silent now");
        }
    }

    #[test]
    fn a_standstill_that_is_too_short_to_be_noticed_takes_no_lease_of_anybody_who_speaks_in_time() {
        for lease in [1_000, 3_000, 5_000, 30_000, 60_000] {
            let mut scheduler = scheduler(Duration::from_millis(lease));
            let heartbeat = lease / 3;
            attend(&mut scheduler, at(1_000 + heartbeat));
            let unnoticed = absent_after(Duration::from_millis(lease)).as_millis() as u64;
            scheduler.step(at(1_000 + heartbeat + unnoticed), Input::Tick);
            assert!(is_reachable(&scheduler), "{lease} ms");
        }
    }
}
