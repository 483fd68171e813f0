//! The positions of members in their batch, from 0. A member has the position of its number. One that repeats a member of another batch was
//! told the position of that one, and has a row in `told_positions`.

use protocol::JobId;
use rusqlite::{Connection, OptionalExtension};

use super::dependencies::number;
use super::pending_batch::{Range, without};
use crate::positions::Positions;
use crate::store::JobRow;

/// Stores the position that a member was told.
pub(super) fn insert(connection: &Connection, job: i64, batch: JobId, position: u32) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT INTO told_positions (job, batch, position) VALUES (?1, ?2, ?3)")?
        .execute((job, number(batch), position))?;
    Ok(())
}

/// The position of a job in the batch that it came with.
pub(super) fn of(connection: &Connection, row: &JobRow) -> rusqlite::Result<Option<u64>> {
    let Some(batch) = row.batch else { return Ok(None) };
    let told: Option<u32> = match row.retry_of {
        Some(_) => connection
            .prepare_cached("SELECT position FROM told_positions WHERE job = ?1")?
            .query_row([number(row.job)], |row| row.get(0))
            .optional()?,
        // Only a repetition is told the position of another job.
        None => None,
    };
    Ok(told.map(u64::from).or_else(|| row.job.0.checked_sub(batch.0)))
}

/// The numbers of the members with these positions, within a range of numbers, the highest first. Not all of them need be kept.
pub(super) fn numbers(
    connection: &Connection,
    batch: JobId,
    positions: &[Positions],
    within: Range,
) -> rusqlite::Result<Vec<Range>> {
    let first = number(batch);
    let own = positions.iter().map(|it| (first + i64::from(it.first), first + i64::from(it.last)));
    let own = own.map(|(lowest, highest)| (lowest.max(within.0), highest.min(within.1)));
    let mut found: Vec<Range> = own.filter(|(lowest, highest)| lowest <= highest).collect();
    if has_told(connection, batch)? {
        let mut left = Vec::new();
        for range in merged(found) {
            left.extend(without(&told_within(connection, range)?, range));
        }
        found = left;
        let mut statement = connection.prepare_cached(TOLD_BY_POSITION)?;
        for it in positions {
            let jobs = statement.query_map((first, it.first, it.last), |row| row.get::<_, i64>(0))?;
            for job in jobs {
                found.extend(job.map(|job| (within.0..=within.1).contains(&job).then_some((job, job)))?);
            }
        }
    }
    let mut found = merged(found);
    found.reverse();
    Ok(found)
}

/// The first of these positions that no member of the batch has, or had before retention deleted it. The members of a batch that repeats another
/// one have some of its positions, so of such a batch a range may be without any. `count` is the number of the members.
pub(super) fn unknown(
    connection: &Connection,
    batch: JobId,
    count: u32,
    positions: &[Positions],
) -> rusqlite::Result<Option<u32>> {
    let has_told = has_told(connection, batch)?;
    for it in positions {
        if !has_told {
            if it.last >= count {
                return Ok(Some(it.first.max(count)));
            }
        } else if it.first == it.last {
            let job = number(batch) + i64::from(it.first);
            let is_told =
                connection.prepare_cached(TOLD_BY_POSITION)?.exists((number(batch), it.first, it.last))?;
            let is_own = it.first < count && told_within(connection, (job, job))?.is_empty();
            if !is_told && !is_own {
                return Ok(Some(it.first));
            }
        }
    }
    Ok(None)
}

fn has_told(connection: &Connection, batch: JobId) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM told_positions WHERE batch = ?1")?.exists([number(batch)])
}

/// The jobs of a range that were told a position, in order.
fn told_within(connection: &Connection, range: Range) -> rusqlite::Result<Vec<Range>> {
    let mut statement = connection.prepare_cached(TOLD_BY_NUMBER)?;
    let jobs = statement.query_map(range, |row| Ok((row.get(0)?, row.get(0)?)))?;
    Ok(merged(jobs.collect::<rusqlite::Result<_>>()?))
}

/// The same numbers in ranges that neither overlap nor touch each other, in order.
fn merged(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut merged: Vec<Range> = Vec::new();
    for (lowest, highest) in ranges {
        match merged.last_mut() {
            Some(last) if lowest <= last.1 + 1 => last.1 = last.1.max(highest),
            _ => merged.push((lowest, highest)),
        }
    }
    merged
}

pub(super) const TOLD_BY_POSITION: &str =
    "SELECT job FROM told_positions WHERE batch = ?1 AND position BETWEEN ?2 AND ?3";

pub(super) const TOLD_BY_NUMBER: &str =
    "SELECT job FROM told_positions WHERE job BETWEEN ?1 AND ?2 ORDER BY job";

#[cfg(test)]
mod tests {
    use super::merged;

    #[test]
    fn ranges_that_touch_or_overlap_are_merged() {
        assert_eq!(merged(vec![]), []);
        assert_eq!(merged(vec![(7, 9), (1, 3), (4, 4), (8, 12), (20, 20)]), [(1, 4), (7, 12), (20, 20)]);
    }
}
