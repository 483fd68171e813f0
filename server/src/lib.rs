//! The server: sockets, disk and clock around the pure scheduler. The scheduler makes the decisions.
//!
//! A request goes through `http` to `engine` (which steps the scheduler) and `store`, and is answered or sent to a worker (`ws`) only after
//! the commit. ARCHITECTURE.md has the map.
//!
//! [`Server::start`] opens everything and returns the address; [`Server::run`] serves until its shutdown token is cancelled.

mod access;
pub mod auth;
pub mod backup;
pub mod cancel_cause;
pub mod catalogue;
pub mod clock;
pub mod config;
pub mod doctor;
pub mod engine;
mod error;
mod escape_sequence;
pub mod events;
pub mod excerpt;
mod file_replacement;
mod file_version;
pub mod http;
pub mod listener;
pub mod logs;
mod maintenance;
pub mod metrics;
mod near;
pub mod notifications;
mod own_variables;
mod params;
pub mod policy;
pub mod positions;
pub mod registries;
pub mod reload;
pub mod retention_rule;
mod retention_time;
pub mod rfc3339;
pub mod secrets;
mod start;
pub mod storage;
pub mod store;
pub mod traces;
pub mod usage;
mod wildcard;
pub mod ws;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::Router;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use error::ServerError;

use auth::first_token;
use auth::records::AccessRecords;
use engine::Engine;
use listener::Listener;
use reload::Reloader;
use traces::TraceExport;
use ws::WorkerAcceptor;

/// A server that is ready to serve.
#[derive(Debug)]
pub struct Server {
    engine: Engine,
    listener: Listener,
    router: Router,
    acceptor: WorkerAcceptor,
    maintenance: JoinHandle<()>,
    reloader: Arc<Reloader>,
    records: Arc<AccessRecords>,
    /// The file for the first token, if the server requires tokens and was given none.
    first_token_file: Option<PathBuf>,
    trace_export: Option<TraceExport>,
    shutdown: CancellationToken,
}

impl Server {
    /// The URL of the server as a client on this machine writes it.
    #[must_use]
    pub fn url(&self) -> String {
        self.listener.url()
    }

    /// The address on which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Returns the time of the engine's latest turn: see [`Engine::last_turn`].
    #[must_use]
    pub fn last_turn(&self) -> Arc<AtomicU64> {
        self.engine.last_turn()
    }

    /// Replaces the definitions by those of jobs.yaml, on request.
    #[must_use]
    pub fn reloader(&self) -> Arc<Reloader> {
        self.reloader.clone()
    }

    /// Serves until shutdown; then requests under way finish, and decided changes are committed.
    ///
    /// # Errors
    /// Another server has taken over the store.
    pub async fn run(self) -> Result<(), ServerError> {
        let engine_stop = CancellationToken::new();
        let engine = tokio::spawn(self.engine.run(engine_stop.clone()));
        if let Some(file) = &self.first_token_file
            && let Err(error) = first_token::provide(&self.records, file).await
        {
            engine_stop.cancel();
            // The reason to end is the missing token.
            let _ = engine.await;
            return Err(error.into());
        }
        let (records, reloader) = (self.records.clone(), self.reloader.clone());
        let recording = tokio::spawn({
            let (records, shutdown) = (self.records.clone(), self.shutdown.clone());
            async move { records.run(shutdown).await }
        });
        let shutdown = self.shutdown.clone();
        let serving = async {
            let sessions = async {
                self.shutdown.cancelled().await;
                self.acceptor.wait_closed(SESSIONS_TIMEOUT).await;
            };
            tokio::join!(self.listener.serve(self.router, self.shutdown.clone()), sessions);
            // A panic of maintenance was logged when it happened.
            let _ = self.maintenance.await;
            let _ = recording.await;
            // Requests that were under way at the shutdown.
            records.write_audit().await;
            if let Some(history) = reloader.history() {
                history.finish().await;
            }
            // The log writer ends with its last handle, after writing everything it has accepted.
            drop(self.acceptor);
            engine_stop.cancel();
        };
        let watching = async {
            let ended = engine.await;
            // Without an engine no request can be answered: shut down.
            shutdown.cancel();
            ended
        };
        let ((), ended) = tokio::join!(serving, watching);
        if let Some(export) = self.trace_export {
            export.finish().await;
        }
        match ended {
            Ok(result) => Ok(result?),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
}

/// The longest wait for worker sessions to close.
const SESSIONS_TIMEOUT: Duration = Duration::from_secs(5);
