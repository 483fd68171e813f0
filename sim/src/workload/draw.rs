//! Draws the parts of a definition: its policies, limits, schedules, hooks and placement, and how its containers behave.

use std::ops::Range;
use std::time::Duration;

use protocol::container::{ContainerSpec, Resources};
use protocol::{Revision, RuntimeKind};
use scheduler::definition::{
    Backoff, Definition, Expect, LossPolicy, OnLost, RetryOn, RetryPolicy, WaitLimits,
};
use scheduler::hooks::Hooks;
use scheduler::limits::rules::{
    Clear, Concurrency, KeySource, LimitRules, OnDuplicate, OnFull, RateLimit, UniqueRule,
};
use scheduler::placement::rules::{
    Condition, LabelRule, PlacementRules, PlacementStrategy, Preference, RunOn, WorkerSelector,
};
use scheduler::schedule::catch_up::{CatchUp, CatchUpMode};
use scheduler::schedule::{Overlap, Rule, Schedule, Timetable, Zone};

use super::{GROUP, LABEL, MEMORY_BYTES, Nature, has_memory_limit};
use crate::dice::Dice;

/// The limits of a definition. All members of the group have the same limit.
pub(super) fn limit_rules(dice: &mut Dice) -> LimitRules {
    let key = |dice: &mut Dice| dice.permille(500).then(|| KeySource::Label(LABEL.into()));
    let group = dice.permille(300);
    let concurrency = dice.permille(600).then(|| Concurrency {
        limit: if group { 2 } else { dice.pick(&[1, 1, 2, 3]) },
        key: key(dice),
        group: group.then(|| GROUP.into()),
        on_full: dice.pick(&[
            OnFull::Queue,
            OnFull::Queue,
            OnFull::Reject,
            OnFull::CancelRunning,
            OnFull::CancelOldest,
        ]),
    });
    let rate = dice.permille(200).then(|| RateLimit {
        limit: dice.pick(&[2, 10]),
        per: dice.seconds(1, 5),
        burst: dice.pick(&[1, 3]),
        key: key(dice),
    });
    let queued_max = dice.permille(200).then(|| dice.pick(&[3, 20]));
    LimitRules { concurrency, rate, queued_max, unique: dice.permille(250).then(|| unique_rule(dice)) }
}

fn unique_rule(dice: &mut Dice) -> UniqueRule {
    UniqueRule {
        key: dice.permille(700).then(|| KeySource::Label(LABEL.into())),
        on_duplicate: dice.pick(&[
            OnDuplicate::Return,
            OnDuplicate::Reject,
            OnDuplicate::Replace,
            OnDuplicate::Replace,
        ]),
        clear: dice.pick(&[Clear::Always, Clear::Always, Clear::Success, Clear::Failed]),
    }
}

pub(super) fn nature(dice: &mut Dice) -> Nature {
    let runs = dice.pick(&[
        (10, 200),
        (10, 200),
        (1_000, 10_000),
        (1_000, 20_000),
        (20_000, 90_000),
        // Longer than anybody waits for a silent worker.
        (60_000, 200_000),
    ]);
    let mostly_not = |dice: &mut Dice| dice.pick(&[0, 0, 0, 100, 500]);
    Nature {
        runs: (Duration::from_millis(runs.0), Duration::from_millis(runs.1)),
        fails: dice.pick(&[0, 0, 50, 300, 900]),
        ooms: mostly_not(dice),
        ignores_term: mostly_not(dice),
        unstartable: dice.pick(&[0, 0, 0, 0, 200]),
        pulls: mostly_not(dice),
        pull_fails: mostly_not(dice),
        writes: dice.pick(&[0, 300, 1_000]),
    }
}

pub(super) fn definition(dice: &mut Dice, name: usize, revision: Revision, nature: &Nature) -> Definition {
    let stop_grace = dice.seconds(1, 12);
    let timeout = match dice.below(4) {
        0 => None,
        1 => Some(nature.runs.1 / 2 + Duration::from_millis(100)),
        _ => Some(nature.runs.1 * 2 + Duration::from_secs(1)),
    };
    let on_lost = dice.pick(&[OnLost::Retry, OnLost::Retry, OnLost::Retry, OnLost::Fail, OnLost::Wait]);
    let after = Duration::from_secs(dice.pick(&[30, 60, 60, 120])).max(stop_grace + STOP_MARGIN);
    let self_fence = dice.permille(300);
    let heartbeat = dice.pick(&[None, None, None, Some(Duration::from_secs(2))]);
    let initial = dice.millis(100, 10_000);
    let backoff = Backoff::exponential(initial, Duration::from_secs(30).max(initial), 2_000);
    // A part of the definitions waits as long as it may, so that growth shows.
    let jitter_milli = if revision.0 % 4 == 1 { 0 } else { backoff.jitter_milli };
    Definition {
        name: format!("d{name}"),
        revision,
        enabled: !dice.permille(50),
        priority: dice.pick(&[-10, 0, 0, 0, 10]),
        timeout,
        placement: placement(dice),
        retry: RetryPolicy {
            max: dice.pick(&[0, 0, 1, 3]),
            exit_codes: if dice.permille(200) { vec![1] } else { Vec::new() },
            on: dice.pick(&[RetryOn::Any, RetryOn::Same, RetryOn::Other]),
            backoff: Backoff { jitter_milli, ..backoff },
            memory_factor_milli: Some(MEMORY_FACTOR_MILLI),
            ..RetryPolicy::default()
        },
        success_exit_codes: if revision.0 % 5 == 2 { vec![3] } else { Vec::new() },
        loss: LossPolicy { limit: dice.pick(&[1, 2, 3, 3]), after, on_lost, delay: None, heartbeat },
        waits: WaitLimits::default(),
        expect: Expect::default(),
        timetable: Timetable::default(),
        hooks: Default::default(),
        secrets: Default::default(),
        submission: Default::default(),
        limits: LimitRules::default(),
        container: ContainerSpec {
            runtime: RuntimeKind::Docker,
            image: format!("image-{name}"),
            stop_grace,
            resources: resources(revision),
            ask_before_start: self_fence || on_lost == OnLost::Wait,
            self_fence: self_fence.then(|| after.saturating_sub(FENCE_MARGIN)),
            ..ContainerSpec::default()
        },
    }
}

/// Half of the definitions reserve memory, and some of these also a GPU or a license.
fn resources(revision: Revision) -> Resources {
    let has_limit = has_memory_limit(revision);
    let license = || ("license".to_owned(), 1);
    Resources {
        memory_bytes: has_limit.then_some(MEMORY_BYTES),
        gpus: u32::from(has_limit && revision.0 % 8 == 2),
        custom: if has_limit && revision.0 % 8 == 4 { vec![license()] } else { Vec::new() },
        ..Resources::default()
    }
}

/// Half of the definitions may run anywhere; the others ask for labels that workers have, and that operators change.
fn placement(dice: &mut Dice) -> PlacementRules {
    let zone = || "zone".to_owned();
    let in_a = LabelRule { label: zone(), condition: Condition::In(vec!["a".to_owned()]) };
    let not_b = LabelRule { label: zone(), condition: Condition::NotIn(vec!["b".to_owned()]) };
    // Ids change when a worker is forgotten and joins again.
    let first_two = ["w0", "w1"].map(|name| WorkerSelector::Name(name.to_owned())).to_vec();
    let strategy = dice.pick(&PlacementStrategy::ALL);
    let rules = PlacementRules { strategy, ..PlacementRules::default() };
    match dice.below(8) {
        0 => PlacementRules { requires: vec![in_a], ..rules },
        1 => PlacementRules { requires: vec![not_b], ..rules },
        2 => PlacementRules { prefers: vec![Preference { rule: in_a, weight: 10 }], ..rules },
        3 => PlacementRules { workers: first_two, ..rules },
        _ => rules,
    }
}

/// Up to two schedules with their policies.
pub(super) fn timetable(dice: &mut Dice, name: &str) -> Timetable {
    let ids = &["first", "second"][..dice.pick(&[0, 1, 1, 2])];
    Timetable {
        schedules: ids.iter().map(|id| schedule(dice, name, id)).collect(),
        overlap: dice.pick(&Overlap::ALL),
        catch_up: CatchUp {
            mode: dice.pick(&[CatchUpMode::None, CatchUpMode::Latest, CatchUpMode::All]),
            window: Duration::from_secs(dice.pick(&[30, 120, 86_400])),
            limit: dice.pick(&[1, 3, 5]),
        },
    }
}

fn schedule(dice: &mut Dice, name: &str, id: &str) -> Schedule {
    let rule = match dice.below(5) {
        0 => Rule::every("20s"),
        1 => Rule::every("45s"),
        2 => Rule::every("2m"),
        3 => Rule::cron("*/30 * * * * *"),
        _ => Rule::cron("* * * * *"),
    };
    // The texts above are good rules.
    let rule = rule.expect("a good rule");
    // The jitter depends on the rule, so that the same rule always has the same one.
    let jitter = if matches!(rule, Rule::Cron(_)) { Duration::from_secs(5) } else { Duration::ZERO };
    Schedule { jitter, ..Schedule::new(name, Some(id), rule, Zone::utc()) }
}

/// A definition that refuses or cancels jobs at its limit runs each on one worker, as jobs.yaml demands.
pub(super) fn run_on(dice: &mut Dice, limits: &LimitRules) -> RunOn {
    let drawn = dice.pick(&[RunOn::One, RunOn::All, RunOn::Count(2), RunOn::Count(3)]);
    let is_queued = limits.concurrency.as_ref().is_none_or(|it| it.on_full == OnFull::Queue);
    if is_queued { drawn } else { RunOn::One }
}

/// Hooks for later names only, so that there are no loops.
pub(super) fn hooks(dice: &mut Dice, later: Range<usize>) -> Hooks {
    let mut named = |permille| {
        let named = dice.permille(permille) && !later.is_empty();
        let target = named.then(|| format!("d{}", later.start + dice.below(later.len() as u64) as usize));
        target.into_iter().map(Into::into).collect()
    };
    Hooks { on_start: named(200), on_success: named(150), on_failure: named(300), on_end: named(200) }
}

pub(super) fn wait_limits(dice: &mut Dice) -> WaitLimits {
    let mut limit = |limits: &[Option<u64>]| dice.pick(limits).map(Duration::from_secs);
    WaitLimits {
        queue: limit(&[None, Some(2), Some(20), Some(60), Some(300)]),
        quarantine: limit(&[None, Some(30), Some(200)]),
        silent_worker: limit(&[None, Some(90), Some(250)]),
    }
}

pub(super) fn expect(dice: &mut Dice) -> Expect {
    let mut limit = |limits: &[Option<u64>]| dice.pick(limits).map(Duration::from_secs);
    Expect {
        success_within: limit(&[None, Some(30), Some(120)]),
        max_duration: limit(&[None, Some(5), Some(40)]),
    }
}

pub(super) fn delay(dice: &mut Dice) -> Option<Duration> {
    dice.permille(700).then(|| Duration::from_secs(dice.pick(&[0, 1, 30, 300])))
}

const MEMORY_FACTOR_MILLI: u32 = 2_000;
/// As jobs.yaml is read: from the order to stop until the container is certainly gone, beside its grace.
const STOP_MARGIN: Duration = Duration::from_secs(15);
/// As jobs.yaml is read: a fenced container is gone this long before a successor may start.
const FENCE_MARGIN: Duration = Duration::from_secs(5);
