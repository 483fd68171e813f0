//! Needs of definitions: placement rules, as far as they are matched with workers.

use alloc::string::String;
use alloc::vec::Vec;

use protocol::{RuntimeKind, WorkerId};

use crate::definition::Definition;
use crate::placement::rules::{LabelRule, Preference, WorkerSelector};
use crate::reservation::Reservation;

/// The placement rules of a definition, as far as they are matched with workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// The runtime of its jobs.
    pub runtime: RuntimeKind,
    /// Conditions on labels.
    pub requires: Vec<LabelRule>,
    /// Weighted conditions.
    pub prefers: Vec<Preference>,
    /// The only workers; any if empty.
    pub workers: Vec<WorkerSelector>,
    /// Resources that each of its jobs reserves.
    pub reserves: Reservation,
}

impl Need {
    /// The need of a definition. `workers` is the list that the definition of this name has now.
    #[must_use]
    pub fn of(definition: &Definition, workers: &[WorkerSelector]) -> Self {
        let rules = &definition.placement;
        Self {
            runtime: definition.runtime(),
            requires: rules.requires.clone(),
            prefers: rules.prefers.clone(),
            workers: workers.to_vec(),
            reserves: Reservation::of(&definition.container.resources),
        }
    }

    /// One of the conditions asks for this label.
    #[must_use]
    pub fn asks_for(&self, label: &str) -> bool {
        self.requires.iter().any(|rule| rule.label == label && rule.asks_for_label())
    }

    /// The worker is in the list, or there is no list.
    #[must_use]
    pub fn lists(&self, id: WorkerId, name: &str) -> bool {
        self.workers.is_empty()
            || self.workers.iter().any(|it| match it {
                WorkerSelector::Id(listed) => *listed == id,
                WorkerSelector::Name(listed) => listed == name,
            })
    }

    /// Labels that its conditions name.
    pub fn labels(&self) -> impl Iterator<Item = &String> {
        self.requires.iter().map(|rule| &rule.label).chain(self.prefers.iter().map(|it| &it.rule.label))
    }
}
