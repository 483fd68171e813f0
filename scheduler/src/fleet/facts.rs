//! Facts about a worker as the API shows them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::report::{Availability, Phase};
use protocol::resources::OfferedResources;
use protocol::{JobId, RuntimeKind, SessionId, Timestamp, Token, Uptime, WorkerId};

use super::breaker::Breaker;
use super::{Link, Worker};
use crate::origin::Intervention;
use crate::placement::exclusion::Excluded;
use crate::reservation::InUse;

/// Exclusions of a worker that are shown. Each changed worker is copied for each snapshot.
pub const EXCLUSIONS_SHOWN: usize = 50;

/// Facts about a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerFacts {
    /// The worker's id.
    pub id: WorkerId,
    /// The worker's name.
    pub name: Arc<str>,
    /// The session, if the worker is connected.
    pub session: Option<SessionId>,
    /// The worker's state.
    pub state: WorkerState,
    /// Time of the last connect or disconnect.
    pub since: Timestamp,
    /// Containers that may run at once.
    pub slots: u32,
    /// Attempts that run or are about to.
    pub busy: u32,
    /// Attempts that may wait in the backlog.
    pub backlog: u32,
    /// Attempts in the backlog.
    pub queued: u32,
    /// It is suspect: its circuit breaker is open.
    pub suspect: Option<Suspicion>,
    /// Jobs that it is not offered, each with the end of the exclusion if there is one; at most [`EXCLUSIONS_SHOWN`].
    pub exclusions: Vec<(Excluded, Option<Uptime>)>,
    /// An operator cordoned it.
    pub cordoned: bool,
    /// The command that cordoned or drained it, if it is known.
    pub cordon: Option<Intervention>,
    /// Deadline of its drain, when running attempts are stopped.
    pub drain_deadline: Option<Timestamp>,
    /// The worker's own labels.
    pub own_labels: Vec<(String, String)>,
    /// Labels that its join token granted, over them.
    pub granted_labels: Vec<(String, String)>,
    /// Labels that an operator set over all of them.
    pub set_labels: Vec<(String, String)>,
    /// Time at which an operator revoked it.
    pub revoked_at: Option<Timestamp>,
    /// Runtimes and their availability.
    pub runtimes: Vec<(RuntimeKind, Availability)>,
    /// Version of the worker's program.
    pub version: String,
    /// Network address.
    pub address: String,
    /// Unmanaged attempts: containers that this database does not know.
    pub unmanaged: Arc<BTreeMap<Token, Phase>>,
    /// Addresses of the clones, if the worker is cloned.
    pub clone_addresses: Vec<String>,
    /// Resources that jobs may reserve.
    pub offer: OfferedResources,
    /// Resources that attempts have reserved.
    pub in_use: InUse,
    /// The waiting job that it is set aside for.
    pub set_aside_for: Option<JobId>,
}

/// Why a worker is suspect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// Since when.
    pub since: Timestamp,
    /// The failures, for people.
    pub cause: String,
    /// End of its exclusion, if it is not over; then one job probes it.
    pub until: Option<Uptime>,
}

/// State of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// Connected, not reconciled yet.
    Joining,
    /// Connected and reconciled.
    Ready,
    /// Connected; it failed to start jobs again and again, and gets one at a time to probe it.
    Suspect,
    /// Connected; finishes its attempts and leaves.
    Draining,
    /// Not connected; its lease has not expired.
    Disconnected,
    /// Its lease has expired.
    Unreachable,
    /// Several processes claim to be this worker; all are refused.
    Cloned,
    /// An operator revoked it.
    Revoked,
}

impl WorkerState {
    /// Every state.
    pub const ALL: [Self; 8] = [
        Self::Joining,
        Self::Ready,
        Self::Suspect,
        Self::Draining,
        Self::Disconnected,
        Self::Unreachable,
        Self::Cloned,
        Self::Revoked,
    ];

    /// Name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Ready => "ready",
            Self::Suspect => "suspect",
            Self::Draining => "draining",
            Self::Disconnected => "disconnected",
            Self::Unreachable => "unreachable",
            Self::Cloned => "cloned",
            Self::Revoked => "revoked",
        }
    }
}

impl WorkerFacts {
    /// The value of a label: that which an operator set, that which was granted, or its own.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        let mut labels = self.set_labels.iter().chain(&self.granted_labels).chain(&self.own_labels);
        labels.find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }

    /// The facts of a worker; `None` if it is neither connected nor holds attempts nor is cloned.
    #[must_use]
    pub fn of(worker: &Worker) -> Option<Self> {
        if worker.link.session().is_none()
            && worker.holdings.jobs.is_empty()
            && worker.claims.clones_until.is_none()
        {
            return None;
        }
        let state = match &worker.link {
            _ if worker.row.revoked_at.is_some() => WorkerState::Revoked,
            _ if worker.claims.clones_until.is_some() => WorkerState::Cloned,
            _ if worker.lease.is_expired => WorkerState::Unreachable,
            Link::Away => WorkerState::Disconnected,
            Link::Joining(_) => WorkerState::Joining,
            Link::Ready(_) if worker.is_draining() => WorkerState::Draining,
            Link::Ready(_) if worker.health.breaker.is_suspect() => WorkerState::Suspect,
            Link::Ready(_) => WorkerState::Ready,
        };
        // Attempts beyond the slots may run all the same: after a restart of the server the slots are unknown, and an operator may lower them.
        let prefetched = u32::try_from(worker.holdings.prefetched.len()).unwrap_or(u32::MAX);
        let queued = worker.queued().min(prefetched);
        Some(Self {
            id: worker.row.worker,
            name: worker.row.name.clone(),
            session: worker.link.session(),
            state,
            since: worker.since,
            slots: worker.slots(),
            busy: worker.holdings.count() - queued,
            backlog: worker.capacity.backlog,
            queued,
            suspect: suspicion(worker),
            exclusions: worker.health.exclusions.in_force().take(EXCLUSIONS_SHOWN).collect(),
            cordoned: worker.row.cordoned,
            cordon: worker.row.cordon.clone(),
            drain_deadline: worker.row.drain.and_then(|drain| drain.deadline),
            own_labels: worker.info.labels.clone(),
            granted_labels: worker.row.granted.clone(),
            set_labels: worker.row.labels.clone(),
            revoked_at: worker.row.revoked_at,
            runtimes: worker.capacity.runtimes.clone(),
            version: worker.info.version.clone(),
            address: worker.info.address.clone(),
            unmanaged: worker.holdings.unmanaged.clone(),
            clone_addresses: worker.claims.addresses().map(String::from).collect(),
            offer: worker.capacity.offer.clone(),
            in_use: worker.holdings.in_use().clone(),
            set_aside_for: worker.set_aside_for(),
        })
    }
}

fn suspicion(worker: &Worker) -> Option<Suspicion> {
    match &worker.health.breaker {
        Breaker::Closed { .. } => None,
        Breaker::Suspect { since, cause, .. } => Some(Suspicion {
            since: *since,
            cause: cause.clone(),
            until: worker.health.exclusions.suspended_until(),
        }),
    }
}
