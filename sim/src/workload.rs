//! What is asked of the server: definitions with every policy, and how the containers of each behave.

use std::sync::Arc;
use std::time::Duration;

use protocol::container::{ContainerSpec, Resources};
use protocol::{Revision, RuntimeKind};
use scheduler::definition::{Backoff, Definition, LossPolicy, OnLost, RetryOn, RetryPolicy};

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
}

impl Workload {
    pub(crate) fn new(names: usize, dice: Dice, mut delays: Dice) -> Self {
        let delays = delays.permille(250).then_some(delays);
        let mut it = Self { revisions: Vec::new(), current: Vec::new(), dice, delays };
        for name in 0..names {
            let revision = it.draw(name);
            it.current.push(revision);
        }
        it
    }

    /// The definitions of jobs.yaml as it is now.
    pub(crate) fn current(&self) -> Vec<Arc<Definition>> {
        self.current.iter().map(|revision| self.definition(*revision).clone()).collect()
    }

    /// The present revision of one of the names.
    pub(crate) fn revision(&self, name: usize) -> Revision {
        self.current[name % self.current.len()]
    }

    pub(crate) fn definition(&self, revision: Revision) -> &Arc<Definition> {
        &self.revisions[revision.0 as usize - 1].0
    }

    /// How its containers behave. What is started without a definition (its directory was lost) behaves like the first one's.
    pub(crate) fn nature(&self, revision: Revision) -> &Nature {
        &self.revisions[(revision.0 as usize).max(1) - 1].1
    }

    /// Writes one entry of jobs.yaml anew.
    pub(crate) fn redefine(&mut self, name: usize) {
        let name = name % self.current.len();
        self.current[name] = self.draw(name);
    }

    fn draw(&mut self, name: usize) -> Revision {
        let dice = &mut self.dice;
        let revision = Revision(self.revisions.len() as u128 + 1);
        let nature = nature(dice);
        let mut definition = definition(dice, name, revision, &nature);
        definition.loss.delay = self.delays.as_mut().and_then(delay);
        self.revisions.push((Arc::new(definition), nature));
        revision
    }
}

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
        retry: RetryPolicy {
            max: dice.pick(&[0, 0, 1, 3]),
            exit_codes: if dice.permille(200) { vec![1] } else { Vec::new() },
            on: dice.pick(&[RetryOn::Any, RetryOn::Same, RetryOn::Other]),
            backoff: Backoff { initial, max: Duration::from_secs(30).max(initial), factor_milli: 2_000 },
            memory_factor_milli: Some(MEMORY_FACTOR_MILLI),
            ..RetryPolicy::default()
        },
        loss: LossPolicy { limit: dice.pick(&[1, 2, 3, 3]), after, on_lost, delay: None, ping },
        container: ContainerSpec {
            runtime: RuntimeKind::Docker,
            stop_grace,
            resources: Resources { memory_bytes: Some(MEMORY_BYTES), ..Resources::default() },
            ask_before_start: self_fence || on_lost == OnLost::Wait,
            self_fence: self_fence.then(|| after.saturating_sub(FENCE_MARGIN)),
            ..ContainerSpec::default()
        },
    }
}

fn delay(dice: &mut Dice) -> Option<Duration> {
    dice.permille(700).then(|| Duration::from_secs(dice.pick(&[0, 1, 30, 300])))
}

/// What an attempt may have that was given after so many that were killed for their memory: they double it.
pub(crate) fn memory_after(oom_kills: u32) -> Option<u64> {
    MEMORY_BYTES.checked_shl(oom_kills)
}

const MEMORY_BYTES: u64 = 64 << 20;
const MEMORY_FACTOR_MILLI: u32 = 2_000;
/// As jobs.yaml is read: from the order to stop until the container is certainly gone, beside its grace.
const STOP_MARGIN: Duration = Duration::from_secs(15);
/// As jobs.yaml is read: a fenced container is gone this long before a successor may start.
const FENCE_MARGIN: Duration = Duration::from_secs(5);
