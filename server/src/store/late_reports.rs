//! Late reports that only say again what is known: no news to anyone, so no notes.
//!
//! They come after a crash of ours between a commit and its acknowledgement: the worker says everything again to a scheduler that
//! no longer holds the job. Only the store, which has the rows, can tell them from reports that contradict the record.

use protocol::report::Outcome;

/// Of the late reports of one job the first ones are kept, which tell how it began, and the last ones, which tell how it stands; the
/// others are counted. A worker may send as many as it likes.
pub(super) const FIRST_KEPT: usize = 8;
pub(super) const LAST_KEPT: usize = 8;

/// The index of the late report to delete, the oldest first, if one job has this number of them; none if there is room.
pub(super) const fn surplus(kept: usize) -> Option<usize> {
    if kept > FIRST_KEPT + LAST_KEPT { Some(FIRST_KEPT) } else { None }
}

/// True if a report says no more than the row of its attempt. A worker does not know `success_exit_codes`: what it calls a failure may be
/// the success with this exit code.
pub(super) fn repeats(
    said: &str,
    has_started: bool,
    outcome: Option<Outcome>,
    exit_code: Option<i32>,
) -> bool {
    let is_odd_success = outcome == Some(Outcome::Succeeded) && exit_code.is_some_and(|code| code != 0);
    outcome.is_some_and(|outcome| outcome.name() == said)
        || (is_odd_success && said == Outcome::Failed.name())
        || (has_started && said == "running")
}
