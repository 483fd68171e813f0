//! Where everything is kept: the ports [`Store`] (write) and [`Archive`] (read), and the rows that pass through them.
//!
//! The scheduler is a cache of what has not ended; the store is the truth. One [`Group`] of changes is one transaction. A group's
//! effects are released only after its commit, so whatever a client or a worker was told is in here.
//!
//! The backends are `memory` (tests) and `sqlite` (the default); `conformance` is one suite that runs against each.

#[cfg(test)]
mod conformance;
pub mod directory;
mod fold;
mod foreign;
mod late;
pub mod memory;
pub mod sqlite;
#[cfg(test)]
mod walks;

use std::sync::Arc;
use std::time::Duration;

use protocol::container::Body;
use protocol::order::StopCause;
use protocol::report::{Outcome, OutputLengths, ReleaseCause};
use protocol::{AttemptNo, ClusterId, Epoch, Fence, JobId, Nonce, Revision, Timestamp, Token, WorkerId};
use scheduler::input::{GroupNo, KeyHolder};
use scheduler::job::State;
pub use scheduler::restore::{LiveAttempt, LiveJob, Unconfirmed};
use scheduler::step::{Change, Note, WorkerRow};

/// A list of jobs has at most this many: a page of 500, and one more that tells whether there is another page.
pub const JOBS_MAX: usize = 501;

/// Among how many ended jobs of a definition the last end is looked for.
pub const LAST_AMONG: usize = 64;

/// The write side. One thread owns it; nothing here waits for anything but the disk.
pub trait Store: Send {
    /// Removes what was made of batches that were never finished, raises the epoch, then hands every job that has not ended to
    /// `visit`, in the order of their ids.
    ///
    /// After it returns, a commit under any earlier epoch is [`CommitError::Fenced`].
    ///
    /// # Errors
    /// The store cannot be read; nothing was handed out that a caller may act on.
    fn load(&mut self, visit: &mut dyn FnMut(LiveJob)) -> Result<Loaded, LoadError>;

    /// Makes a group durable: all of it or nothing, synced when this returns.
    ///
    /// A group that was already committed (same epoch, same number) is left alone and succeeds, so a commit whose result is unknown
    /// may be tried again.
    ///
    /// # Errors
    /// See [`CommitError`]: each variant asks for something else of the caller.
    fn commit(&mut self, group: &Group) -> Result<(), CommitError>;

    /// Deletes some of what is no longer to be kept, in one transaction, synced when this returns: ended jobs, those that ended
    /// longest ago first (roughly, where many are to go), with their attempts, notes and labels; idempotency keys; late reports.
    /// Never anything that has not ended. At most `keep.rows_max` of each: call it again while there is more.
    ///
    /// # Errors
    /// As for a commit; nothing was deleted.
    fn remove(&mut self, epoch: Epoch, keep: &Keep) -> Result<Removed, CommitError>;

    /// Called when nothing is waiting to be committed: time for upkeep that would otherwise be in the way.
    ///
    /// # Errors
    /// [`CommitError::Fatal`]: the disk failed. Every commit so far is safe.
    fn idle(&mut self) -> Result<(), CommitError> {
        Ok(())
    }
}

/// The read side. Calls block on the disk: bodies call it off the async threads. Sees committed groups only, and of a batch whose
/// members are still being made it sees nothing.
pub trait Archive: Send + Sync {
    /// One job with all of its attempts and notes.
    ///
    /// # Errors
    /// The store cannot be read.
    fn job(&self, id: JobId) -> Result<Option<JobRecord>, ReadError>;

    /// A page of jobs, newest first.
    ///
    /// # Errors
    /// The store cannot be read.
    fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobRow>, ReadError>;

    /// What a key stands for, and the last commit that this answer has seen.
    ///
    /// # Errors
    /// The store cannot be read.
    fn key(&self, key: &str) -> Result<(Option<KeyHolder>, GroupNo), ReadError>;

    /// What jobs add to their definitions, for those that add something, in the order of `ids`.
    ///
    /// # Errors
    /// The store cannot be read.
    fn bodies(&self, ids: &[JobId]) -> Result<Vec<(JobId, Body)>, ReadError>;

    /// Those of these attempts that were handed to this worker, in the order of `tokens`.
    ///
    /// # Errors
    /// The store cannot be read.
    fn attempts_of(&self, worker: WorkerId, tokens: &[Token]) -> Result<Vec<Token>, ReadError>;

    /// Those of these attempts that were never given here, in the order of `tokens`: their job is here without them, or has a number
    /// that was never given. A job that was deleted with its attempts had them.
    ///
    /// # Errors
    /// The store cannot be read.
    fn strangers(&self, tokens: &[Token]) -> Result<Vec<Token>, ReadError>;

    /// A definition by revision, as it was stored.
    ///
    /// # Errors
    /// The store cannot be read.
    fn definition(&self, revision: Revision) -> Result<Option<StoredDefinition>, ReadError>;

    /// Every worker ever joined and not forgotten, ordered by id.
    ///
    /// # Errors
    /// The store cannot be read.
    fn workers(&self) -> Result<Vec<WorkerRow>, ReadError>;

    /// The worker that is called so, also if it was forgotten. If there were several, one that was not forgotten, and of those the one
    /// that joined last.
    ///
    /// # Errors
    /// The store cannot be read.
    fn worker_named(&self, name: &str) -> Result<Option<WorkerId>, ReadError>;

    /// The first of these jobs that is kept, ended or not.
    ///
    /// # Errors
    /// The store cannot be read.
    fn first_kept(&self, ids: &[JobId]) -> Result<Option<JobId>, ReadError>;

    /// Whether a job of this number was made here and has been deleted since. Numbers that were left out, or set aside for a batch
    /// that was never finished, had no job.
    ///
    /// # Errors
    /// The store cannot be read.
    fn was_removed(&self, id: JobId) -> Result<bool, ReadError>;

    /// The job of a definition that ended last, among the newest [`LAST_AMONG`] of those that have ended. To find one that was made
    /// before all of these and ended after them would take an index of all ends.
    ///
    /// # Errors
    /// The store cannot be read.
    fn last_ended(&self, definition: &str) -> Result<Option<JobRow>, ReadError>;
}

/// Changes that become durable together.
#[derive(Debug, Default)]
pub struct Group {
    /// The term of the server that decided them.
    pub epoch: Epoch,
    /// Their number within the cluster; each group's is one higher than the last one's.
    pub number: GroupNo,
    /// When they were decided.
    pub at: Timestamp,
    /// Definitions that jobs of this group, or later ones, refer to; those already stored are left alone.
    pub definitions: Vec<Arc<StoredDefinition>>,
    /// The changes, in the order in which they were decided.
    pub changes: Vec<Change>,
}

/// What is to be kept. Everything else may be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Jobs that ended at or after this instant.
    pub ended_since: Timestamp,
    /// Of those, at most this many.
    pub ended_max: u64,
    /// Idempotency keys that were given at or after this instant.
    pub keyed_since: Timestamp,
    /// Late reports that came at or after this instant; those of a deleted job go with it.
    pub late_since: Timestamp,
    /// At most this many rows of each kind are deleted at once, so that commits do not wait for long.
    pub rows_max: usize,
    /// The time that this goes by, to be written down for the next process; absent: not this time.
    pub by: Option<Timestamp>,
}

/// What was deleted in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Ended jobs.
    pub jobs: u64,
    /// Idempotency keys.
    pub keys: u64,
    /// Late reports, beside those of deleted jobs.
    pub late_reports: u64,
    /// Whether there is more to delete.
    pub more: bool,
}

/// A definition as it is stored: its resolved entry of jobs.yaml, which the configuration can read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDefinition {
    /// The hash of its content.
    pub revision: Revision,
    /// Its name.
    pub name: String,
    /// The resolved entry, as JSON.
    pub entry: String,
}

/// What a start needs beside the live jobs.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The new term.
    pub epoch: Epoch,
    /// The installation.
    pub cluster: ClusterId,
    /// The last committed group.
    pub group: GroupNo,
    /// The highest job number ever given.
    pub last_job: JobId,
    /// The highest fence ever given.
    pub last_fence: Fence,
    /// The highest worker number ever given.
    pub last_worker: WorkerId,
    /// Every worker ever joined and not forgotten.
    pub workers: Vec<WorkerRow>,
    /// Definitions of live jobs, and of those in `unconfirmed`.
    pub definitions: Vec<StoredDefinition>,
    /// Attempts of cancelled jobs whose containers nobody knows to be gone.
    pub unconfirmed: Vec<Unconfirmed>,
    /// The time that retention went by, as it was last written down.
    pub retention_by: Option<Timestamp>,
}

/// A job as lists show it: its row, with the latest attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRow {
    /// Its number.
    pub job: JobId,
    /// The name of its definition.
    pub definition: String,
    /// The definition's revision.
    pub revision: Revision,
    /// Where it stands.
    pub state: State,
    /// Higher goes first.
    pub priority: i8,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// From when it may (next) run.
    pub due_at: Timestamp,
    /// Instead of its definition's timeout.
    pub timeout: Option<Option<Duration>>,
    /// The first job of its batch.
    pub batch: Option<JobId>,
    /// The ended job that it tries again.
    pub retry_of: Option<JobId>,
    /// Names and values.
    pub labels: Vec<(String, String)>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// In one line: why it ended so.
    pub reason: String,
    /// For a cancelled job: whether its container is known to be gone.
    pub confirmed: bool,
    /// How many attempts it has had.
    pub attempts: AttemptNo,
    /// The latest one.
    pub attempt: Option<AttemptRow>,
}

/// One attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptRow {
    /// Which try of its job it is.
    pub number: AttemptNo,
    /// Which attempt.
    pub fence: Fence,
    /// Drawn with it.
    pub nonce: Nonce,
    /// Who had it.
    pub worker: WorkerId,
    /// What people called that worker.
    pub worker_name: Arc<str>,
    /// When it was handed over.
    pub assigned_at: Timestamp,
    /// When its container started.
    pub started_at: Option<Timestamp>,
    /// The runtime's own name for the container.
    pub container: String,
    /// Why it is being, or was, stopped.
    pub stopping: Option<StopCause>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// The program's exit code.
    pub exit_code: Option<i32>,
    /// For people, in one line.
    pub message: String,
    /// How much it wrote, as its final report says.
    pub output: OutputLengths,
    /// What it left as its result.
    pub result: Option<String>,
    /// For a released one: why.
    pub released: Option<ReleaseCause>,
}

/// A job with its whole story.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRecord {
    /// The job, with its latest attempt.
    pub row: JobRow,
    /// What it adds to its definition.
    pub body: Body,
    /// The attempts before the latest, oldest first.
    pub past: Vec<AttemptRow>,
    /// What else happened, oldest first.
    pub notes: Vec<(Timestamp, Note)>,
    /// How many late reports are not among the notes, because there were too many.
    pub late_left_out: u64,
    /// Whether the job that it tries again, if it does, has been deleted since.
    pub retry_of_removed: bool,
}

/// Which jobs to list.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// In one of these states; empty: any.
    pub states: Vec<State>,
    /// Of this definition.
    pub name: Option<String>,
    /// Whose latest attempt is or was on this worker.
    pub worker: Option<WorkerId>,
    /// With this label.
    pub label: Option<(String, String)>,
    /// Of the batch whose first job this is.
    pub batch: Option<JobId>,
    /// Accepted at or after this instant.
    pub since: Option<Timestamp>,
    /// Accepted before this instant.
    pub until: Option<Timestamp>,
    /// With a number below this one (the cursor).
    pub before: Option<JobId>,
    /// At most this many.
    pub limit: usize,
}

/// Why a store cannot be loaded. Each says where and what to do.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It belongs to something else, or to a newer Longshore, or is damaged.
    #[error("{0}")]
    Unusable(String),
    /// There is no store in the directory, but somebody else's things are.
    #[error("{0}")]
    Foreign(String),
    /// The disk or the database says no.
    #[error("cannot read the store")]
    Io(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What became of a group.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Another epoch writes: drop the brain.
    #[error("epoch {ours} is no longer the one that writes")]
    Fenced {
        /// The epoch of the group.
        ours: Epoch,
    },
    /// Not now: keep the group, stay silent, try again.
    #[error("the store is unavailable")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A constraint says that the brain was wrong: rebuild it from the store.
    #[error("the store refuses a change: {0}")]
    Refused(String),
    /// Reading or syncing failed in a way that must not be tried again in this process: abort.
    #[error("the disk failed")]
    Fatal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A read failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the store")]
pub struct ReadError(#[source] pub Box<dyn std::error::Error + Send + Sync>);
