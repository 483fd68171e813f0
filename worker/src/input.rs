//! Inputs of a worker.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::StopCause;
use protocol::report::{Availability, Foreign, OutputLengths, Phase, ReleaseCause};
use protocol::{Order, RuntimeKind, Token, Uptime, Usage};

use crate::step::Launch;

/// An input.
#[derive(Clone, Debug)]
pub enum Input {
    /// Attempts and containers that directories and runtimes know from earlier processes. Sent once before
    /// the first connection; a runtime that did not answer reports its part later as events.
    Restored {
        /// Attempts of this worker.
        attempts: Vec<Restored>,
        /// Containers of this cluster on this engine that belong to another worker.
        foreign: Vec<Foreign>,
        /// The last [`Effect::Contact`](crate::Effect::Contact), if it is of this boot of the machine.
        contact: Option<Uptime>,
    },
    /// The socket is open.
    Connected,
    /// The socket was closed or could not be opened. Not sent after an
    /// [`Effect::Reconnect`](crate::Effect::Reconnect) closed it.
    Disconnected,
    /// The server is closing the connection because it cannot take a message. Disconnected follows.
    MessageRefused,
    /// An order of the server.
    Ordered(Order),
    /// An event of a runtime.
    Happened(RuntimeEvent),
    /// All output of an ended attempt is durable on the server, or the rest was given up.
    OutputDone(Token),
    /// The disk for unsent output is nearly full, or has room again.
    DiskIsLow(bool),
    /// The state directory cannot record new attempts for this reason, or can again (`None`). Sent when it changes.
    StorageFault(Option<String>),
    /// An operator asks this process to shut down.
    Shutdown(ShutdownMode),
    /// Time has passed; alarms that are due fire.
    Tick,
}

/// Way in which a worker process shuts down; later variants are stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShutdownMode {
    /// Release unstarted attempts, finish running ones, report, exit.
    Drain,
    /// Stop running attempts with grace, report, exit.
    Interrupt,
    /// Exit at once; containers go on, and the next start adopts them.
    Detach,
}

/// An attempt of an earlier process of this worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The launch that it was started with.
    pub launch: Launch,
    /// The recorded stop, if there is one.
    pub stopping: Option<Stopping>,
    /// Its state now.
    pub found: Found,
}

/// A recorded stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopping {
    /// The cause that was recorded first.
    pub cause: StopCause,
    /// Time of the record; an attempt that ended earlier ended by itself.
    pub at: Uptime,
}

/// State of an attempt of an earlier process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Its container runs; its runtime watches it and will report its end.
    Running {
        /// The runtime's name for it.
        container: String,
        /// Monotonic time of the start.
        at: Uptime,
    },
    /// It has ended.
    Ended {
        /// Its exit.
        exit: Exit,
        /// Length of its output.
        output: OutputLengths,
        /// Resources that it has used.
        usage: Usage,
        /// Monotonic time of the end.
        at: Uptime,
    },
    /// No container was created.
    Unstarted,
    /// Its runtime does not answer.
    Unknown,
}

/// An event of a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeEvent {
    /// An attempt is pulling or starting.
    Progressed(Token, Phase),
    /// The image is not on this machine. The runtime pulls it after [`Effect::Pull`](crate::Effect::Pull), and
    /// drops the attempt without an event if it is forgotten before.
    ImageMissing(Token),
    /// The runtime is ready to create the container, above all it has the image. It does so after
    /// [`Effect::Run`](crate::Effect::Run). Sent again before each further try.
    Prepared(Token),
    /// Its container has started.
    Started {
        /// The attempt.
        token: Token,
        /// The runtime's name for the container.
        container: String,
        /// Monotonic time of the start.
        at: Uptime,
    },
    /// Its container has ended or will never start.
    Ended {
        /// The attempt.
        token: Token,
        /// Its exit.
        exit: Exit,
        /// Length of its output.
        output: OutputLengths,
        /// Resources that it has used.
        usage: Usage,
        /// Monotonic time of the end.
        at: Uptime,
    },
    /// It runs although its deadline has passed long ago.
    Overdue(Token),
    /// It was not started, for a reason outside of the job.
    Refused {
        /// The attempt.
        token: Token,
        /// The cause of the release.
        cause: ReleaseCause,
        /// Explanation for people.
        why: String,
    },
    /// Attempts and containers from before this process that could not be seen at the start, or were found
    /// since. Sent before the runtime becomes available.
    Surveyed {
        /// Attempts of this worker.
        attempts: Vec<Restored>,
        /// Containers of this cluster on this engine that belong to another worker.
        foreign: Vec<Foreign>,
    },
    /// All containers of this cluster on this engine that belong to another worker, after a new search.
    Foreign(Vec<Foreign>),
    /// A runtime became available or unavailable. A runtime that did not answer at the start is unavailable
    /// until it has reported what it knows.
    Availability(RuntimeKind, Availability),
}

/// The end of an attempt as its runtime saw it. The worker adds the cause of a stop and derives the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The program ran and ended.
    Ran {
        /// Its exit code; 128 plus the signal if it was killed.
        code: i32,
        /// The kernel killed a process in it for lack of memory.
        oom: bool,
        /// Run time.
        run_time: Duration,
        /// The file that it left as its result.
        result: ResultFile,
    },
    /// It never started.
    NotStarted {
        /// The side at fault.
        fault: StartFailure,
        /// Exit code that Docker or the system reports for it.
        code: Option<i32>,
        /// Explanation for people, in one line.
        message: String,
    },
    /// The Docker daemon stopped while it ran.
    DaemonLost {
        /// Explanation for people, in one line.
        message: String,
        /// Run time, if it is known.
        run_time: Option<Duration>,
    },
    /// Its container is gone, and its end is unknown.
    Vanished,
}

/// The file in which a job leaves its result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResultFile {
    /// There is none.
    #[default]
    Absent,
    /// It holds this JSON.
    Json(String),
    /// It is too large or not JSON; the reason is to be read after "it".
    Unusable(String),
}

/// Side at fault for a failed start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartFailure {
    /// The image could not be pulled.
    Pull,
    /// Proven to be the definition's fault.
    Definition,
    /// Any other cause.
    Host,
    /// The worker stopped it before it started.
    Stopped,
}
