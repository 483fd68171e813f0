//! Connected workers that get no member of a parent with `run_on: all`: some of them with the reason, for people.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::definition::Definition;
use crate::explain::Obstacle;

/// Workers that are named. More would make a long line of a large fleet.
const NAMED_MAX: usize = 10;

/// The workers that got no member so far.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    /// The first of them, with the reason.
    named: Vec<String>,
    /// The number of the others.
    more: u32,
}

impl LeftOut {
    /// Adds a worker. One that is not connected, or that the definition or the job does not
    /// ask for, is not expected to get a member.
    pub(crate) fn add(&mut self, worker: &str, obstacle: Obstacle, definition: &Definition) {
        let is_unexpected = matches!(
            obstacle,
            Obstacle::Offline
                | Obstacle::Unreachable
                | Obstacle::NotListed
                | Obstacle::NotAskedFor
                | Obstacle::Condition(_)
        );
        if is_unexpected {
            return;
        }
        if self.named.len() < NAMED_MAX {
            self.named.push(format!("{worker} ({})", reason(obstacle, definition)));
        } else {
            self.more += 1;
        }
    }

    /// All of them in one line, unless there are none. Afterwards there are none.
    pub(crate) fn take_text(&mut self) -> Option<String> {
        let Self { named, more } = core::mem::take(self);
        let more = (more > 0).then(|| format!("{more} more"));
        let parts: Vec<String> = named.into_iter().chain(more).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

fn reason(obstacle: Obstacle, definition: &Definition) -> String {
    match obstacle {
        Obstacle::NoRuntime => format!("does not offer the runtime {}", definition.runtime().name()),
        Obstacle::TooOld => "has a version of Longshore that is too old".into(),
        Obstacle::Requirement(index) => {
            let rule = definition.placement.requires.get(usize::from(index));
            rule.map_or_else(|| "does not meet requires".into(), |rule| format!("needs {rule}"))
        }
        Obstacle::Exclusive => "takes only jobs that require its exclusive labels".into(),
        Obstacle::TooLarge(_) => "offers too little of a resource".into(),
        Obstacle::Draining => "is draining".into(),
        Obstacle::Cordoned => "is cordoned".into(),
        Obstacle::SetAside(job) => format!("is set aside for job {job}"),
        Obstacle::Joining => "has just connected".into(),
        other => other.name().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_workers_are_named_and_the_others_counted() {
        let definition = Definition::for_tests(1);
        let mut left_out = LeftOut::default();
        assert_eq!(left_out.take_text(), None);
        left_out.add("away", Obstacle::Offline, &definition);
        left_out.add("unlisted", Obstacle::NotListed, &definition);
        left_out.add("w1", Obstacle::Cordoned, &definition);
        assert_eq!(left_out.take_text().as_deref(), Some("w1 (is cordoned)"));
        for number in 0..=NAMED_MAX + 1 {
            left_out.add(&format!("w{number}"), Obstacle::Draining, &definition);
        }
        let text = left_out.take_text().unwrap();
        assert!(text.starts_with("w0 (is draining), w1 (is draining), "), "{text}");
        assert!(text.ends_with("w9 (is draining), 2 more"), "{text}");
        assert_eq!(left_out.take_text(), None);
    }
}
