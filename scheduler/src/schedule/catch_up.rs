//! Decides about all slots that have passed since the last decision, as a list of runs with equal decisions. A pure function of the
//! schedule, its cursor and the time.
//!
//! ```text
//!  cursor                          window begins           on time         now
//!    │   missed: window               │  caught up, or missed  │  fire         │
//!    └────────────────────────────────┴────────────────────────┴──────────────┘
//! ```
//!
//! - The *cursor* is the last decided slot. It only grows, so a slot that fired stays fired, also after the clock was set back.
//! - A slot is on time until [`ON_TIME`] after it was due: a restart within that is not noticed.
//! - An absence of any length costs O(limit): ranges are counted by division for intervals, else up to [`COUNTED_MAX`] slots.

use alloc::vec::Vec;
use core::time::Duration;

use protocol::Timestamp;

use super::Schedule;

/// How late a slot may be decided and still count as on time.
pub const ON_TIME: Duration = Duration::from_secs(10);

/// The most slots of a rule other than an interval that are counted; beyond it the count is a lower bound.
pub const COUNTED_MAX: u64 = 1_000;

/// The most that one plan fires. The rest follows with the next plan, from the cursor that this one leaves.
pub const FIRES_PER_PLAN: usize = 100;

/// How many slots a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotCount {
    /// The number of slots, or a lower bound of it.
    pub count: u64,
    /// True if all were counted.
    pub exact: bool,
}

/// Policy for slots that passed while nobody decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatchUp {
    /// The slots that still make jobs.
    pub mode: CatchUpMode,
    /// How long ago a slot may have been due, jitter included, and still be caught up.
    pub window: Duration,
    /// How many slots are caught up at most, the newest ones.
    pub limit: u32,
}

impl Default for CatchUp {
    fn default() -> Self {
        Self { mode: CatchUpMode::Latest, window: Duration::from_secs(86_400), limit: 10 }
    }
}

/// Selection of the missed slots that still make jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CatchUpMode {
    /// None of them.
    None,
    /// The newest one.
    #[default]
    Latest,
    /// All of them, within window and limit.
    All,
}

impl CatchUpMode {
    /// As in jobs.yaml.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Latest => "latest",
            Self::All => "all",
        }
    }
}

/// Why a schedule is inactive: none of the slots that pass meanwhile fires, whatever its catch-up policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InactiveReason {
    /// The schedule, its definition, or all schedules are paused.
    Paused,
    /// The definition is disabled.
    Disabled,
    /// The rule was another one.
    RuleChanged,
    /// The definition or the schedule was not in jobs.yaml.
    Removed,
}

/// Decision of a plan about a run of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotDecision {
    /// One slot: it fires, on time.
    Fire,
    /// One slot: it fires, late.
    CatchUp,
    /// The schedule was inactive, so none of them fires.
    Inactive(InactiveReason),
    /// The server was not there, and the policy catches none of them up.
    MissedPolicy,
    /// They are older than the window.
    MissedWindow,
    /// There are more than the limit.
    MissedLimit,
}

/// Consecutive slots with the same decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRun {
    /// The first slot.
    pub from: Timestamp,
    /// The last slot.
    pub to: Timestamp,
    /// How many.
    pub count: SlotCount,
    /// The decision about each of them.
    pub decision: SlotDecision,
}

/// The slots in `(cursor, now]` that a plan decides about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlannedSlots {
    /// Those that are due, the jitter of each included.
    Due,
    /// All of them, for a rule that ends: nobody can decide later about those that wait for their jitter.
    Passed,
}

/// Decides about slots. In order, without gap: the next plan begins at the `to` of the last run.
#[must_use]
pub fn plan(
    schedule: &Schedule,
    cursor: Timestamp,
    now: Timestamp,
    slots: PlannedSlots,
    inactive: Option<InactiveReason>,
    policy: CatchUp,
) -> Vec<SlotRun> {
    let last = match slots {
        PlannedSlots::Due => last_due(schedule, cursor, now),
        PlannedSlots::Passed => schedule.last_slot_in(cursor, now),
    };
    let mut runs = Vec::new();
    let Some(last) = last else { return runs };
    if let Some(reason) = inactive {
        push(&mut runs, schedule, cursor, last, SlotDecision::Inactive(reason));
        return runs;
    }
    let last_late = last_due(schedule, cursor, Timestamp((now - ON_TIME).0.saturating_sub(1)));
    let mut at = cursor;
    if let Some(last_late) = last_late {
        // A slot that is on time is newer than any that is late.
        let mode = if policy.mode == CatchUpMode::Latest && last_late < last {
            CatchUpMode::None
        } else {
            policy.mode
        };
        at = plan_late(&mut runs, schedule, cursor, last_late, now, CatchUp { mode, ..policy });
    }
    let fired = runs.iter().filter(|run| run.decision == SlotDecision::CatchUp).count();
    if last_late.is_some_and(|last_late| at < last_late) {
        return runs;
    }
    fire_each(&mut runs, schedule, at, last, SlotDecision::Fire, FIRES_PER_PLAN - fired);
    runs
}

/// Decides about late slots, and returns the last one that is decided.
fn plan_late(
    runs: &mut Vec<SlotRun>,
    schedule: &Schedule,
    cursor: Timestamp,
    last_late: Timestamp,
    now: Timestamp,
    policy: CatchUp,
) -> Timestamp {
    let wanted = match policy.mode {
        CatchUpMode::None => 0,
        CatchUpMode::Latest => 1,
        CatchUpMode::All => policy.limit.max(1),
    };
    if wanted == 0 {
        push(runs, schedule, cursor, last_late, SlotDecision::MissedPolicy);
        return last_late;
    }
    // As with lateness, the time counts since a slot was due: a jitter longer than the window would leave every slot out.
    let last_too_old = last_due(schedule, cursor, Timestamp((now - policy.window).0.saturating_sub(1)));
    let last_too_old = last_too_old.map(|slot| slot.min(last_late));
    if let Some(slot) = last_too_old {
        push(runs, schedule, cursor, slot, SlotDecision::MissedWindow);
    }
    let mut at = last_too_old.unwrap_or(cursor);
    // Walk back over those that are wanted.
    let mut first_wanted = None;
    let mut end = last_late;
    for _ in 0..wanted {
        let Some(slot) = schedule.last_slot_in(at, end) else { break };
        first_wanted = Some(slot);
        end = Timestamp(slot.0 - 1);
    }
    let Some(first_wanted) = first_wanted else { return at };
    if let Some(surplus) = schedule.last_slot_in(at, Timestamp(first_wanted.0 - 1)) {
        let why = if policy.mode == CatchUpMode::Latest {
            SlotDecision::MissedPolicy
        } else {
            SlotDecision::MissedLimit
        };
        push(runs, schedule, at, surplus, why);
        at = surplus;
    }
    fire_each(runs, schedule, at, last_late, SlotDecision::CatchUp, FIRES_PER_PLAN)
}

fn fire_each(
    runs: &mut Vec<SlotRun>,
    schedule: &Schedule,
    after: Timestamp,
    until: Timestamp,
    decision: SlotDecision,
    most: usize,
) -> Timestamp {
    let mut at = after;
    for _ in 0..most {
        let Some(slot) = schedule.next_slot_after(at).filter(|slot| *slot <= until) else { break };
        runs.push(SlotRun { from: slot, to: slot, count: SlotCount { count: 1, exact: true }, decision });
        at = slot;
    }
    at
}

fn push(
    runs: &mut Vec<SlotRun>,
    schedule: &Schedule,
    after: Timestamp,
    to: Timestamp,
    decision: SlotDecision,
) {
    if let Some(from) = schedule.next_slot_after(after).filter(|from| *from <= to) {
        runs.push(SlotRun { from, to, count: schedule.count_slots(after, to), decision });
    }
}

/// The last slot later than `cursor` that is due by `now`, jitter included. Slots become due in their order.
fn last_due(schedule: &Schedule, cursor: Timestamp, now: Timestamp) -> Option<Timestamp> {
    // Those before this are due whatever their jitter is.
    let mut last = schedule.last_slot_in(cursor, now - schedule.jitter);
    let mut at = last.unwrap_or(cursor);
    while let Some(slot) = schedule.next_slot_after(at).filter(|slot| schedule.due_at(*slot) <= now) {
        last = Some(slot);
        at = slot;
    }
    last
}

#[cfg(test)]
mod tests {
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
}
