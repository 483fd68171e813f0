//! Failures that need attention, and their acknowledgements: facts about ended jobs that the scheduler does not need.
//!
//! A job that failed, expired or was lost is unresolved until a retry of it was made or somebody acknowledged it.

use protocol::{JobId, Timestamp};

/// An acknowledgement of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The time of the acknowledgement.
    pub at: Timestamp,
    /// The name of the requester's token, or of the user; none on a server that needs no token.
    pub by: Option<String>,
    /// Why it is dealt with, for people.
    pub reason: Option<String>,
}

/// The attention that an ended job needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FailureStatus {
    /// None: it has not failed, or it was retried, or it ended under a version that kept no such record.
    #[default]
    None,
    /// It has failed, and nobody has dealt with it.
    Unresolved,
    /// It has failed, and somebody has acknowledged that.
    Acknowledged(Acknowledgement),
}

/// A change of acknowledgements. Jobs that are not kept any more, or that have not failed, are left alone.
#[derive(Clone, Debug)]
pub enum AcknowledgementChange {
    /// Somebody acknowledges these failures. Those that were acknowledged before keep their first acknowledgement.
    Add(Vec<JobId>, Acknowledgement),
    /// The acknowledgements of these failures are taken back. Each is unresolved again, unless a retry of it is kept.
    Remove(Vec<JobId>),
}
