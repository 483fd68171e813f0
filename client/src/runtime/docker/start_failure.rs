//! Classifies failed starts by Docker's message: the definition's fault or the host's. Pure.
//!
//! Docker's exit codes prove nothing: it derives 126 and 127 from the message, also if a file of the engine is missing.

use worker::input::StartFailure;

/// The fault behind a failed start. It is the host's, unless the message proves that no machine could start the definition: a broken host
/// must not use up the retries of jobs.
pub(super) fn fault_of(message: &str) -> StartFailure {
    if is_definition_fault(&message.to_lowercase()) { StartFailure::Definition } else { StartFailure::Host }
}

/// `true` if the message is about this machine's disk.
pub(super) fn is_about_disk(message: &str) -> bool {
    says(&message.to_lowercase(), &DISK_FAULTS)
}

/// `true` if the message says that the kernel has killed the container before its program started, for lack of memory.
pub(super) fn is_memory_kill(message: &str) -> bool {
    says(&message.to_lowercase(), &MEMORY_KILLS)
}

/// Takes a message in lower case.
fn is_definition_fault(message: &str) -> bool {
    // Names from the definition come after this place, and their words do not count.
    let program = JOB_PROGRAM.iter().filter_map(|phrase| message.find(phrase)).min();
    let (before, after) = message.split_at(program.unwrap_or(message.len()));
    let is_hosts =
        || after.starts_with(INIT_PROGRAM) || says(before, &DISK_FAULTS) || says(before, &HOST_FAULTS);
    let is_proven =
        || says(after, &PROGRAM_FAULTS) || says(before, &DEFINITION_FAULTS) || is_about_mount(before);
    says(before, &IMAGE_FAULTS)
        || says(before, &LIMIT_FAULTS)
        || is_mount_onto_file(before)
        || (!is_hosts() && is_proven())
}

/// `true` if a mount or a tmpfs of the definition cannot be made: the container has another kind of file there, or the kernel refuses a
/// value among its options.
fn is_about_mount(message: &str) -> bool {
    let Some((_, mount)) = message.split_once("mounting \"") else { return false };
    let is_own_tmpfs = mount.starts_with("tmpfs\" to rootfs at \"/") && !mount.contains("rootfs at \"/dev\"");
    // The engine itself adds a context where SELinux is on.
    let has_wrong_option =
        is_own_tmpfs && mount.contains(": invalid argument") && !mount.contains("context=");
    has_wrong_option || mount.contains(": not a directory")
}

/// `true` if a directory of the definition is mounted onto a file, or a file onto a directory. Docker gives the same hint for files that it
/// mounts itself, such as `resolv.conf`.
fn is_mount_onto_file(message: &str) -> bool {
    let source = message.split_once("mounting \"").and_then(|(_, mount)| mount.split('"').next());
    let is_engines =
        source.is_none_or(|source| source.contains("/containers/") || source.contains("/docker/"));
    !is_engines && message.contains("are you trying to mount a directory onto a file")
}

/// Takes a message in lower case.
fn says(message: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| message.contains(phrase))
}

/// Messages about definitions that no machine could start, unless the message also has a word of the host. All phrases are in lower case.
const DEFINITION_FAULTS: [&str; 33] = [
    // Users and groups.
    "unable to find user",
    "unable to find group",
    "no matching entries in passwd file",
    "no matching entries in group file",
    "uids and gids must be in range",
    // Image, platform, program.
    "invalid reference format",
    "cannot parse platform specifier",
    "unknown operating system or architecture",
    "no command specified",
    // Working directory, mounts and volumes.
    "is not an absolute path",
    "needs to be an absolute path",
    "mount path must be absolute",
    "cannot mkdir: ",
    "duplicate mount point",
    "destination can't be '/'",
    "invalid mount path",
    "invalid mount target",
    "invalid volume specification",
    "invalid tmpfs option",
    "invalid characters for a local volume name",
    "volume name is too short",
    // Limits and options.
    "minimum memory",
    "range of cpus is from",
    "shm size can not be less than",
    "invalid argument \"",
    "invalid signal",
    "invalid capadd",
    "invalid capdrop",
    "unknown capability",
    "conflicting options",
    // Environment.
    "invalid environment variable",
    "poorly formatted environment",
    "invalid utf8 bytes",
];

/// Messages about the image of a definition that also name a path of the engine.
const IMAGE_FAULTS: [&str; 3] =
    [" is not directory", "cannot be mounted because it is ", "the specified platform"];

/// Messages about a limit of a definition that also name a control group.
const LIMIT_FAULTS: [&str; 1] = ["unable to set memory limit"];

/// Messages about the program or the working directory of a definition, if they stand after one of [`JOB_PROGRAM`]. Docker says the same
/// words about files of this machine.
const PROGRAM_FAULTS: [&str; 9] = [
    "not found",
    "no such file or directory",
    "permission denied",
    "is a directory",
    "not a directory",
    "exec format error",
    "argument list too long",
    "file name too long",
    "too many levels of symbolic links",
];

/// As runc says it in a failed start, whatever the error was that followed from the kill.
const MEMORY_KILLS: [&str; 1] = ["container init was oom-killed"];

/// Words before the program or the working directory of a job, as runc, crun and gVisor say it.
const JOB_PROGRAM: [&str; 6] = [
    "exec: \"",
    "chdir to cwd",
    "executable file `",
    "open executable: ",
    "error finding executable \"",
    "creating process: failed to load ",
];

/// A program of this machine that the engine runs before that of the job.
const INIT_PROGRAM: &str = "exec: \"docker-init\"";

const DISK_FAULTS: [&str; 12] = [
    "no space left",
    "disk quota exceeded",
    "read-only file system",
    "input/output error",
    "structure needs cleaning",
    "stale file handle",
    "storage driver",
    "error creating overlay mount",
    "failed to mount",
    "layer does not exist",
    "layer not found",
    "/overlay2/",
];

/// Messages about this machine that may also have words of [`DEFINITION_FAULTS`] or [`PROGRAM_FAULTS`].
const HOST_FAULTS: [&str; 20] = [
    // Files of the engine, and its helpers.
    "/merged/",
    "/var/lib/docker",
    "/var/lib/container",
    "/run/containerd",
    "/run/docker",
    "running hook",
    "fork/exec",
    "nvidia-container-cli",
    "unable to retrieve oci runtime error",
    "error getting credentials",
    // The source of a mount, which another machine may have.
    "bind source path does not exist",
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
];

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_fault(fault: StartFailure, messages: &[&str]) {
        for message in messages {
            assert_eq!(fault_of(message), fault, "{message}");
        }
    }

    /// With the words that Docker puts before the messages of runc.
    fn assert_fault_of_runc(fault: StartFailure, messages: &[&str]) {
        for message in messages {
            let message = format!("{RUNC}{message}: unknown");
            assert_eq!(fault_of(&message), fault, "{message}");
        }
    }

    const RUNC: &str = "failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: ";

    #[test]
    fn a_refused_container_is_the_hosts_fault_unless_the_definition_is_proven_wrong() {
        assert_fault(
            StartFailure::Definition,
            &[
                "Invalid signal: NOSUCH",
                "Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available",
                "Minimum memory limit allowed is 6MB",
                "runc create failed: unable to start container process: unable to apply cgroup configuration: unable to set memory limit to 6291456 (current usage: 6811648, peak usage: 7000064)",
                "Duplicate mount point: /x",
                "invalid CapAdd: unknown capability: \"CAP_NOSUCH\"",
                "the working directory 'rel' is invalid, it needs to be an absolute path",
                "invalid mount path: 'rel' mount path must be absolute",
                "error parsing specified platform: \"a/b/c/d\": cannot parse platform specifier: invalid argument",
                "error parsing specified platform: \"foo\": unknown operating system or architecture: invalid argument",
                "invalid argument \"x\" for \"--pids-limit\" flag",
                "docker: invalid reference format: repository name (library/UPPER) must be lowercase",
                "unable to find user nobody2: no matching entries in passwd file",
                "unable to find group nogrp: no matching entries in group file",
                "uids and gids must be in range 0-2147483647",
                "Cannot mkdir: /bin/sh is not a directory",
                "invalid tmpfs option [\"bogus\"]",
                "invalid mount config for type \"volume\": invalid specification: destination can't be '/'",
                "create a: volume name is too short, names should be at least two alphanumeric characters",
                "source /var/lib/docker/overlay2/x/merged/bin/busybox is not directory",
                "No command specified",
                "docker: poorly formatted environment: variable 'A B' contains whitespaces",
                "image with reference alpine:3 was found but its platform (linux/amd64) does not match the specified platform (linux/arm64)",
            ],
        );
        assert_fault(
            StartFailure::Host,
            &[
                "",
                "a message that nobody has seen yet",
                "network nosuch not found",
                "invalid mount config for type \"bind\": bind source path does not exist: /nosuch",
                "mkdir /var/lib/docker/overlay2/x: no space left on device",
                "error creating overlay mount to /var/lib/docker/overlay2/x/merged: device or resource busy",
                "open /var/lib/docker/containers/x/config.v2.json: read-only file system",
                "cgroups: cgroup mountpoint does not exist: unknown",
                "Unknown runtime specified runsc",
                "unknown or invalid runtime name: runsc",
                "could not select device driver \"\" with capabilities: [[gpu]]",
                "driver failed programming external connectivity: Bind for 0.0.0.0:80 failed: port is already allocated",
                "Conflict. The container name \"/x\" is already in use by container \"y\".",
                "connection error: desc = \"transport: dial unix /run/containerd/containerd.sock: connect: connection refused\"",
                "unknown flag: --pull",
                "time=\"x\" level=error msg=\"error waiting for container: unexpected EOF\"",
            ],
        );
    }

    #[test]
    fn a_broken_store_of_the_engine_is_the_hosts_fault() {
        assert_fault(
            StartFailure::Host,
            &[
                "readlink /var/lib/docker/overlay2/l: invalid argument",
                "error creating overlay mount to /var/lib/docker/overlay2/x/merged: invalid argument",
                "lstat /var/lib/docker/overlay2/x: no such file or directory",
                "open /data/docker/overlay2/x/link: no such file or directory",
                "stat /var/lib/docker/overlay2/x/diff: permission denied",
                "layer does not exist",
                "failed to mount /var/lib/containerd/tmpmounts/containerd-mount1: invalid argument",
                "unable to find user 0: open /var/lib/docker/overlay2/x/merged/etc/passwd: input/output error",
                "unable to find user 0: open /srv/docker/fuse-overlayfs/x/merged/etc/passwd: permission denied",
            ],
        );
        assert_fault_of_runc(
            StartFailure::Host,
            &[
                "error during container init: error mounting \"cgroup\" to rootfs at \"/sys/fs/cgroup\": mount cgroup: invalid argument",
                "error during container init: error mounting \"proc\" to rootfs at \"/proc\": mount proc: invalid argument",
                "error during container init: error mounting \"tmpfs\" to rootfs at \"/dev\": mount tmpfs:/dev, data: mode=755: invalid argument",
                "unable to apply cgroup configuration: failed to write 4096: write /sys/fs/cgroup/pids/docker/x/pids.max: invalid argument",
                "error setting cgroup config for procHooks process: failed to write 1: invalid argument",
                "can't get final child's PID from pipe: EOF",
                "container init was OOM-killed (memory limit too low?)",
                "error during container init: error mounting \"/var/lib/docker/containers/x/resolv.conf\" to rootfs at \"/etc/resolv.conf\": not a directory: unknown: Are you trying to mount a directory onto a file (or vice-versa)?",
                "error during container init: error setting rlimit type 7: operation not permitted",
                "exec: \"/app\": stat /app: input/output error",
            ],
        );
    }

    #[test]
    fn a_mount_that_fits_no_container_of_the_image_is_the_definitions_fault() {
        assert_fault_of_runc(
            StartFailure::Definition,
            &[
                "error during container init: error mounting \"tmpfs\" to rootfs at \"/x\": mount tmpfs:/x (via /proc/self/fd/6), flags: 0xe, data: size=1qq: invalid argument",
                "error during container init: error mounting \"/srv\" to rootfs at \"/bin/sh\": mount /srv:/bin/sh (via /proc/self/fd/6), flags: 0x5000: not a directory",
                "error during container init: error mounting \"/srv\" to rootfs at \"/etc/y\": create mountpoint for /etc/y mount: cannot create subdirectories in \"/var/lib/docker/overlay2/x/merged/etc/y\": not a directory: unknown: Are you trying to mount a directory onto a file (or vice-versa)?",
                "container_linux.go:380: starting container process caused: process_linux.go:545: container init caused: rootfs_linux.go:76: mounting \"/srv\" to rootfs at \"/bin/sh\" caused: mount through procfd: not a directory",
                "error during container init: error mounting \"/tmp\" to rootfs at \"/proc/x\": \"/var/lib/docker/overlay2/x/merged/proc/x\" cannot be mounted because it is inside /proc",
            ],
        );
    }

    #[test]
    fn a_missing_file_of_the_machine_is_not_the_definitions_fault() {
        assert_fault_of_runc(
            StartFailure::Host,
            &[
                "error during container init: error running hook #0: error running hook: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy' nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file or directory",
                "error running hook #1: fork/exec /usr/bin/nvidia-container-runtime-hook: permission denied",
                "open /proc/self/attr/keycreate: permission denied",
            ],
        );
        assert_fault(
            StartFailure::Host,
            &[
                "fork/exec /usr/bin/runc: no such file or directory: unknown",
                "unable to retrieve OCI runtime error (open /run/x/log.json: no such file or directory): exec: \"nvidia-container-runtime\": executable file not found in $PATH: unknown",
                "exec: \"docker-init\": executable file not found in $PATH",
                "error getting credentials - err: exec: \"docker-credential-x\": executable file not found in $PATH, out: ``",
            ],
        );
    }

    #[test]
    fn a_missing_program_of_the_job_is_the_definitions_fault_whatever_its_name() {
        assert_fault_of_runc(
            StartFailure::Definition,
            &[
                "exec: \"nosuch\": executable file not found in $PATH",
                "exec: \"\": executable file not found in $PATH",
                "exec: \"/running hook\": stat /running hook: no such file or directory",
                "exec: \"/overlay2/app\": stat /overlay2/app: no such file or directory",
                "exec: \"/etc\": permission denied",
                "exec: \"/bin/sh/x\": stat /bin/sh/x: not a directory",
                "exec: \"/app\": exec format error",
                "chdir to cwd (\"/fork/exec\") set in config.json failed: no such file or directory",
            ],
        );
        assert_fault(
            StartFailure::Definition,
            &[
                "crun: executable file `nosuch` not found in $PATH: No such file or directory",
                "crun: open executable: Permission denied: OCI permission denied",
                "OCI runtime start failed: starting container: creating process: failed to load /nosuch: no such file or directory",
            ],
        );
    }
}
