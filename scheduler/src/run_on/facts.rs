//! Facts about the members of a parent and the workers that they use.

use protocol::{JobId, Uptime, WorkerId};

use super::parents::NOBODY;
use super::{MemberPlan, Parent};

/// The members of a job that runs on several workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentFacts {
    /// No further member is made.
    pub is_complete: bool,
    /// A worker gets a member only if it is connected and eligible when the members are made (`run_on: all`).
    pub is_for_all: bool,
    /// The members are made once workers that may reconnect have done so, at this time at the latest.
    pub settling_until: Option<Uptime>,
    /// Members so far.
    pub total: u32,
}

impl Parent {
    /// The facts about its members.
    #[must_use]
    pub fn facts(&self) -> ParentFacts {
        ParentFacts {
            is_complete: !self.row.gets_members(),
            is_for_all: self.row.plan == MemberPlan::All,
            settling_until: self.settling_until,
            total: self.row.counts.total,
        }
    }

    /// A member is pinned to this worker, or one has been there.
    #[must_use]
    pub fn has_used(&self, worker: WorkerId) -> bool {
        self.used.contains_key(&worker)
    }

    /// The member that is pinned to this worker, or has it or had it.
    #[must_use]
    pub fn member_on(&self, worker: WorkerId) -> Option<JobId> {
        let member = self.held.get(&worker).or_else(|| self.used.get(&worker)).copied();
        member.filter(|member| *member != NOBODY)
    }
}
