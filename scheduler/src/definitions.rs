//! The definitions that jobs refer to: those of the last reading of jobs.yaml, those of the reading before it (a request may just
//! have looked one up), and those that unfinished jobs were made with.

use alloc::sync::Arc;
use alloc::vec::Vec;

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
}

#[derive(Debug)]
struct Known {
    definition: Arc<Definition>,
    jobs: u64,
    /// How many readings of jobs.yaml ago it was last in the file.
    age: u32,
}

impl Definitions {
    /// Starts empty.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self { known: Vec::new(), by_revision: Table::with_hasher(seed) }
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
            }
        }
    }

    /// Makes sure that a definition is known, current or not.
    pub fn learn(&mut self, definition: Arc<Definition>) -> DefinitionNo {
        if let Some(number) = self.by_revision.get(&definition.revision) {
            return *number;
        }
        let free = self.known.iter().position(Option::is_none).unwrap_or(self.known.len());
        let number = DefinitionNo(u32::try_from(free).unwrap_or(u32::MAX));
        self.by_revision.insert(definition.revision, number);
        let known = Known { definition, jobs: 0, age: 1 };
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

    fn slot_mut(&mut self, number: DefinitionNo) -> Option<&mut Known> {
        self.known.get_mut(number.0 as usize).and_then(Option::as_mut)
    }
}
