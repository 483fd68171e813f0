//! The part of a job that a worker needs: the container.

mod options;

use std::time::Duration;

use protocol::container::{ContainerSpec, MEMORY_BYTES_MAX, Resources, RuntimeKind};
use protocol::resources::{RESOURCE_NAME_BYTES_MAX, RESOURCES_MAX, is_resource_name};
use protocol::signal;
use protocol::wire::Unsent;
use scheduler::params::Word;

use super::fault::{FaultCode, Position};
use super::grammar::{self, ValueFault};
use super::keys;
use super::reader::Reader;
use super::scope::Scope;
use super::tree::{Node, Value};
use super::{command_advice, image, input, log, pairs, volume};

/// The places of a job that name parameters and secrets.
#[derive(Debug, Default)]
pub(super) struct ParamUses {
    /// The words of the command from the first one that is a parameter.
    pub(super) command: Vec<(Position, Word)>,
    /// Names of variables, each with its parameter and the position of the reference.
    pub(super) environment: Vec<(String, (Position, String))>,
    /// Names of variables, each with its secret and the position of the reference.
    pub(super) secrets: Vec<(String, (Position, String))>,
}

/// Reads the container keys. The caller sets the keys that depend on the loss policy (`ask_before_start`, `self_fence`).
pub(super) fn read(
    scope: Scope<'_>,
    name_at: Position,
    is_job: bool,
    reader: &mut Reader<'_>,
) -> (ContainerSpec, ParamUses) {
    let runtime = match scope.find("runtime") {
        Some(node) => reader.choice(node, &keys::RUNTIMES),
        None => Some(RuntimeKind::default()),
    };
    let is_process = is_job && runtime == Some(RuntimeKind::Process);
    let scope = if is_process { scope.for_plain_process(reader) } else { scope };
    let (command, words) = command(scope, reader);
    let variables = pairs::environment(scope, reader);
    let log = log::read(scope, reader);
    let mut spec = ContainerSpec {
        runtime: runtime.unwrap_or_default(),
        image: text(scope, "image", image::check, reader).unwrap_or_default(),
        entrypoint: entrypoint(scope, reader),
        command,
        environment: variables.fixed,
        working_dir: text(scope, "working_dir", grammar::path, reader),
        user: loose_text(scope, "user", grammar::user, reader),
        volumes: volume::read(scope, reader),
        network: text(scope, "network", grammar::network, reader),
        tmpfs: tmpfs(scope, reader),
        shm_bytes: scope.find("shm_size").and_then(|node| reader.size(node, SHM_BYTES_MIN, MEMORY_BYTES_MAX)),
        read_only: flag(scope, "read_only", reader).unwrap_or(false),
        cap_add: capabilities(scope, "cap_add", reader),
        cap_drop: capabilities(scope, "cap_drop", reader),
        init: flag(scope, "init", reader).unwrap_or(true),
        platform: text(scope, "platform", grammar::platform, reader),
        labels: pairs::labels(scope, reader),
        pull_policy: scope
            .find("pull_policy")
            .and_then(|node| reader.choice(node, &keys::PULL_POLICIES))
            .unwrap_or_default(),
        pull_timeout: duration(scope, "pull_timeout", keys::DURATION_MAX, reader).unwrap_or(PULL_TIMEOUT),
        resources: resources(scope, reader),
        stop_signal: loose_text(scope, "stop_signal", grammar::signal, reader),
        stop_grace: duration(scope, "stop_grace_period", STOP_GRACE_MAX, reader).unwrap_or(STOP_GRACE),
        ask_before_start: false,
        self_fence: None,
        log_bytes_max: log.bytes_max,
        log_mask: log.mask,
        input: scope.find("input").and_then(|node| input::read(node, reader)),
        options: Unsent(options::read(scope, reader)),
    };
    let profile = scope.find("profile").and_then(|node| reader.choice(node, &keys::PROFILES));
    if profile == Some(keys::Profile::Restricted) {
        restrict(&mut spec, scope);
    }
    // The needs of an unknown runtime are unknown as well.
    if is_job && runtime.is_some() {
        check_program_source(&spec, scope, name_at, reader);
    }
    // In `defaults` it may stand after the entrypoint of a job.
    if is_job
        && spec.entrypoint.is_none()
        && let (Some(node), Some(program)) = (scope.find("command"), spec.command.first())
    {
        reader.accept(node.at, grammar::program(program));
    }
    (spec, ParamUses { command: words, environment: variables.from_params, secrets: variables.from_secrets })
}

/// The command up to the first word that is a parameter, and the words from there on.
fn command(scope: Scope<'_>, reader: &mut Reader<'_>) -> (Vec<String>, Vec<(Position, Word)>) {
    let node = scope.find("command");
    let words = node.and_then(|node| reader.command(node)).unwrap_or_default();
    if let Some(node) = node {
        command_advice::warn(node, &words, scope.find("entrypoint").is_some(), reader);
    }
    let mut fixed = Vec::new();
    let mut rest = words.into_iter().peekable();
    while let Some((_, Word::Text(text))) = rest.next_if(|(_, word)| matches!(word, Word::Text(_))) {
        fixed.push(text);
    }
    (fixed, rest.collect())
}

/// Applies the restricted profile to everything for which no value is written.
fn restrict(spec: &mut ContainerSpec, scope: Scope<'_>) {
    let is_absent = |name: &str| scope.find(name).is_none();
    if is_absent("network") {
        spec.network = Some("none".to_owned());
    }
    if is_absent("cap_drop") {
        spec.cap_drop = vec!["ALL".to_owned()];
    }
    if is_absent("read_only") {
        spec.read_only = true;
    }
    if is_absent("tmpfs") {
        spec.tmpfs = vec![RESTRICTED_TMPFS.to_owned()];
    }
    let resources = &mut spec.resources;
    resources.memory_bytes.get_or_insert(RESTRICTED_MEMORY_BYTES);
    resources.cpus_milli.get_or_insert(RESTRICTED_CPUS_MILLI);
    resources.pids.get_or_insert(RESTRICTED_PIDS);
}

/// The restricted profile: a `/tmp` in memory, where the root file system is read-only.
const RESTRICTED_TMPFS: &str = "/tmp:rw,exec,nosuid,nodev,size=64m,mode=1777";
const RESTRICTED_MEMORY_BYTES: u64 = 256 << 20;
const RESTRICTED_CPUS_MILLI: u32 = 1_000;
const RESTRICTED_PIDS: u32 = 256;

fn check_program_source(spec: &ContainerSpec, scope: Scope<'_>, name_at: Position, reader: &mut Reader<'_>) {
    match spec.runtime {
        RuntimeKind::Docker => {
            if scope.find("image").is_none() && !scope.has_misspelt("image") {
                reader.fault(name_at, FaultCode::MissingField, "the job needs \"image\"");
            }
            warn_of_group(spec, scope, reader);
        }
        RuntimeKind::Process => {
            check_program(spec, scope, name_at, reader);
            check_process_signal(spec, scope, reader);
        }
        RuntimeKind::Fake => {}
    }
}

fn check_program(spec: &ContainerSpec, scope: Scope<'_>, name_at: Position, reader: &mut Reader<'_>) {
    if spec.entrypoint.is_some() {
        return;
    }
    match scope.find("command") {
        Some(node) if spec.command.first().is_some_and(String::is_empty) => {
            reader.fault(node.at, FaultCode::InvalidValue, "the command must name a program");
        }
        Some(node) if node.has_any_at(&reader.left_out) => {}
        Some(node) if spec.command.is_empty() && !node.is_empty() => {
            let text = "a parameter cannot name the program of a process";
            reader.fault(node.at, FaultCode::InvalidParam, text);
        }
        command if spec.command.is_empty() && command.is_none_or(Node::is_empty) => {
            let text = "the job needs \"command\", because its runtime is process";
            reader.fault(name_at, FaultCode::MissingField, text);
        }
        _ => {}
    }
}

/// Warns of a numeric user without a group: Docker looks the number up in the image, usually finds nothing, and uses the group of root.
fn warn_of_group(spec: &ContainerSpec, scope: Scope<'_>, reader: &mut Reader<'_>) {
    let (Some(user), Some(node)) = (&spec.user, scope.find("user")) else { return };
    if user.parse::<u32>().is_ok_and(|number| number != 0) {
        let text = "a number alone runs with group 0, that of root, unless the image names a user of this number; \
                    name a group, too, such as 1000:1000";
        reader.collector.warning(node.at, FaultCode::RootGroup, text);
    }
}

fn check_process_signal(spec: &ContainerSpec, scope: Scope<'_>, reader: &mut Reader<'_>) {
    let (Some(name), Some(node)) = (&spec.stop_signal, scope.find("stop_signal")) else { return };
    if signal::number(name).is_some_and(|number| number > signal::NAMED_MAX) {
        let text = format!(
            "a job with runtime process can be sent the signals 1 to {} only, those with a name of their own",
            signal::NAMED_MAX
        );
        reader.fault(node.at, FaultCode::InvalidValue, text);
    }
}

fn entrypoint(scope: Scope<'_>, reader: &mut Reader<'_>) -> Option<Vec<String>> {
    let node = scope.find("entrypoint")?;
    let words = reader.words(node)?;
    if node.has_any_at(&reader.left_out) {
        return Some(words);
    }
    if words.first().is_none_or(String::is_empty) {
        reader.fault(node.at, FaultCode::InvalidValue, "the entrypoint must name a program");
        return None;
    }
    if let Some(program) = words.first() {
        reader.accept(node.at, grammar::program(program));
    }
    Some(words)
}

fn tmpfs(scope: Scope<'_>, reader: &mut Reader<'_>) -> Vec<String> {
    let Some(node) = scope.find("tmpfs") else { return Vec::new() };
    let mounts = reader.texts(node);
    for (at, mount) in &mounts {
        reader.accept(*at, grammar::tmpfs(mount).and_then(|()| volume::check_tmpfs(mount)));
    }
    mounts.into_iter().map(|(_, mount)| mount).collect()
}

/// Sorted and without repetitions: the order has no meaning.
fn capabilities(scope: Scope<'_>, name: &str, reader: &mut Reader<'_>) -> Vec<String> {
    let Some(node) = scope.find(name) else { return Vec::new() };
    let texts = reader.texts(node);
    let mut names: Vec<_> =
        texts.iter().filter_map(|(at, text)| reader.accept(*at, grammar::capability(text))).collect();
    names.sort();
    names.dedup();
    names
}

fn resources(scope: Scope<'_>, reader: &mut Reader<'_>) -> Resources {
    let part = scope.part("resources", keys::RESOURCES, reader);
    Resources {
        cpus_milli: part
            .find("cpus")
            .and_then(|node| reader.thousandths(node, CPUS_MILLI_MIN, CPUS_MILLI_MAX)),
        memory_bytes: part
            .find("memory")
            .and_then(|node| reader.size(node, MEMORY_BYTES_MIN, MEMORY_BYTES_MAX)),
        pids: part.find("pids").and_then(|node| u32::try_from(reader.integer(node, keys::PIDS)?).ok()),
        gpus: part
            .find("gpus")
            .and_then(|node| u32::try_from(reader.integer(node, keys::GPUS)?).ok())
            .unwrap_or(0),
        custom: part.find("custom").map(|node| custom_resources(node, reader)).unwrap_or_default(),
    }
}

/// Amounts by name, sorted: the order has no meaning.
fn custom_resources(node: &Node, reader: &mut Reader<'_>) -> Vec<(String, u32)> {
    let Value::Map(map) = &node.value else {
        reader.wrong_type(node, "a map of names to amounts, such as {license: 1}");
        return Vec::new();
    };
    if map.pairs.len() > RESOURCES_MAX {
        let text = format!("{} resources are too many (max {RESOURCES_MAX})", map.pairs.len());
        reader.fault(node.at, FaultCode::TooLong, text);
    }
    let amounts = map.pairs.iter().filter_map(|pair| {
        let amount = reader.integer(&pair.value, keys::AMOUNTS)?;
        if !is_resource_name(&pair.key) {
            let form = format!("must be 1 to {RESOURCE_NAME_BYTES_MAX} of A-Z a-z 0-9 . _ : - and begin with a letter or a digit");
            let wrong: Result<(), ValueFault> = Err(ValueFault::input(FaultCode::InvalidValue, &pair.key, form));
            reader.accept(pair.key_at, wrong)?;
        }
        Some((pair.key.clone(), u32::try_from(amount).ok()?))
    });
    let mut amounts: Vec<(String, u32)> = amounts.collect();
    amounts.sort();
    amounts
}

fn text(
    scope: Scope<'_>,
    name: &str,
    check: fn(&str) -> Result<(), ValueFault>,
    reader: &mut Reader<'_>,
) -> Option<String> {
    reader.checked_text(scope.find(name)?, check)
}

fn loose_text(
    scope: Scope<'_>,
    name: &str,
    check: fn(&str) -> Result<(), ValueFault>,
    reader: &mut Reader<'_>,
) -> Option<String> {
    let node = scope.find(name)?;
    let text = reader.loose_text(node)?;
    reader.accept(node.at, check(&text))?;
    Some(text)
}

fn flag(scope: Scope<'_>, name: &str, reader: &mut Reader<'_>) -> Option<bool> {
    reader.bool(scope.find(name)?)
}

fn duration(scope: Scope<'_>, name: &str, to: Duration, reader: &mut Reader<'_>) -> Option<Duration> {
    reader.duration(scope.find(name)?, keys::DURATION_MIN, to)
}

const PULL_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Docker's own default.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// A job that takes longer to stop would hold up the draining of its worker.
const STOP_GRACE_MAX: Duration = Duration::from_secs(3600);
/// Docker's minimum.
const CPUS_MILLI_MIN: u32 = 10;
const CPUS_MILLI_MAX: u32 = 1_024_000;
/// Docker's minimum.
const MEMORY_BYTES_MIN: u64 = 6 << 20;
/// A page, in which the kernel counts.
const SHM_BYTES_MIN: u64 = 4 << 10;
