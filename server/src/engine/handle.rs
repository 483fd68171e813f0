//! The handle by which the rest of the server sends commands to the engine.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use protocol::{JobId, Revision, Timestamp, Uptime, WorkerId};
use scheduler::batches::{BatchOptions, BatchUpdate};
use scheduler::definition::Definition;
use scheduler::explain::Explanation;
use scheduler::ids::GroupNo;
use scheduler::input::{CancelScope, IdempotencyKey, JobUpdate, Operation};
use scheduler::job::State;
use scheduler::limits::{LimitSelection, LimitsReport};
use scheduler::new_jobs::NewJobs;
use scheduler::origin::Origin;
use scheduler::pauses::PauseTarget;
use scheduler::schedule::ScheduleId;
use scheduler::snapshot::Snapshot;
use scheduler::step::{Answer, PendingReason};
use tokio::sync::{mpsc, oneshot, watch};

use super::command::Command;
use super::health::Health;
use super::watch::{JobWatch, JobWatches};
use crate::catalogue::Definitions;
use crate::clock;

/// The time at which the commit under way began, readable from other tasks.
#[derive(Clone, Debug, Default)]
pub struct CommitClock(Arc<AtomicU64>);

impl CommitClock {
    /// Notes that a commit began.
    pub fn begin(&self, up: Uptime) {
        self.0.store(up.0.max(1), Ordering::Relaxed);
    }

    /// Notes that no commit is under way, and returns when the last one began.
    pub fn end(&self) -> Option<Uptime> {
        Some(self.0.swap(0, Ordering::Relaxed)).filter(|began| *began > 0).map(Uptime)
    }

    fn age(&self, now: Uptime) -> Duration {
        match self.0.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            began => now.since(Uptime(began)),
        }
    }
}

/// The engine's inbox is full, or the engine has ended: nothing was accepted, try again.
#[derive(Debug, thiserror::Error)]
#[error("the server is busy")]
pub struct Busy;

/// A cheap handle to the engine. Answers are sent only after their changes are durable.
#[derive(Clone, Debug)]
pub struct Handle {
    inbox: mpsc::Sender<Command>,
    snapshot: watch::Receiver<Arc<Snapshot>>,
    commit: CommitClock,
    health: Arc<Health>,
    watches: JobWatches,
}

/// Room in the engine's inbox for new definitions.
#[derive(Debug)]
pub struct DefinePermit<'h>(mpsc::Permit<'h, Command>);

impl DefinePermit<'_> {
    /// Replaces the definitions; unfinished jobs keep those that they were made with.
    pub fn define(self, definitions: Arc<Definitions>) {
        self.0.send(Command::ReplaceDefinitions { definitions });
    }
}

impl Handle {
    /// A handle on these channels.
    #[must_use]
    pub fn new(
        inbox: mpsc::Sender<Command>,
        snapshot: watch::Receiver<Arc<Snapshot>>,
        commit: CommitClock,
    ) -> Self {
        Self { inbox, snapshot, commit, health: Arc::default(), watches: JobWatches::default() }
    }

    /// Creates jobs.
    ///
    /// # Errors
    /// [`Busy`] if the inbox is full, or the engine ended before it could answer (then it is unknown whether they were accepted).
    pub async fn submit(
        &self,
        jobs: NewJobs,
        batch: Option<BatchOptions>,
        require_worker: bool,
        key: Option<IdempotencyKey>,
    ) -> Result<Answer, Busy> {
        self.ask(|reply| Command::Submit { jobs, batch, require_worker, key, reply }).await
    }

    /// Cancels a job: at once if it waits, else by stopping its container.
    ///
    /// # Errors
    /// [`Busy`], as in [`Self::submit`].
    pub async fn cancel(&self, job: JobId, by: String) -> Result<Answer, Busy> {
        self.ask(|reply| Command::Cancel { job, scope: CancelScope::Any, by, reply }).await
    }

    /// Cancels a batch: none of its members starts from the answer on, and those that have not ended are cancelled after it.
    ///
    /// # Errors
    /// [`Busy`], as in [`Self::submit`].
    pub async fn cancel_batch(&self, batch: JobId, by: Arc<str>) -> Result<Answer, Busy> {
        self.ask(|reply| Command::CancelBatch { batch, by, reply }).await
    }

    /// Changes the limits of a batch.
    ///
    /// # Errors
    /// [`Busy`], as in [`Self::submit`].
    pub async fn change_batch(&self, batch: JobId, update: BatchUpdate) -> Result<Answer, Busy> {
        self.ask(|reply| Command::ChangeBatch { batch, update, reply }).await
    }

    /// Cancels a job unless a worker has it.
    ///
    /// # Errors
    /// [`Busy`], as in [`Self::submit`].
    pub async fn cancel_waiting(&self, job: JobId, by: String) -> Result<Answer, Busy> {
        self.ask(|reply| Command::Cancel { job, scope: CancelScope::Waiting, by, reply }).await
    }

    /// Releases a job that is held back, or that waits for a worker that does not answer.
    ///
    /// # Errors
    /// [`Busy`], as in [`Self::submit`].
    pub async fn release(&self, job: JobId, by: String) -> Result<Answer, Busy> {
        self.ask(|reply| Command::Release { job, by, reply }).await
    }

    /// Changes a job that waits.
    ///
    /// # Errors
    /// [`Busy`], as in [`Self::submit`].
    pub async fn update(&self, job: JobId, update: JobUpdate, by: String) -> Result<Answer, Busy> {
        self.ask(|reply| Command::Update { job, update, by, reply }).await
    }

    /// Changes a worker.
    ///
    /// # Errors
    /// [`Busy`], as in [`Self::submit`].
    pub async fn operate(&self, worker: WorkerId, operation: Operation) -> Result<Answer, Busy> {
        self.ask(|reply| Command::Operate { worker, operation, reply }).await
    }

    /// Takes labels with these names away from workers that claim them. Waits for room in the inbox.
    ///
    /// # Errors
    /// [`Busy`] if the engine has ended.
    pub async fn reserve_labels(&self, names: Vec<String>) -> Result<(), Busy> {
        let (reply, answer) = oneshot::channel();
        self.inbox.send(Command::ReserveLabels { names, reply }).await.map_err(|_| Busy)?;
        answer.await.map(drop).map_err(|_| Busy)
    }

    /// Pauses jobs and schedules, until a time if one is given, or lets them go on.
    ///
    /// # Errors
    /// The engine has too much to do, or is gone.
    pub async fn pause(
        &self,
        target: PauseTarget,
        paused: bool,
        until: Option<Timestamp>,
        origin: Origin,
    ) -> Result<Answer, Busy> {
        self.ask(|reply| Command::Pause { target, paused, until, origin, reply }).await
    }

    /// Makes the jobs of past slots of a schedule, as one batch. The answer is `Done` if there are none.
    ///
    /// # Errors
    /// [`Busy`], as in [`Self::submit`].
    pub async fn backfill(
        &self,
        definition: Arc<str>,
        schedule: ScheduleId,
        slots: Vec<Timestamp>,
        interval: Duration,
        by: Option<Arc<str>>,
        read_at: GroupNo,
    ) -> Result<Answer, Busy> {
        self.ask(|reply| Command::Backfill { definition, schedule, slots, interval, by, read_at, reply })
            .await
    }

    /// Waits until a job has ended; `None` if it is not live (the archive may know it).
    ///
    /// # Errors
    /// [`Busy`], as in [`Self::submit`].
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait and changes nothing else.
    pub async fn ended(&self, job: JobId) -> Result<Option<State>, Busy> {
        let (reply, answer) = oneshot::channel();
        self.inbox.try_send(Command::AwaitEnd { job, reply }).map_err(|_| Busy)?;
        Ok(answer.await.ok())
    }

    /// Explains why a job waits, with the reason of each worker; `None` if the job is not live.
    ///
    /// # Errors
    /// [`Busy`], as in [`Self::submit`].
    pub async fn explain(&self, job: JobId) -> Result<Option<Explanation>, Busy> {
        let (reply, answer) = oneshot::channel();
        self.inbox.try_send(Command::Explain { job, reply }).map_err(|_| Busy)?;
        answer.await.map_err(|_| Busy)
    }

    /// Reads why jobs wait, of those that wait.
    ///
    /// # Errors
    /// [`Busy`], as in [`Self::submit`].
    pub async fn pending_reasons(&self, jobs: Vec<JobId>) -> Result<Vec<(JobId, PendingReason)>, Busy> {
        let (reply, answer) = oneshot::channel();
        self.inbox.try_send(Command::PendingReasons { jobs, reply }).map_err(|_| Busy)?;
        answer.await.map_err(|_| Busy)
    }

    /// Reads limits that jobs need, with their state.
    ///
    /// # Errors
    /// [`Busy`], as in [`Self::submit`].
    pub async fn limits(&self, selection: LimitSelection) -> Result<LimitsReport, Busy> {
        let (reply, answer) = oneshot::channel();
        self.inbox.try_send(Command::Limits { selection, reply }).map_err(|_| Busy)?;
        answer.await.map_err(|_| Busy)
    }

    /// Replaces the definitions; unfinished jobs keep those that they were made with.
    ///
    /// # Errors
    /// [`Busy`] if the inbox is full.
    pub fn define(&self, definitions: Arc<Definitions>) -> Result<(), Busy> {
        self.reserve_define().map(|permit| permit.define(definitions))
    }

    /// Reserves room for definitions, so that they can be replaced later without a refusal.
    ///
    /// # Errors
    /// [`Busy`] if the inbox is full.
    pub fn reserve_define(&self) -> Result<DefinePermit<'_>, Busy> {
        self.inbox.try_reserve().map(DefinePermit).map_err(|_| Busy)
    }

    /// Makes a stored definition known that may no longer be in jobs.yaml, so that a job of it can be submitted next.
    ///
    /// # Errors
    /// [`Busy`] if the inbox is full.
    pub fn learn(&self, definition: Arc<Definition>) -> Result<(), Busy> {
        self.inbox.try_send(Command::AddDefinition { definition }).map_err(|_| Busy)
    }

    /// Names the revisions whose secrets the server does not have, in place of those before. Their jobs wait.
    ///
    /// # Errors
    /// [`Busy`] if the inbox is full.
    pub fn missing_secrets(&self, revisions: BTreeSet<Revision>) -> Result<(), Busy> {
        self.inbox.try_send(Command::MissingSecrets(revisions)).map_err(|_| Busy)
    }

    /// Watches the attempts of a job from now on.
    #[must_use]
    pub fn watch(&self, job: JobId) -> JobWatch {
        self.watches.watch(job)
    }

    /// The watched jobs, for the part that wakes their watchers.
    #[must_use]
    pub const fn watches(&self) -> &JobWatches {
        &self.watches
    }

    /// Warnings for the operator.
    #[must_use]
    pub fn health(&self) -> Arc<Health> {
        self.health.clone()
    }

    /// The latest snapshot of the scheduler.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.borrow().clone()
    }

    /// True if one commit has taken so long that no more requests should be accepted: they could not be answered.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.commit.age(clock::now().up) >= STALLED_AFTER
    }

    async fn ask(&self, command: impl FnOnce(oneshot::Sender<Answer>) -> Command) -> Result<Answer, Busy> {
        let (reply, answer) = oneshot::channel();
        self.inbox.try_send(command(reply)).map_err(|_| Busy)?;
        answer.await.map_err(|_| Busy)
    }
}

/// A commit that takes longer means that the disk has stalled.
const STALLED_AFTER: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_inbox_rejects_commands_immediately() {
        let (inbox, mut commands) = mpsc::channel(1);
        let (_, snapshot) = watch::channel(Arc::default());
        let handle = Handle::new(inbox, snapshot, CommitClock::default());
        let first = tokio::spawn({
            let handle = handle.clone();
            async move { handle.ended(JobId(1)).await }
        });
        while handle.inbox.capacity() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(handle.cancel(JobId(2), String::new()).await.is_err());

        let Some(Command::AwaitEnd { reply, .. }) = commands.recv().await else {
            panic!("the first one is kept")
        };
        reply.send(State::Succeeded).unwrap();
        assert!(matches!(first.await.unwrap(), Ok(Some(State::Succeeded))));
    }
}
