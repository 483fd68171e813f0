//! Classifies failed starts by Docker's message: the definition's fault or the host's. Pure.

use worker::input::StartFailure;

/// The fault behind Docker's refusal to make a container. It is the definition's, unless the message is about something that differs
/// between machines.
pub(super) fn fault_of(message: &str) -> StartFailure {
    let is_hosts = message.is_empty()
        || is_about_disk(message)
        || says(message, &HOST_FAULTS)
        || says(message, &ELSEWHERE);
    if is_hosts && !is_definition_fault(message) { StartFailure::Host } else { StartFailure::Definition }
}

/// `true` if the message is about this machine's disk.
pub(super) fn is_about_disk(message: &str) -> bool {
    says(message, &DISK_FAULTS)
}

/// `true` if the message proves the definition wrong on every machine.
pub(super) fn is_definition_fault(message: &str) -> bool {
    says(message, &DEFINITION_FAULTS)
}

fn says(message: &str, phrases: &[&str]) -> bool {
    let message = message.to_lowercase();
    phrases.iter().any(|phrase| message.contains(phrase))
}

/// Messages about definitions that no machine could start. All phrases are in lower case.
const DEFINITION_FAULTS: [&str; 12] = [
    "executable file not found",
    "no such file or directory: unknown",
    "permission denied: unknown",
    "unable to find user",
    "unable to find group",
    "no matching entries in passwd file",
    "no matching entries in group file",
    "invalid reference format",
    "minimum memory limit",
    "invalid argument",
    "no command specified",
    "is not an absolute path",
];

/// A source of a mount, a network or a driver is missing on this machine; another one may have it.
const ELSEWHERE: [&str; 2] = ["bind source path does not exist", "not found"];

const DISK_FAULTS: [&str; 8] = [
    "no space left",
    "disk quota exceeded",
    "read-only file system",
    "input/output error",
    "structure needs cleaning",
    "storage driver",
    "error creating overlay mount",
    "failed to mount",
];

/// Messages about this machine. An unreachable daemon is noticed before.
const HOST_FAULTS: [&str; 25] = [
    // Memory, processes and kernel of the machine.
    "cannot allocate memory",
    "too many open files",
    "resource temporarily unavailable",
    "device or resource busy",
    "cgroup",
    "kernel does not support",
    "apparmor",
    "seccomp",
    "operation not permitted",
    // Network of the machine.
    "iptables",
    "failed to create endpoint",
    "no available ip",
    "could not find an available",
    // The engine, its parts, and a program that is older than this one.
    "oci runtime",
    "runtime name",
    "containerd",
    "plugin",
    "is already in use",
    "unknown flag",
    "unexpected eof",
    "connection refused",
    "connection reset",
    "broken pipe",
    "transport is closing",
    "context deadline exceeded",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_container_is_the_definitions_fault_unless_the_message_is_about_the_machine() {
        for words in [
            "Invalid signal: NOSUCH",
            "Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available",
            "Minimum memory limit allowed is 6MB",
            "Duplicate mount point: /x",
            "invalid CapAdd: unknown capability: \"CAP_NOSUCH\"",
            "the working directory 'rel' is invalid, it needs to be an absolute path",
            "invalid mount path: 'rel' mount path must be absolute",
            "error parsing specified platform: \"a/b/c/d\": cannot parse platform specifier: invalid argument",
            "invalid argument \"x\" for \"--pids-limit\" flag",
        ] {
            assert_eq!(fault_of(words), StartFailure::Definition, "{words}");
        }
        for words in [
            "",
            "network nosuch not found",
            "invalid mount config for type \"bind\": bind source path does not exist: /nosuch",
            "mkdir /var/lib/docker/overlay2/x: no space left on device",
            "error creating overlay mount to /var/lib/docker/overlay2/x/merged: device or resource busy",
            "open /var/lib/docker/containers/x/config.v2.json: read-only file system",
            "cgroups: cgroup mountpoint does not exist: unknown",
            "unknown or invalid runtime name: runsc",
            "Conflict. The container name \"/x\" is already in use by container \"y\".",
            "connection error: desc = \"transport: dial unix /run/containerd/containerd.sock: connect: connection refused\"",
            "unknown flag: --pull",
            "time=\"x\" level=error msg=\"error waiting for container: unexpected EOF\"",
        ] {
            assert_eq!(fault_of(words), StartFailure::Host, "{words}");
        }
    }
}
