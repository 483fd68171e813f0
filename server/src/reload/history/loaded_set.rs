//! Definitions as hashes, which outlive the process.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::LazyLock;

use protocol::Revision;

use crate::catalogue::{Definitions, hash_of};
use crate::reload::Reloaded;
use crate::store::{DefinitionHash, EntryHashes, LoadedSet};

/// The hashes of these definitions.
pub(in crate::reload) fn loaded_set(definitions: &Definitions) -> LoadedSet {
    let hashes = |hash: &DefinitionHash| EntryHashes {
        revision: hash.revision.to_string(),
        all: hash.all.to_string(),
    };
    LoadedSet {
        program: PROGRAM.clone(),
        revision: definitions.revision().to_string(),
        policy: hash_of(&definitions.policy()).to_string(),
        definitions: definitions.hashes().iter().map(|(name, hash)| (name.clone(), hashes(hash))).collect(),
    }
}

/// The difference between the definitions of the last load and those of a start. Hashes of all keys are compared only if the same
/// program has made them, as they are of the form that a value has in it; revisions are the same in each.
pub(in crate::reload) fn since_last_load(
    before: Option<&LoadedSet>,
    after: &LoadedSet,
    revision: Revision,
) -> Reloaded {
    let none = BTreeMap::new();
    let former = before.map_or(&none, |before| &before.definitions);
    let is_same_program = before.is_some_and(|before| before.program == after.program);
    let differs = |old: &EntryHashes, new: &EntryHashes| {
        old.revision != new.revision || is_same_program && old.all != new.all
    };
    let mut change = Reloaded {
        definitions: after.definitions.len(),
        revision,
        policy_changed: is_same_program && before.is_some_and(|before| before.policy != after.policy),
        ..Reloaded::default()
    };
    for (name, new) in &after.definitions {
        match former.get(name) {
            None => change.added.push(name.clone()),
            Some(old) if differs(old, new) => change.changed.push(name.clone()),
            Some(_) => {}
        }
    }
    change.removed = former.keys().filter(|name| !after.definitions.contains_key(*name)).cloned().collect();
    change
}

/// Version, size and time of this program.
static PROGRAM: LazyLock<String> = LazyLock::new(|| {
    let file = std::env::current_exe().and_then(fs::metadata);
    let build = file.map(|it| format!(" {} {}", it.len(), it.mtime())).unwrap_or_default();
    format!("{}{build}", env!("CARGO_PKG_VERSION"))
});
