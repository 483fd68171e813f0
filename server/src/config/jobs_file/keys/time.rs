//! The keys about time.

use scheduler::schedule::Overlap;
use scheduler::schedule::catch_up::CatchUpMode;

use super::{Key, Range, Shape, key, range};

pub(in crate::config::jobs_file) const CATCH_UP_LIMITS: Range = range(1, 1_000);

/// The keys of a schedule; one of the first three must be there.
pub(in crate::config::jobs_file) const SCHEDULE: &[Key] = &[
    key(
        "cron",
        Shape::Text,
        "Five fields, or six with seconds first, with L, W and #; or @daily and the like.",
    ),
    key("every", Shape::Duration, "An interval from 100ms, counted from start_at or 1970."),
    key("at", Shape::Text, "10:11, monday 08:30, an instant, or a date and time."),
    key("id", Shape::Text, "Its name among the schedules of the job; derived from rule and zone if absent."),
    key("timezone", Shape::Text, "The zone of the rule, such as Europe/Berlin; UTC if absent."),
    key("start_at", Shape::Text, "No slot is earlier: an instant, or a date and time in the timezone."),
    key("end_at", Shape::Text, "No slot is later."),
    key("not_immediately", Shape::Bool, "Whether start_at itself is left out; false if absent."),
    key(
        "jitter",
        Shape::Duration,
        "Each slot fires up to this much later, by the same amount each time it is asked.",
    ),
    key("environment", Shape::Pairs, "Variables for the jobs of this schedule, over those of the job."),
    key("args", Shape::Words, "Words that its jobs get after the command."),
    key("params", Shape::Values, "Values for the parameters of the job, by name."),
];

pub(in crate::config::jobs_file) const OVERLAPS: [(&str, Overlap); 4] = [
    (Overlap::Skip.name(), Overlap::Skip),
    (Overlap::Queue.name(), Overlap::Queue),
    (Overlap::Replace.name(), Overlap::Replace),
    (Overlap::Allow.name(), Overlap::Allow),
];
pub(in crate::config::jobs_file) const CATCH_UPS: [(&str, CatchUpMode); 3] = [
    (CatchUpMode::None.name(), CatchUpMode::None),
    (CatchUpMode::Latest.name(), CatchUpMode::Latest),
    (CatchUpMode::All.name(), CatchUpMode::All),
];
