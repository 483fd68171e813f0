//! Facts about the machines of connected workers, and the workers that went without leaving, for people. They influence no decision, so they are kept here with the sessions and not
//! in the scheduler. Losses are stored as well, about a second later, so that they are known after a restart.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::report::Heartbeat;
use protocol::{SessionId, Timestamp, WorkerId};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::engine::RecordWriter;
use crate::store::RecordChange;

/// The facts about one worker's machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The id of the Docker engine, if the engine answered at the worker's start.
    pub engine: Option<Arc<str>>,
    /// The load average of one minute in thousandths, from the last heartbeat.
    pub load_milli: Option<u32>,
    /// Free bytes of the worker's state directory, from the last heartbeat.
    pub disk_free_bytes: Option<u64>,
}

/// The machines of all open sessions.
#[derive(Debug, Default)]
pub struct Machines {
    open: Mutex<HashMap<SessionId, Machine>>,
    /// Workers whose last session ended otherwise than by their leaving.
    lost: Mutex<LostWorkers>,
}

#[derive(Debug, Default)]
struct LostWorkers {
    /// When each of them went.
    since: BTreeMap<WorkerId, Timestamp>,
    /// Losses that are not stored yet.
    unwritten: BTreeMap<WorkerId, Timestamp>,
}

impl LostWorkers {
    /// Takes the losses to store. If there are any, forgets the old ones: once for all workers that a network failure takes at once.
    fn take_unwritten(&mut self, now: Timestamp) -> BTreeMap<WorkerId, Timestamp> {
        if !self.unwritten.is_empty() {
            self.since.retain(|_, since| now.since(*since) < LOST_MAX);
        }
        std::mem::take(&mut self.unwritten)
    }

    /// Takes losses again that could not be stored, unless a worker was back meanwhile.
    fn put_back(&mut self, lost: Vec<(WorkerId, Timestamp)>) {
        let since = &self.since;
        self.unwritten.extend(lost.into_iter().filter(|(worker, at)| since.get(worker) == Some(at)));
    }
}

/// A worker that went longer ago is not named any more: its loss was noticed, or nobody misses it.
const LOST_MAX: Duration = Duration::from_hours(24);
/// Losses are stored so often. When a network fails, many workers are lost at once.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// The entry of a session in [`Machines`]; removed with the session.
#[derive(Debug)]
pub struct MachineGuard {
    machines: Arc<Machines>,
    session: SessionId,
}

impl Machines {
    /// Adds the entry of a session with the facts of its Hello.
    #[must_use]
    pub fn enter(self: &Arc<Self>, session: SessionId, engine: Option<&str>) -> MachineGuard {
        let machine = Machine { engine: engine.map(Arc::from), ..Machine::default() };
        self.open().insert(session, machine);
        MachineGuard { machines: self.clone(), session }
    }

    /// The facts about a session's machine; `None` once the session is over.
    #[must_use]
    pub fn of(&self, session: SessionId) -> Option<Machine> {
        self.open().get(&session).cloned()
    }

    /// Notes that the session of a worker ended without its leaving.
    pub fn lose(&self, worker: WorkerId, now: Timestamp) {
        let mut lost = self.lost_workers();
        lost.since.insert(worker, now);
        lost.unwritten.insert(worker, now);
    }

    /// Takes in the losses that the store has, at a start.
    pub fn restore_lost(&self, stored: Vec<(WorkerId, Timestamp)>) {
        self.lost_workers().since.extend(stored);
    }

    /// Stores losses until `shutdown`: those of a second are one transaction.
    pub async fn store_losses(self: Arc<Self>, writer: RecordWriter, shutdown: CancellationToken) {
        let mut ticks = interval(WRITE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let goes_on = shutdown.run_until_cancelled(ticks.tick()).await.is_some();
            let unwritten = self.lost_workers().take_unwritten(clock::now().utc);
            if !unwritten.is_empty() {
                let lost: Vec<_> = unwritten.into_iter().collect();
                if let Some(Err(error)) = writer.change(RecordChange::WorkersLost(lost.clone())).await {
                    tracing::warn!(%error, "cannot store which workers are lost; trying again in a second");
                    self.lost_workers().put_back(lost);
                }
            }
            if !goes_on {
                return;
            }
        }
    }

    /// Notes that a worker is back.
    pub fn regain(&self, worker: WorkerId) {
        let mut lost = self.lost_workers();
        lost.since.remove(&worker);
        lost.unwritten.remove(&worker);
    }

    /// The workers that went without leaving within 24 hours, and since when they are gone.
    #[must_use]
    pub fn lost(&self, now: Timestamp) -> BTreeMap<WorkerId, Timestamp> {
        let lost = self.lost_workers();
        lost.since
            .iter()
            .filter(|(_, since)| now.since(**since) < LOST_MAX)
            .map(|(id, since)| (*id, *since))
            .collect()
    }

    fn lost_workers(&self) -> MutexGuard<'_, LostWorkers> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<SessionId, Machine>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MachineGuard {
    /// Stores the facts of a heartbeat.
    pub fn note(&self, beat: &Heartbeat) {
        if let Some(machine) = self.machines.open().get_mut(&self.session) {
            machine.load_milli = beat.load_milli;
            machine.disk_free_bytes = beat.disk_free_bytes;
        }
    }
}

impl Drop for MachineGuard {
    fn drop(&mut self) {
        self.machines.open().remove(&self.session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_worker_is_known_until_it_is_back_or_a_day_has_passed() {
        let machines = Machines::default();
        let (day, at) = (86_400_000, Timestamp);
        machines.lose(WorkerId(1), at(0));
        machines.lose(WorkerId(2), at(5));
        machines.lose(WorkerId(3), at(6));
        machines.regain(WorkerId(2));
        machines.restore_lost(vec![(WorkerId(4), at(-1))]);
        let lost = |now| machines.lost(at(now)).into_keys().map(|worker| worker.0).collect::<Vec<_>>();
        assert_eq!((lost(day - 1), lost(day), lost(day + 6)), (vec![1, 3], vec![3], vec![]));
    }

    #[test]
    fn the_newest_heartbeat_counts_until_the_session_is_over() {
        let machines = Arc::new(Machines::default());
        let (older, newer) = (SessionId(1), SessionId(2));
        let entry = machines.enter(older, Some("engine"));
        let engine = Some("engine".into());
        assert_eq!(machines.of(older), Some(Machine { engine: engine.clone(), ..Machine::default() }));
        for (load_milli, disk_free_bytes) in [(Some(730), Some(10)), (None, Some(0))] {
            entry.note(&Heartbeat { load_milli, disk_free_bytes, ..Heartbeat::default() });
            let told = Machine { engine: engine.clone(), load_milli, disk_free_bytes };
            assert_eq!(machines.of(older), Some(told));
        }
        // The same worker reconnects before its older connection is gone.
        let _entry = machines.enter(newer, None);
        drop(entry);
        assert_eq!((machines.of(older), machines.of(newer)), (None, Some(Machine::default())));
    }
}
