//! The JSON of a job's part in a set of jobs on several workers.

use protocol::Timestamp;
use scheduler::run_on::{MemberPlan, MemberRow};

use crate::http::present::shapes;
use crate::store::{JobRow, SetPart};

/// The part of a member in its set.
pub(super) const fn member_of(row: &JobRow) -> Option<&MemberRow> {
    match &row.set {
        SetPart::Member(member) => Some(member),
        SetPart::None | SetPart::Parent(_) => None,
    }
}

/// The first start of a member of a parent. It is the start of the parent.
pub(super) const fn started_at(row: &JobRow) -> Option<Timestamp> {
    match &row.set {
        SetPart::Parent(parent) => parent.started_at,
        SetPart::None | SetPart::Member(_) => None,
    }
}

/// Milliseconds between the start and the end of a parent.
pub(super) fn ran_ms(row: &JobRow) -> Option<u64> {
    Some(shapes::millis(row.ended_at?.since(started_at(row)?)))
}

/// The members of a parent.
pub(super) fn of(set: &SetPart) -> Option<shapes::Members> {
    let SetPart::Parent(row) = set else { return None };
    let counts = row.counts;
    Some(shapes::Members {
        run_on: match &row.plan {
            MemberPlan::All => shapes::Workers::default(),
            MemberPlan::Count { members, .. } => shapes::Workers::Count(*members),
            MemberPlan::Workers(ids) => shapes::Workers::Ids(ids.iter().map(|id| id.0).collect()),
        },
        complete: !row.gets_members(),
        total: counts.total,
        live: counts.total - counts.ended(),
        succeeded: counts.succeeded,
        failed: counts.failed,
        cancelled: counts.cancelled,
        expired: counts.expired,
        lost: counts.lost,
    })
}
