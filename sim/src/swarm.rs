//! The choices that a seed draws before its run begins: how large its world is, and which faults exist in it, how often.
//!
//! A world with all faults at once hides what a single one does; so each seed has some of them only ("swarm testing").

use std::time::Duration;

use crate::dice::Dice;
use crate::script::Kind;

/// The shape of one world.
#[derive(Clone, Debug)]
pub(crate) struct Swarm {
    pub(crate) machines: usize,
    pub(crate) slots_max: u64,
    pub(crate) backlog_max: u64,
    pub(crate) definitions: usize,
    /// How long faults and submissions go on.
    pub(crate) busy_for: Duration,
    /// By kind: how many acts of it there are.
    pub(crate) acts: [u64; Kind::COUNT],
    /// How far a machine's clock may drift, in millionths.
    pub(crate) drift_ppm: u64,
    /// The longest time that a message is under way while nothing is wrong.
    pub(crate) delay: Duration,
    /// The longest time that a commit takes while nothing is wrong.
    pub(crate) sync: Duration,
    /// How many answers in a thousand are lost on their way to a client.
    pub(crate) answers_lost: u32,
    /// True if `docker run` dies with the worker that started it.
    pub(crate) cli_dies: bool,
    /// How many members of a large batch are made in one group.
    pub(crate) slice: usize,
    /// By process of the server, in turn: the time after which a waiting job gains a step of priority, if it does.
    pub(crate) ageing: [Option<Duration>; 2],
    /// By process of the server, in turn: the wait for resources after which a worker is set aside, if one is.
    pub(crate) set_aside_after: [Option<Duration>; 2],
}

impl Swarm {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed, STREAM);
        Self {
            machines: 1 + dice.index(6),
            slots_max: dice.between(1, 4),
            backlog_max: dice.between(0, 3),
            definitions: 1 + dice.index(6),
            busy_for: dice.seconds(60, 900),
            acts: acts(&mut dice, &mut Dice::new(seed, LATER_STREAM)),
            drift_ppm: dice.pick(&[0, 100, 10_000, 50_000]),
            delay: Duration::from_millis(dice.pick(&[2, 20, 200, 3_000])),
            sync: Duration::from_millis(dice.pick(&[1, 5, 50, 2_000])),
            answers_lost: dice.pick(&[0, 0, 100, 500]),
            cli_dies: dice.permille(200),
            slice: dice.pick(&[1, 2, 5, 1_000]),
            ageing: ageing(&mut Dice::new(seed, AGEING_STREAM)),
            set_aside_after: set_aside_after(&mut Dice::new(seed, SET_ASIDE_STREAM)),
        }
    }
}

/// A quarter of the processes sets no worker aside; the others do so at once or after a while.
fn set_aside_after(dice: &mut Dice) -> [Option<Duration>; 2] {
    let mut wait = || dice.pick(&[None, Some(0), Some(5), Some(60)]).map(Duration::from_secs);
    [wait(), wait()]
}

/// Half of the seeds have no ageing, and some change it with each start of the server.
fn ageing(dice: &mut Dice) -> [Option<Duration>; 2] {
    let mut period =
        || dice.pick(&[None, None, Some(1), Some(5), Some(30), Some(200)]).map(Duration::from_secs);
    let (one, other) = (period(), period());
    match dice.index(4) {
        0 => [None, None],
        1 => [one, other],
        _ => [one, one],
    }
}

fn acts(dice: &mut Dice, later: &mut Dice) -> [u64; Kind::COUNT] {
    // Half of the seeds have few faults, and rarely two at once.
    let share = dice.pick(&[100, 300, 500]);
    let most = dice.pick(&[2, 5, 20]);
    let mut is_restored = false;
    Kind::ALL.map(|kind| match kind {
        Kind::Submit => dice.between(5, 120),
        Kind::Cancel | Kind::Release if dice.permille(500) => dice.between(1, 20),
        Kind::Operate if dice.permille(share) => dice.between(1, 10),
        Kind::Redefine if dice.permille(share) => dice.between(1, 5),
        Kind::Cancel | Kind::Release | Kind::Operate | Kind::Redefine => 0,
        // Earlier promises are void after a restore, so few seeds have one.
        Kind::Restore if dice.permille(50) => {
            is_restored = true;
            dice.between(1, 3)
        }
        Kind::Restore => 0,
        Kind::FillDisk if later.permille(share) => later.between(1, most),
        // Only a restored store has unknown attempts.
        Kind::StopUnmanaged if is_restored => later.below(6),
        Kind::Pause if later.permille(500) => later.between(1, 10),
        Kind::Backfill if later.permille(500) => later.between(1, 6),
        Kind::LoseOrder if later.permille(share) => later.between(1, most),
        Kind::Stray | Kind::Flap if later.permille(share) => later.between(1, most),
        Kind::FillDisk | Kind::StopUnmanaged | Kind::Pause | Kind::Backfill => 0,
        Kind::LoseOrder | Kind::Stray | Kind::Flap => 0,
        _ if dice.permille(share) => dice.between(1, most),
        _ => 0,
    })
}

const STREAM: u64 = 1;
/// Of what was added later: what a seed drew before stays as it was.
const LATER_STREAM: u64 = 16;
/// Likewise, of ageing.
const AGEING_STREAM: u64 = 17;
/// Likewise, of workers that are set aside.
const SET_ASIDE_STREAM: u64 = 41;
