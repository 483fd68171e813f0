//! Rows of jobs and attempts as they are read, and the filter for lists of them.

use std::sync::Arc;

use protocol::container::Overrides;
use protocol::order::StopCause;
use protocol::report::{Outcome, OutputLengths, ReleaseCause};
use protocol::{AttemptNo, Fence, JobId, Nonce, Revision, Timestamp, Usage, WorkerId};
use scheduler::dependencies::{PredecessorId, RequiredEnd};
use scheduler::hooks::HookRow;
use scheduler::job::{AttemptTimeout, State};
use scheduler::params::JobParam;
use scheduler::placement::narrowing::Narrowing;
use scheduler::step::Note;

use super::{FailureStatus, JobSlot, RunOnRole};
use crate::positions::Positions;

/// A job as lists show it: its row, with the latest attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRow {
    /// Its number.
    pub job: JobId,
    /// The name of its definition.
    pub definition: String,
    /// The definition's revision.
    pub revision: Revision,
    /// Its state.
    pub state: State,
    /// Higher goes first.
    pub priority: i8,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// From when it may (next) run.
    pub due_at: Timestamp,
    /// By when it starts or expires, while it waits for a limited time.
    pub expires_at: Option<Timestamp>,
    /// Instead of its definition's timeout.
    pub timeout: Option<AttemptTimeout>,
    /// The first job of its batch.
    pub batch: Option<JobId>,
    /// Its position in its batch, from 0: the one that it was told if it repeats a member of another batch.
    pub position: Option<u64>,
    /// The ended job that it tries again.
    pub retry_of: Option<JobId>,
    /// The name of the requester, if it is known.
    pub submitted_by: Option<String>,
    /// The slot that it was made for, if a schedule made it; of a retry, the slot that it carries on.
    pub slot: Option<JobSlot>,
    /// Its role under `run_on`: it runs alone, is a parent, or is a member.
    pub run_on_role: RunOnRole,
    /// The first job whose end it waits for, else the first such batch.
    pub waits_for: Option<PredecessorId>,
    /// Names and values.
    pub labels: Vec<(String, String)>,
    /// The workers that it asks for.
    pub narrowing: Option<Arc<Narrowing>>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// In one line: why it ended so.
    pub reason: String,
    /// For a cancelled job: whether its container is known to be gone.
    pub confirmed: bool,
    /// The attention that it needs, if it has failed.
    pub failure: FailureStatus,
    /// How many attempts it has had.
    pub attempts: AttemptNo,
    /// The latest one.
    pub attempt: Option<AttemptRow>,
}

/// One attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptRow {
    /// Counts the attempts of its job, from 1.
    pub number: AttemptNo,
    /// The attempt's fence: unique in the cluster.
    pub fence: Fence,
    /// Drawn with it.
    pub nonce: Nonce,
    /// The worker that it was assigned to.
    pub worker: WorkerId,
    /// The worker's name; empty if its row is gone.
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
    /// Resources that it has used, as its final report says.
    pub usage: Usage,
    /// The JSON that the job left in its result file.
    pub result: Option<String>,
    /// For a released one: why.
    pub released: Option<ReleaseCause>,
}

/// A job with its whole story.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRecord {
    /// The job, with its latest attempt.
    pub row: JobRow,
    /// Its own environment, arguments and input.
    pub overrides: Overrides,
    /// The parameters that it was given.
    pub params: Vec<JobParam>,
    /// The attempts before the latest, oldest first.
    pub past: Vec<AttemptRow>,
    /// Notes, the oldest first.
    pub notes: Vec<(Timestamp, Note)>,
    /// How many late reports are not among the notes, because there were too many.
    pub late_left_out: u64,
    /// True if it is a retry and retention has deleted the job that it retries.
    pub retry_of_removed: bool,
    /// Its latest retry, if it has ended, with the state of that.
    pub retried_as: Option<(JobId, State)>,
    /// The hook that made it.
    pub parent: Option<HookRow>,
    /// Its own hooks that were decided, in the order of their events.
    pub hooks: Vec<HookRecord>,
    /// The jobs that it comes after, at most [`DEPENDENCIES_SHOWN`].
    pub after: Vec<DependencyRecord>,
    /// The jobs that come after it, at most [`DEPENDENCIES_SHOWN`].
    pub dependents: Vec<DependencyRecord>,
}

/// The parameters of a job in a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GivenParams {
    /// The parameters that it was given.
    pub params: Vec<JobParam>,
    /// Its position among the members of a batch, if it repeats a member: that of the member.
    pub index: Option<u64>,
}

/// Jobs before and after a job that are shown with it; [`super::Archive::pipeline`] has more.
pub const DEPENDENCIES_SHOWN: usize = 100;

/// The variable that tells a job how the jobs ended that it comes after.
pub const PREDECESSORS_VARIABLE: &str = "LONGSHORE_AFTER";

/// Bytes of that variable: as many as a variable of a submission may have. Results that do not fit are left out.
pub const PREDECESSORS_BYTES_MAX: usize = 32 << 10;

/// One end of a dependency, as the other end shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DependencyRecord {
    /// The job or the batch at this end. Only jobs wait.
    pub other: PredecessorId,
    /// The name of the job's definition, or of the batch; empty if it has none, or retention has deleted it.
    pub name: String,
    /// The end that is required.
    pub requires: RequiredEnd,
    /// Its state; the last one if retention has deleted it. See [`BatchState::as_job`](super::BatchState::as_job) for that of a batch.
    pub state: Option<State>,
}

/// Jobs that are connected by dependencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// The jobs, by number.
    pub jobs: Vec<PipelineJob>,
    /// No job is left out.
    pub is_whole: bool,
}

/// A job of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineJob {
    /// Its number.
    pub job: JobId,
    /// The name of its definition.
    pub definition: String,
    /// Its state.
    pub state: State,
    /// The ended job that it tries again.
    pub retry_of: Option<JobId>,
    /// The first job of its batch, if it has one.
    pub batch: Option<JobId>,
    /// The jobs and batches that it comes after.
    pub after: Vec<DependencyRecord>,
}

/// A decision about a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookRecord {
    /// The decision.
    pub row: HookRow,
    /// The state of the job that was made; absent also if retention has deleted it.
    pub state: Option<State>,
}

/// A list of jobs has at most this many: a page of 500, and one more that tells whether there is another page.
pub const JOBS_MAX: usize = 501;

/// If the last end of a definition has been deleted, this number of its ended jobs is searched for the next one.
pub const LAST_AMONG: usize = 64;

/// A filter for lists of jobs. All conditions must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFilter {
    /// In one of these states; empty: any.
    pub states: Vec<State>,
    /// Of this definition.
    pub name: Option<String>,
    /// Of one of these definitions; empty: any. Used where there are several, instead of `name`.
    pub names: Vec<String>,
    /// Of this revision of its definition.
    pub revision: Option<Revision>,
    /// With one of these outcomes of the latest attempt; empty: any.
    pub outcomes: Vec<Outcome>,
    /// With this exit code of the latest attempt.
    pub exit_code: Option<i32>,
    /// Failed, and nobody has dealt with it.
    pub unresolved: bool,
    /// Waits for an attempt after one that failed.
    pub backoff: bool,
    /// Ended at or after this time.
    pub ended_since: Option<Timestamp>,
    /// Ended before this time.
    pub ended_until: Option<Timestamp>,
    /// Ended with this text in the reason, in any case of ASCII letters.
    pub text: Option<String>,
    /// Whose latest attempt is or was on this worker.
    pub worker: Option<WorkerId>,
    /// With this label.
    pub label: Option<(String, String)>,
    /// Made by a schedule with this id, of any definition.
    pub schedule: Option<String>,
    /// Made by a request of the holder of this name.
    pub submitted_by: Option<String>,
    /// Of this parent.
    pub parent: Option<JobId>,
    /// Not a member of a parent, which stands for its members.
    pub without_members: bool,
    /// Of the batch whose first job this is.
    pub batch: Option<JobId>,
    /// With one of these positions in that batch; empty: any.
    pub positions: Vec<Positions>,
    /// Accepted at or after this instant.
    pub since: Option<Timestamp>,
    /// Accepted before this instant.
    pub until: Option<Timestamp>,
    /// With a number above this one.
    pub after: Option<JobId>,
    /// With a number below this one (the cursor).
    pub before: Option<JobId>,
    /// At most this many.
    pub limit: usize,
}

/// Ends within an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HourlyEnds {
    /// The hour: whole hours since 1970 in UTC.
    pub hour: i64,
    /// Jobs that succeeded.
    pub succeeded: u64,
    /// Jobs that failed, expired or were lost.
    pub failed: u64,
}
