//! Classes of workers, and the needs of definitions that are matched with them.
//!
//! Workers with the same facts form a class. Definitions with the same placement rules have the same need. Each need is matched with each
//! class once, when one of them is new, so that the choice of a worker never looks at workers that cannot take the job. A class knows its
//! workers with room in the order in which they are tried.
//!
//! Of a worker's labels only those count that some need names: workers that differ by their host names alone are of one class.

mod facts;
mod need;
mod open;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use protocol::WorkerId;
use protocol::resources::OfferedResources;

pub use facts::ClassFacts;
pub use need::Need;
pub use open::{OpenWorkers, Position};

use crate::fleet::FULL;
use crate::ids::{DefinitionNo, NeedId};
use crate::placement::rules::{LabelRule, WorkerSelector};
use crate::reservation::{InUse, Reservation};

/// Identifies a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(u32);

/// Identifies a reservation that some need asks for, until the next load of jobs.yaml.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservationId(u32);

/// Identifies the conditions of a narrowing, until all needs are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConditionsId(u32);

/// Numbers of the parts of a need that are compared with each worker once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeedKeys {
    /// Absent if the need reserves nothing.
    pub reservation: Option<ReservationId>,
    /// Absent if no narrowing has conditions.
    pub conditions: Option<ConditionsId>,
}

/// All classes and needs.
#[derive(Debug, Default)]
pub struct Classes {
    classes: Vec<Class>,
    by_facts: BTreeMap<ClassFacts, ClassId>,
    /// Indices of classes without workers, which are used again.
    free: BTreeSet<u32>,
    needs: Vec<NeedEntry>,
    by_need: BTreeMap<Need, NeedId>,
    of_definition: BTreeMap<DefinitionNo, NeedId>,
    /// Needs that list workers, by the entries of their lists.
    listing: BTreeMap<WorkerSelector, BTreeSet<NeedId>>,
    /// Names of labels that some need names.
    labels: BTreeSet<String>,
    /// Reservations that some need asks for.
    reservations: Vec<Reservation>,
    by_reservation: BTreeMap<Reservation, ReservationId>,
    /// Conditions of narrowings.
    conditions: Vec<Vec<LabelRule>>,
    by_conditions: BTreeMap<Vec<LabelRule>, ConditionsId>,
}

#[derive(Debug, Default)]
struct Class {
    facts: ClassFacts,
    workers: BTreeSet<WorkerId>,
    /// Workers with a free slot, or room in their backlog, by load.
    with_room: OpenWorkers,
    /// Those of them that have enough resources left for a reservation.
    with_resources: BTreeMap<ReservationId, OpenWorkers>,
    /// Needs without a list of workers that the class meets.
    needs: BTreeSet<NeedId>,
}

#[derive(Debug)]
struct NeedEntry {
    need: Need,
    keys: NeedKeys,
    /// Classes that meet it, with their scores.
    classes: BTreeMap<ClassId, i64>,
}

impl Classes {
    /// Replaces all needs after a load of jobs.yaml. All workers must be classified again, and all lanes unparked.
    pub fn replace_needs(&mut self, needs: impl Iterator<Item = (DefinitionNo, Need)>) {
        self.needs.clear();
        self.by_need.clear();
        self.of_definition.clear();
        self.listing.clear();
        self.labels.clear();
        self.reservations.clear();
        self.by_reservation.clear();
        self.conditions.clear();
        self.by_conditions.clear();
        self.classes.iter_mut().for_each(|class| class.needs.clear());
        for (number, need) in needs {
            self.add_need(number, need);
        }
    }

    /// Sets the need of a definition. Returns true if it names a label, a reservation or conditions of a narrowing that no other need does: then
    /// all workers must be classified again.
    pub fn add_need(&mut self, number: DefinitionNo, need: Need) -> bool {
        let id = self.by_need.get(&need).copied();
        let (id, is_new_fact) = id.map_or_else(|| self.intern_need(need), |id| (id, false));
        self.of_definition.insert(number, id);
        is_new_fact
    }

    // Matches the need with all classes. It happens once for a kind of need, when jobs.yaml is read, or when a job asks for workers as no other
    // one did.
    fn intern_need(&mut self, need: Need) -> (NeedId, bool) {
        let id = NeedId(u32::try_from(self.needs.len()).unwrap_or(u32::MAX));
        let lengths = |it: &Self| (it.labels.len(), it.reservations.len(), it.conditions.len());
        let before = lengths(self);
        self.labels.extend(need.labels().cloned());
        let keys = NeedKeys {
            reservation: (!need.reserves.is_empty()).then(|| self.intern_reservation(&need.reserves)),
            conditions: (!need.conditions().is_empty()).then(|| self.intern_conditions(need.conditions())),
        };
        for listed in need.list() {
            self.listing.entry(listed.clone()).or_default().insert(id);
        }
        let mut classes = BTreeMap::new();
        for (class_id, class) in (0..).map(ClassId).zip(&mut self.classes) {
            if !class.workers.is_empty() && class.facts.meets(&need, keys) {
                classes.insert(class_id, class.facts.score(&need));
                if !need.has_list() {
                    class.needs.insert(id);
                }
            }
        }
        self.by_need.insert(need.clone(), id);
        self.needs.push(NeedEntry { need, keys, classes });
        (id, lengths(self) != before)
    }

    fn intern_reservation(&mut self, reservation: &Reservation) -> ReservationId {
        if let Some(known) = self.by_reservation.get(reservation) {
            return *known;
        }
        let id = ReservationId(u32::try_from(self.reservations.len()).unwrap_or(u32::MAX));
        self.reservations.push(reservation.clone());
        self.by_reservation.insert(reservation.clone(), id);
        id
    }

    fn intern_conditions(&mut self, conditions: &[LabelRule]) -> ConditionsId {
        if let Some(known) = self.by_conditions.get(conditions) {
            return *known;
        }
        let id = ConditionsId(u32::try_from(self.conditions.len()).unwrap_or(u32::MAX));
        self.conditions.push(conditions.to_vec());
        self.by_conditions.insert(conditions.to_vec(), id);
        id
    }

    /// The reservation of a need; `None` if it reserves nothing.
    #[must_use]
    pub fn reservation_of(&self, need: NeedId) -> Option<ReservationId> {
        self.keys_of(need).reservation
    }

    /// The parts of a need that are compared with each worker once.
    #[must_use]
    pub fn keys_of(&self, need: NeedId) -> NeedKeys {
        self.needs.get(need.0 as usize).map_or_else(NeedKeys::default, |entry| entry.keys)
    }

    /// Number of different conditions of narrowings.
    #[must_use]
    pub const fn conditions_count(&self) -> usize {
        self.conditions.len()
    }

    /// These conditions of a narrowing are known.
    #[must_use]
    pub fn knows_conditions(&self, conditions: &[LabelRule]) -> bool {
        conditions.is_empty() || self.by_conditions.contains_key(conditions)
    }

    /// The conditions of narrowings that these labels meet, ordered. The cost follows from the number of different conditions, which is
    /// [limited](crate::placement::narrowing::CONDITIONS_MAX).
    pub fn conditions_met<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> Vec<ConditionsId> {
        let numbered = (0..).map(ConditionsId).zip(&self.conditions);
        numbered
            .filter(|(_, rules)| rules.iter().all(|rule| rule.holds(label(&rule.label))))
            .map(|(id, _)| id)
            .collect()
    }

    /// The reservations, of all that some need asks for, that fit into what is left of an offer, ordered. The cost follows from the
    /// number of different reservations in jobs.yaml.
    #[must_use]
    pub fn fitting(&self, offer: &OfferedResources, in_use: &InUse) -> Vec<ReservationId> {
        let numbered = (0..).map(ReservationId).zip(&self.reservations);
        numbered.filter(|(_, wanted)| in_use.lacking(offer, wanted).is_none()).map(|(id, _)| id).collect()
    }

    /// The need of a definition.
    #[must_use]
    pub fn need_of(&self, number: DefinitionNo) -> Option<(NeedId, &Need)> {
        let id = *self.of_definition.get(&number)?;
        Some((id, self.need(id)?))
    }

    /// The need with this id.
    #[must_use]
    pub fn need(&self, id: NeedId) -> Option<&Need> {
        self.needs.get(id.0 as usize).map(|entry| &entry.need)
    }

    /// Classes that meet a need, with the score of each.
    pub fn meeting(&self, need: NeedId) -> impl Iterator<Item = (ClassId, i64)> {
        self.needs
            .get(need.0 as usize)
            .into_iter()
            .flat_map(|entry| &entry.classes)
            .map(|(id, score)| (*id, *score))
    }

    /// A worker of this class may take jobs with this need, apart from a list of workers in it; and its score.
    #[must_use]
    pub fn score(&self, need: NeedId, class: ClassId) -> Option<i64> {
        self.needs.get(need.0 as usize)?.classes.get(&class).copied()
    }

    /// Workers of a class, by id.
    pub fn workers_of(&self, class: ClassId) -> impl Iterator<Item = WorkerId> {
        self.class(class).into_iter().flat_map(|class| &class.workers).copied()
    }

    /// Needs whose jobs this worker may take.
    pub fn needs_met(&self, class: ClassId, id: WorkerId, name: &str) -> impl Iterator<Item = NeedId> {
        let met = self.class(class).into_iter().flat_map(|class| &class.needs).copied();
        let listed = |selector| self.listing.get(&selector).into_iter().flatten().copied();
        let listing = listed(WorkerSelector::Id(id)).chain(listed(WorkerSelector::Name(name.into())));
        met.chain(listing.filter(move |need| self.score(*need, class).is_some()))
    }

    /// Some need names this label.
    #[must_use]
    pub fn names_label(&self, name: &str) -> bool {
        self.labels.contains(name)
    }

    /// The facts of a class.
    #[must_use]
    pub fn facts(&self, class: ClassId) -> Option<&ClassFacts> {
        self.class(class).map(|class| &class.facts)
    }

    /// Classes that have workers, with the number of their workers.
    pub fn iter(&self) -> impl Iterator<Item = (ClassId, usize)> {
        let numbered = (0..).map(ClassId).zip(&self.classes);
        numbered.filter(|(_, class)| !class.workers.is_empty()).map(|(id, class)| (id, class.workers.len()))
    }

    /// Adds a worker to the class with these facts.
    pub fn join(&mut self, facts: ClassFacts, worker: WorkerId) -> ClassId {
        let id = self.by_facts.get(&facts).copied().unwrap_or_else(|| self.intern_class(facts));
        if let Some(class) = self.classes.get_mut(id.0 as usize) {
            class.workers.insert(worker);
        }
        id
    }

    // Matches the class with all needs. It happens once for a kind of worker, when its first one connects or changes.
    fn intern_class(&mut self, facts: ClassFacts) -> ClassId {
        let index = self.free.pop_first().unwrap_or_else(|| {
            self.classes.push(Class::default());
            u32::try_from(self.classes.len() - 1).unwrap_or(u32::MAX)
        });
        let id = ClassId(index);
        let mut met = BTreeSet::new();
        for (need_id, entry) in (0..).map(NeedId).zip(&mut self.needs) {
            if facts.meets(&entry.need, entry.keys) {
                entry.classes.insert(id, facts.score(&entry.need));
                if !entry.need.has_list() {
                    met.insert(need_id);
                }
            }
        }
        self.by_facts.insert(facts.clone(), id);
        if let Some(class) = self.classes.get_mut(index as usize) {
            *class = Class { facts, needs: met, ..Class::default() };
        }
        id
    }

    /// Removes a worker from its class. A class without workers is removed.
    pub fn leave(&mut self, id: ClassId, worker: WorkerId) {
        let Some(class) = self.classes.get_mut(id.0 as usize) else { return };
        class.workers.remove(&worker);
        if class.workers.is_empty() {
            let gone = core::mem::take(class);
            self.by_facts.remove(&gone.facts);
            self.free.insert(id.0);
            for entry in &mut self.needs {
                entry.classes.remove(&id);
            }
        }
    }

    /// Lists a worker of this class as one with room.
    pub fn list_open(&mut self, id: ClassId, position: Position, fitting: &[ReservationId]) {
        if let Some(class) = self.classes.get_mut(id.0 as usize) {
            class.with_room.insert(position);
            for reservation in fitting {
                class.with_resources.entry(*reservation).or_default().insert(position);
            }
        }
    }

    /// Removes a worker from those with room. `fitting` is the list with which it was added.
    pub fn unlist_open(&mut self, id: ClassId, position: Position, fitting: &[ReservationId]) {
        let Some(class) = self.classes.get_mut(id.0 as usize) else { return };
        class.with_room.remove(position);
        for reservation in fitting {
            if let Some(open) = class.with_resources.get_mut(reservation) {
                open.remove(position);
                if open.by_load.is_empty() {
                    class.with_resources.remove(reservation);
                }
            }
        }
    }

    /// Workers with room, by class and load.
    pub fn open(&self) -> impl Iterator<Item = &Position> {
        self.classes.iter().flat_map(|class| &class.with_room.by_load)
    }

    /// Workers with a free slot, by class and load.
    pub fn with_free_slot(&self) -> impl Iterator<Item = &Position> {
        self.classes.iter().flat_map(|class| class.with_room.by_load.range(..(FULL, 0, WorkerId(0))))
    }

    /// Workers of a class with room, and enough left for the reservation of a need.
    #[must_use]
    pub fn open_for(&self, id: ClassId, need: NeedId) -> Option<&OpenWorkers> {
        let class = self.class(id)?;
        match self.reservation_of(need) {
            Some(reservation) => class.with_resources.get(&reservation),
            None => Some(&class.with_room),
        }
    }

    /// Returns whether the worker is in this class and, if a position is given, listed there among those with room. For the audit.
    #[must_use]
    pub fn lists_as(
        &self,
        id: ClassId,
        worker: WorkerId,
        position: Option<Position>,
        fitting: &[ReservationId],
    ) -> bool {
        self.class(id).is_some_and(|class| {
            let is_listed = |position: Position| {
                let listed = class.with_resources.iter().filter(|(_, open)| open.contains(position));
                class.with_room.contains(position) && listed.map(|(id, _)| id).eq(fitting)
            };
            class.workers.contains(&worker) && position.is_none_or(is_listed)
        })
    }

    /// Number of workers with room in all classes, by both orders, for the audit.
    #[must_use]
    pub fn open_counts(&self) -> (usize, usize) {
        let sum = |count: fn(&Class) -> usize| self.classes.iter().map(count).sum();
        (sum(|class| class.with_room.by_load.len()), sum(|class| class.with_room.by_tie.len()))
    }

    /// Returns whether each need knows the classes that meet it. For the audit.
    #[must_use]
    pub fn are_matched(&self) -> bool {
        let numbered =
            || (0..).map(ClassId).zip(&self.classes).filter(|(_, class)| !class.workers.is_empty());
        (0..).map(NeedId).zip(&self.needs).all(|(need_id, entry)| {
            numbered().all(|(id, class)| {
                let meets = class.facts.meets(&entry.need, entry.keys);
                let lists = meets && !entry.need.has_list();
                entry.classes.contains_key(&id) == meets && class.needs.contains(&need_id) == lists
            })
        })
    }

    fn class(&self, id: ClassId) -> Option<&Class> {
        self.classes.get(id.0 as usize)
    }
}
