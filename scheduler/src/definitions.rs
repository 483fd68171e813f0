//! The definitions that jobs refer to: those of the last reading of jobs.yaml, those of the reading before it (a request may just
//! have looked one up), and those that unfinished jobs were made with.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::Revision;

use crate::definition::Definition;
use crate::table::{Seed, Table};

/// A definition's place in the table: four bytes in each job instead of a whole revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DefinitionNo(pub u32);

/// The definitions that jobs refer to.
#[derive(Debug)]
pub struct Definitions {
    known: Vec<Option<Known>>,
    by_revision: Table<Revision, DefinitionNo>,
    /// All of them once more, for those who look on from outside: handed out as it is, and copied only if it changes while they have it.
    published: Arc<BTreeMap<Revision, Arc<Definition>>>,
}

#[derive(Debug)]
struct Known {
    definition: Arc<Definition>,
    jobs: u64,
    /// How many readings of jobs.yaml ago it was last in the file.
    age: u32,
    /// How often its worker is to be heard of, by what the file says now under its name, or else by what it said then.
    ping: Option<Duration>,
}

impl Definitions {
    /// Starts empty.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self { known: Vec::new(), by_revision: Table::with_hasher(seed), published: Arc::default() }
    }

    /// Takes a reading of jobs.yaml; drops what is neither in it, nor in the one before, nor in use.
    pub fn replace(&mut self, current: Vec<Arc<Definition>>) {
        for known in self.known.iter_mut().flatten() {
            known.age = known.age.saturating_add(1);
        }
        for definition in current {
            let number = self.learn(definition);
            if let Some(known) = self.slot_mut(number) {
                known.age = 0;
            }
        }
        for slot in &mut self.known {
            if slot.as_ref().is_some_and(|known| known.age > 1 && known.jobs == 0)
                && let Some(known) = slot.take()
            {
                self.by_revision.remove(&known.definition.revision);
                Arc::make_mut(&mut self.published).remove(&known.definition.revision);
            }
        }
        self.renew_pings();
    }

    /// A changed interval holds for what was made before, too (DESIGN.md section 5).
    fn renew_pings(&mut self) {
        let current: BTreeMap<String, Option<Duration>> =
            self.current().map(|definition| (definition.name.clone(), definition.loss.ping)).collect();
        for known in self.known.iter_mut().flatten() {
            known.ping = current.get(&known.definition.name).copied().unwrap_or(known.definition.loss.ping);
        }
    }

    /// What the file says now.
    fn current(&self) -> impl Iterator<Item = &Definition> {
        self.known.iter().flatten().filter(|known| known.age == 0).map(|known| known.definition.as_ref())
    }

    /// How often a worker that has one of these is to be heard of, if that is not left to the server.
    #[must_use]
    pub fn ping(&self, number: DefinitionNo) -> Option<Duration> {
        self.known.get(number.0 as usize).and_then(Option::as_ref).and_then(|known| known.ping)
    }

    /// Makes sure that a definition is known, current or not.
    pub fn learn(&mut self, definition: Arc<Definition>) -> DefinitionNo {
        if let Some(number) = self.by_revision.get(&definition.revision) {
            return *number;
        }
        let free = self.known.iter().position(Option::is_none).unwrap_or(self.known.len());
        let number = DefinitionNo(u32::try_from(free).unwrap_or(u32::MAX));
        self.by_revision.insert(definition.revision, number);
        Arc::make_mut(&mut self.published).insert(definition.revision, definition.clone());
        let namesake = self.current().find(|current| current.name == definition.name);
        let ping = namesake.map_or(definition.loss.ping, |current| current.loss.ping);
        let known = Known { definition, jobs: 0, age: 1, ping };
        match self.known.get_mut(free) {
            Some(slot) => *slot = Some(known),
            None => self.known.push(Some(known)),
        }
        number
    }

    /// The definition with this revision.
    #[must_use]
    pub fn find(&self, revision: Revision) -> Option<DefinitionNo> {
        self.by_revision.get(&revision).copied()
    }

    /// The definition at this place. Places come from this table and stay taken while a job refers to them.
    #[must_use]
    pub fn at(&self, number: DefinitionNo) -> Option<&Arc<Definition>> {
        self.known.get(number.0 as usize).and_then(Option::as_ref).map(|known| &known.definition)
    }

    /// All of them as they are now, by revision.
    #[must_use]
    pub fn published(&self) -> Arc<BTreeMap<Revision, Arc<Definition>>> {
        self.published.clone()
    }

    /// One job more refers to it.
    pub fn take(&mut self, number: DefinitionNo) {
        if let Some(known) = self.slot_mut(number) {
            known.jobs += 1;
        }
    }

    /// One job less refers to it.
    pub fn drop_one(&mut self, number: DefinitionNo) {
        if let Some(known) = self.slot_mut(number) {
            known.jobs = known.jobs.saturating_sub(1);
        }
    }

    /// How many jobs refer to each, by this table's own count: for the audit.
    pub fn counts(&self) -> impl Iterator<Item = (DefinitionNo, u64)> {
        let numbered = (0..).map(DefinitionNo).zip(&self.known);
        numbered.filter_map(|(number, known)| Some((number, known.as_ref()?.jobs)))
    }

    /// Whether what is published is what is known: for the audit.
    #[must_use]
    pub fn publishes_all(&self) -> bool {
        let known = || self.known.iter().flatten().map(|known| known.definition.revision);
        known().count() == self.published.len()
            && known().all(|revision| self.published.contains_key(&revision))
    }

    fn slot_mut(&mut self, number: DefinitionNo) -> Option<&mut Known> {
        self.known.get_mut(number.0 as usize).and_then(Option::as_mut)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use protocol::container::ContainerSpec;
    use protocol::{Now, Timestamp, Uptime};

    use super::*;
    use crate::config::{Config, Counters};
    use crate::definition::{LossPolicy, RetryPolicy};
    use crate::input::Input;
    use crate::scheduler::Scheduler;

    fn definition(revision: u128) -> Arc<Definition> {
        Arc::new(Definition {
            name: "resize".into(),
            revision: Revision(revision),
            enabled: true,
            priority: 0,
            timeout: None,
            retry: RetryPolicy::default(),
            loss: LossPolicy::default(),
            container: ContainerSpec::default(),
        })
    }

    fn published(definitions: &Definitions) -> Vec<u128> {
        definitions.published().keys().map(|revision| revision.0).collect()
    }

    #[test]
    fn an_older_revision_is_published_as_long_as_a_job_refers_to_it() {
        let mut definitions = Definitions::new(Seed(1));
        definitions.replace(vec![definition(1)]);
        let old = definitions.find(Revision(1)).expect("it is in the file");
        definitions.take(old);
        for revision in 2..5 {
            definitions.replace(vec![definition(revision)]);
        }
        assert_eq!(published(&definitions), [1, 3, 4], "nobody needs 2 any more");
        definitions.learn(definition(2));
        assert_eq!(published(&definitions), [1, 2, 3, 4]);
        definitions.drop_one(old);
        definitions.replace(vec![definition(4)]);
        assert_eq!(published(&definitions), [4]);
    }

    #[test]
    fn what_is_published_is_shared_and_not_copied_until_it_changes() {
        let mut definitions = Definitions::new(Seed(1));
        definitions.replace(vec![definition(1)]);
        let before = definitions.published();
        definitions.replace(vec![definition(1)]);
        assert!(Arc::ptr_eq(&before, &definitions.published()), "the file says the same as before");
        definitions.replace(vec![definition(2)]);
        assert_eq!((before.len(), published(&definitions).len()), (1, 2), "whoever had it still has it");
    }

    #[test]
    fn what_is_read_is_shown_although_no_job_has_changed() {
        let mut scheduler = Scheduler::new(Config::for_tests(), Counters::default());
        let now = Now { utc: Timestamp(0), up: Uptime(0) };
        for (input, shown) in [(Input::Define(vec![definition(1)]), 1), (Input::Learn(definition(2)), 2)] {
            scheduler.take_changed();
            scheduler.step(now, input);
            assert!(scheduler.take_changed());
            assert_eq!(scheduler.snapshot().definitions.len(), shown);
        }
    }
}
