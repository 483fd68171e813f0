//! What the database holds once the server has left: plain rows, which can be kept beside the history and checked again.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::stage::Ledger;
use crate::truth;

/// Everything that is looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Every job.
    pub jobs: Vec<Job>,
    /// Every attempt, also the latest of each job.
    pub attempts: Vec<Attempt>,
    /// Every key, with the first job that it made, and how many.
    pub keys: Vec<(String, u64, u64)>,
    /// Reports that came too late and were not believed.
    pub late_reports: u64,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its number.
    pub id: u64,
    /// Its definition's name.
    pub name: String,
    /// The label that tells which request made it.
    pub label: Option<String>,
    /// Its state, as the interface names it.
    pub state: String,
    /// The fence of its latest attempt.
    pub fence: Option<u64>,
    /// When it ended, or when a cancel was confirmed behind that, in milliseconds since the machine booted.
    #[serde(default)]
    pub ended_up_ms: Option<i64>,
    /// Whether the container of a cancelled one is said to be gone.
    #[serde(default)]
    pub confirmed: bool,
}

/// An attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Whose.
    pub job: u64,
    /// Its token's number.
    pub fence: u64,
    /// From 1, without holes.
    pub number: u64,
    /// How it ended; absent: it has not.
    pub outcome: Option<String>,
    /// With which code.
    pub exit_code: Option<i64>,
    /// When it was given to a worker, by the clock on the wall, in milliseconds; absent in what was kept before this was looked at.
    #[serde(default)]
    pub assigned_ms: Option<i64>,
    /// When its worker told that its container is gone, if it had been taken for lost.
    #[serde(default)]
    pub told_gone_ms: Option<i64>,
}

impl Kept {
    /// Reads the database in this data directory. Its server must have left.
    #[must_use]
    pub fn read(data: &Path) -> Self {
        let ledger = Ledger::open(data);
        let booted_ms = booted_ms();
        let jobs = ledger.rows(JOBS, |row| {
            Ok(Job {
                id: number(row, 0)?,
                name: row.get(1)?,
                label: row.get(2)?,
                state: STATES[usize::from(row.get::<_, u16>(3)?)].to_owned(),
                fence: row.get::<_, Option<i64>>(4)?.map(i64::cast_unsigned),
                ended_up_ms: row.get::<_, Option<i64>>(5)?.map(|at| at - booted_ms),
                confirmed: row.get(6)?,
            })
        });
        let attempts = ledger.rows(ATTEMPTS, |row| {
            let outcome = row.get::<_, Option<u16>>(3)?;
            Ok(Attempt {
                job: number(row, 0)?,
                fence: number(row, 1)?,
                number: number(row, 2)?,
                outcome: outcome.map(|code| OUTCOMES[usize::from(code)].to_owned()),
                exit_code: row.get(4)?,
                assigned_ms: row.get(5)?,
                told_gone_ms: row.get(6)?,
            })
        });
        let keys = ledger.rows(KEYS, |row| Ok((row.get(0)?, number(row, 1)?, number(row, 2)?)));
        let late_reports = ledger.one::<i64>("SELECT count(*) FROM notes WHERE kind = 2").cast_unsigned();
        Self { jobs, attempts, keys, late_reports }
    }
}

/// When this machine booted, by the clock on its wall, which nobody sets during a round.
fn booted_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or_default() - i64::try_from(truth::up_ms()).unwrap_or_default()
}

fn number(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::cast_unsigned)
}

/// Without the scope that those of requests have.
const KEYS: &str = "SELECT substr(key, length('http:') + 1), job, count FROM keys WHERE key LIKE 'http:%'";
const JOBS: &str = "
SELECT j.id, d.name, (SELECT value FROM labels l WHERE l.job = j.id AND l.name = 'submission'), j.state, j.fence,
    max(j.ended_at, coalesce((SELECT max(n.at) FROM notes n WHERE n.job = j.id AND n.kind = 6), 0)), j.confirmed
FROM all_jobs j JOIN definitions d ON d.id = j.definition ORDER BY j.id";
const ATTEMPTS: &str = "
SELECT a.job, a.fence, a.number, a.outcome, a.exit_code, a.assigned_at,
    (SELECT min(n.at) FROM notes n WHERE n.job = a.job AND n.fence = a.fence AND n.kind = 6)
FROM all_attempts a ORDER BY a.job, a.number";
/// By their numbers in the database.
const STATES: [&str; 11] = [
    "",
    "scheduled",
    "queued",
    "assigned",
    "running",
    "quarantined",
    "succeeded",
    "failed",
    "cancelled",
    "expired",
    "lost",
];
const OUTCOMES: [&str; 13] = [
    "",
    "succeeded",
    "failed",
    "oom_killed",
    "timed_out",
    "cancelled",
    "pull_failed",
    "start_failed",
    "host_failed",
    "daemon_lost",
    "lost",
    "interrupted",
    "released",
];
