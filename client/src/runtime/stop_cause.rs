//! The cause of an attempt's stop, on disk and in memory.

use tokio::sync::watch;

use super::blocking::run_blocking;
use crate::attempt_dir::{AttemptDir, Stopping};

/// Records that the attempt is stopped. The cause of the first call stays, also if the disk had no space for it: later calls write that one.
pub(super) async fn record_first_stop(
    dir: &AttemptDir,
    stopping: &watch::Sender<Option<Stopping>>,
    requested: Stopping,
) {
    let (dir, first) = (dir.clone(), stopping.borrow().unwrap_or(requested));
    let recorded = run_blocking(move || dir.record_stopping(first)).await.unwrap_or(first);
    stopping.send_if_modified(|stopping| {
        let is_first = stopping.is_none();
        stopping.get_or_insert(recorded);
        is_first
    });
}

#[cfg(test)]
mod tests {
    use protocol::Timestamp;
    use protocol::order::StopCause;

    use super::*;
    use crate::attempt_dir::AttemptStore;
    use crate::boot::RecordedInstant;
    use crate::runtime::launch_of;

    #[tokio::test]
    async fn the_first_cause_stays_if_the_disk_refused_it() {
        let state = tempfile::tempdir().expect("a directory");
        let store = AttemptStore::open(state.path()).expect("a store");
        let dir = store.create(&launch_of(Default::default())).expect("made");
        let stopping = watch::Sender::new(None);
        let stop = |cause, at| Stopping {
            cause,
            at: RecordedInstant { utc: Timestamp(at), ..RecordedInstant::default() },
        };
        let [first, second] = [stop(StopCause::Timeout, 1), stop(StopCause::Cancel, 2)];

        // No file can be made in a directory that is elsewhere.
        let elsewhere = state.path().join("elsewhere");
        std::fs::rename(dir.path(), &elsewhere).expect("renamed");
        record_first_stop(&dir, &stopping, first).await;
        assert_eq!(*stopping.borrow(), Some(first));

        std::fs::rename(&elsewhere, dir.path()).expect("renamed back");
        record_first_stop(&dir, &stopping, second).await;
        assert_eq!(*stopping.borrow(), Some(first));
        assert_eq!(dir.stopping().expect("read"), Some(first));
    }
}
