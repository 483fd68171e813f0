//! Cron rules against a matcher that looks at each minute, around the changes of clocks from 2015 to 2035.
//!
//! CI takes a sample of zones by a seed; `LONGSHORE_ALL_ZONES=1` takes all of them, and `LONGSHORE_SEED` another sample.
//! The naive matcher walks all minutes from 36 hours before a change to 36 hours after it, reads the clock on the wall at each, and
//! applies the table of `schedule::zone` in its plainest form. It knows nothing of the search that it checks.

use std::collections::BTreeSet;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, civil};
use longshore_scheduler as scheduler;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use scheduler::schedule::{Cron, Rule, Schedule, Zone};

const AROUND: SignedDuration = SignedDuration::from_hours(36);

/// A rule as text, and the same in plain numbers. Empty: any.
struct Case {
    text: &'static str,
    minutes: &'static [i8],
    hours: &'static [i8],
    /// The number of the weekday from Sunday.
    weekdays: &'static [i8],
    any_hour: bool,
}

const QUARTERS: &[i8] = &[0, 15, 30, 45];

const CASES: &[Case] = &[
    Case { text: "30 2 * * *", minutes: &[30], hours: &[2], weekdays: &[], any_hour: false },
    Case { text: "0 0 * * *", minutes: &[0], hours: &[0], weekdays: &[], any_hour: false },
    Case { text: "0,30 1-3 * * *", minutes: &[0, 30], hours: &[1, 2, 3], weekdays: &[], any_hour: false },
    Case { text: "15 2 * * 0", minutes: &[15], hours: &[2], weekdays: &[0], any_hour: false },
    Case { text: "* 2 * * *", minutes: &[], hours: &[2], weekdays: &[], any_hour: false },
    Case { text: "*/15 * * * *", minutes: QUARTERS, hours: &[], weekdays: &[], any_hour: true },
    Case {
        text: "0 */2 * * *",
        minutes: &[0],
        hours: &[0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22],
        weekdays: &[],
        any_hour: true,
    },
    Case { text: "* * * * 6,0", minutes: &[], hours: &[], weekdays: &[6, 0], any_hour: true },
];

impl Case {
    fn matches(&self, civil: civil::DateTime) -> bool {
        let among = |allowed: &[i8], value: i8| allowed.is_empty() || allowed.contains(&value);
        among(self.minutes, civil.minute())
            && among(self.hours, civil.hour())
            && among(self.weekdays, civil.date().weekday().to_sunday_zero_offset())
    }

    /// All slots in `(from, to]`, by looking at each minute.
    fn naive(&self, zone: &TimeZone, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
        let mut slots = BTreeSet::new();
        let mut shown = BTreeSet::new();
        let mut last: Option<civil::DateTime> = None;
        let mut at = from;
        while at <= to {
            let civil = zone.to_datetime(at);
            if !self.any_hour
                && let Some(last) = last
            {
                // Minutes that the clock jumped over count at the first instant after them.
                let mut missing = last + SignedDuration::from_mins(1);
                while missing < civil {
                    if self.matches(missing) {
                        slots.insert(at);
                    }
                    missing += SignedDuration::from_mins(1);
                }
            }
            let is_first = shown.insert(civil);
            if self.matches(civil) && (self.any_hour || is_first) {
                slots.insert(at);
            }
            last = Some(civil);
            at += SignedDuration::from_mins(1);
        }
        slots.into_iter().filter(|slot| *slot > from).collect()
    }
}

fn searched(text: &str, zone: &str, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
    let rule = Rule::Cron(Cron::parse(text).expect("a good rule"));
    let schedule = Schedule::new("any", None, rule, Zone::named(zone).expect("a zone"));
    let mut at = protocol::Timestamp(from.as_millisecond());
    let next = || {
        at = schedule.next_slot_after(at)?;
        Timestamp::from_millisecond(at.0).ok().filter(|slot| *slot <= to)
    };
    std::iter::from_fn(next).collect()
}

/// Changes of the clock between 2015 and 2035; none that only renames the zone.
fn changes(zone: &TimeZone) -> Vec<Timestamp> {
    let start: Timestamp = "2015-01-01T00:00:00Z".parse().expect("an instant");
    let end: Timestamp = "2036-01-01T00:00:00Z".parse().expect("an instant");
    let transitions = zone.following(start).map(|transition| transition.timestamp());
    let before = |at: Timestamp| zone.to_offset(at - SignedDuration::from_secs(1));
    transitions.take_while(|at| *at < end).filter(|at| before(*at) != zone.to_offset(*at)).collect()
}

fn check(name: &str, zone: &TimeZone, change: Timestamp) {
    // Whole minutes: no zone has changed within one since 1972.
    let (from, to) = (change - AROUND, change + AROUND);
    for case in CASES {
        let naive = case.naive(zone, from, to);
        let found = searched(case.text, name, from, to);
        // At the beginning of the scan the naive matcher cannot know of an earlier pass of the same hour: no two changes are that close.
        assert_eq!(found, naive, "{} in {name} around {change}", case.text);
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test may be told how much to do")]
fn rules_fire_around_clock_changes_as_the_table_says() {
    let seed = std::env::var("LONGSHORE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_150_329);
    let all = std::env::var_os("LONGSHORE_ALL_ZONES").is_some();
    let mut rng = SmallRng::seed_from_u64(seed);
    let always =
        ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "America/Santiago"];
    let mut seen = BTreeSet::new();
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
                check(&name, &zone, change);
            }
        }
    }
    assert!(seen.len() > 50, "{} distinct zones (seed {seed})", seen.len());
}
