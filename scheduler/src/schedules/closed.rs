//! Schedules that do not fire: paused, or of a disabled definition.

use alloc::vec::Vec;

use protocol::Timestamp;

use crate::ids::ScheduleNo;
use crate::pauses::{PauseTarget, Pauses};
use crate::schedule::catch_up::Closed;
use crate::schedules::{ScheduleRow, Schedules};

impl Schedules {
    /// Why no slot of a schedule fires now.
    pub(crate) fn closed(&self, row: &ScheduleRow, pauses: &Pauses) -> Option<Closed> {
        let state = self.names.get(&row.definition);
        // Before a pause: resuming would not bring its jobs back.
        if state.and_then(|state| state.current).is_some_and(|current| !current.enabled) {
            return Some(Closed::Disabled);
        }
        let group = state.and_then(|state| state.group.clone());
        let mut all = pauses.of_schedule(&row.definition, group, &row.schedule);
        all.next().is_some().then_some(Closed::Paused)
    }

    /// The end of the last pause that reaches a schedule. Nothing if no pause does, or if one has no end.
    pub(crate) fn paused_until(&self, row: &ScheduleRow, pauses: &Pauses) -> Option<Timestamp> {
        let group = self.names.get(&row.definition).and_then(|state| state.group.clone());
        pauses.last_end(&row.definition, group, &row.schedule)
    }

    /// The schedules that a pause reaches.
    pub(crate) fn reached_by(&self, target: &PauseTarget) -> Vec<ScheduleNo> {
        let reaches = |row: &ScheduleRow| match target {
            PauseTarget::Server | PauseTarget::Schedules => true,
            PauseTarget::Group(group) => {
                self.names.get(&row.definition).is_some_and(|state| state.group.as_ref() == Some(group))
            }
            PauseTarget::Definition(name) => row.definition == *name,
            PauseTarget::Schedule(name, id) => row.definition == *name && row.schedule == *id,
        };
        let present = self.entries.iter().filter(|(_, entry)| entry.schedule.is_some());
        present.filter(|(_, entry)| reaches(&entry.row)).map(|(number, _)| *number).collect()
    }
}
