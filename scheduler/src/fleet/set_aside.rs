//! Workers that are set aside for a waiting job: they get no further attempt until they have room for that one.

use protocol::{JobId, WorkerId};

use super::Fleet;

impl Fleet {
    /// Sets a worker aside for a waiting job.
    pub fn set_aside(&mut self, id: WorkerId, job: JobId) {
        if let Some(worker) = self.worker_mut(id) {
            worker.set_aside_for = Some(job);
            self.set_aside.insert(id, job);
            self.refresh(id);
        }
    }

    /// Opens a worker again that was set aside.
    pub fn end_set_aside(&mut self, id: WorkerId) {
        if self.set_aside.remove(&id).is_some()
            && let Some(worker) = self.worker_mut(id)
        {
            worker.set_aside_for = None;
            self.refresh(id);
        }
    }

    /// Workers that are set aside, by id, each with the job that it is set aside for.
    pub fn workers_set_aside(&self) -> impl ExactSizeIterator<Item = (WorkerId, JobId)> {
        self.set_aside.iter().map(|(id, job)| (*id, *job))
    }
}
