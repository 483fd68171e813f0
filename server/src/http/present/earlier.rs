//! Jobs that wait for the end of another one, or of a batch.

use scheduler::snapshot::Snapshot;
use scheduler::step::PendingReason;

use crate::http::present::shapes;
use crate::store::JobRow;

/// The text for a job that comes after others (`after`).
fn waits_for_predecessor(row: &JobRow) -> Option<shapes::Reason> {
    let text = format!("{}, which it comes after, must end first (after)", row.waits_for?).into();
    Some(shapes::Reason { code: PendingReason::Dependencies.name().into(), text })
}

/// The text for a job that waits for the end of another one, or of a batch.
pub(super) fn waits_for_another(row: &JobRow, snapshot: &Snapshot) -> Option<shapes::Reason> {
    waits_for_predecessor(row)
        .or_else(|| waits_for_replaced(row, snapshot))
        .or_else(|| waits_for_earlier(row, snapshot))
}

/// The text for a job that waits for the one that it replaces (`unique`).
fn waits_for_replaced(row: &JobRow, snapshot: &Snapshot) -> Option<shapes::Reason> {
    let replacing = &snapshot.replacing;
    let (_, before) = replacing[replacing.binary_search_by_key(&row.job, |(job, _)| *job).ok()?];
    let text = format!("job {before}, which it replaces, must end first (unique)").into();
    Some(shapes::Reason { code: PendingReason::Replacing.name().into(), text })
}

/// The text for a job of a schedule that waits until an earlier one has ended (`overlap`).
fn waits_for_earlier(row: &JobRow, snapshot: &Snapshot) -> Option<shapes::Reason> {
    // A retry carries a slot on, and waits for no other job.
    row.slot.as_ref().filter(|_| row.retry_of.is_none())?;
    let mut queues = snapshot.schedule_queues.iter();
    let (_, first) = queues.find(|(name, first)| **name == *row.definition && *first < row.job)?;
    let text = format!("job {first} of the same schedules must end first (overlap)").into();
    Some(shapes::Reason { code: "earlier_job".into(), text })
}
