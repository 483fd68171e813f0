//! What this worker allows. Pure, and final: no server can widen it.
//!
//! Definitions come over the network from a server that may be compromised; this is the line that it cannot talk its way across.
//! What a [`ContainerSpec`] cannot say at all (privileged, devices, the host's process or IPC namespace) needs no rule here.

use std::path::{Component, Path, PathBuf};

use protocol::container::{ContainerSpec, Volume};

use super::argv::is_name;

/// What is allowed beyond the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    /// Directories of the host below which bind mounts may start; none by default.
    pub mounts: Vec<PathBuf>,
    /// Patterns of images, `*` standing for any text; empty: every image.
    pub images: Vec<String>,
    /// Capabilities that may be added.
    pub capabilities: Vec<String>,
    /// Whether a job may join the host's network.
    pub host_network: bool,
}

impl Allow {
    /// Where the mounts of something that may run here begin: a bind mount where its path really leads, so that what was looked at is what
    /// is mounted. `resolve` gives the real path behind a path, if this process can see it; if not, the text is all there is, as for a
    /// worker within a container.
    ///
    /// # Errors
    /// Why it may not run here.
    pub fn admit(
        &self,
        spec: &ContainerSpec,
        resolve: impl Fn(&Path) -> Option<PathBuf>,
    ) -> Result<Vec<Volume>, String> {
        match self.refuses(spec) {
            Some(why) => Err(why),
            None => spec.volumes.iter().map(|it| self.admit_mount(it, &resolve)).collect(),
        }
    }

    /// Why it may not run here whatever it mounts.
    #[must_use]
    pub fn refuses(&self, spec: &ContainerSpec) -> Option<String> {
        self.refuses_image(&spec.image)
            .or_else(|| self.refuses_network(spec.network.as_deref()))
            .or_else(|| spec.cap_add.iter().find_map(|it| self.refuses_capability(it)))
    }

    /// Whether a path lies within an allowed directory as that is written: then nobody has to look where that leads.
    #[must_use]
    pub fn names(&self, path: &Path) -> bool {
        self.mounts.iter().any(|allowed| path.starts_with(allowed))
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
            _ => None,
        }
    }

    fn refuses_capability(&self, capability: &str) -> Option<String> {
        let bare = |it: &str| it.to_ascii_uppercase().trim_start_matches("CAP_").to_owned();
        let allowed = self.capabilities.iter().any(|it| bare(it) == bare(capability));
        (!allowed).then(|| {
            format!("this worker does not allow to add the capability `{}`", capability.escape_debug())
        })
    }

    fn admit_mount(
        &self,
        volume: &Volume,
        resolve: impl Fn(&Path) -> Option<PathBuf>,
    ) -> Result<Volume, String> {
        if !volume.is_bind() {
            return Ok(volume.clone());
        }
        let source = Path::new(&volume.source);
        let shown = volume.source.escape_debug();
        if source.components().any(|it| it == Component::ParentDir) {
            return Err(format!("this worker allows no `..` in the mount `{shown}`"));
        }
        let real = |path: &Path| resolve(path).unwrap_or_else(|| path.to_path_buf());
        let source = real(source);
        if !self.names(&source) && !self.mounts.iter().any(|allowed| source.starts_with(real(allowed))) {
            return Err(format!("this worker does not allow to mount `{shown}` (--allow-mount)"));
        }
        if SOCKETS.iter().any(|socket| real(Path::new(socket)).starts_with(&source)) {
            return Err(format!("no worker mounts `{shown}`: that would give the Docker socket away"));
        }
        match source.into_os_string().into_string() {
            Ok(source) => Ok(Volume { source, ..volume.clone() }),
            Err(_) => Err(format!("the mount `{shown}` leads to a path that is no text")),
        }
    }
}

/// Whether the whole text fits the pattern, in which `*` stands for any text.
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

/// Where engines that speak like Docker listen.
const SOCKETS: [&str; 5] = [
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/crio/crio.sock",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(source: &str) -> ContainerSpec {
        let volumes = vec![Volume { source: source.into(), target: "/x".into(), read_only: true }];
        ContainerSpec { image: "app".into(), volumes, ..ContainerSpec::default() }
    }

    fn as_written(_: &Path) -> Option<PathBuf> {
        None
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
        assert!(Allow::default().admit(&named, as_written).is_ok());
        assert!(Allow::default().admit(&network("none"), as_written).is_ok());
    }

    #[test]
    fn a_mount_is_judged_by_where_it_really_leads() {
        let allow = Allow { mounts: vec!["/srv/data".into()], ..Allow::default() };
        assert!(allow.admit(&bind("/srv/data/a"), as_written).is_ok());
        assert!(allow.admit(&bind("/srv/database"), as_written).is_err());
        assert!(allow.admit(&bind("/srv/data/../../etc"), as_written).is_err());
        let link = |path: &Path| (path == Path::new("/srv/data/link")).then(|| PathBuf::from("/etc"));
        assert!(allow.admit(&bind("/srv/data/link"), link).is_err());
        // A link that stays where it may is not followed a second time by somebody else.
        let link = |path: &Path| (path == Path::new("/srv/data/link")).then(|| PathBuf::from("/srv/data/b"));
        let admitted = allow.admit(&bind("/srv/data/link"), link).expect("it may");
        assert_eq!(admitted, bind("/srv/data/b").volumes);
    }

    #[test]
    fn whatever_is_allowed_no_job_gets_the_socket() {
        let everything = Allow {
            mounts: ["/", "/run/docker.sock"].map(PathBuf::from).into(),
            images: vec!["*".into()],
            capabilities: vec!["ALL".into()],
            host_network: true,
        };
        for source in ["/", "/var/run", "/run/docker.sock", "/run"] {
            assert!(everything.admit(&bind(source), as_written).is_err(), "{source}");
        }
        let link = |path: &Path| (path == Path::new("/srv/link")).then(|| PathBuf::from("/run/docker.sock"));
        assert!(everything.admit(&bind("/srv/link"), link).is_err());
        assert!(everything.admit(&bind("/srv"), as_written).is_ok());
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
