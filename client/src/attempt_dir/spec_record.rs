//! The JSON of a definition in an attempt directory. A new field gets a default here, so that an older worker's directories stay readable.

use std::time::Duration;

use protocol::container::{PullPolicy, Resources, Volume};
use protocol::{ContainerSpec, RuntimeKind};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SpecRecord {
    runtime: String,
    image: String,
    entrypoint: Option<Vec<String>>,
    command: Vec<String>,
    environment: Vec<(String, String)>,
    working_dir: Option<String>,
    user: Option<String>,
    /// Source, target, read-only.
    volumes: Vec<(String, String, bool)>,
    network: Option<String>,
    tmpfs: Vec<String>,
    read_only: bool,
    cap_add: Vec<String>,
    cap_drop: Vec<String>,
    init: bool,
    platform: Option<String>,
    labels: Vec<(String, String)>,
    pull_policy: PullPolicyRecord,
    pull_timeout: Duration,
    cpus_milli: Option<u32>,
    memory_bytes: Option<u64>,
    pids: Option<u32>,
    stop_signal: Option<String>,
    stop_grace: Duration,
    ask_before_start: bool,
    self_fence: Option<Duration>,
    log_bytes_max: u64,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PullPolicyRecord {
    Always,
    #[default]
    Missing,
    Never,
}

impl Default for SpecRecord {
    fn default() -> Self {
        Self::from(&ContainerSpec::default())
    }
}

impl From<&ContainerSpec> for SpecRecord {
    fn from(spec: &ContainerSpec) -> Self {
        let spec = spec.clone();
        Self {
            runtime: spec.runtime.name().into(),
            image: spec.image,
            entrypoint: spec.entrypoint,
            command: spec.command,
            environment: spec.environment,
            working_dir: spec.working_dir,
            user: spec.user,
            volumes: spec.volumes.into_iter().map(|it| (it.source, it.target, it.read_only)).collect(),
            network: spec.network,
            tmpfs: spec.tmpfs,
            read_only: spec.read_only,
            cap_add: spec.cap_add,
            cap_drop: spec.cap_drop,
            init: spec.init,
            platform: spec.platform,
            labels: spec.labels,
            pull_policy: match spec.pull_policy {
                PullPolicy::Always => PullPolicyRecord::Always,
                PullPolicy::Missing => PullPolicyRecord::Missing,
                PullPolicy::Never => PullPolicyRecord::Never,
            },
            pull_timeout: spec.pull_timeout,
            cpus_milli: spec.resources.cpus_milli,
            memory_bytes: spec.resources.memory_bytes,
            pids: spec.resources.pids,
            stop_signal: spec.stop_signal,
            stop_grace: spec.stop_grace,
            ask_before_start: spec.ask_before_start,
            self_fence: spec.self_fence,
            log_bytes_max: spec.log_bytes_max,
        }
    }
}

impl From<SpecRecord> for ContainerSpec {
    fn from(spec: SpecRecord) -> Self {
        Self {
            runtime: RuntimeKind::ALL.into_iter().find(|it| it.name() == spec.runtime).unwrap_or_default(),
            image: spec.image,
            entrypoint: spec.entrypoint,
            command: spec.command,
            environment: spec.environment,
            working_dir: spec.working_dir,
            user: spec.user,
            volumes: spec
                .volumes
                .into_iter()
                .map(|(source, target, read_only)| Volume { source, target, read_only })
                .collect(),
            network: spec.network,
            tmpfs: spec.tmpfs,
            read_only: spec.read_only,
            cap_add: spec.cap_add,
            cap_drop: spec.cap_drop,
            init: spec.init,
            platform: spec.platform,
            labels: spec.labels,
            pull_policy: match spec.pull_policy {
                PullPolicyRecord::Always => PullPolicy::Always,
                PullPolicyRecord::Missing => PullPolicy::Missing,
                PullPolicyRecord::Never => PullPolicy::Never,
            },
            pull_timeout: spec.pull_timeout,
            resources: Resources {
                cpus_milli: spec.cpus_milli,
                memory_bytes: spec.memory_bytes,
                pids: spec.pids,
            },
            stop_signal: spec.stop_signal,
            stop_grace: spec.stop_grace,
            ask_before_start: spec.ask_before_start,
            self_fence: spec.self_fence,
            log_bytes_max: spec.log_bytes_max,
        }
    }
}
