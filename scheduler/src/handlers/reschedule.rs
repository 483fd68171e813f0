//! A reading of jobs.yaml reaches the schedules: new ones begin, changed ones begin anew, those that are gone keep their cursor. The rules
//! are in [`crate::schedules`]. This walks all schedules, once per reading.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::{JobId, Now, Timestamp};

use crate::core::Scheduler;
use crate::definition::Definition;
use crate::handlers::{due, fire};
use crate::ids::ScheduleNo;
use crate::pauses;
use crate::schedule::catch_up::{InactiveReason, SlotCount, SlotDecision, SlotRun};
use crate::schedule::{Schedule, ScheduleId};
use crate::schedules::{CurrentDefinition, Entry, FireVerdict, MissReason, ScheduleRow};

pub(crate) fn reschedule(scheduler: &mut Scheduler, now: Now, definitions: &[Arc<Definition>]) {
    scheduler.schedules.are_read = true;
    let listed = Listed::of(scheduler, definitions);
    decide_before_change(scheduler, now, &listed);
    let mut listed_numbers = BTreeSet::new();
    for state in scheduler.schedules.by_definition.values_mut() {
        (state.current, state.group) = (None, None);
    }
    for definition in definitions.iter().filter(|definition| !definition.timetable.schedules.is_empty()) {
        let name: Arc<str> = definition.name.as_str().into();
        let timetable = &definition.timetable;
        let state = scheduler.schedules.by_definition.entry(name.clone()).or_default();
        state.group = pauses::group_of(definition);
        state.current = Some(CurrentDefinition {
            revision: definition.revision,
            enabled: definition.enabled,
            overlap: timetable.overlap,
            catch_up: timetable.catch_up,
        });
        for schedule in &timetable.schedules {
            listed_numbers.insert(add_or_update(scheduler, now, &name, schedule));
        }
    }
    let gone: Vec<ScheduleNo> = scheduler
        .schedules
        .entries
        .keys()
        .filter(|number| !listed_numbers.contains(number))
        .copied()
        .collect();
    for number in gone {
        remove(scheduler, now, number, &listed);
    }
    release_waiting_jobs(scheduler);
}

/// The schedules of a version of jobs.yaml.
struct Listed {
    /// The rule of each, by its fingerprint.
    rules: BTreeMap<(Arc<str>, ScheduleId), u64>,
    /// Definitions that gain a schedule whose id is derived from its rule.
    gaining: BTreeSet<Arc<str>>,
}

/// Consequence of a version of jobs.yaml for a schedule.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RuleFate {
    Stays,
    Changes,
    Leaves,
}

impl Listed {
    fn of(scheduler: &Scheduler, definitions: &[Arc<Definition>]) -> Self {
        let mut listed = Self { rules: BTreeMap::new(), gaining: BTreeSet::new() };
        for definition in definitions {
            let name: Arc<str> = definition.name.as_str().into();
            for schedule in &definition.timetable.schedules {
                let key = (name.clone(), schedule.id.clone());
                if schedule.id.is_derived() && !scheduler.schedules.numbers.contains_key(&key) {
                    listed.gaining.insert(name.clone());
                }
                listed.rules.insert(key, schedule.fingerprint());
            }
        }
        listed
    }

    fn fate_of(&self, row: &ScheduleRow) -> RuleFate {
        match self.rules.get(&(row.definition.clone(), row.schedule.clone())) {
            Some(rule) if *rule == row.fingerprint => RuleFate::Stays,
            Some(_) => RuleFate::Changes,
            // Another rule has another id, unless a person chose one. Beside a new one an old one counts as changed.
            None if row.schedule.is_derived() && self.gaining.contains(&row.definition) => RuleFate::Changes,
            None => RuleFate::Leaves,
        }
    }
}

/// Decides what is due by the rules that held so far, and all slots that have passed of rules that end.
fn decide_before_change(scheduler: &mut Scheduler, now: Now, listed: &Listed) {
    // Slots of inactive schedules may have passed before their timer.
    let is_due = |entry: &Entry| {
        entry.due_at.is_some_and(|at| at <= now.utc)
            || scheduler.schedules.inactive_reason(&entry.row, &scheduler.pauses).is_some()
    };
    let with_rule = scheduler.schedules.entries.iter().filter(|(_, entry)| entry.schedule.is_some());
    let fates = with_rule.map(|(number, entry)| (*number, listed.fate_of(&entry.row), is_due(entry)));
    let affected = fates.filter(|(_, fate, is_due)| *is_due || *fate != RuleFate::Stays);
    for (number, fate, _) in affected.collect::<Vec<_>>() {
        if fate == RuleFate::Changes {
            fire::decide_slots_of_ended_rule(scheduler, now, number);
            continue;
        }
        fire::fire(scheduler, now, number);
        if fate == RuleFate::Leaves {
            fire::miss_slots_of_removed_schedule(scheduler, now, number);
        }
    }
}

fn add_or_update(scheduler: &mut Scheduler, now: Now, name: &Arc<str>, schedule: &Schedule) -> ScheduleNo {
    let fingerprint = schedule.fingerprint();
    let key = (name.clone(), schedule.id.clone());
    let known = scheduler.schedules.numbers.get(&key).copied();
    let number = known.unwrap_or_else(|| {
        scheduler.schedules.add(ScheduleRow {
            definition: key.0,
            schedule: key.1,
            cursor: now.utc,
            fingerprint,
            removed_at: None,
            last_fire: None,
        })
    });
    let Some(entry) = scheduler.schedules.entries.get_mut(&number) else { return number };
    let is_rule_known = entry.schedule.replace(schedule.clone()).is_some();
    let was_removed = entry.row.removed_at.take().is_some();
    let is_changed = core::mem::replace(&mut entry.row.fingerprint, fingerprint) != fingerprint;
    if is_changed && is_rule_known {
        let decision = SlotDecision::Inactive(InactiveReason::RuleChanged);
        let run = SlotRun { from: now.utc, to: now.utc, count: NO_SLOTS, decision };
        record_end_of_rule(scheduler, now, number, run);
    } else if is_changed {
        record_uncounted_slots(scheduler, now, number, InactiveReason::RuleChanged);
    } else if was_removed {
        fire::decide_due_slots(scheduler, now, number, Some(InactiveReason::Removed));
    }
    if known.is_none() || is_changed || was_removed {
        fire::put_row(scheduler, number);
    }
    fire::arm(scheduler, number);
    number
}

fn remove(scheduler: &mut Scheduler, now: Now, number: ScheduleNo, listed: &Listed) {
    let Some(entry) = scheduler.schedules.entries.get_mut(&number) else { return };
    let is_rule_known = entry.schedule.take().is_some();
    let is_newly_removed = entry.row.removed_at.is_none();
    if is_newly_removed && !is_rule_known {
        let changes = listed.fate_of(&entry.row) == RuleFate::Changes;
        let reason = if changes { InactiveReason::RuleChanged } else { InactiveReason::Removed };
        record_uncounted_slots(scheduler, now, number, reason);
    }
    let Some(entry) = scheduler.schedules.entries.get_mut(&number) else { return };
    if is_newly_removed {
        entry.row.removed_at = Some(now.utc);
        entry.extendable_row = None;
    }
    fire::arm(scheduler, number);
    if is_newly_removed {
        fire::put_row(scheduler, number);
    }
}

/// The rule changed while the server was away, which does not know the old one: one row without a count covers the slots that it may have
/// had since the last decision.
fn record_uncounted_slots(scheduler: &mut Scheduler, now: Now, number: ScheduleNo, reason: InactiveReason) {
    let Some(entry) = scheduler.schedules.entries.get(&number) else { return };
    let from = Timestamp(entry.row.cursor.0.saturating_add(1));
    let run = SlotRun { from, to: now.utc, count: NOT_COUNTED, decision: SlotDecision::Inactive(reason) };
    record_end_of_rule(scheduler, now, number, run);
}

/// Marks the end of a rule in the ledger.
fn record_end_of_rule(scheduler: &mut Scheduler, now: Now, number: ScheduleNo, run: SlotRun) {
    let Some(entry) = scheduler.schedules.entries.get(&number) else { return };
    if entry.row.cursor >= now.utc {
        return;
    }
    let is_removed = run.decision == SlotDecision::Inactive(InactiveReason::Removed);
    let why = if is_removed { MissReason::Removed } else { MissReason::RuleChanged };
    fire::record(scheduler, now, number, run, FireVerdict::Missed(why));
}

/// All slots of the old rule have their verdicts.
const NO_SLOTS: SlotCount = SlotCount { count: 0, exact: true };

/// Nobody knows how many slots the old rule had.
const NOT_COUNTED: SlotCount = SlotCount { count: 0, exact: false };

/// Lets jobs go on that waited for an earlier one, if `overlap` allows that now.
fn release_waiting_jobs(scheduler: &mut Scheduler) {
    let waiting: Vec<JobId> = scheduler
        .schedules
        .by_definition
        .values()
        .filter(|state| state.live.len() > 1)
        .flat_map(|state| state.live.iter().copied())
        .collect();
    for job in waiting {
        if !scheduler.schedules.must_wait(job) {
            due::set_timer(scheduler, job);
        }
    }
}
