//! The workers that one job asks for. They narrow what the definition allows: both must hold.
//!
//! A definition and a narrowing together have a number of their own in the table of definitions, and so a need, as another revision of the
//! definition has. Lanes, parking and the choice of a worker therefore know nothing of narrowings
//! (docs/design/decisions/0025-a-job-chooses-its-machines.md).

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use protocol::WorkerId;
use serde::{Deserialize, Serialize};

use super::rules::{LabelRule, WorkerSelector};
use crate::defaults::is_default;

/// The workers that one job asks for. Its serde form is that of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Narrowing {
    /// The only workers that may run it; any if empty. Sorted.
    #[serde(skip_serializing_if = "is_default")]
    pub workers: Vec<WorkerSelector>,
    /// Conditions that a worker must meet, all of them. Sorted.
    #[serde(skip_serializing_if = "is_default")]
    pub requires: Vec<LabelRule>,
}

/// Definitions with a narrowing that are remembered at once. Each is compared with a worker that connects with new labels, and a submission to
/// a definition with `max_queued` walks those of this definition.
pub const NARROWED_MAX: usize = 1_000;

/// Different conditions of narrowings that are remembered at once. They divide the workers into classes, and each choice of a worker looks at
/// all classes that may run the job.
pub const CONDITIONS_MAX: usize = 256;

impl Narrowing {
    /// A narrowing in the order in which equal ones are equal.
    #[must_use]
    pub fn new(mut workers: Vec<WorkerSelector>, mut requires: Vec<LabelRule>) -> Self {
        workers.sort_unstable();
        workers.dedup();
        requires.sort_unstable();
        requires.dedup();
        Self { workers, requires }
    }

    /// The narrowing to these workers; none if any worker will do.
    #[must_use]
    pub fn asked(workers: Vec<WorkerSelector>, requires: Vec<LabelRule>) -> Option<Arc<Self>> {
        Some(Self::new(workers, requires)).filter(|narrowing| !narrowing.is_empty()).map(Arc::new)
    }

    /// Any worker that the definition allows may run the job.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.workers.is_empty() && self.requires.is_empty()
    }

    /// The worker is in the list, or there is no list.
    #[must_use]
    pub fn lists(&self, id: WorkerId, name: &str) -> bool {
        is_listed(&self.workers, id, name)
    }
}

/// The worker is in this list of a definition or a job, or the list is empty.
pub(crate) fn is_listed(list: &[WorkerSelector], id: WorkerId, name: &str) -> bool {
    list.is_empty()
        || list.iter().any(|it| match it {
            WorkerSelector::Id(listed) => *listed == id,
            WorkerSelector::Name(listed) => listed == name,
        })
}

/// `worker web-3 with rack=7`
impl fmt::Display for Narrowing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.workers.iter().map(ToString::to_string).collect();
        match &names[..] {
            [] => f.write_str("a worker")?,
            [only] => write!(f, "worker {only}")?,
            all => write!(f, "one of the workers {}", all.join(", "))?,
        }
        for (index, rule) in self.requires.iter().enumerate() {
            write!(f, "{} {rule}", if index == 0 { " with" } else { " and" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::placement::rules::Condition;

    #[test]
    fn a_narrowing_says_what_the_job_asks_for() {
        let name = |name: &str| WorkerSelector::Name(name.into());
        let rack = LabelRule { label: "rack".into(), condition: Condition::In(vec!["7".into()]) };
        let gpu = LabelRule { label: "gpu".into(), condition: Condition::Exists };
        let text = |workers, requires| Narrowing::new(workers, requires).to_string();
        assert_eq!(text(vec![name("web-3")], vec![]), "worker web-3");
        assert_eq!(
            text(vec![name("web-4"), name("web-3"), name("web-4")], vec![]),
            "one of the workers web-3, web-4"
        );
        assert_eq!(text(vec![], vec![rack.clone(), gpu]), "a worker with a label gpu and rack=7");
        assert_eq!(text(vec![WorkerSelector::Id(WorkerId(7))], vec![rack]), "worker 7 with rack=7");
    }

    #[test]
    fn an_empty_list_lists_all_workers() {
        let none = Narrowing::default();
        assert!(none.is_empty() && none.lists(WorkerId(1), "w1"));
        let listed =
            Narrowing::new(vec![WorkerSelector::Id(WorkerId(1)), WorkerSelector::Name("w2".into())], vec![]);
        let lists = |id, name| listed.lists(WorkerId(id), name);
        assert!(lists(1, "w1") && lists(2, "w2") && !lists(3, "w1"));
    }
}
