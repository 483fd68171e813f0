//! The definitions that jobs refer to: those of the last two versions of jobs.yaml (a request may just have
//! looked one up), and those that unfinished jobs were created with.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::Revision;

use crate::definition::Definition;
use crate::fleet::classes::Need;
use crate::ids::DefinitionNo;
use crate::placement::narrowing::Narrowing;
use crate::placement::rules::{LabelRule, WorkerSelector};
use crate::table::{Seed, Table};

/// The table of definitions.
#[derive(Debug)]
pub struct Definitions {
    entries: Vec<Option<DefinitionEntry>>,
    /// Indices without a definition.
    free: BTreeSet<u32>,
    /// Rules of the current definitions by name that hold for older revisions, too.
    current: BTreeMap<String, CurrentRules>,
    by_revision: Table<Revision, DefinitionNo>,
    /// Revisions of the same definition.
    by_name: BTreeSet<(Arc<str>, DefinitionNo)>,
    /// Definitions with a narrowing, by the number of the definition itself.
    narrowed: BTreeMap<(DefinitionNo, Arc<Narrowing>), DefinitionNo>,
    /// All definitions by revision, for the snapshot. It is shared and copied only if it changes while a
    /// reader holds it.
    published: Arc<BTreeMap<Revision, Arc<Definition>>>,
}

#[derive(Debug)]
struct DefinitionEntry {
    definition: Arc<Definition>,
    /// Number of jobs, and of large batches in progress, that refer to it.
    references: u64,
    /// Number of loads of jobs.yaml since it was last in the file.
    age: u32,
    /// Rules that jobs.yaml has under this name, or had last.
    rules: CurrentRules,
    /// It stands for the jobs of another entry that ask for these workers.
    narrowing: Option<Arc<Narrowing>>,
    /// Number of entries that stand for jobs of this one with a narrowing.
    narrowings: usize,
}

/// Rules of a definition that hold for all of its revisions at once.
#[derive(Clone, Debug, Default)]
struct CurrentRules {
    /// Heartbeat interval of workers that hold its jobs.
    heartbeat: Option<Duration>,
    /// The only workers that may run its jobs; any if empty.
    workers: Vec<WorkerSelector>,
}

impl CurrentRules {
    fn of(definition: &Definition) -> Self {
        Self { heartbeat: definition.loss.heartbeat, workers: definition.placement.workers.clone() }
    }
}

impl DefinitionEntry {
    fn need(&self) -> Need {
        Need::of(&self.definition, &self.rules.workers, self.narrowing.clone())
    }
}

impl Definitions {
    /// Creates an empty table.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self {
            entries: Vec::new(),
            free: BTreeSet::new(),
            current: BTreeMap::new(),
            by_revision: Table::with_hasher(seed),
            by_name: BTreeSet::new(),
            narrowed: BTreeMap::new(),
            published: Arc::default(),
        }
    }

    /// Replaces the current definitions. Removes those that are neither in the file, nor in the version
    /// before it, nor in use.
    pub fn replace(&mut self, current: Vec<Arc<Definition>>) {
        for entry in self.entries.iter_mut().flatten() {
            entry.age = entry.age.saturating_add(1);
        }
        for definition in current {
            let number = self.add(definition);
            if let Some(entry) = self.entry_mut(number) {
                entry.age = 0;
            }
        }
        self.drop_unused_narrowed();
        for (number, slot) in (0..).zip(&mut self.entries) {
            if slot
                .as_ref()
                .is_some_and(|entry| entry.age > 1 && entry.references == 0 && entry.narrowings == 0)
                && let Some(entry) = slot.take()
            {
                self.free.insert(number);
                self.by_revision.remove(&entry.definition.revision);
                self.by_name.remove(&(entry.definition.name.as_str().into(), DefinitionNo(number)));
                Arc::make_mut(&mut self.published).remove(&entry.definition.revision);
            }
        }
        self.renew_rules();
    }

    /// Applies a changed interval or list of workers to older revisions, too (docs/design/leases-fencing-reconcile.md, L4).
    fn renew_rules(&mut self) {
        self.current = self
            .current()
            .map(|definition| (definition.name.clone(), CurrentRules::of(definition)))
            .collect();
        for entry in self.entries.iter_mut().flatten() {
            let current = self.current.get(&entry.definition.name).cloned();
            entry.rules = current.unwrap_or_else(|| CurrentRules::of(&entry.definition));
        }
    }

    /// Removes definitions with a narrowing that no job refers to.
    pub fn drop_unused_narrowed(&mut self) {
        let Self { entries, free, by_name, narrowed, .. } = self;
        narrowed.retain(|(base, _), number| {
            let slot = entries.get_mut(number.0 as usize);
            let Some(unused) = slot.and_then(|slot| slot.take_if(|it| it.references == 0)) else {
                return true;
            };
            free.insert(number.0);
            by_name.remove(&(unused.definition.name.as_str().into(), *number));
            if let Some(Some(base)) = entries.get_mut(base.0 as usize) {
                base.narrowings -= 1;
            }
            false
        });
    }

    /// The number of the jobs of a definition that have this narrowing, if there is one.
    #[must_use]
    pub fn find_narrowed(&self, base: DefinitionNo, narrowing: &Arc<Narrowing>) -> Option<DefinitionNo> {
        self.narrowed.get(&(base, narrowing.clone())).copied()
    }

    /// Gives the jobs of a definition that have this narrowing a number of their own.
    pub fn add_narrowed(&mut self, base: DefinitionNo, narrowing: Arc<Narrowing>) -> Option<DefinitionNo> {
        if let Some(number) = self.find_narrowed(base, &narrowing) {
            return Some(number);
        }
        let entry = self.entry_mut(base)?;
        entry.narrowings += 1;
        let narrowed = DefinitionEntry {
            definition: entry.definition.clone(),
            references: 0,
            // Never the current definition of its name.
            age: 1,
            rules: entry.rules.clone(),
            narrowing: Some(narrowing.clone()),
            narrowings: 0,
        };
        let number = self.add_entry(narrowed);
        self.narrowed.insert((base, narrowing), number);
        Some(number)
    }

    /// The narrowing of the jobs with this number.
    #[must_use]
    pub fn narrowing(&self, number: DefinitionNo) -> Option<&Arc<Narrowing>> {
        self.entries.get(number.0 as usize).and_then(Option::as_ref)?.narrowing.as_ref()
    }

    /// Number of definitions with a narrowing.
    #[must_use]
    pub fn narrowed_count(&self) -> usize {
        self.narrowed.len()
    }

    /// Number of definitions with a narrowing that a job refers to, and of different conditions among them. Walks over all of them.
    #[must_use]
    pub fn narrowings_in_use(&self) -> (usize, usize) {
        let is_used = |number: &DefinitionNo| {
            self.entries
                .get(number.0 as usize)
                .and_then(Option::as_ref)
                .is_some_and(|entry| entry.references > 0)
        };
        let used = self.narrowed.iter().filter(|(_, number)| is_used(number));
        let conditions: BTreeSet<&[LabelRule]> = used
            .clone()
            .map(|((_, narrowing), _)| &narrowing.requires[..])
            .filter(|conditions| !conditions.is_empty())
            .collect();
        (used.count(), conditions.len())
    }

    /// The definitions in the current file.
    fn current(&self) -> impl Iterator<Item = &Definition> {
        self.entries.iter().flatten().filter(|entry| entry.age == 0).map(|entry| entry.definition.as_ref())
    }

    /// Heartbeat interval of workers that hold a job of this definition, if it asks for one.
    #[must_use]
    pub fn heartbeat(&self, number: DefinitionNo) -> Option<Duration> {
        self.entries.get(number.0 as usize).and_then(Option::as_ref).and_then(|entry| entry.rules.heartbeat)
    }

    /// Adds a definition if the table does not have it, current or not.
    pub fn add(&mut self, definition: Arc<Definition>) -> DefinitionNo {
        if let Some(number) = self.by_revision.get(&definition.revision) {
            return *number;
        }
        let revision = definition.revision;
        Arc::make_mut(&mut self.published).insert(revision, definition.clone());
        let current = self.current.get(&definition.name).cloned();
        let rules = current.unwrap_or_else(|| CurrentRules::of(&definition));
        let entry =
            DefinitionEntry { definition, references: 0, age: 1, rules, narrowing: None, narrowings: 0 };
        let number = self.add_entry(entry);
        self.by_revision.insert(revision, number);
        number
    }

    fn add_entry(&mut self, entry: DefinitionEntry) -> DefinitionNo {
        let free = self.free.pop_first().map_or(self.entries.len(), |number| number as usize);
        let number = DefinitionNo(u32::try_from(free).unwrap_or(u32::MAX));
        self.by_name.insert((entry.definition.name.as_str().into(), number));
        match self.entries.get_mut(free) {
            Some(slot) => *slot = Some(entry),
            None => self.entries.push(Some(entry)),
        }
        number
    }

    /// The index of this revision.
    #[must_use]
    pub fn find(&self, revision: Revision) -> Option<DefinitionNo> {
        self.by_revision.get(&revision).copied()
    }

    /// The indices of all revisions of a definition, and of its jobs with narrowings.
    pub fn named(&self, name: &str) -> impl Iterator<Item = DefinitionNo> {
        let name: Arc<str> = name.into();
        let range = (name.clone(), DefinitionNo(0))..=(name, DefinitionNo(u32::MAX));
        self.by_name.range(range).map(|(_, number)| *number)
    }

    /// The definition at this index. An index stays valid while a job refers to it.
    #[must_use]
    pub fn at(&self, number: DefinitionNo) -> Option<&Arc<Definition>> {
        self.entries.get(number.0 as usize).and_then(Option::as_ref).map(|entry| &entry.definition)
    }

    /// The need of the definition at this index.
    #[must_use]
    pub fn need(&self, number: DefinitionNo) -> Option<Need> {
        self.entries.get(number.0 as usize).and_then(Option::as_ref).map(DefinitionEntry::need)
    }

    /// The needs of all definitions.
    pub fn needs(&self) -> impl Iterator<Item = (DefinitionNo, Need)> {
        let numbered = (0..).map(DefinitionNo).zip(&self.entries);
        numbered.filter_map(|(number, entry)| Some((number, entry.as_ref()?.need())))
    }

    /// All definitions by revision, shared.
    #[must_use]
    pub fn published(&self) -> Arc<BTreeMap<Revision, Arc<Definition>>> {
        self.published.clone()
    }

    /// Counts one more job, or large batch in progress, that refers to it.
    pub fn add_reference(&mut self, number: DefinitionNo) {
        if let Some(entry) = self.entry_mut(number) {
            entry.references += 1;
        }
    }

    /// Counts one job, or large batch in progress, less that refers to it.
    pub fn drop_reference(&mut self, number: DefinitionNo) {
        if let Some(entry) = self.entry_mut(number) {
            entry.references = entry.references.saturating_sub(1);
        }
    }

    /// Number of jobs that refer to each definition, for the audit.
    pub fn counts(&self) -> impl Iterator<Item = (DefinitionNo, u64)> {
        let numbered = (0..).map(DefinitionNo).zip(&self.entries);
        numbered.filter_map(|(number, entry)| Some((number, entry.as_ref()?.references)))
    }

    /// The shared map equals the table, for the audit.
    #[must_use]
    pub fn publishes_all(&self) -> bool {
        let unnarrowed = self.entries.iter().flatten().filter(|entry| entry.narrowing.is_none());
        let mut revisions = unnarrowed.map(|entry| entry.definition.revision);
        revisions.clone().count() == self.published.len()
            && revisions.all(|revision| self.published.contains_key(&revision))
    }

    fn entry_mut(&mut self, number: DefinitionNo) -> Option<&mut DefinitionEntry> {
        self.entries.get_mut(number.0 as usize).and_then(Option::as_mut)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use protocol::{Now, Timestamp, Uptime};

    use super::*;
    use crate::config::{Config, Counters};
    use crate::core::Scheduler;
    use crate::input::Input;

    fn published(definitions: &Definitions) -> Vec<u128> {
        definitions.published().keys().map(|revision| revision.0).collect()
    }

    #[test]
    fn an_older_revision_is_published_as_long_as_a_job_refers_to_it() {
        let mut definitions = Definitions::new(Seed(1));
        definitions.replace(vec![Definition::for_tests(1)]);
        let old = definitions.find(Revision(1)).expect("it is in the file");
        definitions.add_reference(old);
        for revision in 2..5 {
            definitions.replace(vec![Definition::for_tests(revision)]);
        }
        assert_eq!(published(&definitions), [1, 3, 4], "nobody needs 2 any more");
        definitions.add(Definition::for_tests(2));
        assert_eq!(published(&definitions), [1, 2, 3, 4]);
        definitions.drop_reference(old);
        definitions.replace(vec![Definition::for_tests(4)]);
        assert_eq!(published(&definitions), [4]);
    }

    #[test]
    fn the_published_map_is_shared_until_it_changes() {
        let mut definitions = Definitions::new(Seed(1));
        definitions.replace(vec![Definition::for_tests(1)]);
        let before = definitions.published();
        definitions.replace(vec![Definition::for_tests(1)]);
        assert!(Arc::ptr_eq(&before, &definitions.published()), "the file says the same as before");
        definitions.replace(vec![Definition::for_tests(2)]);
        assert_eq!(
            (before.len(), published(&definitions).len()),
            (1, 2),
            "a holder of the old map still has it"
        );
    }

    #[test]
    fn a_new_definition_changes_the_snapshot() {
        let mut scheduler = Scheduler::new(Config::for_tests(), Counters::default());
        let now = Now { utc: Timestamp(0), up: Uptime(0) };
        for (input, shown) in [
            (Input::ReplaceDefinitions(vec![Definition::for_tests(1)]), 1),
            (Input::AddDefinition(Definition::for_tests(2)), 2),
        ] {
            scheduler.take_changed();
            scheduler.step(now, input);
            assert!(scheduler.take_changed());
            assert_eq!(scheduler.snapshot().definitions.len(), shown);
        }
    }
}
