//! `longshore completions`: writes a completion script for a shell. The script asks the program, which knows its verbs and flags, and asks the
//! server for names of definitions and workers.
//!
//! The server's address and token are those of the command line that is completed, or of the environment. A server that does not answer at
//! once gives no names: completion never waits long and never prints an error.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap_complete::CompletionCandidate;
use clap_complete::engine::ArgValueCompleter;
use clap_complete::env::{CompleteEnv, Shells};
use serde_json::Value;

use crate::api::Api;
use crate::args::ServerArgs;
use crate::client_certificate::ClientCertificateArgs;

/// Write a completion script for a shell to standard output.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore completions bash > ~/.local/share/bash-completion/completions/longshore
  longshore completions zsh > ~/.zfunc/_longshore
  longshore completions fish > ~/.config/fish/completions/longshore.fish

Names of definitions and workers come from the server: of --server on the line, or of LONGSHORE_SERVER.
Write the script again after an upgrade.")]
pub(crate) struct Flags {
    /// The shell.
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Writes the script.
pub(crate) fn completions(flags: &Flags) -> anyhow::Result<()> {
    let shells = Shells::builtins();
    let name = flags.shell.to_string();
    let Some(shell) = shells.completer(&name) else { anyhow::bail!("{name} is not known") };
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "longshore", "longshore", "longshore", &mut script)?;
    crate::screen::raw(&script)
}

/// Answers a completion script, if one asks. `None`: the program was started for something else.
pub(crate) fn answer(program: fn() -> clap::Command) -> Option<ExitCode> {
    let here = std::env::current_dir().ok();
    match CompleteEnv::with_factory(program).var(VARIABLE).try_complete(std::env::args_os(), here.as_deref())
    {
        Ok(true) => Some(ExitCode::SUCCESS),
        Ok(false) => None,
        Err(error) => {
            // The user types at a prompt; there is no better place.
            let _ = error.print();
            Some(ExitCode::FAILURE)
        }
    }
}

/// Completes names of definitions.
pub(crate) fn definitions() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| candidates(current, &["api", "definitions"], "description"))
}

/// Completes names of workers.
pub(crate) fn workers() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| candidates(current, &["api", "workers"], "state"))
}

/// The names in a list of the server that begin like this, each with a remark.
fn candidates(current: &OsStr, path: &[&str], remark: &str) -> Vec<CompletionCandidate> {
    let Some(begun) = current.to_str() else { return Vec::new() };
    let list = read(path).unwrap_or_default();
    let name = |entry: &Value| {
        let name = entry.get("name")?.as_str()?.to_owned();
        // A shell takes a line break as the end of a name.
        let fits = name.starts_with(begun) && !name.contains(char::is_control);
        let remark = entry.get(remark).and_then(Value::as_str).unwrap_or_default();
        let remark: String = remark.chars().filter(|c| !c.is_control()).take(REMARK_CHARS_MAX).collect();
        let candidate = CompletionCandidate::new(name);
        fits.then(|| if remark.is_empty() { candidate } else { candidate.help(Some(remark.into())) })
    };
    list.as_array().into_iter().flatten().filter_map(name).take(CANDIDATES_MAX).collect()
}

/// A list of the server, if it answers in time.
fn read(path: &[&str]) -> Option<Value> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let given = |flag: &str, variable: &str| value_of(&words, flag).or_else(|| std::env::var_os(variable));
    let server = given("--server", "LONGSHORE_SERVER");
    let token = given("--token-file", "LONGSHORE_API_TOKEN_FILE");
    let ca = given("--ca-file", "LONGSHORE_CA_FILE");
    let client_certificate = ClientCertificateArgs {
        tls_client_cert: given("--tls-client-cert", "LONGSHORE_TLS_CLIENT_CERT").map(PathBuf::from),
        tls_client_key: given("--tls-client-key", "LONGSHORE_TLS_CLIENT_KEY").map(PathBuf::from),
    };
    let server_args = ServerArgs::new(
        server.as_ref().and_then(|it| it.to_str()),
        token.as_deref().map(Path::new),
        ca.as_deref().map(Path::new),
        client_certificate,
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let api = Api::new(&server_args).ok()?;
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, api.json(api.get(path))).await }).ok()?.ok()
}

/// The value of a flag on a line that may be incomplete: `--flag value` or `--flag=value`.
fn value_of(words: &[OsString], flag: &str) -> Option<OsString> {
    words.iter().enumerate().find_map(|(at, word)| {
        let rest = word.to_str()?.strip_prefix(flag)?;
        match rest.strip_prefix('=') {
            Some(value) => Some(value.into()),
            None if rest.is_empty() => words.get(at + 1).cloned(),
            None => None,
        }
    })
}

/// The variable by which a script asks.
const VARIABLE: &str = "LONGSHORE_COMPLETE";
/// A person waits at the prompt.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Names beyond this are no help.
const CANDIDATES_MAX: usize = 1_000;
const REMARK_CHARS_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_of_the_line_is_found_in_both_forms() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for line in ["longshore run --server a:1 res", "longshore --server=a:1 run"] {
            assert_eq!(value_of(&words(line), "--server"), Some("a:1".into()), "{line}");
        }
        assert_eq!(value_of(&words("longshore run --server-x a"), "--server"), None);
        assert_eq!(value_of(&words("longshore run --server"), "--server"), None);
    }
}
