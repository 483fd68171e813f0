//! Facts about a job for people.

use alloc::string::String;

use protocol::{Timestamp, Token, WorkerId};

/// An entry of a job's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A cancel was requested.
    CancelRequested {
        /// The requester.
        by: String,
    },
    /// An operator released the job.
    Released {
        /// The operator.
        by: String,
    },
    /// A client changed the job while it waited.
    Updated {
        /// The client.
        by: String,
        /// The earliest start since then.
        due_at: Timestamp,
        /// The priority since then.
        priority: i8,
    },
    /// A part of the result of the job that triggered this job of a hook does not reach it.
    ResultLeftOut {
        /// The parts and the reasons, in one line.
        why: String,
    },
    /// Connected workers got no member of this parent (`run_on: all`).
    WorkersLeftOut {
        /// Some of them with the reasons, in one line.
        workers: String,
    },
    /// The worker of a lost attempt reported that its container is gone. For the last such attempt of a
    /// cancelled job that confirms the cancel.
    ContainerGone {
        /// The lost attempt.
        token: Token,
        /// The worker that reported it.
        worker: WorkerId,
    },
    /// A report arrived about an attempt that is not current. It was ignored.
    LateReport {
        /// The attempt of the report.
        token: Token,
        /// The worker that sent it.
        worker: WorkerId,
        /// Content of the report.
        said: String,
    },
    /// The lease of the attempt's worker expired.
    Unreachable {
        /// The attempt that is unreachable.
        token: Token,
        /// The silent worker.
        worker: WorkerId,
    },
    /// The worker is reachable again and keeps its attempt.
    Revived {
        /// The attempt that continues.
        token: Token,
        /// The reconnected worker.
        worker: WorkerId,
    },
}
