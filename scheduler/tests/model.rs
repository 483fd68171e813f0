//! The scheduler against a naive model of jobs' life: whatever happens, in whatever order, both decide the same.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a walk that cannot be taken is a failed test")]

mod naive;
mod walk;
mod world;

use std::time::Duration;

use naive::Model;
use proptest::prelude::*;
use walk::{Act, Admission, FORGET, REVOKE, act, admission, cases, take, world};
use world::World;
use world::scheduler::{Config, PriorityAgeing};

/// Compares the model with the scheduler: the steps since the last comparison, and the present state.
fn compare(world: &mut World, model: &mut Model, compared: usize) -> Result<(), String> {
    for (index, input) in world.inputs.iter().enumerate().skip(compared) {
        let (now, step) = &world.steps[index];
        let set_aside = &world.set_aside[index];
        model.take(*now, input.clone(), step, set_aside).map_err(|why| format!("after {input:?}: {why}"))?;
    }
    let snapshot = world.scheduler.snapshot();
    // The audit compares the reasons of all lanes with a search through all workers, if every worker is in the group of its facts.
    if let Some(fault) = longshore_scheduler::audit::audit(&world.scheduler).pop() {
        return Err(fault);
    }
    if !snapshot.workers.iter().cloned().eq(world.scheduler.worker_facts()) {
        return Err(format!("{:?} is published", snapshot.workers));
    }
    if let Some(fault) = model.fault_of_limits(&snapshot.waiting) {
        return Err(fault);
    }
    let waiting = model.without_limits(&snapshot.waiting);
    if waiting != model.waiting() {
        return Err(format!("{waiting:?} wait, not {:?}", model.waiting()));
    }
    for job in &model.jobs {
        if world.scheduler.is_live(world::protocol::JobId(job.id)) == job.state().has_ended() {
            return Err(format!("job {} is {}", job.id, job.state().name()));
        }
        let told =
            world.scheduler.explain(world.now, world::protocol::JobId(job.id)).and_then(|why| why.pending);
        if told != model.pending(job) {
            return Err(format!("job {} waits for {told:?}, not {:?}", job.id, model.pending(job)));
        }
    }
    for facts in snapshot.workers.iter() {
        let held = model.worker(facts.id).map_or(0, |worker| model.burden(worker));
        if facts.busy + facts.queued != held {
            return Err(format!(
                "worker {} has {held} attempts, not {} and {}",
                facts.id, facts.busy, facts.queued
            ));
        }
    }
    let (wake, (utc, up)) = (world.scheduler.wake_at(), model.next());
    if utc.is_some_and(|at| wake.utc.is_none_or(|wake| wake > at))
        || up.is_some_and(|at| wake.up.is_none_or(|wake| wake > at))
    {
        return Err(format!("it sleeps until {wake:?}, but {utc:?} or {up:?} comes first"));
    }
    Ok(())
}

/// Takes the acts one after the other, and compares after each.
fn walk_along(
    acts: Vec<Act>,
    admission: &Admission,
    set_aside_after: Option<Duration>,
    ageing: Option<Duration>,
) -> Result<(), String> {
    // No batch is a large one: how those are made is another story.
    let priority_ageing = ageing.and_then(PriorityAgeing::every).unwrap_or_default();
    let config = Config { priority_ageing, set_aside_after, ..World::config(3, 1_000) };
    let mut world = world(config, admission);
    let mut model = Model::default();
    model.set_aside_after = set_aside_after;
    model.ageing = ageing.map(|period| period.as_millis() as i64);
    let mut compared = 0;
    for act in acts {
        take(&mut world, act);
        compare(&mut world, &mut model, compared)?;
        compared = world.inputs.len();
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn the_scheduler_decides_what_a_naive_model_decides(
        acts in prop::collection::vec(act(), 1..120),
        admission in admission(),
        set_aside_after in prop_oneof![1 => Just(None), 3 => (0..40_u64).prop_map(Some)],
        ageing in prop_oneof![2 => Just(None), 1 => (1..20_u64).prop_map(Some), 1 => (20..200_u64).prop_map(Some)],
    ) {
        let seconds = |after: Option<u64>| after.map(Duration::from_secs);
        walk_along(acts, &admission, seconds(set_aside_after), seconds(ageing)).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn a_revoked_worker_is_not_waited_for_during_a_pause() {
    let mut acts = vec![
        Act::Arrive { worker: 2, slots: 0, backlog: 0 },
        Act::Arrive { worker: 0, slots: 0, backlog: 0 },
        Act::Arrive { worker: 1, slots: 1, backlog: 0 },
        Act::Submit { definition: 0, count: 1, priority: 0, delay: 0 },
        // Everything, for longer than `lost_after`.
        Act::PauseFor(5, 90_000),
        // The worker that came last has the job.
        Act::Operate(3, REVOKE),
    ];
    acts.extend([1_600, 55_000, 5_000].map(Act::Pass));
    walk_along(acts, &Admission::default(), None, None).unwrap();
}

#[test]
fn a_cancel_is_not_confirmed_any_more_once_a_worker_with_a_lost_attempt_was_forgotten() {
    let away = |worker| Act::Restart { worker, told: true };
    let acts = vec![
        Act::Submit { definition: 0, count: 1, priority: 0, delay: 0 },
        Act::Arrive { worker: 0, slots: 1, backlog: 0 },
        away(0),
        // The second worker is a successor, so the attempt is given up.
        Act::Arrive { worker: 1, slots: 1, backlog: 0 },
        Act::Pass(65_000),
        Act::Operate(1, FORGET),
        away(1),
        Act::Cancel(0),
        Act::Pass(65_000),
        Act::Arrive { worker: 1, slots: 0, backlog: 0 },
    ];
    walk_along(acts, &Admission::default(), None, None).unwrap();
}

#[test]
fn a_reported_end_is_noted_although_a_worker_with_an_earlier_attempt_was_forgotten() {
    let acts = vec![
        Act::Submit { definition: 0, count: 1, priority: 0, delay: 0 },
        Act::Arrive { worker: 0, slots: 1, backlog: 0 },
        Act::Restart { worker: 0, told: true },
        Act::Arrive { worker: 1, slots: 1, backlog: 0 },
        Act::Pass(65_000),
        Act::Operate(1, FORGET),
        // The second attempt starts, and its worker comes back without it during the cancel.
        Act::Tell { which: 0, kind: 0 },
        Act::Cancel(0),
        Act::Arrive { worker: 1, slots: 1, backlog: 0 },
    ];
    walk_along(acts, &Admission::default(), None, None).unwrap();
}
