//! The definitions as of the last good reading of jobs.yaml.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use protocol::Revision;
use scheduler::definition::Definition;

use crate::store::StoredDefinition;

/// An entry of jobs.yaml with what only people look at.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What decisions are made of.
    pub definition: Arc<Definition>,
    /// What is kept of it with its jobs.
    pub stored: Arc<StoredDefinition>,
    /// For people.
    pub description: Option<String>,
    /// Whom to ask.
    pub owner: Option<String>,
    /// For people and filters.
    pub tags: Vec<String>,
}

/// The definitions as of one reading of jobs.yaml, by name.
#[derive(Clone, Debug, Default)]
pub struct Definitions {
    entries: BTreeMap<String, Arc<Entry>>,
}

impl Definitions {
    /// Takes the entries of one file; their names are unique.
    #[must_use]
    pub fn new(entries: Vec<Entry>) -> Self {
        Self {
            entries: entries
                .into_iter()
                .map(|entry| (entry.definition.name.clone(), Arc::new(entry)))
                .collect(),
        }
    }

    /// The entry with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<Entry>> {
        self.entries.get(name)
    }

    /// All entries, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.values()
    }

    /// The entry with this revision.
    #[must_use]
    pub fn find_revision(&self, revision: Revision) -> Option<&Arc<Entry>> {
        self.iter().find(|entry| entry.definition.revision == revision)
    }
}

/// The current definitions, shared: readers take a whole consistent set, a reload replaces it.
#[derive(Debug, Default)]
pub struct Catalogue {
    current: RwLock<Arc<Definitions>>,
}

impl Catalogue {
    /// Starts with these.
    #[must_use]
    pub fn new(definitions: Definitions) -> Self {
        Self { current: RwLock::new(Arc::new(definitions)) }
    }

    /// The definitions of now.
    #[must_use]
    pub fn current(&self) -> Arc<Definitions> {
        // A poisoned lock still holds a whole set: writers only swap.
        self.current.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Replaces them all.
    pub fn replace(&self, definitions: Definitions) {
        *self.current.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(definitions);
    }
}
