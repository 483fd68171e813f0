//! Cron rules against a matcher that looks at each minute or second, around the changes of clocks from 2015 to 2035.
//!
//! Each run takes another sample of zones, and a failure tells the `LONGSHORE_SEED` that repeats it; `LONGSHORE_ALL_ZONES=1` takes all zones.
//! The naive matcher walks all minutes from 36 hours before a change to 36 hours after it, and all seconds of four hours for rules that
//! name some. It reads the clock on the wall at each, and applies the table of `schedule::zone` in its plainest form. It knows nothing of
//! the search that it checks.

use std::collections::BTreeSet;
use std::hash::BuildHasher as _;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, civil};
use longshore_scheduler as scheduler;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use scheduler::schedule::{Rule, Schedule, Zone};

/// A rule as text, and the same in plain numbers. Empty: any.
struct Case {
    text: &'static str,
    /// Read as `at`, not as `cron`.
    is_at: bool,
    /// Seconds of a rule that names some; the others fire at second 0.
    seconds: Option<&'static [i8]>,
    minutes: &'static [i8],
    hours: &'static [i8],
    days: fn(civil::Date) -> bool,
    any_hour: bool,
}

/// A rule with fixed hours on any day.
const FIXED: Case =
    Case { text: "", is_at: false, seconds: None, minutes: &[], hours: &[], days: |_| true, any_hour: false };

/// A rule with any hour on any day.
const ANY: Case = Case { any_hour: true, ..FIXED };

const QUARTERS: &[i8] = &[0, 15, 30, 45];
const EVEN: &[i8] = &[0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22];

const CASES: &[Case] = &[
    Case { text: "30 2 * * *", minutes: &[30], hours: &[2], ..FIXED },
    Case { text: "0 0 * * *", minutes: &[0], hours: &[0], ..FIXED },
    Case { text: "0,30 1-3 * * *", minutes: &[0, 30], hours: &[1, 2, 3], ..FIXED },
    Case { text: "15 2 * * 0", minutes: &[15], hours: &[2], days: |date| weekday(date) == 0, ..FIXED },
    Case { text: "* 2 * * *", hours: &[2], ..FIXED },
    Case { text: "*/15 * * * *", minutes: QUARTERS, ..ANY },
    Case { text: "0 */2 * * *", minutes: &[0], hours: EVEN, ..ANY },
    Case { text: "* * * * 6,0", days: |date| [6, 0].contains(&weekday(date)), ..ANY },
    // Days of the month.
    Case { text: "30 2 25-31 * *", minutes: &[30], hours: &[2], days: |date| date.day() >= 25, ..FIXED },
    Case { text: "0 * 1-14 * *", minutes: &[0], days: |date| date.day() <= 14, ..ANY },
    Case {
        text: "30 2 30 3,10 *",
        minutes: &[30],
        hours: &[2],
        days: |date| date.day() == 30 && [3, 10].contains(&date.month()),
        ..FIXED
    },
    Case {
        text: "30 1 28 * 0",
        minutes: &[30],
        hours: &[1],
        days: |date| date.day() == 28 || weekday(date) == 0,
        ..FIXED
    },
    // L, W and #.
    Case { text: "30 2 L * *", minutes: &[30], hours: &[2], days: |date| is_last(date, 1), ..FIXED },
    Case {
        text: "0,30 1-2 * * 0L",
        minutes: &[0, 30],
        hours: &[1, 2],
        days: |date| weekday(date) == 0 && is_last(date, 7),
        ..FIXED
    },
    Case {
        text: "30 2 * * SUN#2",
        minutes: &[30],
        hours: &[2],
        days: |date| weekday(date) == 0 && (8..=14).contains(&date.day()),
        ..FIXED
    },
    Case {
        text: "0 */2 * * 0#1",
        minutes: &[0],
        hours: EVEN,
        days: |date| weekday(date) == 0 && date.day() <= 7,
        ..ANY
    },
    Case { text: "30 2 28W * *", minutes: &[30], hours: &[2], days: |date| is_nearest(date, 28), ..FIXED },
    Case { text: "*/15 * 1W * *", minutes: QUARTERS, days: |date| is_nearest(date, 1), ..ANY },
    // Seconds.
    Case { text: "*/20 30 2 * * *", seconds: Some(&[0, 20, 40]), minutes: &[30], hours: &[2], ..FIXED },
    Case { text: "59 59 1-3 * * *", seconds: Some(&[59]), minutes: &[59], hours: &[1, 2, 3], ..FIXED },
    Case { text: "5,35 */15 * * * *", seconds: Some(&[5, 35]), minutes: QUARTERS, ..ANY },
    // Times of day.
    Case { text: "02:30", is_at: true, minutes: &[30], hours: &[2], ..FIXED },
    Case { text: "00:00", is_at: true, minutes: &[0], hours: &[0], ..FIXED },
    Case { text: "02:00:01", is_at: true, seconds: Some(&[1]), minutes: &[0], hours: &[2], ..FIXED },
    Case {
        text: "sunday 01:30",
        is_at: true,
        minutes: &[30],
        hours: &[1],
        days: |date| weekday(date) == 0,
        ..FIXED
    },
];

/// From Sunday.
fn weekday(date: civil::Date) -> i8 {
    date.weekday().to_sunday_zero_offset()
}

/// One of the last `days` days of its month.
fn is_last(date: civil::Date, days: i8) -> bool {
    date.day() > date.days_in_month() - days
}

/// The weekday of its month that is nearest to this day of it.
fn is_nearest(date: civil::Date, day: i8) -> bool {
    let Ok(wanted) = civil::Date::new(date.year(), date.month(), day) else { return false };
    let nearest = match weekday(wanted) {
        6 if day == 1 => 3,
        6 => day - 1,
        0 if day == wanted.days_in_month() => day - 2,
        0 => day + 1,
        _ => day,
    };
    date.day() == nearest
}

/// Instants at equal distances, with the time that the clock on the wall shows.
struct Walk {
    step: SignedDuration,
    shown: Vec<(Timestamp, civil::DateTime)>,
}

impl Walk {
    fn new(zone: &TimeZone, change: Timestamp, around: SignedDuration, step: SignedDuration) -> Self {
        let mut at = change - around;
        let mut shown = Vec::new();
        while at <= change + around {
            shown.push((at, zone.to_datetime(at)));
            at += step;
        }
        Self { step, shown }
    }

    fn range(&self) -> (Timestamp, Timestamp) {
        (self.shown[0].0, self.shown[self.shown.len() - 1].0)
    }

    /// The first instant at which the clock shows this time, or a later one because it jumped.
    fn first(&self, civil: civil::DateTime) -> Option<Timestamp> {
        self.shown.iter().find(|(_, shown)| *shown >= civil).map(|(at, _)| *at)
    }
}

impl Case {
    fn matches(&self, civil: civil::DateTime) -> bool {
        let among = |allowed: &[i8], value: i8| allowed.is_empty() || allowed.contains(&value);
        self.seconds.unwrap_or(&[0]).contains(&civil.second())
            && among(self.minutes, civil.minute())
            && among(self.hours, civil.hour())
            && (self.days)(civil.date())
    }

    /// All slots of a walk but its first instant, by looking at each.
    fn naive(&self, walk: &Walk) -> Vec<Timestamp> {
        let mut slots = BTreeSet::new();
        let mut before: Option<civil::DateTime> = None;
        // The latest time that was shown. While the clock shows an earlier one, it shows it again.
        let mut latest: Option<civil::DateTime> = None;
        for (at, civil) in walk.shown.iter().copied() {
            if !self.any_hour
                && let Some(before) = before
            {
                // Times that the clock jumped over count at the first instant after them.
                let mut missing = before + walk.step;
                while missing < civil {
                    if self.matches(missing) {
                        slots.insert(at);
                    }
                    missing += walk.step;
                }
            }
            let is_first = latest.is_none_or(|latest| civil > latest);
            if self.matches(civil) && (self.any_hour || is_first) {
                slots.insert(at);
            }
            (before, latest) = (Some(civil), latest.max(Some(civil)));
        }
        let (from, _) = walk.range();
        slots.into_iter().filter(|slot| *slot > from).collect()
    }

    fn searched(&self, zone: &Zone, (from, to): (Timestamp, Timestamp)) -> Vec<Timestamp> {
        let rule = if self.is_at { Rule::at(self.text, zone) } else { Rule::cron(self.text) };
        let schedule = Schedule::new("any", None, rule.expect("a good rule"), zone.clone());
        let mut at = protocol::Timestamp(from.as_millisecond());
        let next = || {
            at = schedule.next_slot_after(at)?;
            Timestamp::from_millisecond(at.0).ok().filter(|slot| *slot <= to)
        };
        std::iter::from_fn(next).collect()
    }
}

/// Changes of the clock between 2015 and 2035; none that only renames the zone.
fn changes(zone: &TimeZone) -> Vec<Timestamp> {
    let start: Timestamp = "2015-01-01T00:00:00Z".parse().expect("an instant");
    let end: Timestamp = "2036-01-01T00:00:00Z".parse().expect("an instant");
    let transitions = zone.following(start).map(|transition| transition.timestamp());
    let before = |at: Timestamp| zone.to_offset(at - SignedDuration::from_secs(1));
    transitions.take_while(|at| *at < end).filter(|at| before(*at) != zone.to_offset(*at)).collect()
}

fn check(name: &str, zone: &TimeZone, change: Timestamp, seed: u64) {
    let searched_zone = Zone::named(name).expect("a zone");
    // Whole minutes: no zone has changed within one since 1972.
    let minutes = Walk::new(zone, change, SignedDuration::from_hours(36), SignedDuration::from_mins(1));
    let seconds = Walk::new(zone, change, SignedDuration::from_hours(4), SignedDuration::from_secs(1));
    for case in CASES {
        let walk = if case.seconds.is_some() { &seconds } else { &minutes };
        // At the beginning of the walk the naive matcher cannot know of an earlier pass of the same hour: no two changes are that close.
        let (found, naive) = (case.searched(&searched_zone, walk.range()), case.naive(walk));
        assert_eq!(found, naive, "{} in {name} around {change}; LONGSHORE_SEED={seed} repeats it", case.text);
    }
    // Dates with a time: the quarters of some hours around what the clock shows then.
    let shown = zone.to_datetime(change);
    for quarter in -12..=12 {
        let civil = shown + SignedDuration::from_mins(15 * quarter);
        let text = civil.strftime("%Y-%m-%d %H:%M").to_string();
        let found = match Rule::at(&text, &searched_zone) {
            Ok(Rule::Once { at }) => Timestamp::from_millisecond(at.0).ok(),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(found, minutes.first(civil), "at {text} in {name}; LONGSHORE_SEED={seed} repeats it");
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a test may be told how much to do, and tell it"
)]
fn rules_fire_around_clock_changes_as_the_table_says() {
    let given = std::env::var("LONGSHORE_SEED").ok().map(|seed| seed.parse().expect("a whole number"));
    // Each hasher has a seed of its own.
    let seed = given.unwrap_or_else(|| std::hash::RandomState::new().hash_one(()));
    let all = std::env::var_os("LONGSHORE_ALL_ZONES").is_some();
    let mut rng = SmallRng::seed_from_u64(seed);
    let always =
        ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "America/Santiago"];
    let mut seen = BTreeSet::new();
    let mut checked = 0;
    for name in Zone::all() {
        let zone = jiff::tz::TimeZoneDatabase::bundled().get(&name).expect("it is listed");
        let changes = changes(&zone);
        // Aliases have the same changes as the zone that they stand for.
        let offsets: Vec<_> = changes.iter().map(|at| (*at, zone.to_offset(*at))).collect();
        if changes.is_empty() || !seen.insert(offsets) {
            continue;
        }
        for change in changes {
            let taken =
                all || rng.random_range(0..if always.contains(&name.as_str()) { 10 } else { 150 }) == 0;
            if taken {
                check(&name, &zone, change, seed);
                checked += 1;
            }
        }
    }
    println!(
        "{} distinct zones, {checked} clock changes checked; LONGSHORE_SEED={seed} repeats it",
        seen.len()
    );
    assert!(seen.len() > 50, "{} distinct zones (seed {seed})", seen.len());
}
