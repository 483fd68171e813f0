//! What a worker is not offered for now, because it could not take it or failed to start it (DESIGN.md section 3).
//!
//! Each time in a row it is twice as long. What comes while an exclusion lasts is part of the same fault; a start that works pardons.

use alloc::vec::Vec;
use core::time::Duration;

use protocol::{Revision, RuntimeKind, Uptime};

use crate::definition::Definition;

/// Which jobs an exclusion is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excluded {
    /// All.
    Anything,
    /// Those that this runtime carries out.
    Runtime(RuntimeKind),
    /// Those of this revision.
    Revision(Revision),
}

impl Excluded {
    fn covers(self, definition: &Definition) -> bool {
        match self {
            Self::Anything => true,
            Self::Runtime(runtime) => runtime == definition.runtime(),
            Self::Revision(revision) => revision == definition.revision,
        }
    }
}

/// How long exclusions of one kind last.
#[derive(Clone, Copy, Debug)]
pub struct Sentence {
    /// The first time.
    pub first: Duration,
    /// At the longest.
    pub max: Duration,
}

impl Sentence {
    /// Until another process of the worker connects.
    pub const FOR_GOOD: Self = Self { first: Duration::MAX, max: Duration::MAX };
}

/// What one worker is not offered for now.
#[derive(Clone, Debug, Default)]
pub struct Exclusions {
    list: Vec<Exclusion>,
}

#[derive(Clone, Copy, Debug)]
struct Exclusion {
    of: Excluded,
    /// Until then; absent: until another process of the worker connects.
    until: Option<Uptime>,
    strikes: u32,
    /// Whether it is still in force; kept after its end so that the next one is longer.
    active: bool,
}

impl Exclusions {
    /// Whether jobs of this definition are not offered now.
    #[must_use]
    pub fn cover(&self, definition: &Definition) -> bool {
        self.list.iter().any(|it| it.active && it.of.covers(definition))
    }

    /// The exclusion that keeps jobs of this definition away for longest, and until when; `None`: until the worker starts anew.
    #[must_use]
    pub fn covering(&self, definition: &Definition) -> Option<(Excluded, Option<Uptime>)> {
        let covering = self.list.iter().filter(|it| it.active && it.of.covers(definition));
        covering.max_by_key(|it| it.until.unwrap_or(Uptime(u64::MAX))).map(|it| (it.of, it.until))
    }

    /// The revisions that are not offered now, each for itself.
    pub fn revisions(&self) -> impl Iterator<Item = Revision> {
        self.list.iter().filter(|it| it.active).filter_map(|it| match it.of {
            Excluded::Revision(revision) => Some(revision),
            Excluded::Anything | Excluded::Runtime(_) => None,
        })
    }

    /// When those that are in force end: for the audit.
    pub fn ends(&self) -> impl Iterator<Item = Uptime> {
        self.list.iter().filter(|it| it.active).filter_map(|it| it.until)
    }

    /// Excludes these jobs. Returns when they may be offered again, if that is new.
    pub fn add(&mut self, now: Uptime, of: Excluded, sentence: Sentence) -> Option<Uptime> {
        let old = self.list.iter().position(|it| it.of == of);
        if old.is_some_and(|position| self.list[position].active) {
            return None;
        }
        let strikes = old.map_or(1, |position| self.list.swap_remove(position).strikes.saturating_add(1));
        let doubled = 1_u32.checked_shl(strikes - 1).unwrap_or(u32::MAX);
        let duration = sentence.first.saturating_mul(doubled).min(sentence.max);
        let until = (duration < Duration::MAX).then(|| now + duration);
        self.list.push(Exclusion { of, until, strikes, active: true });
        until
    }

    /// Lets those end whose time is over.
    pub fn expire(&mut self, now: Uptime) {
        for exclusion in self.list.iter_mut().filter(|it| it.until.is_some_and(|until| until <= now)) {
            exclusion.active = false;
        }
    }

    /// A start of this definition worked: what was before counts no more.
    pub fn pardon(&mut self, definition: &Definition) {
        self.list.retain(|it| it.active || !it.of.covers(definition));
    }

    /// The worker says itself that this runtime is back: that counts for more than our waiting.
    pub fn lift(&mut self, runtime: RuntimeKind) {
        self.list.retain(|it| it.of != Excluded::Runtime(runtime));
    }

    /// Forgets them all.
    pub fn clear(&mut self) {
        self.list.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENTENCE: Sentence = Sentence { first: Duration::from_secs(1), max: Duration::from_secs(3) };

    fn at(seconds: u64) -> Uptime {
        Uptime(seconds * 1_000_000_000)
    }

    #[test]
    fn each_exclusion_in_a_row_is_twice_as_long_up_to_its_maximum() {
        let mut exclusions = Exclusions::default();
        let mut until = Vec::new();
        for start in [0, 10, 20] {
            until.push(exclusions.add(at(start), Excluded::Anything, SENTENCE));
            assert_eq!(
                exclusions.add(at(start), Excluded::Anything, SENTENCE),
                None,
                "one fault, one strike"
            );
            exclusions.expire(at(start + 5));
        }
        assert_eq!(until, [Some(at(1)), Some(at(12)), Some(at(23))]);
    }
}
