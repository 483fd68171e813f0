//! The parts of the server that the sessions of workers use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use protocol::SessionId;
use protocol::order::Intervals;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::machine::Machines;
use super::missing_secrets::MissingSecrets;
use crate::auth::records::AccessRecords;
use crate::config::WorkerLabels;
use crate::engine::{OverridesCache, SessionInbox};
use crate::logs::Logs;
use crate::registries::Registries;
use crate::secrets::SecretsDir;
use crate::store::Archive;
use crate::traces::Tracer;
use crate::usage::LiveUsage;

/// The parts of the server that sessions use.
#[derive(Clone)]
pub struct WorkerAcceptor {
    /// The inbox of the engine.
    pub session_inbox: SessionInbox,
    /// Overrides of recently submitted jobs.
    pub overrides: Arc<OverridesCache>,
    /// Overrides of older jobs, and attempts of workers.
    pub archive: Arc<dyn Archive>,
    /// The output of containers.
    pub logs: Arc<Logs>,
    /// Machine facts of connected workers.
    pub machines: Arc<Machines>,
    /// Samples of running attempts.
    pub usage: Arc<LiveUsage>,
    /// Heartbeat and lease of workers.
    pub intervals: Intervals,
    /// Labels that workers may claim.
    pub worker_labels: Arc<WorkerLabels>,
    /// The secrets of jobs.
    pub secrets: Option<Arc<SecretsDir>>,
    /// The definitions whose secrets cannot be read.
    pub missing_secrets: Arc<MissingSecrets>,
    /// Logins for registries.
    pub registries: Option<Arc<Registries>>,
    /// Gets the workers that join, and those that are refused.
    pub records: Option<Arc<AccessRecords>>,
    /// Names the spans of attempts, if traces are exported.
    pub tracer: Option<Arc<Tracer>>,
    /// Cancelled at shutdown: each session sends GoAway and closes.
    pub shutdown: CancellationToken,
    pub(super) open: TaskTracker,
    sessions: Arc<AtomicU32>,
}

impl std::fmt::Debug for WorkerAcceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerAcceptor").field("session_inbox", &self.session_inbox).finish_non_exhaustive()
    }
}

impl WorkerAcceptor {
    /// An acceptor for this engine.
    #[must_use]
    pub fn new(
        session_inbox: SessionInbox,
        overrides: Arc<OverridesCache>,
        archive: Arc<dyn Archive>,
        logs: Arc<Logs>,
        intervals: Intervals,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            session_inbox,
            overrides,
            archive,
            logs,
            machines: Arc::default(),
            usage: Arc::default(),
            intervals,
            worker_labels: Arc::default(),
            secrets: None,
            missing_secrets: Arc::default(),
            registries: None,
            records: None,
            tracer: None,
            shutdown,
            open: TaskTracker::new(),
            sessions: Arc::default(),
        }
    }

    /// Lets workers claim these labels only.
    #[must_use]
    pub fn with_worker_labels(self, labels: WorkerLabels) -> Self {
        Self { worker_labels: Arc::new(labels), ..self }
    }

    /// Sends secrets of this directory with attempts.
    #[must_use]
    pub fn with_secrets(self, secrets: Option<Arc<SecretsDir>>) -> Self {
        Self { secrets, ..self }
    }

    /// Sends these logins for registries with attempts.
    #[must_use]
    pub fn with_registries(self, registries: Option<Arc<Registries>>) -> Self {
        Self { registries, ..self }
    }

    /// Writes workers that join into the audit log of these records.
    #[must_use]
    pub fn with_records(self, records: Arc<AccessRecords>) -> Self {
        Self { records: Some(records), ..self }
    }

    /// Hands the spans of attempts to their programs, as parents of what these trace.
    #[must_use]
    pub fn with_tracer(self, tracer: Option<Arc<Tracer>>) -> Self {
        Self { tracer, ..self }
    }

    /// Waits at shutdown until every session has ended, or until the timeout.
    pub async fn wait_closed(&self, timeout: Duration) {
        self.open.close();
        // The remaining sessions end with the process, without a close frame.
        let _ = tokio::time::timeout(timeout, self.open.wait()).await;
    }

    /// A new session id: unique over all epochs, since the store keeps it with assigned attempts.
    pub(super) fn next_session(&self) -> SessionId {
        let number = self.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        SessionId((self.session_inbox.epoch.0 << 32) | u64::from(number))
    }
}
