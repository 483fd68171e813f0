//! The waits of jobs between attempts, and of workers after a failure of their host: as long as the documents say.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::report::{Outcome, ReleaseCause};
use protocol::{Order, Revision, Timestamp, WorkerId};
use scheduler::definition::Delays;
use scheduler::job::State;
use scheduler::step::{Assigned, Change, ClosedAttempt, Effect, Step};

use super::Oracle;
use super::rows::{Scene, shortened};
use crate::clock::Moment;
use crate::disk::{Disk, uses_own_budget};
use crate::workload::Workload;

/// Failures of hosts that the present process of the server has decided on.
#[derive(Debug, Default)]
pub(super) struct FailedHosts {
    exclusions: BTreeMap<(WorkerId, Revision), Exclusion>,
}

/// The failure that an exclusion began with.
#[derive(Debug)]
struct Exclusion {
    at: Moment,
    /// How long the exclusion lasts; each one is twice as long as the one before, until a start succeeds.
    lasts: Duration,
    /// The exclusion is certain: the worker has not connected since, for with another process it would have none, and the failure does not lie
    /// at the end of an earlier exclusion, which the server's clock decides.
    is_certain: bool,
}

impl Oracle {
    /// A step of the scheduler, told in order.
    pub(super) fn waits_change(
        &mut self,
        scene: Scene<'_>,
        (disk, workload): (&Disk, &Workload),
        step: &Step,
    ) {
        for change in &step.changes {
            match change {
                Change::Assigned(it) => self.check_exclusion(scene, disk, it),
                // A start shows that the host works.
                Change::Started { token, .. } => {
                    if let Some((worker, revision)) = place_of(disk, token.job) {
                        self.failed_hosts.exclusions.remove(&(worker, revision));
                    }
                }
                Change::AttemptClosed { closed, due_at, state, .. } => {
                    self.record_host_failure(scene, disk, closed);
                    self.check_keeps_turn(scene.now, disk, (closed, *due_at, *state));
                    self.check_backoff(scene.now, (disk, workload), closed, *due_at);
                }
                Change::Ended(it) => {
                    it.closed.iter().for_each(|closed| self.record_host_failure(scene, disk, closed));
                }
                _ => {}
            }
        }
        for effect in &step.effects {
            if let Effect::Send(_, Order::Welcome(it)) = effect {
                let failures = self.failed_hosts.exclusions.iter_mut();
                let of_worker = failures.filter(|((worker, _), _)| *worker == it.worker);
                of_worker.for_each(|(_, failure)| failure.is_certain = false);
            }
        }
    }

    /// Exclusions are kept in memory only.
    pub(super) fn waits_loaded(&mut self) {
        self.failed_hosts = FailedHosts::default();
    }

    fn record_host_failure(&mut self, scene: Scene<'_>, disk: &Disk, closed: &ClosedAttempt) {
        if closed.outcome != Outcome::HostFailed {
            return;
        }
        let Some(place) = place_of(disk, closed.token.job) else { return };
        let failures = &mut self.failed_hosts.exclusions;
        let mut failure = Exclusion { at: scene.now, lasts: EXCLUDED_FOR, is_certain: true };
        if let Some(earlier) = failures.get(&place) {
            let (since, least) = (scene.now.since(earlier.at), shortened(earlier.lasts, scene.drift_ppm));
            // A failure during an exclusion belongs to the same fault.
            if earlier.is_certain && since < least {
                return;
            }
            failure.is_certain = earlier.is_certain && since >= earlier.lasts + (earlier.lasts - least);
            failure.lasts = (earlier.lasts * 2).min(EXCLUDED_MAX);
        }
        failures.insert(place, failure);
    }

    /// Q7: a worker whose host failed to start a definition gets none of its jobs for a minute.
    fn check_exclusion(&mut self, scene: Scene<'_>, disk: &Disk, it: &Assigned) {
        let Some(row) = disk.row(it.token.job) else { return };
        let failure = self.failed_hosts.exclusions.get(&(it.worker, row.revision));
        let Some(failure) = failure.filter(|failure| failure.is_certain) else { return };
        let since = scene.now.since(failure.at);
        if since < shortened(EXCLUDED_FOR, scene.drift_ppm) {
            let what = format!("{} goes to worker {} {since:?} after its host failed", it.token, it.worker);
            self.violated(scene.now, "Q7 a host that failed is excluded", what);
        }
    }

    /// Q4: a job whose attempt was given back unstarted waits where it did. A worker that says the runtime is away for this job alone would
    /// get it first again.
    fn check_keeps_turn(
        &mut self,
        now: Moment,
        disk: &Disk,
        (closed, due_at, state): (&ClosedAttempt, Timestamp, State),
    ) {
        let is_given_back = closed.outcome == Outcome::Released
            && state == State::Queued
            && closed.released != Some(ReleaseCause::RuntimeUnavailable);
        let Some(row) = disk.row(closed.token.job).filter(|_| is_given_back) else { return };
        if due_at > row.due_at {
            let what = format!("{} was due at {}, and is now at {}", closed.token, row.due_at.0, due_at.0);
            self.violated(now, "Q4 a released job keeps its place", what);
        }
    }

    /// I9: without a random part the wait after a failure is what the policy says.
    fn check_backoff(
        &mut self,
        now: Moment,
        (disk, workload): (&Disk, &Workload),
        closed: &ClosedAttempt,
        due_at: Timestamp,
    ) {
        let Some(row) = disk.row(closed.token.job).filter(|_| uses_own_budget(closed.outcome)) else {
            return;
        };
        let backoff = &workload.definition(row.revision).retry.backoff;
        let Delays::Exponential { initial, max, factor_milli } = &backoff.delays else { return };
        let growth =
            (f64::from(*factor_milli) / 1_000.0).powi(row.job_failures.try_into().unwrap_or(i32::MAX));
        let wait = initial.mul_f64(growth).min(*max);
        let waits = due_at.since(closed.ended_at);
        // Parts of milliseconds are cut off before they grow. An end is not before its start, whatever the clock was set to meanwhile.
        if backoff.jitter_milli == 0 && !self.walls_step && waits < wait.mul_f64(0.99) {
            let what = format!(
                "{} waits {waits:?} after {} failures, not {wait:?}",
                closed.token,
                row.job_failures + 1
            );
            self.violated(now, "I9 the backoff grows", what);
        }
    }
}

/// The worker and the revision of a job's latest attempt.
fn place_of(disk: &Disk, job: protocol::JobId) -> Option<(WorkerId, Revision)> {
    let row = disk.row(job)?;
    Some((row.latest.as_ref()?.worker, row.revision))
}

/// The first exclusion after a failure of the host (docs/design/scheduling.md, Q7).
const EXCLUDED_FOR: Duration = Duration::from_secs(60);
/// The longest one.
const EXCLUDED_MAX: Duration = Duration::from_secs(60 * 60);
