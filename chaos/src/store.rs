//! The rows of the database after the server has ended. They are saved beside the history, so that a round can be checked again.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::marks;
use testkit::Database;

/// The parts of the database that the checker uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreContents {
    /// All jobs.
    pub jobs: Vec<Job>,
    /// All attempts, including the latest of each job.
    pub attempts: Vec<Attempt>,
    /// All idempotency keys, with the first job and the number of jobs that they made.
    pub keys: Vec<(String, u64, u64)>,
    /// Number of reports that came too late and were ignored.
    pub late_reports: u64,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The id.
    pub id: u64,
    /// The name of its definition.
    pub name: String,
    /// The label `submission`, which names the request that made it.
    pub label: Option<String>,
    /// The state as the API names it.
    pub state: String,
    /// The fence of its latest attempt.
    pub fence: Option<u64>,
    /// End of the job or confirmation of its cancel, whichever is later, in milliseconds since boot.
    #[serde(default)]
    pub ended_up_ms: Option<i64>,
    /// The container of a cancelled job is reported gone.
    #[serde(default)]
    pub confirmed: bool,
}

/// An attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The id of its job.
    pub job: u64,
    /// Its fence.
    pub fence: u64,
    /// Its number within the job, from 1.
    pub number: u64,
    /// The outcome; `None` if it has not ended.
    pub outcome: Option<String>,
    /// The exit code.
    pub exit_code: Option<i64>,
    /// Wall-clock time of the assignment in milliseconds; `None` in records of older rounds.
    #[serde(default)]
    pub assigned_ms: Option<i64>,
    /// Wall-clock time at which the worker reported that the container of a lost attempt is gone.
    #[serde(default)]
    pub reported_gone_ms: Option<i64>,
}

impl StoreContents {
    /// Reads the database in this data directory. Its server must have ended.
    #[must_use]
    pub fn read(data: &Path) -> Self {
        let database = Database::open(data);
        let booted_ms = booted_ms();
        let jobs = database.query_rows(JOBS, |row| {
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
        let attempts = database.query_rows(ATTEMPTS, |row| {
            let outcome = row.get::<_, Option<u16>>(3)?;
            Ok(Attempt {
                job: number(row, 0)?,
                fence: number(row, 1)?,
                number: number(row, 2)?,
                outcome: outcome.map(|code| OUTCOMES[usize::from(code)].to_owned()),
                exit_code: row.get(4)?,
                assigned_ms: row.get(5)?,
                reported_gone_ms: row.get(6)?,
            })
        });
        let keys = database.query_rows(KEYS, |row| Ok((row.get(0)?, number(row, 1)?, number(row, 2)?)));
        let late_reports =
            database.query_one::<i64>("SELECT count(*) FROM notes WHERE kind = 2").cast_unsigned();
        Self { jobs, attempts, keys, late_reports }
    }
}

/// Wall-clock time at which this machine booted, in milliseconds. The clock is not set during a round.
fn booted_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or_default() - i64::try_from(marks::up_ms()).unwrap_or_default()
}

fn number(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::cast_unsigned)
}

/// The key without its `http:` prefix.
const KEYS: &str = "SELECT substr(key, length('http:') + 1), job, count FROM keys WHERE key LIKE 'http:%'";
const JOBS: &str = "
SELECT j.id, d.name, (SELECT value FROM labels l WHERE l.job = j.id AND l.name = 'submission'), j.state, j.fence,
    max(j.ended_at, coalesce((SELECT max(n.at) FROM notes n WHERE n.job = j.id AND n.kind = 6), 0)), j.confirmed
FROM all_jobs j JOIN definitions d ON d.id = j.definition ORDER BY j.id";
const ATTEMPTS: &str = "
SELECT a.job, a.fence, a.number, a.outcome, a.exit_code, a.assigned_at,
    (SELECT min(n.at) FROM notes n WHERE n.job = a.job AND n.fence = a.fence AND n.kind = 6)
FROM all_attempts a ORDER BY a.job, a.number";
/// The states of jobs that have ended for good.
const ENDED_STATES: [&str; 5] = ["succeeded", "failed", "cancelled", "expired", "lost"];

/// True if a job in this state has ended for good.
pub(crate) fn has_ended(state: &str) -> bool {
    ENDED_STATES.contains(&state)
}

/// The names of states by their number in the database.
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
