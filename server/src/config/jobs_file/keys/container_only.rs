//! Keys that no job may have, and those that only a container can have.

/// Keys of compose that would expose the host.
pub(in crate::config::jobs_file) const FORBIDDEN: &[&str] = &[
    "privileged",
    "pid",
    "ipc",
    "uts",
    "userns_mode",
    "cgroup",
    "cgroup_parent",
    "devices",
    "device_cgroup_rules",
    "security_opt",
    "network_mode",
    "sysctls",
];

/// Keys without meaning for a plain process, each with the reason.
pub(in crate::config::jobs_file) const CONTAINER_ONLY: &[(&str, &str)] = &[
    ("image", NO_IMAGE),
    ("user", "it runs as the worker's user"),
    ("volumes", NO_FILES),
    ("network", NO_NETWORK),
    ("hostname", NO_NETWORK),
    ("extra_hosts", NO_NETWORK),
    ("dns", NO_NETWORK),
    ("dns_search", NO_NETWORK),
    ("tmpfs", NO_FILES),
    ("shm_size", NO_FILES),
    ("read_only", NO_FILES),
    ("cap_add", NO_RIGHTS),
    ("cap_drop", NO_RIGHTS),
    ("ulimits", "it has the limits of the worker"),
    ("group_add", NO_RIGHTS),
    ("profile", NO_RIGHTS),
    ("init", "there is no container that it would be process 1 of"),
    ("platform", NO_IMAGE),
    ("labels", "there is no container to label"),
    ("pull_policy", NO_IMAGE),
    ("pull_timeout", NO_IMAGE),
    ("resources", "nothing bounds what it uses"),
];
const NO_IMAGE: &str = "it has no image, but is a program of the worker's machine";
const NO_NETWORK: &str = "it has the names and the network of the worker's machine";
const NO_FILES: &str = "it has the files of the worker's machine";
const NO_RIGHTS: &str = "it has the rights of the worker's user";
