//! Location of this process and of its engine. A path means the same to both only if both see the same file systems.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::engine_process::listens_here;
use super::engine_sockets::socket_of;

/// `true` in a container of Docker, Podman or Kubernetes, as far as files and environment tell. Containers that hold a whole system (LXC,
/// systemd-nspawn, WSL) do not count: their engine runs beside the worker.
#[must_use]
pub fn in_container() -> bool {
    has_container_marks(&env::var_os, &|file| Path::new(file).exists())
}

/// `true` if a container manager has left one of its marks. An empty variable counts as unset.
fn has_container_marks(
    variable: &dyn Fn(&'static str) -> Option<OsString>,
    exists: &dyn Fn(&'static str) -> bool,
) -> bool {
    let value = |name| variable(name).unwrap_or_default();
    CONTAINER_FILES.into_iter().any(exists)
        || !value("KUBERNETES_SERVICE_HOST").is_empty()
        || CONTAINER_MANAGERS.iter().any(|manager| value("container") == *manager)
}

/// Files of Docker and of Podman.
const CONTAINER_FILES: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];

/// Values of the variable `container` that managers of containers with one program set.
const CONTAINER_MANAGERS: [&str; 4] = ["docker", "podman", "oci", "kube"];

/// `true` if the engine sees the same file systems: not if the engine is on another machine, and from a container only if the engine runs
/// in the same one.
#[must_use]
pub fn sees_engine_disks() -> bool {
    is_here(&env::var_os, current_context)
        && (!in_container() || own_socket(&env::var_os).is_some_and(|socket| listens_here(&socket)))
}

/// The socket of the engine, if it is Docker's or named by `DOCKER_HOST`. One of Podman's own variables tells nothing about Docker's socket.
fn own_socket(variable: &dyn Fn(&'static str) -> Option<OsString>) -> Option<PathBuf> {
    let given = |name| variable(name).filter(|value| !value.is_empty());
    match (given("CONTAINER_HOST"), given("DOCKER_HOST")) {
        (Some(_), _) => None,
        (None, Some(address)) => socket_of(&address),
        (None, None) => Some(DEFAULT_SOCKET.into()),
    }
}

/// Docker's socket, unless an address or a context names another.
const DEFAULT_SOCKET: &str = "/var/run/docker.sock";

/// `true` if the engine is on this machine. As with `docker`, an address goes before a context, and a named context before the configured
/// one. Every context but the default counts as remote, and so does every named connection of Podman.
fn is_here(
    variable: &dyn Fn(&'static str) -> Option<OsString>,
    in_use: impl FnOnce() -> Option<String>,
) -> bool {
    let given = |name| variable(name).filter(|value| !value.is_empty());
    let is_socket = |address: OsString| address.as_bytes().starts_with(b"unix:");
    // Podman reads these two, and `docker` the others. A program called `docker` may be Podman, so the name decides nothing: the engine
    // counts as remote if either would use a remote one.
    if given("CONTAINER_CONNECTION").is_some() || given("CONTAINER_HOST").is_some_and(|it| !is_socket(it)) {
        return false;
    }
    if let Some(address) = given("DOCKER_HOST") {
        return is_socket(address);
    }
    let context = given("DOCKER_CONTEXT").or_else(|| in_use().map(OsString::from));
    context.is_none_or(|name| name.is_empty() || name == OsStr::new(DEFAULT))
}

/// The context that `docker context use` has configured.
fn current_context() -> Option<String> {
    context_of(&fs::read(config_directory()?.join("config.json")).ok()?)
}

/// The directory of this user's Docker configuration, whether it exists or not.
pub(super) fn config_directory() -> Option<PathBuf> {
    let directory = env::var_os("DOCKER_CONFIG").filter(|value| !value.is_empty()).map(PathBuf::from);
    directory.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".docker")))
}

fn context_of(config: &[u8]) -> Option<String> {
    let config: serde_json::Value = serde_json::from_slice(config).ok()?;
    Some(config.get("currentContext")?.as_str()?.to_owned())
}

/// The context of the engine's usual socket.
const DEFAULT: &str = "default";

#[cfg(test)]
mod tests {
    use super::*;

    fn is_seen(host: &str, context: &str, in_use: Option<&str>) -> bool {
        let variable = |name: &str| match name {
            "DOCKER_HOST" => Some(host.into()),
            "DOCKER_CONTEXT" => Some(context.into()),
            _ => None,
        };
        is_here(&variable, || in_use.map(str::to_owned))
    }

    #[test]
    fn each_container_manager_is_recognised_by_its_mark() {
        let with_file = |mark: &'static str| has_container_marks(&|_| None, &|file| file == mark);
        let with_variable = |mark: &'static str, value: &'static str| {
            has_container_marks(&|name| (name == mark).then(|| value.into()), &|_| false)
        };
        for file in ["/.dockerenv", "/run/.containerenv"] {
            assert!(with_file(file), "{file}");
        }
        assert!(with_variable("KUBERNETES_SERVICE_HOST", "10.0.0.1"));
        assert!(with_variable("container", "podman") && with_variable("container", "oci"));
        for system in ["lxc", "systemd-nspawn", "wsl"] {
            assert!(!with_variable("container", system), "{system} holds a whole system, with the engine");
        }
        assert!(!with_variable("container", "") && !with_variable("KUBERNETES_SERVICE_HOST", ""));
        assert!(!with_file("/run/systemd/system") && !with_variable("HOSTNAME", "machine"));
    }

    #[test]
    fn an_engine_with_a_tcp_or_ssh_address_is_remote() {
        assert!(is_here(&|_| None, || None));
        assert!(is_seen("", "", None) && is_seen("unix:///run/docker.sock", "", None));
        assert!(!is_seen("tcp://10.0.0.7:2376", "", None) && !is_seen("ssh://root@far", "", None));
    }

    #[test]
    fn an_engine_with_another_context_is_remote() {
        assert!(!is_seen("", "far", None) && !is_seen("", "", Some("far")));
        assert!(is_seen("", "default", Some("far")) && is_seen("", "", Some("default")));
        assert!(is_seen("unix:///run/docker.sock", "far", Some("far")), "an address goes before a context");
    }

    #[test]
    fn a_remote_engine_of_podman_is_remote() {
        let is_seen = |set: &[(&str, &str)]| {
            let value = |name: &str| set.iter().find(|it| it.0 == name).map(|it| OsString::from(it.1));
            is_here(&value, || None)
        };
        assert!(is_seen(&[("CONTAINER_HOST", "unix:///run/user/7/podman/podman.sock")]));
        assert!(is_seen(&[("CONTAINER_HOST", ""), ("CONTAINER_CONNECTION", "")]));
        for address in ["ssh://root@far/run/podman/podman.sock", "tcp://10.0.0.7:8080"] {
            assert!(!is_seen(&[("CONTAINER_HOST", address)]), "{address}");
            // Podman does not read `DOCKER_HOST`.
            assert!(!is_seen(&[("CONTAINER_HOST", address), ("DOCKER_HOST", "unix:///run/docker.sock")]));
        }
        assert!(!is_seen(&[("CONTAINER_CONNECTION", "far")]));
        assert!(
            !is_seen(&[("CONTAINER_CONNECTION", "far"), ("CONTAINER_HOST", "unix:///run/podman.sock")]),
            "a connection goes before an address"
        );
    }

    #[test]
    fn the_socket_of_the_engine_is_that_of_docker_host_or_the_usual_one() {
        let socket = |set: &[(&str, &str)]| {
            own_socket(&|name| set.iter().find(|it| it.0 == name).map(|it| OsString::from(it.1)))
        };
        assert_eq!(socket(&[]), Some(DEFAULT_SOCKET.into()));
        assert_eq!(
            socket(&[("DOCKER_HOST", "unix:///run/user/7/docker.sock")]),
            Some("/run/user/7/docker.sock".into())
        );
        assert_eq!(socket(&[("DOCKER_HOST", "tcp://10.0.0.7:2376")]), None);
        assert_eq!(socket(&[("CONTAINER_HOST", "unix:///run/podman/podman.sock")]), None);
    }

    #[test]
    fn the_context_in_use_is_read_from_the_configuration() {
        assert_eq!(context_of(br#"{"auths": {}, "currentContext": "far"}"#).as_deref(), Some("far"));
        assert_eq!(context_of(br#"{"auths": {}}"#), None);
        assert_eq!(context_of(b"not json"), None);
    }
}
