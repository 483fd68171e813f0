//! The marks that `longshore-test-job` writes into a file outside of Longshore's knowledge.

use std::collections::HashSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The id of the job.
    pub job: u64,
    /// The fence of the attempt.
    pub fence: u64,
    /// The kind of the mark.
    pub mark: MarkKind,
    /// The exit code with which the job is about to end; stop marks only.
    pub code: Option<i64>,
    /// The host name, which in a container is the container's.
    pub host: String,
    /// The process id in its namespace.
    pub pid: u32,
    /// Milliseconds since the machine booted.
    pub up_ms: u64,
}

/// The kind of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkKind {
    /// The job started.
    Start,
    /// The job is still running.
    Alive,
    /// The job is about to end by itself.
    Stop,
}

/// Reads all marks; none if no job has run.
///
/// # Errors
/// A line is not a mark. A job that is killed while it writes leaves whole lines.
pub fn read(path: &Path) -> anyhow::Result<Vec<Mark>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(path)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Counts the containers and the plain processes that have started and not stopped. Killed ones never stop, so only recent marks count.
#[must_use]
pub fn in_flight(marks: &[Mark]) -> (usize, usize) {
    let now = marks.iter().map(|mark| mark.up_ms).max().unwrap_or_default();
    let stopped: HashSet<u64> =
        marks.iter().filter(|it| it.mark == MarkKind::Stop).map(|it| it.fence).collect();
    let here = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let lately = marks.iter().filter(|it| it.up_ms + LATELY_MS > now && !stopped.contains(&it.fence));
    let (processes, containers): (Vec<&Mark>, Vec<&Mark>) = lately.partition(|it| it.host == here.trim());
    let [containers, processes] =
        [containers, processes].map(|of| of.iter().map(|it| it.fence).collect::<HashSet<_>>());
    (containers.len(), processes.len())
}

/// Milliseconds since boot, the clock that the marks use.
#[must_use]
pub fn up_ms() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = text.split_whitespace().next().and_then(|it| it.parse::<f64>().ok()).unwrap_or_default();
    (seconds * 1_000.0) as u64
}

/// Several signs of life on a busy machine.
const LATELY_MS: u64 = 2_000;
