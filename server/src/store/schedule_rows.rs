//! Rows about schedules, as readers get them.

use protocol::Timestamp;
use scheduler::origin::Intervention;
use scheduler::pauses::PauseTarget;
use scheduler::schedules::{FireRow, ScheduleRow};

/// The state of all schedules, for readers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScheduleState {
    /// Every schedule ever seen.
    pub rows: Vec<ScheduleRow>,
    /// Pauses, with their origins.
    pub paused: Vec<(PauseTarget, Intervention)>,
}

/// The slot that a job was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSlot {
    /// The id of the schedule.
    pub schedule: String,
    /// The slot.
    pub at: Timestamp,
}

/// Selects rows of the fire ledger of a definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FireFilter {
    /// Only rows with a smaller id.
    pub before: Option<u64>,
    /// Only rows of the schedule with this id.
    pub schedule: Option<String>,
    /// Only rows with a slot at or after this instant.
    pub since: Option<Timestamp>,
    /// Only rows with a slot before this instant.
    pub until: Option<Timestamp>,
}

/// A row of the fire ledger, with its place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FireRecord {
    /// Grows with each row. Used as the cursor of pages.
    pub id: u64,
    /// The row.
    pub row: FireRow,
}
