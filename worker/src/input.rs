//! Everything that can happen to a worker.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::StopCause;
use protocol::report::{Availability, Foreign, OutputLengths, Phase, ReleaseCause};
use protocol::{Order, RuntimeKind, Token, Uptime};

use crate::step::Launch;

/// Something happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// What directories and runtimes still know from before this process: once, before the first connection. What a runtime that could
    /// not be asked then has to say comes as its events.
    Restored {
        /// Attempts of this worker.
        attempts: Vec<Restored>,
        /// Containers of this cluster on this engine that belong to another worker.
        foreign: Vec<Foreign>,
        /// The last [`Effect::Contact`](crate::Effect::Contact), if it is of this boot of the machine.
        contact: Option<Uptime>,
    },
    /// The socket is open: Hello may be said.
    Connected,
    /// The socket is gone, or could not be opened. Not told after an [`Effect::Reconnect`](crate::Effect::Reconnect) closed it.
    Disconnected,
    /// The server told us something.
    Ordered(Order),
    /// A runtime told us something.
    Happened(RuntimeEvent),
    /// All output of an ended attempt is durable on the server, or the rest has been given up.
    OutputDone(Token),
    /// The disk on which output waits is nearly full, or has room again.
    DiskIsLow(bool),
    /// An operator wants this process to leave.
    Leave(Leave),
    /// Time has passed: what is due is done.
    Tick,
}

/// How a worker leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leave {
    /// Give back what is unstarted, finish what runs, report, leave.
    Drain,
    /// Stop what runs, with grace; report; leave.
    Interrupt,
    /// Leave at once; containers go on, the next start adopts them.
    Detach,
}

/// An attempt of an earlier process of this worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// What it was started with.
    pub launch: Launch,
    /// Why it is being stopped, if somebody had said so.
    pub stopping: Option<Stopping>,
    /// What is known of it.
    pub found: Found,
}

/// Somebody had said that an attempt is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopping {
    /// The cause that was kept first.
    pub cause: StopCause,
    /// Since when: what had ended by then ended by itself.
    pub at: Uptime,
}

/// What is known of an attempt of an earlier process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Its container runs; its runtime watches it again and will tell its end.
    Running {
        /// The runtime's own name for it.
        container: String,
        /// When it started.
        at: Uptime,
    },
    /// It has ended.
    Ended {
        /// How.
        exit: Exit,
        /// How much it wrote.
        output: OutputLengths,
        /// When.
        at: Uptime,
    },
    /// It never got as far as a container.
    Unstarted,
    /// Its runtime does not answer; nothing can be said.
    Unknown,
}

/// Something that a runtime tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeEvent {
    /// An attempt is pulling, or starting.
    Progressed(Token, Phase),
    /// All that its container needs is there, its image above all: it is made as soon as [`Effect::Run`](crate::Effect::Run) allows it.
    /// Told again before each further try.
    Prepared(Token),
    /// Its container has started.
    Started {
        /// Whose.
        token: Token,
        /// The runtime's own name for it.
        container: String,
        /// When.
        at: Uptime,
    },
    /// It is over: its container has ended, or will never start.
    Ended {
        /// Which.
        token: Token,
        /// How.
        exit: Exit,
        /// How much it wrote.
        output: OutputLengths,
        /// When.
        at: Uptime,
    },
    /// It runs, and nobody wants that any more: its time was up long ago.
    Overdue(Token),
    /// It was not started, and that is not the job's fault.
    Refused {
        /// Which.
        token: Token,
        /// Why.
        cause: ReleaseCause,
        /// For people.
        why: String,
    },
    /// More of what a runtime knows from before this process: what could not be seen at the start, told before the runtime is said to be
    /// available; or what it has found since.
    Surveyed {
        /// Attempts of this worker.
        attempts: Vec<Restored>,
        /// Containers of this cluster on this engine that belong to another worker.
        foreign: Vec<Foreign>,
    },
    /// All containers of this cluster on this engine that belong to another worker: somebody has looked again.
    Foreign(Vec<Foreign>),
    /// A runtime can be used, or cannot. While one that could not be asked at the start has not told what it knows, it cannot.
    Availability(RuntimeKind, Availability),
}

/// How an attempt ended, as its runtime knows it. The brain knows why we stopped it, if we did, and makes the outcome of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The program ran and ended.
    Ran {
        /// Its exit code; 128 plus the signal if it was killed.
        code: i32,
        /// Whether the kernel killed something in it for lack of memory.
        oom: bool,
        /// For how long.
        ran: Duration,
        /// What it left as its result: JSON.
        result: Option<String>,
    },
    /// It never started.
    NotStarted {
        /// Whose fault that is.
        fault: Fault,
        /// What Docker, or the system, would give as exit code.
        code: Option<i32>,
        /// For people, in one line.
        message: String,
    },
    /// The Docker daemon died under it.
    DaemonLost {
        /// For people, in one line.
        message: String,
        /// For how long it ran.
        ran: Option<Duration>,
    },
    /// Its container is gone, and nobody knows how it ended.
    Vanished,
}

/// Why an attempt never started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The image could not be had.
    Pull,
    /// Proven to be the definition's fault.
    Definition,
    /// Anything else.
    Host,
    /// We stopped it before it could start.
    Stopped,
}
