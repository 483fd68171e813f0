//! Attempts as containers, by any program that speaks like `docker`.
//!
//! Docker is the ledger for what runs, the attempt directory for what was said. Here each attempt is one task that follows it from its
//! image to its verdict (`attempt`); what it needs of the engine is asked through the CLI with time limits (`cli`), and whether the
//! engine answers at all is one shared fact (`health`). Dropping the runtime leaves every container running: the next one adopts them
//! (`survey`).

mod admit;
mod ask;
mod attempt;
mod blame;
mod cli;
mod container;
mod events;
mod evict;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod health;
mod images;
mod made;
mod probe;
mod remove;
mod replay;
mod skew;
mod stop;
mod survey;
mod sweep;
mod whereabouts;

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::order::StopCause;
use protocol::report::{Availability, ReleaseCause};
use protocol::{ContainerSpec, RuntimeKind, Token};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use worker::input::RuntimeEvent;
use worker::step::{Launch, StopStep};

use self::admit::Lookups;
use self::attempt::Attempt;
use self::cli::Cli;
use self::evict::Evictions;
use self::health::Health;
use self::images::Images;
use self::remove::Leftover;
use self::skew::Skew;
pub use self::whereabouts::in_container;
use super::elsewhere::{blocking, tried};
use super::policy::Allow;
use super::removals::{Removal, Removals};
use super::{Events, Membership, Runtime, Survey};
use crate::attempt_dir::{AttemptDir, Ledger};
use crate::clock;
use crate::logs::Logs;

/// How this worker uses Docker.
#[derive(Clone, Debug)]
pub struct Config {
    /// The program: `docker`, or one that speaks like it.
    pub program: PathBuf,
    /// What jobs may do here.
    pub allow: Allow,
    /// Whether the engine has the disks that we see: not so from within a container, or if it is on another machine.
    pub sees_engine_disks: bool,
    /// How long to wait before each further try of a pull that failed for a reason that may pass.
    pub pull_retries: Vec<Duration>,
    /// For how long a registry that does not answer as it should is nobody's fault.
    pub registry_away_max: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            program: "docker".into(),
            allow: Allow::default(),
            sees_engine_disks: whereabouts::sees_engine_disks(),
            pull_retries: [10, 60, 300].map(Duration::from_secs).into(),
            registry_away_max: Duration::from_secs(3600),
        }
    }
}

/// The runtime. Its tasks end with it; its containers do not.
pub struct Docker {
    shared: Arc<Shared>,
}

struct Shared {
    config: Config,
    cli: Cli,
    ledger: Ledger,
    logs: Logs,
    events: Events,
    health: Health,
    skew: Skew,
    images: Images,
    lookups: Lookups,
    /// How many processors the engine has; zero as long as nobody has asked it.
    processors: AtomicU32,
    membership: Mutex<Option<Membership>>,
    attempts: Mutex<HashMap<Token, Arc<Attempt>>>,
    removals: Removals,
    evictions: Evictions,
    /// Whether everything is known that an earlier process has left.
    surveyed: AtomicBool,
    leftovers: mpsc::UnboundedSender<Leftover>,
    over: CancellationToken,
}

impl Docker {
    /// A runtime with this state directory's attempts. To be called within a tokio runtime.
    #[must_use]
    pub fn new(config: Config, ledger: Ledger, logs: Logs, events: Events) -> Self {
        let (leftovers, removals) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            cli: Cli::new(&config.program),
            config,
            ledger,
            logs,
            health: Health::new(events.clone()),
            events,
            skew: Skew::default(),
            images: Images::default(),
            lookups: Lookups::default(),
            processors: AtomicU32::new(0),
            membership: Mutex::default(),
            attempts: Mutex::default(),
            removals: Removals::default(),
            evictions: Evictions::default(),
            surveyed: AtomicBool::new(false),
            leftovers,
            over: CancellationToken::new(),
        });
        shared.spawn(remove::run(Arc::clone(&shared), removals));
        shared.spawn(Arc::clone(&shared).ask_again());
        shared.spawn(Arc::clone(&shared).ask_for_time());
        Self { shared }
    }

    /// The engine's own id, by which workers that share it are known. None if it does not answer.
    pub async fn engine_id(&self) -> Option<String> {
        self.shared.info().await
    }

    /// Whether the engine answers now.
    pub async fn availability(&self) -> Availability {
        survey::availability(self.shared.ping().await)
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        self.shared.over.cancel();
    }
}

impl Runtime for Docker {
    fn kind(&self) -> RuntimeKind {
        RuntimeKind::Docker
    }

    fn joined(&self, membership: Membership) {
        let before =
            self.shared.membership.lock().unwrap_or_else(PoisonError::into_inner).replace(membership);
        if before == Some(membership) {
            return;
        }
        if let Some(before) = before {
            tracing::warn!(?before, now = ?membership, "this worker belongs to another installation now");
        }
        self.shared.spawn(events::listen(Arc::clone(&self.shared), membership));
        self.shared.spawn(sweep::run(Arc::clone(&self.shared), membership));
    }

    fn survey(&self) -> Pin<Box<dyn Future<Output = Survey> + Send + '_>> {
        Box::pin(survey::survey(&self.shared))
    }

    fn start(&self, launch: Launch) {
        let (shared, token) = (Arc::clone(&self.shared), launch.token);
        let Some(membership) = shared.membership() else {
            return shared.refuse(
                token,
                ReleaseCause::RuntimeUnavailable,
                "this worker has not joined yet".into(),
            );
        };
        // Known from this moment on, so that no stop is missed.
        let attempt = Arc::new(Attempt::new(launch, membership, shared.ledger.dir(token), None));
        if shared.know(&attempt) {
            self.shared.spawn(async move { shared.start(attempt, membership).await });
        }
    }

    fn run(&self, token: Token) {
        if let Some(attempt) = self.shared.attempt(token) {
            attempt.word.give();
        }
    }

    fn stop(&self, token: Token, cause: StopCause, step: StopStep) {
        if let Some(attempt) = self.shared.attempt(token) {
            self.shared.spawn(stop::step(Arc::clone(&self.shared), attempt, cause, step));
        }
    }

    fn probe(&self, like: Arc<ContainerSpec>, why: String) {
        // Without one nothing could have been started.
        let Some(membership) = self.shared.membership() else { return };
        if self.shared.health.doubt(why) {
            self.shared.spawn(probe::run(Arc::clone(&self.shared), like, membership));
        }
    }

    fn evict(&self, token: Token) {
        if let Some(membership) = self.shared.membership() {
            self.shared.spawn(evict::evict(Arc::clone(&self.shared), token, membership));
        }
    }

    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.shared.removals.wait_for_all())
    }

    fn forget(&self, token: Token) {
        let shared = Arc::clone(&self.shared);
        let removal = shared.removals.begin(token);
        if let Some(attempt) = shared.drop_attempt(token) {
            shared.discard(attempt.name.clone(), attempt.dir.clone(), removal);
            return;
        }
        // A survey found it unstarted. What carries the same number and is another attempt's stays.
        let (Some(membership), dir) = (shared.membership(), shared.ledger.dir(token)) else { return };
        self.shared.spawn(async move {
            let there = dir.clone();
            let launch = tokio::task::spawn_blocking(move || there.launch().ok()).await.ok().flatten();
            if launch.is_some_and(|it| it.token == token) {
                shared.discard(token.container_name(membership.cluster), dir, removal);
            }
        });
    }
}

impl Shared {
    async fn start(self: &Arc<Self>, attempt: Arc<Attempt>, membership: Membership) {
        self.removals.wait_for(attempt.token()).await;
        if let Err((cause, why)) = self.prepare(&attempt).await {
            self.drop_attempt(attempt.token());
            return self.refuse(attempt.token(), cause, why);
        }
        let (shared, runs) = (Arc::clone(self), Arc::clone(&attempt));
        let run = async move { runs.run(&shared, membership).await };
        let run = tokio::spawn(self.over.clone().run_until_cancelled_owned(run));
        if run.await.is_err_and(|error| error.is_panic()) {
            tracing::error!(attempt = %attempt.token(), "its task panicked; it is watched again from what the engine says");
            self.watch(attempt);
        }
    }

    /// Whether it may run here; and its directory.
    async fn prepare(&self, attempt: &Arc<Attempt>) -> Result<(), (ReleaseCause, String)> {
        self.admit(&attempt.launch.spec).await?;
        if let Some(why) = self.is_too_small_for(&attempt.launch.spec).await {
            return Err((ReleaseCause::Policy, why));
        }
        let (ledger, launch) = (self.ledger.clone(), attempt.launch.clone());
        let stopping = tried(move || ledger.create(&launch)?.stopping())
            .await
            .map_err(|why| (ReleaseCause::RuntimeUnavailable, why))?;
        if stopping.is_some() {
            attempt.stopping.send_replace(stopping);
        }
        Ok(())
    }

    /// Why this engine would not take its limits, while another one may.
    async fn is_too_small_for(&self, spec: &ContainerSpec) -> Option<String> {
        let wanted = spec.resources.cpus_milli?;
        let exceeds = || wanted > self.processors.load(Ordering::Relaxed).saturating_mul(1000);
        if exceeds() {
            // It may have more by now. An engine that does not answer is found out soon enough.
            self.info().await?;
        }
        let there = self.processors.load(Ordering::Relaxed);
        let (cores, thousandths) = (wanted / 1000, wanted % 1000);
        (there > 0 && exceeds()).then(|| {
            format!("this worker's engine has {there} cores, fewer than cpus: {cores}.{thousandths:03}")
        })
    }

    /// The engine's own id, if it answers. Learns how many processors it has, and what time it is there.
    async fn info(&self) -> Option<String> {
        let before = clock::now();
        let format = "{{.ID}} {{.NCPU}} {{.SystemTime}}";
        let answer = self.call(["info", "--format", format]).await.ok().filter(|it| it.ok)?;
        let after = clock::now();
        let mut words = answer.stdout.split_whitespace();
        let id = words.next()?;
        self.processors.store(words.next().and_then(|it| it.parse().ok()).unwrap_or(0), Ordering::Relaxed);
        if let Some(time) = words.next().and_then(skew::instant) {
            self.skew.heard(before, time, after);
        }
        Some(id.to_owned())
    }

    /// Goes on with an attempt that was begun earlier.
    fn watch(self: &Arc<Self>, attempt: Arc<Attempt>) {
        let shared = Arc::clone(self);
        self.spawn(async move { attempt.watch(&shared).await });
    }

    /// Keeps an attempt in the books. Whether it is new there.
    fn know(&self, attempt: &Arc<Attempt>) -> bool {
        let mut attempts = self.attempts();
        if attempts.contains_key(&attempt.token()) {
            return false;
        }
        attempts.insert(attempt.token(), Arc::clone(attempt));
        true
    }

    fn drop_attempt(&self, token: Token) -> Option<Arc<Attempt>> {
        self.attempts().remove(&token)
    }

    fn attempt(&self, token: Token) -> Option<Arc<Attempt>> {
        self.attempts().get(&token).map(Arc::clone)
    }

    fn attempt_named(&self, name: &str) -> Option<Arc<Attempt>> {
        self.attempts().values().find(|it| it.name == name).map(Arc::clone)
    }

    /// The attempts in the books, and those that have left them and are being removed.
    fn known(&self) -> HashSet<Token> {
        // In this order: what leaves the books in between is in both.
        let known: HashSet<Token> = self.attempts().keys().copied().collect();
        self.removals.pending().into_iter().chain(known).collect()
    }

    fn membership(&self) -> Option<Membership> {
        *self.membership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what is left of it, soon.
    fn discard(&self, name: String, dir: AttemptDir, removal: Removal) {
        // Its receiver lives as long as the runtime.
        let _ = self.leftovers.send(Leftover { name, dir, _removal: removal });
    }

    fn refuse(&self, token: Token, cause: ReleaseCause, why: String) {
        self.tell(RuntimeEvent::Refused { token, cause, why });
    }

    fn tell(&self, event: RuntimeEvent) {
        // Nobody listens any more: the worker is leaving.
        let _ = self.events.send(event);
    }

    /// Runs it until the runtime is dropped.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(self.over.clone().run_until_cancelled_owned(task)));
    }

    fn attempts(&self) -> MutexGuard<'_, HashMap<Token, Arc<Attempt>>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
