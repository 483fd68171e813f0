//! What jobs themselves have witnessed: the marks that `longshore-witness` has left in a file outside of Longshore.

use std::collections::HashSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The job.
    pub job: u64,
    /// Its attempt.
    pub fence: u64,
    /// What has happened.
    pub mark: Kind,
    /// At its stop: the exit code with which it is about to end.
    pub code: Option<i64>,
    /// Where it ran.
    pub host: String,
    /// As what.
    pub pid: u32,
    /// When, in milliseconds since the machine booted.
    pub up_ms: u64,
}

/// What a witness has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It has started.
    Start,
    /// It goes on.
    Alive,
    /// It ends by itself.
    Stop,
}

/// Reads all marks; none, if nothing has run.
///
/// # Errors
/// A line is no mark. A witness that is killed while it writes leaves whole lines or nothing.
pub fn read(path: &Path) -> anyhow::Result<Vec<Mark>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(path)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// How many containers, and how many plain processes, have started and not stopped: lately heard of, because what was killed never stops.
#[must_use]
pub fn in_flight(marks: &[Mark]) -> (usize, usize) {
    let now = marks.iter().map(|mark| mark.up_ms).max().unwrap_or_default();
    let stopped: HashSet<u64> = marks.iter().filter(|it| it.mark == Kind::Stop).map(|it| it.fence).collect();
    let here = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let lately = marks.iter().filter(|it| it.up_ms + LATELY_MS > now && !stopped.contains(&it.fence));
    let (processes, containers): (Vec<&Mark>, Vec<&Mark>) = lately.partition(|it| it.host == here.trim());
    let [containers, processes] =
        [containers, processes].map(|of| of.iter().map(|it| it.fence).collect::<HashSet<_>>());
    (containers.len(), processes.len())
}

/// The machine's own clock, as witnesses read it.
#[must_use]
pub fn up_ms() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = text.split_whitespace().next().and_then(|it| it.parse::<f64>().ok()).unwrap_or_default();
    (seconds * 1_000.0) as u64
}

/// Some signs of life, on a busy machine.
const LATELY_MS: u64 = 2_000;
