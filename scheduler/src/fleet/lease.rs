//! The lease of a worker: when the worker was heard, and when its attempts count as out of reach
//! (docs/design/leases-fencing-reconcile.md). The scheduler sets the alarm and decides what follows from its end.

use core::time::Duration;

use protocol::Uptime;

/// When a worker was heard, and its lease.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Time of its last frame. Time in which the server was suspended counts as heard.
    pub last_heard: Uptime,
    /// Time of its last message that was read. A suspension of the server renews the lease, but not this.
    pub last_message: Uptime,
    /// Begin of the lease: the last completed reconcile, or the last frame after one. A Hello alone does not renew it, so a worker
    /// that connects and drops again and again is lost like a silent one.
    pub contact: Uptime,
    /// Time of its first Hello since its last completed reconcile, while it is not reconciled.
    pub unreconciled_since: Option<Uptime>,
    /// Time of the alarm, if it is set.
    pub alarm: Option<Uptime>,
    /// The lease has expired.
    pub is_expired: bool,
}

impl Lease {
    /// A lease that begins now.
    #[must_use]
    pub const fn beginning(at: Uptime) -> Self {
        Self {
            last_heard: at,
            last_message: at,
            contact: at,
            unreconciled_since: None,
            alarm: None,
            is_expired: false,
        }
    }

    /// Records a frame. It renews the lease of a reconciled worker.
    pub fn record_frame(&mut self, at: Uptime, is_reconciled: bool) {
        self.last_heard = self.last_heard.max(at);
        if is_reconciled {
            self.contact = self.contact.max(at);
        }
    }

    /// Records a message that was read.
    pub fn record_message(&mut self, at: Uptime) {
        self.last_message = self.last_message.max(at);
    }

    /// Renews the lease, because messages of the worker may be unread.
    pub fn renew(&mut self, at: Uptime) {
        self.record_frame(at, true);
    }

    /// Renews the lease by a heartbeat. Of a worker that is not reconciled it counts for this long after its first Hello.
    pub fn record_heartbeat(&mut self, at: Uptime, unreconciled_for: Duration) {
        if self.unreconciled_since.is_none_or(|since| at.since(since) <= unreconciled_for) {
            self.contact = self.contact.max(at);
        }
    }

    /// Records a completed reconcile.
    pub fn record_reconcile(&mut self, at: Uptime) {
        self.unreconciled_since = None;
        self.contact = self.contact.max(at);
    }

    /// Time at which to look again; none for an expired lease of a disconnected worker.
    #[must_use]
    pub fn next_alarm(&self, lease: Duration, is_connected: bool) -> Option<Uptime> {
        match (self.is_expired, is_connected) {
            (false, _) => Some(self.contact + lease),
            // It may connect, but must not stay silent.
            (true, true) => Some(self.last_heard + lease),
            (true, false) => None,
        }
    }
}
