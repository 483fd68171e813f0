//! The job of a definition that ended last.

use protocol::JobId;
use rusqlite::Connection;
use scheduler::job::State;

use super::jobs;
use crate::store::{JobFilter, JobRow, LAST_AMONG};

/// The job of a definition that ended last. If retention has deleted the last good or bad end, the newest of the jobs that are left are
/// searched as well.
pub(in crate::store::sqlite) fn last_ended(
    connection: &Connection,
    definition: &str,
) -> rusqlite::Result<Option<JobRow>> {
    let sql = "SELECT t.last_job FROM definition_totals t
               WHERE t.name = (SELECT min(id) FROM definitions WHERE name = ?1) AND t.is_bad BETWEEN 0 AND 1";
    let last: Vec<Option<i64>> = connection
        .prepare_cached(sql)?
        .query_map([definition], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let mut found = Vec::new();
    for job in last.iter().copied().flatten() {
        // A list of this one job.
        let before = JobId(job.cast_unsigned().saturating_add(1));
        let filter = JobFilter { before: Some(before), limit: 1, ..ended_of(definition) };
        found.extend(jobs(connection, &filter)?.into_iter().filter(|row| row.job.0 == job.cast_unsigned()));
    }
    if last.is_empty() || found.len() < last.len() {
        found.extend(jobs(connection, &JobFilter { limit: LAST_AMONG, ..ended_of(definition) })?);
    }
    Ok(found.into_iter().max_by_key(|row| (row.ended_at, row.job)))
}

fn ended_of(definition: &str) -> JobFilter {
    let states = State::ALL.into_iter().filter(|state| state.has_ended()).collect();
    JobFilter { states, name: Some(definition.to_owned()), ..JobFilter::default() }
}
