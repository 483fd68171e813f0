//! Attempts as containers, by `docker` or a program with the same command line.
//!
//! Docker knows which containers run; the attempt directory records the rest. Each attempt is one task that follows it from its image to
//! its end (`attempt`). Queries to the engine go through the CLI with time limits (`cli`), and the state of the engine is shared
//! (`health`). Dropping the runtime leaves every container running; the next one adopts them (`survey`).

mod admit;
mod attempt;
mod cli;
mod config;
mod container;
mod engine;
mod engine_location;
mod engine_paths;
mod engine_process;
mod engine_sockets;
mod events;
mod foreign;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod health;
pub mod image_gc;
mod images;
mod probe;
mod pull_config;
mod queries;
mod real_path;
mod recover_spec;
mod registry;
mod remove;
mod replay;
mod result_files;
mod skew;
mod start_failure;
mod stats;
mod stop;
mod survey;
mod sweep;
mod usage;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use protocol::order::StopCause;
use protocol::report::{Availability, ReleaseCause};
use protocol::{ContainerSpec, Now, RuntimeKind, Token, Usage};
use tokio_util::sync::CancellationToken;
use worker::input::RuntimeEvent;
use worker::step::{Launch, StopStep};

use self::admit::PathLookups;
use self::attempt::Attempt;
use self::cli::CallError;
pub use self::config::Config;
use self::engine::EngineClient;
pub use self::engine_location::{in_container, sees_engine_disks};
pub use self::engine_paths::OwnContainer;
use self::engine_paths::OwnMounts;
pub use self::engine_sockets::engine_sockets;
use self::images::Images;
use self::registry::TrackedAttempts;
use self::usage::UnseenContainers;
use super::blocking::{run_blocking, try_blocking};
use super::{Events, Membership, Runtime, Survey};
use crate::attempt_dir::AttemptStore;
use crate::clock;
use crate::logs::Logs;
use crate::secrets::{self, SecretDirs};

/// The runtime. Its tasks end with it; its containers do not.
pub struct Docker {
    docker: Arc<DockerState>,
}

/// The state of the runtime, which all of its tasks have: the client of the engine, the tracked attempts, the attempt directories, and the channels
/// to the rest of the worker.
struct DockerState {
    config: Config,
    engine: Arc<EngineClient>,
    registry: TrackedAttempts,
    store: AttemptStore,
    logs: Logs,
    events: Events,
    images: Images,
    lookups: PathLookups,
    unseen: Arc<UnseenContainers>,
    own_mounts: OwnMounts,
    shutdown: CancellationToken,
}

impl Docker {
    /// A runtime with the attempts of this state directory. It must be called within a tokio runtime.
    #[must_use]
    pub fn new(mut config: Config, store: AttemptStore, logs: Logs, events: Events) -> Self {
        let own = [Some(store.state_dir()), store.secrets().map(SecretDirs::root)].into_iter().flatten();
        let own = own.map(|dir| std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf()));
        config.allow.private_dirs.extend(own);
        let (registry, removals) = TrackedAttempts::new();
        let docker = Arc::new(DockerState {
            engine: Arc::new(EngineClient::new(&config.program, events.clone())),
            images: Images::new(store.state_dir()),
            config,
            registry,
            store,
            logs,
            events,
            lookups: PathLookups::default(),
            own_mounts: OwnMounts::default(),
            unseen: Arc::default(),
            shutdown: CancellationToken::new(),
        });
        docker.spawn(remove::run(Arc::clone(&docker), removals));
        docker.spawn(Arc::clone(&docker.engine).ping_until_up());
        docker.spawn(Arc::clone(&docker.engine).poll_clock());
        docker.spawn(usage::run(Arc::clone(&docker)));
        docker.spawn(result_files::run(Arc::clone(&docker)));
        let pulled = Arc::clone(&docker.images.pulled);
        docker.spawn(async move { pulled.save_uses().await });
        if let Some(settings) = docker.config.image_gc.clone() {
            docker.spawn(image_gc::run(Arc::clone(&docker), settings));
        }
        Self { docker }
    }

    /// The engine's own id, which all workers of the engine share. `None` if it does not answer.
    pub async fn engine_id(&self) -> Option<String> {
        self.docker.engine.info().await
    }

    /// Asks the engine whether it answers now.
    pub async fn availability(&self) -> Availability {
        survey::availability(self.docker.engine.ping().await)
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        self.docker.shutdown.cancel();
    }
}

impl Runtime for Docker {
    fn kind(&self) -> RuntimeKind {
        RuntimeKind::Docker
    }

    fn set_membership(&self, membership: Membership) {
        let before = self.docker.registry.set_membership(membership);
        if before == Some(membership) {
            return;
        }
        if let Some(before) = before {
            tracing::warn!(?before, now = ?membership, "the server has a new identity for this worker; containers of the old one are no longer watched");
        }
        self.docker.spawn(events::listen(Arc::clone(&self.docker), membership));
        self.docker.spawn(sweep::run(Arc::clone(&self.docker), membership));
    }

    fn survey(&self) -> Pin<Box<dyn Future<Output = Survey> + Send + '_>> {
        Box::pin(survey::survey(&self.docker))
    }

    fn start(&self, launch: Launch) {
        let (docker, token) = (Arc::clone(&self.docker), launch.token);
        let Some(membership) = docker.registry.membership() else {
            return docker.refuse(
                token,
                ReleaseCause::RuntimeUnavailable,
                "this worker has not joined yet".into(),
            );
        };
        // Tracked from this moment on, so that no stop is missed.
        let attempt = Arc::new(Attempt::new(launch, membership, docker.store.dir(token), None));
        if docker.registry.track(&attempt) {
            self.docker.spawn(async move { docker.start(attempt, membership).await });
        }
    }

    fn pull(&self, token: Token) {
        if let Some(attempt) = self.docker.registry.attempt(token) {
            attempt.pull_permit.grant();
        }
    }

    fn run(&self, token: Token) {
        if let Some(attempt) = self.docker.registry.attempt(token) {
            attempt.start_permit.grant();
        }
    }

    fn stop(&self, token: Token, cause: StopCause, step: StopStep, at: Now) {
        if let Some(attempt) = self.docker.registry.attempt(token) {
            self.docker.spawn(stop::step(Arc::clone(&self.docker), attempt, (cause, step), at));
        }
    }

    fn probe(&self, like: Arc<ContainerSpec>, why: String) {
        // Without a membership nothing can have been started.
        let Some(membership) = self.docker.registry.membership() else { return };
        if self.docker.engine.health.set_unable_to_start(why) {
            self.docker.spawn(probe::run(Arc::clone(&self.docker), like, membership));
        }
    }

    fn remove_foreign(&self, token: Token) {
        if let Some(membership) = self.docker.registry.membership() {
            self.docker.spawn(foreign::remove(Arc::clone(&self.docker), token, membership));
        }
    }

    fn wait_for_removals(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            self.docker.registry.removals.wait_for_all().await;
            self.docker.images.pulled.save().await;
        })
    }

    fn forget(&self, token: Token) {
        let docker = Arc::clone(&self.docker);
        let removal = docker.registry.removals.begin(token);
        docker.forget_usage(token);
        if let Some(attempt) = docker.registry.untrack(token) {
            attempt.withdrawn.notify_one();
            // Its container goes now, after it has kept the image for as long as the job took.
            docker.images.pulled.touch_name(&attempt.launch.spec.image, clock::now().utc);
            docker.registry.queue_removal(attempt.name.clone(), attempt.dir.clone(), removal);
            return;
        }
        // A survey found it unstarted. A directory of another attempt with the same number stays.
        let (Some(membership), dir) = (docker.registry.membership(), docker.store.dir(token)) else { return };
        self.docker.spawn(async move {
            let there = dir.clone();
            let launch = tokio::task::spawn_blocking(move || there.launch().ok()).await.ok().flatten();
            if launch.is_some_and(|it| it.token == token) {
                docker.registry.queue_removal(token.container_name(membership.cluster), dir, removal);
            }
        });
    }
}

impl DockerState {
    async fn start(self: &Arc<Self>, attempt: Arc<Attempt>, membership: Membership) {
        self.registry.removals.wait_for(attempt.token()).await;
        if let Err((cause, why)) = self.prepare(&attempt).await {
            self.registry.untrack(attempt.token());
            // A stop that came meanwhile waits for this.
            attempt.ended.send_replace(true);
            return self.refuse(attempt.token(), cause, why);
        }
        let (docker, runs) = (Arc::clone(self), Arc::clone(&attempt));
        let run = async move { runs.run(&docker, membership).await };
        let run = tokio::spawn(self.shutdown.clone().run_until_cancelled_owned(run));
        if run.await.is_err_and(|error| error.is_panic()) {
            tracing::error!(attempt = %attempt.token(), "the task of an attempt panicked; it is watched again by the state of its container");
            self.watch(attempt);
        }
    }

    /// Checks that it may run here, and creates its directory.
    async fn prepare(&self, attempt: &Arc<Attempt>) -> Result<(), (ReleaseCause, String)> {
        self.admit(&attempt.launch.spec).await?;
        if let Some(why) = self.is_too_small_for(&attempt.launch.spec).await {
            return Err((ReleaseCause::Policy, why));
        }
        let away = |error: CallError| (ReleaseCause::RuntimeUnavailable, error.with_remedy());
        if let Some(name) = self.own_volume_among(&attempt.launch.spec.volumes).await.map_err(away)? {
            let why = format!(
                "the volume {name:?} is mounted into the container of this worker, and holds its own files"
            );
            return Err((ReleaseCause::Policy, why));
        }
        let secrets = &attempt.launch.secrets;
        let dirs = self.store.secrets();
        let is_seen = match dirs.filter(|_| !secrets.files.is_empty()) {
            Some(dirs) => self.secrets_path(dirs, attempt.token()).await.map_err(away)?.is_some(),
            None => false,
        };
        if let Some(why) = secrets::obstacle(dirs, secrets, is_seen) {
            return Err((ReleaseCause::Policy, why.into()));
        }
        let (store, launch) = (self.store.clone(), attempt.launch.clone());
        let stopping = try_blocking(move || store.create(&launch)?.stopping())
            .await
            .map_err(|why| (ReleaseCause::RuntimeUnavailable, why))?;
        if stopping.is_some() {
            attempt.stopping.send_replace(stopping);
        }
        Ok(())
    }

    /// The reason why this engine cannot grant its limits, while another one may.
    async fn is_too_small_for(&self, spec: &ContainerSpec) -> Option<String> {
        let wanted = spec.resources.cpus_milli?;
        let exceeds = || wanted > self.engine.processors().saturating_mul(1000);
        if exceeds() {
            // The number may have grown. An engine that does not answer is noticed later.
            self.engine.info().await?;
        }
        let there = self.engine.processors();
        let (cores, thousandths) = (wanted / 1000, wanted % 1000);
        (there > 0 && exceeds()).then(|| {
            format!("this worker's engine has {there} cores, fewer than cpus: {cores}.{thousandths:03}")
        })
    }

    /// Watches an attempt that was begun earlier.
    fn watch(self: &Arc<Self>, attempt: Arc<Attempt>) {
        let docker = Arc::clone(self);
        self.spawn(async move { attempt.watch(&docker).await });
    }

    /// Ends the measuring of an attempt. Returns what it has used, as far as this process knows.
    fn forget_usage(&self, token: Token) -> Usage {
        self.unseen.remove(token);
        self.config.usage.finish(token)
    }

    fn refuse(&self, token: Token, cause: ReleaseCause, why: String) {
        self.send_event(RuntimeEvent::Refused { token, cause, why });
    }

    fn send_event(&self, event: RuntimeEvent) {
        // The receiver is gone: the worker is shutting down.
        let _ = self.events.send(event);
    }

    /// Runs a task until the runtime is dropped.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(self.shutdown.clone().run_until_cancelled_owned(task)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_refused_attempt_has_ended_for_its_stops() {
        let state = tempfile::tempdir().expect("a directory");
        let store = AttemptStore::open(state.path()).expect("a store");
        let (events, mut told) = tokio::sync::mpsc::unbounded_channel();
        let docker = Docker::new(Config::default(), store, Logs::new().0, events);
        docker.set_membership(Membership { cluster: protocol::ClusterId(1), worker: protocol::WorkerId(1) });
        let spec = ContainerSpec { network: Some("host".into()), ..ContainerSpec::default() };
        let launch = crate::runtime::launch_of(spec);
        let token = launch.token;
        docker.start(launch);
        let attempt = docker.docker.registry.attempt(token).expect("it is tracked");
        while !matches!(told.recv().await.expect("it lives"), RuntimeEvent::Refused { .. }) {}
        assert!(attempt.has_ended());
    }
}
