//! The role of a job under `run_on`: it runs alone, is a parent, or is a member. As the store returns it.

use protocol::{JobId, WorkerId};
use scheduler::job::State;
use scheduler::run_on::{MemberRow, ParentRow};

/// The role of a job under `run_on`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RunOnRole {
    /// It runs by itself.
    #[default]
    Alone,
    /// Members run in its place.
    Parent(Box<ParentRow>),
    /// It runs in the place of its parent.
    Member(MemberRow),
}

/// A member of a parent, with its state and its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberOnWorker {
    /// The member.
    pub job: JobId,
    /// Its state.
    pub state: State,
    /// The worker that it was on last, or is pinned to.
    pub worker: Option<WorkerId>,
}
