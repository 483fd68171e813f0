//! The rules of a session that a worker can break: its connection is closed, and the reason names the rule.

use protocol::ReportNo;

/// A rule that a worker broke within its session. Its text is part of the close reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenRule {
    /// A second Hello came.
    SecondHello,
    /// A report has a number beyond the next one.
    ReportGap {
        /// The number of the report.
        found: ReportNo,
        /// The highest number that it may have.
        next: ReportNo,
    },
    /// The frames of an Inventory list too many attempts.
    InventoryTooLong {
        /// How many it may list.
        max: usize,
    },
}

impl core::fmt::Display for BrokenRule {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::SecondHello => f.write_str("Hello is said once"),
            Self::ReportGap { found, next } => {
                write!(f, "report {found} is beyond the next one, which is {next}")
            }
            Self::InventoryTooLong { max } => write!(f, "an Inventory lists more than {max} attempts"),
        }
    }
}
