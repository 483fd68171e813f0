//! Random histories of schedules: time passes, clocks are set, rules change, the server restarts. Promise 4 holds after each step: each
//! slot has one row in the ledger and makes at most one job, and no cursor goes back.

#![allow(clippy::unwrap_used, reason = "a walk that cannot be taken is a failed test")]

#[path = "world/ledger.rs"]
#[allow(dead_code, reason = "used in part by each test")]
mod ledger;
#[allow(dead_code, reason = "used in part by each test")]
mod walk;
mod world;

use std::time::Duration;

use ledger::Ledger;
use proptest::prelude::*;
use walk::cases;
use world::protocol::{JobId, Timestamp};
use world::scheduler::Config;
use world::scheduler::origin::Origin;
use world::scheduler::schedule::catch_up::{CatchUp, CatchUpMode};
use world::scheduler::schedule::{Overlap, Rule, Schedule, Timetable, Zone};
use world::{World, definition};

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Ahead(u64),
    Behind(u64),
    Restart(u64),
    Pause(bool),
    /// For this number of milliseconds.
    PauseFor(u64),
    Define {
        rule: usize,
        overlap: usize,
        mode: usize,
        enabled: bool,
        /// Its id follows from the rule.
        derived: bool,
        /// It is read at a start after this number of milliseconds.
        away: Option<u64>,
    },
    Undefine,
    CancelFirst,
    /// Slots of this number of past milliseconds, and whether the ledger was read before the last step.
    Backfill {
        back: u64,
        late: bool,
    },
}

/// Rules, with the seconds of their jitter.
const RULES: [(&str, u64); 4] = [("100ms", 0), ("7s", 0), ("10m", 0), ("5s", 60)];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let away = prop::option::weighted(0.3, 0..5_000_000_u64);
    let define =
        (0..RULES.len(), 0..4_usize, 0..3_usize, prop::bool::weighted(0.9), prop::bool::weighted(0.3), away);
    let step = prop_oneof![
        6 => (0..30_000_u64).prop_map(Step::Pass),
        1 => (0..100_000_000_u64).prop_map(Step::Ahead),
        1 => (0..5_000_000_u64).prop_map(Step::Behind),
        2 => (0..5_000_000_u64).prop_map(Step::Restart),
        2 => any::<bool>().prop_map(Step::Pause),
        1 => (0..3_000_000_u64).prop_map(Step::PauseFor),
        3 => define.prop_map(|(rule, overlap, mode, enabled, derived, away)| {
            Step::Define { rule, overlap, mode, enabled, derived, away }
        }),
        1 => Just(Step::Undefine),
        4 => Just(Step::CancelFirst),
        3 => (0..60_000_u64, prop::bool::weighted(0.2)).prop_map(|(back, late)| Step::Backfill { back, late }),
    ];
    prop::collection::vec(step, 1..25)
}

fn timetable(rule: usize, overlap: usize, mode: usize, derived: bool) -> Timetable {
    let (every, jitter) = RULES[rule];
    let id = (!derived).then_some("main");
    let mut schedule = Schedule::new("tick", id, Rule::every(every).unwrap(), Zone::utc());
    schedule.jitter = Duration::from_secs(jitter);
    let mode = [CatchUpMode::None, CatchUpMode::Latest, CatchUpMode::All][mode];
    let catch_up = CatchUp { mode, window: Duration::from_secs(600), limit: 5 };
    Timetable { schedules: vec![schedule], overlap: Overlap::ALL[overlap], catch_up }
}

fn take(world: &mut World, ledger: &Ledger, step: Step) {
    match step {
        Step::Backfill { back, late } => backfill(world, ledger, back, late),
        Step::Pass(millis) => world.pass(Duration::from_millis(millis)),
        Step::Ahead(millis) => world.now.utc = world.now.utc + Duration::from_millis(millis),
        Step::Behind(millis) => world.now.utc = world.now.utc - Duration::from_millis(millis),
        // This world restores definitions from jobs.yaml alone: live jobs need theirs.
        Step::Restart(_) if !world.definitions.contains_key("tick") => {}
        Step::Restart(millis) => {
            world.restart_server(1_000, Duration::from_millis(millis), Duration::ZERO, false);
        }
        Step::Pause(paused) => world.pause("all", paused),
        Step::PauseFor(millis) => {
            world.pause_with("all", true, Some(Duration::from_millis(millis)), Origin::default());
        }
        Step::Define { rule, overlap, mode, enabled, derived, away } => {
            let mut it = definition("tick");
            it.timetable = timetable(rule, overlap, mode, derived);
            it.enabled = enabled;
            world.edit(it);
            match away {
                Some(millis) => {
                    world.restart_server(1_000, Duration::from_millis(millis), Duration::ZERO, false);
                }
                None => world.read_definitions(),
            }
        }
        Step::Undefine => world.undefine("tick"),
        Step::CancelFirst => {
            let live = (1..1_000).map(JobId).find(|job| world.scheduler.is_live(*job));
            live.into_iter().for_each(|job| world.cancel(job));
        }
    }
}

/// Asks for jobs of the passed slots that the ledger has no job for, as the server does.
fn backfill(world: &mut World, ledger: &Ledger, back: u64, late: bool) {
    let Some(definition) = world.definitions.get("tick") else { return };
    let Some(schedule) = definition.timetable.schedules.first().cloned() else { return };
    let mut slots = Vec::new();
    let mut last = world.now.utc - Duration::from_millis(back);
    while let Some(slot) = schedule.next_slot_after(last).filter(|slot| *slot <= world.now.utc) {
        last = slot;
        if slots.len() < 20 && ledger.may_backfill("tick", &schedule.id, slot) {
            slots.push(slot);
        }
    }
    let target = format!("tick/{}", schedule.id);
    world.backfill(&target, slots, Duration::ZERO, u64::from(late));
}

/// The schedule of jobs.yaml, with the time behind which the slots of its rule are, if it begins now.
fn current(world: &World, ledger: &Ledger) -> Option<(Schedule, Timestamp)> {
    let schedule = world.definitions.get("tick")?.timetable.schedules.first()?;
    // The clock may have been set back.
    let cursor = ledger.cursor("tick", &schedule.id);
    Some((schedule.clone(), cursor.map_or(world.now.utc, |cursor| cursor.max(world.now.utc))))
}

/// A rule that ended has decided all slots that had passed.
fn check_end(
    world: &World,
    ledger: &Ledger,
    (old, began): &(Schedule, Timestamp),
) -> Result<(), TestCaseError> {
    if let Some(slot) = old.last_slot_in(*began, world.now.utc) {
        prop_assert!(ledger.has_row("tick", &old.id, slot), "slot {} of {} has no row", slot.0, old.id);
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn each_slot_has_one_row_and_at_most_one_job(steps in steps()) {
        let mut world = World::with(Config { jobs_max: 300, ..World::config(1, 1_000) });
        let mut ledger = Ledger::default();
        let first = Step::Define { rule: 1, overlap: 0, mode: 1, enabled: true, derived: false, away: None };
        take(&mut world, &ledger, first);
        ledger.follow(&world)?;
        let mut rule = current(&world, &ledger);
        for step in steps {
            take(&mut world, &ledger, step);
            ledger.follow(&world)?;
            let listed = world.definitions.get("tick").and_then(|it| it.timetable.schedules.first());
            let cursor = listed.and_then(|schedule| ledger.cursor("tick", &schedule.id));
            prop_assert_eq!(world.scheduler.snapshot().latest_slot, cursor);
            let now = current(&world, &ledger);
            let rule_of = |of: &Option<(Schedule, Timestamp)>| {
                of.as_ref().map(|(schedule, _)| (schedule.id.clone(), schedule.fingerprint()))
            };
            if rule_of(&rule) != rule_of(&now) {
                rule.iter().try_for_each(|old| check_end(&world, &ledger, old))?;
                rule = now;
            }
        }
    }
}
