//! Limits on jobs: permits (jobs at once) and rates (starts within a time), by definition or group and by key.
//!
//! A limit is known by its kind, its name and the value of its key, not by a revision: jobs of older revisions count, and the value in force
//! is that of jobs.yaml now. A limit exists while a job refers to it that has not ended; a rate also until it has recovered.
//!
//! A permit is taken when an attempt is assigned to a free slot and given back when the attempt is not current any more (`close`), so an
//! unreachable attempt keeps it until it is lost. Holders are a set of jobs, which a start builds again from the attempts that are held.
//! Lanes that wait for a limit are parked under it in the queue; `gate` decides who goes next.

pub(crate) mod audit;
mod contenders;
mod facts;
pub(crate) mod gate;
mod id;
pub mod keys;
mod of_batch;
pub(crate) mod pending_reason;
pub mod rate;
pub mod rules;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::{JobId, Now, Uptime};

use crate::definition::Definition;
use crate::ids::DefinitionNo;
use crate::table::{Seed, Table, shrink};
use contenders::Contenders;
pub use facts::{
    HOLDERS_SHOWN, LIMITS_OF_DEFINITION, LIMITS_SHOWN, LimitFacts, LimitSelection, LimitsReport,
};
pub use id::{LimitId, LimitKind, LimitNo, RateRow, RequiredLimits};
use keys::{JobKeys, KeySetNo, KeySets};
use rate::Rate;

/// The value of a limit in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Force {
    /// jobs.yaml has the definition, and no such limit for it any more.
    Lifted,
    /// Jobs at once.
    Permits(u32),
    /// Starts within a time.
    Rate(Rate),
}

#[derive(Debug)]
struct Limit {
    id: LimitId,
    force: Force,
    /// Jobs that have not ended and need it.
    jobs: u64,
    /// Jobs that hold a permit.
    holders: BTreeSet<JobId>,
    /// Jobs that compete for its permits.
    contenders: Contenders,
    /// When the rate has recovered from all starts.
    recovered: Uptime,
    /// When it is looked at again.
    due: Option<Uptime>,
}

/// All limits.
#[derive(Debug, Default)]
pub struct Limits {
    key_sets: KeySets,
    needs: Table<(DefinitionNo, KeySetNo), (RequiredLimits, u64)>,
    numbers: BTreeMap<LimitId, LimitNo>,
    table: Vec<Option<Limit>>,
    free: BTreeSet<u32>,
    /// Rates by the time at which they are looked at again.
    due: BTreeSet<(Uptime, LimitNo)>,
    /// Values of jobs.yaml, by kind and name.
    in_force: BTreeMap<(LimitKind, Arc<str>), Force>,
    /// Attempts of all jobs, for the limit of the server.
    pub(crate) held: usize,
}

impl Limits {
    /// No limits; `seed` is that of its tables.
    #[must_use]
    pub(crate) fn new(seed: Seed) -> Self {
        Self { key_sets: KeySets::new(seed), needs: Table::with_hasher(seed), ..Self::default() }
    }

    /// Returns memory after many keys are gone.
    pub(crate) fn shrink_tables(&mut self) {
        shrink(&mut self.needs);
        self.key_sets.shrink();
    }

    /// Applies the values of jobs.yaml, also to rates that the store remembers by a clock that may have been set back since. Returns the
    /// limits that changed. Walks all limits, once per reading.
    pub(crate) fn define<'d>(
        &mut self,
        now: Uptime,
        definitions: impl Iterator<Item = &'d Definition>,
    ) -> Vec<LimitNo> {
        self.in_force.clear();
        for definition in definitions {
            let name: Arc<str> = definition.name.as_str().into();
            let rules = &definition.limits;
            let own = rules.concurrency.as_ref().map_or(Force::Lifted, |it| Force::Permits(it.limit));
            let rate = rules.rate.as_ref().map_or(Force::Lifted, |it| Force::Rate(Rate::of(it)));
            match rules.concurrency.as_ref().and_then(|it| it.group.as_deref()) {
                Some(group) => drop(self.in_force.insert((LimitKind::Group, group.into()), own)),
                None => drop(self.in_force.insert((LimitKind::Definition, name.clone()), own)),
            }
            self.in_force.insert((LimitKind::Rate, name), rate);
        }
        let mut changed = Vec::new();
        for (number, limit) in (0..).map(LimitNo).zip(&mut self.table) {
            let Some(limit) = limit else { continue };
            let force = self.in_force.get(&(limit.id.kind, limit.id.name.clone())).copied();
            let before = (limit.force, limit.recovered);
            limit.force = force.unwrap_or(limit.force);
            if let Force::Rate(rate) = limit.force {
                limit.recovered = rate.clamp(limit.recovered, now);
            }
            if (limit.force, limit.recovered) != before {
                changed.push(number);
            }
        }
        changed
    }

    /// Counts a job that has not ended. Returns the number of its keys.
    pub(crate) fn add_job(
        &mut self,
        (number, definition): (DefinitionNo, &Definition),
        keys: Option<&JobKeys>,
    ) -> KeySetNo {
        if !definition.takes_free_slots_only() && keys.is_none_or(|keys| keys.batch.is_none()) {
            return KeySetNo::UNLIMITED;
        }
        let key_set = keys.map_or(KeySetNo::UNKEYED, |keys| self.key_sets.take(keys));
        let needs = match self.needs.get_mut(&(number, key_set)) {
            Some((needs, jobs)) => {
                *jobs += 1;
                *needs
            }
            None => {
                let needs = self.needs_of(definition, keys);
                self.needs.insert((number, key_set), (needs, 1));
                needs
            }
        };
        for limit in needs.all() {
            if let Some(limit) = self.limit_mut(limit) {
                limit.jobs += 1;
            }
        }
        key_set
    }

    /// Counts out a job that has ended and holds no permit. Returns the rates that may be forgotten when they have recovered.
    pub(crate) fn drop_job(&mut self, number: DefinitionNo, key_set: KeySetNo) -> Option<LimitNo> {
        let (needs, jobs) = self.needs.get_mut(&(number, key_set))?;
        let needs = *needs;
        *jobs -= 1;
        if *jobs == 0 {
            self.needs.remove(&(number, key_set));
        }
        if key_set.is_keyed() {
            self.key_sets.drop_one(key_set);
        }
        for limit in needs.all() {
            if let Some(limit) = self.limit_mut(limit) {
                limit.jobs -= 1;
            }
        }
        needs.permits().for_each(|permit| self.forget_unused(permit));
        needs.token
    }

    /// Removes a limit that no job needs.
    pub(crate) fn forget_unused(&mut self, number: LimitNo) {
        if self.limit(number).is_none_or(|limit| limit.jobs > 0) {
            return;
        }
        if let Some(limit) = self.table.get_mut(number.0 as usize).and_then(Option::take) {
            self.numbers.remove(&limit.id);
            self.free.insert(number.0);
        }
    }

    fn needs_of(&mut self, definition: &Definition, keys: Option<&JobKeys>) -> RequiredLimits {
        let rules = &definition.limits;
        let permit = rules.concurrency.as_ref().map(|rule| {
            let kind = if rule.group.is_some() { LimitKind::Group } else { LimitKind::Definition };
            let name = rule.group.as_deref().unwrap_or(&definition.name).into();
            let key = keys.and_then(|keys| keys.concurrency.clone());
            self.intern(LimitId { kind, name, key }, Force::Permits(rule.limit))
        });
        let token = rules.rate.as_ref().map(|rule| {
            let (kind, name) = (LimitKind::Rate, definition.name.as_str().into());
            let key = keys.and_then(|keys| keys.rate.clone());
            self.intern(LimitId { kind, name, key }, Force::Rate(Rate::of(rule)))
        });
        let batch = keys.and_then(|keys| keys.batch).map(|it| {
            let name = it.batch.to_string().into();
            self.intern(LimitId { kind: LimitKind::Batch, name, key: None }, Force::Permits(it.limit))
        });
        RequiredLimits { permit, batch, token }
    }

    /// The number of a limit. `own` is its value if jobs.yaml says nothing about it any more.
    fn intern(&mut self, id: LimitId, own: Force) -> LimitNo {
        let in_force = self.in_force.get(&(id.kind, id.name.clone())).copied();
        if let Some(number) = self.numbers.get(&id).copied() {
            // A rate that is known from the store only has no value yet.
            if let Some(limit) = self.limit_mut(number).filter(|limit| limit.jobs == 0) {
                limit.force = in_force.unwrap_or(own);
            }
            return number;
        }
        let at = self.free.pop_first().map_or(self.table.len(), |at| at as usize);
        if at == self.table.len() {
            self.table.push(None);
        }
        let number = LimitNo(u32::try_from(at).unwrap_or(u32::MAX));
        let force = in_force.unwrap_or(own);
        self.numbers.insert(id.clone(), number);
        if let Some(slot) = self.table.get_mut(at) {
            let (holders, contenders) = (BTreeSet::new(), Contenders::default());
            *slot = Some(Limit { id, force, jobs: 0, holders, contenders, recovered: Uptime(0), due: None });
        }
        number
    }

    /// The limits that the jobs of this lane need.
    pub(crate) fn needs(&self, number: DefinitionNo, key_set: KeySetNo) -> RequiredLimits {
        if !key_set.is_limited() {
            return RequiredLimits::default();
        }
        self.needs.get(&(number, key_set)).map(|(needs, _)| *needs).unwrap_or_default()
    }

    /// The limit lets one more start now.
    pub(crate) fn has_room(&self, number: LimitNo, now: Uptime) -> bool {
        let Some(limit) = self.limit(number) else { return true };
        match limit.force {
            Force::Lifted => true,
            Force::Permits(permits) => limit.holders.len() < permits as usize,
            Force::Rate(rate) => rate.next_start(limit.recovered) <= now,
        }
    }

    /// Takes permits and a token for a job that is assigned. Returns the rate to store.
    pub(crate) fn start(&mut self, job: JobId, needs: RequiredLimits, now: Now) -> Option<RateRow> {
        self.take_permits(job, needs);
        self.uncount_queued(needs);
        let limit = needs.token.and_then(|number| self.limit_mut(number))?;
        let Force::Rate(rate) = limit.force else { return None };
        limit.recovered = rate.after_start(limit.recovered, now.up);
        Some(RateRow { id: limit.id.clone(), recovered: rate::to_utc(limit.recovered, now) })
    }

    /// Takes the permits of a job that held them before a restart of the server. `cancels_oldest` is the rule of its definition.
    pub(crate) fn hold(&mut self, job: JobId, needs: RequiredLimits, cancels_oldest: bool) {
        self.held += 1;
        self.take_permits(job, needs);
        if cancels_oldest && let Some(limit) = needs.permit.and_then(|number| self.limit_mut(number)) {
            limit.contenders.oldest.insert(job);
        }
    }

    fn take_permits(&mut self, job: JobId, needs: RequiredLimits) {
        for number in needs.permits() {
            if let Some(limit) = self.limit_mut(number) {
                limit.holders.insert(job);
            }
        }
    }

    /// Gives the permits of a job back. Returns the limits of those that the job held.
    pub(crate) fn release_permits(
        &mut self,
        job: JobId,
        needs: RequiredLimits,
    ) -> impl Iterator<Item = LimitNo> {
        let mut held = |number| {
            self.limit_mut(number).is_some_and(|limit| {
                limit.contenders.remove(job);
                limit.holders.remove(&job)
            })
        };
        let given = [needs.permit, needs.batch].map(|number| number.filter(|number| held(*number)));
        given.into_iter().flatten()
    }

    /// When a rate allows the next start, and the timer that was set for it before.
    pub(crate) fn next_start(&self, number: LimitNo, now: Uptime) -> Option<Uptime> {
        let limit = self.limit(number)?;
        let Force::Rate(rate) = limit.force else { return None };
        Some(rate.next_start(limit.recovered)).filter(|at| *at > now)
    }

    /// It limits starts within a time, and not jobs at once.
    pub(crate) fn is_rate(&self, number: LimitNo) -> bool {
        self.limit(number).is_some_and(|limit| limit.id.kind == LimitKind::Rate)
    }

    /// When a rate has recovered from all starts; absent for permits.
    pub(crate) fn recovered(&self, number: LimitNo) -> Option<Uptime> {
        self.limit(number).filter(|limit| limit.id.kind == LimitKind::Rate).map(|limit| limit.recovered)
    }

    /// No job needs it.
    pub(crate) fn is_unused(&self, number: LimitNo) -> bool {
        self.limit(number).is_none_or(|limit| limit.jobs == 0)
    }

    /// Sets the time at which a rate is looked at again.
    pub(crate) fn set_due(&mut self, number: LimitNo, at: Option<Uptime>) {
        let Some(limit) = self.limit_mut(number) else { return };
        if let Some(before) = core::mem::replace(&mut limit.due, at) {
            self.due.remove(&(before, number));
        }
        if let Some(at) = at {
            self.due.insert((at, number));
        }
    }

    /// Takes a rate that is to be looked at now.
    pub(crate) fn take_due(&mut self, now: Uptime) -> Option<LimitNo> {
        let (_, number) = self.due.first().copied().filter(|(at, _)| *at <= now)?;
        self.set_due(number, None);
        Some(number)
    }

    /// When the next rate is to be looked at.
    pub(crate) fn next_due(&self) -> Option<Uptime> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes in the stored state of a rate. Nothing of it is needed if it has recovered.
    pub(crate) fn restore_rate(&mut self, row: &RateRow, now: Now) -> Option<LimitNo> {
        if row.id.kind != LimitKind::Rate || row.recovered <= now.utc {
            return None;
        }
        let number = self.intern(row.id.clone(), Force::Lifted);
        let limit = self.limit_mut(number)?;
        limit.recovered = rate::to_uptime(row.recovered, now);
        Some(number)
    }

    /// The limit of permits that such a job needs, its jobs that have not ended, and its permits; none if it is not in force.
    pub(crate) fn occupation(
        &self,
        definition: &Definition,
        keys: Option<&JobKeys>,
    ) -> Option<(LimitId, u64, u32)> {
        let rule = definition.limits.concurrency.as_ref()?;
        let kind = if rule.group.is_some() { LimitKind::Group } else { LimitKind::Definition };
        let name = rule.group.as_deref().unwrap_or(&definition.name).into();
        let id = LimitId { kind, name, key: keys.and_then(|keys| keys.concurrency.clone()) };
        match self.numbers.get(&id).and_then(|number| self.limit(*number)) {
            Some(Limit { force: Force::Permits(permits), jobs, .. }) => Some((id, *jobs, *permits)),
            Some(_) => None,
            None => Some((id, 0, rule.limit)),
        }
    }

    /// Number of permits of this limit, if it is in force.
    pub(crate) fn permits(&self, number: LimitNo) -> Option<u32> {
        match self.limit(number)?.force {
            Force::Permits(permits) => Some(permits),
            Force::Lifted | Force::Rate(_) => None,
        }
    }

    /// All limits with the number of their jobs and their holders, for the audit.
    pub(crate) fn all(&self) -> impl Iterator<Item = (LimitNo, u64, &BTreeSet<JobId>)> {
        let all = (0..).map(LimitNo).zip(&self.table);
        all.filter_map(|(number, limit)| limit.as_ref().map(|limit| (number, limit.jobs, &limit.holders)))
    }

    /// Number of lanes whose jobs need limits, for the audit.
    pub(crate) fn lanes(&self) -> usize {
        self.needs.len()
    }

    fn limit(&self, number: LimitNo) -> Option<&Limit> {
        self.table.get(number.0 as usize)?.as_ref()
    }

    fn limit_mut(&mut self, number: LimitNo) -> Option<&mut Limit> {
        self.table.get_mut(number.0 as usize)?.as_mut()
    }
}
