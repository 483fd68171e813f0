//! Workers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Phase, Time, Word};

/// A worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Its number.
    pub id: u64,
    /// What people call it.
    pub name: String,
    /// Whether it has something to do (`busy` is not zero).
    pub working: bool,
    /// Whether it is connected.
    pub connected: bool,
    /// `joining`, `ready`, `draining`, `disconnected`, `unreachable` or `cloned`; for one that is neither connected nor has live attempts `gone`, or
    /// `drained` if it was to leave so.
    pub state: Word,
    /// Whether it takes nothing new, by an operator's word.
    pub cordoned: bool,
    /// While it drains: when what it still runs is stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_deadline: Option<Time>,
    /// How many containers may run at once.
    pub slots: u32,
    /// Attempts that run or are about to.
    pub busy: u32,
    /// How many attempts may wait in front of the slots.
    pub backlog: u32,
    /// Attempts in its local queue.
    pub queued: u32,
    /// Since when it has been connected, or when it was last heard of.
    pub since: Time,
    /// What is said of it: its own labels, and what an operator laid over them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Of these, what an operator laid over.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels_set: BTreeMap<String, String>,
    /// What it can run, and why not.
    #[serde(default)]
    pub runtimes: Vec<Runtime>,
    /// The version of its program.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Where it connects from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// While it is connected: the own id of its Docker engine, if that answered by its start. Workers of one id share an engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_id: Option<String>,
    /// While it is connected, from its first heartbeat on: the machine's load average of one minute, in thousandths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_milli: Option<u32>,
    /// Likewise: free bytes where its state directory is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_free_bytes: Option<u64>,
    /// Attempts on it that were never given by this database, at most 1,000 of them; they go on until a person decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmanaged: Vec<Unmanaged>,
    /// While it is `cloned`: from where processes say that they are this worker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<String>,
    /// When it first joined; in the answer about one worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined_at: Option<Time>,
}

/// An attempt that was never given here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmanaged {
    /// The number of its job, which may be another job's here, or nobody's.
    pub job: u64,
    /// Its own number.
    pub fence: u64,
    /// The name of its container, if it runs in one.
    pub container: String,
    /// Where it stood when the worker told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
}

/// One of a worker's runtimes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runtime {
    /// `docker`, `process` or `fake`.
    pub name: Word,
    /// Whether it answers.
    pub available: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A worker as others mention it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRef {
    /// Its number.
    pub id: u64,
    /// What people call it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}
