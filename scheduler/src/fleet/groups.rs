//! Groups of workers that the same facts keep from jobs. The reason why jobs wait follows from the groups, so that its cost does not grow
//! with the number of workers: a fleet of one kind has a handful of groups.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use protocol::{Revision, RuntimeKind, WorkerId};

use super::Worker;
use super::classes::{ClassId, ReservationId};
use crate::table::{Seed, Table};

/// Facts that the workers of a group have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkerGroup {
    /// Not connected. Nothing else is known for certain.
    Away,
    /// Connected, reconciled or not.
    Connected {
        /// The class, which tells the labels.
        class: Option<ClassId>,
        /// Its runtimes in the order of [`RuntimeKind::ALL`].
        runtimes: [RuntimeState; RuntimeKind::ALL.len()],
        /// Its readiness for further attempts of any kind.
        intake: Intake,
        /// Reservations that fit into the resources it has left.
        fitting: Vec<ReservationId>,
    },
}

/// State of a runtime on a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuntimeState {
    /// The worker does not have it.
    Missing,
    /// The worker has it, and it does not answer.
    Unavailable,
    /// It answers, and jobs with this runtime are excluded for a while.
    Excluded,
    /// It answers.
    Available,
}

/// Readiness of a worker for further attempts; the obstacle that takes longest to overcome is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Intake {
    /// It is draining: it finishes its attempts, and leaves.
    Leaving,
    /// It is cordoned.
    Cordoned,
    /// It is suspect, and a job probes it.
    Probing,
    /// Its slots are taken. Jobs that wait cannot have its backlog either, or they would be there.
    Full,
    /// A slot is free, and the worker is set aside for a waiting job.
    SetAside,
    /// A slot is free.
    Open,
}

impl WorkerGroup {
    /// The group of a worker.
    #[must_use]
    pub fn of(worker: &Worker) -> Self {
        if worker.link.is_away() {
            return Self::Away;
        }
        let state = |runtime| match () {
            () if !worker.capacity.has(runtime) => RuntimeState::Missing,
            () if !worker.capacity.offers(runtime) => RuntimeState::Unavailable,
            () if worker.health.exclusions.covers_runtime(runtime) => RuntimeState::Excluded,
            () => RuntimeState::Available,
        };
        let intake = match () {
            () if worker.is_draining() => Intake::Leaving,
            () if worker.row.cordoned => Intake::Cordoned,
            () if worker.health.breaker.probe().is_some() => Intake::Probing,
            () if !worker.has_free_slot() => Intake::Full,
            () if worker.set_aside_for().is_some() => Intake::SetAside,
            () => Intake::Open,
        };
        let fitting = worker.fitting.clone();
        Self::Connected { class: worker.class(), runtimes: RuntimeKind::ALL.map(state), intake, fitting }
    }

    /// No group of this class is ordered before it.
    const fn first_of(class: Option<ClassId>) -> Self {
        let runtimes = [RuntimeState::Missing; RuntimeKind::ALL.len()];
        Self::Connected { class, runtimes, intake: Intake::Leaving, fitting: Vec::new() }
    }
}

/// All workers by group.
#[derive(Debug)]
pub struct Groups {
    members: Table<WorkerId, Member>,
    /// Number of workers; no entry is zero.
    counts: BTreeMap<WorkerGroup, usize>,
    /// The workers among them that exclude a revision on its own; no entry is zero.
    excluding: BTreeMap<Revision, BTreeMap<WorkerGroup, usize>>,
}

#[derive(Debug)]
struct Member {
    group: WorkerGroup,
    /// Revisions that the worker excludes on their own.
    excluded: BTreeSet<Revision>,
}

/// Number of workers of a group, for the jobs of one revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupCount {
    /// Workers that do not exclude the revision on its own.
    pub others: usize,
    /// Workers that exclude it on its own.
    pub excluding: usize,
}

impl Groups {
    /// No workers; `seed` is that of its table.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self { members: Table::with_hasher(seed), counts: BTreeMap::new(), excluding: BTreeMap::new() }
    }

    /// Counts a worker in the group of its present facts; `None` removes it.
    pub fn set(&mut self, id: WorkerId, worker: Option<&Worker>) {
        let new = worker.map(|worker| Member {
            group: WorkerGroup::of(worker),
            excluded: worker.health.exclusions.revisions().collect(),
        });
        if let (Some(old), Some(new)) = (self.members.get(&id), &new)
            && old.group == new.group
            && old.excluded == new.excluded
        {
            return;
        }
        if let Some(old) = self.members.remove(&id) {
            for revision in &old.excluded {
                if let Some(counts) = self.excluding.get_mut(revision) {
                    remove_one(counts, &old.group);
                    if counts.is_empty() {
                        self.excluding.remove(revision);
                    }
                }
            }
            remove_one(&mut self.counts, &old.group);
        }
        if let Some(new) = new {
            for revision in &new.excluded {
                *self.excluding.entry(*revision).or_default().entry(new.group.clone()).or_default() += 1;
            }
            *self.counts.entry(new.group.clone()).or_default() += 1;
            self.members.insert(id, new);
        }
    }

    /// The groups that have workers, with the number of those for the jobs of this revision.
    pub fn of_revision(&self, revision: Revision) -> impl Iterator<Item = (&WorkerGroup, GroupCount)> {
        self.for_revision(revision, self.counts.iter())
    }

    /// Those of them whose workers are of this class.
    pub fn of_class(
        &self,
        class: Option<ClassId>,
        revision: Revision,
    ) -> impl Iterator<Item = (&WorkerGroup, GroupCount)> {
        let of_class = self.counts.range(WorkerGroup::first_of(class)..);
        let is_of_class = move |group: &WorkerGroup| match group {
            WorkerGroup::Away => false,
            WorkerGroup::Connected { class: other, .. } => *other == class,
        };
        self.for_revision(revision, of_class.take_while(move |(group, _)| is_of_class(group)))
    }

    fn for_revision<'g>(
        &'g self,
        revision: Revision,
        counts: impl Iterator<Item = (&'g WorkerGroup, &'g usize)>,
    ) -> impl Iterator<Item = (&'g WorkerGroup, GroupCount)> {
        let excluding = self.excluding.get(&revision);
        counts.map(move |(group, count)| {
            let excluding = excluding.and_then(|counts| counts.get(group)).copied().unwrap_or_default();
            (group, GroupCount { others: count.saturating_sub(excluding), excluding })
        })
    }

    /// Some worker excludes this revision on its own.
    #[must_use]
    pub fn excludes(&self, revision: Revision) -> bool {
        self.excluding.contains_key(&revision)
    }

    /// Number of workers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// There are no workers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The group that counts a worker.
    #[must_use]
    pub fn group_of(&self, id: WorkerId) -> Option<&WorkerGroup> {
        self.members.get(&id).map(|member| &member.group)
    }

    /// Each count is the number of its workers, for the audit.
    #[must_use]
    pub fn are_counted(&self) -> bool {
        let mut counts: BTreeMap<WorkerGroup, usize> = BTreeMap::new();
        let mut excluding: BTreeMap<Revision, BTreeMap<WorkerGroup, usize>> = BTreeMap::new();
        for member in self.members.values() {
            *counts.entry(member.group.clone()).or_default() += 1;
            for revision in &member.excluded {
                *excluding.entry(*revision).or_default().entry(member.group.clone()).or_default() += 1;
            }
        }
        counts == self.counts && excluding == self.excluding
    }
}

fn remove_one(counts: &mut BTreeMap<WorkerGroup, usize>, group: &WorkerGroup) {
    if let Some(count) = counts.get_mut(group) {
        *count -= 1;
        if *count == 0 {
            counts.remove(group);
        }
    }
}
