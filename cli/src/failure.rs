//! How a verb ends when it does not succeed: the one place where errors become exit codes.
//!
//! A [`Failure`] is one line for a person, with a next step and what the server lists beside it, and the code that a script may act on. Errors without one are plain failures.

use std::fmt;
use std::process::ExitCode;

use serde_json::Value;

use crate::screen::{self, Format};

/// What a script learns from the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did not work.
    Failed,
    /// It was asked for in a way that can never work.
    Usage,
    /// The server wants another token, or none of us.
    Auth,
    /// There is no such thing (any more).
    NotFound,
    /// The thing is in a state that does not allow it.
    Conflict,
    /// The server cannot be reached, or has no room: later it may work.
    Unavailable,
    /// The container's own exit code, of a job that we waited for.
    Container(u8),
    /// Ctrl-C while following a job, which goes on.
    Interrupted,
    /// Whoever read our output has read enough.
    ReaderGone,
}

impl Exit {
    /// The number.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::ReaderGone => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Auth => 3,
            Self::NotFound => 4,
            Self::Conflict => 5,
            Self::Unavailable => 6,
            Self::Container(code) => code,
            Self::Interrupted => 130,
        }
    }

    /// What an HTTP status that is no success means to a script.
    pub(crate) const fn of_status(status: u16) -> Self {
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

/// A verb's end: a code, and what is told. Without text nothing is told.
#[derive(Debug)]
pub(crate) struct Failure {
    /// For scripts.
    pub(crate) exit: Exit,
    text: String,
    hint: String,
    /// Everything that is wrong, a line each; told before the text.
    faults: Vec<String>,
    /// What the server said, if it said it as a problem: for programs.
    problem: Option<Value>,
}

impl Failure {
    /// An end with one phrase that says what is wrong.
    pub(crate) fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::silent(exit) }
    }

    /// An end of which everything has been told already.
    pub(crate) const fn silent(exit: Exit) -> Self {
        Self { exit, text: String::new(), hint: String::new(), faults: Vec::new(), problem: None }
    }

    /// Adds the next step.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// The same, with another code for scripts.
    pub(crate) const fn with(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Adds all that is wrong, for people, and the server's own document, for programs.
    pub(crate) fn problem(mut self, faults: Vec<String>, problem: Value) -> Self {
        self.faults = faults;
        self.problem = Some(problem);
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

/// The exit code that an error means.
pub(crate) fn exit_of(error: &anyhow::Error) -> Exit {
    error.downcast_ref::<Failure>().map_or(Exit::Failed, |failure| failure.exit)
}

/// Tells the person why, on standard error, and the caller of the program with the exit code. Programs get the server's own document.
pub(crate) fn report(error: &anyhow::Error, format: Format) -> ExitCode {
    let failure = error.downcast_ref::<Failure>();
    let exit = exit_of(error);
    if let (Format::Json, Some(problem)) = (format, failure.and_then(|failure| failure.problem.as_ref())) {
        // Control characters are escaped in JSON.
        screen::paragraph(&format!("{problem:#}"));
        return ExitCode::from(exit.code());
    }
    for fault in failure.into_iter().flat_map(|failure| &failure.faults) {
        screen::note(fault);
    }
    // Causes are joined with colons; anyhow's alternate form does that.
    let text = format!("{error:#}");
    if exit != Exit::ReaderGone && !text.is_empty() {
        let mark = if screen::stderr_has_colour() { "\x1b[1;31merror:\x1b[0m" } else { "error:" };
        // Standard error may be closed too; there is nobody left to tell.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("{mark} {}\n", screen::visible(&text)),
        );
    }
    ExitCode::from(exit.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_become_the_documented_exit_codes() {
        let codes =
            [400, 401, 403, 404, 409, 410, 413, 422, 429, 500, 503, 507].map(|s| Exit::of_status(s).code());
        assert_eq!(codes, [2, 3, 3, 4, 5, 4, 2, 2, 6, 1, 6, 6]);
    }

    #[test]
    fn a_failure_wrapped_in_context_keeps_its_exit_code() {
        let error = anyhow::Error::new(Failure::new(Exit::NotFound, "no job 7")).context("cannot show it");
        assert_eq!(report(&error, Format::Table), ExitCode::from(4));
    }
}
