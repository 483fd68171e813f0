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
use world::protocol::JobId;
use world::scheduler::Config;
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
    Define {
        rule: usize,
        overlap: usize,
        mode: usize,
        enabled: bool,
    },
    Undefine,
    CancelFirst,
    /// Slots of the last so many milliseconds, and whether the ledger was read before the last step.
    Backfill {
        back: u64,
        late: bool,
    },
}

const RULES: [&str; 3] = ["100ms", "7s", "10m"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let define = (0..RULES.len(), 0..4_usize, 0..3_usize, prop::bool::weighted(0.9));
    let step = prop_oneof![
        6 => (0..30_000_u64).prop_map(Step::Pass),
        1 => (0..100_000_000_u64).prop_map(Step::Ahead),
        1 => (0..5_000_000_u64).prop_map(Step::Behind),
        2 => (0..5_000_000_u64).prop_map(Step::Restart),
        2 => any::<bool>().prop_map(Step::Pause),
        3 => define.prop_map(|(rule, overlap, mode, enabled)| Step::Define { rule, overlap, mode, enabled }),
        1 => Just(Step::Undefine),
        4 => Just(Step::CancelFirst),
        3 => (0..60_000_u64, prop::bool::weighted(0.2)).prop_map(|(back, late)| Step::Backfill { back, late }),
    ];
    prop::collection::vec(step, 1..25)
}

fn timetable(rule: usize, overlap: usize, mode: usize) -> Timetable {
    let rule = Rule::every(RULES[rule]).unwrap();
    let schedule = Schedule::new("tick", Some("main"), rule, Zone::utc());
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
        Step::Define { rule, overlap, mode, enabled } => {
            let mut it = definition("tick");
            it.timetable = timetable(rule, overlap, mode);
            it.enabled = enabled;
            world.define(it);
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
    world.backfill("tick/main", slots, Duration::ZERO, u64::from(late));
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn each_slot_has_one_row_and_at_most_one_job(steps in steps()) {
        let mut world = World::with(Config { jobs_max: 300, ..World::config(1, 1_000) });
        let mut ledger = Ledger::default();
        take(&mut world, &ledger, Step::Define { rule: 1, overlap: 0, mode: 1, enabled: true });
        for step in steps {
            take(&mut world, &ledger, step);
            ledger.follow(&world)?;
        }
    }
}
