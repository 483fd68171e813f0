//! Random walks of inputs to a scheduler, shared by the tests that run walks.

mod operations;
mod rules;

use std::time::Duration;

use proptest::prelude::*;

use crate::world::ends::takes_size;
use crate::world::protocol::report::{Availability, Foreign, Outcome, Phase, ReleaseCause};
use crate::world::protocol::{Fence, JobId, Nonce, SessionId, Token, WorkerId};
use crate::world::scheduler::definition::{Definition, Delays, Expect, OnLost, RetryOn, WaitLimits};
use crate::world::scheduler::details::JobDetails;
use crate::world::scheduler::input::{JobUpdate, Operation};
use crate::world::scheduler::new_jobs::{NewJob, StartTime};
use crate::world::scheduler::placement::rules::{
    Comparison, Condition, LabelRule, PlacementRules, PlacementStrategy, Preference, WorkerSelector,
};
use crate::world::{World, definition};

#[allow(unused_imports, reason = "used in part by each test")]
pub(crate) use operations::{FORGET, REVOKE};
#[allow(unused_imports, reason = "used in part by each test")]
pub(crate) use rules::{Admission, admission};

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Submit {
        definition: u8,
        count: u8,
        priority: i8,
        delay: u8,
    },
    Cancel(u8),
    Release(u8),
    /// A job, how much later it is to start, and its priority. Some values stand for no change.
    Update {
        job: u8,
        delay: u8,
        priority: i8,
    },
    Pass(u16),
    Connect {
        worker: u8,
        slots: u8,
        backlog: u8,
    },
    Inventory {
        worker: u8,
        known: u8,
        silent: bool,
        strange: u8,
    },
    Disconnect(u8),
    /// An attempt, and whether its connection breaks before, was not sent.
    Unsent(u8, bool),
    Mute(u8),
    /// It says that it is called like another one, from its next hello on.
    Call {
        worker: u8,
        like: u8,
    },
    /// The end of the old connection may not be told.
    Restart {
        worker: u8,
        told: bool,
    },
    Operate(u8, u8),
    /// Says Hello, has nothing, and everything works.
    Arrive {
        worker: u8,
        slots: u8,
        backlog: u8,
    },
    /// The holder of a current attempt tells about it.
    Tell {
        which: u8,
        kind: u8,
    },
    /// Somebody tells about an attempt that may be anybody's.
    Report {
        worker: u8,
        which: u8,
        kind: u8,
        forged: bool,
    },
    /// An operator sets the label of a worker.
    Label(u8, u8),
    Condition(u8, u8),
    /// Somebody pauses or resumes a definition, a group, or everything; or the secrets of some definitions are gone, or there again.
    Pause(u8, bool),
    /// Somebody pauses a definition, a group, or everything for this number of milliseconds.
    PauseFor(u8, u64),
    /// Somebody pauses or resumes one of the latest batches, or pauses it for this number of milliseconds.
    PauseBatch {
        which: u8,
        paused: bool,
        lasts: Option<u64>,
    },
    Foreign {
        worker: u8,
        which: u8,
        owner: u8,
    },
    Progress {
        worker: u8,
        which: u8,
        phase: u8,
    },
}

pub(crate) fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..4_u8, 1..6_u8, -2..3_i8, 0..3_u8)
            .prop_map(|(definition, count, priority, delay)| Act::Submit { definition, count, priority, delay }),
        2 => any::<u8>().prop_map(Act::Cancel),
        1 => any::<u8>().prop_map(Act::Release),
        1 => (0..40_u8, 0..4_u8, -3..4_i8).prop_map(|(job, delay, priority)| Act::Update { job, delay, priority }),
        4 => (0..2_000_u16).prop_map(Act::Pass),
        4 => (0..65_000_u16).prop_map(Act::Pass),
        2 => (0..4_u8, 0..4_u8, 0..3_u8).prop_map(|(worker, slots, backlog)| Act::Connect { worker, slots, backlog }),
        3 => (0..4_u8, any::<u8>(), any::<bool>(), prop_oneof![3 => Just(0), 1 => 1..60_u8])
            .prop_map(|(worker, known, silent, strange)| Act::Inventory { worker, known, silent, strange }),
        1 => (0..4_u8).prop_map(Act::Disconnect),
        1 => (any::<u8>(), prop::bool::weighted(0.8)).prop_map(|(which, breaks)| Act::Unsent(which, breaks)),
        1 => (0..4_u8).prop_map(Act::Mute),
        1 => (0..4_u8, 0..4_u8).prop_map(|(worker, like)| Act::Call { worker, like }),
        1 => (0..4_u8, any::<bool>()).prop_map(|(worker, told)| Act::Restart { worker, told }),
        1 => (0..4_u8, 0..9_u8).prop_map(|(worker, what)| Act::Operate(worker, what)),
        4 => (0..4_u8, 0..4_u8, 0..3_u8).prop_map(|(worker, slots, backlog)| Act::Arrive { worker, slots, backlog }),
        12 => (any::<u8>(), 0..12_u8).prop_map(|(which, kind)| Act::Tell { which, kind }),
        4 => (0..4_u8, any::<u8>(), 0..12_u8, prop::bool::weighted(0.1))
            .prop_map(|(worker, which, kind, forged)| Act::Report { worker, which, kind, forged }),
        1 => (0..4_u8, 0..4_u8).prop_map(|(worker, runtime)| Act::Condition(worker, runtime)),
        1 => (0..8_u8, prop::bool::weighted(0.4)).prop_map(|(what, paused)| Act::Pause(what, paused)),
        1 => (0..6_u8, 0..90_000_u64).prop_map(|(what, lasts)| Act::PauseFor(what, lasts)),
        2 => (0..4_u8, prop::bool::weighted(0.6), prop::option::weighted(0.3, 0..90_000_u64))
            .prop_map(|(which, paused, lasts)| Act::PauseBatch { which, paused, lasts: lasts.filter(|_| paused) }),
        2 => (0..4_u8, 0..6_u8).prop_map(|(worker, label)| Act::Label(worker, label)),
        1 => (0..4_u8, any::<u8>(), 0..6_u8)
            .prop_map(|(worker, which, owner)| Act::Foreign { worker, which, owner }),
        2 => (0..4_u8, any::<u8>(), 0..4_u8)
            .prop_map(|(worker, which, phase)| Act::Progress { worker, which, phase }),
    ]
}

/// A world whose scheduler has these settings, and whose definitions have these rules for new jobs.
pub(crate) fn world(config: crate::world::scheduler::Config, admission: &Admission) -> World {
    let mut world = World::with(config);
    for number in 0..NAMES.len() {
        world.define(kind_with(number, admission));
    }
    world
}

/// Names of the definitions.
pub(crate) const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// One of them, with these rules for new jobs.
pub(crate) fn kind_with(number: usize, admission: &Admission) -> Definition {
    let mut it = kind(number);
    admission.apply(number, &mut it);
    it
}

/// One of them.
pub(crate) fn kind(number: usize) -> Definition {
    let mut it = definition(NAMES[number]);
    it.retry.max = number as u32;
    it.retry.backoff.delays = match number {
        1 => Delays::Linear { initial: Duration::from_secs(3), max: Duration::from_secs(5) },
        2 => Delays::List(vec![Duration::from_millis(10), Duration::from_secs(4)]),
        3 => Delays::Fixed(Duration::from_secs(2)),
        _ => it.retry.backoff.delays,
    };
    it.retry.memory_factor_milli = [None, Some(1_500), Some(2_000), Some(1_000)][number];
    it.container.resources.memory_bytes = [None, None, Some(8 << 20), Some(9 << 20)][number];
    it.container.resources.gpus = [0, 0, 1, 0][number];
    it.container.resources.custom = if number == 3 { vec![("seat".into(), 1)] } else { Vec::new() };
    it.retry.exit_codes = if number == 3 { vec![1, 2] } else { Vec::new() };
    it.success_exit_codes = if number == 1 { vec![2] } else { Vec::new() };
    it.loss.limit = [3, 1, 2, 3][number];
    it.waits = [
        WaitLimits::default(),
        WaitLimits { queue: Some(Duration::from_secs(40)), ..WaitLimits::default() },
        WaitLimits {
            queue: Some(Duration::from_secs(9)),
            quarantine: Some(Duration::from_secs(50)),
            silent_worker: Some(Duration::from_secs(100)),
        },
        WaitLimits { quarantine: Some(Duration::from_secs(15)), ..WaitLimits::default() },
    ][number];
    let expect = |within: u64, max: u64| Expect {
        success_within: (within > 0).then_some(Duration::from_secs(within)),
        max_duration: (max > 0).then_some(Duration::from_secs(max)),
    };
    it.expect = [expect(30, 0), expect(0, 0), expect(90, 25), expect(0, 7)][number];
    it.timeout = number.is_multiple_of(2).then_some(Duration::from_secs(20));
    it.retry.on = [RetryOn::Any, RetryOn::Same, RetryOn::Other, RetryOn::Any][number];
    it.limits = rules::limits(number);
    it.loss.on_lost = [OnLost::Retry, OnLost::Fail, OnLost::Wait, OnLost::Retry][number];
    it.container.options.hostname = (number == 1).then(|| "one".into());
    (it.placement, it.container.image) = (placement(number), ["one", "two", "one", "two"][number].into());
    it.hooks = rules::hooks(number);
    it.submission = if number == 2 { takes_size() } else { Default::default() };
    it
}

fn placement(number: usize) -> PlacementRules {
    let rule = |label: &str, condition| LabelRule { label: label.into(), condition };
    let mut rules = PlacementRules {
        strategy: [
            PlacementStrategy::Spread,
            PlacementStrategy::Spread,
            PlacementStrategy::Random,
            PlacementStrategy::Pack,
        ][number],
        ..PlacementRules::default()
    };
    match number {
        0 => {
            let in_a = rule("zone", Condition::In(vec!["a".into()]));
            let large = rule("size", Condition::Compare(Comparison::Greater, 5));
            rules.prefers =
                vec![Preference { rule: in_a, weight: 10 }, Preference { rule: large, weight: -3 }];
        }
        1 => rules.workers = vec![WorkerSelector::Id(WorkerId(1)), WorkerSelector::Name("w2".into())],
        2 => rules.requires = vec![rule("zone", Condition::NotIn(vec!["b".into()]))],
        _ => rules.requires = vec![rule("zone", Condition::Exists)],
    }
    rules
}

pub(crate) fn take(world: &mut World, act: Act) {
    let name = |worker: u8| format!("w{worker}");
    match act {
        Act::Submit { definition, count, priority, delay } => {
            let labels = vec![("tenant".into(), ["acme", "globex", ""][usize::from(delay)].into())];
            let details = Some(Box::new(JobDetails { labels, ..JobDetails::default() }));
            let new = NewJob { priority: Some(priority), details, ..delayed(world, delay / 2) };
            world.submit(NAMES[usize::from(definition)], usize::from(count), new, None, false);
        }
        Act::Cancel(job) => {
            let job = some_job(world, job);
            world.cancel(job);
        }
        Act::Release(job) => {
            let job = some_job(world, job);
            world.release(job);
        }
        Act::Update { job, delay, priority } => {
            let run_at = match delay {
                0 => None,
                1 => Some(StartTime::At(world.now.utc)),
                _ => Some(StartTime::After(Duration::from_secs(u64::from(delay) * 5))),
            };
            let priority = (priority < 3).then_some(priority);
            world.update(JobId(u64::from(job)), JobUpdate { run_at, priority });
        }
        Act::Pass(millis) => world.pass(Duration::from_millis(u64::from(millis))),
        Act::Connect { worker, slots, backlog } => {
            rules::prepare(world.member(&name(worker)), worker, slots, backlog);
            world.hello(&name(worker), u32::from(slots), u32::from(backlog), Some(worker + 1));
        }
        Act::Inventory { worker, known, silent, strange } => {
            let mut attempts: Vec<(Token, Phase)> = tokens(world)
                .into_iter()
                .enumerate()
                .filter(|(index, _)| known >> (index % 8) & 1 == 1)
                .map(|(index, token)| (token, [Phase::Running, Phase::Ended, Phase::Backlog][index % 3]))
                .collect();
            let answer =
                if silent { Availability::Unavailable("down".into()) } else { Availability::Available };
            if strange > 0 {
                let unknown = unknown_token(strange);
                world.announce(&name(worker), vec![unknown], false);
                attempts.push((unknown, Phase::Running));
            }
            world.inventory(&name(worker), attempts, answer);
        }
        Act::Disconnect(worker) => world.disconnect(&name(worker)),
        Act::Unsent(which, breaks) => {
            let held: Vec<_> = world.held.values().cloned().collect();
            if let Some((token, worker)) = held.get(usize::from(which) % held.len().max(1)) {
                // One whose restart was not let in yet holds it on a session that nobody speaks for.
                let session = world.workers.get(worker).and_then(|member| member.session);
                let session = session.unwrap_or(SessionId(u64::from(which)));
                if breaks {
                    world.disconnect(worker);
                }
                world.unsent(session, *token);
            }
        }
        Act::Mute(worker) => {
            if let Some(member) = world.workers.get_mut(&name(worker)) {
                member.muted = !member.muted;
            }
        }
        Act::Call { worker, like } => {
            if let Some(member) = world.workers.get_mut(&name(worker)) {
                member.alias = Some(name(like));
            }
        }
        Act::Restart { worker, told } => {
            if told {
                world.disconnect(&name(worker));
            }
            if let Some(member) = world.workers.get_mut(&name(worker)) {
                member.incarnation += 1;
                member.process += 1;
                member.next_report = 1;
            }
        }
        Act::Operate(worker, what) => {
            let operation = operations::operation(worker, what, world.now.utc);
            world.operate(WorkerId(u64::from(worker)), operation);
        }
        Act::Arrive { worker, slots, backlog } => {
            rules::prepare(world.member(&name(worker)), worker, slots, backlog);
            world.hello(&name(worker), u32::from(slots), u32::from(backlog), Some(worker + 1));
            world.inventory(&name(worker), Vec::new(), Availability::Available);
        }
        Act::Tell { which, kind } => {
            let held: Vec<_> = world.held.values().cloned().collect();
            if let Some((token, worker)) = held.get(usize::from(which) % held.len().max(1)) {
                report(world, worker, *token, which, kind);
            }
        }
        Act::Report { worker, which, kind, forged } => {
            let known = tokens(world);
            let Some(mut token) = known.get(usize::from(which) % known.len().max(1)).copied() else { return };
            if forged {
                token.nonce.0 ^= 1;
            }
            report(world, &name(worker), token, which, kind);
        }
        Act::Foreign { worker, which, owner } => {
            let known = tokens(world);
            let found = known.iter().skip(usize::from(which) % known.len().max(1)).take(3);
            let foreign = found.map(|token| Foreign { worker: WorkerId(u64::from(owner)), token: *token });
            let foreign = foreign.collect();
            world.foreign(&name(worker), foreign);
        }
        Act::Pause(what, paused) => operations::pause(world, what, paused),
        Act::PauseFor(what, lasts) => operations::pause_for(world, what, lasts),
        Act::PauseBatch { which, paused, lasts } => operations::pause_batch(world, which, paused, lasts),
        Act::Label(worker, label) => {
            let (name, value) = [
                ("zone", Some("a")),
                ("zone", Some("b")),
                ("zone", None),
                ("exclusive", Some("zone")),
                ("exclusive", None),
                ("size", Some("7")),
            ][usize::from(label)];
            let change = (name.to_owned(), value.map(str::to_owned));
            world.operate(WorkerId(u64::from(worker)), Operation::Labels(vec![change]));
        }
        Act::Condition(worker, runtime) => {
            let answer = match runtime {
                0 | 1 => Availability::Available,
                2 => Availability::Unavailable("down".into()),
                _ => Availability::Unavailable("cannot start jobs: no space".into()),
            };
            world.condition(&name(worker), answer, false);
        }
        Act::Progress { worker, which, phase } => {
            let known = tokens(world);
            let phase = [
                Phase::Backlog,
                Phase::Pulling { percent: None, failures: 0 },
                Phase::Starting,
                Phase::Unknown,
            ][usize::from(phase)];
            if let Some(token) = known.get(usize::from(which) % known.len().max(1)) {
                world.progress(&name(worker), *token, phase);
            }
        }
    }
}

/// A job that waits for an instant, if it is to. A delay of nothing is none.
pub(crate) fn delayed(world: &World, delay: u8) -> NewJob {
    let run_at = (delay > 0).then(|| world.now.utc + Duration::from_secs(u64::from(delay) * 7));
    let none = world.inputs.len().is_multiple_of(2).then_some(StartTime::After(Duration::ZERO));
    let narrowing = rules::narrowing(world.inputs.len());
    NewJob { run_at: run_at.map(StartTime::At).or(none), narrowing, ..NewJob::default() }
}

fn report(world: &mut World, worker: &str, token: Token, which: u8, kind: u8) {
    let code = Some(i32::from(which % 3));
    match kind {
        0..=2 => world.running_since(worker, token, Duration::from_secs(u64::from(which % 4))),
        3 => world.success(
            worker,
            token,
            [None, Some("size:large"), Some("size:small")][usize::from(which % 3)],
        ),
        4 => world.failure(worker, token, Outcome::Failed, code, Duration::ZERO),
        5 => world.failure(worker, token, Outcome::HostFailed, None, Duration::ZERO),
        6 => world.failure(worker, token, Outcome::Lost, None, Duration::ZERO),
        7 => {
            let outcome = Outcome::ALL[usize::from(which) % Outcome::ALL.len()];
            world.failure(worker, token, outcome, None, Duration::ZERO);
        }
        8 => world.released(worker, token, ReleaseCause::Recalled),
        9 => world.released(worker, token, ReleaseCause::Full),
        10 => world.released(worker, token, ReleaseCause::RuntimeUnavailable),
        _ => world.released(worker, token, ReleaseCause::Policy),
    }
}

/// An attempt of another life of the database.
fn unknown_token(number: u8) -> Token {
    let number = u64::from(number);
    Token { job: JobId(number % 7), fence: Fence(number % 11), nonce: STRANGE }
}

/// No attempt here ever has it.
pub(crate) const STRANGE: Nonce = Nonce(0);

/// One that a worker has, or any, or one that never was.
fn some_job(world: &World, which: u8) -> JobId {
    let held: Vec<JobId> = world.held.keys().copied().collect();
    match held.get(usize::from(which / 2) % held.len().max(1)) {
        Some(job) if which.is_multiple_of(2) => *job,
        _ => JobId(u64::from(which) % 40),
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

/// This many cases, or as many as `PROPTEST_CASES` says.
#[expect(clippy::disallowed_methods, reason = "only the crate itself must be pure")]
pub(crate) fn cases(usual: u32) -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(usual),
    }
}
