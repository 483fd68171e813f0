//! Thousands of workers in this process: connections of their own, heartbeats, pings and reports, but no state directory and nothing that
//! runs. A lost connection is opened again after the same random delays as those of a real worker.

mod shared;
mod worker;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::bail;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::task::JoinSet;

pub(crate) use shared::{AttemptHandling, SwarmSettings, wall_us};
use shared::{Shared, lock};

/// Simulated workers. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Swarm {
    shared: Arc<Shared>,
    workers: u64,
    _tasks: JoinSet<()>,
}

impl Swarm {
    /// Starts workers that connect at once.
    pub(crate) fn start(server: SocketAddr, settings: SwarmSettings) -> anyhow::Result<Self> {
        require_descriptors(settings.workers)?;
        let shared = Arc::new(Shared {
            server,
            settings,
            ready: AtomicU64::new(0),
            arrivals: Mutex::default(),
            last_error: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        for number in 1..=settings.workers {
            tasks.spawn(worker::run_forever(number, shared.clone()));
        }
        Ok(Self { shared, workers: settings.workers, _tasks: tasks })
    }

    /// Waits until all workers are ready at once; how long that took.
    pub(crate) async fn until_ready(&self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let mut progress = (0, began);
        loop {
            let ready = self.shared.ready.load(Ordering::Relaxed);
            if ready >= self.workers {
                return Ok(began.elapsed());
            }
            if ready > progress.0 {
                progress = (ready, Instant::now());
            }
            if progress.1.elapsed() > STANDSTILL_MAX {
                let last_error = lock(&self.shared.last_error).clone().unwrap_or_default();
                bail!("only {ready} of {} workers are ready, and no more come: {last_error}", self.workers);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until this number of attempts has arrived.
    pub(crate) async fn until_arrived(&self, attempts: u64) -> anyhow::Result<()> {
        let mut last = (0, Instant::now());
        loop {
            let arrived = lock(&self.shared.arrivals).len();
            if arrived as u64 >= attempts {
                return Ok(());
            }
            if arrived != last.0 {
                last = (arrived, Instant::now());
            }
            if last.1.elapsed() > STANDSTILL_MAX {
                bail!("{arrived} of {attempts} attempts have arrived, and no more come");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Takes the arrivals so far: job, and microseconds since 1970.
    pub(crate) fn take_arrivals(&self) -> Vec<(u64, i64)> {
        std::mem::take(&mut *lock(&self.shared.arrivals))
    }
}

/// Raises the limit of open files as far as the system lets us. The server inherits it.
fn require_descriptors(workers: u64) -> anyhow::Result<()> {
    let needed = workers + DESCRIPTORS_BESIDE;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        bail!("{workers} workers need {needed} open files; raise the limit with `ulimit -Hn {needed}`");
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    Ok(())
}

const STANDSTILL_MAX: Duration = Duration::from_secs(120);
/// Connections of the load generator, files of the database and of the program.
const DESCRIPTORS_BESIDE: u64 = 500;
