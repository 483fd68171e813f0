//! Fills the JSON of schedules and of the fire ledger.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::Timestamp;
use scheduler::definition::Definition;
use scheduler::pauses::{Pauses, group_of};
use scheduler::schedule::Schedule;
use scheduler::schedules::{FireRow, ScheduleRow};

use crate::clock;
use crate::http::present::shapes::{self, Time};
use crate::http::request::query::Moment;
use crate::store::{ScheduleState, SlotEnd, SlotJob};

/// The slots of a schedule that are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextSlots {
    pub(crate) count: u64,
    /// Those of the rule at or after this instant, or from this day of the schedule's zone on, earlier ones too; absent: those that have not
    /// fired.
    pub(crate) from: Option<Moment>,
}

impl NextSlots {
    /// This many of those that have not fired.
    pub(crate) const fn unfired(count: u64) -> Self {
        Self { count, from: None }
    }
}

/// The stored state of schedules, to be looked up.
pub(crate) struct StoredSchedules<'k> {
    rows: BTreeMap<(&'k str, &'k str), &'k ScheduleRow>,
    pauses: Pauses,
    now: Timestamp,
    next: NextSlots,
}

impl<'k> StoredSchedules<'k> {
    /// The state, for schedules that are shown with these slots.
    pub(crate) fn new(state: &'k ScheduleState, next: NextSlots) -> Self {
        let key = |row: &'k ScheduleRow| ((&*row.definition, row.schedule.as_str()), row);
        let pauses = Pauses::of(state.paused.iter().cloned());
        Self { rows: state.rows.iter().map(key).collect(), pauses, now: clock::now().utc, next }
    }

    /// The JSON of the schedules of a definition.
    pub(crate) fn schedules_of(&self, definition: &Definition) -> impl Iterator<Item = shapes::Schedule> {
        definition.timetable.schedules.iter().map(|schedule| self.schedule(definition, schedule))
    }

    /// The next slot of the active schedules of a definition.
    pub(crate) fn next_fire(&self, definition: &Definition) -> Option<Time> {
        let schedules = definition.timetable.schedules.iter().filter(|_| definition.enabled);
        let active = schedules.filter(|schedule| self.paused_since(definition, schedule).is_none());
        active.filter_map(|schedule| self.slots(definition, schedule).next()).min()
    }

    fn row(&self, definition: &Definition, schedule: &Schedule) -> Option<&'k ScheduleRow> {
        self.rows.get(&(definition.name.as_str(), schedule.id.as_str())).copied()
    }

    fn paused_since(&self, definition: &Definition, schedule: &Schedule) -> Option<Timestamp> {
        let name = Arc::from(definition.name.as_str());
        let pauses = self.pauses.of_schedule(&name, group_of(definition), &schedule.id);
        pauses.map(|(_, pause)| pause.since).min()
    }

    fn paused_until(&self, definition: &Definition, schedule: &Schedule) -> Option<Timestamp> {
        let name = Arc::from(definition.name.as_str());
        self.pauses.last_end(&name, group_of(definition), &schedule.id)
    }

    /// The slots of a schedule from now on that have not fired.
    fn slots(&self, definition: &Definition, schedule: &Schedule) -> impl Iterator<Item = Time> {
        // A slot that fired stays fired, also while the clock stands before it.
        let row = self.row(definition, schedule);
        slots_after(schedule, row.map_or(self.now, |row| row.cursor.max(self.now)))
    }

    /// The slots to show.
    fn shown_slots(&self, definition: &Definition, schedule: &Schedule) -> Vec<Time> {
        let count = usize::try_from(self.next.count).unwrap_or(usize::MAX);
        let from = match self.next.from {
            None => return self.slots(definition, schedule).take(count).collect(),
            Some(Moment::Instant(at)) => Some(at),
            Some(Moment::Date(date)) => schedule.zone.first_instant(date.at(0, 0, 0, 0)),
        };
        // A day that no clock shows has no slots.
        let before = from.map(|from| Timestamp(from.0.saturating_sub(1)));
        before.into_iter().flat_map(|before| slots_after(schedule, before)).take(count).collect()
    }

    fn schedule(&self, definition: &Definition, schedule: &Schedule) -> shapes::Schedule {
        let paused_since = self.paused_since(definition, schedule);
        let row = self.row(definition, schedule);
        let last_fire = row.and_then(|row| row.last_fire).map(|last| shapes::LastFire {
            slot: Time(last.slot),
            at: Time(last.at),
            job: last.job.0,
            lateness_ms: shapes::millis(last.at.since(schedule.due_at(last.slot))),
        });
        let next = self.shown_slots(definition, schedule);
        let next_due = match schedule.jitter.is_zero() {
            true => Vec::new(),
            false => next.iter().map(|slot| Time(schedule.due_at(slot.0))).collect(),
        };
        let overrides = schedule.overrides.as_deref();
        let variables = overrides.map_or(&[][..], |overrides| &overrides.environment).iter();
        let is_over = || self.slots(definition, schedule).next().is_none();
        // As the ledger tells it: a pause of a disabled schedule changes nothing.
        let state = match (definition.enabled, paused_since) {
            (false, _) => "disabled",
            (true, Some(_)) => "paused",
            (true, None) if is_over() => "over",
            (true, None) => "active",
        };
        shapes::Schedule {
            name: definition.name.as_str().to_owned(),
            id: schedule.id.to_string(),
            rule: schedule.rule.to_string(),
            description: schedule.describe(),
            timezone: schedule.zone.name().to_owned(),
            state: state.into(),
            paused_since: paused_since.map(Time),
            paused_until: self.paused_until(definition, schedule).map(Time),
            decided_until: row.and_then(|row| row.decided_until(self.now)).map(Time),
            start_at: schedule.start_at.map(Time),
            end_at: schedule.end_at.map(Time),
            jitter_ms: (!schedule.jitter.is_zero()).then(|| shapes::millis(schedule.jitter)),
            args: overrides.map(|overrides| overrides.args.clone()).unwrap_or_default(),
            environment: variables.map(|(name, _)| name.clone()).collect(),
            next,
            next_due,
            last_fire,
        }
    }
}

fn slots_after(schedule: &Schedule, mut slot: Timestamp) -> impl Iterator<Item = Time> {
    std::iter::from_fn(move || {
        slot = schedule.next_slot_after(slot)?;
        Some(Time(slot))
    })
}

/// The JSON of a row of the ledger, with the end of the job that it became. The definition, as it is now, knows the jitter and the zone of its
/// schedules.
pub(crate) fn fire(row: &FireRow, end: Option<&SlotEnd>, definition: Option<&Definition>) -> shapes::Fire {
    let end = end.copied().unwrap_or_default();
    let own = end.own.as_ref();
    let retry = end.retry.map(|retry| shapes::SlotRetry {
        id: retry.job.0,
        state: retry.state.name().into(),
        outcome: outcome(&retry),
        exit_code: retry.exit_code,
    });
    let schedule = definition.and_then(|it| it.timetable.schedules.iter().find(|it| it.id == row.schedule));
    shapes::Fire {
        schedule: row.schedule.to_string(),
        from: Time(row.from),
        to: Time(row.to),
        count: row.count.count,
        at_least: !row.count.exact,
        verdict: row.verdict.name().into(),
        reason: row.verdict.reason().map(Into::into),
        job: row.verdict.job().map(|job| job.0),
        state: own.map(|job| job.state.name().into()),
        outcome: own.and_then(outcome),
        exit_code: own.and_then(|job| job.exit_code),
        retry,
        unresolved: end.is_unresolved,
        timezone: schedule.map(|schedule| schedule.zone.name().to_owned()),
        decided_at: Time(row.at),
        lateness_ms: shapes::millis(row.lateness(definition)),
    }
}

fn outcome(job: &SlotJob) -> Option<shapes::Text> {
    job.outcome.map(|outcome| outcome.name().into())
}
