//! Plans for slots that passed on time, late and during an absence.

use alloc::string::String;

use super::*;
use crate::schedule::{Rule, Zone};

const MINUTE: i64 = 60_000;

fn minutely() -> Schedule {
    Schedule::new("a", None, Rule::every("1m").expect("a good rule"), Zone::utc())
}

fn policy(mode: CatchUpMode) -> CatchUp {
    CatchUp { mode, window: Duration::from_secs(600), limit: 3 }
}

fn told(runs: &[SlotRun]) -> Vec<String> {
    runs.iter()
        .map(|run| {
            let (from, to) = (run.from.0 / MINUTE, run.to.0 / MINUTE);
            alloc::format!("{from}-{to} {} {:?}", run.count.count, run.decision)
        })
        .collect()
}

fn after(cursor: i64, now: i64, mode: CatchUpMode) -> Vec<String> {
    told(&plan(
        &minutely(),
        Timestamp(cursor * MINUTE),
        Timestamp(now),
        PlannedSlots::Due,
        None,
        policy(mode),
    ))
}

#[test]
fn a_slot_that_just_passed_fires_under_each_policy() {
    for mode in [CatchUpMode::None, CatchUpMode::Latest, CatchUpMode::All] {
        assert_eq!(after(4, 5 * MINUTE + 9_999, mode), ["5-5 1 Fire"]);
        assert!(after(5, 5 * MINUTE + 9_999, mode).is_empty());
    }
}

#[test]
fn missed_slots_follow_the_catch_up_mode() {
    let now = 100 * MINUTE + 5;
    let fire = "100-100 1 Fire";
    assert_eq!(after(20, now, CatchUpMode::None), ["21-99 79 MissedPolicy", fire]);
    assert_eq!(after(20, now, CatchUpMode::Latest), ["21-99 79 MissedPolicy", fire], "100 is the latest");
    let latest = ["21-90 70 MissedWindow", "91-99 9 MissedPolicy", "100-100 1 CatchUp"];
    assert_eq!(after(20, now + 30_000, CatchUpMode::Latest), latest);
    let all = [
        "21-90 70 MissedWindow",
        "91-96 6 MissedLimit",
        "97-97 1 CatchUp",
        "98-98 1 CatchUp",
        "99-99 1 CatchUp",
        fire,
    ];
    assert_eq!(after(20, now, CatchUpMode::All), all);
}

#[test]
fn the_slots_of_an_inactive_schedule_are_one_run() {
    let (from, to) = (Timestamp(20 * MINUTE), Timestamp(100 * MINUTE));
    let (reason, policy) = (Some(InactiveReason::Paused), policy(CatchUpMode::All));
    let runs = plan(&minutely(), from, to, PlannedSlots::Due, reason, policy);
    assert_eq!(told(&runs), ["21-100 80 Inactive(Paused)"]);
}

#[test]
fn a_year_of_tenths_of_seconds_costs_no_more_than_the_limit() {
    let schedule = Schedule::new("a", None, Rule::every("100ms").expect("a good rule"), Zone::utc());
    let year = Timestamp(365 * 86_400_000);
    let runs = plan(
        &schedule,
        Timestamp(0),
        year,
        PlannedSlots::Due,
        None,
        CatchUp { limit: 50, ..policy(CatchUpMode::All) },
    );
    assert!(runs.len() <= 2 + FIRES_PER_PLAN + 50, "{} runs", runs.len());
    let all: u64 = runs.iter().map(|run| run.count.count).sum();
    let undecided = schedule.count_slots(runs.last().expect("some").to, year).count;
    assert_eq!(all + undecided, 365 * 864_000);
}

#[test]
fn a_clock_that_was_set_back_decides_nothing_twice() {
    assert!(after(100, 50 * MINUTE, CatchUpMode::All).is_empty());
}

#[test]
fn jitter_delays_the_decision_and_not_the_slot() {
    let schedule = Schedule { jitter: Duration::from_secs(30), ..minutely() };
    let slot = Timestamp(5 * MINUTE);
    let due = schedule.due_at(slot);
    assert!(due > slot, "the test needs a slot with some jitter");
    let at = |now| {
        plan(&schedule, Timestamp(4 * MINUTE), now, PlannedSlots::Due, None, policy(CatchUpMode::Latest))
    };
    assert!(at(Timestamp(due.0 - 1)).is_empty());
    assert_eq!(told(&at(due)), ["5-5 1 Fire"]);
}

#[test]
fn the_window_is_measured_from_the_time_when_a_slot_was_due() {
    let schedule = Schedule { jitter: Duration::from_secs(3_600), ..minutely() };
    let due = schedule.due_at(Timestamp(5 * MINUTE));
    let policy = CatchUp { window: Duration::from_secs(60), ..policy(CatchUpMode::Latest) };
    assert!(
        due > Timestamp(6 * MINUTE) + Duration::from_secs(60),
        "the test needs a slot with a long jitter"
    );
    let at = |now| plan(&schedule, Timestamp(4 * MINUTE), now, PlannedSlots::Due, None, policy);
    assert_eq!(told(&at(due + Duration::from_secs(60)))[0], "5-5 1 CatchUp");
    assert_eq!(told(&at(Timestamp(due.0 + 60_001)))[0], "5-5 1 MissedWindow");
}

#[test]
fn a_rule_that_ends_decides_slots_that_wait_for_their_jitter() {
    let schedule = Schedule { jitter: Duration::from_secs(30), ..minutely() };
    let slot = Timestamp(5 * MINUTE);
    let runs = |inactive| {
        plan(&schedule, Timestamp(4 * MINUTE), slot, PlannedSlots::Passed, inactive, CatchUp::default())
    };
    assert_eq!(told(&runs(None)), ["5-5 1 Fire"]);
    assert_eq!(told(&runs(Some(InactiveReason::Removed))), ["5-5 1 Inactive(Removed)"]);
}

/// Each slot is in exactly one run, in order, whatever is asked and however often.
#[test]
fn runs_have_neither_gaps_nor_overlaps() {
    for mode in [CatchUpMode::None, CatchUpMode::Latest, CatchUpMode::All] {
        for step in [1_000, 55_000, 61_000, 17 * MINUTE, 300 * MINUTE] {
            let schedule = Schedule { jitter: Duration::from_secs(20), ..minutely() };
            let (mut cursor, mut decided) = (Timestamp(0), 0);
            for round in 1..200 {
                let now = Timestamp(round * step);
                for run in plan(&schedule, cursor, now, PlannedSlots::Due, None, policy(mode)) {
                    assert_eq!(Some(run.from), schedule.next_slot_after(cursor));
                    assert!(schedule.due_at(run.to) <= now, "nothing is decided before it is due");
                    decided += run.count.count;
                    cursor = run.to;
                }
            }
            assert_eq!(decided, schedule.count_slots(Timestamp(0), cursor).count);
            assert!(cursor.0 + MINUTE + 20_000 > 199 * step, "nothing that is due is left");
        }
    }
}
