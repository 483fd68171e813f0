//! The definitions of the last valid jobs.yaml.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::ops::Bound;
use std::sync::{Arc, OnceLock, RwLock};

use protocol::Revision;
use scheduler::definition::Definition;
use scheduler::params::Param;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use crate::notifications::target::{Target, Targets};
use crate::policy::Policy;
use crate::retention_rule::RetentionRule;
use crate::store::{DefinitionHash, DefinitionHashes, NotifyRules, StoredDefinition};

/// An entry of jobs.yaml: the definition and its descriptive keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The keys that the scheduler uses.
    pub definition: Arc<Definition>,
    /// The form that the store keeps with the definition's jobs.
    pub stored: Arc<StoredDefinition>,
    /// The name of its file, if the definitions are read from a directory. It is not part of a revision.
    pub file: Option<Arc<str>>,
    /// The names of its parameters in the order of the file, in which people see them. The definition has them by name.
    pub params_in_order: Vec<String>,
    /// Free text, shown by the API.
    pub description: Option<String>,
    /// Free text: the person or team to ask.
    pub owner: Option<String>,
    /// Words by which lists can be filtered.
    pub tags: Vec<String>,
    /// The targets of its notifications.
    pub notify: Targets,
    /// The rule for its ended jobs.
    pub retention: RetentionRule,
}

impl Entry {
    /// True if a key differs. The file does not count.
    #[must_use]
    pub fn differs_from(&self, other: &Self) -> bool {
        if self.file == other.file {
            return self != other;
        }
        Self { file: other.file.clone(), ..self.clone() } != *other
    }

    /// A hash of all its keys, apart from secrets of webhooks. Another build of this program may hash the same keys to another value.
    #[must_use]
    pub fn hash(&self) -> Revision {
        let mut hash = Hash(Sha256::new());
        let written = self.write_all_keys(&mut hash);
        debug_assert_eq!(written, Ok(()), "a hash takes any text");
        hash.finish()
    }

    fn write_all_keys(&self, hash: &mut Hash) -> fmt::Result {
        let Self {
            definition,
            stored: _,
            file: _,
            params_in_order,
            description,
            owner,
            tags,
            notify,
            retention,
        } = self;
        let Definition { name, revision, expect, timetable, .. } = &**definition;
        let targets: Vec<_> = notify.iter().map(Target::shown_keys).collect();
        // The form for debugging has all of a value. It only has to be the same while this program runs, and in the next run of it.
        write!(hash, "{name:?} {revision:?} {expect:?} {timetable:?} ")?;
        write!(hash, "{params_in_order:?} {description:?} {owner:?} {tags:?} {targets:?} {retention:?}")
    }

    /// The parameters in the order of the file; those that it does not name come last, by name.
    #[must_use]
    pub fn params(&self) -> Vec<&Param> {
        let place = |param: &&Param| self.params_in_order.iter().position(|name| *name == param.name);
        let mut params: Vec<&Param> = self.definition.submission.params.declared.iter().collect();
        params.sort_by_cached_key(|param| place(param).unwrap_or(usize::MAX));
        params
    }
}

/// Hashes the text that is written to it.
struct Hash(Sha256);

impl Hash {
    fn finish(self) -> Revision {
        let hash = self.0.finalize();
        Revision(u128::from_be_bytes(std::array::from_fn(|index| hash[index])))
    }
}

/// A hash of the form for debugging of a value.
pub(crate) fn hash_of(value: &impl fmt::Debug) -> Revision {
    let mut hash = Hash(Sha256::new());
    let written = write!(hash, "{value:?}");
    debug_assert_eq!(written, Ok(()), "a hash takes any text");
    hash.finish()
}

impl fmt::Write for Hash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

/// The definitions as of one reading of jobs.yaml, by name.
#[derive(Clone, Debug, Default)]
pub struct Definitions {
    entries: BTreeMap<String, Arc<Entry>>,
    policy: Arc<Policy>,
    /// Computed once: it takes a tenth of a second for a very large file.
    hashes: OnceLock<Arc<DefinitionHashes>>,
    revision: OnceLock<Revision>,
    /// Definitions with targets of notifications that jobs.yaml had since the start of the server and has no more, the one that left last at the
    /// end. Their jobs and their messages may live on. Targets hold secrets, so they are not stored, and a start knows none of them.
    removed: Vec<Arc<Entry>>,
}

/// Removed definitions whose targets are kept: a person would not remove more in the lifetime of their jobs.
const REMOVED_MAX: usize = 1_000;

impl Definitions {
    /// Takes the entries of one file or directory; their names are unique.
    #[must_use]
    pub fn new(entries: Vec<Entry>) -> Self {
        Self {
            entries: entries
                .into_iter()
                .map(|entry| (entry.definition.name.clone(), Arc::new(entry)))
                .collect(),
            policy: Arc::default(),
            hashes: OnceLock::new(),
            revision: OnceLock::new(),
            removed: Vec::new(),
        }
    }

    /// Holds the policy that the entries keep, for the jobs that people make of them.
    #[must_use]
    pub fn with_policy(self, policy: Arc<Policy>) -> Self {
        Self { policy, ..self }
    }

    /// Keeps the targets of definitions that the former set had, or kept itself, and that this one has not.
    #[must_use]
    pub fn keeping_targets_of(self, former: &Self) -> Self {
        let left = former.entries.values().filter(|entry| !entry.notify.is_empty());
        let is_removed = |entry: &&Arc<Entry>| !self.entries.contains_key(&entry.definition.name);
        let mut removed: Vec<Arc<Entry>> =
            former.removed.iter().chain(left).filter(is_removed).cloned().collect();
        removed.drain(..removed.len().saturating_sub(REMOVED_MAX));
        Self { removed, ..self }
    }

    /// The entry with this name, or the last one if jobs.yaml has no more of that name: for messages about its jobs.
    #[must_use]
    pub fn find_for_messages(&self, name: &str) -> Option<&Arc<Entry>> {
        self.find(name).or_else(|| self.removed.iter().find(|entry| entry.definition.name == name))
    }

    /// The policy of the server.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
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

    /// The revision of the whole set: a hash of all keys of its definitions, apart from secrets of webhooks. The revision of a definition
    /// leaves out keys that are not kept with jobs, such as schedules and retention.
    #[must_use]
    pub fn revision(&self) -> Revision {
        *self.revision.get_or_init(|| {
            let mut hash = Hash(Sha256::new());
            let hashes = self.hashes();
            let written = hashes.iter().try_for_each(|(name, it)| write!(hash, "{name:?} {} ", it.all));
            debug_assert_eq!(written, Ok(()), "a hash takes any text");
            hash.finish()
        })
    }

    /// The hashes of all definitions.
    #[must_use]
    pub fn hashes(&self) -> Arc<DefinitionHashes> {
        let hash =
            |entry: &Arc<Entry>| DefinitionHash { revision: entry.definition.revision, all: entry.hash() };
        let all = || self.iter().map(|entry| (entry.definition.name.clone(), hash(entry))).collect();
        self.hashes.get_or_init(|| Arc::new(all())).clone()
    }

    /// The targets of notifications, as the store needs them; also those of removed definitions that are kept.
    #[must_use]
    pub fn notify_rules(&self) -> Arc<NotifyRules> {
        let with_targets = self.iter().filter(|entry| !entry.notify.is_empty()).chain(&self.removed);
        let rules = with_targets.map(|entry| {
            (entry.definition.name.as_str().into(), entry.notify.iter().map(Target::rule).collect())
        });
        Arc::new(NotifyRules(rules.collect()))
    }

    /// Definitions after this name that have a rule for their ended jobs, at most `limit`, by name.
    #[must_use]
    pub fn retention_rules(&self, after: &str, limit: usize) -> Vec<(&str, RetentionRule)> {
        let behind = (Bound::Excluded(after), Bound::Unbounded);
        let entries = self.entries.range::<str, _>(behind).filter(|(_, entry)| !entry.retention.is_empty());
        entries.map(|(name, entry)| (name.as_str(), entry.retention)).take(limit).collect()
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
    replaced: Notify,
}

impl Catalogue {
    /// Starts with these definitions.
    #[must_use]
    pub fn new(definitions: Definitions) -> Self {
        Self { current: RwLock::new(Arc::new(definitions)), replaced: Notify::new() }
    }

    /// The definitions at this moment.
    #[must_use]
    pub fn current(&self) -> Arc<Definitions> {
        // A poisoned lock still holds a whole set: writers only swap.
        self.current.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Replaces all definitions.
    pub fn replace(&self, definitions: Definitions) {
        *self.current.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(definitions);
        self.replaced.notify_one();
    }

    /// Waits until the definitions are replaced. One task waits: each replacement wakes one.
    ///
    /// # Cancel safety
    /// A replacement that came meanwhile ends the next wait.
    pub async fn replaced(&self) {
        self.replaced.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::jobs_file::{self, Environment};

    fn parse(text: &str) -> Definitions {
        let file =
            jobs_file::parse(text, Path::new("jobs.yaml"), &Environment::default()).expect("no faults");
        Definitions::new(file.definitions)
    }

    /// These definitions, each with a target, and one without.
    fn definitions(names: &[&str]) -> Definitions {
        let entry = |name: &&str| {
            format!("  {name}: {{image: x, notify: {{slack: 'https://chat.example/{name}'}}}}\n")
        };
        parse(&format!("jobs:\n  plain: {{image: x}}\n{}", names.iter().map(entry).collect::<String>()))
    }

    #[test]
    fn targets_of_removed_definitions_are_kept_until_the_definition_is_back() {
        let first = definitions(&["a", "b"]);
        let second = definitions(&["b"]).keeping_targets_of(&first);
        let third = definitions(&[]).keeping_targets_of(&second);
        let count = |set: &Definitions, name| set.find_for_messages(name).map(|entry| entry.notify.len());
        let counts = ["a", "b", "plain", "c"].map(|name| count(&third, name));
        assert_eq!(counts, [Some(1), Some(1), Some(0), None]);
        assert!(third.find("a").is_none());
        let mut rules: Vec<String> = third.notify_rules().0.keys().map(ToString::to_string).collect();
        rules.sort();
        assert_eq!(rules, ["a", "b"]);
        assert_eq!(third.revision(), definitions(&[]).revision());

        let back = definitions(&["a"]).keeping_targets_of(&third);
        assert_eq!(back.removed.iter().map(|entry| &*entry.definition.name).collect::<Vec<_>>(), ["b"]);
        // Without `notify` it has no targets, whatever it had before.
        let silent = parse("jobs: {a: {image: x}}\n").keeping_targets_of(&back);
        assert!(!silent.notify_rules().0.contains_key("a"));
    }

    #[test]
    fn so_many_removed_definitions_are_kept() {
        let names: Vec<String> = (0..REMOVED_MAX + 2).map(|number| format!("n{number:04}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let kept = definitions(&[]).keeping_targets_of(&definitions(&names));
        assert_eq!(kept.removed.len(), REMOVED_MAX);
        assert!(kept.find_for_messages("n0001").is_none() && kept.find_for_messages("n0002").is_some());
    }
}
