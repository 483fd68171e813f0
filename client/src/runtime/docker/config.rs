//! Settings of the Docker runtime.

use std::path::PathBuf;
use std::time::Duration;

use super::engine_location;
use super::engine_paths::OwnContainer;
use super::image_gc::ImageGcSettings;
use crate::runtime::policy::Allow;
use crate::usage::UsageSampler;

/// Settings of the Docker runtime.
#[derive(Clone, Debug)]
pub struct Config {
    /// The program: `docker`, or one with the same command line.
    pub program: PathBuf,
    /// Operations that jobs may use.
    pub allow: Allow,
    /// `true` if the engine sees the same file systems as the worker: not with a remote engine, nor from a container without an engine of its
    /// own.
    pub sees_engine_disks: bool,
    /// The container that the worker runs in, if it is known. The engine tells what it has mounted into it.
    pub own_container: Option<OwnContainer>,
    /// Delays before each further try of a pull that the registry has denied.
    pub pull_retries: Vec<Duration>,
    /// Time for which a failing registry counts as an outage, not as a failure of the job.
    pub registry_away_max: Duration,
    /// Time for which further attempts share the failure of a registry that has not answered: those that the server sent before it knew.
    pub outage_shared_for: Duration,
    /// The time in which `docker run` must make its container while the engine answers. It may fill volumes from the image for minutes.
    pub create_timeout: Duration,
    /// The time in which `docker run` must start the container that it has made, while the engine answers that it is not started.
    pub start_timeout: Duration,
    /// Measures what containers use.
    pub usage: UsageSampler,
    /// Removes images when the engine's disk gets full; `None`: never.
    pub image_gc: Option<ImageGcSettings>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            program: "docker".into(),
            allow: Allow::default(),
            sees_engine_disks: engine_location::sees_engine_disks(),
            own_container: OwnContainer::find(),
            pull_retries: [10, 60].map(Duration::from_secs).into(),
            registry_away_max: Duration::from_secs(3600),
            outage_shared_for: Duration::from_secs(5),
            create_timeout: Duration::from_secs(900),
            start_timeout: START_TIMEOUT,
            usage: UsageSampler::default(),
            image_gc: None,
        }
    }
}

/// Image and volumes are there when a container is made, so a start takes a second, and on a loaded machine with slow volume or network
/// plugins some minutes.
const START_TIMEOUT: Duration = Duration::from_secs(600);
