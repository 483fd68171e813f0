//! Pauses: what hands out nothing until somebody resumes it. They are kept by name, so a new revision, a removed definition that comes back
//! and a restart change nothing about them. A job is paused by the definition that it was made with: a group by the `concurrency.group` of
//! its own revision, as for permits. The queue keeps the lanes of paused definitions aside, so steps do not look at them.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::fmt;

use crate::definition::Definition;
use crate::origin::Intervention;
use crate::schedule::ScheduleId;

/// The jobs and schedules that a pause reaches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PauseTarget {
    /// All jobs and schedules.
    Server,
    /// The schedules of all definitions, not their jobs.
    Schedules,
    /// Jobs and schedules of the definitions with this `concurrency.group`.
    Group(Arc<str>),
    /// Jobs and schedules of a definition.
    Definition(Arc<str>),
    /// One schedule of a definition.
    Schedule(Arc<str>, ScheduleId),
}

/// As people read it: `all`, `all schedules`, `group db-main`, the name of a definition, or `name/schedule`.
impl fmt::Display for PauseTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => f.write_str("all"),
            Self::Schedules => f.write_str("all schedules"),
            Self::Group(name) => write!(f, "group {name}"),
            Self::Definition(name) => f.write_str(name),
            Self::Schedule(name, id) => write!(f, "{name}/{id}"),
        }
    }
}

/// The pauses in force, with their beginnings, requesters and reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    in_force: BTreeMap<PauseTarget, Intervention>,
}

impl Pauses {
    /// The pauses of a store.
    #[must_use]
    pub fn of(rows: impl IntoIterator<Item = (PauseTarget, Intervention)>) -> Self {
        Self { in_force: rows.into_iter().collect() }
    }

    /// This target is paused itself.
    #[must_use]
    pub fn contains(&self, target: &PauseTarget) -> bool {
        self.in_force.contains_key(target)
    }

    /// All pauses, ordered by target.
    pub fn iter(&self) -> impl Iterator<Item = (&PauseTarget, &Intervention)> {
        self.in_force.iter()
    }

    /// The pauses that hold back the jobs of a definition.
    pub fn of_jobs(&self, definition: &Definition) -> impl Iterator<Item = (PauseTarget, &Intervention)> {
        self.reaching(definition.name.as_str().into(), group_of(definition))
    }

    /// The pauses that reach a schedule of this definition.
    pub fn of_schedule(
        &self,
        name: &Arc<str>,
        group: Option<Arc<str>>,
        id: &ScheduleId,
    ) -> impl Iterator<Item = (PauseTarget, &Intervention)> {
        let own = [PauseTarget::Schedules, PauseTarget::Schedule(name.clone(), id.clone())];
        self.reaching(name.clone(), group).chain(self.among(own))
    }

    fn reaching(
        &self,
        name: Arc<str>,
        group: Option<Arc<str>>,
    ) -> impl Iterator<Item = (PauseTarget, &Intervention)> {
        let targets = [PauseTarget::Server, PauseTarget::Definition(name)];
        self.among(targets).chain(self.among(group.map(PauseTarget::Group)))
    }

    fn among(
        &self,
        targets: impl IntoIterator<Item = PauseTarget>,
    ) -> impl Iterator<Item = (PauseTarget, &Intervention)> {
        targets.into_iter().filter_map(|target| {
            let pause = self.in_force.get(&target)?;
            Some((target, pause))
        })
    }

    /// Sets or removes a pause.
    pub(crate) fn set(&mut self, target: PauseTarget, pause: Option<Intervention>) {
        match pause {
            Some(pause) => drop(self.in_force.insert(target, pause)),
            None => drop(self.in_force.remove(&target)),
        }
    }

    /// Jobs of this definition may not start.
    pub(crate) fn hold_back(&self, definition: &Definition) -> bool {
        !self.in_force.is_empty() && self.of_jobs(definition).next().is_some()
    }
}

/// The group that a definition shares its permits with.
#[must_use]
pub fn group_of(definition: &Definition) -> Option<Arc<str>> {
    let concurrency = definition.limits.concurrency.as_ref()?;
    concurrency.group.as_deref().map(Arc::from)
}
