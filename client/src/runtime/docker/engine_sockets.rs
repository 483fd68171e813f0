//! Sockets through which this user reaches container engines. No job may mount one, because it gives the engine away.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::engine_location::config_directory;

/// The socket that the worker's `docker` uses, by its environment or by a context of its configuration, and the usual places of rootless
/// engines of this user, whether they exist or not.
#[must_use]
pub fn engine_sockets() -> Vec<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let mut sockets = named_sockets(&env::var_os, user);
    sockets.extend(config_directory().into_iter().flat_map(|directory| context_sockets(&directory)));
    sockets.sort();
    sockets.dedup();
    sockets
}

fn named_sockets(variable: &dyn Fn(&'static str) -> Option<OsString>, user: u32) -> Vec<PathBuf> {
    let given = |name| variable(name).filter(|value| !value.is_empty());
    let addresses = ["DOCKER_HOST", "CONTAINER_HOST"].into_iter().filter_map(given);
    let mut sockets: Vec<PathBuf> = addresses.filter_map(|address| socket_of(&address)).collect();
    let runtime_directories = [Some(format!("/run/user/{user}").into()), given("XDG_RUNTIME_DIR")];
    for directory in runtime_directories.into_iter().flatten().map(PathBuf::from) {
        sockets.extend(["docker.sock", "podman/podman.sock"].map(|it| directory.join(it)));
    }
    if let Some(home) = given("HOME").map(PathBuf::from) {
        sockets.extend([".docker/run/docker.sock", ".docker/desktop/docker.sock"].map(|it| home.join(it)));
    }
    sockets
}

/// The sockets of all contexts: the one in use can change at any time.
fn context_sockets(configuration: &Path) -> Vec<PathBuf> {
    let contexts = fs::read_dir(configuration.join("contexts/meta")).into_iter().flatten().flatten();
    contexts.filter_map(|context| context_socket(&fs::read(context.path().join("meta.json")).ok()?)).collect()
}

fn context_socket(metadata: &[u8]) -> Option<PathBuf> {
    let metadata: serde_json::Value = serde_json::from_slice(metadata).ok()?;
    socket_of(OsStr::new(metadata.pointer("/Endpoints/docker/Host")?.as_str()?))
}

/// The path in an address such as `unix:///run/docker.sock`; `None` for one without a path.
pub(super) fn socket_of(address: &OsStr) -> Option<PathBuf> {
    let path = address.as_bytes().strip_prefix(b"unix:")?;
    let path = OsStr::from_bytes(path.strip_prefix(b"//").unwrap_or(path));
    // Linux also knows sockets that have a name and no file.
    let is_file = !path.is_empty() && !path.as_bytes().starts_with(b"@");
    is_file.then(|| std::path::absolute(path).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_the_environment_and_the_rootless_ones_are_found() {
        let environment = |name: &str| match name {
            "DOCKER_HOST" => Some("unix:///srv/engine/docker.sock".into()),
            "CONTAINER_HOST" => Some("unix:/srv/podman.sock".into()),
            "XDG_RUNTIME_DIR" => Some("/tmp/runtime".into()),
            "HOME" => Some("/tmp/me".into()),
            _ => None,
        };
        let found = named_sockets(&environment, 1000);
        for socket in [
            "/srv/engine/docker.sock",
            "/srv/podman.sock",
            "/run/user/1000/docker.sock",
            "/run/user/1000/podman/podman.sock",
            "/tmp/runtime/docker.sock",
            "/tmp/runtime/podman/podman.sock",
            "/tmp/me/.docker/run/docker.sock",
            "/tmp/me/.docker/desktop/docker.sock",
        ] {
            assert!(found.contains(&socket.into()), "{socket} in {found:?}");
        }
        let remote = |name: &str| (name == "DOCKER_HOST").then(|| "tcp://10.0.0.7:2376".into());
        assert_eq!(named_sockets(&remote, 7), named_sockets(&|_| None, 7));
    }

    #[test]
    fn the_sockets_of_all_contexts_are_found() {
        let configuration = tempfile::tempdir().expect("a directory");
        for (directory, text) in [
            (
                "a",
                r#"{"Name": "rootless", "Endpoints": {"docker": {"Host": "unix:///run/user/7/docker.sock"}}}"#,
            ),
            ("b", r#"{"Name": "far", "Endpoints": {"docker": {"Host": "ssh://root@far"}}}"#),
            ("c", "not json"),
        ] {
            let directory = configuration.path().join("contexts/meta").join(directory);
            fs::create_dir_all(&directory).expect("a directory");
            fs::write(directory.join("meta.json"), text).expect("a file");
        }
        assert_eq!(context_sockets(configuration.path()), [PathBuf::from("/run/user/7/docker.sock")]);
        assert!(context_sockets(Path::new("/nowhere")).is_empty());
    }

    #[test]
    fn an_address_without_a_path_has_no_socket() {
        for address in ["unix://", "unix://@abstract", "tcp://127.0.0.1:2375", "npipe:////./pipe/docker", ""]
        {
            assert_eq!(socket_of(OsStr::new(address)), None, "{address}");
        }
    }
}
