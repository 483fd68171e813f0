//! The JSON of a job's role under `run_on`: parent or member.

use protocol::Timestamp;
use scheduler::run_on::{MemberPlan, MemberRow};

use crate::http::present::shapes;
use crate::store::{JobRow, RunOnRole};

/// The part of a member in its set.
pub(super) const fn member_of(row: &JobRow) -> Option<&MemberRow> {
    match &row.run_on_role {
        RunOnRole::Member(member) => Some(member),
        RunOnRole::Alone | RunOnRole::Parent(_) => None,
    }
}

/// The first start of a member of a parent. It is the start of the parent.
pub(super) const fn started_at(row: &JobRow) -> Option<Timestamp> {
    match &row.run_on_role {
        RunOnRole::Parent(parent) => parent.started_at,
        RunOnRole::Alone | RunOnRole::Member(_) => None,
    }
}

/// Milliseconds between the start and the end of a parent.
pub(super) fn ran_ms(row: &JobRow) -> Option<u64> {
    Some(shapes::millis(row.ended_at?.since(started_at(row)?)))
}

/// The members of a parent.
pub(super) fn of(role: &RunOnRole) -> Option<shapes::Members> {
    let RunOnRole::Parent(row) = role else { return None };
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
