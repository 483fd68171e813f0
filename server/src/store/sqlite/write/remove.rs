//! A step of retention by the rules of the server: some rows that are no longer to be kept.
//!
//! There is no index over the ends of jobs; each block tells the earliest end in it. So what is due is found by that, and within the
//! block by looking at its rows, 4,096 at most. Blocks in which nothing is left go too.

use protocol::Epoch;
use rusqlite::{Connection, OptionalExtension};

use super::deletion::{self, Candidate, Candidates};
use super::{Failure, InstallationCounters, WriteCache, begin, finish_transaction};
use crate::store::sqlite::blocks::{BLOCK_SHIFT, last_of};
use crate::store::sqlite::schedules;
use crate::store::{CommitError, Removed, RetentionCutoffs};

/// See [`crate::store::Store::remove`]. Whatever the result, `cache` is true of the database afterwards.
pub(in crate::store::sqlite) fn remove(
    connection: &Connection,
    cache: &mut WriteCache,
    epoch: Epoch,
    cutoffs: &RetentionCutoffs,
) -> Result<Removed, CommitError> {
    let result = in_transaction(connection, cache, epoch, cutoffs);
    finish_transaction(connection, cache, epoch, result)
}

fn in_transaction(
    connection: &Connection,
    cache: &mut WriteCache,
    epoch: Epoch,
    cutoffs: &RetentionCutoffs,
) -> Result<Removed, Failure> {
    let counters = begin(connection, epoch)?;
    let (jobs, more_jobs) = jobs(connection, cache, &counters, cutoffs)?;
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

/// Deletes jobs of the block with the earliest end. How many, and whether there may be more.
fn jobs(
    connection: &Connection,
    cache: &mut WriteCache,
    counters: &InstallationCounters,
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
    let surplus = u64::try_from(counters.ended).unwrap_or(0).saturating_sub(cutoffs.ended_max);
    if surplus == 0 && earliest >= cutoffs.ended_since.0 {
        return Ok((0, false));
    }
    let surplus = usize::try_from(surplus).unwrap_or(usize::MAX);
    let candidates = candidates(connection, block, cutoffs.rows_max.saturating_add(1))?;
    let (mut count, mut jobs, mut rows) = (0, 0, 0_usize);
    for job in &candidates.jobs {
        if job.ended_at >= cutoffs.ended_since.0 && jobs >= surplus {
            break;
        }
        let size = candidates.size(connection, job)?;
        rows = rows.saturating_add(size.rows);
        // One with very many attempts or members goes alone.
        if count > 0 && rows > cutoffs.rows_max {
            break;
        }
        count += 1;
        jobs += size.jobs;
    }
    let (doomed, rest) = candidates.jobs.split_at(count);
    let jobs = candidates.delete(connection, cache, counters, block, doomed)?;
    let next = rest.first().map(|job| job.ended_at);
    cache.ends.remove(&block);
    connection
        .prepare_cached("UPDATE blocks SET oldest_end = ?2 WHERE block = ?1")?
        .execute((block, next))?;
    if next.is_none() {
        deletion::forget_if_empty(connection, cache, counters, block)?;
    }
    Ok((jobs, true))
}

/// The ended jobs of a block, those that ended longest ago first, without those that keep a unique key and members of parents that are
/// kept.
fn candidates(connection: &Connection, block: i64, limit: usize) -> rusqlite::Result<Candidates> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let sql = format!(
        "SELECT {} FROM ended WHERE id BETWEEN ?1 AND ?2
         AND id NOT IN (SELECT job FROM unique_keys WHERE job BETWEEN ?1 AND ?2)
         AND id NOT IN (SELECT m.job FROM members m JOIN parents p ON p.job = m.parent WHERE m.job BETWEEN ?1 AND ?2)
         ORDER BY ended_at, id LIMIT ?3",
        Candidate::COLUMNS
    );
    let jobs = connection
        .prepare_cached(&sql)?
        .query_map((block << BLOCK_SHIFT, last_of(block), limit), Candidate::read)?
        .collect::<rusqlite::Result<_>>()?;
    Candidates::new(connection, block, jobs)
}
