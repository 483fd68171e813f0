//! Errors of verbs and their exit codes.
//!
//! A [`Failure`] has one line for people, a hint, the server's problem document, and an exit code. Other errors exit with code 1.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

/// The exit codes that scripts can rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The verb failed.
    Failed,
    /// Wrong usage: repeating the command cannot help.
    Usage,
    /// The server refused the token, or wants one.
    Auth,
    /// The job, worker or definition does not exist, or was removed.
    NotFound,
    /// The state of the job or worker does not allow the operation.
    Conflict,
    /// The server is unreachable, busy or full; a later try may succeed.
    Unavailable,
    /// The exit code of a job that the verb waited for.
    Container(u8),
    /// The time of a wait is up; what was waited for goes on.
    TimedOut,
    /// Ctrl-C while following a job, which goes on.
    Interrupted,
    /// The reader of standard output closed it, as `head` does.
    OutputClosed,
}

impl Exit {
    /// The number of the exit code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::OutputClosed => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Auth => 3,
            Self::NotFound => 4,
            Self::Conflict => 5,
            Self::Unavailable => 6,
            Self::Container(code) => code,
            // As of timeout(1).
            Self::TimedOut => 124,
            Self::Interrupted => 130,
        }
    }

    /// Maps an HTTP status other than 2xx.
    pub(crate) const fn from_status(status: u16) -> Self {
        match status {
            401 | 403 | 421 => Self::Auth,
            404 | 410 => Self::NotFound,
            409 => Self::Conflict,
            429 | 502 | 503 | 504 | 507 => Self::Unavailable,
            400..=499 => Self::Usage,
            _ => Self::Failed,
        }
    }
}

/// The error of a verb. An empty text prints nothing.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Exit code.
    pub(crate) exit: Exit,
    /// The server is unavailable, and no wait mends that by itself: its address is wrong, or it refuses for a reason that lasts.
    pub(crate) is_persistent: bool,
    /// The pause that the server asked for.
    pub(crate) retry_after: Option<Duration>,
    /// The server runs: the hint names what is wrong with the connection.
    hint_is_remedy: bool,
    text: String,
    hint: String,
    /// All faults, a line each, printed before the text.
    faults: Vec<String>,
    /// The problem document of the server, which `-o json` prints.
    problem: Option<Box<Value>>,
}

impl Failure {
    /// Creates a failure with one line of text.
    pub(crate) fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::silent(exit) }
    }

    /// Creates a failure that prints nothing, because everything was printed before.
    pub(crate) const fn silent(exit: Exit) -> Self {
        Self {
            exit,
            is_persistent: false,
            retry_after: None,
            hint_is_remedy: false,
            text: String::new(),
            hint: String::new(),
            faults: Vec::new(),
            problem: None,
        }
    }

    /// Marks an error that no wait mends.
    pub(crate) const fn persistent(mut self) -> Self {
        self.is_persistent = true;
        self
    }

    /// Marks an error of a server that runs, whose hint is the only remedy.
    pub(crate) const fn knows_remedy(mut self) -> Self {
        self.hint_is_remedy = true;
        self
    }

    /// The hint of an error that a start of the server would not mend.
    pub(crate) fn remedy(&self) -> Option<&str> {
        self.hint_is_remedy.then_some(&self.hint)
    }

    /// Sets the pause that the server asked for.
    pub(crate) const fn retry_after(mut self, pause: Option<Duration>) -> Self {
        self.retry_after = pause;
        self
    }

    /// The text without the hint.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Puts words before the text.
    pub(crate) fn prefix(mut self, words: &str) -> Self {
        self.text.insert_str(0, words);
        self
    }

    /// Adds the next step for the operator.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// The problem document of the server, if there is one.
    pub(crate) fn document(&self) -> Option<&Value> {
        self.problem.as_deref()
    }

    /// All faults, a line each.
    pub(crate) fn faults(&self) -> &[String] {
        &self.faults
    }

    /// Changes the lines of the faults.
    pub(crate) fn map_faults(mut self, change: impl FnMut(String) -> String) -> Self {
        self.faults = self.faults.into_iter().map(change).collect();
        self
    }

    /// Replaces the exit code.
    pub(crate) const fn with_exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Adds a list of faults for people.
    pub(crate) fn with_faults(mut self, faults: Vec<String>) -> Self {
        self.faults = faults;
        self
    }

    /// Adds a list of faults for people, and the problem document for programs.
    pub(crate) fn problem(mut self, faults: Vec<String>, problem: Value) -> Self {
        self.faults = faults;
        self.problem = Some(Box::new(problem));
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        if !self.hint.is_empty() {
            write!(f, "; {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// The exit code of an error.
pub(crate) fn exit_of(error: &anyhow::Error) -> Exit {
    error.downcast_ref::<Failure>().map_or(Exit::Failed, |failure| failure.exit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_become_the_documented_exit_codes() {
        let codes =
            [400, 401, 403, 404, 409, 410, 413, 422, 429, 500, 503, 507].map(|s| Exit::from_status(s).code());
        assert_eq!(codes, [2, 3, 3, 4, 5, 4, 2, 2, 6, 1, 6, 6]);
    }
}
