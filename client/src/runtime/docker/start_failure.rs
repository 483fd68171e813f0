//! Classifies failed starts by Docker's message: the definition's fault or the host's. Pure.

use worker::input::StartFailure;

/// The fault behind Docker's refusal to make a container. It is the definition's, unless the message is about something that differs
/// between machines.
pub(super) fn fault_of(message: &str) -> StartFailure {
    let is_hosts = message.is_empty()
        || is_about_host_program(message)
        || is_about_disk(message)
        || says(message, &HOST_FAULTS)
        || says(message, &ELSEWHERE);
    if is_hosts && !is_definition_fault(REFUSED, message) {
        StartFailure::Host
    } else {
        StartFailure::Definition
    }
}

/// `true` if the message is about this machine's disk.
pub(super) fn is_about_disk(message: &str) -> bool {
    says(message, &DISK_FAULTS)
}

/// `true` if Docker's exit code and message prove the definition wrong on every machine. The codes 126 and 127 are about a program that
/// cannot be started, which may also be one of the machine.
pub(super) fn is_definition_fault(code: i32, message: &str) -> bool {
    let message = message.to_lowercase();
    let is_proven = || {
        let program = job_program(&message).is_some_and(|at| says(&message[at..], &PROGRAM_FAULTS));
        matches!(code, 126 | 127) || program || says(&message, &DEFINITION_FAULTS)
    };
    !is_about_host_program(&message) && is_proven()
}

/// `true` if a program of this machine failed: a hook, or the runtime itself. Names from the definition come later in the message, and do
/// not count.
fn is_about_host_program(message: &str) -> bool {
    let message = message.to_lowercase();
    let before = job_program(&message).unwrap_or(message.len());
    let names_one = |phrase: &str| message.find(phrase).is_some_and(|at| at <= before);
    HOST_PROGRAMS.iter().any(|phrase| names_one(phrase))
}

/// The place at which a message, in lower case, names the program or the working directory of the job.
fn job_program(message: &str) -> Option<usize> {
    JOB_PROGRAM.iter().filter_map(|phrase| message.find(phrase)).min()
}

fn says(message: &str, phrases: &[&str]) -> bool {
    let message = message.to_lowercase();
    phrases.iter().any(|phrase| message.contains(phrase))
}

/// The CLI's exit code if there is no container.
const REFUSED: i32 = 125;

/// Messages about definitions that no machine could start. All phrases are in lower case.
const DEFINITION_FAULTS: [&str; 9] = [
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

/// Messages about the program or the working directory of a definition, if they stand behind one of [`JOB_PROGRAM`]. Docker says the same
/// words about files of this machine.
const PROGRAM_FAULTS: [&str; 3] =
    ["executable file not found", "no such file or directory: unknown", "permission denied: unknown"];

const JOB_PROGRAM: [&str; 2] = ["exec: \"", "chdir to cwd"];

/// Programs of this machine that start containers.
const HOST_PROGRAMS: [&str; 5] = [
    "running hook",
    "fork/exec",
    "nvidia-container-cli",
    "unable to retrieve oci runtime error",
    "exec: \"docker-init\"",
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

    #[test]
    fn a_missing_file_of_the_machine_is_not_the_definitions_fault() {
        let runc = "failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: ";
        for words in [
            "error during container init: error running hook #0: error running hook: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy' nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file or directory: unknown",
            "error running hook #1: fork/exec /usr/bin/nvidia-container-runtime-hook: permission denied: unknown",
            "open /proc/self/attr/keycreate: permission denied: unknown",
        ] {
            let message = format!("{runc}{words}");
            assert!(!is_definition_fault(128, &message), "{words}");
            assert_eq!(is_definition_fault(127, &message), words.starts_with("open"), "{words}");
            assert_eq!(fault_of(&message), StartFailure::Host, "{words}");
        }
        for words in [
            "fork/exec /usr/bin/runc: no such file or directory: unknown",
            "unable to retrieve OCI runtime error (open /run/x/log.json: no such file or directory): exec: \"nvidia-container-runtime\": executable file not found in $PATH: unknown",
            "exec: \"docker-init\": executable file not found in $PATH",
        ] {
            assert!(!is_definition_fault(127, words), "{words}");
            assert_eq!(fault_of(words), StartFailure::Host, "{words}");
        }
        for words in [
            "exec: \"nosuch\": executable file not found in $PATH: unknown",
            "exec: \"/running hook\": stat /running hook: no such file or directory: unknown",
            "exec: \"/etc\": permission denied: unknown",
            "chdir to cwd (\"/fork/exec\") set in config.json failed: no such file or directory: unknown",
        ] {
            let message = format!("{runc}{words}");
            assert!(is_definition_fault(128, &message), "{words}");
            assert_eq!(fault_of(&message), StartFailure::Definition, "{words}");
        }
    }
}
