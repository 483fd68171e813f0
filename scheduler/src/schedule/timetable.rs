//! The keys of a definition about time: its schedules, and the policies for slots that do not fit.

use alloc::vec::Vec;

use super::Schedule;
use super::catch_up::CatchUp;

/// All keys of a definition about time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timetable {
    /// When jobs are made. Their ids differ.
    pub schedules: Vec<Schedule>,
    /// Policy for a slot while an earlier job of a schedule of this definition has not ended.
    pub overlap: Overlap,
    /// Policy for slots that passed while nobody could fire them.
    pub catch_up: CatchUp,
}

/// Policy for a slot while an earlier job of a schedule of the same definition has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// The slot is skipped.
    #[default]
    Skip,
    /// Its job is made, and waits until the earlier one has ended; at most [`Overlap::QUEUE_MAX`] wait.
    Queue,
    /// The earlier jobs are cancelled; the new one waits until they have ended.
    Replace,
    /// Both run.
    Allow,
}

impl Overlap {
    /// How many jobs of one definition may wait for an earlier one. Slots beyond that are skipped.
    pub const QUEUE_MAX: usize = 100;

    /// Every value, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Skip, Self::Queue, Self::Replace, Self::Allow];

    /// As it is written in jobs.yaml.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Queue => "queue",
            Self::Replace => "replace",
            Self::Allow => "allow",
        }
    }

    /// True if the job of a slot is made at once and waits until all earlier ones have ended.
    #[must_use]
    pub const fn runs_one_at_a_time(self) -> bool {
        matches!(self, Self::Queue | Self::Replace)
    }
}
