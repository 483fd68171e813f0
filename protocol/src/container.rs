//! What a worker must know to run an attempt of a definition: image, words, environment, mounts, limits, stop grace.
//!
//! The server has validated all of it once; the worker validates again what decides about its own machine (its policy).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use bincode::{Decode, Encode};

/// How an attempt is carried out on the worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum RuntimeKind {
    /// A container by `docker run`.
    #[default]
    Docker,
    /// A plain subprocess, where the worker allows it.
    Process,
    /// Nothing is run: ends as the job's own `FAKE_*` environment tells. For tests and benchmarks.
    Fake,
}

impl RuntimeKind {
    /// Every kind, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Docker, Self::Process, Self::Fake];

    /// As it is written in jobs.yaml.
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

/// One definition as a worker needs it. Identified by its revision; sent once per session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ContainerSpec {
    /// Which runtime carries it out.
    pub runtime: RuntimeKind,
    /// The image reference; empty for runtimes without images.
    pub image: String,
    /// Replaces the image's entrypoint: the program, then words that go before the command.
    pub entrypoint: Option<Vec<String>>,
    /// Words after the image; empty: the image's own command.
    pub command: Vec<String>,
    /// Names and values, in the order of the definition; names are unique.
    pub environment: Vec<(String, String)>,
    /// Where the program starts; the image's own if absent.
    pub working_dir: Option<String>,
    /// `user[:group]`, by name or number; the image's own if absent.
    pub user: Option<String>,
    /// Bind mounts and named volumes.
    pub volumes: Vec<Volume>,
    /// The network to join; the bridge if absent.
    pub network: Option<String>,
    /// Paths, each with optional options after a colon, as docker's `--tmpfs` takes them.
    pub tmpfs: Vec<String>,
    /// Whether the root file system is read-only.
    pub read_only: bool,
    /// Capabilities added to Docker's default set.
    pub cap_add: Vec<String>,
    /// Capabilities taken from it.
    pub cap_drop: Vec<String>,
    /// Whether a small init is process 1, so that SIGTERM reaches the program.
    pub init: bool,
    /// `os/arch[/variant]`; the engine's own if absent.
    pub platform: Option<String>,
    /// Labels for the container beside Longshore's own.
    pub labels: Vec<(String, String)>,
    /// When the image is pulled.
    pub pull_policy: PullPolicy,
    /// How long one pull may take.
    pub pull_timeout: Duration,
    /// What it may use.
    pub resources: Resources,
    /// The signal that asks it to stop; the image's own if absent.
    pub stop_signal: Option<String>,
    /// How long it may take to stop before it is killed.
    pub stop_grace: Duration,
    /// Whether the worker asks (`Starting`) and waits for the answer before it creates the container.
    pub ask_before_start: bool,
    /// Stop the container so that it is gone this long after the last heartbeat that the server answered; absent: let it run.
    pub self_fence: Option<Duration>,
    /// How much of its output is kept, in bytes per attempt.
    pub log_bytes_max: u64,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum PullPolicy {
    /// Before every attempt.
    Always,
    /// If the engine does not have it.
    #[default]
    Missing,
    /// Not at all.
    Never,
}

/// Something of the host seen inside of the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Volume {
    /// An absolute path of the host, or the name of a volume.
    pub source: String,
    /// An absolute path inside of the container.
    pub target: String,
    /// Whether the container may only read it.
    pub read_only: bool,
}

impl Volume {
    /// Whether the source is a path of the host rather than the name of a volume.
    #[must_use]
    pub fn is_bind(&self) -> bool {
        self.source.starts_with('/')
    }
}

/// The most memory that a definition may ask for: a pebibyte, more than any machine has.
pub const MEMORY_BYTES_MAX: u64 = 1 << 50;

/// Limits of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Resources {
    /// Thousandths of a core; no limit if absent.
    pub cpus_milli: Option<u32>,
    /// Memory without swap; no limit if absent.
    pub memory_bytes: Option<u64>,
    /// Processes and threads; the worker's default if absent.
    pub pids: Option<u32>,
}

/// What one job adds to its definition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Body {
    /// Laid over the definition's environment.
    pub environment: Vec<(String, String)>,
    /// Appended to the definition's command.
    pub args: Vec<String>,
    /// JSON for `/longshore/input.json`.
    pub input: Option<String>,
}

impl Body {
    /// Whether it adds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.environment.is_empty() && self.args.is_empty() && self.input.is_none()
    }
}
