//! An alarm for the operator of a restored store.

use scheduler::step::Change;

/// Logs that numbers are skipped: the backup is older than attempts that workers still have.
pub(super) fn log_skipped_numbers(change: &Change) {
    if let Change::NumbersSkipped { after, job, fence, .. } = change {
        tracing::error!(
            %after, %job, %fence,
            "a worker has attempts with higher numbers than this restored store: their jobs were accepted after the backup and are lost here; \
             their numbers are skipped, and the attempts run on unmanaged"
        );
    }
}
