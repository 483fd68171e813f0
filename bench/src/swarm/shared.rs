//! The setting of a swarm, and the facts that its workers report.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use rustix::time::{ClockId, clock_gettime};

/// The setting of all workers of a swarm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwarmSettings {
    /// How many.
    pub(crate) workers: u64,
    /// Slots of each; there is no backlog.
    pub(crate) slots: u32,
    /// Their dealing with attempts.
    pub(crate) jobs: Jobs,
}

/// The dealing of a worker with attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jobs {
    /// They run for ever.
    HoldForever,
    /// They end well as soon as they arrive.
    Finish,
}

/// Facts that the workers report to the measurement.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) server: SocketAddr,
    pub(super) settings: SwarmSettings,
    /// Workers whose inventory was answered on the present connection.
    pub(super) ready: AtomicU64,
    /// Arrivals of attempts: job, and microseconds since 1970.
    pub(super) arrivals: Mutex<Vec<(u64, i64)>>,
    /// The last refusal, for people.
    pub(super) trouble: Mutex<Option<String>>,
}

impl Shared {
    pub(super) fn arrived(&self, jobs: impl Iterator<Item = u64>) {
        let at = wall_us();
        lock(&self.arrivals).extend(jobs.map(|job| (job, at)));
    }
}

/// Microseconds since 1970.
pub(crate) fn wall_us() -> i64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1_000
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
