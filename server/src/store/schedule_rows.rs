//! Rows about schedules, as readers get them.

use protocol::Timestamp;
use scheduler::pauses::PauseTarget;
use scheduler::schedules::{FireRow, ScheduleRow};

/// The state of all schedules, for readers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScheduleState {
    /// Every schedule ever seen.
    pub rows: Vec<ScheduleRow>,
    /// Pauses, with their beginnings.
    pub paused: Vec<(PauseTarget, Timestamp)>,
}

/// The slot that a job was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSlot {
    /// The id of the schedule.
    pub schedule: String,
    /// The slot.
    pub at: Timestamp,
}

/// A row of the fire ledger, with its place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FireRecord {
    /// Grows with each row. Used as the cursor of pages.
    pub id: u64,
    /// The row.
    pub row: FireRow,
}
