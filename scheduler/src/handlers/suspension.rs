//! Detects that the server itself was suspended: the process was stopped, or the machine slept. Messages that
//! workers sent meanwhile may still be unread, so all leases are renewed as at a start
//! (docs/design/leases-fencing-reconcile.md, L6).
//!
//! A commit that takes long has the same effect: workers that reconnect meanwhile get no answer
//! (docs/design/failures.md, R16, F11).

use alloc::vec::Vec;

use protocol::{JobId, Now, WorkerId};

use crate::commit_watch::suspended_after;
use crate::core::Scheduler;
use crate::job::Job;
use crate::timers::UptimeTimer;

/// Detects a suspension and renews all leases before anything else is decided.
pub(crate) fn detect_suspension(scheduler: &mut Scheduler, now: Now) {
    let last = scheduler.stepped_at.replace(now.up);
    let lease = scheduler.config.intervals.lease;
    let was_away = last.is_some_and(|last| now.up.since(last) > suspended_after(lease));
    let stalls_now =
        is_stalled(scheduler, now) && !core::mem::replace(&mut scheduler.commit_watch.renewed, true);
    if core::mem::take(&mut scheduler.commit_watch.stalled) || stalls_now || was_away {
        renew_leases(scheduler, now);
    }
}

/// A commit takes so long that workers get no answers. No lease expires and no attempt is lost until it ends.
pub(crate) fn is_stalled(scheduler: &Scheduler, now: Now) -> bool {
    scheduler.commit_watch.is_stalled(now.up, scheduler.config.intervals.lease)
}

/// Walks over all workers: once at the begin of a stall or suspension, and once at its end.
fn renew_leases(scheduler: &mut Scheduler, now: Now) {
    let workers: Vec<WorkerId> = scheduler.fleet.iter().map(|(id, _)| id).collect();
    for id in workers {
        let Some(worker) = scheduler.fleet.worker_mut(id) else { continue };
        worker.lease.renew(now.up);
        if core::mem::take(&mut worker.lease.is_expired) {
            let held: Vec<JobId> = worker.holdings.jobs.iter().copied().collect();
            cancel_losses(scheduler, &held);
        }
        scheduler.arm_lease(id);
    }
    scheduler.leases_renewed_at = now.up;
    scheduler.changed = true;
}

/// Cancels the pending losses of these attempts.
fn cancel_losses(scheduler: &mut Scheduler, held: &[JobId]) {
    for job in held {
        let Some(attempt) = scheduler.jobs.get_mut(job).and_then(Job::attempt_mut) else { continue };
        if let Some(at) = attempt.loss_at.take() {
            let fence = attempt.fence;
            scheduler.timers.clear_uptime(at, UptimeTimer::Loss(*job, fence));
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use protocol::order::Intervals;
    use protocol::{Timestamp, Uptime};

    use super::*;
    use crate::config::{Config, Counters};
    use crate::fleet::row::WorkerRow;
    use crate::input::Input;

    const WORKER: WorkerId = WorkerId(1);

    const fn at(millis: u64) -> Now {
        Now { utc: Timestamp(0), up: Uptime(millis * 1_000_000) }
    }

    /// A scheduler that has known one worker since its first second.
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
                cordon: None,
                slots: None,
                drain: None,
                labels: Vec::new(),
                process: None,
                join_token: None,
                granted: Vec::new(),
                revoked_at: None,
            },
        );
        scheduler
    }

    fn is_reachable(scheduler: &Scheduler) -> bool {
        scheduler.fleet.worker(WORKER).is_some_and(|it| !it.lease.is_expired)
    }

    /// Steps at each requested time until `until`.
    fn step_when_due(scheduler: &mut Scheduler, until: Now) {
        while let Some(up) = scheduler.wake_at().up.filter(|up| *up <= until.up) {
            scheduler.step(Now { up, ..until }, Input::Tick);
        }
    }

    #[test]
    fn a_stall_of_the_store_renews_leases_once_and_expires_none() {
        let mut scheduler = scheduler(Duration::from_secs(30));
        scheduler.commit_began(at(1_000).up);
        for seconds in (2..12).step_by(4) {
            scheduler.step(at(seconds * 1_000), Input::Tick);
        }
        scheduler.step(at(12_000), Input::Tick);
        let renewed =
            |scheduler: &Scheduler| scheduler.fleet.worker(WORKER).map(|worker| worker.lease.contact);
        assert_eq!(renewed(&scheduler), Some(at(12_000).up));
        for seconds in (16..120).step_by(4) {
            scheduler.step(at(seconds * 1_000), Input::Tick);
            assert!(is_reachable(&scheduler));
        }
        assert_ne!(renewed(&scheduler), Some(at(116_000).up), "not renewed in each step");
        scheduler.commit_ended(at(120_000).up);
        scheduler.step(at(120_000), Input::Tick);
        assert_eq!(renewed(&scheduler), Some(at(120_000).up));
    }

    #[test]
    fn a_suspension_before_the_first_step_renews_leases() {
        let mut scheduler = scheduler(Duration::from_secs(30));
        scheduler.step(at(121_000), Input::Tick);
        assert!(
            scheduler
                .fleet
                .worker(WORKER)
                .is_some_and(|it| !it.lease.is_expired && it.lease.last_heard == at(121_000).up)
        );

        for seconds in (125..156).step_by(4) {
            scheduler.step(at(seconds * 1_000), Input::Tick);
        }
        assert!(!is_reachable(&scheduler), "the worker is silent");
    }

    #[test]
    fn with_a_short_lease_a_shorter_pause_is_a_suspension() {
        for lease in [1_000, 3_000, 5_000, 30_000, 60_000] {
            let mut scheduler = scheduler(Duration::from_millis(lease));
            // The worker sent one heartbeat; then nothing is read for a whole lease.
            step_when_due(&mut scheduler, at(1_000 + lease / 6));
            scheduler.step(at(1_000 + lease / 6 + lease), Input::Tick);
            assert!(is_reachable(&scheduler), "{lease} ms: the server was suspended");

            let end = 1_000 + lease / 6 + 2 * lease;
            step_when_due(&mut scheduler, at(end - 1));
            assert!(is_reachable(&scheduler), "{lease} ms: the lease was renewed as a whole");
            step_when_due(&mut scheduler, at(end));
            assert!(!is_reachable(&scheduler), "{lease} ms: the worker is silent");
        }
    }

    #[test]
    fn a_pause_too_short_to_be_a_suspension_expires_no_lease_of_a_punctual_worker() {
        for lease in [1_000, 3_000, 5_000, 30_000, 60_000] {
            let mut scheduler = scheduler(Duration::from_millis(lease));
            let heartbeat = lease / 3;
            step_when_due(&mut scheduler, at(1_000 + heartbeat));
            let unnoticed = suspended_after(Duration::from_millis(lease)).as_millis() as u64;
            scheduler.step(at(1_000 + heartbeat + unnoticed), Input::Tick);
            assert!(is_reachable(&scheduler), "{lease} ms");
        }
    }
}
