//! When jobs are made without a request: rules in time, and what becomes of slots that do not fit. Pure arithmetic on instants; the state
//! of each schedule and its timers are elsewhere in this crate.
//!
//! A *slot* is an instant that a rule names. [`Schedule::next_slot_after`] walks the slots, [`Schedule::due_at`] adds the jitter, and
//! [`catch_up::plan`] decides about all slots that have passed since the last decision. How slots meet a clock change is written in
//! [`zone`]. Slots have millisecond precision.

pub mod backfill;
pub mod catch_up;
mod check;
mod cron;
mod every;
mod identity;
mod rule;
mod timetable;
pub mod zone;

use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use core::time::Duration;

use protocol::Timestamp;
use protocol::container::Overrides;

use crate::params::JobParams;

pub use check::{Crowding, Oddity};
pub use cron::{Cron, CronError};
pub use every::{EVERY_MIN, Every};
pub use identity::{DERIVED_PREFIX, ScheduleId};
pub use rule::{Rule, RuleError};
pub use timetable::{Overlap, Timetable};
pub use zone::Zone;

/// The longest jitter. A schedule with rarer slots may be spread further by more rules.
pub const JITTER_MAX: Duration = Duration::from_secs(3_600);

/// The slot of its job, for the container: RFC 3339, UTC, milliseconds.
pub const SLOT_VARIABLE: &str = "LONGSHORE_SCHEDULED_AT";

/// The id of the schedule that made its job, for the container.
pub const SCHEDULE_VARIABLE: &str = "LONGSHORE_SCHEDULE_ID";

/// A rule in time with its zone, its limits, and what its jobs get beside the definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Names it among the schedules of its definition.
    pub id: ScheduleId,
    /// The instants that it names.
    pub rule: Rule,
    /// The zone in which the rule is read.
    pub zone: Zone,
    /// No slot is earlier than this.
    pub start_at: Option<Timestamp>,
    /// No slot is later than this.
    pub end_at: Option<Timestamp>,
    /// The instant `start_at` itself is not a slot.
    pub not_immediately: bool,
    /// Each slot fires up to this much later, by an amount that only depends on the slot and on [`Self::seed`].
    pub jitter: Duration,
    /// Hash of the definition's name and the id. The jitter is drawn from it.
    pub seed: u64,
    /// Laid over the definition by each job of this schedule.
    pub overrides: Option<Arc<Overrides>>,
    /// The parameters of its jobs; none if the definition has none.
    pub params: Option<Arc<JobParams>>,
}

impl Schedule {
    /// A schedule without limits, jitter and overrides. `id` is derived from rule and zone if absent.
    #[must_use]
    pub fn new(definition: &str, id: Option<&str>, rule: Rule, zone: Zone) -> Self {
        let id = id.map_or_else(|| ScheduleId::derived(&rule, &zone), ScheduleId::named);
        let seed = identity::hash(&[definition, id.as_str()]);
        Self {
            id,
            rule,
            zone,
            start_at: None,
            end_at: None,
            not_immediately: false,
            jitter: Duration::ZERO,
            seed,
            overrides: None,
            params: None,
        }
    }

    /// The first slot later than `after`, without jitter.
    #[must_use]
    pub fn next_slot_after(&self, after: Timestamp) -> Option<Timestamp> {
        let from = match self.start_at {
            Some(start) if self.not_immediately => after.max(start),
            Some(start) => after.max(Timestamp(start.0.saturating_sub(1))),
            None => after,
        };
        let slot = match &self.rule {
            Rule::Cron(cron) | Rule::Daily(cron) => cron.next_after(from, &self.zone),
            Rule::Every(every) => every.next_after(from, self.anchor()),
            Rule::Once { at, .. } => (*at > from).then_some(*at),
        }?;
        self.end_at.is_none_or(|end| slot <= end).then_some(slot)
    }

    /// The last slot in `(after, until]`. Needs about forty searches, whatever the length of the range.
    #[must_use]
    pub fn last_slot_in(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let mut found = self.next_slot_after(after).filter(|slot| *slot <= until)?;
        // No slot is in `(upper, until]`.
        let mut upper = until;
        while found < upper {
            let middle = Timestamp(found.0 + (upper.0 - found.0) / 2);
            match self.next_slot_after(middle).filter(|slot| *slot <= upper) {
                Some(slot) => found = slot,
                None if middle == found => break,
                None => upper = middle,
            }
        }
        Some(found)
    }

    /// How many slots are in `(after, until]`. Exact for intervals; else at most [`catch_up::COUNTED_MAX`] are counted.
    #[must_use]
    pub fn count_slots(&self, after: Timestamp, until: Timestamp) -> catch_up::SlotCount {
        let Rule::Every(every) = &self.rule else {
            let mut count = 0;
            let mut last = after;
            while let Some(slot) = self.next_slot_after(last).filter(|slot| *slot <= until) {
                if count == catch_up::COUNTED_MAX {
                    return catch_up::SlotCount { count, exact: false };
                }
                (count, last) = (count + 1, slot);
            }
            return catch_up::SlotCount { count, exact: true };
        };
        let first = self.next_slot_after(after).filter(|slot| *slot <= until);
        let end = self.end_at.map_or(until, |end| end.min(until));
        let count = first.map_or(0, |first| every.steps(first, end) + 1);
        catch_up::SlotCount { count, exact: true }
    }

    /// When a slot fires: its instant plus the jitter, which is the same for the same slot at each call.
    #[must_use]
    pub fn due_at(&self, slot: Timestamp) -> Timestamp {
        slot + self.jitter_of(slot)
    }

    fn jitter_of(&self, slot: Timestamp) -> Duration {
        let range = u64::try_from(self.jitter.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        Duration::from_millis(identity::mix(self.seed, slot.0.cast_unsigned()) % range)
    }

    /// The overrides of its job for this slot: its own, and two variables that name slot and schedule.
    #[must_use]
    pub fn overrides_at(&self, slot: Timestamp) -> Overrides {
        let mut overrides = self.overrides.as_deref().cloned().unwrap_or_default();
        let at = jiff::Timestamp::from_millisecond(slot.0).unwrap_or_default();
        overrides.environment.retain(|(name, _)| name != SLOT_VARIABLE && name != SCHEDULE_VARIABLE);
        overrides.environment.push((SLOT_VARIABLE.into(), alloc::format!("{at:.3}")));
        overrides.environment.push((SCHEDULE_VARIABLE.into(), self.id.as_str().into()));
        overrides
    }

    /// The instant from which intervals are counted.
    fn anchor(&self) -> Timestamp {
        self.start_at.unwrap_or_default()
    }

    /// The fingerprint of everything that decides which slots there are. A change of it is a change of the rule.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let bounds = [self.start_at, self.end_at].map(|at| at.map_or(i64::MIN, |at| at.0));
        let mut hash = identity::hash(&[&self.rule.to_string(), self.zone.name()]);
        for word in [bounds[0], bounds[1], i64::from(self.not_immediately)] {
            hash = identity::mix(hash, word.cast_unsigned());
        }
        hash
    }

    /// For people: the rule in words, with its zone.
    #[must_use]
    pub fn describe(&self) -> String {
        if let Rule::Once { at } = &self.rule
            && self.zone != Zone::utc()
            && let Some(local) = self.zone.civil(*at)
        {
            return alloc::format!("once at {} ({})", local.strftime("%F %T"), self.zone.name());
        }
        let zone = if self.rule.depends_on_zone() { self.zone.name() } else { "" };
        let words = self.rule.describe();
        let phrase = words.trim_end_matches('.');
        if zone.is_empty() { words } else { alloc::format!("{phrase} ({zone})") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every(text: &str, start: Option<i64>) -> Schedule {
        let rule = Rule::every(text).expect("a good interval");
        Schedule { start_at: start.map(Timestamp), ..Schedule::new("resize", None, rule, Zone::utc()) }
    }

    fn cron(text: &str) -> Schedule {
        Schedule::new("resize", None, Rule::cron(text).expect("a good rule"), Zone::utc())
    }

    #[test]
    fn start_and_end_are_slots_if_the_rule_names_them() {
        let schedule = Schedule { end_at: Some(Timestamp(30_000)), ..every("10s", Some(10_000)) };
        let slots = |schedule: &Schedule| {
            let mut last = Timestamp(-50_000);
            core::iter::from_fn(|| {
                last = schedule.next_slot_after(last)?;
                Some(last.0)
            })
            .collect::<Vec<_>>()
        };
        assert_eq!(slots(&schedule), [10_000, 20_000, 30_000]);
        assert_eq!(slots(&Schedule { not_immediately: true, ..schedule }), [20_000, 30_000]);
    }

    #[test]
    fn jitter_stays_in_its_range_and_is_the_same_for_the_same_slot() {
        let schedule = Schedule { jitter: Duration::from_secs(60), ..cron("0 2 * * *") };
        let spread: Vec<i64> = (0..100).map(|slot| schedule.due_at(Timestamp(slot)).0 - slot).collect();
        assert!(spread.iter().all(|jitter| (0..=60_000).contains(jitter)));
        assert!(spread.iter().collect::<std::collections::BTreeSet<_>>().len() > 90, "they are spread");
        assert_eq!(schedule.due_at(Timestamp(7)), schedule.clone().due_at(Timestamp(7)));
        let other = Schedule { seed: schedule.seed + 1, ..schedule.clone() };
        assert_ne!(schedule.due_at(Timestamp(7)), other.due_at(Timestamp(7)));
    }

    #[test]
    fn the_last_slot_is_found_without_walking_all_of_them() {
        let year = Timestamp(365 * 86_400_000);
        assert_eq!(every("100ms", None).last_slot_in(Timestamp(0), Timestamp(year.0 + 50)), Some(year));
        assert_eq!(cron("* * * * *").last_slot_in(Timestamp(0), Timestamp(year.0 + 59_999)), Some(year));
        assert_eq!(cron("0 0 1 1 *").last_slot_in(Timestamp(0), Timestamp(year.0 - 1)), None);
        assert_eq!(cron("0 0 1 1 *").last_slot_in(Timestamp(0), year), Some(year));
    }

    #[test]
    fn intervals_are_counted_by_division_and_other_rules_up_to_a_limit() {
        let year = Timestamp(365 * 86_400_000);
        let count = every("100ms", None).count_slots(Timestamp(0), year);
        assert_eq!((count.count, count.exact), (365 * 864_000, true));
        let count = cron("* * * * * *").count_slots(Timestamp(0), year);
        assert_eq!((count.count, count.exact), (catch_up::COUNTED_MAX, false));
        let count = cron("0 * * * *").count_slots(Timestamp(0), Timestamp(86_400_000));
        assert_eq!((count.count, count.exact), (24, true));
    }

    #[test]
    fn a_single_time_is_described_in_the_zone_of_the_schedule() {
        let rule = Rule::Once { at: Timestamp(1_772_357_400_000) };
        let oslo = Zone::named("Europe/Oslo").expect("a zone");
        let schedule = |zone| Schedule::new("resize", None, rule.clone(), zone);
        assert_eq!(schedule(oslo).describe(), "once at 2026-03-01 10:30:00 (Europe/Oslo)");
        assert_eq!(schedule(Zone::utc()).describe(), "once at 2026-03-01T09:30:00Z");
    }

    #[test]
    fn another_rule_has_another_fingerprint_and_overrides_change_none() {
        let schedule = cron("0 2 * * *");
        assert_eq!(schedule.fingerprint(), cron("0 2 * * *").fingerprint());
        assert_ne!(schedule.fingerprint(), cron("0 3 * * *").fingerprint());
        let later = Schedule { start_at: Some(Timestamp(1)), ..schedule.clone() };
        assert_ne!(schedule.fingerprint(), later.fingerprint());
        let body = Some(Arc::new(Overrides::default()));
        assert_eq!(schedule.fingerprint(), Schedule { overrides: body, ..schedule.clone() }.fingerprint());
    }
}
