//! Makes the `docker run` command line of an attempt. Pure.
//!
//! A user's text never becomes an option. Before `--` it only follows an `=` within the same argument; the image comes after `--`, and
//! Docker does not parse arguments after the image. Values of the environment go through `--env-file /dev/stdin`, so neither `ps` nor a
//! file of the worker shows them.

use std::time::Duration;

use protocol::Token;
use protocol::container::{ContainerSpec, Overrides, PROGRAM_BYTES_MAX, ULIMITS, UNLIMITED, Ulimit, Volume};
use protocol::resources::GPUS_VARIABLE;
use protocol::secret::SecretValue;
use worker::step::Launch;

use super::Membership;
use super::policy::{DROPPED, bare_capability, is_name};

/// A command line and the text for its standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The arguments of `docker`.
    pub args: Vec<String>,
    /// The environment file: `NAME=value` lines.
    pub environment: Vec<u8>,
}

/// A definition that cannot be written as a command line. Its text is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Invalid {
    /// The key of the definition.
    pub field: String,
    /// The problem, and the remedy.
    pub problem: String,
}

/// Makes the command line of an attempt. `deadline` is a Unix time in seconds after which the container must not run.
///
/// # Errors
/// Docker would misread a value.
pub fn docker_run(
    launch: &Launch,
    membership: Membership,
    deadline: Option<i64>,
) -> Result<CommandLine, Invalid> {
    let spec = &*launch.spec;
    check_program(launch)?;
    let mut args: Vec<String> = ["run", "--pull", "never", "--sig-proxy=false"].map(String::from).into();
    if spec.init {
        args.push("--init".into());
    }
    args.extend(["--name".into(), launch.token.container_name(membership.cluster)]);
    args.extend(labels(launch, membership, deadline)?);
    args.extend(["--stop-timeout".into(), seconds(spec.stop_grace).to_string()]);
    args.extend(logging(spec.log_bytes_max));
    args.extend(["--security-opt", "no-new-privileges"].map(String::from));
    args.extend(default_drops(spec).map(|it| format!("--cap-drop={it}")));
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
    words.extend(launch.overrides.iter().flat_map(|overrides| &overrides.args));

    args.extend(["--".into(), image(&spec.image)?.into()]);
    for word in words {
        args.push(checked("command", word)?.into());
    }
    Ok(CommandLine { args, environment: environment(launch)? })
}

/// Refuses a program for which `runc` would hang. Servers refuse it, too, but for definitions of older ones.
fn check_program(launch: &Launch) -> Result<(), Invalid> {
    let args = launch.overrides.as_ref().map_or(&[][..], |overrides| &overrides.args);
    let bytes = launch.spec.first_word(args).map_or(0, str::len);
    if bytes <= PROGRAM_BYTES_MAX {
        return Ok(());
    }
    let field = if launch.spec.entrypoint.is_some() { "entrypoint" } else { "command" };
    Err(invalid(field, format!("its first word has {bytes} bytes (max {PROGRAM_BYTES_MAX})")))
}

/// The environment of an attempt: the definition's with its secret variables, overridden by the job's, overridden by the variables that
/// name the attempt.
///
/// # Errors
/// A name or a value that neither an environment nor an environment file can hold.
pub fn merged_environment<'l>(launch: &'l Launch) -> Result<Vec<(&'l str, String)>, Invalid> {
    let own = own_environment(launch.token);
    let added = launch.overrides.iter().flat_map(|Overrides { environment, .. }| environment);
    let given = |(name, value): &'l (String, String)| (name.as_str(), value.clone());
    let defined = launch.spec.environment.iter().map(given).chain(secret_variables(launch)?);
    let mut merged: Vec<(&str, String)> = Vec::new();
    for (name, value) in defined.chain(added.map(given)).chain(own) {
        check_variable(name, &value)?;
        match merged.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => merged.push((name, value)),
        }
    }
    Ok(merged)
}

fn secret_variables(launch: &Launch) -> Result<Vec<(&str, String)>, Invalid> {
    let mut variables = Vec::new();
    for (name, SecretValue(value)) in &launch.secrets.variables {
        let text = str::from_utf8(value);
        let text = text.map_err(|_| {
            invalid(&format!("environment.{name}"), "its secret is no text; use a file".into())
        })?;
        variables.push((name.as_str(), text.to_owned()));
    }
    Ok(variables)
}

/// The option that gives a container its GPUs; `None` if none is reserved for it. Its value is a line of CSV, hence the quotes.
#[must_use]
pub fn gpus_option(launch: &Launch) -> Option<String> {
    if launch.spec.resources.gpus == 0 {
        return None;
    }
    let (_, ids) = launch.spec.environment.iter().find(|(name, _)| name == GPUS_VARIABLE)?;
    Some(format!("--gpus=\"device={ids}\""))
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
    let mask = (!launch.spec.log_mask.is_empty()).then(|| (MASK_LABEL, json_of(&launch.spec.log_mask)));
    let secrets = (!launch.secrets.is_empty()).then(|| (SECRETS_LABEL, "true".to_owned()));
    let self_fence = launch.spec.self_fence.map(|after| (SELF_FENCE_LABEL, after.as_millis().to_string()));
    labels.extend(
        own.into_iter()
            .chain(deadline)
            .chain(mask)
            .chain(secrets)
            .chain(self_fence)
            .map(|(key, value)| format!("--label={LABEL_PREFIX}{key}={value}")),
    );
    Ok(labels)
}

fn json_of(patterns: &[String]) -> String {
    serde_json::Value::from(patterns.to_vec()).to_string()
}

/// Limits the engine's own log, which is only read if the attempt's files are incomplete. Two files of this size hold more than is kept of
/// the output, even as lines of JSON.
fn logging(log_bytes_max: u64) -> [String; 6] {
    let (size, files) =
        (format!("max-size={}", log_file_bytes(log_bytes_max)), format!("max-file={LOG_FILES}"));
    ["--log-driver", "json-file", "--log-opt", &size, "--log-opt", &files].map(String::from)
}

/// Size of one of the engine's [`LOG_FILES`] for a definition that keeps this much.
pub(super) fn log_file_bytes(log_bytes_max: u64) -> u64 {
    log_bytes_max.clamp(LOG_FILE_BYTES_MIN, LOG_FILE_BYTES_MAX)
}

/// The capabilities that a container does not get because its definition asks for neither of them.
fn default_drops(spec: &ContainerSpec) -> impl Iterator<Item = &'static str> {
    let named =
        |list: &[String], name: &str| list.iter().any(|it| [name, "ALL"].contains(&&*bare_capability(it)));
    DROPPED.into_iter().filter(move |it| !named(&spec.cap_add, it) && !named(&spec.cap_drop, it))
}

fn options(spec: &ContainerSpec) -> Result<Vec<String>, Invalid> {
    let mut options = Vec::new();
    let mut option = |flag: &str, field: &str, value: &str| -> Result<(), Invalid> {
        options.push(format!("--{flag}={}", checked(field, value)?));
        Ok(())
    };
    let named = &*spec.options;
    for (flag, field, value) in [
        ("network", "network", &spec.network),
        ("workdir", "working_dir", &spec.working_dir),
        ("user", "user", &spec.user),
        ("platform", "platform", &spec.platform),
        ("stop-signal", "stop_signal", &spec.stop_signal),
        ("hostname", "hostname", &named.hostname),
    ] {
        if let Some(value) = value {
            option(flag, field, value)?;
        }
    }
    for (flag, field, values) in [
        ("tmpfs", "tmpfs", &spec.tmpfs),
        ("cap-add", "cap_add", &spec.cap_add),
        ("cap-drop", "cap_drop", &spec.cap_drop),
        ("dns", "dns", &named.dns),
        ("dns-search", "dns_search", &named.dns_search),
        ("group-add", "group_add", &named.group_add),
    ] {
        for value in values {
            option(flag, field, value)?;
        }
    }
    for (name, address) in &named.extra_hosts {
        option("add-host", "extra_hosts", &format!("{name}:{address}"))?;
    }
    // A keyword of Podman: all groups of the worker's user.
    if named.group_add.iter().any(|group| group == "keep-groups") {
        return Err(invalid("group_add", "`keep-groups` is not a group".into()));
    }
    for ulimit in &named.ulimits {
        option("ulimit", "ulimits", &limit(ulimit)?)?;
    }
    for volume in &spec.volumes {
        option("mount", "volumes", &mount(volume)?)?;
    }
    if let Some(memory) = spec.resources.memory_bytes {
        // The same number for memory and swap forbids swap.
        options.extend([format!("--memory={memory}"), format!("--memory-swap={memory}")]);
    }
    if let Some(milli) = spec.resources.cpus_milli {
        options.push(format!("--cpus={}.{:03}", milli / 1000, milli % 1000));
    }
    if let Some(bytes) = spec.shm_bytes {
        options.push(format!("--shm-size={bytes}"));
    }
    if spec.read_only {
        options.push("--read-only".into());
    }
    Ok(options)
}

/// Refuses limits with other names, `core` above all: a later `--ulimit` replaces an earlier one.
fn limit(Ulimit { name, soft, hard }: &Ulimit) -> Result<String, Invalid> {
    if !ULIMITS.contains(&name.as_str()) || *soft < UNLIMITED || *hard < UNLIMITED {
        return Err(invalid("ulimits", format!("`{}={soft}:{hard}` is not a limit", shortened(name))));
    }
    Ok(format!("{name}={soft}:{hard}"))
}

/// Uses `--mount` rather than `-v`: a missing source is then an error, not a new directory. The value is a line of CSV.
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
    // A line break would end the line of CSV, and the fields after it, such as `readonly`, would be lost.
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

fn environment(launch: &Launch) -> Result<Vec<u8>, Invalid> {
    let mut file = Vec::new();
    for (name, value) in merged_environment(launch)? {
        file.extend_from_slice(format!("{name}={value}\n").as_bytes());
    }
    Ok(file)
}

/// Refuses variables that Docker's parser or the kernel would change.
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

/// The beginning of a text from a definition, for a message.
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(80).collect::<String>().escape_debug().to_string()
}

fn invalid(field: &str, problem: String) -> Invalid {
    Invalid { field: field.into(), problem }
}

/// Docker counts in whole seconds. It is rounded up, because zero would kill at once.
pub(super) fn seconds(grace: Duration) -> u64 {
    grace.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)
}

/// Prefix of the worker's labels; a definition cannot set them.
pub(super) const LABEL_PREFIX: &str = "longshore.";

/// The label with the patterns of `log.mask`, without its prefix: an attempt whose directory is lost is masked by it.
pub(super) const MASK_LABEL: &str = "log_mask";

/// The label of a container that got secrets, without its prefix: if the directory of its attempt is lost, so are their values, and nothing of
/// its output can be sent.
pub(super) const SECRETS_LABEL: &str = "secrets";

/// The label with `self_fence` in milliseconds, without its prefix.
pub(super) const SELF_FENCE_LABEL: &str = "self_fence_ms";

/// The default of `log.max_bytes`.
const LOG_FILE_BYTES_MIN: u64 = 64 << 20;
/// The largest `log.max_bytes`: an engine returns this much within a minute.
const LOG_FILE_BYTES_MAX: u64 = 512 << 20;
/// Number of log files that the engine keeps of a container.
pub(super) const LOG_FILES: u64 = 2;

/// Default limit of processes and threads: enough for anything but a fork bomb.
const PIDS_MAX: u32 = 4096;

/// Longest name and longest value of a variable: Docker's parser refuses lines above 64 KiB.
const NAME_BYTES_MAX: usize = 128;
const VALUE_BYTES_MAX: usize = 32 * 1024;

#[cfg(test)]
mod tests;
