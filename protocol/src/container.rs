//! Everything that a worker must know to run an attempt of a definition: image, command, environment, mounts,
//! limits, stop grace.
//!
//! The server has validated it; the worker checks its own policy again.

mod options;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

pub use options::{ContainerOptions, HOST_GATEWAY, ULIMITS, UNLIMITED, Ulimit};

use crate::wire::Unsent;
use crate::{VERSIONS, milliseconds};

/// Kind of execution on the worker.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeKind {
    /// A container by `docker run`.
    #[default]
    Docker,
    /// A plain subprocess, where the worker allows it.
    Process,
    /// Nothing is run: the attempt ends as its `FAKE_*` environment says. For tests and benchmarks.
    Fake,
}

impl RuntimeKind {
    /// All kinds, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Docker, Self::Process, Self::Fake];

    /// Name in jobs.yaml.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Process => "process",
            Self::Fake => "fake",
        }
    }
}

impl fmt::Display for RuntimeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A definition as a worker needs it. Identified by its revision; sent once per session.
///
/// Its serde form is a part of the stored form of a definition, of which the revision is the hash, and is kept in attempt directories. A new
/// field is left out while it has its default (`skip_serializing_if`), so that older files keep their revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerSpec {
    /// The runtime that runs it.
    pub runtime: RuntimeKind,
    /// The image reference; empty for runtimes without images.
    pub image: String,
    /// Replaces the image's entrypoint: the program, then arguments that go before the command.
    pub entrypoint: Option<Vec<String>>,
    /// Arguments after the image; empty: the image's own command.
    pub command: Vec<String>,
    /// Names and values, in the order of the definition; names are unique.
    pub environment: Vec<(String, String)>,
    /// Working directory; the image's own if absent.
    pub working_dir: Option<String>,
    /// `user[:group]`, by name or number; the image's own if absent.
    pub user: Option<String>,
    /// Bind mounts and named volumes.
    pub volumes: Vec<Volume>,
    /// The network to join; the bridge if absent.
    pub network: Option<String>,
    /// Paths, each with optional options after a colon, as docker's `--tmpfs` takes them.
    pub tmpfs: Vec<String>,
    /// Bytes of `/dev/shm`, 1 to [`MEMORY_BYTES_MAX`]; the engine's default (Docker: 64 MiB) if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shm_bytes: Option<u64>,
    /// The root file system is read-only.
    pub read_only: bool,
    /// Capabilities added to Docker's default set.
    pub cap_add: Vec<String>,
    /// Capabilities removed from it.
    pub cap_drop: Vec<String>,
    /// A small init is process 1, so that SIGTERM reaches the program.
    pub init: bool,
    /// `os/arch[/variant]`; the engine's own if absent.
    pub platform: Option<String>,
    /// Labels for the container beside Longshore's own.
    pub labels: Vec<(String, String)>,
    /// Pull policy.
    pub pull_policy: PullPolicy,
    /// Timeout of one pull.
    #[serde(rename = "pull_timeout_ms", alias = "pull_timeout", with = "milliseconds")]
    pub pull_timeout: Duration,
    /// Resource limits.
    #[serde(flatten)]
    pub resources: Resources,
    /// The signal that asks it to stop; the image's own if absent.
    pub stop_signal: Option<String>,
    /// Time to stop before it is killed.
    #[serde(rename = "stop_grace_ms", alias = "stop_grace", with = "milliseconds")]
    pub stop_grace: Duration,
    /// The worker asks (`Starting`) and waits for the answer before it creates the container.
    pub ask_before_start: bool,
    /// Stop the container so that it is gone this long after the last heartbeat that the server answered; absent: let it run.
    #[serde(rename = "self_fence_ms", alias = "self_fence", with = "milliseconds::optional")]
    pub self_fence: Option<Duration>,
    /// Bytes of output kept per attempt.
    pub log_bytes_max: u64,
    /// Regular expressions whose matches within a line are masked in the output. At most [`LOG_MASKS_MAX`], each of at most
    /// [`LOG_MASK_BYTES_MAX`] bytes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log_mask: Vec<String>,
    /// JSON for `/longshore/input.json` of a job that has no input of its own. At most [`INPUT_BYTES_MAX`] bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// Options that protocol version 1 does not know. `ExtendedDefinitions` carries them.
    #[serde(flatten)]
    pub options: Unsent<ContainerOptions>,
}

impl ContainerSpec {
    /// The lowest protocol version of a worker that can run it as it is meant.
    #[must_use]
    pub fn protocol_version(&self) -> u16 {
        if self.options.is_empty() { VERSIONS.lowest } else { ContainerOptions::VERSION }
    }

    /// The first word of the command line with these arguments: the program, unless the image has an entrypoint of its own.
    #[must_use]
    pub fn first_word<'s>(&'s self, args: &'s [String]) -> Option<&'s str> {
        self.entrypoint.iter().flatten().chain(&self.command).chain(args).next().map(String::as_str)
    }
}

/// Length of the first word of a command line in bytes: PATH_MAX of Linux without the NUL. `docker run` hangs if a program is missing whose
/// name has about 64 KiB.
pub const PROGRAM_BYTES_MAX: usize = 4_095;

/// A larger input belongs into a volume or an object store.
pub const INPUT_BYTES_MAX: usize = 256 << 10;

/// Each byte of output is looked at once per pattern.
pub const LOG_MASKS_MAX: usize = 16;
/// Length of a pattern of `log_mask` in bytes.
pub const LOG_MASK_BYTES_MAX: usize = 512;
/// A pattern of `log_mask` that compiles to more bytes is refused by server and worker: `a{1000}{1000}` is a million states.
pub const LOG_MASK_COMPILED_BYTES_MAX: usize = 1 << 20;

/// Pull policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullPolicy {
    /// Before every attempt.
    Always,
    /// If the engine does not have it.
    #[default]
    Missing,
    /// Use only an image that the engine has.
    Never,
}

/// A bind mount or volume. The order of its fields is that of the lists in attempt directories of older workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
pub struct Volume {
    /// An absolute path of the host, or the name of a volume.
    pub source: String,
    /// An absolute path inside of the container.
    pub target: String,
    /// The container may only read it.
    pub read_only: bool,
}

impl Volume {
    /// The source is a path of the host and not the name of a volume.
    #[must_use]
    pub fn is_bind(&self) -> bool {
        self.source.starts_with('/')
    }
}

/// Usual sockets of container engines. A job that can write to one has the whole machine, so neither they nor directories above them are mounted.
pub const ENGINE_SOCKETS: [&str; 10] = [
    "/run/docker.sock",
    "/run/docker/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/crio/crio.sock",
    "/var/run/docker.sock",
    "/var/run/docker/docker.sock",
    "/var/run/containerd/containerd.sock",
    "/var/run/podman/podman.sock",
    "/var/run/crio/crio.sock",
];

/// Upper bound of a memory limit: a pebibyte, more than any machine has.
pub const MEMORY_BYTES_MAX: u64 = 1 << 50;

/// Limits of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// Thousandths of a core; no limit if absent.
    pub cpus_milli: Option<u32>,
    /// Memory without swap; no limit if absent.
    pub memory_bytes: Option<u64>,
    /// Processes and threads; the worker's default if absent.
    pub pids: Option<u32>,
    /// GPUs that are reserved for it.
    #[serde(skip_serializing_if = "is_zero")]
    pub gpus: u32,
    /// Amounts of resources that operators of workers named, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub custom: Vec<(String, u32)>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Overrides of one job over its definition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(default)]
pub struct Overrides {
    /// Laid over the definition's environment.
    pub environment: Vec<(String, String)>,
    /// Appended to the definition's command.
    pub args: Vec<String>,
    /// JSON for `/longshore/input.json`.
    pub input: Option<String>,
}

impl Overrides {
    /// It adds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.environment.is_empty() && self.args.is_empty() && self.input.is_none()
    }
}
