//! Random walks: whatever happens, in whatever order, the audit finds nothing wrong, nobody panics, and what the changes say
//! about a job is one of the stories that docs/design/scheduling.md, Q1 allows.

#![allow(clippy::unwrap_used, reason = "a walk that cannot be taken is a failed test")]

#[path = "world/ledger.rs"]
mod ledger;
mod walk;
mod world;

use std::time::Duration;

use ledger::Ledger;
use proptest::prelude::*;
use walk::{Act, Admission, NAMES, act, admission, cases, delayed, kind_with, take, world};
use world::scheduler::ids::GroupNo;
use world::scheduler::input::{IdempotencyKey, Input};
use world::scheduler::new_jobs::NewJob;
use world::scheduler::{Config, PriorityAgeing};
use world::{World, definition};

#[derive(Clone, Debug)]
enum Walk {
    Act(Act),
    SubmitMany { definitions: Vec<(u8, u8)>, key: Option<(u8, u8)>, require_worker: bool },
    Tick,
    Reload(u8),
}

fn walks() -> impl Strategy<Value = Vec<Walk>> {
    let step = prop_oneof![
        8 => act().prop_map(Walk::Act),
        1 => (many(), prop::option::of((0..3_u8, 0..2_u8)), prop::bool::weighted(0.1))
            .prop_map(|(definitions, key, require_worker)| Walk::SubmitMany { definitions, key, require_worker }),
        2 => Just(Walk::Tick),
        1 => (0..4_u8).prop_map(Walk::Reload),
    ];
    prop::collection::vec(step, 1..120)
}

/// Members of a batch, mostly of a large one: the definition of each, and its delay.
fn many() -> impl Strategy<Value = Vec<(u8, u8)>> {
    prop::collection::vec((0..4_u8, prop_oneof![4 => Just(0_u8), 1 => 1..3_u8]), 2..12)
}

fn walk(world: &mut World, step: Walk, admission: &Admission) {
    match step {
        Walk::Act(act) => take(world, act),
        Walk::SubmitMany { definitions, key, require_worker } => {
            let revision = |number: u8| definition(NAMES[usize::from(number)]).revision;
            let member = |(number, delay)| NewJob { revision: revision(number), ..delayed(world, delay) };
            let jobs = definitions.into_iter().map(member).collect();
            // The archive knows nothing of it: whatever was keyed must be remembered.
            let key = key.map(|(key, digest)| IdempotencyKey {
                key: format!("k{key}").into(),
                digest: u128::from(digest),
                found: None,
                read_at: GroupNo(0),
            });
            world.submit_all(jobs, key, require_worker);
        }
        Walk::Tick => world.step(Input::Tick),
        Walk::Reload(number) => {
            let number = usize::from(number);
            if world.definitions.contains_key(NAMES[number]) {
                world.undefine(NAMES[number]);
            } else {
                world.define(kind_with(number, admission));
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(400))]

    /// `World::step` audits after each step; a panic or a fault fails the walk.
    #[test]
    fn no_sequence_of_inputs_breaks_an_invariant(
        steps in walks(),
        admission in admission(),
        ageing in prop::option::of(1..100_u64),
    ) {
        let priority_ageing = ageing.map(Duration::from_secs).and_then(PriorityAgeing::every);
        let priority_ageing = priority_ageing.unwrap_or_default();
        let mut world = world(Config { priority_ageing, ..World::config(3, SLICE) }, &admission);
        let mut ledger = Ledger::default();
        for step in steps {
            walk(&mut world, step, &admission);
            ledger.follow(&world)?;
        }
        // Finishes pending batches and answers their requests.
        world.pass(Duration::ZERO);
        ledger.follow(&world)?;
        ledger.close(&world)?;
    }
}

/// Small, so that most batches are large ones.
const SLICE: usize = 2;
