//! Warnings of pauses that a reload makes void. A pause is kept by name, so it does not follow a definition to another name, nor a schedule
//! to another id.

use std::sync::Arc;

use scheduler::definition::Definition;
use scheduler::pauses::{PauseTarget, Pauses};
use scheduler::schedule::{Schedule, ScheduleId};

use crate::catalogue::Definitions;
use crate::rfc3339::Time;

/// New definitions that a warning names.
const NAMED: usize = 3;

/// A warning for each pause that holds for nothing after the reload.
pub(crate) fn lost(before: &Definitions, after: &Definitions, pauses: &Pauses) -> Vec<String> {
    let mut warnings = of_removed(before, after, pauses);
    for old in before.iter() {
        if let Some(new) = after.find(&old.definition.name) {
            warnings.extend(of_changed_schedules(&old.definition, &new.definition, pauses));
        }
    }
    warnings
}

/// A warning for each paused schedule that is gone while others come. Without `id` a changed rule is another schedule, which is not paused.
fn of_changed_schedules(old: &Definition, new: &Definition, pauses: &Pauses) -> Vec<String> {
    let (before, after) = (&old.timetable.schedules, &new.timetable.schedules);
    let is_in = |schedules: &[Schedule], id: &ScheduleId| schedules.iter().any(|schedule| schedule.id == *id);
    if after.iter().all(|schedule| is_in(before, &schedule.id)) {
        return Vec::new();
    }
    let name: Arc<str> = old.name.as_str().into();
    let gone = before.iter().filter(|schedule| !is_in(after, &schedule.id));
    let paused = gone.filter(|it| pauses.contains(&PauseTarget::Schedule(name.clone(), it.id.clone())));
    let warn = |schedule: &Schedule| {
        format!(
            "{name}: the paused schedule {} goes, and its pause does not hold for the rule in its place: \
             pause the definition before the reload, or the new schedule after it; with an id, a pause outlasts changes of the rule",
            schedule.id
        )
    };
    paused.map(warn).collect()
}

/// A warning for each definition that is removed while it, or a schedule of it, is paused.
fn of_removed(before: &Definitions, after: &Definitions, pauses: &Pauses) -> Vec<String> {
    let added = after.iter().map(|entry| entry.definition.name.as_str());
    let added: Vec<&str> = added.filter(|name| before.find(name).is_none()).collect();
    let others = match added.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let then = match added.is_empty() {
        true => "its pause is kept for its name".to_owned(),
        false => {
            let named = added[..added.len().min(NAMED)].join(", ");
            format!(
                "its pause does not hold for the new definitions ({named}{others}): give them \"enabled: false\" if they are not to start"
            )
        }
    };
    let mut warnings = Vec::new();
    for (target, pause) in pauses.iter() {
        let until = pause.until.map(|until| format!(" until {}", Time(until))).unwrap_or_default();
        let (name, what) = match target {
            PauseTarget::Definition(name) => (name, format!("{name} is paused{until}")),
            PauseTarget::Schedule(name, id) => {
                (name, format!("the schedule {id} of {name} is paused{until}"))
            }
            PauseTarget::Server | PauseTarget::Schedules | PauseTarget::Group(_) | PauseTarget::Batch(_) => {
                continue;
            }
        };
        if before.find(name).is_some() && after.find(name).is_none() {
            warnings.push(format!("{what}, and {name} is removed: {then}"));
        }
    }
    warnings
}
