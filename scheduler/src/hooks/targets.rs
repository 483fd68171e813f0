//! The definitions that hooks name.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;

use crate::definition::Definition;

/// The definitions of the present jobs.yaml, by name: a hook runs one of them.
#[derive(Debug, Default)]
pub(crate) struct HookTargets {
    targets: BTreeMap<String, Arc<Definition>>,
}

impl HookTargets {
    /// Takes in a reading of jobs.yaml.
    pub(crate) fn define(&mut self, definitions: &[Arc<Definition>]) {
        let target = |definition: &Arc<Definition>| (definition.name.clone(), definition.clone());
        self.targets = definitions.iter().map(target).collect();
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Definition>> {
        self.targets.get(name)
    }
}
