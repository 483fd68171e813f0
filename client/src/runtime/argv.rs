//! One attempt → one `docker run` command line. Pure.
//!
//! The one idea: nothing that a user wrote can become an option. Before `--` a user's value only ever follows an `=` within the same
//! argument; the image comes after `--`, and what follows the image is never parsed. Values of the environment are no arguments at
//! all: they go through `--env-file /dev/stdin`, so neither `ps` nor a file of ours shows them.

use std::time::Duration;

use protocol::Token;
use protocol::container::{Body, ContainerSpec, Volume};
use worker::step::Launch;

use super::Membership;

/// What to run, and what to write to its standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The words after `docker`.
    pub args: Vec<String>,
    /// The file of the environment: `NAME=value` lines.
    pub environment: Vec<u8>,
}

/// Why a definition cannot be written as a command line. Its text is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Invalid {
    /// Which part of the definition.
    pub field: String,
    /// What is wrong with it, and what to do.
    pub problem: String,
}

/// The command line of an attempt. `deadline` is the second since 1970 after which nobody wants it to run any more.
///
/// # Errors
/// A value that Docker would read as something else than it says.
pub fn docker_run(
    launch: &Launch,
    membership: Membership,
    deadline: Option<i64>,
) -> Result<CommandLine, Invalid> {
    let spec = &*launch.spec;
    let mut args: Vec<String> = ["run", "--pull", "never"].map(String::from).into();
    if spec.init {
        args.push("--init".into());
    }
    args.extend(["--name".into(), launch.token.container_name(membership.cluster)]);
    args.extend(labels(launch, membership, deadline)?);
    args.extend(["--stop-timeout".into(), seconds(spec.stop_grace).to_string()]);
    args.extend(logging(spec.log_bytes_max));
    args.extend(["--security-opt", "no-new-privileges"].map(String::from));
    args.push(format!("--pids-limit={}", spec.resources.pids.unwrap_or(PIDS_MAX)));
    args.extend(["--ulimit", "core=0", "--env-file", "/dev/stdin"].map(String::from));
    args.extend(options(spec)?);

    let mut words = Vec::new();
    if let Some(entrypoint) = &spec.entrypoint {
        let (program, rest) =
            entrypoint.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
        args.push(format!("--entrypoint={}", checked("entrypoint", program)?));
        words.extend(rest);
    }
    words.extend(&spec.command);
    words.extend(launch.body.iter().flat_map(|body| &body.args));

    args.extend(["--".into(), image(&spec.image)?.into()]);
    for word in words {
        args.push(checked("command", word)?.into());
    }
    Ok(CommandLine { args, environment: environment(launch)? })
}

/// The environment of an attempt: the definition's, over it the job's, over both what names the attempt.
///
/// # Errors
/// A name or a value that no environment, or no file of one, can hold.
pub fn merged_environment(launch: &Launch) -> Result<Vec<(&str, String)>, Invalid> {
    let own = own_environment(launch.token);
    let defined = launch.spec.environment.iter();
    let added = launch.body.iter().flat_map(|Body { environment, .. }| environment);
    let mut merged: Vec<(&str, String)> = Vec::new();
    let given = defined.chain(added).map(|(name, value)| (name.as_str(), value.clone()));
    for (name, value) in given.chain(own) {
        check_variable(name, &value)?;
        match merged.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => merged.push((name, value)),
        }
    }
    Ok(merged)
}

fn own_environment(token: Token) -> [(&'static str, String); 2] {
    [("LONGSHORE_JOB", token.job.to_string()), ("LONGSHORE_ATTEMPT", token.fence.to_string())]
}

fn labels(launch: &Launch, membership: Membership, deadline: Option<i64>) -> Result<Vec<String>, Invalid> {
    let Token { job, fence, nonce } = launch.token;
    let mut labels = Vec::new();
    for (key, value) in &launch.spec.labels {
        if key.starts_with(LABEL_PREFIX) || key.is_empty() || key.contains('=') {
            return Err(invalid("labels", format!("`{}` cannot be a label here", key.escape_debug())));
        }
        labels.push(format!("--label={}={}", checked("labels", key)?, checked("labels", value)?));
    }
    let own = [
        ("managed", "true".to_owned()),
        ("cluster", membership.cluster.to_string()),
        ("worker", membership.worker.to_string()),
        ("job", job.to_string()),
        ("fence", fence.to_string()),
        ("nonce", nonce.to_string()),
        ("definition", launch.name.to_string()),
    ];
    let deadline = deadline.map(|at| ("deadline", at.to_string()));
    labels.extend(
        own.into_iter().chain(deadline).map(|(key, value)| format!("--label={LABEL_PREFIX}{key}={value}")),
    );
    Ok(labels)
}

/// The engine's own copy of the output, which is only read where the attempt's files are not complete. It is bounded, but two files of
/// this size hold more than is kept of the output, even as lines of JSON: what is kept must not be gone there.
fn logging(log_bytes_max: u64) -> [String; 6] {
    let (size, files) =
        (format!("max-size={}", log_file_bytes(log_bytes_max)), format!("max-file={LOG_FILES}"));
    ["--log-driver", "json-file", "--log-opt", &size, "--log-opt", &files].map(String::from)
}

/// How long one of the engine's [`LOG_FILES`] becomes for a definition that keeps this much.
pub(super) fn log_file_bytes(log_bytes_max: u64) -> u64 {
    log_bytes_max.clamp(LOG_FILE_BYTES_MIN, LOG_FILE_BYTES_MAX)
}

fn options(spec: &ContainerSpec) -> Result<Vec<String>, Invalid> {
    let mut options = Vec::new();
    let mut option = |flag: &str, field: &str, value: &str| -> Result<(), Invalid> {
        options.push(format!("--{flag}={}", checked(field, value)?));
        Ok(())
    };
    for (flag, field, value) in [
        ("network", "network", &spec.network),
        ("workdir", "working_dir", &spec.working_dir),
        ("user", "user", &spec.user),
        ("platform", "platform", &spec.platform),
        ("stop-signal", "stop_signal", &spec.stop_signal),
    ] {
        if let Some(value) = value {
            option(flag, field, value)?;
        }
    }
    for (flag, field, values) in [
        ("tmpfs", "tmpfs", &spec.tmpfs),
        ("cap-add", "cap_add", &spec.cap_add),
        ("cap-drop", "cap_drop", &spec.cap_drop),
    ] {
        for value in values {
            option(flag, field, value)?;
        }
    }
    for volume in &spec.volumes {
        option("mount", "volumes", &mount(volume)?)?;
    }
    if let Some(memory) = spec.resources.memory_bytes {
        // The same number twice forbids swap.
        options.extend([format!("--memory={memory}"), format!("--memory-swap={memory}")]);
    }
    if let Some(milli) = spec.resources.cpus_milli {
        options.push(format!("--cpus={}.{:03}", milli / 1000, milli % 1000));
    }
    if spec.read_only {
        options.push("--read-only".into());
    }
    Ok(options)
}

/// `--mount` rather than `-v`: a missing source is an error, not a directory that root owns. It takes a line of CSV.
fn mount(volume: &Volume) -> Result<String, Invalid> {
    let kind = if volume.is_bind() { "bind" } else { "volume" };
    if !volume.is_bind() && !is_name(&volume.source) {
        let problem = format!(
            "`{}` is neither an absolute path nor the name of a volume",
            volume.source.escape_debug()
        );
        return Err(invalid("volumes", problem));
    }
    if !volume.target.starts_with('/') {
        return Err(invalid("volumes", format!("`{}` is no absolute path", volume.target.escape_debug())));
    }
    // A line break would end the line of CSV, and what comes after it, `readonly` among them, would be lost.
    for path in [&volume.source, &volume.target] {
        if path.contains(char::is_control) {
            return Err(invalid("volumes", format!("`{}` has a control character", path.escape_debug())));
        }
    }
    let fields = [format!("type={kind}"), quoted("source", &volume.source), quoted("target", &volume.target)];
    let read_only = if volume.read_only { ",readonly" } else { "" };
    Ok(format!("{}{read_only}", fields.join(",")))
}

fn quoted(key: &str, value: &str) -> String {
    if value.contains([',', '"']) {
        format!("\"{key}={}\"", value.replace('"', "\"\""))
    } else {
        format!("{key}={value}")
    }
}

/// What Docker takes as the name of a volume or a network, and as nothing else.
pub(super) fn is_name(name: &str) -> bool {
    name.starts_with(|it: char| it.is_ascii_alphanumeric())
        && name.chars().all(|it| it.is_ascii_alphanumeric() || "_.-".contains(it))
}

fn environment(launch: &Launch) -> Result<Vec<u8>, Invalid> {
    let mut file = Vec::new();
    for (name, value) in merged_environment(launch)? {
        file.extend_from_slice(format!("{name}={value}\n").as_bytes());
    }
    Ok(file)
}

/// What Docker's reader of such files, or the kernel, would not give to the program as it was written.
fn check_variable(name: &str, value: &str) -> Result<(), Invalid> {
    let fits = |it: char| it.is_ascii_alphanumeric() || it == '_';
    if name.is_empty()
        || name.len() > NAME_BYTES_MAX
        || !name.chars().all(fits)
        || name.starts_with(|it: char| it.is_ascii_digit())
    {
        return Err(invalid("environment", format!("`{}` is no name of a variable", shortened(name))));
    }
    // The value may be a secret: it is never part of the message.
    let problem = if value.contains('\n') || value.ends_with('\r') {
        "its value has a line break; mount a file or use base64"
    } else if value.contains('\0') {
        "its value has a NUL byte"
    } else if value.len() > VALUE_BYTES_MAX {
        "its value is longer than 32 KiB; mount a file"
    } else {
        return Ok(());
    };
    Err(invalid(&format!("environment.{name}"), problem.into()))
}

fn image(image: &str) -> Result<&str, Invalid> {
    let problem = if image.is_empty() {
        "is missing"
    } else if image.starts_with('-') {
        "must not start with `-`"
    } else if image.contains(|it: char| it.is_control() || it.is_whitespace()) {
        "must not contain blanks or control characters"
    } else {
        return Ok(image);
    };
    Err(invalid("image", problem.into()))
}

fn checked<'a>(field: &str, value: &'a str) -> Result<&'a str, Invalid> {
    if value.contains('\0') { Err(invalid(field, "has a NUL byte".into())) } else { Ok(value) }
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect::<String>().escape_debug().to_string()
}

fn invalid(field: &str, problem: String) -> Invalid {
    Invalid { field: field.into(), problem }
}

/// Docker counts in whole seconds; a grace of zero would be no grace.
pub(super) fn seconds(grace: Duration) -> u64 {
    grace.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)
}

/// Labels of ours; a definition cannot set them.
pub(super) const LABEL_PREFIX: &str = "longshore.";

/// What a definition keeps if it does not say.
const LOG_FILE_BYTES_MIN: u64 = 64 << 20;
/// What a definition can keep at most: it is what an engine tells again within a minute.
const LOG_FILE_BYTES_MAX: u64 = 512 << 20;
/// How many of them the engine has of a container.
pub(super) const LOG_FILES: u64 = 2;

/// Processes and threads of a container whose definition names no number: room for anything but a fork bomb.
const PIDS_MAX: u32 = 4096;

/// Longest name of a variable, and longest value: Docker's reader refuses lines above 64 KiB.
const NAME_BYTES_MAX: usize = 128;
const VALUE_BYTES_MAX: usize = 32 * 1024;

#[cfg(test)]
mod tests;
