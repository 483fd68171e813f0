//! Acts upon the world from outside: requests, operators, faults. All of it is drawn before the run, as a list; so a run that fails
//! can be tried again with parts of the list left out.

mod draw;

use std::time::Duration;

use scheduler::job::AttemptTimeout;
use worker::input::ShutdownMode;

use crate::backup::BackupKind;
use crate::clock::Moment;
use crate::docker::Condition;
use crate::server::CrashPoint;

/// A list of acts, in the order of their moments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    pub(crate) acts: Vec<(Moment, Act)>,
    /// From then on nothing is done any more, and what is broken is mended.
    pub(crate) ends: Moment,
}

/// Something that is done to the world. Machines are numbers, jobs and the like are numbers to be folded into those that exist.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Submit(Order),
    Cancel {
        job: u64,
    },
    Release {
        job: u64,
    },
    Operate {
        machine: u16,
        what: What,
    },
    Redefine {
        name: usize,
    },
    /// The server crashes: at this point, or now.
    CrashServer {
        at: Option<CrashPoint>,
        back_after: Duration,
    },
    FreezeServer {
        lasts: Duration,
    },
    /// Its engine takes seconds to look at what comes in.
    SlowServer {
        lasts: Duration,
    },
    /// It is told to shut down, and is back after a while.
    StopServer {
        back_after: Duration,
    },
    /// Commits are not told to have succeeded for so long.
    StallDisk {
        lasts: Duration,
    },
    /// A clock on a wall is set: a machine's, or the server's.
    StepClock {
        machine: Option<u16>,
        millis: i64,
    },
    /// A worker's connection breaks; each end is told or not.
    Break {
        machine: u16,
        told: [bool; 2],
    },
    /// Its connections break as soon as its worker is welcomed, for so long.
    Flap {
        machine: u16,
        lasts: Duration,
    },
    /// Nothing gets through for so long: from one machine or all, towards the worker or the server or both.
    Cut {
        machine: Option<u16>,
        ways: [bool; 2],
        lasts: Duration,
    },
    /// A worker crashes: now, or after this number of further effects; with its whole machine, or alone.
    CrashWorker {
        machine: u16,
        effects: Option<u32>,
        power: bool,
        back_after: Duration,
    },
    /// It stands still: now, or in front of its next start.
    FreezeWorker {
        machine: u16,
        at_start: bool,
        lasts: Duration,
    },
    /// It is told to shut down; after each of these times once more, if it is still there.
    ShutDownWorker {
        machine: u16,
        mode: ShutdownMode,
        again_after: Vec<Duration>,
    },
    /// Its state directory takes the place of another machine's, until somebody finds that out.
    Copy {
        machine: u16,
        onto: u16,
        lasts: Duration,
    },
    /// Its state directory says that its worker has joined another cluster, until somebody puts that right.
    Stray {
        machine: u16,
        lasts: Duration,
    },
    /// The store is copied, and the copy takes its place after a while. The server is away for a time then.
    Restore {
        kind: BackupKind,
        back_after: Duration,
        away: Duration,
    },
    /// Its disk is kept as it is, and put back after a while.
    SetBack {
        machine: u16,
        back_after: Duration,
    },
    /// The state directory is gone with the process: it comes back as somebody else; or as itself, without what it knew of attempts.
    Wipe {
        machine: u16,
        keeps_identity: bool,
        back_after: Duration,
    },
    FailEngine {
        machine: u16,
        condition: Condition,
        keeps_containers: bool,
        lasts: Duration,
    },
    /// The disk of its state directory is nearly full.
    FillDisk {
        machine: u16,
        lasts: Duration,
    },
    /// A person stops what runs there and was never given.
    StopUnmanaged {
        machine: u16,
    },
    /// Nothing starts on this host.
    BreakHost {
        machine: u16,
        lasts: Duration,
    },
    /// A foreign container has the name of the next one.
    Conflict {
        machine: u16,
    },
    /// The next Enqueue that its worker receives is lost there, and the connection goes on.
    LoseOrder {
        machine: u16,
    },
    /// Somebody removes a container behind our back.
    Remove {
        machine: u16,
        container: usize,
    },
    /// Somebody pauses or resumes: all schedules, the group, the server, a definition, or one of its schedules.
    Pause {
        name: Option<usize>,
        schedule: Option<usize>,
        paused: bool,
        /// The pause ends by itself after this time.
        lasts: Option<Duration>,
    },
    /// Somebody wants the jobs of past slots.
    Backfill {
        name: usize,
        schedule: usize,
        /// How far back from now.
        since: Duration,
        interval: Duration,
    },
}

/// A command of an operator about a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// With a time, it ends by itself after that.
    Cordon(Option<Duration>),
    Uncordon,
    Drain(Option<Duration>),
    Slots(u32),
    /// Sets the label `zone`, or removes what was set.
    Zone(Option<&'static str>),
    Forget,
    StopUnmanaged,
}

/// A request for jobs.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) definition: usize,
    pub(crate) count: usize,
    pub(crate) priority: Option<i8>,
    pub(crate) timeout: Option<AttemptTimeout>,
    pub(crate) delay: Option<Duration>,
    pub(crate) require_worker: bool,
    pub(crate) key: Option<u32>,
    pub(crate) digest: u128,
}

impl Act {
    /// Of which kind it is.
    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::Submit(_) => Kind::Submit,
            Self::Cancel { .. } => Kind::Cancel,
            Self::Release { .. } => Kind::Release,
            Self::Operate { .. } => Kind::Operate,
            Self::Redefine { .. } => Kind::Redefine,
            Self::CrashServer { .. } => Kind::CrashServer,
            Self::FreezeServer { .. } => Kind::FreezeServer,
            Self::SlowServer { .. } => Kind::SlowServer,
            Self::StopServer { .. } => Kind::StopServer,
            Self::StallDisk { .. } => Kind::StallDisk,
            Self::StepClock { .. } => Kind::StepClock,
            Self::Break { .. } => Kind::Break,
            Self::Cut { .. } => Kind::Cut,
            Self::CrashWorker { .. } => Kind::CrashWorker,
            Self::FreezeWorker { .. } => Kind::FreezeWorker,
            Self::ShutDownWorker { .. } => Kind::ShutDownWorker,
            Self::Wipe { .. } => Kind::Wipe,
            Self::FailEngine { .. } => Kind::FailEngine,
            Self::BreakHost { .. } => Kind::BreakHost,
            Self::Conflict { .. } => Kind::Conflict,
            Self::Remove { .. } => Kind::Remove,
            Self::Copy { .. } => Kind::Copy,
            Self::SetBack { .. } => Kind::SetBack,
            Self::Restore { .. } => Kind::Restore,
            Self::FillDisk { .. } => Kind::FillDisk,
            Self::StopUnmanaged { .. } => Kind::StopUnmanaged,
            Self::Pause { .. } => Kind::Pause,
            Self::Backfill { .. } => Kind::Backfill,
            Self::LoseOrder { .. } => Kind::LoseOrder,
            Self::Stray { .. } => Kind::Stray,
            Self::Flap { .. } => Kind::Flap,
        }
    }
}

/// A kind of act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Submit,
    Cancel,
    Release,
    Operate,
    Redefine,
    CrashServer,
    FreezeServer,
    SlowServer,
    StopServer,
    StallDisk,
    StepClock,
    Break,
    Cut,
    CrashWorker,
    FreezeWorker,
    ShutDownWorker,
    Wipe,
    FailEngine,
    BreakHost,
    Conflict,
    Remove,
    Copy,
    SetBack,
    Restore,
    FillDisk,
    StopUnmanaged,
    Pause,
    Backfill,
    LoseOrder,
    Stray,
    Flap,
}

impl Kind {
    /// Every kind, in the order of their declaration.
    pub(crate) const ALL: [Self; 31] = [
        Self::Submit,
        Self::Cancel,
        Self::Release,
        Self::Operate,
        Self::Redefine,
        Self::CrashServer,
        Self::FreezeServer,
        Self::SlowServer,
        Self::StopServer,
        Self::StallDisk,
        Self::StepClock,
        Self::Break,
        Self::Cut,
        Self::CrashWorker,
        Self::FreezeWorker,
        Self::ShutDownWorker,
        Self::Wipe,
        Self::FailEngine,
        Self::BreakHost,
        Self::Conflict,
        Self::Remove,
        Self::Copy,
        Self::SetBack,
        Self::Restore,
        Self::FillDisk,
        Self::StopUnmanaged,
        Self::Pause,
        Self::Backfill,
        Self::LoseOrder,
        Self::Stray,
        Self::Flap,
    ];

    pub(crate) const COUNT: usize = Self::ALL.len();

    /// As it is counted in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Cancel => "cancel",
            Self::Release => "release",
            Self::Operate => "operate on a worker",
            Self::Redefine => "redefine",
            Self::CrashServer => "crash the server",
            Self::FreezeServer => "freeze the server",
            Self::SlowServer => "slow the server",
            Self::StopServer => "stop the server",
            Self::StallDisk => "stall the disk",
            Self::StepClock => "step a clock",
            Self::Break => "break a connection",
            Self::Cut => "cut the network",
            Self::CrashWorker => "crash a worker",
            Self::FreezeWorker => "freeze a worker",
            Self::ShutDownWorker => "shut a worker down",
            Self::Wipe => "wipe a worker",
            Self::FailEngine => "fail an engine",
            Self::BreakHost => "break a host",
            Self::Conflict => "take a container's name",
            Self::Remove => "remove a container",
            Self::Copy => "copy a worker",
            Self::SetBack => "set a machine back",
            Self::Restore => "restore the store",
            Self::FillDisk => "fill a worker's disk",
            Self::StopUnmanaged => "stop unmanaged",
            Self::Pause => "pause jobs and schedules",
            Self::Backfill => "backfill a schedule",
            Self::LoseOrder => "lose an order",
            Self::Stray => "stray to another cluster",
            Self::Flap => "break each connection",
        }
    }
}
