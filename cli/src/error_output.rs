//! Shows the error of a verb.

use std::process::ExitCode;

use crate::failure::{Exit, Failure, exit_of};
use crate::screen::{self, Format};

/// Prints the error to standard error, as text or as the server's problem document, and returns the exit code.
pub(crate) fn report(error: &anyhow::Error, format: Format) -> ExitCode {
    let failure = error.downcast_ref::<Failure>();
    let exit = exit_of(error);
    if let (true, Some(problem)) = (format.is_json(), failure.and_then(Failure::document)) {
        // JSON escapes control characters.
        screen::note_lines(&format!("{problem:#}"));
        return ExitCode::from(exit.code());
    }
    for fault in failure.map_or(&[][..], Failure::faults) {
        screen::note(fault);
    }
    // The alternate form of anyhow joins the causes with colons.
    let text = format!("{error:#}");
    if exit != Exit::OutputClosed && !text.is_empty() {
        let mark = if screen::stderr_has_colour() { "\x1b[1;31merror:\x1b[0m" } else { "error:" };
        // Writing fails if standard error is closed.
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
    fn a_failure_wrapped_in_context_keeps_its_exit_code() {
        let error = anyhow::Error::new(Failure::new(Exit::NotFound, "no job 7")).context("cannot show it");
        assert_eq!(report(&error, Format::Table), ExitCode::from(4));
    }
}
