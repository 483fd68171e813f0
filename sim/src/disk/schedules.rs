//! Schedules, pauses and the fire ledger as the store keeps them. Each change is checked against promise 4: every slot has exactly one verdict and
//! makes at most one job, the ledger has no gap, and a paused schedule does not fire. Nor does a job of a paused definition start. `policies`
//! has the rules of `overlap` and `catch_up`.

mod policies;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::{JobId, Timestamp};
use scheduler::definition::Definition;
use scheduler::origin::Intervention;
use scheduler::pauses::PauseTarget;
use scheduler::schedule::backfill::LedgerReading;
use scheduler::schedule::{Rule, Schedule, ScheduleId, Zone};
use scheduler::schedules::{FireRow, FireVerdict, LiveSchedules, MissReason, ScheduleRow};
use scheduler::step::{AddedJob, Change};

use super::row::Row;
use policies::Policies;

type Key = (Arc<str>, ScheduleId);

#[derive(Clone, Debug, Default)]
pub(crate) struct Schedules {
    rows: BTreeMap<Key, ScheduleRow>,
    paused: BTreeMap<PauseTarget, Intervention>,
    /// By the first slot.
    fires: BTreeMap<Key, BTreeMap<Timestamp, FireRow>>,
    /// Slots that a backfill made jobs of.
    backfilled: BTreeMap<Key, BTreeMap<Timestamp, JobId>>,
    /// Jobs of slots that the ledger names.
    jobs: BTreeSet<JobId>,
    /// Rules of all versions of jobs.yaml, by fingerprint.
    rules: BTreeMap<(Key, u64), Schedule>,
    /// The definition, schedule and slot that each job was made for, as its container sees them. `longshore restore`
    /// keeps it; a raw copy does not.
    made: BTreeMap<Key, BTreeSet<String>>,
    /// By schedule: up to here slots may have become jobs that the ledger does not know.
    forgotten: BTreeMap<Key, Timestamp>,
    /// The same for schedules that have no row.
    forgotten_until: Option<Timestamp>,
    policies: Policies,
    /// Jobs of slots that this commit has added and the ledger does not name yet.
    unrecorded: BTreeSet<JobId>,
    /// `true` during the first commit of a server process. Slots of schedules that were removed from jobs.yaml while the server was down may
    /// then stay undecided.
    is_first_commit: bool,
    /// The first change that breaks promise 4 or a policy, with the rule.
    broken: Option<(&'static str, String)>,
}

impl Schedules {
    /// A commit begins. `is_first_commit`: of a server process.
    pub(super) fn begin_commit(&mut self, definitions: &[Arc<Definition>], is_first_commit: bool) {
        self.is_first_commit = is_first_commit;
        if is_first_commit {
            self.policies.begin_life();
        }
        for definition in definitions {
            self.policies.define(&definition.name, &definition.timetable);
            for schedule in &definition.timetable.schedules {
                let key = (definition.name.as_str().into(), schedule.id.clone());
                self.rules.insert((key, schedule.fingerprint()), schedule.clone());
            }
        }
    }

    /// All changes of a commit are stored.
    pub(super) fn end_commit(&mut self) {
        let unrecorded = std::mem::take(&mut self.unrecorded);
        if let Some(job) = unrecorded.first() {
            self.fail(format!("the ledger does not know the slot of job {job}"));
        }
    }

    /// The first violation since the last call, with its rule.
    pub(crate) const fn take_violation(&mut self) -> Option<(&'static str, String)> {
        self.broken.take()
    }

    /// A job was added. If a schedule made it, no other job has the same slot.
    pub(super) fn check_job(&mut self, added: &AddedJob, definition: &str) {
        let Some(details) = &added.details else { return };
        let variable = |wanted: &str| {
            let found = details.overrides.environment.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| value.to_owned())
        };
        let (Some(schedule), Some(slot)) = (variable(SCHEDULE_VARIABLE), variable(SLOT_VARIABLE)) else {
            return;
        };
        let text = format!("slot {slot} of {definition}/{schedule} made job {} and another one", added.job);
        self.unrecorded.insert(added.job);
        let key = (Arc::from(definition), ScheduleId::named(&schedule));
        if !self.made.entry(key).or_default().insert(slot) {
            self.fail(text);
        }
    }

    pub(super) fn take(&mut self, change: &Change, jobs: &[Option<Row>]) {
        if let Change::Fire(row) = change {
            let rule = self.rule(&(row.definition.clone(), row.schedule.clone())).cloned();
            if let Err(violation) = self.policies.check(row, rule.as_ref(), jobs) {
                self.broken.get_or_insert(("schedules obey overlap and catch_up", violation));
            }
        }
        let checked = match change {
            Change::Schedule(row) => self.put(row),
            Change::Fire(row @ FireRow { verdict: FireVerdict::Backfilled(job), .. }) => {
                self.backfill(row, *job)
            }
            Change::Fire(row) => self.record(row),
            Change::Paused { target, pause } => {
                match pause.in_force() {
                    Some(pause) => drop(self.paused.insert(target.clone(), pause.clone())),
                    None => drop(self.paused.remove(target)),
                }
                Ok(())
            }
            _ => Ok(()),
        };
        if let Err(violation) = checked {
            self.fail(violation);
        }
    }

    /// The store is a restored backup, and `present` is what it replaces.
    pub(crate) fn go_on(&mut self, present: &Self, now: Timestamp) {
        for (key, row) in &mut self.rows {
            if let Some(fire) = row.go_on_at(now) {
                self.fires.entry(key.clone()).or_default().insert(fire.from, fire);
            }
            self.forgotten.insert(key.clone(), now);
        }
        self.forgotten_until = self.forgotten_until.max(Some(now));
        // A clock that is set back before the restore takes it back in time: later slots have yet to come.
        let until = slot_text(now);
        for (key, slots) in &present.made {
            let past = slots.iter().filter(|slot| **slot <= until).cloned();
            self.made.entry(key.clone()).or_default().extend(past);
        }
    }

    /// A schedule is seen for the first time by this store, and has no slots before. If the clock was set back after a restore, slots that
    /// it had in the store that is gone have yet to come: nobody can know.
    fn begin(&mut self, key: &Key, cursor: Timestamp) {
        self.forgotten.extend(self.forgotten_until.map(|until| (key.clone(), until)));
        let until = slot_text(cursor);
        if let Some(slots) = self.made.get_mut(key) {
            slots.retain(|slot| *slot <= until);
        }
    }

    fn fail(&mut self, violation: String) {
        self.broken.get_or_insert(("promise 4 each slot has one verdict", violation));
    }

    /// The last slot that has a verdict, or the beginning of the schedule.
    fn decided_until(&self, key: &Key) -> Option<Timestamp> {
        let cursor = self.rows.get(key)?.cursor;
        let last = self.fires.get(key).and_then(|fires| fires.last_key_value()).map(|(_, fire)| fire.to);
        Some(last.map_or(cursor, |last| last.max(cursor)))
    }

    /// The cursor is always the end of the ledger.
    fn put(&mut self, row: &ScheduleRow) -> Result<(), String> {
        let key = (row.definition.clone(), row.schedule.clone());
        if let Some(until) = self.decided_until(&key)
            && until != row.cursor
        {
            let name = format!("{}/{}", key.0, key.1);
            return Err(format!("the cursor of {name} is {}, its ledger ends at {}", row.cursor.0, until.0));
        }
        if !self.rows.contains_key(&key) {
            self.begin(&key, row.cursor);
        }
        let before = self.rows.insert(key.clone(), row.clone());
        let was_present = before.is_some_and(|before| before.removed_at.is_none());
        if let Some(at) = row.removed_at.filter(|_| was_present && !self.is_first_commit)
            && let Some(rule) = self.rules.get(&(key.clone(), row.fingerprint))
            && let Some(slot) = rule.next_slot_after(row.cursor).filter(|slot| *slot <= at)
        {
            return Err(format!("slot {} of {}/{} never got a verdict", slot.0, key.0, key.1));
        }
        Ok(())
    }

    fn record(&mut self, row: &FireRow) -> Result<(), String> {
        let key = (row.definition.clone(), row.schedule.clone());
        let name = format!("slot {} of {}/{}", row.from.0, key.0, key.1);
        let has_fired = row.verdict.has_fired();
        if has_fired && (row.from != row.to || row.count.count != 1) {
            return Err(format!("{name} and others became one job"));
        }
        if has_fired && self.is_paused(&key) {
            return Err(format!("{name} fires while its schedule is paused"));
        }
        let until = self.decided_until(&key).ok_or_else(|| format!("{name} has no schedule"))?;
        let fires = self.fires.entry(key.clone()).or_default();
        let before = fires.insert(row.from, row.clone());
        if let Some(before) = &before
            && (before.verdict.has_fired() || before.verdict != row.verdict || before.to != until)
        {
            return Err(format!("{name} was decided before"));
        }
        if before.is_none() && row.from <= until {
            return Err(format!("{name} has two verdicts: the ledger reaches to {}", until.0));
        }
        if row.count.count == 0 {
            self.check_change(&key, row, until)?;
        } else {
            let decided = before.as_ref().map_or(0, |before| before.count.count);
            self.check_gap(&key, row, until, before.is_none(), decided)?;
        }
        let Some(job) = row.verdict.job().filter(|_| has_fired) else { return Ok(()) };
        if !self.jobs.insert(job) {
            return Err(format!("{name} became job {job}, which another slot became"));
        }
        if !self.unrecorded.remove(&job) {
            return Err(format!("{name} became job {job}, which no schedule has made"));
        }
        Ok(())
    }

    /// A row without a slot marks the end of a rule. A running server knows the rule, and has decided all of its slots.
    fn check_change(&self, key: &Key, row: &FireRow, until: Timestamp) -> Result<(), String> {
        let name = format!("{}/{}", key.0, key.1);
        let reasons = [MissReason::RuleChanged, MissReason::Removed].map(FireVerdict::Missed);
        if !reasons.contains(&row.verdict) {
            return Err(format!("{name} has a row without slots, {}", row.verdict.name()));
        }
        let was_present = self.rows.get(key).is_some_and(|row| row.removed_at.is_none());
        if row.count.exact || (was_present && !self.is_first_commit) {
            let slot = self.rule(key).and_then(|rule| rule.next_slot_after(until));
            if let Some(slot) = slot.filter(|slot| *slot <= row.to) {
                return Err(format!("slot {} of {name} is lost at the change of its rule", slot.0));
            }
        }
        Ok(())
    }

    /// A slot is backfilled once, after it was decided, and never if it has fired.
    fn backfill(&mut self, row: &FireRow, job: JobId) -> Result<(), String> {
        let key = (row.definition.clone(), row.schedule.clone());
        let name = format!("slot {} of {}/{}", row.from.0, key.0, key.1);
        let until = self.rows.get(&key).map(|row| row.cursor);
        if until.is_none_or(|until| row.from > until) || row.from != row.to {
            return Err(format!("{name} is backfilled and not decided yet"));
        }
        let fires = self.fires.get(&key).and_then(|fires| fires.get(&row.from));
        if fires.is_some_and(|fire| fire.verdict.has_fired()) {
            return Err(format!("{name} has fired, and is backfilled"));
        }
        if self.backfilled.entry(key).or_default().insert(row.from, job).is_some() {
            return Err(format!("{name} is backfilled twice"));
        }
        if !self.jobs.insert(job) || !self.unrecorded.remove(&job) {
            return Err(format!("{name} became job {job}, which was not made for it"));
        }
        Ok(())
    }

    /// The facts that a reader of the ledger learns about a schedule.
    pub(crate) fn reading(&self, definition: &Arc<str>, schedule: &ScheduleId) -> LedgerReading {
        let key = (definition.clone(), schedule.clone());
        let rows = self.fires.get(&key).into_iter().flatten().map(|(_, row)| row);
        let fired = rows.filter(|row| row.verdict.has_fired());
        let mut fired: BTreeMap<_, _> =
            fired.filter_map(|row| Some((row.from, row.verdict.job()?))).collect();
        fired.extend(self.backfilled.get(&key).into_iter().flatten().map(|(slot, job)| (*slot, *job)));
        let decided_until = self.rows.get(&key).map(|row| row.cursor);
        LedgerReading { decided_until, forgotten_until: self.forgotten.get(&key).copied(), fired }
    }

    /// The row begins at the first slot that has no verdict, and counts all slots that it adds.
    fn check_gap(
        &self,
        key: &Key,
        row: &FireRow,
        until: Timestamp,
        is_new: bool,
        decided: u64,
    ) -> Result<(), String> {
        let name = format!("{}/{}", key.0, key.1);
        let rule = self.rule(key).ok_or_else(|| format!("{name} has an unknown rule"))?;
        let first = rule.next_slot_after(until);
        if is_new && first != Some(row.from) {
            let first = first.map(|slot| slot.0);
            return Err(format!(
                "{name} decides slot {}, the first after its cursor is {first:?}",
                row.from.0
            ));
        }
        let count = rule.count_slots(until, row.to);
        if count.exact && row.count.exact && decided + count.count != row.count.count {
            let (all, told) = (decided + count.count, row.count.count);
            return Err(format!("{name} counts {told} slots from {} to {}, not {all}", row.from.0, row.to.0));
        }
        Ok(())
    }

    /// The present rule of a schedule.
    fn rule(&self, key: &Key) -> Option<&Schedule> {
        self.rows.get(key).and_then(|row| self.rules.get(&(key.clone(), row.fingerprint)))
    }

    /// The pauses that end by themselves, with their ends.
    pub(crate) fn pause_ends(&self) -> impl Iterator<Item = (&PauseTarget, Timestamp)> {
        self.paused.iter().filter_map(|(target, pause)| Some((target, pause.until?)))
    }

    /// The batches that are paused.
    pub(crate) fn paused_batches(&self) -> impl Iterator<Item = &PauseTarget> {
        self.paused.keys().filter(|target| matches!(target, PauseTarget::Batch(_)))
    }

    /// True if this target is paused itself.
    pub(crate) fn is_in_force(&self, target: &PauseTarget) -> bool {
        self.paused.contains_key(target)
    }

    /// The end of this pause, if it is in force and has one.
    pub(crate) fn pause_end(&self, target: &PauseTarget) -> Option<Timestamp> {
        self.paused.get(target)?.until
    }

    /// No job of this definition may get an attempt.
    pub(super) fn must_wait(&self, definition: &Definition) -> bool {
        let group = definition.limits.concurrency.as_ref().and_then(|it| it.group.as_deref());
        self.paused.keys().any(|target| match target {
            PauseTarget::Server => true,
            PauseTarget::Group(name) => group == Some(&**name),
            PauseTarget::Definition(name) => **name == *definition.name,
            PauseTarget::Schedules | PauseTarget::Schedule(..) | PauseTarget::Batch(_) => false,
        })
    }

    /// The group of a definition is not looked at: a slot may have been decided before the reading that changed it.
    fn is_paused(&self, (definition, schedule): &Key) -> bool {
        self.paused.keys().any(|target| match target {
            PauseTarget::Server | PauseTarget::Schedules => true,
            PauseTarget::Group(_) | PauseTarget::Batch(_) => false,
            PauseTarget::Definition(name) => name == definition,
            PauseTarget::Schedule(name, id) => name == definition && id == schedule,
        })
    }

    pub(super) fn live(&self, is_live: impl Fn(JobId) -> bool) -> LiveSchedules {
        let fires = self.fires.values().flat_map(BTreeMap::values);
        let fired = fires.filter(|row| row.verdict.has_fired());
        let jobs = fired.filter_map(|row| Some((row.verdict.job()?, row.definition.clone())));
        let backfilled = self.backfilled.iter();
        let backfilled =
            backfilled.flat_map(|((name, _), slots)| slots.values().map(|job| (*job, name.clone())));
        let jobs = jobs.chain(backfilled);
        LiveSchedules {
            rows: self.rows.values().cloned().collect(),
            paused: self.paused.iter().map(|(target, pause)| (target.clone(), pause.clone())).collect(),
            jobs: jobs.filter(|(job, _)| is_live(*job)).collect(),
        }
    }
}

/// The text of a slot, as in `LONGSHORE_SCHEDULED_AT`. Texts sort by time.
fn slot_text(at: Timestamp) -> String {
    let schedule = Schedule::new("", None, Rule::Once { at }, Zone::utc());
    let told = schedule.overrides_at(at).environment;
    told.into_iter().find_map(|(name, value)| (name == SLOT_VARIABLE).then_some(value)).unwrap_or_default()
}

/// Variables of a container that a schedule's job runs, by which the simulation finds its slot.
const SLOT_VARIABLE: &str = "LONGSHORE_SCHEDULED_AT";
const SCHEDULE_VARIABLE: &str = "LONGSHORE_SCHEDULE_ID";

#[cfg(test)]
mod tests;
