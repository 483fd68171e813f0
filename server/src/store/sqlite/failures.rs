//! Failures that need attention, their number for each definition, and their acknowledgements.

use std::collections::BTreeMap;

use protocol::{JobId, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use super::pending_batch::Range;
use super::run_on;
use crate::store::{Acknowledgement, AcknowledgementChange, FailureStatus};

/// A job that failed, with the first row of its definition's name.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailedJob {
    pub(super) job: i64,
    pub(super) name: i64,
}

/// Differences of the totals, by the first row of a definition's name.
type Differences = BTreeMap<i64, i64>;

/// Records the failures of a group, and resolves those of which it has made retries. A job may fail and be retried in one group.
pub(super) fn record(connection: &Connection, failed: &[FailedJob], retried: &[i64]) -> rusqlite::Result<()> {
    if failed.is_empty() && retried.is_empty() {
        return Ok(());
    }
    let mut differences = Differences::new();
    for failure in failed {
        add(connection, *failure, &mut differences)?;
    }
    for job in retried {
        resolve(connection, *job, &mut differences)?;
    }
    write_totals(connection, &differences)
}

/// The jobs that the jobs with these numbers retry. Those that have ended meanwhile are few: the group has made them visible.
pub(super) fn retried_within(connection: &Connection, within: Range) -> rusqlite::Result<Vec<i64>> {
    connection.prepare_cached(RETRIED_WITHIN)?.query_map(within, |row| row.get(0))?.collect()
}

/// `+`: by the numbers of the batch. The index by `retry_of` has all retries there are.
const RETRIED_WITHIN: &str = "SELECT retry_of FROM jobs WHERE id BETWEEN ?1 AND ?2 AND +retry_of IS NOT NULL
    UNION ALL SELECT retry_of FROM ended WHERE id BETWEEN ?1 AND ?2 AND +retry_of IS NOT NULL";

/// Applies a change within a transaction.
pub(super) fn change(connection: &Connection, change: &AcknowledgementChange) -> rusqlite::Result<()> {
    let mut differences = Differences::new();
    match change {
        AcknowledgementChange::Add(jobs, acknowledgement) => {
            for job in jobs {
                acknowledge(connection, *job, acknowledgement)?;
                resolve(connection, number(*job), &mut differences)?;
            }
        }
        AcknowledgementChange::Remove(jobs) => {
            for job in jobs {
                if let Some(failure) = take_back(connection, *job)? {
                    add(connection, failure, &mut differences)?;
                }
            }
        }
    }
    write_totals(connection, &differences)
}

/// Deletes all that is known of failures that retention removes.
pub(super) fn remove(connection: &Connection, jobs: impl Iterator<Item = i64>) -> rusqlite::Result<()> {
    let mut differences = Differences::new();
    for job in jobs {
        resolve(connection, job, &mut differences)?;
        connection.prepare_cached("DELETE FROM acknowledgements WHERE job = ?1")?.execute([job])?;
    }
    write_totals(connection, &differences)
}

/// The attention that a job needs which has failed.
pub(super) fn status(connection: &Connection, job: JobId) -> rusqlite::Result<FailureStatus> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM unresolved WHERE job = ?1")?;
    if statement.exists([number(job)])? {
        return Ok(FailureStatus::Unresolved);
    }
    let acknowledgement = connection
        .prepare_cached("SELECT at, made_by, reason FROM acknowledgements WHERE job = ?1")?
        .query_row([number(job)], |row| {
            Ok(Acknowledgement { at: Timestamp(row.get(0)?), by: row.get(1)?, reason: row.get(2)? })
        })
        .optional()?;
    Ok(acknowledgement.map_or(FailureStatus::None, FailureStatus::Acknowledged))
}

/// The number of unresolved failures of each definition that has some, by name.
pub(super) fn totals(connection: &Connection) -> rusqlite::Result<BTreeMap<String, u64>> {
    connection
        .prepare_cached("SELECT d.name, t.jobs FROM unresolved_totals t JOIN definitions d ON d.id = t.name")?
        .query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned())))?
        .collect()
}

fn add(
    connection: &Connection,
    FailedJob { job, name }: FailedJob,
    differences: &mut Differences,
) -> rusqlite::Result<()> {
    let added = connection
        .prepare_cached("INSERT INTO unresolved (job, name) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
        .execute((job, name))?;
    if added == 1 {
        *differences.entry(name).or_default() += 1;
    }
    Ok(())
}

fn resolve(connection: &Connection, job: i64, differences: &mut Differences) -> rusqlite::Result<()> {
    let name: Option<i64> = connection
        .prepare_cached("DELETE FROM unresolved WHERE job = ?1 RETURNING name")?
        .query_row([job], |row| row.get(0))
        .optional()?;
    if let Some(name) = name {
        *differences.entry(name).or_default() -= 1;
    }
    Ok(())
}

fn acknowledge(connection: &Connection, job: JobId, with: &Acknowledgement) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO acknowledgements (job, at, made_by, reason)
             SELECT id, ?2, ?3, ?4 FROM ended WHERE id = ?1 AND state IN (7, 9, 10) ON CONFLICT DO NOTHING",
        )?
        .execute(params![number(job), with.at.0, with.by, with.reason])?;
    Ok(())
}

/// Deletes the acknowledgement of a job. Returns the job if it is unresolved from now on.
fn take_back(connection: &Connection, job: JobId) -> rusqlite::Result<Option<FailedJob>> {
    let number = number(job);
    let deleted =
        connection.prepare_cached("DELETE FROM acknowledgements WHERE job = ?1")?.execute([number])?;
    if deleted == 0
        || run_on::is_member(connection, job)?
        || connection.prepare_cached("SELECT 1 FROM all_jobs WHERE retry_of = ?1")?.exists([number])?
    {
        return Ok(None);
    }
    let name: Option<i64> = connection
        .prepare_cached(
            "SELECT (SELECT min(f.id) FROM definitions f WHERE f.name = d.name)
             FROM ended e JOIN definitions d ON d.id = e.definition WHERE e.id = ?1",
        )?
        .query_row([number], |row| row.get(0))
        .optional()?;
    Ok(name.map(|name| FailedJob { job: number, name }))
}

fn write_totals(connection: &Connection, differences: &Differences) -> rusqlite::Result<()> {
    for (name, difference) in differences.iter().filter(|(_, difference)| **difference != 0) {
        let left: i64 = connection
            .prepare_cached(
                "INSERT INTO unresolved_totals (name, jobs) VALUES (?1, ?2)
                 ON CONFLICT DO UPDATE SET jobs = jobs + ?2 RETURNING jobs",
            )?
            .query_row((name, difference), |row| row.get(0))?;
        if left <= 0 {
            connection.prepare_cached("DELETE FROM unresolved_totals WHERE name = ?1")?.execute([name])?;
        }
    }
    Ok(())
}

const fn number(job: JobId) -> i64 {
    job.0.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::RETRIED_WITHIN;
    use crate::store::directory::DataDirectory;
    use crate::store::sqlite::connections::open_reader;
    use crate::store::sqlite::open;

    #[test]
    fn retries_of_a_batch_are_read_by_its_own_numbers() {
        let directory = DataDirectory::temporary();
        let _store = open(&directory).unwrap();
        let reader = open_reader(&directory.database()).unwrap();
        let mut statement = reader.prepare(&format!("EXPLAIN QUERY PLAN {RETRIED_WITHIN}")).unwrap();
        let steps = statement.query_map((1, 1), |row| row.get::<_, String>(3)).unwrap();
        let plan = steps.collect::<rusqlite::Result<Vec<_>>>().unwrap().join("; ");
        assert!(plan.matches("USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)").count() == 2, "{plan}");
    }
}
