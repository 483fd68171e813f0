//! The start of a server. It goes through what can fail in this order: the files that people write, the data directory, the engine, the port.
//! Then it begins the tasks beside the engine, which share [`Parts`].

use std::sync::Arc;

use protocol::Timestamp;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::auth::first_token;
use crate::auth::records::AccessRecords;
use crate::catalogue::{Catalogue, Definitions};
use crate::config::jobs_file::{Environment, JobsText, MailSupport};
use crate::config::{Config, Deploys, RemovedDefinitions};
use crate::engine::{
    Engine, EngineHandles, Handle, JobSettings, OverridesCache, RecordWriter, Remover, SessionInbox,
};
use crate::listener::Listener;
use crate::listener::tls::Tls;
use crate::listener::tls_status::TlsStatus;
use crate::logs::Logs;
use crate::metrics::Metrics;
use crate::notifications::client::{WebClient, tls_client_config};
use crate::notifications::delivery::Delivery;
use crate::notifications::mail::client::MailClient;
use crate::notifications::receivers::Receivers;
use crate::notifications::requests::SendRequests;
use crate::policy::Policy;
use crate::registries::{Registries, RegistriesError};
use crate::reload::start::StartDefinitions;
use crate::reload::{DefinitionHistory, Refusal, Reloader};
use crate::retention_time::RetentionTime;
use crate::storage::Storage;
use crate::store::AccessArchive as _;
use crate::store::directory::DataDirectory;
use crate::store::sqlite::{self, SqliteArchive, SqliteStore};
use crate::traces::Traces;
use crate::ws::{SecretsWatch, WorkerAcceptor};
use crate::{Server, ServerError, clock, http, listener, logs, maintenance, policy, reload, ws};

impl Server {
    /// Reads jobs.yaml, locks the data directory, loads the store under a new epoch, and binds the port. Must be called on a tokio runtime.
    /// Cancelling `shutdown` shuts the server down.
    ///
    /// # Errors
    /// Each names the cause, the place and the remedy; nothing is left behind that prevents another start.
    pub async fn start(config: Config, shutdown: CancellationToken) -> Result<Self, ServerError> {
        let StartFiles { policy, registries, mail, definitions } = StartFiles::read(&config)?;
        let OpenData { store, archive, logs } = OpenData::open(&config, &definitions)?;
        let StartDefinitions { loaded, refusal } = definitions;
        let definitions = Definitions::new(loaded.definitions).with_policy(policy);
        let (engine, handles) = load_engine(&config, store, &definitions)?;
        let retention_time = RetentionTime::unknown();
        let records = load_records(archive.clone(), &handles, retention_time.clone())?;
        let history = DefinitionHistory::new(archive.clone(), handles.record_writer.clone());
        history.record_start(&definitions).map_err(ServerError::History)?;
        let (listener, tls) = bind(&config).await?;
        let storage = Storage::of(&config.data_dir);
        tokio::spawn(storage.clone().watch(shutdown.clone()));

        let catalogue = Arc::new(Catalogue::new(definitions));
        let parts = Parts { config, archive, logs, records, catalogue, registries, mail, shutdown };
        let traces = Traces::of_process(handles.cluster);
        let acceptor = parts.worker_acceptor(handles.session_inbox, handles.overrides, traces.as_ref());
        let (event_feed, trace_export) = match traces {
            Some(traces) => {
                let (archive, metrics) = (parts.archive.clone(), handles.metrics.clone());
                let public_url = parts.config.public_url.clone();
                let (feed, export) = traces.export(handles.event_feed, archive, metrics, public_url);
                (feed, Some(export))
            }
            None => (handles.event_feed, None),
        };
        acceptor.machines.restore_lost(parts.archive.lost_workers().map_err(ServerError::LostWorkers)?);
        let machines = acceptor.machines.clone();
        tokio::spawn(machines.store_losses(handles.record_writer.clone(), parts.shutdown.clone()));
        tokio::spawn(event_feed.run());
        parts.start_secrets_watch(&acceptor, handles.handle.clone());
        let reloader = parts.start_reloader(handles.handle.clone(), refusal, loaded.text, history);
        let notifications =
            parts.start_notifications(handles.record_writer.clone(), handles.metrics.clone())?;
        let (address, metrics, now) = (listener.address(), handles.metrics.clone(), clock::now().utc);
        let access = parts.config.access(address, handles.cluster, &parts.records, metrics, now);
        let has_api_token = access.has_api_token();
        if parts.config.deploys == Deploys::Allowed && !needs_token(&parts.config) {
            tracing::warn!(
                "deploys are allowed without tokens: each process that reaches this address can replace the jobs file and run any image"
            );
        }
        let services = http::Services {
            access: Arc::new(access),
            engine: handles.handle,
            events: handles.events,
            metrics: handles.metrics,
            archive: parts.archive.clone(),
            record_writer: handles.record_writer,
            machines: acceptor.machines.clone(),
            usage: acceptor.usage.clone(),
            missing_secrets: acceptor.missing_secrets.clone(),
            catalogue: parts.catalogue.clone(),
            reloader: reloader.clone(),
            intervals: parts.config.intervals,
            logs: parts.logs.clone(),
            records: parts.records.clone(),
            notifications,
            base_path: parts.config.base_path.to_string(),
            storage,
            tls,
            body_bytes_max: http::BODY_BYTES_MAX,
            shutdown: parts.shutdown.clone(),
        };
        let maintenance =
            parts.start_maintenance(handles.last_retention_time, handles.remover, retention_time);
        let Parts { config, records, shutdown, .. } = parts;
        let first_token_file =
            (needs_token(&config) && !has_api_token).then(|| first_token::file(&config.data_dir));
        Ok(Self {
            engine,
            listener,
            router: http::router(services, ws::router(acceptor.clone())),
            acceptor,
            maintenance,
            reloader,
            records,
            first_token_file,
            trace_export,
            shutdown,
        })
    }
}

/// True if requests must show a token.
const fn needs_token(config: &Config) -> bool {
    config.requires_tokens || config.api_token.is_some()
}

/// The files that people write. They are read before the data directory is touched.
struct StartFiles {
    policy: Arc<Policy>,
    registries: Option<Arc<Registries>>,
    mail: MailSupport,
    definitions: StartDefinitions,
}

impl StartFiles {
    fn read(config: &Config) -> Result<Self, ServerError> {
        let policy = policy::load_optional(config.policy_file.as_deref())?;
        let registries = load_registries(config)?;
        let mail = if config.mail.is_some() { MailSupport::Present } else { MailSupport::Absent };
        let environment = Environment::of_process()
            .with_intervals(config.intervals)
            .with_secrets(config.secrets.clone())
            .with_mail(mail)
            .with_policy(policy.clone());
        let definitions = reload::start::load(config, &environment).map_err(ServerError::JobsFile)?;
        for warning in &definitions.loaded.warnings {
            tracing::warn!("{warning}");
        }
        Ok(Self { policy, registries, mail, definitions })
    }
}

fn load_registries(config: &Config) -> Result<Option<Arc<Registries>>, RegistriesError> {
    let Some(path) = config.registries_file.clone() else { return Ok(None) };
    let registries = Registries::load(path, config.secrets.clone())?;
    for warning in registries.warnings() {
        tracing::warn!("{warning}");
    }
    Ok(Some(Arc::new(registries)))
}

/// The contents of the data directory, which is locked while store or archive live.
struct OpenData {
    store: SqliteStore,
    archive: Arc<SqliteArchive>,
    logs: Arc<Logs>,
}

impl OpenData {
    /// Also keeps a copy of a jobs file that was accepted, for a start with a faulty one.
    fn open(config: &Config, definitions: &StartDefinitions) -> Result<Self, ServerError> {
        let directory = Arc::new(DataDirectory::take(&config.data_dir)?);
        let (store, archive) = sqlite::open(&directory)?;
        let StartDefinitions { loaded, refusal } = definitions;
        if refusal.is_none() && !loaded.definitions.is_empty() {
            reload::accepted::keep(&config.data_dir, &config.jobs_file, &loaded.text);
        }
        let is_same_boot = logs::boot::is_same_as_last_time(&directory.logs());
        let logs = Logs::open(&directory.logs(), logs::Limits { is_same_boot, ..logs::Limits::default() })?;
        if !is_same_boot {
            logs::boot::record_boot_id(&directory.logs());
        }
        Ok(Self { store, archive: Arc::new(archive), logs })
    }
}

fn load_engine(
    config: &Config,
    store: SqliteStore,
    definitions: &Definitions,
) -> Result<(Engine, EngineHandles), ServerError> {
    let settings = JobSettings {
        live_max: config.jobs_max,
        server: config.server_limits,
        priority_ageing: config.priority_ageing,
        set_aside_after: config.set_aside_after,
    };
    Ok(Engine::load(Box::new(store), definitions, config.intervals, settings, config.data_dir.clone())?)
}

/// Loads tokens and the audit log.
fn load_records(
    archive: Arc<SqliteArchive>,
    handles: &EngineHandles,
    retention_time: RetentionTime,
) -> Result<Arc<AccessRecords>, ServerError> {
    let records = AccessRecords::load(archive, handles.record_writer.clone()).map_err(ServerError::Tokens)?;
    Ok(Arc::new(records.with_workers(handles.workers.clone()).with_retention_time(retention_time)))
}

/// Binds the port. Returns also the status of the TLS files, if the listener speaks TLS.
async fn bind(config: &Config) -> Result<(Listener, Option<TlsStatus>), ServerError> {
    let tls = config.tls.clone().map(Tls::load).transpose()?;
    let status = tls.as_ref().map(Tls::status);
    let mut listener = Listener::bind(config.listen, connection_limits(config)).await?;
    if let Some(tls) = tls {
        listener = listener.with_tls(tls);
    }
    Ok((listener, status))
}

fn connection_limits(config: &Config) -> listener::Limits {
    let limits = listener::Limits::default();
    match config.requires_tokens || config.api_token.is_some() {
        true => listener::Limits { unauthenticated: UNAUTHENTICATED_MAX, ..limits },
        false => limits,
    }
}

/// Connections of one address without a valid token. A client with a token leaves this count with its first request.
const UNAUTHENTICATED_MAX: usize = 100;

/// The parts of the server that several of its tasks need.
struct Parts {
    config: Config,
    archive: Arc<SqliteArchive>,
    logs: Arc<Logs>,
    records: Arc<AccessRecords>,
    catalogue: Arc<Catalogue>,
    registries: Option<Arc<Registries>>,
    mail: MailSupport,
    shutdown: CancellationToken,
}

impl Parts {
    fn worker_acceptor(
        &self,
        session_inbox: SessionInbox,
        overrides: Arc<OverridesCache>,
        traces: Option<&Traces>,
    ) -> WorkerAcceptor {
        let config = &self.config;
        let (archive, logs) = (self.archive.clone(), self.logs.clone());
        WorkerAcceptor::new(session_inbox, overrides, archive, logs, config.intervals, self.shutdown.clone())
            .with_worker_labels(config.worker_labels.clone())
            .with_secrets(config.secrets.clone())
            .with_registries(self.registries.clone())
            .with_records(self.records.clone())
            .with_tracer(traces.map(Traces::tracer))
    }

    fn start_secrets_watch(&self, acceptor: &WorkerAcceptor, engine: Handle) {
        let mut watch = SecretsWatch::new(
            acceptor.missing_secrets.clone(),
            self.config.secrets.clone(),
            self.registries.clone(),
            self.catalogue.clone(),
            engine,
        );
        watch.begin();
        tokio::spawn(watch.run(self.shutdown.clone()));
    }

    /// Makes the reloader, and starts the task that writes its history. If the configuration says so, starts the task that cancels waiting jobs of removed definitions.
    fn start_reloader(
        &self,
        engine: Handle,
        refusal: Option<Refusal>,
        text: JobsText,
        history: DefinitionHistory,
    ) -> Arc<Reloader> {
        let config = &self.config;
        let history = Arc::new(history);
        tokio::spawn({
            let history = history.clone();
            async move { history.run().await }
        });
        let reloader =
            Reloader::new(engine, self.catalogue.clone(), config.jobs_file.clone(), config.intervals)
                .with_secrets(config.secrets.clone())
                .with_policy(config.policy_file.clone())
                .with_removed(config.removed_definitions)
                .with_copies(config.data_dir.clone(), config.faulty_jobs_file)
                .with_deploys(config.deploys)
                .with_refusal(refusal)
                .with_text(text)
                .with_mail(self.mail)
                .with_records(self.records.clone())
                .with_history(history);
        let reloader = Arc::new(reloader);
        if config.removed_definitions == RemovedDefinitions::Cancel {
            let (reloader, archive) = (reloader.clone(), self.archive.clone());
            let shutdown = self.shutdown.clone();
            tokio::spawn(async move { reloader.cancel_removed(archive, shutdown).await });
        }
        reloader
    }

    fn start_notifications(
        &self,
        writer: RecordWriter,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Delivery>, ServerError> {
        let config = &self.config;
        let delivery = Arc::new(Delivery {
            archive: self.archive.clone(),
            jobs: self.archive.clone(),
            logs: self.logs.clone(),
            catalogue: self.catalogue.clone(),
            writer,
            client: WebClient::new(config.webhook_networks.clone()).map_err(ServerError::WebClient)?,
            mail: mail_client(config).map_err(ServerError::MailClient)?,
            public_url: config.public_url.clone(),
            metrics,
            requests: SendRequests::default(),
            receivers: Receivers::default(),
        });
        tokio::spawn(delivery.clone().run(self.shutdown.clone()));
        Ok(delivery)
    }

    /// Starts the retention of ended jobs and of output. `last_cutoff_time` is the time that it went by before, as it was last stored.
    fn start_maintenance(
        &self,
        last_cutoff_time: Option<Timestamp>,
        remover: Remover,
        time: RetentionTime,
    ) -> JoinHandle<()> {
        let retained = maintenance::RetainedData {
            archive: self.archive.clone(),
            logs: self.logs.clone(),
            catalogue: self.catalogue.clone(),
        };
        let (limits, data) = (self.config.retention, self.config.data_dir.clone());
        let shutdown = self.shutdown.clone();
        tokio::spawn(maintenance::run(limits, last_cutoff_time, remover, data, retained, time, shutdown))
    }
}

/// The client for e-mail, if the server was told of a mail server.
fn mail_client(config: &Config) -> Result<Option<MailClient>, Box<dyn std::error::Error + Send + Sync>> {
    let Some(server) = config.mail.clone() else { return Ok(None) };
    let tls = Arc::new(tls_client_config()?);
    MailClient::new(server, tls).map(Some)
}
