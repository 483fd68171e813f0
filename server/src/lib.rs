//! The server: sockets, disk and clock around the pure scheduler. The scheduler makes the decisions.
//!
//! A request goes through `http` to `engine` (which steps the scheduler) and `store`, and is answered or sent to a worker (`ws`) only after
//! the commit. ARCHITECTURE.md has the map.
//!
//! [`Server::start`] opens everything and returns the address; [`Server::run`] serves until its shutdown token is cancelled.

mod access;
pub mod auth;
pub mod backup;
pub mod catalogue;
pub mod clock;
pub mod config;
pub mod doctor;
pub mod engine;
mod error;
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
pub mod registries;
pub mod reload;
pub mod retention_rule;
mod retention_time;
pub mod rfc3339;
pub mod secrets;
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
use catalogue::{Catalogue, Definitions};
use config::jobs_file::{Environment, MailSupport};
use config::{Config, RemovedDefinitions};
use engine::{Engine, JobSettings};
use listener::Listener;
use listener::tls::Tls;
use logs::Logs;
use notifications::client::{WebClient, trust_the_system};
use notifications::delivery::Delivery;
use notifications::mail::client::MailClient;
use notifications::receivers::Receivers;
use notifications::requests::SendRequests;
use registries::{Registries, RegistriesError};
use reload::Reloader;
use reload::start::StartDefinitions;
use retention_time::RetentionTime;
use storage::Storage;
use store::{AccessArchive, NotificationArchive, directory::DataDirectory, sqlite};
use traces::{TraceExport, Traces};
use ws::{SecretsWatch, WorkerAcceptor};

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
    /// Reads jobs.yaml, locks the data directory, loads the store under a new epoch, and binds the port. Must be called on a tokio runtime.
    /// Cancelling `shutdown` shuts the server down.
    ///
    /// # Errors
    /// Each names the cause, the place and the remedy; nothing is left behind that prevents another start.
    pub async fn start(config: Config, shutdown: CancellationToken) -> Result<Self, ServerError> {
        let policy = policy::load_optional(config.policy_file.as_deref())?;
        let registries = registries(&config)?;
        let mail = if config.mail.is_some() { MailSupport::Present } else { MailSupport::Absent };
        let environment = Environment::of_process()
            .with_intervals(config.intervals)
            .with_secrets(config.secrets.clone())
            .with_mail(mail)
            .with_policy(policy.clone());
        let StartDefinitions { loaded, refusal } =
            reload::start::load(&config, &environment).map_err(ServerError::JobsFile)?;
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        let directory = Arc::new(DataDirectory::take(&config.data_dir)?);
        let (store, archive) = sqlite::open(&directory)?;
        if refusal.is_none() && !loaded.definitions.is_empty() {
            reload::accepted::keep(&config.data_dir, &config.jobs_file, &loaded.text);
        }
        let definitions = Definitions::new(loaded.definitions).with_policy(policy);
        let is_same_boot = logs::boot::is_same(&directory.logs());
        let logs = Logs::open(&directory.logs(), logs::Limits { is_same_boot, ..logs::Limits::default() })?;
        if !is_same_boot {
            logs::boot::remember(&directory.logs());
        }
        let archive = Arc::new(archive);
        let access_archive: Arc<dyn AccessArchive> = archive.clone();
        let notification_archive: Arc<dyn NotificationArchive> = archive.clone();
        let archive: Arc<dyn store::Archive> = archive;
        let (engine, handles) = Engine::load(
            Box::new(store),
            &definitions,
            config.intervals,
            JobSettings {
                live_max: config.jobs_max,
                server: config.server_limits,
                priority_ageing: config.priority_ageing,
                set_aside_after: config.set_aside_after,
            },
            config.data_dir.clone(),
        )?;
        let records = AccessRecords::load(access_archive, handles.record_writer.clone());
        let retention_time = RetentionTime::unknown();
        let records = records.map_err(ServerError::Tokens)?.with_workers(handles.workers.clone());
        let records = Arc::new(records.with_retention_time(retention_time.clone()));
        let tls = config.tls.clone().map(Tls::load).transpose()?;
        let certificate = tls.as_ref().and_then(Tls::expiry);
        let mut listener = Listener::bind(config.listen, connections(&config)).await?;
        if let Some(tls) = tls {
            listener = listener.with_tls(tls);
        }
        let storage = Storage::of(&config.data_dir);
        tokio::spawn(storage.clone().watch(shutdown.clone()));
        let traces = Traces::of_process(handles.cluster);
        let acceptor = WorkerAcceptor::new(
            handles.gate,
            handles.overrides,
            archive.clone(),
            logs.clone(),
            config.intervals,
            shutdown.clone(),
        )
        .with_worker_labels(config.worker_labels.clone())
        .with_secrets(config.secrets.clone())
        .with_registries(registries.clone())
        .with_records(records.clone())
        .with_tracer(traces.as_ref().map(Traces::tracer));
        let (event_feed, trace_export) = match traces {
            Some(traces) => {
                let (feed, metrics) = (handles.event_feed, handles.metrics.clone());
                let (feed, export) = traces.export(feed, archive.clone(), metrics, config.public_url.clone());
                (feed, Some(export))
            }
            None => (handles.event_feed, None),
        };
        tokio::spawn(event_feed.run());
        let catalogue = Arc::new(Catalogue::new(definitions));
        let mut secrets_watch = SecretsWatch::new(
            acceptor.missing_secrets.clone(),
            config.secrets.clone(),
            registries,
            catalogue.clone(),
            handles.handle.clone(),
        );
        secrets_watch.begin();
        tokio::spawn(secrets_watch.run(shutdown.clone()));
        let reloader = Reloader::new(
            handles.handle.clone(),
            catalogue.clone(),
            config.jobs_file.clone(),
            config.intervals,
        );
        let reloader = reloader.with_secrets(config.secrets.clone()).with_policy(config.policy_file.clone());
        let reloader = reloader.with_removed(config.removed_definitions);
        let reloader =
            reloader.with_copies(config.data_dir.clone(), config.faulty_jobs_file).with_refusal(refusal);
        let reloader = Arc::new(reloader.with_mail(mail).with_records(records.clone()));
        if config.removed_definitions == RemovedDefinitions::Cancel {
            let (reloader, archive, shutdown) = (reloader.clone(), archive.clone(), shutdown.clone());
            tokio::spawn(async move { reloader.cancel_removed(archive, shutdown).await });
        }
        let notifications = Arc::new(Delivery {
            archive: notification_archive,
            jobs: archive.clone(),
            logs: logs.clone(),
            catalogue: catalogue.clone(),
            writer: handles.record_writer,
            client: WebClient::new(config.webhook_networks.clone()).map_err(ServerError::WebClient)?,
            mail: mail_client(&config).map_err(ServerError::MailClient)?,
            public_url: config.public_url.clone(),
            metrics: handles.metrics.clone(),
            requests: SendRequests::default(),
            receivers: Receivers::default(),
        });
        tokio::spawn(notifications.clone().run(shutdown.clone()));
        let retained = catalogue.clone();
        let access = config.access(listener.address(), handles.cluster, &records, handles.metrics.clone());
        let services = http::Services {
            engine: handles.handle,
            events: handles.events,
            metrics: handles.metrics,
            archive: archive.clone(),
            machines: acceptor.machines.clone(),
            usage: acceptor.usage.clone(),
            missing_secrets: acceptor.missing_secrets.clone(),
            catalogue,
            reloader: reloader.clone(),
            intervals: config.intervals,
            logs: logs.clone(),
            access: Arc::new(access),
            records: records.clone(),
            notifications,
            base_path: config.base_path.to_string(),
            storage: storage.clone(),
            certificate,
            body_bytes_max: http::BODY_BYTES_MAX,
            shutdown: shutdown.clone(),
        };
        let maintenance = maintenance::run(
            config.retention,
            handles.retention_by,
            handles.remover,
            config.data_dir.clone(),
            maintenance::RetainedData { archive, logs, catalogue: retained },
            retention_time,
            shutdown.clone(),
        );
        let maintenance = tokio::spawn(maintenance);
        let router = http::router(services, ws::router(acceptor.clone()));
        let first_token_file = (config.requires_tokens && config.api_token.is_none())
            .then(|| first_token::file(&config.data_dir));
        Ok(Self {
            engine,
            listener,
            router,
            acceptor,
            maintenance,
            reloader,
            records,
            first_token_file,
            trace_export,
            shutdown,
        })
    }

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
        let records = self.records.clone();
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

fn connections(config: &Config) -> listener::Limits {
    let limits = listener::Limits::default();
    match config.requires_tokens || config.api_token.is_some() {
        true => listener::Limits { unauthenticated: UNAUTHENTICATED_MAX, ..limits },
        false => limits,
    }
}

fn registries(config: &Config) -> Result<Option<Arc<Registries>>, RegistriesError> {
    let Some(path) = config.registries_file.clone() else { return Ok(None) };
    let registries = Registries::load(path, config.secrets.clone())?;
    for warning in registries.warnings() {
        tracing::warn!("{warning}");
    }
    Ok(Some(Arc::new(registries)))
}

/// The client for e-mail, if the server was told of a mail server.
fn mail_client(config: &Config) -> Result<Option<MailClient>, Box<dyn std::error::Error + Send + Sync>> {
    let Some(server) = config.mail.clone() else { return Ok(None) };
    let tls = Arc::new(trust_the_system()?);
    MailClient::new(server, tls).map(Some)
}

/// Connections of one address without a valid token. A client with a token leaves this count with its first request.
const UNAUTHENTICATED_MAX: usize = 100;

/// The longest wait for worker sessions to close.
const SESSIONS_TIMEOUT: Duration = Duration::from_secs(5);
