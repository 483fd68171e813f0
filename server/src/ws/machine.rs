//! Facts about the machines of connected workers, and the workers that went without leaving, for people. They influence no decision, so they are kept here with the sessions and not
//! in the scheduler.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::report::Heartbeat;
use protocol::{SessionId, Timestamp, WorkerId};

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
    /// Workers whose last session ended otherwise than by their leaving, each with the time.
    lost: Mutex<BTreeMap<WorkerId, Timestamp>>,
}

/// A worker that went longer ago is not named any more: its loss was noticed, or nobody misses it.
const LOST_MAX: Duration = Duration::from_hours(24);

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
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.retain(|_, since| now.since(*since) < LOST_MAX);
        lost.insert(worker, now);
    }

    /// Notes that a worker is back.
    pub fn regain(&self, worker: WorkerId) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).remove(&worker);
    }

    /// The workers that went without leaving within 24 hours, and since when they are gone.
    #[must_use]
    pub fn lost(&self, now: Timestamp) -> BTreeMap<WorkerId, Timestamp> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.iter()
            .filter(|(_, since)| now.since(**since) < LOST_MAX)
            .map(|(id, since)| (*id, *since))
            .collect()
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
