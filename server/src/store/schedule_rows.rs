//! Rows about schedules, as readers get them.

use protocol::report::Outcome;
use protocol::{JobId, Timestamp};
use scheduler::job::State;
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

/// The state of a job of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotJob {
    /// Its number.
    pub job: JobId,
    /// Its state.
    pub state: State,
    /// The outcome of its latest attempt.
    pub outcome: Option<Outcome>,
    /// The exit code of its latest attempt.
    pub exit_code: Option<i32>,
}

/// The jobs that worked on a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotEnd {
    /// The job that the slot became; none if retention has deleted it.
    pub own: Option<SlotJob>,
    /// The newest of its retries and their retries, if one is kept.
    pub retry: Option<SlotJob>,
    /// The last of these jobs is an unresolved failure. One that ended under a version without such a record is none.
    pub is_unresolved: bool,
}

/// Slots whose last job is an unresolved failure: a part of the ledger of a definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedFires {
    /// Their rows, the newest first.
    pub rows: Vec<FireRecord>,
    /// The rows from this id on were searched; none if all were.
    pub searched: Option<u64>,
}
