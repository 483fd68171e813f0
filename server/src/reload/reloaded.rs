//! The effect of a reload.

use std::fmt::Display;
use std::sync::Arc;

use protocol::Revision;

use crate::auth::audit::note;
use crate::catalogue::{Definitions, Entry};

/// The effect of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Number of definitions afterwards.
    pub definitions: usize,
    /// Revision of the whole set afterwards.
    pub revision: Revision,
    /// Names of new definitions.
    pub added: Vec<String>,
    /// Names of definitions with another revision.
    pub changed: Vec<String>,
    /// Names of definitions that are gone.
    pub removed: Vec<String>,
    /// The policy has other rules than before.
    pub policy_changed: bool,
    /// Warnings of the file, with their position.
    pub warnings: Vec<String>,
}

impl Reloaded {
    /// The effect of the new definitions, without the warnings.
    pub(super) fn between(before: &Definitions, after: &Definitions) -> Self {
        let name = |entry: &Arc<Entry>| entry.definition.name.clone();
        let is_in = |definitions: &Definitions, name: &str| definitions.find(name).is_some();
        Self {
            definitions: after.iter().count(),
            revision: after.revision(),
            added: after.iter().map(name).filter(|name| !is_in(before, name)).collect(),
            changed: after
                .iter()
                .filter(|entry| {
                    before.find(&entry.definition.name).is_some_and(|old| old.differs_from(entry))
                })
                .map(name)
                .collect(),
            removed: before.iter().map(name).filter(|name| !is_in(after, name)).collect(),
            policy_changed: before.policy() != after.policy(),
            warnings: Vec::new(),
        }
    }

    /// Writes the effect into the log.
    pub(super) fn log(&self, path: &dyn Display, message: &str) {
        tracing::info!(
            definitions = self.definitions,
            added = ?self.added,
            changed = ?self.changed,
            removed = ?self.removed,
            %path,
            "{message}"
        );
    }

    /// The difference in words; nothing if there is none.
    #[must_use]
    pub fn changes(&self) -> Option<String> {
        let definitions = note::changes([
            ("added", self.added.iter().collect()),
            ("changed", self.changed.iter().collect()),
            ("removed", self.removed.iter().collect()),
        ]);
        let policy = self.policy_changed.then(|| "changed the policy".to_owned());
        // The list comes last, since a long text is cut.
        let parts: Vec<String> = policy.into_iter().chain(definitions).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}
