//! What the rest of the server may ask of the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use protocol::{JobId, Uptime, WorkerId};
use scheduler::definition::Definition;
use scheduler::explain::Explanation;
use scheduler::input::{Key, NewJob, Operation};
use scheduler::job::State;
use scheduler::snapshot::Snapshot;
use scheduler::step::Answer;
use tokio::sync::{mpsc, oneshot, watch};

use crate::catalogue::Definitions;
use crate::clock;

/// Something that the engine is asked, with the place where the answer goes.
#[derive(Debug)]
pub enum Command {
    /// Make jobs, all of them or none.
    Submit {
        /// What is wanted.
        jobs: Vec<NewJob>,
        /// Whether they form a batch.
        batch: bool,
        /// Refuse if no connected worker could run them.
        require_worker: bool,
        /// The request's idempotency key, with a reading of the archive.
        key: Option<Key>,
        /// Where the answer goes.
        reply: oneshot::Sender<Answer>,
    },
    /// End a job.
    Cancel {
        /// Which.
        job: JobId,
        /// Who wants it.
        by: String,
        /// Where the answer goes.
        reply: oneshot::Sender<Answer>,
    },
    /// Let a job go on.
    Release {
        /// Which.
        job: JobId,
        /// Who wants it.
        by: String,
        /// Where the answer goes.
        reply: oneshot::Sender<Answer>,
    },
    /// Change what a worker may take.
    Operate {
        /// Which.
        worker: WorkerId,
        /// What is to be done.
        operation: Operation,
        /// Where the answer goes.
        reply: oneshot::Sender<Answer>,
    },
    /// jobs.yaml was read anew: these are the definitions from now on.
    Define {
        /// All of them.
        definitions: Arc<Definitions>,
    },
    /// A stored definition is about to be asked for.
    Learn {
        /// As it was read from the archive.
        definition: Arc<Definition>,
    },
    /// Tell why a job is where it is; nothing if it is not among those that live.
    Explain {
        /// Which.
        job: JobId,
        /// Where the answer goes.
        reply: oneshot::Sender<Option<Explanation>>,
    },
    /// Tell when a job has ended. If it is not among those that live, the answer never comes: the sender is dropped.
    AwaitEnd {
        /// Which.
        job: JobId,
        /// Where the answer goes.
        reply: oneshot::Sender<State>,
    },
}

/// Since when the commit under way has been so.
#[derive(Clone, Debug, Default)]
pub struct CommitClock(Arc<AtomicU64>);

impl CommitClock {
    /// A commit began.
    pub fn begin(&self, up: Uptime) {
        self.0.store(up.0.max(1), Ordering::Relaxed);
    }

    /// It ended.
    pub fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn age(&self, now: Uptime) -> Duration {
        match self.0.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            began => now.since(Uptime(began)),
        }
    }
}

/// The engine has too much to do, or is gone: nothing was accepted, try again.
#[derive(Debug, thiserror::Error)]
#[error("the server is busy")]
pub struct Busy;

/// A cheap handle to the engine. Every answer is given only after everything that it says is durable.
#[derive(Clone, Debug)]
pub struct Handle {
    inbox: mpsc::Sender<Command>,
    snapshot: watch::Receiver<Arc<Snapshot>>,
    commit: CommitClock,
}

impl Handle {
    /// Ties a handle to the ends that the engine reads and publishes at.
    #[must_use]
    pub const fn new(
        inbox: mpsc::Sender<Command>,
        snapshot: watch::Receiver<Arc<Snapshot>>,
        commit: CommitClock,
    ) -> Self {
        Self { inbox, snapshot, commit }
    }

    /// Makes jobs.
    ///
    /// # Errors
    /// [`Busy`] if the inbox is full, or the engine ended before it could answer (then it is unknown whether they were accepted).
    pub async fn submit(
        &self,
        jobs: Vec<NewJob>,
        batch: bool,
        require_worker: bool,
        key: Option<Key>,
    ) -> Result<Answer, Busy> {
        self.ask(|reply| Command::Submit { jobs, batch, require_worker, key, reply }).await
    }

    /// Ends a job: at once if it waits, else by stopping its container.
    ///
    /// # Errors
    /// [`Busy`], as in [`Self::submit`].
    pub async fn cancel(&self, job: JobId, by: String) -> Result<Answer, Busy> {
        self.ask(|reply| Command::Cancel { job, by, reply }).await
    }

    /// Lets a job go on that is held back, or waits for a worker that does not answer.
    ///
    /// # Errors
    /// [`Busy`], as in [`Self::submit`].
    pub async fn release(&self, job: JobId, by: String) -> Result<Answer, Busy> {
        self.ask(|reply| Command::Release { job, by, reply }).await
    }

    /// Changes what a worker may take.
    ///
    /// # Errors
    /// [`Busy`], as in [`Self::submit`].
    pub async fn operate(&self, worker: WorkerId, operation: Operation) -> Result<Answer, Busy> {
        self.ask(|reply| Command::Operate { worker, operation, reply }).await
    }

    /// Waits until a job has ended; `None` if it is not among those that live (the archive knows it, or nobody does).
    ///
    /// # Errors
    /// [`Busy`], as in [`Self::submit`].
    ///
    /// # Cancel safety
    /// Dropping the future forgets the wish and changes nothing else.
    pub async fn ended(&self, job: JobId) -> Result<Option<State>, Busy> {
        let (reply, answer) = oneshot::channel();
        self.inbox.try_send(Command::AwaitEnd { job, reply }).map_err(|_| Busy)?;
        Ok(answer.await.ok())
    }

    /// Why a job is where it is, and what each worker has against taking it; `None` if it is not among those that live.
    ///
    /// # Errors
    /// [`Busy`], as in [`Self::submit`].
    pub async fn explain(&self, job: JobId) -> Result<Option<Explanation>, Busy> {
        let (reply, answer) = oneshot::channel();
        self.inbox.try_send(Command::Explain { job, reply }).map_err(|_| Busy)?;
        answer.await.map_err(|_| Busy)
    }

    /// Replaces the definitions; unfinished jobs keep those that they were made with.
    ///
    /// # Errors
    /// [`Busy`] if the inbox is full.
    pub fn define(&self, definitions: Arc<Definitions>) -> Result<(), Busy> {
        self.inbox.try_send(Command::Define { definitions }).map_err(|_| Busy)
    }

    /// Makes a stored definition known that may no longer be in jobs.yaml, so that a job of it can be submitted next.
    ///
    /// # Errors
    /// [`Busy`] if the inbox is full.
    pub fn learn(&self, definition: Arc<Definition>) -> Result<(), Busy> {
        self.inbox.try_send(Command::Learn { definition }).map_err(|_| Busy)
    }

    /// The facts of the moment.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.borrow().clone()
    }

    /// Whether the disk has been busy with one commit for so long that nothing more should be accepted: it could not be answered.
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
    async fn who_asks_while_the_inbox_is_full_is_told_at_once() {
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
