//! The server's body: sockets, disk and clock around the pure scheduler. It decides nothing.
//!
//! A request walks `http` → `engine` (which steps the scheduler) → `store` → and only then back to whoever asked, or through `ws` to a
//! worker. See ARCHITECTURE.md for the map.
//!
//! [`Server::start`] opens everything and says where it listens; [`Server::run`] serves until it is told to leave.

pub mod auth;
pub mod backup;
pub mod catalogue;
mod chores;
pub mod clock;
pub mod config;
pub mod doctor;
pub mod engine;
pub mod http;
pub mod listener;
pub mod logs;
pub mod storage;
pub mod store;
pub mod ws;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use auth::Access;
use catalogue::{Catalogue, Definitions};
use config::Config;
use config::jobs_file::{self, Environment, Faults};
use engine::{Engine, EngineError};
use listener::{ListenError, Listener};
use logs::{Logs, LogsError};
use storage::Storage;
use store::{LoadError, directory::DataDirectory, sqlite};
use ws::Door;

/// A server that is ready to serve.
#[derive(Debug)]
pub struct Server {
    engine: Engine,
    listener: Listener,
    router: Router,
    door: Door,
    chores: JoinHandle<()>,
    leaving: CancellationToken,
}

/// A server cannot start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// jobs.yaml has faults: all of them, in the words for whoever repairs it.
    #[error("{0}")]
    JobsFile(Faults),
    /// The data directory or the store in it cannot be used.
    #[error(transparent)]
    Store(#[from] LoadError),
    /// The logs cannot be opened.
    #[error(transparent)]
    Logs(#[from] LogsError),
    /// The port cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The engine cannot start, or had to stop.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl Server {
    /// Reads jobs.yaml, takes the data directory, loads the store under a new epoch, and takes the port. Must be called on a tokio
    /// runtime. `leaving` tells it to leave.
    ///
    /// # Errors
    /// Each says what is wrong, where, and what to do; nothing is left behind that keeps another start from succeeding.
    pub async fn start(config: Config, leaving: CancellationToken) -> Result<Self, ServerError> {
        let environment = Environment::of_process().with_intervals(config.intervals);
        let loaded = jobs_file::load(&config.jobs_file, &environment).map_err(ServerError::JobsFile)?;
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        let definitions = Definitions::new(loaded.definitions);
        let directory = Arc::new(DataDirectory::take(&config.data_dir)?);
        let (store, archive) = sqlite::open(&directory)?;
        let logs = Logs::open(&directory.logs(), logs::Limits::default())?;
        let archive: Arc<dyn store::Archive> = Arc::new(archive);
        let (engine, ends) = Engine::load(
            Box::new(store),
            &definitions,
            config.intervals,
            config.jobs_max,
            config.data_dir.clone(),
        )?;
        let listener = Listener::bind(config.listen, connections(&config)).await?;
        let storage = Storage::of(&config.data_dir);
        tokio::spawn(storage.clone().watch(leaving.clone()));
        let door = Door::new(
            ends.gate,
            ends.bodies,
            archive.clone(),
            logs.clone(),
            config.intervals,
            leaving.clone(),
        );
        let app = http::App {
            engine: ends.handle,
            archive: archive.clone(),
            machines: door.machines.clone(),
            catalogue: Arc::new(Catalogue::new(definitions)),
            jobs_file: config.jobs_file.clone(),
            intervals: config.intervals,
            logs: logs.clone(),
            access: Arc::new(access(&config, listener.address())),
            base_path: config.base_path.to_string(),
            storage: storage.clone(),
            leaving: leaving.clone(),
        };
        let chores =
            chores::run(config.retention, ends.retention_by, ends.remover, archive, logs, leaving.clone());
        let chores = tokio::spawn(chores);
        let router = http::router(app, ws::router(door.clone()));
        Ok(Self { engine, listener, router, door, chores, leaving })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Serves until told to leave; then requests under way finish, and what was decided is committed.
    ///
    /// # Errors
    /// Another server has taken over the store.
    pub async fn run(self) -> Result<(), ServerError> {
        let engine_stop = CancellationToken::new();
        let engine = tokio::spawn(self.engine.run(engine_stop.clone()));
        let abandoned = self.leaving.clone();
        let serving = async {
            let sessions = async {
                self.leaving.cancelled().await;
                self.door.empty(SESSIONS_PATIENCE).await;
            };
            tokio::join!(self.listener.serve(self.router, self.leaving.clone()), sessions);
            // A panic of theirs has been reported.
            let _ = self.chores.await;
            // The logs end with whoever holds them; what they have taken in by then is written.
            drop(self.door);
            engine_stop.cancel();
        };
        let watching = async {
            let ended = engine.await;
            // Without an engine nothing can be answered: leave, whoever asked.
            abandoned.cancel();
            ended
        };
        let ((), ended) = tokio::join!(serving, watching);
        match ended {
            Ok(result) => Ok(result?),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
}

fn connections(config: &Config) -> listener::Limits {
    let limits = listener::Limits::default();
    match config.api_token {
        Some(_) => listener::Limits { strangers: STRANGERS_MAX, ..limits },
        None => limits,
    }
}

fn access(config: &Config, address: SocketAddr) -> Access {
    let mut access = Access::open(address).hosts(config.allowed_hosts.iter().cloned());
    if let Some(token) = &config.api_token {
        access = access.api_token(token.reveal());
    }
    if let Some(token) = &config.worker_token {
        access = access.worker_token(token.reveal());
    }
    access
}

/// So many connections of one address may be open on which no valid token has been shown yet; those who have one are past it with
/// their first request.
const STRANGERS_MAX: usize = 100;

/// How long sessions may take to say goodbye.
const SESSIONS_PATIENCE: Duration = Duration::from_secs(5);
