//! The list of acts is drawn: of each kind as many as the swarm has room for, each at its moment.

use std::time::Duration;

use worker::input::Leave;

use super::{Act, Kind, Order, Script, What};
use crate::clock::Moment;
use crate::dice::Dice;
use crate::docker::Condition;
use crate::server::Doom;
use crate::swarm::Swarm;

impl Script {
    pub(crate) fn draw(seed: u64, swarm: &Swarm) -> Self {
        let mut dice = Dice::new(seed, STREAM);
        let mut acts = Vec::new();
        for kind in Kind::ALL {
            for _ in 0..swarm.acts[kind as usize] {
                let at = Moment(0) + dice.millis(0, swarm.busy_for.as_millis() as u64);
                draw(&mut dice, swarm, kind, at, &mut acts);
            }
        }
        acts.sort_by_key(|(at, _)| *at);
        Self { acts, ends: Moment(0) + swarm.busy_for }
    }
}

fn draw(dice: &mut Dice, swarm: &Swarm, kind: Kind, at: Moment, acts: &mut Vec<(Moment, Act)>) {
    let machine = dice.index(swarm.machines) as u16;
    let act = match kind {
        Kind::Submit => Act::Submit(order(dice, swarm)),
        Kind::Cancel => Act::Cancel { job: dice.any() },
        Kind::Release => Act::Release { job: dice.any() },
        Kind::Operate => Act::Operate { machine, what: what(dice) },
        Kind::Redefine => Act::Redefine { name: dice.index(swarm.definitions) },
        Kind::CrashServer => Act::CrashServer { doom: doom(dice), back_after: outage(dice) },
        Kind::FreezeServer => Act::FreezeServer { lasts: outage(dice) },
        Kind::SlowServer => Act::SlowServer { lasts: outage(dice) },
        Kind::StopServer => Act::StopServer { back_after: outage(dice) },
        Kind::StallDisk => Act::StallDisk { lasts: outage(dice) },
        Kind::StepClock => {
            Act::StepClock { machine: dice.permille(600).then_some(machine), millis: step(dice) }
        }
        Kind::Break => Act::Break { machine, told: [dice.permille(500), dice.permille(500)] },
        Kind::Cut => return cut(dice, swarm, machine, at, acts),
        Kind::CrashWorker => Act::CrashWorker {
            machine,
            effects: dice.permille(700).then(|| dice.below(6) as u32),
            power: dice.permille(200),
            back_after: outage(dice),
        },
        Kind::FreezeWorker => {
            Act::FreezeWorker { machine, at_start: dice.permille(300), lasts: outage(dice) }
        }
        Kind::Leave => {
            let leave = dice.pick(&[Leave::Drain, Leave::Interrupt, Leave::Detach]);
            let patience = (0..dice.below(3)).map(|_| dice.millis(0, 20_000)).collect();
            Act::Leave { machine, leave, patience: if leave == Leave::Drain { patience } else { Vec::new() } }
        }
        Kind::Copy => {
            Act::Copy { machine, onto: dice.index(swarm.machines) as u16, lasts: dice.seconds(1, 200) }
        }
        Kind::Restore => Act::Restore {
            is_raw: dice.permille(400),
            back_after: dice.millis(0, 120_000),
            away: outage(dice),
        },
        Kind::SetBack => Act::SetBack { machine, back_after: dice.millis(0, 120_000) },
        Kind::Wipe => Act::Wipe { machine, keeps_identity: dice.permille(500), back_after: outage(dice) },
        Kind::FailEngine => Act::FailEngine {
            machine,
            condition: dice.pick(&[Condition::Down, Condition::Down, Condition::Hanging]),
            keeps_containers: dice.permille(500),
            lasts: outage(dice),
        },
        Kind::BreakHost => Act::BreakHost { machine, lasts: outage(dice) },
        Kind::Conflict => Act::Conflict { machine },
        Kind::Remove => Act::Remove { machine, container: dice.any() as usize },
    };
    acts.extend(companion(dice, &act).map(|(after, companion)| (at + after, companion)));
    acts.push((at, act));
}

/// What is rare by itself and tells much: a worker that starts again while its engine is silent, a cancel of what is out of reach.
fn companion(dice: &mut Dice, act: &Act) -> Option<(Duration, Act)> {
    let within = |dice: &mut Dice, time: Duration| dice.millis(0, time.as_millis() as u64);
    match *act {
        Act::FailEngine { machine, lasts, .. } if dice.permille(300) => {
            let crash = Act::CrashWorker {
                machine,
                effects: None,
                power: false,
                back_after: within(dice, lasts / 2),
            };
            Some((within(dice, lasts / 2), crash))
        }
        Act::CrashWorker { back_after, .. } if dice.permille(150) => {
            Some((within(dice, back_after), Act::Cancel { job: dice.any() }))
        }
        _ => None,
    }
}

/// Short or long, against what leases and patience are.
fn outage(dice: &mut Dice) -> Duration {
    let most = dice.pick(&[200, 3_000, 20_000, 45_000, 90_000, 200_000]);
    dice.millis(0, most)
}

fn step(dice: &mut Dice) -> i64 {
    let most = dice.pick(&[2_000, 3_600_000, 86_400_000]);
    dice.between(0, 2 * most) as i64 - most as i64
}

fn doom(dice: &mut Dice) -> Option<Doom> {
    match dice.below(7) {
        0 => None,
        1 => Some(Doom::Decided),
        2 => Some(Doom::Undone),
        3 => Some(Doom::Untold),
        4 => Some(Doom::Refused),
        _ => Some(Doom::Said(dice.below(6) as u32)),
    }
}

fn what(dice: &mut Dice) -> What {
    match dice.below(6) {
        0 => What::Cordon,
        1 | 2 => What::Uncordon,
        3 => What::Drain(dice.permille(400).then(|| dice.seconds(0, 120))),
        4 => What::Slots(dice.below(4) as u32),
        _ => What::Forget,
    }
}

/// One machine or all, one way or both; or one machine after the other, so that no two of them are cut off at the same time for long.
fn cut(dice: &mut Dice, swarm: &Swarm, machine: u16, at: Moment, acts: &mut Vec<(Moment, Act)>) {
    let ways = dice.pick(&[[true, true], [true, false], [false, true]]);
    let lasts = outage(dice);
    match dice.below(4) {
        0 => acts.push((at, Act::Cut { machine: None, ways, lasts })),
        1 => {
            for machine in 0..swarm.machines as u16 {
                let after = dice.millis(0, lasts.as_millis() as u64);
                let lasts = dice.millis(0, lasts.as_millis() as u64);
                acts.push((at + after, Act::Cut { machine: Some(machine), ways, lasts }));
            }
        }
        _ => acts.push((at, Act::Cut { machine: Some(machine), ways, lasts })),
    }
    if dice.permille(300) {
        acts.push((at + dice.millis(0, lasts.as_millis() as u64), Act::Cancel { job: dice.any() }));
    }
    if dice.permille(400) {
        come_and_go(dice, machine, at + lasts, acts);
    }
}

/// A worker is out of reach for longer than its lease and hardly longer than anybody waits for it, comes back, and is gone before it has told
/// what it has.
fn come_and_go(dice: &mut Dice, machine: u16, at: Moment, acts: &mut Vec<(Moment, Act)>) {
    let lasts = dice.millis(30_000, 60_000);
    acts.push((at, Act::Cut { machine: Some(machine), ways: [true, true], lasts }));
    let (effects, back_after) = (Some(dice.below(5) as u32), dice.millis(20_000, 100_000));
    acts.push((at + lasts, Act::CrashWorker { machine, effects, power: false, back_after }));
}

fn order(dice: &mut Dice, swarm: &Swarm) -> Order {
    Order {
        definition: dice.index(swarm.definitions),
        count: if dice.permille(100) { dice.between(2, 12) as usize } else { 1 },
        priority: dice.permille(200).then(|| dice.pick(&[-100, -1, 0, 1, 100])),
        timeout: dice.permille(50).then(|| dice.pick(&[None, Some(Duration::from_secs(2))])),
        delay: dice.permille(100).then(|| dice.seconds(0, 60)),
        require_worker: dice.permille(50),
        key: dice.permille(300).then(|| dice.below(40) as u32),
        digest: if dice.permille(50) { 2 } else { 1 },
    }
}

const STREAM: u64 = 2;
