//! Facts about the machines of connected workers, for people. They influence no decision, so they are kept here with the sessions and not
//! in the scheduler.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::SessionId;
use protocol::report::Heartbeat;

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
}

/// The entry of a session in [`Machines`]; removed with the session.
#[derive(Debug)]
pub struct Entry {
    machines: Arc<Machines>,
    session: SessionId,
}

impl Machines {
    /// Adds the entry of a session with the facts of its Hello.
    #[must_use]
    pub fn enter(self: &Arc<Self>, session: SessionId, engine: Option<&str>) -> Entry {
        let machine = Machine { engine: engine.map(Arc::from), ..Machine::default() };
        self.open().insert(session, machine);
        Entry { machines: self.clone(), session }
    }

    /// The facts about a session's machine; `None` once the session is over.
    #[must_use]
    pub fn of(&self, session: SessionId) -> Option<Machine> {
        self.open().get(&session).cloned()
    }

    fn open(&self) -> MutexGuard<'_, HashMap<SessionId, Machine>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Stores the facts of a heartbeat.
    pub fn note(&self, beat: &Heartbeat) {
        if let Some(machine) = self.machines.open().get_mut(&self.session) {
            machine.load_milli = beat.load_milli;
            machine.disk_free_bytes = beat.disk_free_bytes;
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.machines.open().remove(&self.session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
