//! The worker's body: it owns clocks, sockets, directories and runtimes, and does what the brain in `worker` decides.
//!
//! [`run`] is all that a program needs: it takes the state directory, surveys what an earlier process has left, connects to the server
//! and stays connected until it is asked to leave.

pub mod attempt_dir;
pub mod clock;
pub mod config;
mod engine;
pub mod health;
pub mod identity;
pub mod logs;
mod machine;
pub mod runtime;
pub mod ws;

use std::io;
use std::sync::Arc;

use protocol::RuntimeKind;
use protocol::report::Availability;
use rand::TryRng;
use rand::rngs::SysRng;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use worker::{Input, Worker};

use attempt_dir::Ledger;
pub use config::{Config, ConfigError, OnTerm};
use engine::{Engine, Inbox};
use health::HealthFile;
use identity::{Identity, IdentityError};
use logs::Logs;
use machine::Room;
pub use runtime::docker::in_container;
use runtime::docker::{self, Docker};
use runtime::fake::Fake;
use runtime::process::{self, Process};
use runtime::{Events, Runtime};
use ws::{Dialer, TokenError};

/// A worker cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The token cannot be had.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The state directory cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The directories of attempts cannot be made.
    #[error(transparent)]
    Attempts(#[from] attempt_dir::Error),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    Random(#[source] rand::rngs::SysError),
}

/// Runs a worker until it has left. Each item of `terms` is one wish that it leave: the first means what `on_term` says, the second
/// stops what runs, the third leaves at once. A server that cannot be reached is no error: it is called again for ever.
///
/// # Errors
/// It cannot be started.
pub async fn run(config: Config, terms: mpsc::Receiver<()>) -> Result<(), Error> {
    config.check()?;
    let dialer = Dialer::new(config.server.clone(), config.token_file.clone());
    dialer.check()?;
    let identity = if config.share_state_dir {
        Identity::open_shared(&config.state_dir)?
    } else {
        Identity::open(&config.state_dir)?
    };
    let (logs, output_done) = Logs::new();
    let (events, runtime) = mpsc::unbounded_channel();
    let ledger = Ledger::open(identity.dir())?;
    let Offered { runtimes, engine } = offer(&config, &ledger, &events, &logs).await;
    let (first, availabilities) = survey(&runtimes, &identity).await;
    let room = Room::of(identity.dir());
    let engine = Engine {
        worker: brain(&config, &identity, engine, availabilities)?,
        identity,
        runtimes,
        dialer,
        logs,
        on_term: config.on_term,
        inbox: Inbox { runtime, output_done, terms },
        link: None,
        terms: 0,
        exit: false,
        room,
        health: config.health_file.map(HealthFile::at),
    };
    engine.run(first).await;
    Ok(())
}

/// SIGTERM and SIGINT as wishes to leave.
///
/// # Errors
/// The system does not let us listen for them.
pub fn terms() -> io::Result<mpsc::Receiver<()>> {
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

/// What this worker can run.
struct Offered {
    runtimes: Vec<Arc<dyn Runtime>>,
    /// The Docker engine's own id, if it answers.
    engine: Option<String>,
}

async fn offer(config: &Config, ledger: &Ledger, events: &Events, logs: &Logs) -> Offered {
    let mut runtimes: Vec<Arc<dyn Runtime>> = Vec::new();
    let mut engine = None;
    if let Some(program) = &config.runtimes.docker {
        let program = program.clone();
        let allow = config.runtimes.allow.clone();
        let settings = docker::Config { program, allow, ..docker::Config::default() };
        let docker = Docker::new(settings, ledger.clone(), logs.clone(), events.clone());
        engine = docker.engine_id().await;
        runtimes.push(Arc::new(docker));
    }
    if config.runtimes.process {
        let settings = process::Config::default();
        runtimes.push(Arc::new(Process::new(settings, ledger.clone(), logs.clone(), events.clone())));
    }
    if config.runtimes.fake {
        runtimes.push(Arc::new(Fake::new(events.clone(), logs.clone())));
    }
    Offered { runtimes, engine }
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
            runtime.joined(membership);
        }
        let survey = runtime.survey().await;
        attempts.extend(survey.restored);
        foreign.extend(survey.foreign);
        availabilities.push((runtime.kind(), survey.availability));
    }
    (Input::Restored { attempts, foreign, contact: identity.contact() }, availabilities)
}

fn brain(
    config: &Config,
    identity: &Identity,
    engine: Option<String>,
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
        engine,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        slots: config.slots,
        backlog: config.backlog,
        labels: config.labels.clone(),
        runtimes,
    };
    Ok(Worker::new(about, seed))
}
