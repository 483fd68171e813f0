//! JSON of workers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Intervention, Phase, Text, Time};

/// A worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Worker {
    /// Its number.
    pub id: u64,
    /// The name given to it.
    pub name: String,
    /// True if `busy` is not zero.
    #[serde(default)]
    pub working: bool,
    /// True while it is connected.
    #[serde(default)]
    pub connected: bool,
    /// `joining`, `ready`, `suspect`, `draining`, `disconnected`, `unreachable` or `cloned`; without connection and live attempts `gone`, or `drained`
    /// after a drain; `revoked` from its revocation on.
    #[schema(value_type = String)]
    pub state: Text,
    /// While it is suspect: why, and until when it gets nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspect: Option<Suspicion>,
    /// Jobs that it is not offered for a while, at most 50 entries; in the answer about one worker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclusions: Vec<Exclusion>,
    /// True if an operator has cordoned it.
    #[serde(default)]
    pub cordoned: bool,
    /// The command that cordoned or drained it, while it is cordoned; absent if an older version kept nothing of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<Intervention>,
    /// During a drain: the time at which its running jobs are stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_deadline: Option<Time>,
    /// The number of containers that may run at once.
    pub slots: u32,
    /// Attempts that run or are about to.
    pub busy: u32,
    /// The number of attempts that may wait in front of the slots.
    #[serde(default)]
    pub backlog: u32,
    /// Attempts in its local queue.
    #[serde(default)]
    pub queued: u32,
    /// The time of its connection, or of its last message.
    pub since: Time,
    /// Its own labels, over them those that its join token granted, and over all those that an operator set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The labels set by an operator.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels_set: BTreeMap<String, String>,
    /// The labels that its join token granted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels_granted: BTreeMap<String, String>,
    /// When an operator revoked it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Time>,
    /// The waiting job that it is set aside for: later jobs get nothing here that this one needs, until there is room for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_aside_for: Option<u64>,
    /// Its runtimes and their availability.
    #[serde(default)]
    pub runtimes: Vec<Runtime>,
    /// Resources that jobs may reserve on it, and those that they have reserved; while it is connected or has attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<WorkerResources>,
    /// The version of its program.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The network address of its connection.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// While it is connected: the id of its Docker engine, if the engine answered at its start. Workers with one id share an engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_id: Option<String>,
    /// While it is connected, after its first heartbeat: the load average of one minute, in thousandths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_milli: Option<u32>,
    /// While it is connected, after its first heartbeat: free bytes of its state directory's file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_free_bytes: Option<u64>,
    /// Attempts on it that this database never assigned, at most 1,000 of them; they go on until an operator decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmanaged: Vec<Unmanaged>,
    /// While it is `cloned`: the addresses of the processes that claim its identity.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<String>,
    /// The time of its first join; in the answer about one worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined_at: Option<Time>,
}

/// Resources of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerResources {
    /// Amounts that it offers.
    pub offered: ResourceAmounts,
    /// Amounts that attempts on it have reserved. Lost attempts that may still run count.
    pub reserved: ResourceAmounts,
}

/// Amounts of resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResourceAmounts {
    /// Thousandths of a core; absent in an offer if cores are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus_milli: Option<u64>,
    /// Memory in bytes; absent in an offer if memory is not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Ids of GPUs.
    #[serde(default)]
    pub gpus: Vec<String>,
    /// Amounts of custom resources by name.
    #[serde(default)]
    pub custom: BTreeMap<String, u64>,
}

/// Why a worker is suspect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Suspicion {
    /// The time at which it became suspect.
    pub since: Time,
    /// The failures, as a sentence.
    pub cause: String,
    /// The thresholds of the circuit breaker, as a sentence.
    #[serde(default)]
    pub rule: String,
    /// The time at which it gets a job again, to probe it; absent once that time has come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// Jobs that a worker is not offered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Exclusion {
    /// The jobs concerned: `anything`, `runtime` or `revision`.
    #[schema(value_type = String)]
    pub of: Text,
    /// The name of the runtime, or of the definition, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The revision concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The cause, as a sentence.
    #[schema(value_type = String)]
    pub reason: Text,
    /// The end of the exclusion; absent if it lasts until the worker starts anew, or an operator resets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// An attempt that this database never assigned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unmanaged {
    /// The number of its job, which may be that of another job here, or of none.
    pub job: u64,
    /// Its fence.
    pub fence: u64,
    /// The name of its container, if it runs in one.
    pub container: String,
    /// Its phase in the worker's report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
}

/// One of a worker's runtimes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Runtime {
    /// `docker`, `process` or `fake`.
    #[schema(value_type = String)]
    pub name: Text,
    /// True if the runtime answers.
    pub available: bool,
    /// The cause of its unavailability.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
