//! The policy of this worker. Pure and final: no server can widen it.
//!
//! Definitions come over the network from a server that may be compromised. Options that a [`ContainerSpec`] cannot express (privileged,
//! devices, the host's process or IPC namespace) need no rule here.

use std::path::{Component, Path, PathBuf};

use protocol::container::{ContainerSpec, ENGINE_SOCKETS, Volume};

/// Operations that are allowed beyond the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    /// Host directories below which bind mounts may start; none by default.
    pub mounts: Vec<PathBuf>,
    /// Allows paths below `mounts` although this process does not see the engine's file systems: a job that may write such a directory can
    /// leave a link there through which a later job mounts any path of the host.
    pub mounts_below: bool,
    /// Patterns of named volumes, with `*` for any text; none by default.
    pub volumes: Vec<String>,
    /// Names of networks beside the bridge and `none`; none by default.
    pub networks: Vec<String>,
    /// Patterns of images, with `*` for any text; empty: every image.
    pub images: Vec<String>,
    /// Capabilities that may be added.
    pub capabilities: Vec<String>,
    /// Allows jobs to join the network of the host.
    pub host_network: bool,
    /// Sockets of the engine that this worker uses, refused like the usual ones whatever `mounts` allows.
    pub engine_sockets: Vec<PathBuf>,
    /// Directories of this worker, as its engine sees them, that no mount may hold or lie in, whatever `mounts` allows: its state, with
    /// the output and the results of other jobs, and their secrets. The runtime sets them.
    pub private_dirs: Vec<PathBuf>,
}

impl Allow {
    /// Checks a definition where this process does not see the engine's file systems, and so cannot resolve links there: sources must be
    /// allowed directories themselves, unless `mounts_below` is set.
    ///
    /// # Errors
    /// The rule that refuses it.
    pub fn admit_unseen(&self, spec: &ContainerSpec) -> Result<(), String> {
        self.admit(spec, |path| Ok(path.to_owned()))?;
        let mut sources = spec.volumes.iter().filter(|it| it.is_bind()).map(|it| &it.source);
        let below =
            sources.find(|it| !self.mounts_below && !self.mounts.iter().any(|dir| dir == Path::new(it)));
        match below {
            Some(source) => Err(format!(
                "this worker does not see the file systems of its engine, so it mounts only the directories of --allow-mount themselves, not `{}` (--allow-mount-below)",
                source.escape_debug()
            )),
            None => Ok(()),
        }
    }

    /// Checks a definition and returns its mounts with resolved sources, so that the checked path is the mounted one. `resolve` returns the
    /// real path, or the reason why this process cannot see it.
    ///
    /// # Errors
    /// The rule that refuses it.
    pub fn admit(
        &self,
        spec: &ContainerSpec,
        resolve: impl Fn(&Path) -> Result<PathBuf, String>,
    ) -> Result<Vec<Volume>, String> {
        match self.refuses(spec) {
            Some(why) => Err(why),
            None => spec.volumes.iter().map(|it| self.admit_mount(it, &resolve)).collect(),
        }
    }

    /// The rule that refuses it, whatever it mounts.
    #[must_use]
    pub fn refuses(&self, spec: &ContainerSpec) -> Option<String> {
        self.refuses_image(&spec.image)
            .or_else(|| self.refuses_network(spec.network.as_deref()))
            .or_else(|| spec.volumes.iter().filter(|it| !it.is_bind()).find_map(|it| self.refuses_volume(it)))
            .or_else(|| spec.cap_add.iter().find_map(|it| self.refuses_capability(it)))
    }

    /// `true` if a path lies within an allowed directory as that is written; then no link has to be resolved.
    #[must_use]
    pub fn names(&self, path: &Path) -> bool {
        self.mounts.iter().any(|allowed| path.starts_with(allowed))
    }

    /// The sockets that no mount may contain: those of the usual places and those of this worker's engine.
    pub fn sockets(&self) -> impl Iterator<Item = &Path> {
        ENGINE_SOCKETS.iter().map(Path::new).chain(self.engine_sockets.iter().map(PathBuf::as_path))
    }

    fn refuses_image(&self, image: &str) -> Option<String> {
        let allowed = self.images.is_empty() || self.images.iter().any(|pattern| matches(pattern, image));
        (!allowed).then(|| format!("this worker allows no image `{}` (--allow-image)", image.escape_debug()))
    }

    fn refuses_network(&self, network: Option<&str>) -> Option<String> {
        match network {
            Some("host") if !self.host_network => {
                Some("this worker does not allow the host's network (--allow-host-network)".into())
            }
            Some(other) if other.starts_with("container:") => {
                Some("this worker lets no job join another container's network".into())
            }
            // Docker reads other forms too: `name=host` is the host's network.
            Some(other) if !is_name(other) => {
                Some(format!("this worker takes the name of a network, not `{}`", other.escape_debug()))
            }
            None | Some("host" | "bridge" | "none") => None,
            Some(other) if self.networks.iter().any(|it| it == other) => None,
            Some(other) => {
                Some(format!("this worker does not allow the network `{other}` (--allow-network)"))
            }
        }
    }

    fn refuses_volume(&self, volume: &Volume) -> Option<String> {
        let allowed = self.volumes.iter().any(|pattern| matches(pattern, &volume.source));
        (!allowed).then(|| {
            format!(
                "this worker does not allow the volume `{}` (--allow-volume)",
                volume.source.escape_debug()
            )
        })
    }

    fn refuses_capability(&self, capability: &str) -> Option<String> {
        let allowed = is_dropped_by_default(capability)
            || self.capabilities.iter().any(|it| bare_capability(it) == bare_capability(capability));
        (!allowed).then(|| {
            format!("this worker does not allow to add the capability `{}`", capability.escape_debug())
        })
    }

    fn admit_mount(
        &self,
        volume: &Volume,
        resolve: impl Fn(&Path) -> Result<PathBuf, String>,
    ) -> Result<Volume, String> {
        if !volume.is_bind() {
            return Ok(volume.clone());
        }
        let source = Path::new(&volume.source);
        let shown = volume.source.escape_debug();
        if source.components().any(|it| it == Component::ParentDir) {
            return Err(format!("this worker allows no `..` in the mount `{shown}`"));
        }
        // An allowed directory that cannot be seen is compared as it is written, which allows no more.
        let real = |path: &Path| resolve(path).unwrap_or_else(|_| path.to_path_buf());
        let source = resolve(source).map_err(|why| {
            format!(
                "this worker cannot see whether a link in the mount `{shown}` leads out of --allow-mount: {why}; the worker's user must be able to search its directories"
            )
        })?;
        if !self.names(&source) && !self.mounts.iter().any(|allowed| source.starts_with(real(allowed))) {
            return Err(format!("this worker does not allow to mount `{shown}` (--allow-mount)"));
        }
        if self.sockets().any(|socket| real(socket).starts_with(&source)) {
            return Err(format!(
                "no worker mounts `{shown}`: that would give the socket of a container engine away"
            ));
        }
        let holds_own = |dir: &PathBuf| source.starts_with(dir) || dir.starts_with(&source);
        if let Some(dir) = self.private_dirs.iter().map(|dir| real(dir)).find(holds_own) {
            return Err(format!(
                "no worker mounts `{shown}`: that would give files of other jobs away, in this worker's own directory {}",
                dir.display()
            ));
        }
        match source.into_os_string().into_string() {
            Ok(source) => Ok(Volume { source, ..volume.clone() }),
            Err(_) => Err(format!("the mount `{shown}` leads to a path that is no text")),
        }
    }
}

/// `true` for capabilities of Docker's default set that containers get only if their definition asks for them: raw sockets can forge
/// packets of other containers, and device nodes are of no use to a job.
pub(super) fn is_dropped_by_default(capability: &str) -> bool {
    DROPPED.iter().any(|it| *it == bare_capability(capability))
}

/// `true` for names of volumes and networks that Docker cannot read as something else.
pub(super) fn is_name(name: &str) -> bool {
    name.starts_with(|it: char| it.is_ascii_alphanumeric())
        && name.chars().all(|it| it.is_ascii_alphanumeric() || "_.-".contains(it))
}

/// A capability in capitals without `CAP_`.
pub(super) fn bare_capability(capability: &str) -> String {
    capability.to_ascii_uppercase().trim_start_matches("CAP_").to_owned()
}

/// `true` if the whole text fits the pattern, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Capabilities that are dropped unless a definition asks for them.
pub(super) const DROPPED: [&str; 2] = ["NET_RAW", "MKNOD"];

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(source: &str) -> ContainerSpec {
        let volumes = vec![Volume { source: source.into(), target: "/x".into(), read_only: true }];
        ContainerSpec { image: "app".into(), volumes, ..ContainerSpec::default() }
    }

    fn as_written(path: &Path) -> Result<PathBuf, String> {
        Ok(path.to_owned())
    }

    /// Paths below `link` are really `target`.
    fn with_link(link: &'static str, target: &'static str) -> impl Fn(&Path) -> Result<PathBuf, String> {
        move |path| Ok(if path.starts_with(link) { target.into() } else { path.to_owned() })
    }

    #[test]
    fn everything_dangerous_is_refused_by_default() {
        let network = |it: &str| ContainerSpec { network: Some(it.into()), ..ContainerSpec::default() };
        let capability = ContainerSpec { cap_add: vec!["SYS_ADMIN".into()], ..ContainerSpec::default() };
        for spec in [
            bind("/"),
            bind("/srv"),
            bind("/var/run/docker.sock"),
            network("host"),
            network("container:x"),
            network("name=host"),
            network("name=none,alias=x"),
            network("ns:/proc/1/ns/net"),
            network(""),
            capability,
        ] {
            assert!(Allow::default().admit(&spec, as_written).is_err(), "{spec:?}");
        }
        let named = ContainerSpec {
            volumes: vec![Volume { source: "cache".into(), target: "/x".into(), read_only: false }],
            ..ContainerSpec::default()
        };
        assert!(Allow::default().admit(&named, as_written).is_err(), "a volume may hold another job's data");
        for pattern in ["cache", "ca*"] {
            let allow = Allow { volumes: vec![pattern.into()], ..Allow::default() };
            assert!(allow.admit(&named, as_written).is_ok(), "{pattern}");
        }
        for usual in ["none", "bridge"] {
            assert!(Allow::default().admit(&network(usual), as_written).is_ok(), "{usual}");
        }
        assert!(Allow::default().admit(&network("backend"), as_written).is_err());
        let allow = Allow { networks: vec!["backend".into()], ..Allow::default() };
        assert!(allow.admit(&network("backend"), as_written).is_ok());
        assert!(allow.admit(&network("backend2"), as_written).is_err());
        let raw = ContainerSpec { cap_add: vec!["CAP_NET_RAW".into()], ..ContainerSpec::default() };
        assert!(Allow::default().admit(&raw, as_written).is_ok(), "it is in Docker's own set");
    }

    #[test]
    fn a_mount_is_checked_by_its_resolved_path() {
        let allow = Allow { mounts: vec!["/srv/data".into()], ..Allow::default() };
        assert!(allow.admit(&bind("/srv/data/a"), as_written).is_ok());
        assert!(allow.admit(&bind("/srv/database"), as_written).is_err());
        assert!(allow.admit(&bind("/srv/data/../../etc"), as_written).is_err());
        let link = with_link("/srv/data/link", "/etc");
        assert!(allow.admit(&bind("/srv/data/link"), link).is_err());
        // An allowed link is not followed a second time by the engine.
        let link = with_link("/srv/data/link", "/srv/data/b");
        let admitted = allow.admit(&bind("/srv/data/link"), link).expect("it may");
        assert_eq!(admitted, bind("/srv/data/b").volumes);
    }

    #[test]
    fn a_mount_whose_links_cannot_be_seen_is_refused() {
        let allow = Allow { mounts: ["/srv", "/srv/data"].map(PathBuf::from).into(), ..Allow::default() };
        let hidden = |path: &Path| match path.starts_with("/srv/data") {
            true => Err("Permission denied".to_owned()),
            false => Ok(path.to_owned()),
        };
        for source in ["/srv/data/link", "/srv/data"] {
            let refused = allow.admit(&bind(source), hidden);
            assert!(refused.is_err_and(|why| why.contains("Permission denied")), "{source}");
        }
        assert!(
            allow.admit(&bind("/srv/other"), hidden).is_ok(),
            "another allowed directory counts as written"
        );
    }

    #[test]
    fn no_policy_gives_the_engines_socket_away() {
        let everything = Allow {
            mounts: ["/", "/run/docker.sock"].map(PathBuf::from).into(),
            images: vec!["*".into()],
            capabilities: vec!["ALL".into()],
            host_network: true,
            mounts_below: true,
            volumes: vec!["*".into()],
            networks: Vec::new(),
            engine_sockets: vec!["/srv/engine/docker.sock".into()],
            private_dirs: Vec::new(),
        };
        for source in ["/", "/var/run", "/run/docker.sock", "/run", "/srv", "/srv/engine/docker.sock"] {
            assert!(everything.admit(&bind(source), as_written).is_err(), "{source}");
        }
        let link = with_link("/srv/link", "/run/docker.sock");
        assert!(everything.admit(&bind("/srv/link"), link).is_err());
        assert!(everything.admit_unseen(&bind("/srv/engine")).is_err());
        let link = with_link("/srv", "/mnt/docker.sock");
        assert!(everything.admit(&bind("/mnt"), link).is_err(), "the engine's socket is a link into it");
        assert!(everything.admit(&bind("/srv/other"), as_written).is_ok());
    }

    #[test]
    fn no_policy_gives_the_workers_own_files_away() {
        let everything = Allow {
            mounts: vec!["/".into()],
            mounts_below: true,
            private_dirs: ["/data/worker/state", "/dev/shm/longshore-0-1-2"].map(PathBuf::from).into(),
            ..Allow::default()
        };
        for source in ["/data", "/data/worker/state", "/data/worker/state/attempts/1-2", "/dev", "/dev/shm"] {
            let refused = everything.admit(&bind(source), as_written);
            assert!(refused.is_err_and(|why| why.contains("files of other jobs")), "{source}");
        }
        for source in ["/data/worker/state2", "/data/worker/data", "/dev/shm/longshore-0-1-23"] {
            assert!(everything.admit(&bind(source), as_written).is_ok(), "{source}");
        }
        let link = with_link("/srv/link", "/data/worker");
        assert!(everything.admit(&bind("/srv/link"), link).is_err());
        let link = with_link("/data/worker/state", "/mnt/state");
        assert!(everything.admit(&bind("/mnt"), link).is_err(), "the state directory is a link into it");
        assert!(everything.admit_unseen(&bind("/data")).is_err());
    }

    #[test]
    fn without_sight_of_the_engines_disks_only_the_allowed_directories_are_mounted() {
        let allow = Allow { mounts: vec!["/srv/data".into()], ..Allow::default() };
        assert!(allow.admit_unseen(&bind("/srv/data")).is_ok());
        assert!(allow.admit_unseen(&bind("/srv/data/")).is_ok());
        let below = bind("/srv/data/link");
        assert!(allow.admit_unseen(&below).is_err_and(|why| why.contains("--allow-mount-below")));
        assert!(allow.admit(&below, as_written).is_ok(), "where links are resolved it is");
        let below_too = Allow { mounts_below: true, ..allow };
        assert!(below_too.admit_unseen(&below).is_ok());
        assert!(below_too.admit_unseen(&bind("/srv/other")).is_err());
    }

    #[test]
    fn images_are_matched_as_a_whole() {
        for (pattern, image, fits) in [
            ("registry.example/team/*", "registry.example/team/app:1", true),
            ("registry.example/team/*", "evil/registry.example/team/app", false),
            ("app", "app", true),
            ("app", "app:1", false),
            ("*/app:*", "a/b/app:2", true),
            ("a*a", "a", false),
            ("*", "anything", true),
        ] {
            assert_eq!(matches(pattern, image), fits, "{pattern} {image}");
        }
    }
}
