//! Random walks: whatever happens, in whatever order, the audit finds nothing wrong, nobody panics, and what the changes say
//! about a job is one of the stories that DESIGN.md allows.

#![allow(clippy::unwrap_used, reason = "a walk that cannot be taken is a failed test")]

mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use world::protocol::report::{Availability, Outcome, Phase, ReleaseCause};
use world::protocol::{JobId, Token, WorkerId};
use world::scheduler::definition::{OnLost, RetryOn};
use world::scheduler::input::{NewJob, Operation};
use world::scheduler::job::State;
use world::scheduler::step::{Change, Effect};
use world::{World, definition};

#[derive(Clone, Debug)]
enum Act {
    Submit { definition: u8, count: u8, priority: i8, delay: u8 },
    Cancel(u8),
    Pass(u16),
    Connect { worker: u8, slots: u8, backlog: u8 },
    Inventory { worker: u8, known: u8, silent: bool },
    Disconnect(u8),
    Mute(u8),
    Restart(u8),
    Operate(u8, u8),
    Report { worker: u8, which: u8, kind: u8, forged: bool },
    Condition(u8, bool),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (0..4_u8, 1..6_u8, -2..3_i8, 0..3_u8)
            .prop_map(|(definition, count, priority, delay)| Act::Submit { definition, count, priority, delay }),
        1 => any::<u8>().prop_map(Act::Cancel),
        4 => (0..40_000_u16).prop_map(Act::Pass),
        2 => (0..4_u8, 0..4_u8, 0..3_u8).prop_map(|(worker, slots, backlog)| Act::Connect { worker, slots, backlog }),
        3 => (0..4_u8, any::<u8>(), any::<bool>())
            .prop_map(|(worker, known, silent)| Act::Inventory { worker, known, silent }),
        1 => (0..4_u8).prop_map(Act::Disconnect),
        1 => (0..4_u8).prop_map(Act::Mute),
        1 => (0..4_u8).prop_map(Act::Restart),
        1 => (0..4_u8, 0..5_u8).prop_map(|(worker, what)| Act::Operate(worker, what)),
        12 => (0..4_u8, any::<u8>(), 0..9_u8, prop::bool::weighted(0.1))
            .prop_map(|(worker, which, kind, forged)| Act::Report { worker, which, kind, forged }),
        1 => (0..4_u8, any::<bool>()).prop_map(|(worker, up)| Act::Condition(worker, up)),
    ];
    prop::collection::vec(act, 1..120)
}

fn world() -> World {
    let mut world = World::new(3);
    for (number, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let mut it = definition(name);
        it.retry.max = number as u32;
        it.timeout = (number % 2 == 0).then_some(Duration::from_secs(20));
        it.retry.on = [RetryOn::Any, RetryOn::Same, RetryOn::Other, RetryOn::Any][number];
        it.loss.on_lost = [OnLost::Retry, OnLost::Fail, OnLost::Wait, OnLost::Retry][number];
        world.define(it);
    }
    world
}

fn take(world: &mut World, act: Act) {
    let name = |worker: u8| format!("w{worker}");
    match act {
        Act::Submit { definition, count, priority, delay } => {
            let run_at = (delay > 0).then(|| world.now.utc + Duration::from_secs(u64::from(delay) * 7));
            let new = NewJob { priority: Some(priority), run_at, ..NewJob::default() };
            world.submit(["a", "b", "c", "d"][usize::from(definition)], usize::from(count), new, None, false);
        }
        Act::Cancel(job) => world.cancel(JobId(u64::from(job) % 60)),
        Act::Pass(millis) => world.pass(Duration::from_millis(u64::from(millis))),
        Act::Connect { worker, slots, backlog } => {
            world.hello(&name(worker), u32::from(slots), u32::from(backlog), Some(worker + 1));
        }
        Act::Inventory { worker, known, silent } => {
            let attempts: Vec<(Token, Phase)> = tokens(world)
                .into_iter()
                .enumerate()
                .filter(|(index, _)| known >> (index % 8) & 1 == 1)
                .map(|(index, token)| (token, [Phase::Running, Phase::Ended, Phase::Backlog][index % 3]))
                .collect();
            let answer =
                if silent { Availability::Unavailable("down".into()) } else { Availability::Available };
            world.inventory(&name(worker), attempts, answer);
        }
        Act::Disconnect(worker) => world.disconnect(&name(worker)),
        Act::Mute(worker) => {
            if let Some(member) = world.workers.get_mut(&name(worker)) {
                member.muted = !member.muted;
            }
        }
        Act::Restart(worker) => {
            if let Some(member) = world.workers.get_mut(&name(worker)) {
                member.incarnation += 1;
                member.next_report = 1;
            }
        }
        Act::Operate(worker, what) => {
            let operation = [
                Operation::Cordon,
                Operation::Uncordon,
                Operation::Drain,
                Operation::Slots(u32::from(worker)),
                Operation::Forget,
            ][usize::from(what)]
            .clone();
            world.operate(WorkerId(u64::from(worker)), operation);
        }
        Act::Report { worker, which, kind, forged } => report(world, &name(worker), which, kind, forged),
        Act::Condition(worker, up) => {
            let answer = if up { Availability::Available } else { Availability::Unavailable("down".into()) };
            world.condition(&name(worker), answer);
        }
    }
}

fn report(world: &mut World, worker: &str, which: u8, kind: u8, forged: bool) {
    let known = tokens(world);
    let Some(mut token) = known.get(usize::from(which) % known.len().max(1)).copied() else { return };
    if forged {
        token.nonce.0 ^= 1;
    }
    match kind {
        0..=2 => world.running(worker, token),
        3 | 4 => world.success(worker, token),
        5 => world.failure(worker, token, Outcome::Failed, Some(i32::from(which))),
        6 => world.failure(worker, token, Outcome::ALL[usize::from(which) % Outcome::ALL.len()], None),
        7 => world.released(worker, token, ReleaseCause::Recalled),
        _ => world.released(worker, token, ReleaseCause::Full),
    }
}

/// Tokens ever handed out, the youngest ones first.
fn tokens(world: &World) -> Vec<Token> {
    world
        .nonces
        .iter()
        .rev()
        .take(12)
        .map(|((job, fence), nonce)| Token { job: *job, fence: *fence, nonce: *nonce })
        .collect()
}

/// What the changes have said about a job so far.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shown {
    state: State,
    current: Option<Token>,
}

/// Follows the changes as a store would, and complains where one does not fit the row that it changes.
fn follow(world: &World) -> Result<(), TestCaseError> {
    let mut rows: BTreeMap<JobId, Shown> = BTreeMap::new();
    let mut last_fence = 0;
    for (_, step) in &world.steps {
        for change in &step.changes {
            match change {
                Change::Added(it) => {
                    let old = rows.insert(it.job, Shown { state: it.state, current: None });
                    prop_assert!(old.is_none(), "job {} added twice", it.job);
                }
                Change::Assigned(it) => {
                    let row = rows.get_mut(&it.token.job).unwrap();
                    prop_assert!(row.state == State::Queued && row.current.is_none(), "{row:?} assigned");
                    prop_assert!(it.token.fence.0 > last_fence, "fences must grow");
                    last_fence = it.token.fence.0;
                    *row = Shown { state: State::Assigned, current: Some(it.token) };
                }
                Change::Started { token, .. } => {
                    let row = rows.get_mut(&token.job).unwrap();
                    prop_assert!(
                        row.state == State::Assigned && row.current == Some(*token),
                        "{row:?} started"
                    );
                    row.state = State::Running;
                }
                Change::Stopping { token, .. } => {
                    prop_assert!(rows[&token.job].current == Some(*token), "a stranger is stopped");
                }
                Change::Waiting { job, closed, state, .. } => {
                    let row = rows.get_mut(job).unwrap();
                    prop_assert!(row.current == Some(closed.token), "{row:?} waits after {closed:?}");
                    *row = Shown { state: *state, current: None };
                }
                Change::Due { job } => {
                    let row = rows.get_mut(job).unwrap();
                    prop_assert!(row.state == State::Scheduled, "{row:?} due");
                    row.state = State::Queued;
                }
                Change::Ended(it) => {
                    let row = rows.get_mut(&it.job).unwrap();
                    prop_assert!(!row.state.has_ended(), "job {} ended twice", it.job);
                    prop_assert!(
                        row.current == it.closed.as_ref().map(|closed| closed.token),
                        "{row:?} ended by {it:?}"
                    );
                    *row = Shown { state: it.state, current: None };
                }
                Change::Noted { .. }
                | Change::Keyed { .. }
                | Change::Worker(_)
                | Change::WorkerForgotten(_) => {}
            }
        }
        for effect in &step.effects {
            if let Effect::JobEnded(job, state) = effect {
                prop_assert!(rows[job].state == *state, "told the end of job {job} before its change");
            }
        }
    }
    let live = rows.values().filter(|row| !row.state.has_ended()).count();
    prop_assert_eq!(live, world.scheduler.live_jobs());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// `World::step` audits after each step; a panic or a fault fails the walk.
    #[test]
    fn no_sequence_of_inputs_breaks_an_invariant(acts in acts()) {
        let mut world = world();
        for act in acts {
            take(&mut world, act);
        }
        follow(&world)?;
    }
}
