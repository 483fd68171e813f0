//! Checks for probable mistakes: rules that are legal and odd, rules without any slot, jitter that is too long, and slots that come
//! faster than jobs can end. All of it is asked at load, never in a step.

use core::fmt;
use core::time::Duration;

use protocol::Timestamp;

use super::{Rule, Schedule, Timetable};

/// How many slots are looked at to find the shortest distance between two.
const SLOTS_COMPARED: usize = 64;

/// Slots on different days at the same time of day are further apart than this. Clock changes are shorter than half a day, but for a whole day that
/// a zone leaves out; nobody is warned of that.
const DAYS_APART: Duration = Duration::from_secs(12 * 3_600);

/// Something about a rule that is legal and often a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oddity {
    /// Six fields of which the first is `*`: it fires each second of its minute.
    EachSecond,
    /// Both the day of the month and the day of the week are restricted: either is enough.
    EitherDay,
    /// A step that does not divide its range, as `*/45` minutes: the last distance is shorter.
    UnevenStep,
    /// Some months or years have no such day.
    NotEachMonth,
    /// It had slots, and none is left.
    Over,
}

/// Slots of one definition that come closer together than its jobs may take. Schedules are named by their index in the timetable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crowding {
    /// Two slots of the same schedule.
    Alone {
        /// The schedule.
        schedule: usize,
        /// The distance between the two slots.
        distance: Duration,
    },
    /// A slot of one schedule and a slot of another.
    Together {
        /// The later of the two in the list.
        schedule: usize,
        /// The earlier of the two in the list.
        other: usize,
        /// The distance between the two slots; zero if they are at the same instant.
        distance: Duration,
    },
}

impl Timetable {
    /// The slots that come sooner than `limit` after another one. Each schedule is judged alone first; one that is crowded alone is not
    /// compared with the others, because that would repeat the finding. `shortest` is [`Schedule::shortest_distance`] at `now`, or a caller's
    /// memory of it: the search is most of the cost.
    #[must_use]
    pub fn crowding(
        &self,
        limit: Duration,
        now: Timestamp,
        shortest: &mut dyn FnMut(&Schedule) -> Option<Duration>,
    ) -> alloc::vec::Vec<Crowding> {
        let alone = |(schedule, rule): (usize, &Schedule)| {
            if limit <= DAYS_APART && rule.fires_once_a_day() {
                return None;
            }
            let distance = shortest(rule).filter(|distance| *distance < limit)?;
            Some(Crowding::Alone { schedule, distance })
        };
        let mut found: alloc::vec::Vec<_> = self.schedules.iter().enumerate().filter_map(alone).collect();
        let is_alone = |schedule: usize| {
            found
                .iter()
                .any(|it| matches!(it, Crowding::Alone { schedule: crowded, .. } if *crowded == schedule))
        };
        let rest: alloc::vec::Vec<usize> = (0..self.schedules.len()).filter(|it| !is_alone(*it)).collect();
        // The cost of all searches stays that of the searches for one schedule each.
        let samples = (SLOTS_COMPARED / rest.len().max(1)).max(1);
        for (at, schedule) in rest.iter().enumerate() {
            let nearest = rest[..at].iter().find_map(|other| {
                let (one, two) = (&self.schedules[*schedule], &self.schedules[*other]);
                let distance = one.distance_to(two, limit, now, samples);
                let distance = distance.or_else(|| two.distance_to(one, limit, now, samples))?;
                Some(Crowding::Together { schedule: *schedule, other: *other, distance })
            });
            found.extend(nearest);
        }
        found
    }
}

impl Schedule {
    /// The first oddity found, if any.
    #[must_use]
    pub fn oddity(&self, now: Timestamp) -> Option<Oddity> {
        if self.next_slot_after(now).is_none() {
            return Some(Oddity::Over);
        }
        let Rule::Cron(cron) = &self.rule else { return None };
        let fields = cron.fields();
        let [second, minute, hour, day, _, _] = fields[..] else { return None };
        let uneven = |field: &str, range: u32| {
            let step = field.strip_prefix("*/").and_then(|step| step.parse::<u32>().ok());
            step.is_some_and(|step| step > 0 && !range.is_multiple_of(step))
        };
        if second.starts_with('*') && second != "*/60" && !minute.starts_with('*') {
            return Some(Oddity::EachSecond);
        }
        if cron.names_either_day() {
            return Some(Oddity::EitherDay);
        }
        if uneven(second, 60) || uneven(minute, 60) || uneven(hour, 24) {
            return Some(Oddity::UnevenStep);
        }
        matches!(day, "29" | "30" | "31").then_some(Oddity::NotEachMonth)
    }

    fn fires_once_a_day(&self) -> bool {
        match &self.rule {
            Rule::Cron(cron) | Rule::Daily(cron) => cron.names_one_time_of_day(),
            Rule::Every(_) | Rule::Once { .. } => false,
        }
    }

    /// The shortest distance between two of the next slots; absent if there are not two.
    #[must_use]
    pub fn shortest_distance(&self, now: Timestamp) -> Option<Duration> {
        if let Rule::Every(every) = &self.rule {
            return Some(every.interval());
        }
        let mut last = self.next_slot_after(now)?;
        let mut shortest: Option<Duration> = None;
        for _ in 0..SLOTS_COMPARED {
            let Some(next) = self.next_slot_after(last) else { break };
            let distance = next.since(last);
            shortest = Some(shortest.map_or(distance, |shortest| shortest.min(distance)));
            last = next;
        }
        shortest
    }

    /// The distance of one of the next slots to a slot of another schedule, if it is below `limit`.
    fn distance_to(&self, other: &Self, limit: Duration, now: Timestamp, samples: usize) -> Option<Duration> {
        let mut last = now;
        let mut next = || {
            last = self.next_slot_after(last)?;
            Some(last)
        };
        core::iter::from_fn(&mut next).take(samples).find_map(|slot| {
            let from = now.max(slot - limit);
            let near = other.next_slot_after(from)?;
            let distance = if near > slot { near.since(slot) } else { slot.since(near) };
            (distance < limit).then_some(distance)
        })
    }

    /// True if no instant is a slot, because the rule names none between `start_at` and `end_at`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // Rules that repeat have slots at any time. So the bounds leave none only if there is a beginning.
        let before = match self.rule {
            Rule::Once { at } => Some(at),
            Rule::Cron(_) | Rule::Daily(_) | Rule::Every(_) => self.start_at,
        };
        before.is_some_and(|at| self.next_slot_after(Timestamp(at.0.saturating_sub(1))).is_none())
    }

    /// True if the jitter may carry a slot behind the next one.
    #[must_use]
    pub fn jitter_is_too_long(&self, now: Timestamp) -> bool {
        self.shortest_distance(now).is_some_and(|distance| self.jitter >= distance && !self.jitter.is_zero())
    }
}

impl fmt::Display for Oddity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EachSecond => "six fields: the first is seconds, so it fires each second of its minutes",
            Self::EitherDay => {
                "it fires if the day of the month or the day of the week matches, not only if both do"
            }
            Self::UnevenStep => {
                "the step does not divide its range, so one distance is shorter than the others"
            }
            Self::NotEachMonth => "not each month has this day; L is the last one",
            Self::Over => "its last slot has passed: it does not fire again",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Zone;

    fn cron(text: &str) -> Schedule {
        Schedule::new("a", None, Rule::cron(text).expect("a good rule"), Zone::utc())
    }

    #[test]
    fn odd_rules_are_found_and_usual_ones_are_not() {
        let now = Timestamp(1_700_000_000_000);
        let odd = |text| cron(text).oddity(now);
        assert_eq!(odd("* 0 2 * * *"), Some(Oddity::EachSecond));
        assert_eq!(odd("0 0 13 * 5"), Some(Oddity::EitherDay));
        assert_eq!(odd("*/45 * * * *"), Some(Oddity::UnevenStep));
        assert_eq!(odd("0 0 31 * *"), Some(Oddity::NotEachMonth));
        for usual in
            ["0 2 * * *", "*/15 * * * *", "0 9-17 * * 1-5", "@daily", "0 */6 * * *", "*/10 * * * * *"]
        {
            assert_eq!(odd(usual), None, "{usual}");
        }
        let over = Schedule { end_at: Some(now), ..cron("0 2 * * *") };
        assert_eq!(over.oddity(now), Some(Oddity::Over));
    }

    #[test]
    fn distances_are_compared_with_timeout_and_jitter() {
        let now = Timestamp(0);
        let uneven = cron("*/45 * * * *");
        assert_eq!(uneven.shortest_distance(now), Some(Duration::from_secs(900)));
        let table = Timetable { schedules: [uneven.clone()].into(), ..Timetable::default() };
        let distance = Duration::from_secs(900);
        assert_eq!(
            table.crowding(Duration::from_secs(901), now, &mut |rule| rule.shortest_distance(now)),
            [Crowding::Alone { schedule: 0, distance }]
        );
        assert_eq!(table.crowding(distance, now, &mut |rule| rule.shortest_distance(now)), []);
        assert!(Schedule { jitter: Duration::from_secs(900), ..uneven.clone() }.jitter_is_too_long(now));
        assert!(!Schedule { jitter: Duration::from_secs(899), ..uneven }.jitter_is_too_long(now));
    }

    #[test]
    fn rules_with_one_time_of_day_are_not_searched_for_short_limits() {
        let hours = |hours: u64| Duration::from_secs(hours * 3_600);
        for (rule, is_searched) in [
            ("5 2 * * *", [false, true]),
            ("30 5 2 1 * MON", [false, true]),
            ("@daily", [false, true]),
            ("5 2,3 * * *", [true, true]),
            ("5 * * * *", [true, true]),
            ("*/5 2 * * *", [true, true]),
            ("0-9 5 2 * * *", [true, true]),
        ] {
            let table = Timetable { schedules: [cron(rule)].into(), ..Timetable::default() };
            let searches = [hours(12), hours(13)].map(|limit| {
                let mut searched = false;
                let mut shortest = |schedule: &Schedule| {
                    searched = true;
                    schedule.shortest_distance(Timestamp(0))
                };
                let found = table.crowding(limit, Timestamp(0), &mut shortest);
                assert!(searched || found.is_empty());
                searched
            });
            assert_eq!(searches, is_searched, "{rule}");
        }
        // A day on which the clock goes forward is an hour shorter.
        let nightly = Schedule { zone: Zone::named("Europe/Berlin").expect("a zone"), ..cron("0 1 * * *") };
        let table = Timetable { schedules: [nightly].into(), ..Timetable::default() };
        let spring = Timestamp(1_774_000_000_000);
        let found = table.crowding(hours(24), spring, &mut |rule| rule.shortest_distance(spring));
        assert_eq!(found, [Crowding::Alone { schedule: 0, distance: hours(23) }]);
    }

    #[test]
    fn schedules_of_one_definition_are_compared_with_each_other() {
        let now = Timestamp(0);
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        let crowding = |rules: &[&str], limit| {
            let schedules = rules.iter().map(|rule| cron(rule)).collect();
            let table = Timetable { schedules, ..Timetable::default() };
            table.crowding(limit, now, &mut |rule| rule.shortest_distance(now))
        };
        let together = |schedule, other, distance| Crowding::Together { schedule, other, distance };
        let weekly = ["0 7 * * *", "30 7 * * 1"];
        assert_eq!(crowding(&weekly, minutes(31)), [together(1, 0, minutes(30))]);
        assert_eq!(crowding(&weekly, minutes(30)), []);
        // The rare slot is the earlier one, and far away.
        assert_eq!(crowding(&["50 6 13 12 *", "0 7 * * *"], minutes(60)), [together(1, 0, minutes(10))]);
        assert_eq!(
            crowding(&["0 0 1 * *", "0 0 15 1 *", "0 0 1 1 *"], minutes(1)),
            [together(2, 0, Duration::ZERO)]
        );
        // A schedule that is crowded alone is not compared with others.
        let alone = Crowding::Alone { schedule: 0, distance: minutes(1) };
        assert_eq!(crowding(&["* * * * *", "0 7 * * *"], minutes(5)), [alone]);
    }

    #[test]
    fn a_rule_without_any_slot_is_empty_and_one_whose_slots_have_passed_is_over() {
        let now = Timestamp(1_700_000_000_000);
        let instant = |text: &str| text.parse().map(crate::schedule::zone::millis).ok();
        let december = |rule| Schedule {
            start_at: instant("2026-12-01T00:00:00Z"),
            end_at: instant("2026-12-31T23:59:59Z"),
            ..cron(rule)
        };
        assert!(december("0 0 1 1 *").is_empty());
        assert!(!december("0 0 1 12 *").is_empty());
        let past = Schedule { end_at: Some(Timestamp(0)), ..cron("0 0 1 1 *") };
        assert!(!past.is_empty(), "it had slots");
        assert_eq!(past.oddity(now), Some(Oddity::Over));
        let once = |bounds: Schedule| Schedule { rule: Rule::Once { at: Timestamp(1_000) }, ..bounds };
        assert!(!once(cron("@daily")).is_empty());
        assert!(once(Schedule { end_at: Some(Timestamp(999)), ..cron("@daily") }).is_empty());
        assert!(once(Schedule { start_at: Some(Timestamp(1_001)), ..cron("@daily") }).is_empty());
        let at_once = Schedule { start_at: Some(Timestamp(1_000)), ..cron("@daily") };
        assert!(!once(at_once.clone()).is_empty());
        assert!(once(Schedule { not_immediately: true, ..at_once }).is_empty());
    }
}
