//! Checks for probable mistakes: rules that are legal and odd, rules without any slot, jitter that is too long, and slots that come
//! faster than jobs can end. All of it is asked at load, never in a step.

use core::fmt;
use core::time::Duration;

use protocol::Timestamp;

use super::{Rule, Schedule, Timetable};

/// Number of slots that a search for the shortest distance between two slots reads.
const SLOTS_COMPARED: usize = 64;

/// A lower bound of the distance between slots on different days at the same time of day. A clock change is shorter than half a day. A zone
/// that leaves out a whole day is an exception, for which there is no warning.
const DAYS_APART: Duration = Duration::from_secs(12 * 3_600);

/// Something about a rule that is legal and often a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oddity {
    /// Six fields of which the first is `*`: it fires each second of its minutes.
    EachSecond,
    /// Six fields of which the first is a step: it fires several times in each of its minutes.
    SeveralPerMinute,
    /// A step that is longer than its field, as `*/90` minutes: only the first value matches.
    StepBeyondField {
        /// The step.
        step: u32,
        /// How many values the field has.
        values: u32,
    },
    /// Both the day of the month and the day of the week are restricted: either is enough.
    EitherDay,
    /// A step that does not divide its range, as `*/45` minutes: the last distance is shorter.
    UnevenStep,
    /// Some of its months have no such day, or not in each year.
    NotEachMonth,
    /// It had slots, and none is left.
    Over,
}

/// Slots of one definition that come closer together than its jobs may take. Schedules are named by their index in the timetable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crowding {
    /// Two slots of the same schedule.
    WithinSchedule {
        /// The schedule.
        schedule: usize,
        /// The distance between the two slots.
        distance: Duration,
    },
    /// A slot of one schedule and a slot of another.
    BetweenSchedules {
        /// The later of the two in the list.
        schedule: usize,
        /// The earlier of the two in the list.
        other: usize,
        /// The distance between the two slots; zero if they are at the same instant.
        distance: Duration,
    },
}

impl Timetable {
    /// The slots that come sooner than `limit` after another one.
    ///
    /// Each schedule is first checked by itself. A schedule that is crowded by itself is not compared with the others, because that would
    /// repeat the finding. Of the others, each is reported with the schedule that it comes closest to. `shortest` is
    /// [`Schedule::shortest_distance`] at `now`, or a cache of it: the search is most of the cost.
    #[must_use]
    pub fn crowding(
        &self,
        limit: Duration,
        now: Timestamp,
        shortest: &mut dyn FnMut(&Schedule) -> Option<Duration>,
    ) -> alloc::vec::Vec<Crowding> {
        let within = |(schedule, rule): (usize, &Schedule)| {
            if limit <= DAYS_APART && rule.fires_once_a_day() {
                return None;
            }
            let distance = shortest(rule).filter(|distance| *distance < limit)?;
            Some(Crowding::WithinSchedule { schedule, distance })
        };
        let mut found: alloc::vec::Vec<_> = self.schedules.iter().enumerate().filter_map(within).collect();
        let is_crowded = |schedule: usize| {
            found.iter().any(
                |it| matches!(it, Crowding::WithinSchedule { schedule: crowded, .. } if *crowded == schedule),
            )
        };
        let rest: alloc::vec::Vec<usize> = (0..self.schedules.len()).filter(|it| !is_crowded(*it)).collect();
        // The cost of all searches stays that of the searches for one schedule each.
        let samples = (SLOTS_COMPARED / rest.len().max(1)).max(1);
        for (at, schedule) in rest.iter().enumerate() {
            let distances = rest[..at].iter().filter_map(|other| {
                let (one, two) = (&self.schedules[*schedule], &self.schedules[*other]);
                let there = one.distance_to(two, limit, now, samples);
                let back = two.distance_to(one, limit, now, samples);
                Some((there.into_iter().chain(back).min()?, *other))
            });
            let too_near = distances.min_by_key(|(distance, _)| *distance);
            found.extend(too_near.map(|(distance, other)| Crowding::BetweenSchedules {
                schedule: *schedule,
                other,
                distance,
            }));
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
        let step_of = |field: &str| field.strip_prefix("*/").and_then(|step| step.parse::<u32>().ok());
        let steps = [(second, 60), (minute, 60), (hour, 24)].map(|(field, values)| (step_of(field), values));
        let beyond = |(step, values): (Option<u32>, u32)| Some((step.filter(|step| *step > values)?, values));
        if let Some((step, values)) = steps.into_iter().find_map(beyond) {
            return Some(Oddity::StepBeyondField { step, values });
        }
        if second.starts_with('*') && second != "*/60" && !minute.starts_with('*') {
            let each = matches!(second, "*" | "*/1");
            return Some(if each { Oddity::EachSecond } else { Oddity::SeveralPerMinute });
        }
        if cron.names_either_day() {
            return Some(Oddity::EitherDay);
        }
        let [uneven_seconds, uneven_minutes, uneven_hours] =
            steps.map(|(step, values)| step.is_some_and(|step| step > 0 && !values.is_multiple_of(step)));
        // The shorter distance is that from the last value to the first one of the next minute or hour.
        if uneven_seconds && cron.names_adjacent_minutes()
            || uneven_minutes && cron.names_adjacent_hours()
            || uneven_hours
        {
            return Some(Oddity::UnevenStep);
        }
        let day = day.parse().ok().filter(|day| (29..=31).contains(day))?;
        cron.names_month_without(day).then_some(Oddity::NotEachMonth)
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
            let first = self.next_slot_after(now)?;
            return self.next_slot_after(first).map(|_| every.interval());
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

    /// The shortest distance of the next slots to slots of another schedule, if it is below `limit`.
    fn distance_to(&self, other: &Self, limit: Duration, now: Timestamp, samples: usize) -> Option<Duration> {
        let mut last = now;
        let mut next = || {
            last = self.next_slot_after(last)?;
            Some(last)
        };
        let distances = core::iter::from_fn(&mut next).take(samples).filter_map(|slot| {
            // Neither schedule is crowded by itself, so at most two slots of the other are nearer than `limit`.
            let first = other.next_slot_after(now.max(slot - limit))?;
            let distance_to = |near: Timestamp| if near > slot { near.since(slot) } else { slot.since(near) };
            let second = other.next_slot_after(first).map(distance_to);
            second.into_iter().chain([distance_to(first)]).min()
        });
        distances.min().filter(|distance| *distance < limit)
    }

    /// True if no instant is a slot, because the rule names none between `start_at` and `end_at`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // A rule that repeats has slots before every `end_at`. So it has none only if `start_at` is set as well.
        let earliest = match self.rule {
            Rule::Once { at } => Some(at),
            Rule::Cron(_) | Rule::Daily(_) | Rule::Every(_) => self.start_at,
        };
        earliest.is_some_and(|at| self.next_slot_after(Timestamp(at.0.saturating_sub(1))).is_none())
    }

    /// True if the jitter is not shorter than the time between two slots, so that the second one may come first.
    #[must_use]
    pub fn jitter_is_too_long(&self, now: Timestamp) -> bool {
        self.shortest_distance(now).is_some_and(|distance| self.jitter >= distance && !self.jitter.is_zero())
    }
}

impl fmt::Display for Oddity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::StepBeyondField { step, values } => {
                return write!(f, "a step of {step} in a field of {values} is the same as 0");
            }
            Self::SeveralPerMinute => {
                "six fields: the first is seconds, so it fires several times in each of its minutes"
            }
            Self::EachSecond => "six fields: the first is seconds, so it fires each second of its minutes",
            Self::EitherDay => {
                "it fires if the day of the month or the day of the week matches, not only if both do"
            }
            Self::UnevenStep => {
                "the step does not divide its range, so one distance is shorter than the others"
            }
            Self::NotEachMonth => "not each month has this day; L is the last one",
            Self::Over => "its last slot has passed: it does not fire again",
        };
        f.write_str(text)
    }
}

#[cfg(test)]
mod tests;
