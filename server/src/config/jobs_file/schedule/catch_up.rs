//! The keys `catch_up`, `catch_up_window` and `catch_up_limit`.

use scheduler::schedule::catch_up::{CatchUp, CatchUpMode};
use scheduler::schedule::{Overlap, Timetable};

use crate::config::jobs_file::fault::FaultCode;
use crate::config::jobs_file::keys;
use crate::config::jobs_file::reader::Reader;
use crate::config::jobs_file::scope::Scope;

/// Reads the keys.
pub(super) fn read(scope: Scope<'_>, reader: &mut Reader<'_>) -> CatchUp {
    let standard = CatchUp::default();
    let mode = scope.find("catch_up").and_then(|node| reader.choice(node, &keys::time::CATCH_UPS));
    let window = scope
        .find("catch_up_window")
        .and_then(|node| reader.duration(node, keys::DURATION_MIN, keys::DURATION_MAX));
    let limit =
        scope.find("catch_up_limit").and_then(|node| reader.integer(node, keys::time::CATCH_UP_LIMITS));
    CatchUp {
        mode: mode.unwrap_or(standard.mode),
        window: window.unwrap_or(standard.window),
        limit: limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(standard.limit),
    }
}

/// Warns if slots are caught up together of which all but one are dropped again.
pub(super) fn warn_of_overlap(timetable: &Timetable, scope: Scope<'_>, reader: &mut Reader<'_>) {
    let Some(node) = scope.find("catch_up") else { return };
    let kept = match timetable.overlap {
        Overlap::Skip => "the oldest",
        Overlap::Replace => "the newest",
        Overlap::Queue | Overlap::Allow => return,
    };
    let CatchUp { mode, limit, .. } = timetable.catch_up;
    if mode == CatchUpMode::All && limit > 1 && !timetable.schedules.is_empty() {
        let text = format!(
            "missed slots are caught up at the same time, and by `overlap` only {kept} of them runs: write \
             `overlap: queue` to run all, one after another, or `overlap: allow`"
        );
        reader.collector.warning(node.at, FaultCode::HasNoEffect, text);
    }
}
