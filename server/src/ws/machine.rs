//! What connected workers tell of their machines. It is for people: nothing is decided by it, so it is kept here, with the sessions, and
//! the scheduler never hears of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::SessionId;
use protocol::report::Heartbeat;

/// What a worker has told of its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The Docker engine's own id, if it has answered by the worker's start.
    pub engine: Option<Arc<str>>,
    /// The load average of one minute, in thousandths: as its last heartbeat had it.
    pub load_milli: Option<u32>,
    /// Free bytes where the worker's state directory is: as its last heartbeat had it.
    pub disk_free_bytes: Option<u64>,
}

/// The machines of all open sessions.
#[derive(Debug, Default)]
pub struct Machines {
    open: Mutex<HashMap<SessionId, Machine>>,
}

/// A session's entry among the [`Machines`]; it goes with the session.
#[derive(Debug)]
pub struct Entry {
    machines: Arc<Machines>,
    session: SessionId,
}

impl Machines {
    /// Begins the entry of a session, with what its Hello tells.
    #[must_use]
    pub fn enter(self: &Arc<Self>, session: SessionId, engine: Option<&str>) -> Entry {
        let machine = Machine { engine: engine.map(Arc::from), ..Machine::default() };
        self.open().insert(session, machine);
        Entry { machines: self.clone(), session }
    }

    /// What is known of the machine of a session; nothing once the session is over.
    #[must_use]
    pub fn of(&self, session: SessionId) -> Option<Machine> {
        self.open().get(&session).cloned()
    }

    fn open(&self) -> MutexGuard<'_, HashMap<SessionId, Machine>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Takes over what a heartbeat tells.
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
        // The same worker comes anew, before its older connection is gone.
        let _entry = machines.enter(newer, None);
        drop(entry);
        assert_eq!((machines.of(older), machines.of(newer)), (None, Some(Machine::default())));
    }
}
