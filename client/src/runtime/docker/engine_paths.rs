//! Paths of the worker's files as its engine sees them.
//!
//! A worker in a container sees other file systems than the engine. What is mounted into that container exists on the engine's side as well:
//! the engine tells where, because it has made the container. So files of the state directory can be mounted into jobs, if that directory
//! is a volume or a directory of the machine.

use std::fs;
use std::path::{Path, PathBuf};

use protocol::Token;
use serde::Deserialize;
use tokio::sync::OnceCell;

use super::DockerContext;
use super::cli::CallError;
use crate::secrets::SecretDirs;

/// Mounts of the worker's own container, once the engine has told them.
#[derive(Debug, Default)]
pub(super) struct OwnMounts(OnceCell<Vec<Mount>>);

/// A file system that the engine has mounted into the worker's container.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Mount {
    /// The path on the engine's side; empty for a tmpfs, which has none.
    source: PathBuf,
    /// The path in the container.
    destination: PathBuf,
}

impl DockerContext {
    /// The path under which the engine sees a file or directory of the worker; `None` if it does not see it.
    ///
    /// # Errors
    /// The engine did not answer.
    pub(super) async fn engine_path(&self, path: &Path) -> Result<Option<PathBuf>, CallError> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        if self.config.sees_engine_disks {
            return Ok(Some(path));
        }
        let mounts = self.own_mounts.0.get_or_try_init(|| self.ask_for_own_mounts()).await?;
        Ok(seen_at(mounts, &without_links(&path).await))
    }

    /// The path under which the engine sees the directory with the secrets of an attempt; `None` if it does not see it.
    ///
    /// # Errors
    /// The engine did not answer.
    pub(super) async fn secrets_path(
        &self,
        dirs: &SecretDirs,
        token: Token,
    ) -> Result<Option<PathBuf>, CallError> {
        let path = dirs.path(token);
        let seen = self.engine_path(&path).await?;
        // The operator says that a tmpfs that is named has the same path for both.
        Ok(seen.or_else(|| dirs.is_named().then_some(path)))
    }

    async fn ask_for_own_mounts(&self) -> Result<Vec<Mount>, CallError> {
        let Some(own) = &self.config.own_container else { return Ok(Vec::new()) };
        let args = ["inspect", "--type", "container", "-f", "{{json .Mounts}}", "--", own];
        let answer = self.engine.call(args).await?;
        // A remote engine has not made the container of this worker.
        Ok(if answer.ok { mounts_of(&answer.stdout) } else { Vec::new() })
    }
}

/// The id of the container that this process runs in; `None` if that is unknown, or if it is in none. Docker and Podman keep the files
/// `hostname`, `hosts` and `resolv.conf` of a container in a directory with its id, and mount them.
pub(super) fn own_container() -> Option<String> {
    own_container_of(&fs::read_to_string("/proc/self/mountinfo").ok()?)
}

fn own_container_of(mounts: &str) -> Option<String> {
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let made = fields.filter(|fields| {
        fields.get(4).is_some_and(|point| ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"].contains(point))
    });
    let mut roots = made.filter_map(|fields| fields.get(3).copied());
    let is_id = |part: &&str| part.len() == ID_DIGITS && part.bytes().all(|it| it.is_ascii_hexdigit());
    roots.find_map(|root| root.split('/').find(is_id).map(str::to_owned))
}

fn mounts_of(json: &str) -> Vec<Mount> {
    serde_json::from_str(json).unwrap_or_else(|error| {
        tracing::warn!(%error, "the engine does not say what is mounted into the container of this worker; jobs get no input and no files with secrets");
        Vec::new()
    })
}

/// The path without symbolic links on the way to it. Its last part need not exist.
async fn without_links(path: &Path) -> PathBuf {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return path.to_path_buf() };
    tokio::fs::canonicalize(parent).await.map_or_else(|_| path.to_path_buf(), |parent| parent.join(name))
}

/// The innermost mount that holds the path decides.
fn seen_at(mounts: &[Mount], path: &Path) -> Option<PathBuf> {
    let holders = mounts.iter().filter(|mount| path.starts_with(&mount.destination));
    let mount = holders.max_by_key(|mount| mount.destination.components().count())?;
    let below = path.strip_prefix(&mount.destination).ok()?;
    mount.source.is_absolute().then(|| mount.source.join(below))
}

/// Digits of a container's id.
const ID_DIGITS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "038e1a3e3a9047dc1b3e3c1b20169005c09af61775c80dbcecc78fb2eae85342";

    #[test]
    fn the_own_container_is_found_by_the_files_that_the_engine_mounts() {
        let docker = format!(
            "612 590 0:61 / / rw - overlay overlay rw,lowerdir=/x\n\
             630 612 254:0 /var/lib/docker/containers/{ID}/hostname /etc/hostname rw,relatime - ext4 /dev/vda rw\n"
        );
        assert_eq!(own_container_of(&docker).as_deref(), Some(ID));
        let podman = format!(
            "630 612 0:25 /containers/overlay-containers/{ID}/userdata/resolv.conf /etc/resolv.conf rw - tmpfs tmpfs rw\n"
        );
        assert_eq!(own_container_of(&podman).as_deref(), Some(ID));
        let volume = format!("630 612 254:0 /srv/{ID}/data /data rw - ext4 /dev/vda rw\n");
        for none in [&volume, "", "1 2 3\n", "25 30 0:22 / /proc rw - proc proc rw\n"] {
            assert_eq!(own_container_of(none), None, "{none}");
        }
    }

    #[test]
    fn a_path_below_a_mount_is_seen_by_the_engine() {
        let mounts = mounts_of(
            r#"[{"Type":"volume","Name":"state","Source":"/var/lib/docker/volumes/state/_data","Destination":"/var/lib/worker","RW":true},
                {"Type":"bind","Source":"/srv/inner","Destination":"/var/lib/worker/inner"},
                {"Type":"tmpfs","Source":"","Destination":"/var/lib/worker/ram"}]"#,
        );
        let seen = |path: &str| seen_at(&mounts, Path::new(path));
        let at = |path: &str| Some(PathBuf::from(path));
        assert_eq!(seen("/var/lib/worker/slot-1/7-8"), at("/var/lib/docker/volumes/state/_data/slot-1/7-8"));
        assert_eq!(seen("/var/lib/worker/inner/x"), at("/srv/inner/x"));
        for hidden in ["/var/lib/worker/ram/x", "/var/lib/worker2/x", "/tmp/x"] {
            assert_eq!(seen(hidden), None, "{hidden}");
        }
        assert!(mounts_of("not json").is_empty() && mounts_of("null").is_empty());
    }
}
