//! A step of retention: some rows that are no longer to be kept.
//!
//! There is no index over the ends of jobs; each block tells the earliest end in it. So what is due is found by that, and within the
//! block by looking at its rows, 4,096 at most. Blocks in which nothing is left go too.

use protocol::Epoch;
use rusqlite::{Connection, OptionalExtension, params};

use super::{BLOCK_SHIFT, Done, Failure, Found, WriteCache, begin, last_of, settle, workers};
use crate::store::sqlite::rows::{self, HAS_LABELS};
use crate::store::sqlite::{hooks, run_on, schedules};
use crate::store::{CommitError, Removed, RetentionCutoffs};
use protocol::JobId;

/// See [`crate::store::Store::remove`]. Whatever the result, `known` is true of the database afterwards.
pub(in crate::store::sqlite) fn remove(
    connection: &Connection,
    cache: &mut WriteCache,
    epoch: Epoch,
    cutoffs: &RetentionCutoffs,
) -> Result<Removed, CommitError> {
    let result = in_transaction(connection, cache, epoch, cutoffs);
    settle(connection, cache, epoch, result)
}

fn in_transaction(
    connection: &Connection,
    cache: &mut WriteCache,
    epoch: Epoch,
    cutoffs: &RetentionCutoffs,
) -> Result<Removed, Failure> {
    let found = begin(connection, epoch)?;
    let (jobs, more_jobs) = jobs(connection, cache, &found, cutoffs)?;
    let rows_max = i64::try_from(cutoffs.rows_max).unwrap_or(i64::MAX);
    let keys = connection
        .prepare_cached(
            "DELETE FROM keys WHERE key IN (SELECT key FROM keys WHERE at < ?1 ORDER BY at LIMIT ?2)",
        )?
        .execute((cutoffs.keyed_since.0, rows_max))?;
    let late_reports = connection
        .prepare_cached(
            "DELETE FROM notes
             WHERE id IN (SELECT id FROM notes WHERE kind = 2 AND at < ?1 ORDER BY at LIMIT ?2)",
        )?
        .execute((cutoffs.late_since.0, rows_max))?;
    let fires = schedules::remove(connection, cutoffs.ended_since, rows_max)?;
    let schedules = schedules::forget(connection, cutoffs.ended_since, rows_max)?;
    if let Some(by) = cutoffs.by {
        connection.prepare_cached("UPDATE installation SET retention_by = ?1")?.execute([by.0])?;
    }
    connection.prepare_cached("COMMIT")?.execute([])?;
    let more = more_jobs || [keys, late_reports, fires, schedules].contains(&cutoffs.rows_max);
    Ok(Removed {
        jobs: jobs as u64,
        keys: keys as u64,
        late_reports: late_reports as u64,
        fires: fires as u64,
        schedules: schedules as u64,
        more,
    })
}

/// An ended job that is looked at.
struct Candidate {
    job: i64,
    ended_at: i64,
    attempts: i64,
    details: i64,
}

/// Deletes jobs of the block with the earliest end. How many, and whether there may be more.
fn jobs(
    connection: &Connection,
    cache: &mut WriteCache,
    found: &Found,
    cutoffs: &RetentionCutoffs,
) -> Result<(usize, bool), Failure> {
    let Some((block, earliest)) = connection
        .prepare_cached(
            "SELECT block, oldest_end FROM blocks WHERE oldest_end IS NOT NULL ORDER BY oldest_end LIMIT 1",
        )?
        .query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
        .optional()?
    else {
        return Ok((0, false));
    };
    let surplus = u64::try_from(found.ended).unwrap_or(0).saturating_sub(cutoffs.ended_max);
    if surplus == 0 && earliest >= cutoffs.ended_since.0 {
        return Ok((0, false));
    }
    let surplus = usize::try_from(surplus).unwrap_or(usize::MAX);
    let candidates = candidates(connection, block, cutoffs.rows_max.saturating_add(1))?;
    let may_go = |(nth, job): &(usize, &Candidate)| job.ended_at < cutoffs.ended_since.0 || *nth < surplus;
    let mut rows = 0;
    // One with very many attempts goes alone.
    let has_room = |(nth, job): &(usize, &Candidate)| {
        rows += usize::try_from(job.attempts).unwrap_or(usize::MAX).max(1);
        *nth == 0 || rows <= cutoffs.rows_max
    };
    let count = candidates.iter().enumerate().take_while(may_go).take_while(has_room).count();
    let (doomed, rest) = candidates.split_at(count);
    delete(connection, block, doomed)?;
    let next = rest.first().map(|job| job.ended_at);
    cache.ends.remove(&block);
    connection
        .prepare_cached("UPDATE blocks SET oldest_end = ?2 WHERE block = ?1")?
        .execute((block, next))?;
    if next.is_none() && found.last_job >= last_of(block) {
        forget_if_empty(connection, block)?;
    }
    Ok((count, true))
}

/// The ended jobs of a block, those that ended longest ago first, without those that keep a unique key.
fn candidates(connection: &Connection, block: i64, limit: usize) -> rusqlite::Result<Vec<Candidate>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    connection
        .prepare_cached(
            "SELECT id, ended_at, attempts, details FROM ended WHERE id BETWEEN ?1 AND ?2
             AND id NOT IN (SELECT job FROM unique_keys WHERE job BETWEEN ?1 AND ?2)
             ORDER BY ended_at, id LIMIT ?3",
        )?
        .query_map((block << BLOCK_SHIFT, last_of(block), limit), |row| {
            Ok(Candidate {
                job: row.get(0)?,
                ended_at: row.get(1)?,
                attempts: row.get(2)?,
                details: row.get(3)?,
            })
        })?
        .collect()
}

/// Deletes jobs with all that belongs to them. The schema allows it only up to the end that is written down first.
fn delete(connection: &Connection, block: i64, doomed: &[Candidate]) -> Done {
    let Some(latest) = doomed.last().map(|job| job.ended_at) else { return Ok(()) };
    connection.prepare_cached("UPDATE installation SET deletes_until = ?1")?.execute([latest])?;
    let (noted, hooked) = (noted(connection, block)?, hooked(connection, block)?);
    let dependent = dependent(connection, block)?;
    let in_sets = in_sets(connection, block)?;
    let mut ended = connection.prepare_cached("DELETE FROM ended WHERE id = ?1")?;
    for candidate in doomed {
        let job = candidate.job;
        ended.execute([job])?;
        if candidate.attempts > 1 {
            connection.prepare_cached("DELETE FROM past_attempts WHERE job = ?1")?.execute([job])?;
        }
        if candidate.details != 0 {
            details(connection, job, candidate.details & HAS_LABELS != 0)?;
        }
        if noted.binary_search(&job).is_ok() {
            connection.prepare_cached("DELETE FROM notes WHERE job = ?1")?.execute([job])?;
            connection.prepare_cached("DELETE FROM left_out WHERE job = ?1")?.execute([job])?;
        }
        if hooked.binary_search(&job).is_ok() {
            hooks::remove_unused(connection, job)?;
        }
        if in_sets.binary_search(&job).is_ok() {
            run_on::remove(connection, job)?;
        }
        if dependent.binary_search(&job).is_ok() {
            connection.prepare_cached("DELETE FROM dependencies WHERE job = ?1")?.execute([job])?;
        }
    }
    connection
        .prepare_cached("UPDATE installation SET deletes_until = NULL, ended = ended - ?1")?
        .execute([i64::try_from(doomed.len()).unwrap_or(i64::MAX)])?;
    Ok(())
}

/// The jobs of a block that have notes, or had too many: few.
fn noted(connection: &Connection, block: i64) -> rusqlite::Result<Vec<i64>> {
    connection
        .prepare_cached(
            "SELECT job FROM notes WHERE job BETWEEN ?1 AND ?2
             UNION SELECT job FROM left_out WHERE job BETWEEN ?1 AND ?2 ORDER BY job",
        )?
        .query_map((block << BLOCK_SHIFT, last_of(block)), |row| row.get(0))?
        .collect()
}

/// The jobs of a block that waited for others.
fn dependent(connection: &Connection, block: i64) -> rusqlite::Result<Vec<i64>> {
    connection
        .prepare_cached("SELECT DISTINCT job FROM dependencies WHERE job BETWEEN ?1 AND ?2 ORDER BY job")?
        .query_map((block << BLOCK_SHIFT, last_of(block)), |row| row.get(0))?
        .collect()
}

/// The jobs of a block that are parents or members.
fn in_sets(connection: &Connection, block: i64) -> rusqlite::Result<Vec<i64>> {
    connection
        .prepare_cached(
            "SELECT job FROM parents WHERE job BETWEEN ?1 AND ?2
             UNION SELECT job FROM members WHERE job BETWEEN ?1 AND ?2 ORDER BY 1",
        )?
        .query_map((block << BLOCK_SHIFT, last_of(block)), |row| row.get(0))?
        .collect()
}

/// The jobs of a block that have hooks, or that a hook made.
fn hooked(connection: &Connection, block: i64) -> rusqlite::Result<Vec<i64>> {
    connection
        .prepare_cached(
            "SELECT parent FROM hooks WHERE parent BETWEEN ?1 AND ?2
             UNION SELECT job FROM hooks WHERE job BETWEEN ?1 AND ?2 ORDER BY 1",
        )?
        .query_map((block << BLOCK_SHIFT, last_of(block)), |row| row.get(0))?
        .collect()
}

fn details(connection: &Connection, job: i64, has_labels: bool) -> Done {
    if has_labels {
        for (name, value) in rows::labels(connection, JobId(job.cast_unsigned()))? {
            connection
                .prepare_cached("DELETE FROM labels WHERE name = ?1 AND value = ?2 AND job = ?3")?
                .execute(params![name, value, job])?;
        }
    }
    connection.prepare_cached("DELETE FROM details WHERE job = ?1")?.execute([job])?;
    Ok(())
}

/// Deletes the entries of a block in the coarse indexes, once it has no jobs and can get none.
fn forget_if_empty(connection: &Connection, block: i64) -> Done {
    let lives = connection
        .prepare_cached(
            "SELECT 1 FROM jobs WHERE id BETWEEN ?1 AND ?2
             UNION ALL SELECT 1 FROM ended WHERE id BETWEEN ?1 AND ?2
             UNION ALL SELECT 1 FROM forming WHERE first <= ?2 AND last >= ?1",
        )?
        .exists((block << BLOCK_SHIFT, last_of(block)))?;
    if !lives {
        connection.prepare_cached("DELETE FROM seen WHERE block = ?1")?.execute([block])?;
        workers::remove_unused(connection)?;
        connection.prepare_cached("DELETE FROM blocks WHERE block = ?1")?.execute([block])?;
    }
    Ok(())
}
