//! The work of a world: definitions with every policy, and how the containers of each behave.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use protocol::container::{ContainerSpec, Resources};
use protocol::{Revision, RuntimeKind};
use scheduler::definition::{
    Backoff, Definition, Expect, LossPolicy, OnLost, RetryOn, RetryPolicy, WaitLimits,
};
use scheduler::hooks::Hooks;
use scheduler::limits::rules::{Concurrency, KeySource, LimitRules, OnFull, RateLimit};
use scheduler::placement::rules::{
    Condition, LabelRule, PlacementRules, PlacementStrategy, Preference, RunOn, WorkerSelector,
};
use scheduler::schedule::catch_up::{CatchUp, CatchUpMode};
use scheduler::schedule::{Overlap, Rule, Schedule, Timetable, Zone};
use scheduler::schedules::PauseTarget;
use scheduler::unique::{Clear, OnDuplicate, UniqueRule};

use crate::dice::Dice;

/// How containers of a definition behave; nobody but the engine knows.
#[derive(Clone, Debug)]
pub(crate) struct Nature {
    /// How long they run if nobody stops them.
    pub(crate) runs: (Duration, Duration),
    /// How often in a thousand they fail.
    pub(crate) fails: u32,
    /// How often they are killed for their memory.
    pub(crate) ooms: u32,
    /// How often they ignore a request to stop.
    pub(crate) ignores_term: u32,
    /// How often they cannot be started, and that is the definition's fault.
    pub(crate) unstartable: u32,
    /// How often their image must be pulled.
    pub(crate) pulls: u32,
    /// How often such a pull fails.
    pub(crate) pull_fails: u32,
    /// How often they write something.
    pub(crate) writes: u32,
}

/// All definitions that there ever were.
#[derive(Debug)]
pub(crate) struct Workload {
    /// By revision, from 1.
    revisions: Vec<(Arc<Definition>, Nature)>,
    /// The revision of each name now.
    current: Vec<Revision>,
    dice: Dice,
    /// Draws how long to wait after what nobody expected, where the world is one in which definitions say so.
    delays: Option<Dice>,
    /// Draws the schedules of definitions; absent in worlds without schedules.
    timetables: Option<Dice>,
    /// Draws how long jobs may wait; absent in worlds in which they wait without limit.
    waits: Option<Dice>,
    /// Draws the hooks of definitions; absent in worlds without hooks.
    hooks: Option<Dice>,
    /// Draws how many workers run a job; absent in worlds in which one does.
    sets: Option<Dice>,
    /// Limits of each name; they stay the same with each version. Empty in worlds without limits.
    limits: Vec<LimitRules>,
    /// Schedules have left jobs.yaml, because the faults are over.
    is_unscheduled: bool,
}

impl Workload {
    pub(crate) fn new(
        names: usize,
        dice: Dice,
        mut delays: Dice,
        mut timetables: Dice,
        mut waits: Dice,
        mut limits: Dice,
        mut hooks: Dice,
        mut sets: Dice,
    ) -> Self {
        let has_limits = limits.permille(400);
        let limits = (0..if has_limits { names } else { 0 }).map(|_| limit_rules(&mut limits)).collect();
        let delays = delays.permille(250).then_some(delays);
        let timetables = timetables.permille(300).then_some(timetables);
        let waits = waits.permille(300).then_some(waits);
        let hooks = hooks.permille(300).then_some(hooks);
        let sets = sets.permille(300).then_some(sets);
        let (revisions, current) = (Vec::new(), Vec::new());
        let mut it = Self {
            revisions,
            current,
            dice,
            delays,
            timetables,
            waits,
            hooks,
            sets,
            limits,
            is_unscheduled: false,
        };
        for name in 0..names {
            let revision = it.draw(name, names);
            it.current.push(revision);
        }
        it
    }

    /// The definitions of jobs.yaml as it is now.
    pub(crate) fn current(&self) -> Vec<Arc<Definition>> {
        let unscheduled = |definition: &Arc<Definition>| {
            let definition = Definition::clone(definition);
            Arc::new(Definition { timetable: Timetable::default(), ..definition })
        };
        let definitions = self.current.iter().map(|revision| self.definition(*revision));
        if self.is_unscheduled {
            definitions.map(unscheduled).collect()
        } else {
            definitions.cloned().collect()
        }
    }

    /// Removes all schedules from jobs.yaml, so that the world becomes quiet.
    pub(crate) const fn remove_schedules(&mut self) {
        self.is_unscheduled = true;
    }

    /// A target of a pause; it may not exist.
    pub(crate) fn pause_target(&self, name: Option<usize>, schedule: Option<usize>) -> PauseTarget {
        let Some(name) = name else { return PauseTarget::Everything };
        let definition = self.definition(self.revision(name));
        let target = definition.name.as_str().into();
        match schedule.and_then(|index| definition.timetable.schedules.get(index)) {
            Some(schedule) => PauseTarget::Schedule(target, schedule.id.clone()),
            None => PauseTarget::Definition(target),
        }
    }

    /// One of the schedules of a name, with the name.
    pub(crate) fn schedule(&self, name: usize, index: usize) -> Option<(Arc<str>, Schedule)> {
        let definition = self.definition(self.revision(name));
        let schedule = definition.timetable.schedules.get(index)?;
        Some((definition.name.as_str().into(), schedule.clone()))
    }

    /// The present revision of one of the names.
    pub(crate) fn revision(&self, name: usize) -> Revision {
        self.current[name % self.current.len()]
    }

    pub(crate) fn definition(&self, revision: Revision) -> &Arc<Definition> {
        &self.revisions[revision.0 as usize - 1].0
    }

    /// All revisions of this name.
    pub(crate) fn of_name<'w>(&'w self, name: &'w str) -> impl Iterator<Item = &'w Definition> + Clone {
        self.revisions.iter().map(|(definition, _)| &**definition).filter(move |it| it.name == name)
    }

    /// How its containers behave. What is started without a definition (its directory was lost) behaves like the first one's.
    pub(crate) fn nature(&self, revision: Revision) -> &Nature {
        &self.revisions[(revision.0 as usize).max(1) - 1].1
    }

    /// Writes one entry of jobs.yaml anew.
    pub(crate) fn redefine(&mut self, name: usize) {
        let name = name % self.current.len();
        self.current[name] = self.draw(name, self.current.len());
    }

    fn draw(&mut self, name: usize, names: usize) -> Revision {
        let dice = &mut self.dice;
        let revision = Revision(self.revisions.len() as u128 + 1);
        let nature = nature(dice);
        let mut definition = definition(dice, name, revision, &nature);
        definition.loss.delay = self.delays.as_mut().and_then(delay);
        if let Some(dice) = &mut self.waits {
            definition.waits = wait_limits(dice);
            definition.expect = expect(dice);
        }
        if let Some(dice) = self.hooks.as_mut() {
            definition.hooks = hooks(dice, name + 1..names);
        }
        definition.limits = self.limits.get(name).cloned().unwrap_or_default();
        if let Some(dice) = &mut self.sets {
            definition.placement.run_on = run_on(dice, &definition.limits);
        }
        if let Some(dice) = &mut self.timetables {
            // A new version of a definition often has the schedules of the old one.
            let before = self.current.get(name).map(|revision| &self.revisions[revision.0 as usize - 1].0);
            definition.timetable = match before.filter(|_| dice.permille(400)) {
                Some(before) => before.timetable.clone(),
                None => timetable(dice, &definition.name),
            };
        }
        self.revisions.push((Arc::new(definition), nature));
        revision
    }
}

/// The limits of a definition. All members of the group have the same limit.
fn limit_rules(dice: &mut Dice) -> LimitRules {
    let key = |dice: &mut Dice| dice.permille(500).then(|| KeySource::Label(LABEL.into()));
    let group = dice.permille(300);
    let concurrency = dice.permille(600).then(|| Concurrency {
        limit: if group { 2 } else { dice.pick(&[1, 1, 2, 3]) },
        key: key(dice),
        group: group.then(|| "group".into()),
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

/// The label of jobs by which limits count.
pub(crate) const LABEL: &str = "tenant";

fn nature(dice: &mut Dice) -> Nature {
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

fn definition(dice: &mut Dice, name: usize, revision: Revision, nature: &Nature) -> Definition {
    let stop_grace = dice.seconds(1, 12);
    let timeout = match dice.below(4) {
        0 => None,
        1 => Some(nature.runs.1 / 2 + Duration::from_millis(100)),
        _ => Some(nature.runs.1 * 2 + Duration::from_secs(1)),
    };
    let on_lost = dice.pick(&[OnLost::Retry, OnLost::Retry, OnLost::Retry, OnLost::Fail, OnLost::Wait]);
    let after = Duration::from_secs(dice.pick(&[30, 60, 60, 120])).max(stop_grace + STOP_MARGIN);
    let self_fence = dice.permille(300);
    let ping = dice.pick(&[None, None, None, Some(Duration::from_secs(2))]);
    let initial = dice.millis(100, 10_000);
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
            backoff: Backoff::exponential(initial, Duration::from_secs(30).max(initial), 2_000),
            memory_factor_milli: Some(MEMORY_FACTOR_MILLI),
            ..RetryPolicy::default()
        },
        loss: LossPolicy { limit: dice.pick(&[1, 2, 3, 3]), after, on_lost, delay: None, ping },
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
            resources: Resources { memory_bytes: Some(MEMORY_BYTES), ..Resources::default() },
            ask_before_start: self_fence || on_lost == OnLost::Wait,
            self_fence: self_fence.then(|| after.saturating_sub(FENCE_MARGIN)),
            ..ContainerSpec::default()
        },
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
fn timetable(dice: &mut Dice, name: &str) -> Timetable {
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
fn run_on(dice: &mut Dice, limits: &LimitRules) -> RunOn {
    let drawn = dice.pick(&[RunOn::One, RunOn::All, RunOn::Count(2), RunOn::Count(3)]);
    let is_queued = limits.concurrency.as_ref().is_none_or(|it| it.on_full == OnFull::Queue);
    if is_queued { drawn } else { RunOn::One }
}

/// Hooks for later names only, so that there are no loops.
fn hooks(dice: &mut Dice, later: Range<usize>) -> Hooks {
    let mut named = |permille| {
        let named = dice.permille(permille) && !later.is_empty();
        let target = named.then(|| format!("d{}", later.start + dice.below(later.len() as u64) as usize));
        target.into_iter().map(Into::into).collect()
    };
    Hooks { on_start: named(200), on_success: named(150), on_failure: named(300), on_end: named(200) }
}

fn wait_limits(dice: &mut Dice) -> WaitLimits {
    let mut limit = |limits: &[Option<u64>]| dice.pick(limits).map(Duration::from_secs);
    WaitLimits {
        queue: limit(&[None, Some(2), Some(20), Some(60), Some(300)]),
        quarantine: limit(&[None, Some(30), Some(200)]),
        silent_worker: limit(&[None, Some(90), Some(250)]),
    }
}

fn expect(dice: &mut Dice) -> Expect {
    let mut limit = |limits: &[Option<u64>]| dice.pick(limits).map(Duration::from_secs);
    Expect {
        success_within: limit(&[None, Some(30), Some(120)]),
        max_duration: limit(&[None, Some(5), Some(40)]),
    }
}

fn delay(dice: &mut Dice) -> Option<Duration> {
    dice.permille(700).then(|| Duration::from_secs(dice.pick(&[0, 1, 30, 300])))
}

/// The memory limit of an attempt after so many attempts that were killed for their memory. Each of them doubles it.
pub(crate) fn memory_after(oom_kills: u32) -> Option<u64> {
    MEMORY_BYTES.checked_shl(oom_kills)
}

const MEMORY_BYTES: u64 = 64 << 20;
const MEMORY_FACTOR_MILLI: u32 = 2_000;
/// As jobs.yaml is read: from the order to stop until the container is certainly gone, beside its grace.
const STOP_MARGIN: Duration = Duration::from_secs(15);
/// As jobs.yaml is read: a fenced container is gone this long before a successor may start.
const FENCE_MARGIN: Duration = Duration::from_secs(5);
