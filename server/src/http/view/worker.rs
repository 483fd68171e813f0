//! Workers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Time, Word};

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
    /// `joining`, `ready`, `draining`, `disconnected`, `unreachable`, or `gone` for one that is neither connected nor has live attempts.
    pub state: Word,
    /// Whether it takes nothing new, by an operator's word.
    pub cordoned: bool,
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
    /// What jobs may require of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What it can run, and why not.
    #[serde(default)]
    pub runtimes: Vec<Runtime>,
    /// The version of its program.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Where it connects from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// When it first joined; in the answer about one worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined_at: Option<Time>,
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
