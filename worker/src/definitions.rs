//! Definitions that the server has sent, by revision, in a bounded table. The worker asks again for one that
//! was dropped.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use protocol::Revision;
use protocol::order::Definition;

use crate::attempt::ResolvedDefinition;
use crate::policy::Policy;

/// A few megabytes at most. A server with more revisions in use makes the worker ask again.
pub(crate) const DEFINITIONS_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Definitions {
    table: BTreeMap<Revision, Entry>,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    known: ResolvedDefinition,
    used: u64,
}

impl Definitions {
    /// Keeps a definition. If the table is full, the least recently used one is dropped.
    pub(crate) fn insert(&mut self, definition: Definition, policy: &Policy) -> ResolvedDefinition {
        if self.table.len() >= DEFINITIONS_MAX && !self.table.contains_key(&definition.revision) {
            let oldest = self.table.iter().min_by_key(|(_, entry)| entry.used).map(|(revision, _)| *revision);
            if let Some(oldest) = oldest {
                self.table.remove(&oldest);
            }
        }
        let forbidden = policy.forbids(&definition.container);
        let (name, spec) = (Arc::from(definition.name), Arc::new(definition.container));
        let known = ResolvedDefinition { name, spec, forbidden };
        self.clock += 1;
        let entry = Entry { known: known.clone(), used: self.clock };
        self.table.insert(definition.revision, entry);
        known
    }

    pub(crate) fn find(&mut self, revision: Revision) -> Option<ResolvedDefinition> {
        let entry = self.table.get_mut(&revision)?;
        self.clock += 1;
        entry.used = self.clock;
        Some(entry.known.clone())
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(revision: u128) -> Definition {
        Definition {
            revision: Revision(revision),
            name: "n".into(),
            container: protocol::ContainerSpec::default(),
        }
    }

    #[test]
    fn a_full_table_gives_up_what_was_not_used_for_longest() {
        let mut definitions = Definitions::default();
        for revision in 0..DEFINITIONS_MAX as u128 {
            definitions.insert(definition(revision), &Policy::allow_all());
        }
        assert!(definitions.find(Revision(0)).is_some());

        definitions.insert(definition(5_000), &Policy::allow_all());

        assert_eq!(definitions.len(), DEFINITIONS_MAX);
        assert!(definitions.find(Revision(0)).is_some());
        assert!(definitions.find(Revision(1)).is_none());
        assert!(definitions.find(Revision(5_000)).is_some());
    }
}
