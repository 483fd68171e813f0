//! The part of a job that a worker needs: everything about its container.

use std::time::Duration;

use protocol::container::{ContainerSpec, MEMORY_BYTES_MAX, Resources, RuntimeKind};
use protocol::signal;

use super::fault::{Code, Place};
use super::grammar::{self, Wrong};
use super::keys;
use super::reader::Reader;
use super::scope::Scope;
use super::tree::Node;
use super::{image, pairs, volume};

/// Reads it. What depends on the policy after a loss (`ask_before_start`, `self_fence`) is left for the caller.
pub(super) fn read(scope: Scope<'_>, name_at: Place, is_job: bool, reader: &mut Reader<'_>) -> ContainerSpec {
    let runtime = match scope.find("runtime") {
        Some(node) => reader.choice(node, &keys::RUNTIMES),
        None => Some(RuntimeKind::default()),
    };
    let is_process = is_job && runtime == Some(RuntimeKind::Process);
    let scope = if is_process { scope.without_container(reader) } else { scope };
    let spec = ContainerSpec {
        runtime: runtime.unwrap_or_default(),
        image: text(scope, "image", image::check, reader).unwrap_or_default(),
        entrypoint: entrypoint(scope, reader),
        command: scope.find("command").and_then(|node| reader.words(node)).unwrap_or_default(),
        environment: pairs::environment(scope, reader),
        working_dir: text(scope, "working_dir", grammar::path, reader),
        user: loose_text(scope, "user", grammar::user, reader),
        volumes: volume::read(scope, reader),
        network: text(scope, "network", grammar::network, reader),
        tmpfs: tmpfs(scope, reader),
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
        log_bytes_max: log_bytes_max(scope, reader),
    };
    // What an unknown runtime needs is unknown, too.
    if is_job && runtime.is_some() {
        check_what_runs(&spec, scope, name_at, reader);
    }
    spec
}

fn check_what_runs(spec: &ContainerSpec, scope: Scope<'_>, name_at: Place, reader: &mut Reader<'_>) {
    match spec.runtime {
        RuntimeKind::Docker => {
            if scope.find("image").is_none() && !scope.has_misspelt("image") {
                reader.fault(name_at, Code::MissingField, "the job needs \"image\"");
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

fn check_program(spec: &ContainerSpec, scope: Scope<'_>, name_at: Place, reader: &mut Reader<'_>) {
    if spec.entrypoint.is_some() {
        return;
    }
    match scope.find("command") {
        Some(node) if spec.command.first().is_some_and(String::is_empty) => {
            reader.fault(node.at, Code::InvalidValue, "the command must name a program");
        }
        command if spec.command.is_empty() && command.is_none_or(Node::is_empty) => {
            let text = "the job needs \"command\", because its runtime is process";
            reader.fault(name_at, Code::MissingField, text);
        }
        _ => {}
    }
}

/// Docker looks a bare number up in the image, where mostly nobody has it; what is left is the group of root.
fn warn_of_group(spec: &ContainerSpec, scope: Scope<'_>, reader: &mut Reader<'_>) {
    let (Some(user), Some(node)) = (&spec.user, scope.find("user")) else { return };
    if user.parse::<u32>().is_ok_and(|number| number != 0) {
        let text = "a number alone runs with group 0, that of root, unless the image names a user of this number; \
                    name a group, too, such as 1000:1000";
        reader.collector.warning(node.at, Code::RootGroup, text);
    }
}

fn check_process_signal(spec: &ContainerSpec, scope: Scope<'_>, reader: &mut Reader<'_>) {
    let (Some(name), Some(node)) = (&spec.stop_signal, scope.find("stop_signal")) else { return };
    if signal::number(name).is_some_and(|number| number > signal::NAMED_MAX) {
        let text = format!(
            "a job with runtime process can be sent the signals 1 to {} only, those with a name of their own",
            signal::NAMED_MAX
        );
        reader.fault(node.at, Code::InvalidValue, text);
    }
}

fn entrypoint(scope: Scope<'_>, reader: &mut Reader<'_>) -> Option<Vec<String>> {
    let node = scope.find("entrypoint")?;
    let words = reader.words(node)?;
    if words.first().is_none_or(String::is_empty) {
        reader.fault(node.at, Code::InvalidValue, "the entrypoint must name a program");
        return None;
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

/// Sorted, each once: their order means nothing.
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
    }
}

fn log_bytes_max(scope: Scope<'_>, reader: &mut Reader<'_>) -> u64 {
    let part = scope.part("log", keys::LOG, reader);
    part.find("max_bytes")
        .and_then(|node| reader.size(node, LOG_BYTES_MIN, LOG_BYTES_MAX))
        .unwrap_or(LOG_BYTES)
}

fn text(
    scope: Scope<'_>,
    name: &str,
    check: fn(&str) -> Result<(), Wrong>,
    reader: &mut Reader<'_>,
) -> Option<String> {
    reader.checked_text(scope.find(name)?, check)
}

fn loose_text(
    scope: Scope<'_>,
    name: &str,
    check: fn(&str) -> Result<(), Wrong>,
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
/// As Docker's own.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// A job that takes longer to stop would hold up the draining of its worker.
const STOP_GRACE_MAX: Duration = Duration::from_secs(3600);
/// Docker's least share.
const CPUS_MILLI_MIN: u32 = 10;
const CPUS_MILLI_MAX: u32 = 1_024_000;
/// Docker's least memory.
const MEMORY_BYTES_MIN: u64 = 6 << 20;
const LOG_BYTES: u64 = 64 << 20;
/// Head and tail are kept; less than this would be neither.
const LOG_BYTES_MIN: u64 = 64 << 10;
/// The engine keeps up to twice as much beside it for a worker that must read the output again, which it can do at some 12 MB/s.
const LOG_BYTES_MAX: u64 = 512 << 20;
