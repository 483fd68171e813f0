//! Grammars of single values: pure functions from text to a value or a fault.

use protocol::container::PROGRAM_BYTES_MAX;
use protocol::signal;

use super::fault::{FaultCode, quoted};

/// A fault of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueFault {
    pub(in crate::config) code: FaultCode,
    /// The input that is quoted before the text, if it may be shown.
    pub(super) input: Option<String>,
    pub(in crate::config) text: String,
}

impl ValueFault {
    pub(super) fn new(code: FaultCode, text: impl Into<String>) -> Self {
        Self { code, input: None, text: text.into() }
    }

    /// The text goes on after the quoted input: `"x"` … `is not y`.
    pub(super) fn input(code: FaultCode, input: &str, text: impl Into<String>) -> Self {
        Self { code, input: Some(input.to_owned()), text: text.into() }
    }
}

impl std::fmt::Display for ValueFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.input {
            Some(input) => write!(f, "{} {}", quoted(input), self.text),
            None => f.write_str(&self.text),
        }
    }
}

type Checked<T> = Result<T, ValueFault>;

/// The name of a job.
pub(super) fn job_name(text: &str) -> Checked<()> {
    name(text, "a job name")
}

/// The id of a schedule.
pub(super) fn schedule_id(text: &str) -> Checked<()> {
    name(text, "an id for a schedule")
}

fn name(text: &str, of: &str) -> Checked<()> {
    let mut bytes = text.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    let rest = bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if first && rest && text.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    Err(ValueFault::input(
        FaultCode::InvalidName,
        text,
        format!("is not {of}: [A-Za-z0-9][A-Za-z0-9._-]{{0,62}}"),
    ))
}

/// The name of a variable that a job may be given.
pub(super) fn env_name(text: &str) -> Checked<()> {
    if !is_variable_name(text) {
        let form = "is not a name for a variable: [A-Za-z_][A-Za-z0-9_]{0,127}";
        return Err(ValueFault::input(FaultCode::InvalidEnvName, text, form));
    }
    if text.starts_with("LONGSHORE_") {
        let reason = "is reserved: Longshore sets the variables LONGSHORE_* itself";
        return Err(ValueFault::input(FaultCode::ReservedName, text, reason));
    }
    Ok(())
}

/// The value of an environment variable. The message never repeats it.
pub(super) fn env_value(text: &str) -> Checked<()> {
    if text.contains(['\n', '\r']) {
        let text = "a value must not contain a line break; mount a file, or encode the value as base64";
        return Err(ValueFault::new(FaultCode::EnvNewlineUnsupported, text));
    }
    at_most(text, ENV_VALUE_BYTES_MAX)
}

pub(super) fn is_variable_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && text.len() <= 128
}

pub(super) fn at_most(text: &str, bytes_max: usize) -> Checked<()> {
    if text.len() <= bytes_max {
        return Ok(());
    }
    Err(ValueFault::new(FaultCode::TooLong, format!("{} bytes are too long (max {bytes_max})", text.len())))
}

/// Splits text into words as a shell does, without expansion. No shell ever runs.
pub(super) fn words(text: &str) -> Checked<Vec<String>> {
    shell_words::split(text).map_err(|_| {
        let text = match open_quote(text) {
            Some((quote, offset)) => format!("the quote {quote} at character {} is never closed", offset + 1),
            None => "a backslash at the end has nothing to escape".to_owned(),
        };
        ValueFault::new(FaultCode::BadQuoting, text)
    })
}

/// A word of a command line, or a value after the name of its option.
pub(super) fn argument(text: &str) -> Checked<()> {
    at_most(text, ARGUMENT_BYTES_MAX)
}

/// The first word of a command line. A longer word than [`argument`] takes is that function's fault.
pub(super) fn program(text: &str) -> Checked<()> {
    if text.len() > ARGUMENT_BYTES_MAX { Ok(()) } else { at_most(text, PROGRAM_BYTES_MAX) }
}

/// The quote that is open at the end, and at which character it was opened.
fn open_quote(text: &str) -> Option<(char, usize)> {
    let mut open = None;
    let mut escaped = false;
    for (offset, c) in text.chars().enumerate() {
        match (open, c) {
            _ if escaped => escaped = false,
            (None | Some(('"', _)), '\\') => escaped = true,
            (None, '"' | '\'') => open = Some((c, offset)),
            (Some((quote, _)), _) if quote == c => open = None,
            _ => {}
        }
    }
    open
}

/// `user[:group]`, by name or number.
pub(super) fn user(text: &str) -> Checked<()> {
    matches_form(
        text,
        text.split(':').count() <= 2 && text.split(':').all(is_account),
        "user or user:group, by name or a number up to 2147483647",
    )?;
    argument(text)
}

/// A group, by name or number.
pub(super) fn group(text: &str) -> Checked<()> {
    // A keyword of Podman: all groups of the user that runs the engine.
    let fits = is_account(text) && text != "keep-groups";
    matches_form(text, fits, "a group, by name or a number up to 2147483647")?;
    argument(text)
}

/// The name or the number of a user or a group.
fn is_account(text: &str) -> bool {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    !text.is_empty()
        && !text.starts_with(['-', '.'])
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        // Docker's own limit.
        && (!is_number || text.parse::<i32>().is_ok())
}

/// An absolute path inside of a container.
pub(super) fn path(text: &str) -> Checked<()> {
    let fits = text.starts_with('/') && !text.chars().any(char::is_control) && text.len() <= PATH_BYTES_MAX;
    matches_form(text, fits, "an absolute path, such as /srv/data")
}

/// The name of a network.
pub(super) fn network(text: &str) -> Checked<()> {
    matches_form(text, is_docker_name(text), "the name of a network, such as bridge, none or host")
}

/// `os/arch[/variant]`.
pub(super) fn platform(text: &str) -> Checked<()> {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    let fits = (2..=3).contains(&text.split('/').count()) && text.split('/').all(is_part) && text.len() <= 64;
    matches_form(text, fits, "os/arch or os/arch/variant, such as linux/arm64")
}

/// `SIGTERM`, `TERM`, `SIGRTMIN+3` or a number.
pub(super) fn signal(text: &str) -> Checked<()> {
    if signal::number(text).is_some() {
        // Any number of zeros may stand before a number.
        return argument(text);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let form = match nearest(name, signal::NAMES.iter().map(|(known, _)| *known)) {
        Some(near) => format!("is not a signal: did you mean \"SIG{near}\"?"),
        None => "is not a signal, such as SIGINT or 2".to_owned(),
    };
    Err(ValueFault::input(FaultCode::InvalidValue, text, form))
}

/// The known word that was probably meant: at most two edits away, fewer for a short word.
pub(crate) fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    // Time and memory of the search grow with the length of the word.
    if word.len() > KNOWN_BYTES_MAX {
        return None;
    }
    let slips_max = 2.min(word.chars().count() / 2);
    let (slips, near) = known.map(|it| (strsim::damerau_levenshtein(word, it), it)).min()?;
    (slips <= slips_max).then_some(near)
}

/// A capability, as Docker names it: without `CAP_`.
pub(super) fn capability(text: &str) -> Checked<String> {
    let name = text.strip_prefix("CAP_").unwrap_or(text);
    if CAPABILITIES.contains(&name) {
        return Ok(name.to_owned());
    }
    let form = match nearest(&name.to_ascii_uppercase(), CAPABILITIES.into_iter()) {
        Some(near) => format!("is not a capability: did you mean \"{near}\"?"),
        None => "is not a capability in capitals, such as NET_BIND_SERVICE or ALL".to_owned(),
    };
    Err(ValueFault::input(FaultCode::InvalidValue, text, form))
}

/// A path and, after a colon, options for a memory file system.
pub(super) fn tmpfs(text: &str) -> Checked<()> {
    let (mount, options) = text.split_once(':').unwrap_or((text, ""));
    path(mount)?;
    let fits = options.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"=,.%_-".contains(&byte));
    matches_form(text, fits, "a path with options, such as /tmp:size=64m,mode=1777")?;
    argument(text)
}

pub(crate) fn is_docker_name(text: &str) -> bool {
    text.len() <= 255
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// True if a literal looks like a key or a token of a well-known service.
pub(super) fn looks_like_secret(text: &str) -> bool {
    let long_enough = text.len() >= 20 && !text.contains(char::is_whitespace);
    long_enough && SECRET_PREFIXES.iter().any(|prefix| text.starts_with(prefix))
}

/// True if the value of a variable with this name is usually a secret, as in `PGPASSWORD` and `AWS_SECRET_ACCESS_KEY`. The name or address
/// of a secret (`…_FILE`, `…_URL`) is none.
pub(super) fn names_a_secret(variable: &str) -> bool {
    let name = variable.to_ascii_uppercase();
    SECRET_NAMES.iter().any(|ending| name.ends_with(ending))
}

fn matches_form(text: &str, fits: bool, form: &str) -> Checked<()> {
    if fits {
        Ok(())
    } else {
        Err(ValueFault::input(FaultCode::InvalidValue, text, format!("is not {form}")))
    }
}

const SECRET_NAMES: [&str; 9] = [
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "_SECRET",
    "_TOKEN",
    "API_KEY",
    "ACCESS_KEY",
    "SECRET_KEY",
    "PRIVATE_KEY",
];
const NAME_BYTES_MAX: usize = 63;
/// No known word is longer.
const KNOWN_BYTES_MAX: usize = 32;
/// Docker takes 64 KiB per line of its environment file; half of it leaves room for the name.
const ENV_VALUE_BYTES_MAX: usize = 32 * 1024;
/// Linux takes at most 131,071 bytes as one word of a command line (MAX_ARG_STRLEN, including the NUL). The difference is room for an
/// option name before the value; the longest is `--stop-signal=`.
const ARGUMENT_BYTES_MAX: usize = 131_000;
/// PATH_MAX of Linux.
pub(super) const PATH_BYTES_MAX: usize = 4096;
/// All capabilities of Linux (capabilities(7)), and `ALL`.
const CAPABILITIES: [&str; 42] = [
    "ALL",
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "AUDIT_WRITE",
    "BLOCK_SUSPEND",
    "BPF",
    "CHECKPOINT_RESTORE",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "IPC_OWNER",
    "KILL",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_RAW",
    "PERFMON",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_CHROOT",
    "SYS_MODULE",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "WAKE_ALARM",
];
const SECRET_PREFIXES: [&str; 12] = [
    "AKIA",
    "ASIA",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "sk_live_",
    "npm_",
    "eyJ",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_open_quote_is_found() {
        assert_eq!(words("echo 'a b' \"c\"").map(|words| words.len()), Ok(3));
        let wrong = words("echo \"a b").expect_err("unbalanced");
        assert_eq!(
            (wrong.code, wrong.text.as_str()),
            (FaultCode::BadQuoting, "the quote \" at character 6 is never closed")
        );
    }

    #[test]
    fn a_signal_that_does_not_exist_is_refused_with_the_one_that_was_meant() {
        for (text, said) in [
            ("SIGFOO", "\"SIGFOO\" is not a signal, such as SIGINT or 2"),
            ("SIGTREM", "\"SIGTREM\" is not a signal: did you mean \"SIGTERM\"?"),
            ("kil", "\"kil\" is not a signal: did you mean \"SIGKILL\"?"),
            ("0", "\"0\" is not a signal, such as SIGINT or 2"),
        ] {
            assert_eq!(signal(text).map_err(|wrong| wrong.to_string()), Err(said.to_owned()));
        }
        for text in ["SIGTERM", "term", "RTMIN+15", "64"] {
            assert_eq!(signal(text), Ok(()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_value_panic(text in "\\PC{0,40}") {
            let _ = (job_name(&text), env_name(&text), words(&text), user(&text), path(&text), tmpfs(&text));
            let _ = (platform(&text), signal(&text), capability(&text), network(&text), looks_like_secret(&text));
        }
    }
}
