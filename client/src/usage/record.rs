//! Writes totals into attempt directories from time to time, for a worker that is killed while a container ends. The disk may hang, so
//! this is a thread of its own, and what does not fit into its queue is left out.

use std::sync::mpsc::{SyncSender, sync_channel};

use protocol::Usage;

use crate::attempt_dir::AttemptDir;

/// The writing end of the thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct UsageRecorder {
    queue: SyncSender<(AttemptDir, Usage)>,
}

impl UsageRecorder {
    pub(super) fn start() -> Self {
        let (queue, records) = sync_channel::<(AttemptDir, Usage)>(QUEUE_MAX);
        let write = move || {
            for (dir, usage) in records {
                // The directory of an attempt that has just ended may be gone, and the next record tells more anyway.
                let _ = dir.record_usage(&usage);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("usage-record".into()).spawn(write) {
            tracing::warn!(%error, "no thread records the use of resources; figures are lost if this worker is killed");
        }
        Self { queue }
    }

    /// Records the totals of an attempt, if the disk keeps up.
    pub(super) fn record(&self, dir: &AttemptDir, usage: Usage) {
        let _ = self.queue.try_send((dir.clone(), usage));
    }
}

/// Records that wait for the disk.
const QUEUE_MAX: usize = 256;
