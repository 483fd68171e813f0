//! The JSON of an attempt directory. Own types, so that neither a change of the protocol nor one of the brain makes what an older
//! worker has written unreadable: a new field gets a default here.

use std::time::Duration;

use protocol::container::{Body, PullPolicy, Resources, Volume};
use protocol::order::StopCause;
use protocol::report::OutputLengths;
use protocol::{ContainerSpec, Fence, JobId, Nonce, Revision, RuntimeKind, Timestamp, Token};
use serde::{Deserialize, Serialize};
use worker::input::{Exit, Fault};
use worker::step::Launch;

use super::{Ending, Progress, Replayed, Stopping};

/// `attempt.json`.
#[derive(Serialize, Deserialize)]
pub(super) struct Record {
    job: u64,
    fence: u64,
    nonce: u64,
    revision: String,
    name: String,
    #[serde(default)]
    time_left: Option<Duration>,
    spec: Spec,
    #[serde(default)]
    body: Option<BodyRecord>,
}

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Spec {
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
    pull_policy: Pull,
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
enum Pull {
    Always,
    #[default]
    Missing,
    Never,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct BodyRecord {
    environment: Vec<(String, String)>,
    args: Vec<String>,
    input: Option<String>,
}

/// `stopping`.
#[derive(Serialize, Deserialize)]
pub(super) struct Stopped {
    cause: Cause,
    at_ms: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Cause {
    Cancel,
    Timeout,
    Superseded,
    Pinning,
    Drain,
    SelfFence,
}

/// `acknowledged`.
#[derive(Serialize, Deserialize)]
pub(super) struct Sent {
    acknowledged: Lengths,
    #[serde(default)]
    hollow: Option<(Lengths, Lengths)>,
}

/// `replayed`.
#[derive(Serialize, Deserialize)]
pub(super) struct Again {
    #[serde(flatten)]
    from: Lengths,
    #[serde(default)]
    missing: Lengths,
}

/// Part of others.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Lengths {
    stdout: u64,
    stderr: u64,
}

/// `exit`.
#[derive(Serialize, Deserialize)]
pub(super) struct Ended {
    at_ms: i64,
    output: Lengths,
    exit: ExitRecord,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ExitRecord {
    Ran { code: i32, oom: bool, ran: Duration, result: Option<String> },
    NotStarted { fault: FaultRecord, code: Option<i32>, message: String },
    DaemonLost { message: String, ran: Option<Duration> },
    Vanished,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FaultRecord {
    Pull,
    Definition,
    Host,
    Stopped,
}

impl Default for Spec {
    fn default() -> Self {
        Self::from(&ContainerSpec::default())
    }
}

impl From<&Launch> for Record {
    fn from(launch: &Launch) -> Self {
        Self {
            job: launch.token.job.0,
            fence: launch.token.fence.0,
            nonce: launch.token.nonce.0,
            revision: launch.revision.to_string(),
            name: launch.name.to_string(),
            time_left: launch.time_left,
            spec: Spec::from(&*launch.spec),
            body: launch.body.clone().map(|Body { environment, args, input }| BodyRecord {
                environment,
                args,
                input,
            }),
        }
    }
}

impl From<Record> for Launch {
    fn from(record: Record) -> Self {
        Self {
            token: Token { job: JobId(record.job), fence: Fence(record.fence), nonce: Nonce(record.nonce) },
            revision: Revision(u128::from_str_radix(&record.revision, 16).unwrap_or_default()),
            name: record.name.into(),
            spec: ContainerSpec::from(record.spec).into(),
            body: record.body.map(|BodyRecord { environment, args, input }| Body {
                environment,
                args,
                input,
            }),
            time_left: record.time_left,
        }
    }
}

impl From<&ContainerSpec> for Spec {
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
                PullPolicy::Always => Pull::Always,
                PullPolicy::Missing => Pull::Missing,
                PullPolicy::Never => Pull::Never,
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

impl From<Spec> for ContainerSpec {
    fn from(spec: Spec) -> Self {
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
                Pull::Always => PullPolicy::Always,
                Pull::Missing => PullPolicy::Missing,
                Pull::Never => PullPolicy::Never,
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

impl From<Stopping> for Stopped {
    fn from(stopping: Stopping) -> Self {
        Self { cause: stopping.cause.into(), at_ms: stopping.at.0 }
    }
}

impl From<Stopped> for Stopping {
    fn from(stopped: Stopped) -> Self {
        Self { cause: stopped.cause.into(), at: Timestamp(stopped.at_ms) }
    }
}

impl From<StopCause> for Cause {
    fn from(cause: StopCause) -> Self {
        match cause {
            StopCause::Cancel => Self::Cancel,
            StopCause::Timeout => Self::Timeout,
            StopCause::Superseded => Self::Superseded,
            StopCause::Pinning => Self::Pinning,
            StopCause::Drain => Self::Drain,
            StopCause::SelfFence => Self::SelfFence,
        }
    }
}

impl From<Cause> for StopCause {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Cancel => Self::Cancel,
            Cause::Timeout => Self::Timeout,
            Cause::Superseded => Self::Superseded,
            Cause::Pinning => Self::Pinning,
            Cause::Drain => Self::Drain,
            Cause::SelfFence => Self::SelfFence,
        }
    }
}

impl From<OutputLengths> for Lengths {
    fn from(lengths: OutputLengths) -> Self {
        Self { stdout: lengths.stdout, stderr: lengths.stderr }
    }
}

impl From<Lengths> for OutputLengths {
    fn from(lengths: Lengths) -> Self {
        Self { stdout: lengths.stdout, stderr: lengths.stderr }
    }
}

impl From<Replayed> for Again {
    fn from(replayed: Replayed) -> Self {
        Self { from: replayed.from.into(), missing: replayed.missing.into() }
    }
}

impl From<Again> for Replayed {
    fn from(again: Again) -> Self {
        Self { from: again.from.into(), missing: again.missing.into() }
    }
}

impl From<Progress> for Sent {
    fn from(progress: Progress) -> Self {
        Self {
            acknowledged: progress.acknowledged.into(),
            hollow: progress.hollow.map(|(from, to)| (from.into(), to.into())),
        }
    }
}

impl From<Sent> for Progress {
    fn from(sent: Sent) -> Self {
        Self {
            acknowledged: sent.acknowledged.into(),
            hollow: sent.hollow.map(|(from, to)| (from.into(), to.into())),
        }
    }
}

impl From<&Ending> for Ended {
    fn from(ending: &Ending) -> Self {
        Self {
            at_ms: ending.at.0,
            output: ending.output.into(),
            exit: match ending.exit.clone() {
                Exit::Ran { code, oom, ran, result } => ExitRecord::Ran { code, oom, ran, result },
                Exit::NotStarted { fault, code, message } => {
                    let fault = match fault {
                        Fault::Pull => FaultRecord::Pull,
                        Fault::Definition => FaultRecord::Definition,
                        Fault::Host => FaultRecord::Host,
                        Fault::Stopped => FaultRecord::Stopped,
                    };
                    ExitRecord::NotStarted { fault, code, message }
                }
                Exit::DaemonLost { message, ran } => ExitRecord::DaemonLost { message, ran },
                Exit::Vanished => ExitRecord::Vanished,
            },
        }
    }
}

impl From<Ended> for Ending {
    fn from(ended: Ended) -> Self {
        Self {
            at: Timestamp(ended.at_ms),
            output: ended.output.into(),
            exit: match ended.exit {
                ExitRecord::Ran { code, oom, ran, result } => Exit::Ran { code, oom, ran, result },
                ExitRecord::NotStarted { fault, code, message } => {
                    let fault = match fault {
                        FaultRecord::Pull => Fault::Pull,
                        FaultRecord::Definition => Fault::Definition,
                        FaultRecord::Host => Fault::Host,
                        FaultRecord::Stopped => Fault::Stopped,
                    };
                    Exit::NotStarted { fault, code, message }
                }
                ExitRecord::DaemonLost { message, ran } => Exit::DaemonLost { message, ran },
                ExitRecord::Vanished => Exit::Vanished,
            },
        }
    }
}
