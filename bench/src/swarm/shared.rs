//! The settings of a swarm, and the results that its workers report.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use rustix::time::{ClockId, clock_gettime};

/// The settings of a swarm; all its workers have the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwarmSettings {
    /// Number of workers.
    pub(crate) workers: u64,
    /// Slots of each; there is no backlog.
    pub(crate) slots: u32,
    /// Their reports about assigned attempts.
    pub(crate) attempts: AttemptHandling,
}

/// The reports that a worker sends about an assigned attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptHandling {
    /// It runs, and never ends.
    HoldForever,
    /// It succeeds as soon as it arrives.
    Finish,
}

/// State that the workers share with the measurement.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) server: SocketAddr,
    pub(super) settings: SwarmSettings,
    /// Number of workers whose inventory was answered on their present connection.
    pub(super) ready: AtomicU64,
    /// Arrivals of attempts: job, and microseconds since 1970.
    pub(super) arrivals: Mutex<Vec<(u64, i64)>>,
    /// The error that ended a connection last, for people.
    pub(super) last_error: Mutex<Option<String>>,
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
