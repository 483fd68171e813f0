//! The server's storage: the traits [`Store`] (write) and [`Archive`] (read), and the rows that pass through them.
//!
//! The store is the truth; the scheduler is a cache of the live jobs. One [`Group`] of changes is one transaction. A group's effects are
//! released only after its commit, so every answer to a client or worker is in the store.
//!
//! The only backend is `sqlite`. `conformance` is the suite that a backend has to pass.

mod access_rows;
mod batch_rows;
#[cfg(test)]
mod conformance;
mod definition_change_rows;
mod definition_cutoffs;
pub mod directory;
mod error;
mod failure_rows;
pub mod file_names;
pub(crate) mod file_system;
mod fold;
mod foreign_files;
mod job_rows;
mod late_reports;
mod loaded;
mod member_archive;
mod notification_rows;
mod record_change;
mod retention_rows;
mod run_on_rows;
mod schedule_rows;
mod slot_archive;
mod slot_variables;
pub mod sqlite;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use access_rows::{AccessArchive, AccessChange, AuditFilter, AuditLimits, AuditRow, TokenId, TokenRow};
pub use batch_rows::{BatchCounts, BatchFailures, BatchFilter, BatchRow, BatchState};
pub use definition_change_rows::{
    ChangedNames, DefinitionArchive, DefinitionChange, DefinitionChangeRow, DefinitionHash, DefinitionHashes,
    DeployIntent, EntryHashes, LastLoad, LoadCause, LoadedSet,
};
pub use definition_cutoffs::{DefinitionCutoffs, DefinitionRemoval};
pub use error::{CommitError, LoadError, ReadError};
pub use failure_rows::{Acknowledgement, AcknowledgementChange, FailureStatus};
pub use job_rows::{
    AttemptRow, DEPENDENCIES_SHOWN, DependencyRecord, GivenParams, HookRecord, HourlyEnds, JOBS_MAX,
    JobFilter, JobRecord, JobRow, LAST_AMONG, PREDECESSORS_BYTES_MAX, PREDECESSORS_VARIABLE, Pipeline,
    PipelineJob,
};
pub use loaded::{JobOrigin, LoadItem, Loaded, live_jobs};
pub use member_archive::{
    MemberArchive, MemberData, RETRIES_FOLLOWED, RepeatableJob, UnsuccessfulMember, UnsuccessfulMembers,
};
pub use notification_rows::{
    NotificationArchive, NotificationChange, NotificationFilter, NotificationId, NotificationRow,
    NotificationState, NotifyRule, NotifyRules, UnsentGroup, WorkingReceiver,
};
use protocol::container::Overrides;
use protocol::{Epoch, JobId, Revision, Timestamp, Token, WorkerId};
pub use record_change::RecordChange;
pub use retention_rows::{OutputLimits, Removed, RetentionCutoffs};
pub use run_on_rows::{MemberOnWorker, RunOnRole};
use scheduler::fleet::row::WorkerRow;
use scheduler::ids::GroupNo;
use scheduler::input::KeyHolder;
use scheduler::job::State;
pub use scheduler::restore::{LiveAttempt, LiveJob, Unconfirmed};
use scheduler::schedule::backfill::LedgerReading;
pub use scheduler::schedules::LiveSchedules;
use scheduler::step::Change;

pub use schedule_rows::{FailedFires, FireFilter, FireRecord, JobSlot, ScheduleState, SlotEnd, SlotJob};
pub use slot_archive::{FIRES_SEARCHED, SlotArchive};
pub use slot_variables::{
    PARENT_SLOT_VARIABLE, hook_parent, instant_for_followers, is_about_slots, parent_slot_in, slot_in,
};

/// The write side. One thread owns it; nothing here waits for anything but the disk.
pub trait Store: Send {
    /// Removes the members of batches that were never finished, raises the epoch, then hands out the state of the last process: first
    /// the facts that all jobs need, then every live job in the order of ids, each definition before the first job of it. Jobs are
    /// streamed, so that a start with millions of them needs memory for none.
    ///
    /// After it returns, a commit under any earlier epoch is [`CommitError::EpochReplaced`].
    ///
    /// # Errors
    /// The store cannot be read; nothing was handed out that a caller may act on.
    fn load(&mut self, visit: &mut dyn FnMut(LoadItem<'_>)) -> Result<Loaded, LoadError>;

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
    /// Never anything that has not ended. At most `keep.rows_max` of each: call it again while there is more. A parent and its members
    /// are deleted together.
    ///
    /// # Errors
    /// As for a commit; nothing was deleted.
    fn remove(&mut self, epoch: Epoch, cutoffs: &RetentionCutoffs) -> Result<Removed, CommitError>;

    /// As [`Store::remove`], for ended jobs beyond the limits of their own definitions, those that ended longest ago first. Jobs that
    /// something refers to stay: they keep a unique key, are in a batch that has not ended, or a job that has not ended waited for them.
    ///
    /// # Errors
    /// As for a commit; nothing was deleted.
    fn remove_by_definition(
        &mut self,
        epoch: Epoch,
        removal: &DefinitionRemoval,
    ) -> Result<Removed, CommitError>;

    /// Changes rows that are no part of the scheduler's state, in one transaction, synced when this returns.
    ///
    /// # Errors
    /// As for a commit; nothing was changed.
    fn change_record(&mut self, epoch: Epoch, change: &RecordChange) -> Result<(), CommitError>;

    /// Called now and then, also while commits follow one another: gives back space that is not needed, and reserves what is.
    ///
    /// # Errors
    /// [`CommitError::Fatal`]: the disk failed. Every commit so far is safe.
    fn manage_space(&mut self) -> Result<(), CommitError> {
        Ok(())
    }

    /// Called when nothing is waiting to be committed: time for upkeep that would otherwise be in the way.
    ///
    /// # Errors
    /// [`CommitError::Fatal`]: the disk failed. Every commit so far is safe.
    fn idle(&mut self) -> Result<(), CommitError> {
        Ok(())
    }
}

/// The read side. Calls block on the disk: do not make them on async threads. It sees committed groups only, and nothing of a pending
/// batch.
pub trait Archive: MemberArchive + SlotArchive + Send + Sync {
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

    /// One batch, with how many members are in each state.
    ///
    /// # Errors
    /// The store cannot be read.
    fn batch(&self, first: JobId) -> Result<Option<BatchRow>, ReadError>;

    /// A page of batches, newest first.
    ///
    /// # Errors
    /// The store cannot be read.
    fn batches(&self, filter: &BatchFilter) -> Result<Vec<BatchRow>, ReadError>;

    /// The jobs that wait, or waited, for the end of a batch, at most `limit`. Those that are still being made are left out.
    ///
    /// # Errors
    /// The store cannot be read.
    fn batch_dependents(&self, first: JobId, limit: usize) -> Result<Vec<DependencyRecord>, ReadError>;

    /// The states of these batches; those that are not kept, or are still being made, are left out.
    ///
    /// # Errors
    /// The store cannot be read.
    fn batch_states(&self, ids: &[JobId]) -> Result<Vec<(JobId, BatchState)>, ReadError>;

    /// The members of a parent by number, at most `limit`, each with the worker that it was on last, or is pinned to. Those that retention
    /// has deleted are left out.
    ///
    /// # Errors
    /// The store cannot be read.
    fn members_on_workers(&self, parent: JobId, limit: usize) -> Result<Vec<MemberOnWorker>, ReadError>;

    /// The definitions and states of these jobs; those that are not kept are left out.
    ///
    /// # Errors
    /// The store cannot be read.
    fn states(&self, ids: &[JobId]) -> Result<Vec<(JobId, String, State)>, ReadError>;

    /// The attention that each of these jobs needs, in their order.
    ///
    /// # Errors
    /// The store cannot be read.
    fn failures(&self, ids: &[JobId]) -> Result<Vec<FailureStatus>, ReadError>;

    /// The instants for jobs that follow these, as [`instant_for_followers`] has them; jobs without one are left out.
    ///
    /// # Errors
    /// The store cannot be read.
    fn instants_for_followers(&self, ids: &[JobId]) -> Result<Vec<(JobId, String)>, ReadError>;

    /// The jobs that are connected with this one by dependencies, those next to it first, at most `limit`. Empty if there is no such job.
    ///
    /// # Errors
    /// The store cannot be read.
    fn pipeline(&self, job: JobId, limit: usize) -> Result<Pipeline, ReadError>;

    /// The latest retry of those jobs that were retried, with its state.
    ///
    /// # Errors
    /// The store cannot be read.
    fn retries(&self, ids: &[JobId]) -> Result<BTreeMap<JobId, (JobId, State)>, ReadError>;

    /// The jobs behind an idempotency key, and the last commit that this read has seen.
    ///
    /// # Errors
    /// The store cannot be read.
    fn key(&self, key: &str) -> Result<(Option<KeyHolder>, GroupNo), ReadError>;

    /// The idempotency keys that begin with this text.
    ///
    /// # Errors
    /// The store cannot be read.
    fn keys_with(&self, prefix: &str) -> Result<Vec<String>, ReadError>;

    /// The overrides of those jobs that have any, in the order of `ids`.
    ///
    /// # Errors
    /// The store cannot be read.
    fn overrides(&self, ids: &[JobId]) -> Result<Vec<(JobId, Overrides)>, ReadError>;

    /// The parameters of jobs for a list, in the order of `ids`. A job that is not kept has none.
    ///
    /// # Errors
    /// The store cannot be read.
    fn given_params(&self, ids: &[JobId]) -> Result<Vec<GivenParams>, ReadError>;

    /// Those of these attempts that were handed to this worker, in the order of `tokens`, with the revisions of their definitions.
    ///
    /// # Errors
    /// The store cannot be read.
    fn attempts_of(&self, worker: WorkerId, tokens: &[Token]) -> Result<Vec<(Token, Revision)>, ReadError>;

    /// Those of these attempts that were never given here, in the order of `tokens`: their job is here without them, or has a number
    /// that was never given. A job that was deleted with its attempts had them.
    ///
    /// # Errors
    /// The store cannot be read.
    fn unknown_attempts(&self, tokens: &[Token]) -> Result<Vec<Token>, ReadError>;

    /// True if this store was made from a backup, so that workers may have attempts that it does not know.
    ///
    /// # Errors
    /// The store cannot be read.
    fn was_restored(&self) -> Result<bool, ReadError>;

    /// A definition by revision, as it was stored.
    ///
    /// # Errors
    /// The store cannot be read.
    fn definition(&self, revision: Revision) -> Result<Option<StoredDefinition>, ReadError>;

    /// The revisions of a definition that are kept, at most `limit`: the one that was seen first most recently comes first. A revision that
    /// comes back keeps its place.
    ///
    /// # Errors
    /// The store cannot be read.
    fn revisions(&self, name: &str, limit: usize) -> Result<Vec<StoredDefinition>, ReadError>;

    /// The names of all definitions that ever had a job, in order.
    ///
    /// # Errors
    /// The store cannot be read.
    fn definition_names(&self) -> Result<Vec<String>, ReadError>;

    /// The number of jobs in state `scheduled` of each definition that has some, by name.
    ///
    /// # Errors
    /// The store cannot be read.
    fn scheduled_jobs(&self) -> Result<BTreeMap<String, u64>, ReadError>;

    /// The number of unresolved failures of each definition that has some, by name. Reads a row for each of these definitions.
    ///
    /// # Errors
    /// The store cannot be read.
    fn unresolved(&self) -> Result<BTreeMap<String, u64>, ReadError>;

    /// Every worker ever joined and not forgotten, ordered by id.
    ///
    /// # Errors
    /// The store cannot be read.
    fn workers(&self) -> Result<Vec<WorkerRow>, ReadError>;

    /// The row of one worker; none if it never joined, or was forgotten.
    ///
    /// # Errors
    /// The store cannot be read.
    fn worker(&self, id: WorkerId) -> Result<Option<WorkerRow>, ReadError>;

    /// The worker that is called so, also if it was forgotten. If there were several, one that was not forgotten, and of those the one
    /// that joined last.
    ///
    /// # Errors
    /// The store cannot be read.
    fn worker_named(&self, name: &str) -> Result<Option<WorkerId>, ReadError>;

    /// The first of these jobs whose output is kept: it has not ended, or its definition has no limit, or it ended at or after that.
    ///
    /// # Errors
    /// The store cannot be read.
    fn first_with_output(&self, ids: &[JobId], limits: &OutputLimits) -> Result<Option<JobId>, ReadError>;

    /// True if a job of this number existed here and has been deleted. Skipped numbers, and those of a batch that was never finished, had no
    /// job.
    ///
    /// # Errors
    /// The store cannot be read.
    fn was_removed(&self, id: JobId) -> Result<bool, ReadError>;

    /// The job of a definition that ended last. Once retention has deleted that one, the last among the newest [`LAST_AMONG`] that have ended.
    /// Members of a parent do not count beside it.
    ///
    /// # Errors
    /// The store cannot be read.
    fn last_ended(&self, definition: &str) -> Result<Option<JobRow>, ReadError>;

    /// How many jobs ended in each hour since this instant; hours without an end are left out. Reads every one of these jobs.
    ///
    /// # Errors
    /// The store cannot be read.
    fn ends_by_hour(&self, since: Timestamp) -> Result<Vec<HourlyEnds>, ReadError>;

    /// Every schedule seen and not forgotten, ordered by definition and id, and what is paused since when.
    ///
    /// # Errors
    /// The store cannot be read.
    fn schedules(&self) -> Result<ScheduleState, ReadError>;

    /// Rows of the fire ledger of a definition, the newest first, with ids below `before`.
    ///
    /// # Errors
    /// The store cannot be read.
    fn fires(
        &self,
        definition: &str,
        filter: &FireFilter,
        limit: usize,
    ) -> Result<Vec<FireRecord>, ReadError>;

    /// The ledger's facts about the slots in `[from, to]` of a schedule, at most `limit` of those that became jobs, and the last commit
    /// that this read has seen.
    ///
    /// # Errors
    /// The store cannot be read.
    fn ledger(
        &self,
        definition: &str,
        schedule: &str,
        range: (Timestamp, Timestamp),
        limit: usize,
    ) -> Result<(LedgerReading, GroupNo), ReadError>;
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
    /// All definitions as hashes, if they were loaded in this group. They are for events, and are not stored.
    pub loaded: Option<Arc<DefinitionHashes>>,
    /// The changes, in the order in which they were decided.
    pub changes: Vec<Change>,
    /// The targets that are told about the ends in this group.
    pub notify: Arc<NotifyRules>,
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
