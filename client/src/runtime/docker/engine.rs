//! The client of the container engine: its command line, its state, its clock and its number of processors. Queries are in `queries`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use protocol::{ContainerSpec, Now};

use super::cli::{CallError, Cli};
use super::health::Health;
use super::skew::{self, Skew};
use crate::clock;
use crate::runtime::Events;

/// One engine, called through the `docker` program.
pub(super) struct EngineClient {
    pub(super) cli: Cli,
    pub(super) health: Health,
    pub(super) skew: Skew,
    /// Number of the engine's processors; zero until it is known.
    processors: AtomicU32,
    /// The engine can give GPUs to containers.
    has_gpu_runtime: AtomicBool,
}

/// The engine has this runtime if NVIDIA's container toolkit is set up. Without it the option `--gpus` would be an error.
const GPU_RUNTIME: &str = "nvidia";

impl EngineClient {
    pub(super) fn new(program: &Path, events: Events) -> Self {
        Self {
            cli: Cli::new(program),
            health: Health::new(events),
            skew: Skew::default(),
            processors: AtomicU32::new(0),
            has_gpu_runtime: AtomicBool::new(false),
        }
    }

    /// Number of the engine's processors; zero until it is known.
    pub(super) fn processors(&self) -> u32 {
        self.processors.load(Ordering::Relaxed)
    }

    /// The container gets its GPUs from the engine. The engine is asked each time: it may have been away before, or got another
    /// configuration.
    ///
    /// # Errors
    /// The engine did not answer: without `--gpus` the container would start without its GPUs.
    pub(super) async fn gives_gpus(&self, spec: &ContainerSpec) -> Result<bool, CallError> {
        if spec.resources.gpus == 0 {
            return Ok(false);
        }
        if self.info().await.is_none() {
            let why = "`docker info` does not tell whether the engine can give GPUs to containers";
            return Err(CallError::Unreachable(why.into()));
        }
        let has_runtime = self.has_gpu_runtime.load(Ordering::Relaxed);
        if !has_runtime {
            tracing::info!(
                image = spec.image,
                "the engine has no runtime {GPU_RUNTIME}: the container starts without --gpus, and finds the ids of its GPUs in LONGSHORE_GPUS"
            );
        }
        Ok(has_runtime)
    }

    /// The engine's own id, if it answers. The call also updates the number of processors and the clock offset.
    pub(super) async fn info(&self) -> Option<String> {
        let before = clock::now();
        let format =
            "{{.ID}} {{.NCPU}} {{.SystemTime}} {{range $name, $runtime := .Runtimes}}{{$name}},{{end}}";
        let answer = self.call(["info", "--format", format]).await.ok().filter(|it| it.ok)?;
        let after = clock::now();
        let mut words = answer.stdout.split_whitespace();
        let id = words.next()?;
        self.processors.store(words.next().and_then(|it| it.parse().ok()).unwrap_or(0), Ordering::Relaxed);
        if let Some(time) = words.next().and_then(skew::instant) {
            self.skew.add_sample(before, time, after);
        }
        let has_gpu_runtime =
            words.next().is_some_and(|names| names.split(',').any(|name| name == GPU_RUNTIME));
        self.has_gpu_runtime.store(has_gpu_runtime, Ordering::Relaxed);
        Some(id.to_owned())
    }

    /// Now by the engine's wall clock, together with our monotonic clock.
    pub(super) fn now(&self) -> Now {
        self.skew.engine(clock::now())
    }

    /// Asks the engine for its time every minute. A missing or invalid answer is ignored.
    pub(super) async fn poll_clock(self: Arc<Self>) {
        loop {
            self.health.wait_until_up().await;
            let before = clock::now();
            let answer = self.cli.call(["info", "--format", "{{.SystemTime}}"], CLOCK_ANSWER_TIMEOUT).await;
            if let Some(time) = answer.ok().and_then(|it| skew::instant(&it.stdout)) {
                self.skew.add_sample(before, time, clock::now());
            }
            tokio::time::sleep(CLOCK_POLL_INTERVAL).await;
        }
    }
}

/// An answer costs some 50 ms of CPU; two clocks drift apart by a few milliseconds meanwhile.
const CLOCK_POLL_INTERVAL: Duration = Duration::from_secs(60);

/// A slower answer says little about the time.
const CLOCK_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
