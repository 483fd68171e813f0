//! Paths of the worker's files as its engine sees them.
//!
//! A worker in a container sees other file systems than the engine. What is mounted into that container exists on the engine's side as well:
//! the engine tells where, because it has made the container. So files of the state directory can be mounted into jobs, if that directory
//! is a volume or a directory of the machine.

use std::fs;
use std::path::{Path, PathBuf};

use protocol::Token;
use protocol::container::Volume;
use serde::Deserialize;
use tokio::sync::OnceCell;

use super::DockerState;
use super::cli::CallError;
use crate::secrets::SecretDirs;

/// The container that the worker runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnContainer {
    /// Its id.
    pub id: String,
    /// Its mount points, each with the directory of its file system that is mounted there.
    pub mount_points: Vec<(PathBuf, PathBuf)>,
}

/// Mounts of the worker's own container, once the engine has told them; `None` in it if the engine has not made that container.
#[derive(Debug, Default)]
pub(super) struct OwnMounts(OnceCell<Option<Vec<Mount>>>);

/// A file system that the engine has mounted into the worker's container.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Mount {
    /// The name of the volume; empty for a directory of the machine.
    #[serde(default)]
    name: String,
    /// The path on the engine's side; empty for a tmpfs, which has none.
    source: PathBuf,
    /// The path in the container.
    destination: PathBuf,
}

impl OwnContainer {
    /// The container of this process; `None` if that is unknown, or if it is in none. Docker and Podman keep the files `hostname`, `hosts`
    /// and `resolv.conf` of a container in a directory with its id, and mount them.
    pub(super) fn find() -> Option<Self> {
        Self::of(&fs::read_to_string("/proc/self/mountinfo").ok()?)
    }

    fn of(mounts: &str) -> Option<Self> {
        let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mount_points: Vec<(PathBuf, PathBuf)> = fields
            .filter_map(|fields| Some((PathBuf::from(fields.get(4)?), PathBuf::from(fields.get(3)?))))
            .collect();
        let is_made = |point: &Path| {
            ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"].iter().any(|file| point == Path::new(file))
        };
        let is_id = |part: &&str| part.len() == ID_DIGITS && part.bytes().all(|it| it.is_ascii_hexdigit());
        let roots = mount_points.iter().filter(|(point, _)| is_made(point)).map(|(_, root)| root);
        let id = roots.filter_map(|root| root.to_str()?.split('/').find(is_id)).next()?.to_owned();
        Some(Self { id, mount_points })
    }

    /// The process sees this mount. It does not if the files of the network are those of another container, whose network it shares; or if a
    /// part of the volume is mounted only.
    fn has(&self, mount: &Mount) -> bool {
        let roots = self.mount_points.iter().filter(|(point, _)| *point == mount.destination);
        // The root counts from the root of its file system, which may be mounted anywhere on the engine's side.
        let is_same = |root: &PathBuf| {
            let relative = |path: &Path| path.strip_prefix("/").unwrap_or(path).to_path_buf();
            mount.source.ends_with(relative(root)) || root.ends_with(relative(&mount.source))
        };
        roots.map(|(_, root)| root).next_back().is_some_and(is_same)
    }
}

impl DockerState {
    /// The path under which the engine sees a file or directory of the worker; `None` if it does not see it.
    ///
    /// # Errors
    /// The engine did not answer.
    pub(super) async fn engine_path(&self, path: &Path) -> Result<Option<PathBuf>, CallError> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        if self.config.sees_engine_disks {
            return Ok(Some(path));
        }
        let Some(mounts) = self.own_mounts().await? else { return Ok(None) };
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
        let root = self.secrets_root(dirs).await?;
        Ok(root.map(|root| root.join(dirs.path(token).file_name().unwrap_or_default())))
    }

    /// The path under which the engine sees the directory with the secrets of all attempts; `None` if it does not see it.
    ///
    /// # Errors
    /// The engine did not answer.
    pub(super) async fn secrets_root(&self, dirs: &SecretDirs) -> Result<Option<PathBuf>, CallError> {
        if dirs.is_named() && !self.config.sees_engine_disks && self.own_mounts().await?.is_none() {
            // Nobody can tell; the operator says that the tmpfs has the same path for both.
            return Ok(Some(dirs.root().to_path_buf()));
        }
        self.engine_path(dirs.root()).await
    }

    /// A volume of these that belongs to the worker itself: its state directory has the output and the secrets of other jobs.
    ///
    /// # Errors
    /// The engine did not answer.
    pub(super) async fn own_volume_among<'v>(
        &self,
        volumes: &'v [Volume],
    ) -> Result<Option<&'v str>, CallError> {
        let mut named = volumes.iter().filter(|it| !it.is_bind()).map(|it| it.source.as_str());
        if self.config.sees_engine_disks || named.clone().next().is_none() {
            return Ok(None);
        }
        let Some(mounts) = self.own_mounts().await? else { return Ok(None) };
        Ok(named.find(|name| mounts.iter().any(|mount| mount.name == *name)))
    }

    async fn own_mounts(&self) -> Result<Option<&[Mount]>, CallError> {
        let mounts = self.own_mounts.0.get_or_try_init(|| self.ask_for_own_mounts()).await?;
        Ok(mounts.as_deref())
    }

    async fn ask_for_own_mounts(&self) -> Result<Option<Vec<Mount>>, CallError> {
        let Some(own) = &self.config.own_container else { return Ok(None) };
        let args = ["inspect", "--type", "container", "-f", "{{json .Mounts}}", "--", &own.id];
        let answer = self.engine.call(args).await?;
        if !answer.ok && answer.says_absent(&own.id) {
            // The engine is on another machine.
            return Ok(None);
        }
        let mounts = serde_json::from_str::<Vec<Mount>>(&answer.stdout).map_err(|_| {
            let complaint = answer.error_line();
            CallError::Unreachable(format!(
                "`docker inspect` does not say what is mounted into the worker's container: {complaint}"
            ))
        })?;
        Ok(Some(mounts.into_iter().filter(|mount| own.has(mount)).collect()))
    }
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

    fn mount(source: &str, destination: &str) -> Mount {
        Mount { name: String::new(), source: source.into(), destination: destination.into() }
    }

    #[test]
    fn the_own_container_is_found_by_the_files_that_the_engine_mounts() {
        let docker = format!(
            "612 590 0:61 / / rw - overlay overlay rw,lowerdir=/x\n\
             630 612 254:0 /var/lib/docker/containers/{ID}/hostname /etc/hostname rw,relatime - ext4 /dev/vda rw\n"
        );
        let podman = format!(
            "630 612 0:25 /containers/overlay-containers/{ID}/userdata/resolv.conf /etc/resolv.conf rw - tmpfs tmpfs rw\n"
        );
        for made in [docker, podman] {
            assert_eq!(OwnContainer::of(&made).expect("found").id, ID);
        }
        let volume = format!("630 612 254:0 /srv/{ID}/data /data rw - ext4 /dev/vda rw\n");
        for none in [&volume, "", "1 2 3\n", "25 30 0:22 / /proc rw - proc proc rw\n"] {
            assert_eq!(OwnContainer::of(none), None, "{none}");
        }
    }

    #[test]
    fn a_mount_that_the_process_does_not_see_is_not_its_own() {
        let points = [
            ("/state", "/var/lib/docker/volumes/state/_data"),
            ("/disk", "/volumes/disk/_data"),
            ("/subvolume", "/@root/srv/x"),
            ("/ram", "/"),
            ("/part", "/var/lib/docker/volumes/part/_data/below"),
        ];
        let mount_points = points.map(|(point, root)| (point.into(), root.into())).into();
        let own = OwnContainer { id: ID.into(), mount_points };
        for (source, destination) in [
            ("/var/lib/docker/volumes/state/_data", "/state"),
            ("/var/lib/docker/volumes/disk/_data", "/disk"),
            ("/srv/x", "/subvolume"),
            ("/var/lib/docker/volumes/ram/_data", "/ram"),
        ] {
            assert!(own.has(&mount(source, destination)), "{destination}");
        }
        for (source, destination) in [
            ("/var/lib/docker/volumes/other/_data", "/state"),
            ("/var/lib/docker/volumes/part/_data", "/part"),
            ("/var/lib/docker/volumes/state/_data", "/elsewhere"),
        ] {
            assert!(!own.has(&mount(source, destination)), "{source} at {destination}");
        }
    }

    #[test]
    fn a_path_below_a_mount_is_seen_by_the_engine() {
        let told = r#"[{"Type":"volume","Name":"state","Source":"/var/lib/docker/volumes/state/_data","Destination":"/var/lib/worker","RW":true},
                {"Type":"bind","Source":"/srv/inner","Destination":"/var/lib/worker/inner"},
                {"Type":"tmpfs","Source":"","Destination":"/var/lib/worker/ram"}]"#;
        let mounts: Vec<Mount> = serde_json::from_str(told).expect("mounts");
        assert_eq!(mounts[0].name, "state");
        let seen = |path: &str| seen_at(&mounts, Path::new(path));
        let at = |path: &str| Some(PathBuf::from(path));
        assert_eq!(seen("/var/lib/worker/slot-1/7-8"), at("/var/lib/docker/volumes/state/_data/slot-1/7-8"));
        assert_eq!(seen("/var/lib/worker/inner/x"), at("/srv/inner/x"));
        for hidden in ["/var/lib/worker/ram/x", "/var/lib/worker2/x", "/tmp/x"] {
            assert_eq!(seen(hidden), None, "{hidden}");
        }
    }
}
