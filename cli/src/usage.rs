//! Errors of the command line parser, with what clap does not print itself.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::error_output;
use crate::failure::{Exit, Failure};
use crate::screen::Format;

/// Prints help, the version or the error, and returns the exit code.
pub(crate) fn explain(error: &clap::Error, program: clap::Command) -> ExitCode {
    if error.kind() == ErrorKind::InvalidUtf8
        && let Some(argument) = std::env::args_os().find(|argument| argument.to_str().is_none())
    {
        let text = format!("invalid_argument: {} is not UTF-8", escaped(&argument));
        return error_output::report(
            &Failure::new(Exit::Usage, text).hint("see 'longshore --help'").into(),
            Format::Table,
        );
    }
    // Help that is not read to its end is no error.
    let _ = error.print();
    if let Some(variable) = variable_behind(error, program) {
        eprintln!("note: the value comes from the environment variable {variable}");
    }
    let exit = if means_changes(std::env::args_os().skip(1)) { Exit::Failed } else { Exit::Usage };
    ExitCode::from(if error.use_stderr() { exit.code() } else { 0 })
}

/// The exit code 2 is taken: `plan --exit-code` ends with it if there are changes.
fn means_changes(words: impl IntoIterator<Item = OsString>) -> bool {
    let mut words = words.into_iter();
    words.next().is_some_and(|verb| verb == "plan") && words.any(|word| word == "--exit-code")
}

/// Escapes an argument that is not UTF-8, so that the user can find it.
fn escaped(argument: &OsString) -> String {
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(argument.as_os_str());
    format!("\"{}\"", bytes.escape_ascii().to_string().chars().take(80).collect::<String>())
}

/// Returns true if an argument contains this value: alone, or after its flag.
fn gives(argument: &str, value: &str) -> bool {
    let behind_flag = || match argument.strip_prefix("--") {
        Some(long) => long.split_once('=').map(|(_, given)| given),
        // A short flag is one letter; an equals sign may follow.
        None => argument.strip_prefix('-')?.get(1..).map(|given| given.strip_prefix('=').unwrap_or(given)),
    };
    argument == value || behind_flag() == Some(value)
}

/// The environment variable that a rejected value came from, if it did.
fn variable_behind(error: &clap::Error, mut program: clap::Command) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (flag, value) = (context(ContextKind::InvalidArg)?, context(ContextKind::InvalidValue)?);
    let given = std::env::args_os().any(|argument| gives(&argument.to_string_lossy(), value));
    program.build();
    let flags = program.get_subcommands().flat_map(all_flags);
    let mut behind =
        flags.into_iter().filter(|argument| argument.to_string() == flag).filter_map(|argument| {
            let variable = argument.get_env()?;
            (std::env::var(variable).ok()? == value).then(|| variable.to_string_lossy().into_owned())
        });
    if given { None } else { behind.next() }
}

/// The flags of a verb and of the verbs within it.
fn all_flags(verb: &clap::Command) -> Vec<&clap::Arg> {
    verb.get_arguments().chain(verb.get_subcommands().flat_map(all_flags)).collect()
}

#[cfg(test)]
mod tests {
    use super::gives;

    #[test]
    fn a_value_is_given_by_a_whole_word() {
        for (argument, is) in [
            ("x", true),
            ("--output=x", true),
            ("-ox", true),
            ("-o=x", true),
            ("box", false),
            ("--x", false),
            ("--max=1x", false),
        ] {
            assert_eq!(gives(argument, "x"), is, "{argument}");
        }
    }
}
