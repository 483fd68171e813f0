//! The cause of an attempt's stop, on disk and in memory.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use super::blocking::run_blocking;
use crate::attempt_dir::{AttemptDir, Stopping};

/// The turn of an attempt to write its cause. While a disk hangs, later steps of the stop wait for the turn instead of taking a thread each.
pub(super) type RecordingTurn = Arc<Mutex<()>>;

/// Records that the attempt is stopped. The cause of the first call stays, also if the disk had no space for it: later calls write that one.
/// A disk that hangs does not hold up the stop: then the cause is in memory first, and on the disk when it answers.
pub(super) async fn record_first_stop(
    dir: &AttemptDir,
    stopping: &watch::Sender<Option<Stopping>>,
    turn: &RecordingTurn,
    requested: Stopping,
) {
    let (dir, first) = (dir.clone(), stopping.borrow().unwrap_or(requested));
    let record = async {
        let turn = Arc::clone(turn).lock_owned().await;
        let record = move || {
            let recorded = dir.record_stopping(first);
            drop(turn);
            recorded
        };
        run_blocking(record).await
    };
    let recorded = timeout(DISK_LIMIT, record).await.unwrap_or_else(|_| {
        let (cause, limit) = (first.cause.name(), DISK_LIMIT);
        tracing::error!(cause, ?limit, "the disk hangs; stopping an attempt before its cause is on the disk");
        None
    });
    let recorded = recorded.unwrap_or(first);
    stopping.send_if_modified(|stopping| {
        let is_first = stopping.is_none();
        stopping.get_or_insert(recorded);
        is_first
    });
}

/// How long a stop waits for the disk of the state directory. A slow disk syncs within a second, and a self-fence has a sixth of a lease to
/// spare, five seconds by default (docs/design/leases-fencing-reconcile.md, L16).
pub(super) const DISK_LIMIT: Duration = Duration::from_secs(2);

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
        let (stopping, turn) = (watch::Sender::new(None), RecordingTurn::default());
        let stop = |cause, at| Stopping {
            cause,
            at: RecordedInstant { utc: Timestamp(at), ..RecordedInstant::default() },
        };
        let [first, second] = [stop(StopCause::Timeout, 1), stop(StopCause::Cancel, 2)];

        // No file can be made in a directory that is elsewhere.
        let elsewhere = state.path().join("elsewhere");
        std::fs::rename(dir.path(), &elsewhere).expect("renamed");
        record_first_stop(&dir, &stopping, &turn, first).await;
        assert_eq!(*stopping.borrow(), Some(first));

        std::fs::rename(&elsewhere, dir.path()).expect("renamed back");
        record_first_stop(&dir, &stopping, &turn, second).await;
        assert_eq!(*stopping.borrow(), Some(first));
        assert_eq!(dir.stopping().expect("read"), Some(first));
    }
    #[tokio::test(start_paused = true)]
    async fn a_disk_that_hangs_does_not_hold_up_a_stop() {
        let state = tempfile::tempdir().expect("a directory");
        let store = AttemptStore::open(state.path()).expect("a store");
        let dir = store.create(&launch_of(Default::default())).expect("made");
        let (stopping, turn) = (watch::Sender::new(None), RecordingTurn::default());
        let stop = |cause| Stopping { cause, at: RecordedInstant::default() };
        // An earlier write has the turn, and does not return.
        let hanging = Arc::clone(&turn).lock_owned().await;
        record_first_stop(&dir, &stopping, &turn, stop(StopCause::Timeout)).await;
        assert_eq!(stopping.borrow().map(|it| it.cause), Some(StopCause::Timeout));
        assert_eq!(dir.stopping().expect("read"), None);

        drop(hanging);
        record_first_stop(&dir, &stopping, &turn, stop(StopCause::Cancel)).await;
        assert_eq!(dir.stopping().expect("read").map(|it| it.cause), Some(StopCause::Timeout));
    }
}
