//! Errors of the command line parser, with what clap does not print itself.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::error_output;
use crate::failure::{Exit, Failure};
use crate::screen::Format;

/// Prints help, the version or the error, and returns the exit code.
pub(crate) fn explain(mut error: clap::Error, mut program: clap::Command) -> ExitCode {
    program.build();
    set_usage(&mut error, &program);
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
    if let Some(variable) = variable_behind(&error, &program) {
        eprintln!("note: the value comes from the environment variable {variable}");
    }
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(word) = context(&error, ContextKind::InvalidArg)
        && let Some(form) = form_of_a_value(std::env::args().skip(1), word)
    {
        eprintln!("note: {form}");
    }
    let exit = if means_changes(std::env::args_os().skip(1)) { Exit::Failed } else { Exit::Usage };
    ExitCode::from(if error.use_stderr() { exit.code() } else { 0 })
}

/// Replaces the usage line by that of the verb. The parser's own has each flag that has a value, as if it were required, also if the value
/// comes from the environment.
fn set_usage(error: &mut clap::Error, program: &clap::Command) {
    if error.get(ContextKind::Usage).is_none() {
        return;
    }
    let mut verb = program;
    for word in std::env::args_os().skip(1) {
        let Some(inner) = verb.find_subcommand(word) else { break };
        verb = inner;
    }
    error.insert(ContextKind::Usage, ContextValue::StyledStr(verb.clone().render_usage()));
}

/// The exit code 2 is taken: `plan --exit-code` ends with it if there are changes.
fn means_changes(words: impl IntoIterator<Item = OsString>) -> bool {
    let mut words = words.into_iter();
    words.next().is_some_and(|verb| verb == "plan") && words.any(|word| word == "--exit-code")
}

/// The way to write a word that stands alone where the verb takes none.
fn form_of_a_value(words: impl IntoIterator<Item = String>, word: &str) -> Option<String> {
    let words: Vec<String> = words.into_iter().collect();
    let at = words.iter().position(|it| it == word)?;
    let before = at.checked_sub(1).and_then(|before| words.get(before))?;
    if ["--wait", "-w"].contains(&before.as_str()) {
        return Some(format!("the time to wait is written --wait={word}"));
    }
    let is_run = words.first().is_some_and(|verb| verb == "run") && !word.starts_with('-');
    is_run.then(|| match word.contains('=') {
        true => format!(
            "a parameter is written -p {word}, a variable -e {word}, a word for the command -- {word}"
        ),
        false => format!("a word for the command is written -- {word}"),
    })
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

/// A text of the parser about its error.
fn context(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    }
}

/// The environment variable that a rejected value came from, if it did.
fn variable_behind(error: &clap::Error, program: &clap::Command) -> Option<String> {
    let (flag, value) =
        (context(error, ContextKind::InvalidArg)?, context(error, ContextKind::InvalidValue)?);
    let given = std::env::args_os().any(|argument| gives(&argument.to_string_lossy(), value));
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
    use super::{form_of_a_value, gives};

    #[test]
    fn a_word_without_its_flag_is_answered_with_the_form_that_is_taken() {
        let form = |line: &str, word: &str| form_of_a_value(line.split(' ').map(str::to_owned), word);
        for (line, word, expected) in [
            ("run report --wait 10s", "10s", Some("the time to wait is written --wait=10s")),
            ("submit jobs.json -w 10s", "10s", Some("the time to wait is written --wait=10s")),
            (
                "run report day=1",
                "day=1",
                Some("a parameter is written -p day=1, a variable -e day=1, a word for the command -- day=1"),
            ),
            ("run report now", "now", Some("a word for the command is written -- now")),
            ("run report --nope", "--nope", None),
            ("ls jobs", "jobs", None),
        ] {
            assert_eq!(form(line, word).as_deref(), expected, "{line}");
        }
    }

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
