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
mod tests;
