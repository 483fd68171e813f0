//! The job of a definition that ended last.

use std::collections::BTreeSet;

use protocol::{JobId, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use super::jobs;
use crate::store::sqlite::{record, rows};
use crate::store::{JobFilter, JobRow, LAST_AMONG, RunOnRole};

/// The last good or the last bad end of a definition. The job may have been deleted.
struct LastEnd {
    /// Absent if it is unknown, as is `ended_at` then.
    job: Option<i64>,
    ended_at: Option<i64>,
}

/// The job of a definition that ended last. If retention has deleted it, or it is unknown, the newest of the jobs that are left are
/// searched as well.
pub(in crate::store::sqlite) fn last_ended(
    connection: &Connection,
    definition: &str,
) -> rusqlite::Result<Option<JobRow>> {
    // A definition without such a row has no ended jobs.
    let sql = "SELECT t.last_job, t.last_end FROM definition_totals t
               WHERE t.name = (SELECT min(id) FROM definitions WHERE name = ?1) AND t.is_bad BETWEEN 0 AND 1";
    let last: Vec<LastEnd> = connection
        .prepare_cached(sql)?
        .query_map([definition], |row| Ok(LastEnd { job: row.get(0)?, ended_at: row.get(1)? }))?
        .collect::<Result<_, _>>()?;
    let mut found = Vec::new();
    for job in last.iter().filter_map(|last| last.job) {
        found.extend(ended_job(connection, job)?);
    }
    let newest = found.iter().filter_map(|row| row.ended_at).max();
    // No job that is left ended after the last end of its kind.
    let is_certain = last.iter().all(|last| last.ended_at.is_some_and(|at| newest >= Some(Timestamp(at))));
    if !is_certain {
        found.extend(among_newest(connection, definition)?);
    }
    Ok(found.into_iter().max_by_key(|row| (row.ended_at, row.job)))
}

/// The newest ended jobs of a definition; a member of a parent stands for its parent.
fn among_newest(connection: &Connection, definition: &str) -> rusqlite::Result<Vec<JobRow>> {
    // Not by the final states: their indexes have the failed jobs of all definitions.
    let filter = JobFilter {
        name: Some(definition.to_owned()),
        ended_since: Some(Timestamp(i64::MIN)),
        limit: LAST_AMONG,
        ..JobFilter::default()
    };
    let (mut found, mut parents) = (Vec::new(), BTreeSet::new());
    for row in jobs(connection, &filter)? {
        match &row.run_on_role {
            RunOnRole::Member(member) => drop(parents.insert(member.parent)),
            RunOnRole::Alone | RunOnRole::Parent(_) => found.push(row),
        }
    }
    for JobId(parent) in parents {
        found.extend(ended_job(connection, parent.cast_signed())?);
    }
    Ok(found)
}

/// An ended job; nothing if it has been deleted, or has not ended.
fn ended_job(connection: &Connection, job: i64) -> rusqlite::Result<Option<JobRow>> {
    let sql = format!("SELECT {} FROM ended j {} WHERE j.id = ?1", rows::JOB_COLUMNS, rows::JOB_JOINS);
    let found = connection.prepare_cached(&sql)?.query_row([job], rows::job).optional()?;
    let Some((mut row, flags)) = found else { return Ok(None) };
    rows::add_details(connection, &mut row, flags)?;
    record::complete(connection, &mut row)?;
    Ok(Some(row))
}
