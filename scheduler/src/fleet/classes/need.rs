//! Needs of definitions: placement rules, as far as they are matched with workers.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::{RuntimeKind, WorkerId};

use crate::definition::Definition;
use crate::placement::narrowing::{Narrowing, is_listed};
use crate::placement::rules::{LabelRule, Preference, WorkerSelector};
use crate::reservation::Reservation;

/// The placement rules of a definition, as far as they are matched with workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// The runtime of its jobs.
    pub runtime: RuntimeKind,
    /// The lowest protocol version of a worker that can run them.
    pub protocol: u16,
    /// Conditions on labels.
    pub requires: Vec<LabelRule>,
    /// Weighted conditions.
    pub prefers: Vec<Preference>,
    /// The only workers; any if empty.
    pub workers: Vec<WorkerSelector>,
    /// Resources that each of its jobs reserves.
    pub reserves: Reservation,
    /// The workers that the jobs themselves ask for.
    pub narrowing: Option<Arc<Narrowing>>,
}

impl Need {
    /// The need of the jobs of a definition that have this narrowing. `workers` is the list that the definition of this name has now.
    #[must_use]
    pub fn of(
        definition: &Definition,
        workers: &[WorkerSelector],
        narrowing: Option<Arc<Narrowing>>,
    ) -> Self {
        let rules = &definition.placement;
        Self {
            runtime: definition.runtime(),
            protocol: definition.container.protocol_version(),
            requires: rules.requires.clone(),
            prefers: rules.prefers.clone(),
            workers: workers.to_vec(),
            reserves: Reservation::of(&definition.container.resources),
            narrowing,
        }
    }

    /// One of the conditions asks for this label.
    #[must_use]
    pub fn asks_for(&self, label: &str) -> bool {
        self.requires.iter().any(|rule| rule.label == label && rule.asks_for_label())
    }

    /// The worker is in the lists of the definition and of the job, as far as there are lists.
    #[must_use]
    pub fn lists(&self, id: WorkerId, name: &str) -> bool {
        self.is_listed_by_definition(id, name) && self.is_asked_for(id, name)
    }

    /// The worker is in the list of the definition, or there is none.
    #[must_use]
    pub fn is_listed_by_definition(&self, id: WorkerId, name: &str) -> bool {
        is_listed(&self.workers, id, name)
    }

    /// The worker is in the list of the job, or there is none.
    #[must_use]
    pub fn is_asked_for(&self, id: WorkerId, name: &str) -> bool {
        self.narrowing.as_ref().is_none_or(|narrowing| narrowing.lists(id, name))
    }

    /// A list of workers that has all that may run the jobs: that of the job, or else that of the definition. [`Self::lists`] must hold for
    /// each of them as well.
    #[must_use]
    pub fn list(&self) -> &[WorkerSelector] {
        let asked = self.narrowing.as_ref().map_or(&[][..], |narrowing| &narrowing.workers);
        if asked.is_empty() { &self.workers } else { asked }
    }

    /// The jobs or their definition list workers.
    #[must_use]
    pub fn has_list(&self) -> bool {
        !self.list().is_empty()
    }

    /// Conditions on labels that the jobs themselves have.
    #[must_use]
    pub fn conditions(&self) -> &[LabelRule] {
        self.narrowing.as_ref().map_or(&[], |narrowing| &narrowing.requires)
    }

    /// Labels that the conditions of the definition name.
    pub fn labels(&self) -> impl Iterator<Item = &String> {
        self.requires.iter().map(|rule| &rule.label).chain(self.prefers.iter().map(|it| &it.rule.label))
    }
}
