//! The jobs of a file with the hooks between them, and the chains that these form.

use std::collections::{BTreeMap, BTreeSet};

use scheduler::definition::Definition;
use scheduler::params::ParamDefaults;

use super::fault::Position;

/// The jobs of a file and the hooks between them.
#[derive(Debug, Default)]
pub(super) struct HookGraph {
    /// Every name in the file, whether or not its job could be read.
    pub(super) names: BTreeSet<String>,
    /// Jobs with a parameter that must be given.
    pub(super) needy: BTreeSet<String>,
    pub(super) hooks: BTreeMap<String, Vec<HookRef>>,
}

/// A job that a hook names.
#[derive(Clone, Debug)]
pub(super) struct HookRef {
    pub(super) target: String,
    pub(super) at: Position,
}

impl HookGraph {
    /// Adds a name of the file.
    pub(super) fn add_name(&mut self, name: &str) {
        self.names.insert(name.to_owned());
    }

    /// Adds a job that was read.
    pub(super) fn add_job(&mut self, definition: &Definition) {
        if definition.submission.defaults == ParamDefaults::Missing {
            self.needy.insert(definition.name.clone());
        }
    }

    /// Adds a hook of the job `name`.
    pub(super) fn add_hook(&mut self, name: &str, target: &str, at: Position) {
        self.hooks.entry(name.to_owned()).or_default().push(HookRef { target: target.to_owned(), at });
    }

    /// The hooks of a job that name jobs of the file.
    pub(super) fn known(&self, job: &str) -> impl Iterator<Item = &HookRef> {
        self.hooks.get(job).into_iter().flatten().filter(|hook| self.names.contains(&hook.target))
    }
}

/// The chains of hooks of a file.
pub(super) struct Chains<'g> {
    /// The longest chain of hooks that begins with each job; without those that lead into a loop.
    pub(super) lengths: BTreeMap<&'g str, usize>,
    /// Jobs whose hooks lead into a loop.
    pub(super) looping: BTreeSet<&'g str>,
}

impl<'g> Chains<'g> {
    /// Takes away jobs without hooks, then those whose hooks all lead to such jobs, and so on. A loop is never taken away.
    pub(super) fn of(graph: &'g HookGraph) -> Self {
        let mut left: BTreeMap<&str, usize> =
            graph.names.iter().map(|job| (job.as_str(), graph.known(job).count())).collect();
        let mut parents: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for job in graph.hooks.keys() {
            graph.known(job).for_each(|hook| parents.entry(&hook.target).or_default().push(job));
        }
        let mut lengths = BTreeMap::new();
        let mut next: Vec<&str> =
            left.iter().filter(|(_, hooks)| **hooks == 0).map(|(job, _)| *job).collect();
        while let Some(job) = next.pop() {
            left.remove(job);
            let behind = graph.known(job).filter_map(|hook| lengths.get(hook.target.as_str()));
            let length = behind.max().map_or(0, |longest| longest + 1);
            lengths.insert(job, length);
            for parent in parents.get(job).into_iter().flatten() {
                let Some(hooks) = left.get_mut(parent) else { continue };
                *hooks -= 1;
                if *hooks == 0 {
                    next.push(parent);
                }
            }
        }
        Self { lengths, looping: left.into_keys().collect() }
    }
}
