//! The worker process: it owns clocks, sockets, directories and runtimes, and performs the decisions of the state machine in `worker`.
//!
//! [`run`] is the entry point. It locks the state directory, finds attempts of an earlier process, connects to the server and stays
//! connected until it is asked to shut down.

pub mod attempt_dir;
pub mod boot;
pub mod client_certificate;
pub mod clock;
pub mod config;
mod error_chain;
mod file_system;
pub mod health;
pub mod identity;
mod inherited;
mod latest_file;
pub mod logs;
mod machine;
pub mod offer;
pub mod runtime;
pub mod secrets;
pub mod tls;
#[cfg(test)]
mod unprivileged;
pub mod usage;
mod worker_loop;
pub mod ws;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use protocol::RuntimeKind;
use protocol::report::Availability;
use rand::TryRng;
use rand::rngs::SysRng;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use worker::{Input, Worker};

use attempt_dir::AttemptStore;
pub use config::{Config, ConfigError, OnTerm, check_name};
use health::HealthFile;
use identity::{Identity, IdentityError};
use latest_file::LatestFile;
use logs::Logs;
use machine::DiskSpace;
use runtime::docker::image_gc::{ImageGcSettings, WantedImages};
use runtime::docker::{self, Docker};
pub use runtime::docker::{engine_sockets, in_container, sees_engine_disks};
use runtime::fake::Fake;
use runtime::process::{self, Process};
use runtime::{Events, Runtime};
use secrets::{SecretDirs, SecretDirsError};
use usage::UsageSampler;
use worker_loop::{LoopInputs, WorkerLoop};
use ws::{Connector, TokenError};

/// A worker cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The token cannot be read.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The certificates that the worker trusts cannot be read.
    #[error(transparent)]
    Trust(#[from] tls::TrustError),
    /// The directory for secrets that was named cannot be used.
    #[error(transparent)]
    Secrets(#[from] SecretDirsError),
    /// The state directory cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The directories of attempts cannot be created.
    #[error(transparent)]
    Attempts(#[from] attempt_dir::Error),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    Random(#[source] rand::rngs::SysError),
}

/// Runs a worker until it has shut down. Each item of `shutdown_requests` asks it to shut down: the first one does what `on_term` says, and each further
/// one goes one step on: drain, interrupt, detach. An unreachable server is no error: the worker tries again for ever.
///
/// The worker's loop stores in `last_turn` when it last made a turn: the uptime in nanoseconds, zero before the first turn. It makes one every
/// few seconds, also without a server.
///
/// # Errors
/// The worker cannot be started.
pub async fn run(
    config: Config,
    shutdown_requests: mpsc::Receiver<()>,
    last_turn: Arc<AtomicU64>,
) -> Result<(), Error> {
    config.check()?;
    inherited::withhold_from_programs();
    let mut connector = Connector::new(config.server.clone(), config.token_file.clone());
    if config.server.is_tls() {
        connector =
            connector.with_tls(tls::trusting(config.ca_file.as_deref(), config.client_certificate.clone())?);
    }
    let identity = if config.share_state_dir {
        Identity::open_shared(&config.state_dir)?
    } else {
        Identity::open(&config.state_dir)?
    };
    // A worker that has joined does not need the token any more.
    match identity.membership() {
        Some(joined) => connector.set_proof(Some((joined.worker, identity.secret()))),
        None => connector.check()?,
    }
    let (logs, output_done) = Logs::new();
    let (events, runtime) = mpsc::unbounded_channel();
    let store = with_secrets(AttemptStore::open(identity.dir())?, &config, &identity)?;
    let (sampler, usage) = UsageSampler::new();
    let (wanted, wanted_images) = WantedImages::channel();
    let OfferedRuntimes { runtimes, engine_id } =
        start_runtimes(&config, &store, (&events, &logs, &sampler), wanted).await;
    warn_of_unserved_attempts(&runtimes, store.clone()).await;
    let (first, availabilities) = survey(&runtimes, &identity).await;
    let disk_space = DiskSpace::of(identity.dir());
    let storage_fault = store.watch_fault();
    let worker_loop = WorkerLoop {
        worker: worker_state(&config, &identity, engine_id, availabilities)?,
        last_answer_file: LatestFile::at(identity.contact_path(), None, identity::CONTACT_WRITER),
        membership: LatestFile::at(
            identity.membership_path(),
            identity.membership(),
            identity::MEMBERSHIP_WRITER,
        ),
        identity,
        rejoin: config.rejoin,
        runtimes,
        connector,
        logs,
        on_term: config.on_term,
        inputs: LoopInputs { runtime, output_done, usage, storage_fault, wanted_images, shutdown_requests },
        connection: None,
        shutdown_requests: 0,
        exit: false,
        disk_space,
        health: config.health_file.map(HealthFile::at),
        last_turn,
    };
    worker_loop.run(first).await;
    Ok(())
}

/// Gives the store a tmpfs for secrets. Without one the worker runs, and refuses attempts with secrets.
fn with_secrets(store: AttemptStore, config: &Config, identity: &Identity) -> Result<AttemptStore, Error> {
    match SecretDirs::open(config.secrets_tmpfs.as_deref(), identity.dir()) {
        Ok(dirs) => Ok(store.with_secrets(dirs)),
        Err(error) if config.secrets_tmpfs.is_some() => Err(error.into()),
        Err(error) => {
            tracing::warn!("this worker refuses jobs with secrets: {error}");
            Ok(store)
        }
    }
}

/// SIGTERM and SIGINT as requests to shut down.
///
/// # Errors
/// The system does not deliver the signals.
pub fn shutdown_signals() -> io::Result<mpsc::Receiver<()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (wish, wishes) = mpsc::channel(8);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if wish.send(()).await.is_err() {
                return;
            }
        }
    });
    Ok(wishes)
}

/// The runtimes of this worker.
struct OfferedRuntimes {
    runtimes: Vec<Arc<dyn Runtime>>,
    /// The container engine's own id, if it answers.
    engine_id: Option<String>,
}

async fn start_runtimes(
    config: &Config,
    store: &AttemptStore,
    (events, logs, usage): (&Events, &Logs, &UsageSampler),
    wanted: WantedImages,
) -> OfferedRuntimes {
    let mut runtimes: Vec<Arc<dyn Runtime>> = Vec::new();
    let mut engine_id = None;
    if let Some(program) = &config.runtimes.docker {
        let program = program.clone();
        let mut allow = config.runtimes.allow.clone();
        if config.share_state_dir {
            // Other workers keep theirs beside this worker's own.
            let shared = std::path::absolute(&config.state_dir);
            allow.private_dirs.push(shared.unwrap_or_else(|_| config.state_dir.clone()));
        }
        let usage = usage.clone();
        let gc = |watermarks| ImageGcSettings { wanted: Some(wanted), ..ImageGcSettings::new(watermarks) };
        let image_gc = config.image_gc.map(gc);
        let settings = docker::Config { program, allow, usage, image_gc, ..docker::Config::default() };
        let docker = Docker::new(settings, store.clone(), logs.clone(), events.clone());
        engine_id = docker.engine_id().await;
        runtimes.push(Arc::new(docker));
    }
    if config.runtimes.process {
        let settings = process::Config { usage: usage.clone(), ..process::Config::default() };
        runtimes.push(Arc::new(Process::new(settings, store.clone(), logs.clone(), events.clone())));
    }
    if config.runtimes.fake {
        runtimes.push(Arc::new(Fake::new(events.clone(), logs.clone())));
    }
    OfferedRuntimes { runtimes, engine_id }
}

/// Logs the attempts of an earlier process that this one cannot serve, because it is started without their runtime.
async fn warn_of_unserved_attempts(runtimes: &[Arc<dyn Runtime>], store: AttemptStore) {
    let offered: Vec<RuntimeKind> = runtimes.iter().map(|runtime| runtime.kind()).collect();
    let unserved = move || {
        let attempts = store.entries().unwrap_or_default();
        let is_unserved = |kind: &RuntimeKind| !offered.contains(kind);
        [RuntimeKind::Docker, RuntimeKind::Process]
            .into_iter()
            .filter(is_unserved)
            .map(|kind| (kind, attempts.iter().filter(|it| it.launch.spec.runtime == kind).count()))
            .filter(|(_, count)| *count > 0)
            .collect::<Vec<_>>()
    };
    for (runtime, attempts) in tokio::task::spawn_blocking(unserved).await.unwrap_or_default() {
        let remedy = match runtime {
            RuntimeKind::Process => "start the worker with --allow-process",
            _ => "start the worker without --no-docker",
        };
        tracing::error!(
            %runtime,
            attempts,
            remedy,
            "an earlier start of this worker has left attempts of a runtime that it does not use now: nobody stops them or reports their ends"
        );
    }
}

/// Finds what an earlier process has left; also how each runtime is.
async fn survey(
    runtimes: &[Arc<dyn Runtime>],
    identity: &Identity,
) -> (Input, Vec<(RuntimeKind, Availability)>) {
    let mut attempts = Vec::new();
    let mut foreign = Vec::new();
    let mut availabilities = Vec::new();
    for runtime in runtimes {
        if let Some(membership) = identity.membership() {
            runtime.set_membership(membership);
        }
        let survey = runtime.survey().await;
        attempts.extend(survey.restored);
        foreign.extend(survey.foreign);
        availabilities.push((runtime.kind(), survey.availability));
    }
    (Input::Restored { attempts, foreign, contact: identity.contact() }, availabilities)
}

/// The rules that forbid a definition whatever this machine's disks look like.
fn policy_of(config: &Config) -> worker::Policy {
    let allow = config.runtimes.allow.clone();
    worker::Policy::new(move |spec| match spec.runtime {
        RuntimeKind::Docker => allow.refuses(spec),
        _ => None,
    })
}

fn worker_state(
    config: &Config,
    identity: &Identity,
    engine_id: Option<String>,
    runtimes: Vec<(RuntimeKind, Availability)>,
) -> Result<Worker, Error> {
    let draw = || SysRng.try_next_u64().map_err(Error::Random);
    let (seed, process) = (draw()?, draw()?);
    let about = worker::Config {
        name: config.name.clone(),
        secret: identity.secret(),
        cluster: identity.membership().map(|it| it.cluster),
        rejoin: config.rejoin,
        incarnation: identity.incarnation(),
        process,
        engine: engine_id,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        slots: config.slots,
        backlog: config.backlog,
        pull_slots: config.pull_slots,
        policy: policy_of(config),
        labels: config.labels.clone(),
        runtimes,
        resources: config.resources.clone(),
    };
    Ok(Worker::new(about, seed))
}
