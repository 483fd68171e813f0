//! Jobs that run on several workers (`run_on`): a parent, and members that run in its place.
//!
//! - The parent holds no attempt, slot or permit. Its state follows from its members.
//! - No two members ever have a worker in common, also not one after the other.
//! - The parent ends once, after its last member. Its row keeps the counts, so that it outlives the rows of its members.
//!
//! `handlers::run_on` follows these rules; this module keeps which members there are, and where they have been.

pub(crate) mod audit;
mod facts;
mod left_out;
mod parents;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::{JobId, Timestamp, WorkerId};

pub use facts::ParentFacts;
use left_out::LeftOut;
pub(crate) use parents::Cursor;
pub use parents::{Parent, Parents};

use crate::state::State;

/// The workers that a parent gets members for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberPlan {
    /// Each worker that is connected and eligible when the parent is due.
    All,
    /// As many workers as there are members, whichever have room first.
    Count {
        /// The number of members.
        members: u32,
        /// Workers that get none: earlier members succeeded there.
        except: Arc<[WorkerId]>,
    },
    /// These workers, whether they are connected or not.
    Workers(Arc<[WorkerId]>),
}

/// Workers that a retry of a parent may list; they are stored in one row.
pub const WORKERS_MAX: usize = 10_000;

/// The stored row of a parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentRow {
    /// The parent.
    pub job: JobId,
    /// The workers that it gets members for. It never changes.
    pub plan: MemberPlan,
    /// All members were made. A cancel may come before that.
    pub is_complete: bool,
    /// Members by how they ended.
    pub counts: ParentCounts,
    /// Wall-clock time of the first start of a container, of any member.
    pub started_at: Option<Timestamp>,
    /// The requester of its cancel.
    pub cancelled_by: Option<String>,
}

impl ParentRow {
    /// Further members are to be made.
    #[must_use]
    pub const fn gets_members(&self) -> bool {
        !self.is_complete && self.cancelled_by.is_none()
    }

    /// As many members were made as there are to be.
    #[must_use]
    pub const fn has_all_members(&self) -> bool {
        match &self.plan {
            MemberPlan::Count { members, .. } => self.counts.total >= *members,
            MemberPlan::All | MemberPlan::Workers(_) => self.is_complete,
        }
    }

    /// The state in which the parent ends, and the reason.
    #[must_use]
    pub fn end(&self) -> (State, String) {
        let counts = self.counts;
        let reason = || {
            let kinds = [
                (counts.failed, "failed"),
                (counts.cancelled, "cancelled"),
                (counts.expired, "expired"),
                (counts.lost, "lost"),
            ];
            let mut text = format!("{} of {} members succeeded", counts.succeeded, counts.total);
            for (count, name) in kinds.into_iter().filter(|(count, _)| *count > 0) {
                text += &format!(", {count} {name}");
            }
            text
        };
        match &self.cancelled_by {
            // All members were made, and the cancel stopped none of them.
            Some(_) if self.has_all_members() && counts.total > 0 && counts.succeeded == counts.total => {
                (State::Succeeded, String::new())
            }
            Some(by) if counts.total == 0 => (State::Cancelled, format!("cancelled by {by}")),
            Some(by) if !self.has_all_members() => {
                (State::Cancelled, format!("cancelled by {by} before all members were made: {}", reason()))
            }
            Some(by) => (State::Cancelled, format!("cancelled by {by}: {}", reason())),
            None if counts.total == 0 => (State::Failed, NO_WORKER.into()),
            None if counts.failures() > 0 => (State::Failed, reason()),
            None if counts.cancelled > 0 => (State::Cancelled, reason()),
            None => (State::Succeeded, String::new()),
        }
    }
}

/// Reason of a parent without members.
const NO_WORKER: &str = "no worker that could run it was connected: it ran nowhere";

/// Members of a parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of the states of a job")]
pub struct ParentCounts {
    /// Members that were made.
    pub total: u32,
    pub succeeded: u32,
    pub failed: u32,
    pub cancelled: u32,
    pub expired: u32,
    pub lost: u32,
}

impl ParentCounts {
    /// Members that have ended.
    #[must_use]
    pub const fn ended(&self) -> u32 {
        self.succeeded + self.failed + self.cancelled + self.expired + self.lost
    }

    /// Members that failed, expired, or were lost.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failed + self.expired + self.lost
    }

    pub(crate) fn add_ended(&mut self, state: State) {
        match state {
            State::Succeeded => self.succeeded += 1,
            State::Failed => self.failed += 1,
            State::Cancelled => self.cancelled += 1,
            State::Expired => self.expired += 1,
            State::Lost => self.lost += 1,
            State::Scheduled | State::Queued | State::Assigned | State::Running | State::Quarantined => {}
        }
    }
}

/// The stored row of a member, which never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRow {
    /// The member.
    pub job: JobId,
    /// Its parent.
    pub parent: JobId,
    /// The only worker that may run it.
    pub pinned: Option<WorkerId>,
}

/// A member has been on a worker, so that none of its siblings may go there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerUse {
    /// The parent.
    pub parent: JobId,
    /// The worker.
    pub worker: WorkerId,
    /// The member.
    pub member: JobId,
}

/// The part of a job in a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunOnRole {
    /// It runs by itself.
    #[default]
    None,
    /// Members run in its place.
    Parent,
    /// It runs in the place of its parent.
    Member(MemberRow),
}

impl RunOnRole {
    /// The parent of a member.
    #[must_use]
    pub const fn parent(self) -> Option<JobId> {
        match self {
            Self::Member(member) => Some(member.parent),
            Self::None | Self::Parent => None,
        }
    }

    /// The only worker of a member.
    #[must_use]
    pub const fn pinned_to(self) -> Option<WorkerId> {
        match self {
            Self::Member(member) => member.pinned,
            Self::None | Self::Parent => None,
        }
    }

    /// The number under which a batch knows a job with this role: that of its parent, for a member of a job on several workers.
    #[must_use]
    pub fn numbered_as(self, id: JobId) -> JobId {
        self.parent().unwrap_or(id)
    }
}

/// A parent that has not ended, as the store returns it at a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveParent {
    /// Its row.
    pub row: ParentRow,
    /// Its members, also those that have ended if some are still to be made.
    pub members: Vec<MemberRow>,
    /// Workers where members have been.
    pub used: Vec<WorkerUse>,
}
