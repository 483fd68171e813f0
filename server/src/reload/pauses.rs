//! Warnings of paused definitions that a reload removes. A pause is kept by name, so it does not follow a definition to another name.

use scheduler::pauses::{PauseTarget, Pauses};

use crate::catalogue::Definitions;

/// New definitions that a warning names.
const NAMED: usize = 3;

/// A warning for each definition that is removed while it, or a schedule of it, is paused.
pub(crate) fn of_removed(before: &Definitions, after: &Definitions, pauses: &Pauses) -> Vec<String> {
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
    for (target, _) in pauses.iter() {
        let (name, what) = match target {
            PauseTarget::Definition(name) => (name, format!("{name} is paused")),
            PauseTarget::Schedule(name, id) => (name, format!("the schedule {id} of {name} is paused")),
            PauseTarget::Server | PauseTarget::Schedules | PauseTarget::Group(_) => continue,
        };
        if before.find(name).is_some() && after.find(name).is_none() {
            warnings.push(format!("{what}, and {name} is removed: {then}"));
        }
    }
    warnings
}
