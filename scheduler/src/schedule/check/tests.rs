//! Tests of the checks for probable mistakes: odd rules, slots that are close together, jitter, and rules without slots.
//! Most of them are in UTC and begin in 1970, a Thursday.

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
    for rule in ["0 0 31 * *", "0 0 30 1,2 *", "0 0 29 FEB *", "0 0 31 3-5 *"] {
        assert_eq!(odd(rule), Some(Oddity::NotEachMonth), "{rule}");
    }
    for uneven in ["*/7 2,3 * * *", "*/7 23,0 * * *", "*/7 */2,3 * * *", "*/7 * * * * *", "0 */5 * * *"] {
        assert_eq!(odd(uneven), Some(Oddity::UnevenStep), "{uneven}");
    }
    assert_eq!(odd("*/90 * * * *"), Some(Oddity::StepBeyondField { step: 90, values: 60 }));
    assert_eq!(odd("0 */30 * * *"), Some(Oddity::StepBeyondField { step: 30, values: 24 }));
    assert_eq!(odd("*/1 0 2 * * *"), Some(Oddity::EachSecond));
    assert_eq!(odd("*/10 0 2 * * *"), Some(Oddity::SeveralPerMinute));
    assert_eq!(
        Oddity::StepBeyondField { step: 90, values: 60 }.to_string(),
        "a step of 90 in a field of 60 is the same as 0"
    );
    for usual in [
        "0 2 * * *",
        "*/15 * * * *",
        "0 9-17 * * 1-5",
        "@daily",
        "0 */6 * * *",
        "*/10 * * * * *",
        "0 0 31 12 *",
        "0 0 30 1,3 *",
        "0 0 29 JAN-JAN *",
        "*/7 2 * * *",
        "*/7 2,4 * * *",
        "*/7 */2 * * * *",
        "*/60 * * * *",
    ] {
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
        [Crowding::WithinSchedule { schedule: 0, distance }]
    );
    assert_eq!(table.crowding(distance, now, &mut |rule| rule.shortest_distance(now)), []);
    assert!(Schedule { jitter: Duration::from_secs(900), ..uneven.clone() }.jitter_is_too_long(now));
    assert!(!Schedule { jitter: Duration::from_secs(899), ..uneven }.jitter_is_too_long(now));
    let hourly = Schedule { rule: Rule::every("1h").expect("a good rule"), ..cron("@daily") };
    let ends_after = |hours: i64| Schedule { end_at: Some(Timestamp(hours * 3_600_000)), ..hourly.clone() };
    let hour = Duration::from_secs(3_600);
    assert_eq!(ends_after(2).shortest_distance(now), Some(hour));
    assert_eq!(ends_after(1).shortest_distance(now), None, "only one slot is left");
    assert!(!Schedule { jitter: hour, ..ends_after(1) }.jitter_is_too_long(now));
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
    assert_eq!(found, [Crowding::WithinSchedule { schedule: 0, distance: hours(23) }]);
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
    let between = |schedule, other, distance| Crowding::BetweenSchedules { schedule, other, distance };
    let weekly = ["0 7 * * *", "30 7 * * 1"];
    assert_eq!(crowding(&weekly, minutes(31)), [between(1, 0, minutes(30))]);
    assert_eq!(crowding(&weekly, minutes(30)), []);
    // The nearest pair is reported: not the first one found, not the schedule that stands first, and not only the slot before.
    let far_and_near = ["0 7 * * *", "40 7 * * 1", "10 7 * * 5"];
    assert_eq!(
        crowding(&far_and_near, minutes(60)),
        [between(1, 0, minutes(40)), between(2, 0, minutes(10))]
    );
    assert_eq!(
        crowding(&["0 7 * * *", "0 9 * * *", "10 8 * * *"], minutes(90)),
        [between(2, 1, minutes(50))]
    );
    assert_eq!(crowding(&["0 6,12,18 * * *", "40 6,17 * * *"], minutes(60)), [between(1, 0, minutes(20))]);
    assert_eq!(crowding(&["0,50 7 * * *", "45 7 1 12 *"], minutes(50)), [between(1, 0, minutes(5))]);
    // The search from the daily slots ends before the summer.
    let monthly = Schedule { zone: Zone::named("Europe/Berlin").expect("a zone"), ..cron("40 8 1 * *") };
    let table = Timetable { schedules: [monthly, cron("0 7 * * *")].into(), ..Timetable::default() };
    let winter = Timestamp(1_767_225_600_000);
    assert_eq!(
        table.crowding(minutes(60), winter, &mut |rule| rule.shortest_distance(winter)),
        [between(1, 0, minutes(20))]
    );
    // The rare slot is the earlier one, and far away.
    assert_eq!(crowding(&["50 6 13 12 *", "0 7 * * *"], minutes(60)), [between(1, 0, minutes(10))]);
    assert_eq!(
        crowding(&["0 0 1 * *", "0 0 15 1 *", "0 0 1 1 *"], minutes(1)),
        [between(2, 0, Duration::ZERO)]
    );
    // A schedule that is crowded by itself is not compared with others.
    let within = Crowding::WithinSchedule { schedule: 0, distance: minutes(1) };
    assert_eq!(crowding(&["* * * * *", "0 7 * * *"], minutes(5)), [within]);
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
