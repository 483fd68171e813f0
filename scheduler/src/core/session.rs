//! Sessions and leases of workers, as far as all handlers use them.

use protocol::{Now, SessionId, WorkerId};

use super::Scheduler;
use crate::step::{CloseReason, Effect};
use crate::timers::UptimeTimer;

impl Scheduler {
    /// Sets the lease alarm. It is moved when it fires, not at every frame.
    pub(crate) fn arm_lease(&mut self, id: WorkerId) {
        let lease = self.config.intervals.lease;
        let Some(worker) = self.fleet.heard_mut(id) else {
            return;
        };
        let Some(end) = worker.lease.next_alarm(lease, !worker.link.is_away()) else { return };
        if let Some(old) = worker.lease.alarm.replace(end) {
            self.timers.clear_uptime(old, UptimeTimer::LeaseEnd(id));
        }
        self.timers.set_uptime(end, UptimeTimer::LeaseEnd(id));
    }

    /// The session of this worker, if it is reconciled.
    pub(crate) fn ready_session(&self, id: WorkerId) -> Option<SessionId> {
        self.fleet.worker(id)?.link.ready()
    }

    /// Closes the session of a worker, if it has one.
    pub(crate) fn close_session(&mut self, now: Now, id: WorkerId, reason: CloseReason) {
        let Some(worker) = self.fleet.worker_mut(id) else { return };
        let Some(session) = worker.link.session() else { return };
        worker.since = now.utc;
        self.effect(Effect::Close(session, reason));
        self.fleet.close(id);
        self.changed = true;
    }
}
