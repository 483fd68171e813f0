//! A machine with a worker: the state directory and the engine outlive the worker's process, which has nothing else to remember by.
//!
//! As in the real body, each input is stepped and performed at once, and what there is to say is said after it.

mod life;
mod link;
mod perform;
mod process;
mod stop;
mod survey;
mod task;
mod upkeep;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use protocol::order::StopCause;
use protocol::report::OutputLengths;
use protocol::{ClusterId, Timestamp, Token, Uptime, WorkerId};
use worker::input::{Exit, Stopping};
use worker::step::Launch;

pub(crate) use process::{PlannedFault, Process, Stage};

use crate::agenda::Event;
use crate::clock::{Clock, Moment};
use crate::dice::Dice;
use crate::docker::{Container, Engine};

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) no: u16,
    pub(crate) clock: Clock,
    /// When its clock on the wall was set, and by how many milliseconds.
    settings: Vec<(Moment, i64)>,
    pub(crate) directory: Directory,
    pub(crate) engine: Engine,
    /// From then on the disk of the state directory is full, until it is not low any more.
    pub(crate) full_disk_from: Moment,
    /// Until then the disk of the state directory is nearly full.
    pub(crate) low_disk_until: Moment,
    /// Until then its connections break as soon as the worker is welcomed.
    pub(crate) flaps_until: Moment,
    /// The next Enqueue is lost.
    pub(crate) loses_order: bool,
    /// Attempts whose order to start was lost.
    pub(crate) lost_orders: BTreeSet<Token>,
    /// Counts processes.
    pub(crate) generation: u32,
    pub(crate) process: Option<Process>,
    /// Events that came while the process was frozen; absent if it is not.
    pub(crate) frozen: Option<VecDeque<Event>>,
    /// The fault that hits the process at a certain point.
    pub(crate) planned_fault: Option<PlannedFault>,
    pub(crate) slots: u32,
    pub(crate) backlog: u32,
    /// True if it is started with `--rejoin`.
    pub(crate) rejoins: bool,
    /// Nobody starts a worker here any more.
    pub(crate) is_gone: bool,
    pub(crate) dice: Dice,
}

/// The state directory.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    pub(crate) secret: [u8; 32],
    pub(crate) membership: Option<Membership>,
    pub(crate) starts: u64,
    /// When the server was heard last, while something depended on it.
    pub(crate) contact: Option<Uptime>,
    pub(crate) attempts: Vec<Kept>,
    /// True if it was copied from another machine, which the worker does not know.
    pub(crate) is_copy: bool,
}

/// The content of a machine's disk.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) machine: u16,
    pub(crate) directory: Directory,
    pub(crate) containers: Vec<Container>,
}

/// The identity that the server has given this worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) cluster: ClusterId,
    pub(crate) worker: WorkerId,
}

/// The directory of an attempt.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) launch: Launch,
    /// True if `docker run` was ever begun.
    pub(crate) spawned: bool,
    /// Why it is being stopped, and since when by the clock on the wall.
    pub(crate) stopping: Option<(StopCause, Timestamp)>,
    pub(crate) ending: Option<Ending>,
}

/// An end, as it is put on disk before anybody hears of it.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    pub(crate) exit: Exit,
    pub(crate) output: OutputLengths,
    pub(crate) at: Timestamp,
}

impl Directory {
    pub(crate) fn new(secret: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&secret.to_le_bytes());
        Self {
            secret: bytes,
            membership: None,
            starts: 0,
            contact: None,
            attempts: Vec::new(),
            is_copy: false,
        }
    }

    /// As another machine gets it, which was booted at another time.
    pub(crate) fn copy(&self) -> Self {
        Self { contact: None, is_copy: true, ..self.clone() }
    }

    pub(crate) fn attempt(&mut self, token: Token) -> Option<&mut Kept> {
        self.attempts.iter_mut().find(|kept| kept.launch.token == token)
    }

    pub(crate) fn remove(&mut self, token: Token) {
        self.attempts.retain(|kept| kept.launch.token != token);
    }
}

impl Machine {
    pub(crate) fn new(no: u16, clock: Clock, slots: u32, backlog: u32, mut dice: Dice) -> Self {
        Self {
            no,
            clock,
            settings: Vec::new(),
            directory: Directory::new(dice.any()),
            engine: Engine::default(),
            full_disk_from: Moment(0),
            low_disk_until: Moment(0),
            flaps_until: Moment(0),
            loses_order: false,
            lost_orders: BTreeSet::new(),
            generation: 0,
            process: None,
            frozen: None,
            planned_fault: None,
            slots,
            backlog,
            rejoins: false,
            is_gone: false,
            dice,
        }
    }

    pub(crate) fn set_clock(&mut self, now: Moment, millis: i64) {
        self.clock.step(millis);
        self.settings.push((now, millis));
    }

    /// The wall-clock time at that moment.
    fn wall(&self, then: Moment) -> Timestamp {
        let since: i64 = self.settings.iter().filter(|(at, _)| *at > then).map(|(_, millis)| millis).sum();
        Timestamp(self.clock.utc(then).0 - since)
    }

    /// For the worker, a stop that was kept.
    pub(crate) fn told(&self, now: Moment, (cause, at): (StopCause, Timestamp)) -> Stopping {
        let now = self.clock.now(now);
        Stopping { cause, at: (now.up - now.utc.since(at)).max(EARLIEST) }
    }

    /// For the worker, when a container ended; before a stop that was kept later.
    pub(crate) fn ended_at(&mut self, now: Moment, token: Token, at: Moment) -> Uptime {
        let (up, wall) = (self.clock.up(at), self.wall(at));
        let stopping = self.directory.attempt(token).and_then(|kept| kept.stopping);
        let later = stopping.filter(|(_, stop)| wall < *stop);
        later.map_or(up, |stop| up.min(self.told(now, stop).at - BEFORE))
    }

    /// The state directory is lost, and the next start is somebody else's; or only what it knew of attempts.
    pub(crate) fn wipe(&mut self, keeps_identity: bool) {
        if keeps_identity {
            self.directory.attempts.clear();
        } else {
            self.directory = Directory::new(self.dice.any());
        }
    }

    /// The process that this is for, if it is the present one.
    pub(crate) fn process(&mut self, generation: u32) -> Option<&mut Process> {
        self.process.as_mut().filter(|_| self.generation == generation)
    }
}

/// As the real one: something is before a stop, and told twice it is not the same.
const EARLIEST: Uptime = Uptime(10_000_000);
const BEFORE: Duration = Duration::from_millis(5);
