//! Exclusions: a worker gets no jobs of a kind for a while after it released them or failed to start them
//! (docs/design/scheduling.md, Q6).
//!
//! Each further exclusion lasts twice as long. Failures of the same kind during an exclusion belong to the same fault. A
//! successful start resets the backoff.

use alloc::vec::Vec;
use core::time::Duration;

use protocol::{Revision, RuntimeKind, Uptime};

use crate::definition::Definition;

/// Jobs that an exclusion is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excluded {
    /// All jobs.
    Anything,
    /// All jobs, because the worker is suspect.
    Suspect,
    /// Jobs of this runtime.
    Runtime(RuntimeKind),
    /// Jobs of this revision.
    Revision(Revision),
}

impl Excluded {
    fn covers(self, definition: &Definition) -> bool {
        match self {
            Self::Anything | Self::Suspect => true,
            Self::Runtime(runtime) => runtime == definition.runtime(),
            Self::Revision(revision) => revision == definition.revision,
        }
    }
}

/// Duration of exclusions. Each cause has one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExclusionBackoff {
    /// Duration of the first exclusion.
    pub first: Duration,
    /// The longest duration.
    pub max: Duration,
}

impl ExclusionBackoff {
    /// Lasts until another process of the worker connects.
    pub const UNTIL_RESTART: Self = Self { first: Duration::MAX, max: Duration::MAX };
}

/// Exclusions that are kept for one worker, the ended ones included. Beyond that the oldest ended one is dropped, or else the oldest.
const EXCLUSIONS_MAX: usize = 1_024;

/// Exclusions of one worker.
#[derive(Clone, Debug, Default)]
pub struct Exclusions {
    /// The oldest first.
    list: Vec<Exclusion>,
}

#[derive(Clone, Copy, Debug)]
struct Exclusion {
    of: Excluded,
    /// Tells the cause: exclusions of different causes do not replace or prolong each other.
    backoff: ExclusionBackoff,
    /// End of the exclusion; absent if it lasts until another process of the worker connects.
    until: Option<Uptime>,
    consecutive_failures: u32,
    /// The exclusion is in force. It is kept after its end, so that the next one lasts longer.
    active: bool,
}

impl Exclusions {
    /// Jobs of this definition are excluded now.
    #[must_use]
    pub fn covers_definition(&self, definition: &Definition) -> bool {
        self.list.iter().any(|it| it.active && it.of.covers(definition))
    }

    /// All jobs with this runtime are excluded now.
    #[must_use]
    pub fn covers_runtime(&self, runtime: RuntimeKind) -> bool {
        self.list.iter().filter(|it| it.active).any(|it| match it.of {
            Excluded::Anything | Excluded::Suspect => true,
            Excluded::Runtime(excluded) => excluded == runtime,
            Excluded::Revision(_) => false,
        })
    }

    /// The worker is suspect, and its exclusion is not over.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.list.iter().any(|it| it.active && it.of == Excluded::Suspect)
    }

    /// End of the exclusion of a suspect worker.
    #[must_use]
    pub fn suspended_until(&self) -> Option<Uptime> {
        self.list.iter().find(|it| it.active && it.of == Excluded::Suspect).and_then(|it| it.until)
    }

    /// The longest exclusion that covers this definition, with its end; `None` if it lasts until the worker
    /// restarts.
    #[must_use]
    pub fn strongest(&self, definition: &Definition) -> Option<(Excluded, Option<Uptime>)> {
        let covering = self.list.iter().filter(|it| it.active && it.of.covers(definition));
        covering.max_by_key(|it| it.until.unwrap_or(Uptime(u64::MAX))).map(|it| (it.of, it.until))
    }

    /// The exclusions in force, each with its end, without that of a suspect worker.
    pub fn in_force(&self) -> impl Iterator<Item = (Excluded, Option<Uptime>)> {
        let active = self.list.iter().filter(|it| it.active && it.of != Excluded::Suspect);
        active.map(|it| (it.of, it.until))
    }

    /// Revisions that are excluded on their own.
    pub fn revisions(&self) -> impl Iterator<Item = Revision> {
        self.list.iter().filter(|it| it.active).filter_map(|it| match it.of {
            Excluded::Revision(revision) => Some(revision),
            Excluded::Anything | Excluded::Suspect | Excluded::Runtime(_) => None,
        })
    }

    /// Ends of the exclusions in force, for the audit.
    pub fn ends(&self) -> impl Iterator<Item = Uptime> {
        self.list.iter().filter(|it| it.active).filter_map(|it| it.until)
    }

    /// Excludes these jobs. Returns the end of the exclusion if it is new.
    pub fn add(&mut self, now: Uptime, of: Excluded, backoff: ExclusionBackoff) -> Option<Uptime> {
        let old = self.list.iter().position(|it| it.of == of && it.backoff == backoff);
        if old.is_some_and(|position| self.list[position].active) {
            return None;
        }
        let consecutive_failures =
            old.map_or(1, |position| self.list.remove(position).consecutive_failures.saturating_add(1));
        let doubled = 1_u32.checked_shl(consecutive_failures - 1).unwrap_or(u32::MAX);
        let duration = backoff.first.saturating_mul(doubled).min(backoff.max);
        let until = (duration < Duration::MAX).then(|| now + duration);
        if self.list.len() >= EXCLUSIONS_MAX {
            let ended = self.list.iter().position(|it| !it.active);
            self.list.remove(ended.unwrap_or(0));
        }
        self.list.push(Exclusion { of, backoff, until, consecutive_failures, active: true });
        until
    }

    /// Ends the exclusions whose time is over.
    pub fn expire(&mut self, now: Uptime) {
        for exclusion in self.list.iter_mut().filter(|it| it.until.is_some_and(|until| until <= now)) {
            exclusion.active = false;
        }
    }

    /// Resets the backoff of ended exclusions after a start of this definition succeeded.
    pub fn reset_backoff(&mut self, definition: &Definition) {
        self.list.retain(|it| it.active || !it.of.covers(definition));
    }

    /// Ends exclusions of this runtime, because the worker reports that it is available again. A suspect worker need not wait for its probe
    /// either: the worker has tried the runtime itself.
    pub fn lift(&mut self, runtime: RuntimeKind) {
        self.list.retain(|it| it.of != Excluded::Runtime(runtime) && it.of != Excluded::Suspect);
    }

    /// Removes all exclusions.
    pub fn clear(&mut self) {
        self.list.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: ExclusionBackoff =
        ExclusionBackoff { first: Duration::from_secs(1), max: Duration::from_secs(3) };

    fn at(seconds: u64) -> Uptime {
        Uptime(seconds * 1_000_000_000)
    }

    #[test]
    fn exclusions_of_different_causes_do_not_replace_each_other() {
        let revision = Excluded::Revision(Revision(1));
        let definition = |exclusions: &Exclusions| exclusions.revisions().count();
        let mut exclusions = Exclusions::default();
        assert_eq!(exclusions.add(at(0), revision, BACKOFF), Some(at(1)));
        assert_eq!(exclusions.add(at(0), revision, ExclusionBackoff::UNTIL_RESTART), None);
        exclusions.expire(at(5));
        assert_eq!(definition(&exclusions), 1, "the policy still forbids it");
        assert_eq!(exclusions.add(at(10), revision, BACKOFF), Some(at(12)));
        let other = ExclusionBackoff { first: Duration::from_secs(60), max: Duration::from_secs(600) };
        assert_eq!(exclusions.add(at(11), revision, other), Some(at(71)), "the first of its kind");
    }

    #[test]
    fn only_exclusions_in_force_are_listed() {
        let mut exclusions = Exclusions::default();
        exclusions.add(at(0), Excluded::Anything, BACKOFF);
        exclusions.add(at(0), Excluded::Suspect, BACKOFF);
        exclusions.add(at(0), Excluded::Revision(Revision(1)), ExclusionBackoff::UNTIL_RESTART);
        let listed = |exclusions: &Exclusions| exclusions.in_force().collect::<Vec<_>>();
        let forbidden = (Excluded::Revision(Revision(1)), None);
        assert_eq!(listed(&exclusions), [(Excluded::Anything, Some(at(1))), forbidden]);
        exclusions.expire(at(5));
        assert_eq!(listed(&exclusions), [forbidden]);
    }

    #[test]
    fn the_number_of_exclusions_is_limited_and_ended_ones_go_first_and_then_the_oldest() {
        let revision = |number: usize| Excluded::Revision(Revision(number as u128));
        let mut exclusions = Exclusions::default();
        for number in 0..EXCLUSIONS_MAX {
            exclusions.add(at(0), revision(number), ExclusionBackoff::UNTIL_RESTART);
        }
        // The third one ends, and is excluded anew: it is the youngest now.
        exclusions.list[2].active = false;
        exclusions.add(at(1), revision(2), ExclusionBackoff::UNTIL_RESTART);
        exclusions.list[5].active = false;
        let ended = exclusions.list[5].of;
        for number in EXCLUSIONS_MAX..EXCLUSIONS_MAX + 4 {
            exclusions.add(at(2), revision(number), ExclusionBackoff::UNTIL_RESTART);
        }
        let left: Vec<_> = exclusions.list.iter().map(|it| it.of).collect();
        assert_eq!(left.len(), EXCLUSIONS_MAX);
        assert!(!left.contains(&ended), "the ended one goes first");
        assert!([0, 1, 3].iter().all(|number| !left.contains(&revision(*number))), "then the oldest ones");
        assert!(left.contains(&revision(2)), "a new exclusion of a former one is young");
        assert!(left.contains(&revision(EXCLUSIONS_MAX - 1)), "so is the last of the first ones");
    }

    #[test]
    fn each_exclusion_in_a_row_is_twice_as_long_up_to_its_maximum() {
        let mut exclusions = Exclusions::default();
        let mut until = Vec::new();
        for start in [0, 10, 20] {
            until.push(exclusions.add(at(start), Excluded::Anything, BACKOFF));
            assert_eq!(exclusions.add(at(start), Excluded::Anything, BACKOFF), None, "one fault, one strike");
            exclusions.expire(at(start + 5));
        }
        assert_eq!(until, [Some(at(1)), Some(at(12)), Some(at(23))]);
    }
}
