//! The state that all handlers share, and the limits of their blocking reads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::HeaderValue;
use protocol::order::Intervals;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::auth::Access;
use crate::auth::records::AccessRecords;
use crate::catalogue::Catalogue;
use crate::engine::{Busy, Handle, RecordWriter};
use crate::events::Events;
use crate::http::ends_count::EndsCount;
use crate::http::middleware::body_budget::BodyBudget;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::{DRAINING_HINT, Problem};
use crate::http::openapi::description::Description;
use crate::listener::tls_status::TlsStatus;
use crate::logs::Logs;
use crate::metrics::Metrics;
use crate::notifications::delivery::Delivery;
use crate::reload::Reloader;
use crate::storage::Storage;
use crate::store::{Archive, ReadError};
use crate::usage::LiveUsage;
use crate::ws::{Machines, MissingSecrets};

/// The parts of the server that the handlers use.
#[derive(Clone)]
pub struct Services {
    /// Handle to the engine: all changes go through it.
    pub engine: Handle,
    /// The last committed changes as events.
    pub events: Events,
    /// Counters of everything that happens.
    pub metrics: Arc<Metrics>,
    /// Reads of committed rows.
    pub archive: Arc<dyn Archive>,
    /// Machine facts of connected workers (load, disk, engine id).
    pub machines: Arc<Machines>,
    /// Samples of running attempts.
    pub usage: Arc<LiveUsage>,
    /// The definitions whose secrets the server does not have.
    pub missing_secrets: Arc<MissingSecrets>,
    /// The current definitions.
    pub catalogue: Arc<Catalogue>,
    /// Replaces the definitions by those of jobs.yaml.
    pub reloader: Arc<Reloader>,
    /// The worker intervals.
    pub intervals: Intervals,
    /// The output of containers.
    pub logs: Arc<Logs>,
    /// The access control.
    pub access: Arc<Access>,
    /// The tokens and the audit log.
    pub records: Arc<AccessRecords>,
    /// Changes rows that are no part of the scheduler's state.
    pub record_writer: RecordWriter,
    /// The notifications.
    pub notifications: Arc<Delivery>,
    /// The path prefix of all URLs: empty, or like `/jobs`.
    pub base_path: String,
    /// Free disk space, checked before jobs are accepted.
    pub storage: Arc<Storage>,
    /// The end of the certificate in use, and files that were refused; none without TLS.
    pub tls: Option<TlsStatus>,
    /// Bytes of submissions that may wait for their commit at once, such as [`BODY_BYTES_MAX`].
    pub body_bytes_max: usize,
    /// Cancelled at shutdown: nothing new is accepted, and streams end.
    pub shutdown: CancellationToken,
}

/// The state that all handlers share.
pub(crate) struct AppState {
    pub(crate) services: Services,
    reads: Arc<Semaphore>,
    searches: Arc<Semaphore>,
    pub(crate) body_budget: BodyBudget,
    parse_blocking: Arc<Semaphore>,
    /// Held while a batch is retried: the next retry sees the jobs that the one before has made, and only one has its jobs in memory.
    pub(crate) batch_retries: Arc<tokio::sync::Mutex<()>>,
    /// Ends of the last day, for the dashboard.
    pub(crate) ends: EndsCount,
    /// The description of the API; `openapi` writes it.
    pub(crate) openapi: OnceLock<Description>,
    started: u32,
    requests: AtomicU64,
}

impl AppState {
    pub(crate) fn new(services: Services) -> Self {
        let body_budget = BodyBudget::within(services.body_bytes_max);
        Self {
            services,
            reads: Arc::new(Semaphore::new(READS_MAX)),
            searches: Arc::new(Semaphore::new(SEARCHES_MAX)),
            body_budget,
            parse_blocking: Arc::new(Semaphore::new(1)),
            batch_retries: Arc::default(),
            ends: EndsCount::default(),
            openapi: OnceLock::new(),
            started: rand::random(),
            requests: AtomicU64::new(0),
        }
    }

    /// Reads from the archive.
    ///
    /// # Errors
    /// `store_unavailable`, or `busy` if too many reads wait.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Archive) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, Problem> {
        let archive = Arc::clone(&self.services.archive);
        self.block(move || read(archive.as_ref()).map_err(Problem::from)).await
    }

    /// Runs work that blocks on the disk, off the async threads.
    ///
    /// # Errors
    /// Those of `work`, or `busy` if too many such calls wait.
    pub(crate) async fn block<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        block_within(&self.reads, work).await
    }

    /// Searches output, off the async threads. Searches have few turns of their own, so that other reads do not wait for them.
    ///
    /// # Errors
    /// Those of `work`, or `busy` if too many searches wait.
    pub(crate) async fn search<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        block_within(&self.searches, work).await
    }

    /// Parses a large body off the async threads, since it takes up to a second, and one at a time, since it takes a whole core.
    ///
    /// # Errors
    /// Those of `work`.
    pub(crate) async fn parse_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let turn = Arc::clone(&self.parse_blocking).acquire_owned().await;
        tokio::task::spawn_blocking(move || {
            let result = work();
            drop(turn);
            result
        })
        .await
        .unwrap_or_else(|error| Err(Problem::internal(error)))
    }

    /// Refuses changes during a shutdown.
    ///
    /// # Errors
    /// `draining`.
    pub(crate) fn check_not_draining(&self) -> Result<(), Problem> {
        match self.services.shutdown.is_cancelled() {
            true => Err(Problem::new(ProblemCode::Draining, "the server is shutting down")
                .hint(DRAINING_HINT)
                .retry_after(5)),
            false => Ok(()),
        }
    }

    /// Refuses new jobs while the disk is nearly full.
    ///
    /// # Errors
    /// `storage_low`.
    pub(crate) fn check_disk_space(&self) -> Result<(), Problem> {
        match self.services.storage.is_low() {
            true => {
                let detail = "the disk of the server's data directory has no room for new jobs";
                Err(Problem::new(ProblemCode::StorageLow, detail)
                    .hint("free space on that disk; the server takes new jobs again without a restart")
                    .retry_after(60))
            }
            false => Ok(()),
        }
    }

    /// Refuses new jobs during a shutdown, on a full disk, and while the disk does not answer.
    ///
    /// # Errors
    /// `draining`, `storage_low`, `busy`.
    pub(crate) fn check_accepting(&self) -> Result<(), Problem> {
        self.check_not_draining()?;
        self.check_disk_space()?;
        self.check_not_stalled()
    }

    /// Refuses requests while the disk does not answer.
    ///
    /// # Errors
    /// `busy`.
    pub(crate) fn check_not_stalled(&self) -> Result<(), Problem> {
        match self.services.engine.is_stalled() {
            true => {
                Err(Problem::new(ProblemCode::Busy, "the disk has not answered for seconds").retry_after(5))
            }
            false => Ok(()),
        }
    }

    /// An id for a request without one: unique over restarts of this server.
    pub(crate) fn next_request_id(&self) -> HeaderValue {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        HeaderValue::try_from(format!("{:08x}-{number}", self.started))
            .unwrap_or(HeaderValue::from_static("unknown"))
    }
}

/// Runs work that blocks when it has its turn.
async fn block_within<T: Send + 'static>(
    turns: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let turn = tokio::time::timeout(READ_TIMEOUT, Arc::clone(turns).acquire_owned()).await;
    // The semaphore is never closed: an error means that the wait timed out.
    let Ok(Ok(turn)) = turn else { return Err(Busy.into()) };
    tokio::task::spawn_blocking(move || {
        let result = work();
        drop(turn);
        result
    })
    .await
    .unwrap_or_else(|error| Err(Problem::internal(error)))
}

/// Searches over output at once: each takes up to a core for seconds.
const SEARCHES_MAX: usize = 2;

/// Blocking reads at once: more gain nothing with SQLite on few cores.
const READS_MAX: usize = 8;

/// The longest wait for a read before the answer is `busy`.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Memory of the bodies of all submissions together that are not committed yet: four of the largest batches.
pub const BODY_BYTES_MAX: usize = 256 << 20;
