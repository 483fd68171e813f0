//! The end of an attempt.

use alloc::string::String;

use protocol::report::{Outcome, OutputLengths, ReleaseCause};
use protocol::{Now, Timestamp, Token, Usage};

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedAttempt {
    /// The ended attempt.
    pub token: Token,
    /// The outcome.
    pub outcome: Outcome,
    /// The program's exit code, if it ran.
    pub exit_code: Option<i32>,
    /// Explanation for people, in one line.
    pub message: String,
    /// Wall-clock time at which its container started, if it did.
    pub started_at: Option<Timestamp>,
    /// Wall-clock time of the end.
    pub ended_at: Timestamp,
    /// Length of its output.
    pub output: OutputLengths,
    /// Resources that it has used.
    pub usage: Usage,
    /// The job's result, as JSON.
    pub result: Option<String>,
    /// The cause of a release.
    pub released: Option<ReleaseCause>,
}

impl ClosedAttempt {
    /// The end of an attempt that no worker can report any more.
    pub(crate) fn lost(now: Now, token: Token, started_at: Option<Timestamp>, message: &str) -> Self {
        Self {
            token,
            outcome: Outcome::Lost,
            exit_code: None,
            message: String::from(message),
            started_at,
            ended_at: now.utc,
            output: OutputLengths::default(),
            usage: Default::default(),
            result: None,
            released: None,
        }
    }
}
