//! The list of acts is drawn: of each kind as many as the swarm has room for, each at its moment.

use std::time::Duration;

use scheduler::job::AttemptTimeout;
use worker::input::ShutdownMode;

use super::{Act, Kind, Order, Script, What};
use crate::backup::BackupKind;
use crate::clock::Moment;
use crate::dice::Dice;
use crate::docker::Condition;
use crate::server::CrashPoint;
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
        let mut later = Dice::new(seed, LATER_STREAM);
        for _ in 0..swarm.acts[Kind::Cut as usize] {
            let at = Moment(0) + later.millis(0, swarm.busy_for.as_millis() as u64);
            let machine = later.index(swarm.machines) as u16;
            stay_away(&mut later, machine, at, &mut acts);
        }
        let ends = Moment(0) + swarm.busy_for;
        // An accompanying act may fall behind the end. A crash there would undo the repairs, and nobody asks for them again.
        acts.retain(|(at, _)| *at < ends);
        acts.sort_by_key(|(at, _)| *at);
        Self { acts, ends }
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
        Kind::CrashServer => Act::CrashServer { at: crash_point(dice), back_after: outage(dice) },
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
        Kind::ShutDownWorker => {
            let mode = dice.pick(&[ShutdownMode::Drain, ShutdownMode::Interrupt, ShutdownMode::Detach]);
            let again_after = (0..dice.below(3)).map(|_| dice.millis(0, 20_000)).collect();
            Act::ShutDownWorker {
                machine,
                mode,
                again_after: if mode == ShutdownMode::Drain { again_after } else { Vec::new() },
            }
        }
        Kind::Copy => {
            Act::Copy { machine, onto: dice.index(swarm.machines) as u16, lasts: dice.seconds(1, 200) }
        }
        Kind::Restore => Act::Restore {
            kind: if dice.permille(400) { BackupKind::Raw } else { BackupKind::Restored },
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
        Kind::FillDisk => Act::FillDisk { machine, lasts: outage(dice) },
        Kind::StopUnmanaged => Act::StopUnmanaged { machine },
        Kind::BreakHost => Act::BreakHost { machine, lasts: outage(dice) },
        Kind::Conflict => Act::Conflict { machine },
        Kind::Pause => {
            let name = dice.permille(800).then(|| dice.index(swarm.definitions));
            let schedule = dice.permille(500).then(|| dice.index(2));
            let paused = dice.permille(500);
            let lasts = (paused && dice.permille(400)).then(|| outage(dice));
            Act::Pause { name, schedule, paused, lasts }
        }
        Kind::Backfill => Act::Backfill {
            name: dice.index(swarm.definitions),
            schedule: dice.index(2),
            since: dice.seconds(10, 900),
            interval: Duration::from_secs(dice.pick(&[0, 0, 1, 20])),
        },
        Kind::LoseOrder => Act::LoseOrder { machine },
        Kind::Stray => Act::Stray { machine, lasts: dice.seconds(1, 200) },
        Kind::Flap => Act::Flap { machine, lasts: dice.seconds(1, 400) },
        Kind::Remove => Act::Remove { machine, container: dice.any() as usize },
    };
    accompany(dice, &act, at, acts);
    acts.push((at, act));
}

/// Combinations that are rare by themselves and find much: a worker that starts again, or forgets what it had, while its engine is silent; a cancel of what
/// is out of reach or leaves; a server that starts with another time on its wall than it left with.
fn accompany(dice: &mut Dice, act: &Act, at: Moment, acts: &mut Vec<(Moment, Act)>) {
    let within = |dice: &mut Dice, time: Duration| dice.millis(0, time.as_millis() as u64);
    match *act {
        Act::FailEngine { machine, lasts, .. } if dice.permille(300) => {
            let back_after = within(dice, lasts / 2);
            let goes = if dice.permille(350) {
                Act::Wipe { machine, keeps_identity: true, back_after }
            } else {
                Act::CrashWorker { machine, effects: None, power: false, back_after }
            };
            acts.push((at + within(dice, lasts / 2), goes));
        }
        Act::CrashWorker { back_after, .. } if dice.permille(150) => {
            acts.push((at + within(dice, back_after), Act::Cancel { job: dice.any() }));
        }
        Act::ShutDownWorker { .. } if dice.permille(300) => {
            acts.push((at + dice.millis(0, 15_000), Act::Cancel { job: dice.any() }));
        }
        Act::Operate { what: What::Drain(Some(timeout)), .. } if dice.permille(700) => {
            acts.push((at + timeout + dice.millis(0, 3_000), Act::Cancel { job: dice.any() }));
        }
        Act::StepClock { machine: None, .. } if dice.permille(400) => {
            let crash = Act::CrashServer { at: None, back_after: dice.millis(0, 3_000) };
            acts.push((at + dice.millis(0, 10_000), crash));
        }
        // Somebody wants the jobs that the store has lost.
        Act::Restore { back_after, away, .. } => {
            for _ in 0..3 {
                let (name, schedule, since) = (dice.index(6), dice.index(2), dice.seconds(10, 900));
                let backfill = Act::Backfill { name, schedule, since, interval: Duration::ZERO };
                acts.push((at + back_after + away + dice.millis(1_000, 30_000), backfill));
            }
        }
        // A pause until the end would hide whatever comes after it.
        Act::Pause { name, schedule, paused: true, lasts } if dice.permille(700) => {
            let next = match lasts {
                // Another end, or none, replaces the first.
                Some(_) if dice.permille(500) => {
                    let lasts = dice.permille(700).then(|| outage(dice));
                    Act::Pause { name, schedule, paused: true, lasts }
                }
                _ => Act::Pause { name, schedule, paused: false, lasts: None },
            };
            acts.push((at + outage(dice), next));
        }
        _ => {}
    }
}

/// Short or long, compared with leases and timeouts.
fn outage(dice: &mut Dice) -> Duration {
    let most = dice.pick(&[200, 3_000, 20_000, 45_000, 90_000, 200_000]);
    dice.millis(0, most)
}

fn step(dice: &mut Dice) -> i64 {
    let most = dice.pick(&[2_000, 3_600_000, 86_400_000]);
    dice.between(0, 2 * most) as i64 - most as i64
}

fn crash_point(dice: &mut Dice) -> Option<CrashPoint> {
    match dice.below(7) {
        0 => None,
        1 => Some(CrashPoint::AfterDecision),
        2 => Some(CrashPoint::DuringSync),
        3 => Some(CrashPoint::AfterSync),
        4 => Some(CrashPoint::AtStoreRefusal),
        _ => Some(CrashPoint::AfterEffects(dice.below(6) as u32)),
    }
}

fn what(dice: &mut Dice) -> What {
    match dice.below(8) {
        0 => What::Cordon(dice.permille(400).then(|| dice.seconds(1, 120))),
        1 | 2 => What::Uncordon,
        3 => What::Drain(dice.permille(400).then(|| dice.seconds(0, 120))),
        4 => What::Slots(dice.below(4) as u32),
        5 | 6 => What::Zone(dice.pick(&[None, Some("a"), Some("b")])),
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
    match dice.below(10) {
        0..3 => come_and_go(dice, machine, at + lasts, acts),
        3..7 => stay_away(dice, machine, at + lasts, acts),
        _ => {}
    }
}

/// A worker is out of reach until what it has is given up, and jobs that it may still run are cancelled before it is back.
fn stay_away(dice: &mut Dice, machine: u16, at: Moment, acts: &mut Vec<(Moment, Act)>) {
    let lasts = dice.seconds(65, 180);
    acts.push((at, Act::Cut { machine: Some(machine), ways: [true, true], lasts }));
    for _ in 0..3 {
        acts.push((at + dice.millis(60_000, lasts.as_millis() as u64), Act::Cancel { job: dice.any() }));
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
        timeout: dice
            .permille(50)
            .then(|| dice.pick(&[AttemptTimeout::Unlimited, AttemptTimeout::After(Duration::from_secs(2))])),
        delay: dice.permille(100).then(|| dice.seconds(0, 60)),
        require_worker: dice.permille(50),
        key: dice.permille(300).then(|| dice.below(40) as u32),
        digest: if dice.permille(50) { 2 } else { 1 },
    }
}

const STREAM: u64 = 2;
/// Later additions are drawn from a stream of its own: all else stays as it was.
const LATER_STREAM: u64 = 17;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripted_faults_precede_the_end_of_the_script() {
        for seed in 0..200 {
            let script = Script::draw(seed, &Swarm::draw(seed));
            assert!(script.acts.iter().all(|(at, _)| *at < script.ends), "seed {seed}");
        }
    }
}
