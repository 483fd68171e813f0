//! Random histories of jobs on several workers: workers come and go, members fail, are lost, given back and cancelled, and the server
//! restarts. After each step `sets` checks that no two members have had a worker in common, and that each parent ends once and last.

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
use walk::{Act, NAMES, act, cases, kind, take};
use world::World;
use world::protocol::JobId;
use world::scheduler::batches::BatchOptions;
use world::scheduler::placement::rules::RunOn;

#[derive(Clone, Debug)]
enum Step {
    Act(Act),
    /// A batch of a definition, and how many of its members may be on workers at once.
    Batch {
        definition: usize,
        count: u32,
        concurrency: u32,
    },
    Restart(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        30 => act().prop_map(Step::Act),
        2 => (0..4_usize, 1..5_u32, 1..4_u32)
            .prop_map(|(definition, count, concurrency)| Step::Batch { definition, count, concurrency }),
        1 => (0..100_000_u64).prop_map(Step::Restart),
    ];
    prop::collection::vec(step, 1..80)
}

fn world_of_sets(slice: usize) -> World {
    let mut world = World::new(3, slice);
    for (number, run_on) in [RunOn::All, RunOn::Count(2), RunOn::Count(3), RunOn::One].into_iter().enumerate()
    {
        let mut it = kind(number);
        it.placement.run_on = run_on;
        world.define(it);
    }
    world
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn members_have_workers_of_their_own_and_their_parent_ends_once(
        slice in prop_oneof![Just(2_usize), Just(1_000)],
        steps in steps(),
    ) {
        let mut world = world_of_sets(slice);
        let mut ledger = Ledger::default();
        for step in steps {
            match step {
                Step::Act(act) => take(&mut world, act),
                Step::Batch { definition, count, concurrency } => {
                    let options = BatchOptions { concurrency: Some(concurrency), ..BatchOptions::default() };
                    world.submit_array(NAMES[definition], count, options);
                }
                Step::Restart(_) if ledger.is_forming() => {}
                Step::Restart(millis) => {
                    world.restart_server(slice, Duration::from_millis(millis), Duration::ZERO, false);
                }
            }
            ledger.follow(&world)?;
        }
        // Everything can be brought to its end.
        for job in (1..2_000).map(JobId) {
            if world.scheduler.is_live(job) {
                world.cancel(job);
            }
        }
        world.pass(Duration::from_secs(600));
        ledger.follow(&world)?;
    }
}
