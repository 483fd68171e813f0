//! Whose fault it is that nothing was started, by Docker's own words. Pure.

use worker::input::Fault;

/// Whose fault it is that Docker refused to make a container, by its words. What it does not like is written in the definition, unless
/// it speaks of what differs from machine to machine.
pub(super) fn fault_of(message: &str) -> Fault {
    let is_hosts = message.is_empty()
        || tells_of_the_disk(message)
        || says(message, &HOST_FAULTS)
        || says(message, &ELSEWHERE);
    if is_hosts && !is_proven(message) { Fault::Host } else { Fault::Definition }
}

/// Whether Docker's words are about this machine's disk.
pub(super) fn tells_of_the_disk(message: &str) -> bool {
    says(message, &DISK_FAULTS)
}

/// Whether Docker's words prove that the definition is to blame: the same on every machine.
pub(super) fn is_proven(message: &str) -> bool {
    says(message, &DEFINITION_FAULTS)
}

fn says(message: &str, phrases: &[&str]) -> bool {
    let message = message.to_lowercase();
    phrases.iter().any(|phrase| message.contains(phrase))
}

/// Words of Docker and its runtime about what no machine could start. Here and below in small letters.
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

/// A mount's source, a network or a driver that this machine lacks: it proves nothing, since another one may have it.
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

/// A daemon that is not there at all is known before.
const HOST_FAULTS: [&str; 25] = [
    // Its memory, its processes, its kernel.
    "cannot allocate memory",
    "too many open files",
    "resource temporarily unavailable",
    "device or resource busy",
    "cgroup",
    "kernel does not support",
    "apparmor",
    "seccomp",
    "operation not permitted",
    // Its network.
    "iptables",
    "failed to create endpoint",
    "no available ip",
    "could not find an available",
    // The engine, what it stands on, and a program that is older than we are.
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
    fn what_docker_refuses_to_make_is_the_definitions_unless_its_words_are_about_the_machine() {
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
            assert_eq!(fault_of(words), Fault::Definition, "{words}");
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
            assert_eq!(fault_of(words), Fault::Host, "{words}");
        }
    }
}
