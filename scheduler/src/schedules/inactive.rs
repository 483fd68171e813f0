//! Inactive schedules, of which no slot fires: paused, or of a disabled definition.

use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::Timestamp;

use crate::ids::ScheduleNo;
use crate::pauses::{PauseTarget, Pauses};
use crate::schedule::ScheduleId;
use crate::schedule::catch_up::InactiveReason;
use crate::schedules::{ScheduleRow, Schedules};

impl Schedules {
    /// Why a schedule is inactive now; none if it is active.
    pub(crate) fn inactive_reason(&self, row: &ScheduleRow, pauses: &Pauses) -> Option<InactiveReason> {
        let state = self.by_definition.get(&row.definition);
        // Before a pause: resuming would not bring its jobs back.
        if state.and_then(|state| state.current).is_some_and(|current| !current.enabled) {
            return Some(InactiveReason::Disabled);
        }
        let group = state.and_then(|state| state.group.clone());
        let mut all = pauses.of_schedule(&row.definition, group, &row.schedule);
        all.next().is_some().then_some(InactiveReason::Paused)
    }

    /// The end of the last pause that reaches a schedule. Nothing if no pause does, or if one has no end.
    pub(crate) fn paused_until(&self, row: &ScheduleRow, pauses: &Pauses) -> Option<Timestamp> {
        let group = self.by_definition.get(&row.definition).and_then(|state| state.group.clone());
        pauses.last_end(&row.definition, group, &row.schedule)
    }

    /// The schedules that a pause reaches. Looks at all of them only if it is not of one definition.
    pub(crate) fn reached_by(&self, target: &PauseTarget) -> Vec<ScheduleNo> {
        let is_in = |name: &Arc<str>, group| {
            self.by_definition.get(name).is_some_and(|it| it.group.as_ref() == Some(group))
        };
        let mut reached: Vec<ScheduleNo> = match target {
            PauseTarget::Server | PauseTarget::Schedules => self.entries.keys().copied().collect(),
            PauseTarget::Group(group) => {
                let members = self.entries.iter().filter(|(_, entry)| is_in(&entry.row.definition, group));
                members.map(|(number, _)| *number).collect()
            }
            PauseTarget::Definition(name) => self.of_definition(name).collect(),
            PauseTarget::Batch(_) => Vec::new(),
            PauseTarget::Schedule(name, id) => {
                self.numbers.get(&(name.clone(), id.clone())).copied().into_iter().collect()
            }
        };
        let is_present =
            |number: &ScheduleNo| self.entries.get(number).is_some_and(|it| it.schedule.is_some());
        reached.retain(is_present);
        reached.sort_unstable();
        reached
    }

    fn of_definition(&self, name: &Arc<str>) -> impl Iterator<Item = ScheduleNo> {
        let from = (name.clone(), ScheduleId::named(""));
        let all = self.numbers.range(from..).take_while(move |((of, _), _)| of == name);
        all.map(|(_, number)| *number)
    }
}
