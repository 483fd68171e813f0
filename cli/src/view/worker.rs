//! A worker: its line in a table, and all that there is to know of it.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{pairs, since};
use crate::screen;

/// A worker.
#[derive(Debug, Deserialize)]
pub(crate) struct Worker {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) cordoned: bool,
    drain_deadline: Option<String>,
    pub(crate) slots: u32,
    pub(crate) busy: u32,
    #[serde(default)]
    pub(crate) backlog: u32,
    #[serde(default)]
    pub(crate) queued: u32,
    pub(crate) since: String,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) runtimes: Vec<Runtime>,
    #[serde(default)]
    pub(crate) version: String,
    #[serde(default)]
    address: String,
    engine_id: Option<String>,
    load_milli: Option<u32>,
    disk_free_bytes: Option<u64>,
    #[serde(default)]
    pub(crate) unmanaged: Vec<serde_json::Value>,
    #[serde(default)]
    pub(crate) copies: Vec<String>,
    joined_at: Option<String>,
}

impl Worker {
    /// The columns of [`Self::row`].
    pub(crate) const HEADING: [&str; 9] =
        [">ID", "NAME", "STATE", ">BUSY", ">QUEUED", ">SINCE", "RUNTIMES", "LABELS", "VERSION"];

    /// A line of a table.
    pub(crate) fn row(&self, now: jiff::Timestamp) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.name.clone(),
            self.shown_state(),
            of(self.busy, self.slots),
            of(self.queued, self.backlog),
            since(&self.since, now),
            self.runtimes.iter().map(Runtime::shown).collect::<Vec<_>>().join(" "),
            pairs(&self.labels),
            self.version.clone(),
        ]
    }

    /// All of it, by name; empty is what there is nothing to say of.
    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let optional = |text: &Option<String>| text.clone().unwrap_or_default();
        let mut facts = vec![
            ("worker", self.id.to_string()),
            ("name", self.name.clone()),
            ("state", self.shown_state()),
            ("since", self.since.clone()),
            ("joined", optional(&self.joined_at)),
            ("busy", of(self.busy, self.slots)),
            ("queued", of(self.queued, self.backlog)),
        ];
        facts.extend(self.runtimes.iter().map(|runtime| ("runtime", runtime.told())));
        facts.extend([
            ("engine", optional(&self.engine_id)),
            ("load", self.load_milli.map(load).unwrap_or_default()),
            ("disk free", self.disk_free_bytes.map(screen::size).unwrap_or_default()),
            ("labels", pairs(&self.labels)),
            ("version", self.version.clone()),
            ("address", self.address.clone()),
        ]);
        facts
    }

    fn shown_state(&self) -> String {
        match &self.drain_deadline {
            // Who drains is cordoned anyway.
            Some(at) if self.state == "draining" => format!("draining until {at}"),
            _ if self.cordoned => format!("{} (cordoned)", self.state),
            _ => self.state.clone(),
        }
    }
}

/// So many of so many.
fn of(taken: u32, places: u32) -> String {
    format!("{taken}/{places}")
}

/// As `uptime` has it.
fn load(milli: u32) -> String {
    format!("{:.2}", f64::from(milli) / 1000.0)
}

/// One of a worker's runtimes.
#[derive(Debug, Deserialize)]
pub(crate) struct Runtime {
    name: String,
    available: bool,
    reason: Option<String>,
}

impl Runtime {
    fn shown(&self) -> String {
        if self.available { self.name.clone() } else { format!("{} (away)", self.name) }
    }

    /// With why it is away.
    fn told(&self) -> String {
        match &self.reason {
            Some(reason) if !self.available => format!("{}: {reason}", self.shown()),
            _ => self.shown(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(more: &serde_json::Value) -> Vec<(&'static str, String)> {
        let mut json = serde_json::json!({"id": 2, "name": "anna", "state": "ready", "slots": 4, "busy": 1,
            "backlog": 4, "since": "2026-01-02T03:04:05.000Z"});
        json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let facts = Worker::deserialize(&json).unwrap().facts();
        facts.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }

    #[test]
    fn a_worker_tells_of_its_machine_what_it_knows() {
        let facts =
            told(&serde_json::json!({"engine_id": "7TTF:QJ4G", "load_milli": 12_730, "disk_free_bytes": 0}));
        for fact in [("engine", "7TTF:QJ4G"), ("load", "12.73"), ("disk free", "0 B"), ("busy", "1/4")] {
            assert!(facts.contains(&(fact.0, fact.1.to_owned())), "{fact:?} in {facts:?}");
        }
        let silent = told(&serde_json::json!({}));
        assert!(!silent.iter().any(|(name, _)| ["engine", "load", "disk free"].contains(name)), "{silent:?}");
    }

    #[test]
    fn each_runtime_has_a_line_and_says_why_it_is_away() {
        let facts = told(&serde_json::json!({"runtimes": [
            {"name": "docker", "available": false, "reason": "no answer within 5 s"},
            {"name": "fake", "available": true},
        ]}));
        let runtimes = facts.iter().filter(|(name, _)| *name == "runtime").map(|(_, told)| told.as_str());
        assert_eq!(runtimes.collect::<Vec<_>>(), ["docker (away): no answer within 5 s", "fake"]);
    }
}
