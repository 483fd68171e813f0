//! Checks for probable mistakes: rules that are legal and odd, jitter that is too long, and slots that come faster
//! than jobs can end. All of it is asked at load, never in a step.

use core::fmt;
use core::time::Duration;

use protocol::Timestamp;

use super::{Rule, Schedule};

/// How many slots are looked at to find the shortest distance between two.
const SLOTS_COMPARED: usize = 64;

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
    /// No slot is left.
    Over,
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

    /// True if slots come faster than a job may take that runs up to `timeout`: then some are skipped under `overlap: skip`.
    #[must_use]
    pub fn fires_faster_than(&self, timeout: Duration, now: Timestamp) -> bool {
        self.shortest_distance(now).is_some_and(|distance| distance < timeout)
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
            Self::Over => "no slot is left: its time is over",
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
        assert!(uneven.fires_faster_than(Duration::from_secs(901), now));
        assert!(!uneven.fires_faster_than(Duration::from_secs(900), now));
        assert!(Schedule { jitter: Duration::from_secs(900), ..uneven.clone() }.jitter_is_too_long(now));
        assert!(!Schedule { jitter: Duration::from_secs(899), ..uneven }.jitter_is_too_long(now));
    }
}
