//! The start and the end of an attempt that are shown are those of its container, by the final report.

mod world;

use std::time::Duration;

use protocol::report::{Availability, Outcome};
use world::protocol;
use world::scheduler::new_jobs::NewJob;
use world::scheduler::step::{Change, ClosedAttempt};
use world::{World, definition};

#[test]
fn a_late_report_of_the_start_does_not_shorten_the_run_time() {
    let mut world = World::new(1, 1_000);
    world.define(definition("resize"));
    world.hello("w1", 1, 0, None);
    world.inventory("w1", Vec::new(), Availability::Available);
    world.submit("resize", 1, NewJob::default(), None, false);
    world.pass(Duration::from_secs(5));
    let (token, _) = world.held.values().next().expect("it is assigned").clone();
    // The container ran for a second, and both reports come at its end.
    world.running("w1", token);
    world.success("w1", token, None);
    let closed = ended(&world);
    assert_eq!(closed.started_at.map(|at| closed.ended_at.since(at)), Some(Duration::from_secs(1)));
}

#[test]
fn an_engine_whose_clock_is_behind_does_not_shorten_the_run_time() {
    let mut world = World::new(1, 1_000);
    world.define(definition("resize"));
    world.hello("w1", 1, 0, None);
    world.inventory("w1", Vec::new(), Availability::Available);
    world.submit("resize", 1, NewJob::default(), None, false);
    world.pass(Duration::from_secs(5));
    let (token, _) = world.held.values().next().expect("it is assigned").clone();
    // By the clock of the engine it ended before it was assigned.
    world.failure("w1", token, Outcome::Failed, Some(1), Duration::from_secs(10));
    let closed = ended(&world);
    assert_eq!(closed.started_at.map(|at| closed.ended_at.since(at)), Some(Duration::from_secs(1)));
}

fn ended(world: &World) -> ClosedAttempt {
    let ended = world.steps.iter().flat_map(|(_, step)| &step.changes).find_map(|change| match change {
        Change::Ended(ended) => ended.closed.clone(),
        _ => None,
    });
    ended.expect("it has ended")
}
