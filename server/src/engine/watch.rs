//! Wakes tasks that follow a job when a commit has changed its attempts: a new one, or the end of one. So followers of output do not poll.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::JobId;
use scheduler::step::Change;
use tokio::sync::watch;

/// The watched jobs. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct JobWatches(Arc<Mutex<HashMap<JobId, watch::Sender<()>>>>);

/// Watches one job. Begin to watch before the job is read, so that no change falls in between.
#[derive(Debug)]
pub struct JobWatch {
    watches: JobWatches,
    job: JobId,
    changes: watch::Receiver<()>,
}

impl JobWatches {
    /// Watches a job from now on.
    #[must_use]
    pub fn watch(&self, job: JobId) -> JobWatch {
        let changes = self.lock().entry(job).or_default().subscribe();
        JobWatch { watches: self.clone(), job, changes }
    }

    /// Wakes the watchers of these jobs, after the commit of their changes.
    pub fn notify(&self, jobs: &[JobId]) {
        let watches = self.lock();
        if watches.is_empty() {
            return;
        }
        for watch in jobs.iter().filter_map(|job| watches.get(job)) {
            // It cannot fail: a job has an entry only while it has a watch.
            let _ = watch.send(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, watch::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JobWatch {
    /// Waits until a commit has changed the job's attempts since the last call, or since the watch began.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change: the next call returns at once if there was one.
    pub async fn changed(&mut self) {
        // The sender stays as long as there is a watch.
        let _ = self.changes.changed().await;
    }
}

impl Drop for JobWatch {
    fn drop(&mut self) {
        let mut watches = self.watches.lock();
        // Under the lock: of two watches that are dropped at once the second one must see that the first is gone.
        self.changes = watch::channel(()).1;
        if watches.get(&self.job).is_some_and(|watch| watch.receiver_count() == 0) {
            watches.remove(&self.job);
        }
    }
}

/// The jobs whose attempts these changes begin or end; for a batch that ends, its first member.
pub(super) fn changed_jobs(changes: &[Change]) -> Vec<JobId> {
    let job = |change: &Change| match change {
        Change::Assigned(assigned) => Some(assigned.token.job),
        Change::AttemptClosed { job, .. } => Some(*job),
        Change::Ended(ended) => Some(ended.job),
        Change::BatchEnded { first, .. } => Some(*first),
        _ => None,
    };
    changes.iter().filter_map(job).collect()
}

#[cfg(test)]
mod tests {
    use tokio::time::{Duration, timeout};

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn watcher_wakes_for_its_own_job_and_leaves_nothing_behind() {
        let watches = JobWatches::default();
        let (mut one, two) = (watches.watch(JobId(1)), watches.watch(JobId(2)));
        watches.notify(&[JobId(3), JobId(1)]);
        timeout(DEADLINE, one.changed()).await.expect("job 1 has changed");
        assert!(!two.changes.has_changed().unwrap());
        drop((one, two));
        assert!(watches.lock().is_empty());
    }

    #[test]
    fn watches_that_are_dropped_at_once_leave_nothing_behind() {
        let watches = JobWatches::default();
        let start = std::sync::Barrier::new(2);
        let rounds = || {
            for round in 0..10_000 {
                let watch = watches.watch(JobId(round));
                start.wait();
                drop(watch);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(rounds);
            scope.spawn(rounds);
        });
        assert_eq!(watches.lock().len(), 0);
    }
}
