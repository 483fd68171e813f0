//! The part of a job in a set of jobs on several workers, as the store returns it.

use protocol::{JobId, WorkerId};
use scheduler::job::State;
use scheduler::run_on::{MemberRow, ParentRow};

/// The part of a job in a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SetPart {
    /// It runs by itself.
    #[default]
    None,
    /// Members run in its place.
    Parent(Box<ParentRow>),
    /// It runs in the place of its parent.
    Member(MemberRow),
}

/// A member of a parent, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberPlace {
    /// The member.
    pub job: JobId,
    /// Its state.
    pub state: State,
    /// The worker that it was on last, or is pinned to.
    pub worker: Option<WorkerId>,
}
