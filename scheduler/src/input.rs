//! Everything that can happen to the scheduler.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::container::Body;
use protocol::order::VersionRange;
use protocol::report::Availability;
use protocol::{
    ClusterId, Fence, Incarnation, JobId, Report, Revision, RuntimeKind, SessionId, Timestamp, Token, Uptime,
    WorkerId,
};

use crate::definition::Definition;

/// Something happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// jobs.yaml was read: these are the definitions from now on.
    Define(Vec<Arc<Definition>>),
    /// A definition that is no longer in jobs.yaml is about to be asked for: an ended job is to be tried again as it was.
    Learn(Arc<Definition>),
    /// Somebody wants jobs.
    Submit(Submit),
    /// Somebody wants a job not to run, or to stop.
    Cancel(CancelRequest),
    /// Somebody wants a job to go on that is held back, or waits for a worker that does not answer.
    Release(ReleaseRequest),
    /// A worker said Hello on a new session.
    Connected(Connected),
    /// A session's socket is gone.
    Disconnected(SessionId),
    /// A worker reported on its session.
    Reported(SessionId, Report),
    /// The archive has no such attempts, and they were not deleted from it: told before the inventory, or the part of it, that lists
    /// them.
    Strangers(SessionId, Vec<Token>),
    /// Frames were received on these sessions, the last one at this instant: noted outside of the inbox, told before a Tick.
    Heard(Vec<(SessionId, Uptime)>),
    /// These attempts were to be enqueued on this session, and could not be sent: it was gone.
    Unsent(SessionId, Vec<Token>),
    /// An operator changed what a worker may take.
    Operate(Ticket, WorkerId, Operation),
    /// Time has passed: what is due is done.
    Tick,
}

/// Where an answer goes: a number that the body can look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A commit of the store, counted within the cluster. See DESIGN.md section 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupNo(pub u64);

/// A request for jobs: all of them or none.
#[derive(Clone, Debug)]
pub struct Submit {
    /// Where the answer goes.
    pub ticket: Ticket,
    /// What is wanted, in order.
    pub jobs: Vec<NewJob>,
    /// Whether they form a batch (one request for many).
    pub batch: bool,
    /// Refuse if no connected worker could run them.
    pub require_worker: bool,
    /// The request's idempotency key.
    pub key: Option<Key>,
}

/// One job that is wanted.
#[derive(Clone, Debug, Default)]
pub struct NewJob {
    /// Of which definition.
    pub revision: Revision,
    /// Instead of the definition's priority.
    pub priority: Option<i8>,
    /// Instead of the definition's timeout; the inner `None` is "for ever".
    pub timeout: Option<Option<Duration>>,
    /// Not before this instant.
    pub run_at: Option<Timestamp>,
    /// The ended job that this one tries again.
    pub retry_of: Option<JobId>,
    /// What only bodies look at; passed through into the change.
    pub details: Option<Box<Details>>,
}

/// What a job has that no decision depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// What it adds to its definition.
    pub body: Body,
    /// For people and filters: names and values.
    pub labels: Vec<(String, String)>,
}

/// An idempotency key, and what the archive knew of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// As the client wrote it, with its scope in front.
    pub key: Arc<str>,
    /// The hash of the request that it stands for.
    pub digest: u128,
    /// What the archive knew: the first job and the digest of the request that had this key.
    pub found: Option<KeyHolder>,
    /// The last commit that this reading had seen.
    pub read_at: GroupNo,
}

/// The request that had a key first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHolder {
    /// Its (first) job.
    pub job: JobId,
    /// How many jobs it made; their ids are consecutive.
    pub count: u32,
    /// Its hash.
    pub digest: u128,
}

/// A wish to end a job.
#[derive(Clone, Debug)]
pub struct CancelRequest {
    /// Where the answer goes.
    pub ticket: Ticket,
    /// Which job.
    pub job: JobId,
    /// Who wants it: for the record.
    pub by: String,
}

/// A wish to let a job go on.
#[derive(Clone, Debug)]
pub struct ReleaseRequest {
    /// Where the answer goes.
    pub ticket: Ticket,
    /// Which job.
    pub job: JobId,
    /// Who wants it: for the record.
    pub by: String,
}

/// A worker said Hello.
#[derive(Clone, Debug)]
pub struct Connected {
    /// The new connection, numbered by the body within its process.
    pub session: SessionId,
    /// What people call it.
    pub name: Arc<str>,
    /// The SHA-256 of its secret.
    pub secret_hash: [u8; 32],
    /// The installation that it was joined to, if it was.
    pub cluster: Option<ClusterId>,
    /// Join although the secret is unknown, or the installation another.
    pub rejoin: bool,
    /// Which start of the worker this is.
    pub incarnation: Incarnation,
    /// Drawn when that process began.
    pub process: u64,
    /// The protocol versions that it speaks.
    pub versions: VersionRange,
    /// The Docker engine's own id.
    pub engine: Option<String>,
    /// The version of its program.
    pub version: String,
    /// How many containers may run at once.
    pub slots: u32,
    /// How many attempts may wait in front of the slots.
    pub backlog: u32,
    /// What jobs may require of it.
    pub labels: Vec<(String, String)>,
    /// What it can run now.
    pub runtimes: Vec<(RuntimeKind, Availability)>,
    /// Where it connects from, for people.
    pub address: String,
}

/// What an operator may do with a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Take nothing new.
    Cordon,
    /// Take work again; a drain that is not done yet is taken back.
    Uncordon,
    /// Take nothing new, finish what it has, then leave. What still runs after this long is stopped, if that is given.
    Drain(Option<Duration>),
    /// Change how many containers may run at once.
    Slots(u32),
    /// Lay labels over its own; a name without a value: take away what was laid over there.
    Labels(Vec<(String, Option<String>)>),
    /// Drop it from the list; it must not be connected.
    Forget,
    /// Stop what it runs and was never given here: all of it, or this attempt.
    StopUnmanaged(Option<(JobId, Fence)>),
}
