//! What all handlers share, and the one door through which they do blocking reads.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::HeaderValue;
use protocol::order::Intervals;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

use super::code::Code;
use super::problem::Problem;
use super::room::LargeBodies;
use crate::auth::Access;
use crate::catalogue::Catalogue;
use crate::engine::{Busy, Handle};
use crate::logs::Logs;
use crate::storage::Storage;
use crate::store::{Archive, ReadError};
use crate::ws::Machines;

/// What the HTTP face stands on.
#[derive(Clone)]
pub struct App {
    /// Where changes are asked for.
    pub engine: Handle,
    /// Where committed rows are read.
    pub archive: Arc<dyn Archive>,
    /// What connected workers tell of their machines.
    pub machines: Arc<Machines>,
    /// The definitions.
    pub catalogue: Arc<Catalogue>,
    /// Where they come from.
    pub jobs_file: PathBuf,
    /// What it is read with: the times that workers keep.
    pub intervals: Intervals,
    /// What containers wrote.
    pub logs: Arc<Logs>,
    /// Who may ask for what.
    pub access: Arc<Access>,
    /// In front of every path: empty, or like `/jobs`.
    pub base_path: String,
    /// Whether there is room for more jobs.
    pub storage: Arc<Storage>,
    /// Cancelled when the server leaves: nothing new is accepted, and streams end.
    pub leaving: CancellationToken,
}

/// What all handlers share.
pub(super) struct Desk {
    pub(super) app: App,
    reads: Arc<Semaphore>,
    pub(super) large_bodies: LargeBodies,
    study: Arc<Semaphore>,
    /// Held while the definitions are replaced, so that engine and catalogue take turns in the same order.
    pub(super) reloading: Mutex<()>,
    started: u32,
    requests: AtomicU64,
}

impl Desk {
    pub(super) fn new(app: App) -> Self {
        Self {
            app,
            reads: Arc::new(Semaphore::new(READS_MAX)),
            large_bodies: LargeBodies::within(LARGE_BODIES_MIB_MAX),
            study: Arc::new(Semaphore::new(1)),
            reloading: Mutex::new(()),
            started: rand::random(),
            requests: AtomicU64::new(0),
        }
    }

    /// Reads from the archive.
    ///
    /// # Errors
    /// `store_unavailable`, or `busy` if too many are reading.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Archive) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, Problem> {
        let archive = Arc::clone(&self.app.archive);
        self.block(move || read(archive.as_ref()).map_err(Problem::from)).await
    }

    /// Does something that blocks on the disk, off the async threads.
    ///
    /// # Errors
    /// Those of `work`, or `busy` if too many are at it.
    pub(super) async fn block<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let turn = tokio::time::timeout(READ_PATIENCE, Arc::clone(&self.reads).acquire_owned()).await;
        // The semaphore is never closed: no turn means that waiting took too long.
        let Ok(Ok(turn)) = turn else { return Err(Busy.into()) };
        tokio::task::spawn_blocking(move || {
            let result = work();
            drop(turn);
            result
        })
        .await
        .unwrap_or_else(|error| Err(Problem::internal(error)))
    }

    /// Reads a large body: off the async threads, since it takes up to a second, and one at a time, since it takes a whole core.
    ///
    /// # Errors
    /// Those of `work`.
    pub(super) async fn study<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let turn = Arc::clone(&self.study).acquire_owned().await;
        tokio::task::spawn_blocking(move || {
            let result = work();
            drop(turn);
            result
        })
        .await
        .unwrap_or_else(|error| Err(Problem::internal(error)))
    }

    /// Refuses what would change something while the server leaves.
    ///
    /// # Errors
    /// `draining`.
    pub(super) fn must_stay(&self) -> Result<(), Problem> {
        match self.app.leaving.is_cancelled() {
            true => Err(Problem::new(Code::Draining, "the server is leaving").retry_after(5)),
            false => Ok(()),
        }
    }

    /// Refuses new jobs while the disk has no room.
    ///
    /// # Errors
    /// `storage_low`.
    pub(super) fn must_have_room(&self) -> Result<(), Problem> {
        match self.app.storage.is_low() {
            true => Err(Problem::new(Code::StorageLow, "there is no room for new jobs").retry_after(60)),
            false => Ok(()),
        }
    }

    /// Refuses new jobs while the server leaves, or its disk has no room or does not answer.
    ///
    /// # Errors
    /// `draining`, `storage_low`, `busy`.
    pub(super) fn may_accept(&self) -> Result<(), Problem> {
        self.must_stay()?;
        self.must_have_room()?;
        self.must_keep_up()
    }

    /// Refuses what would wait for a disk that does not answer.
    ///
    /// # Errors
    /// `busy`.
    pub(super) fn must_keep_up(&self) -> Result<(), Problem> {
        match self.app.engine.is_stalled() {
            true => Err(Problem::new(Code::Busy, "the disk has not answered for seconds").retry_after(5)),
            false => Ok(()),
        }
    }

    /// A name for a request that brought none: unique among the lives of this server.
    pub(super) fn next_request_id(&self) -> HeaderValue {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        HeaderValue::try_from(format!("{:08x}-{number}", self.started))
            .unwrap_or(HeaderValue::from_static("unknown"))
    }
}

/// Blocking reads at once: SQLite readers on few cores gain nothing from more.
const READS_MAX: usize = 8;

/// How long a request waits for its turn before it is told that the server is busy.
const READ_PATIENCE: Duration = Duration::from_secs(5);

/// What the bodies of batches may hold in memory together: four of the largest.
const LARGE_BODIES_MIB_MAX: usize = 256;
