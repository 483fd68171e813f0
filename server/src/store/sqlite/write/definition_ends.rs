//! The ends of jobs by definition. For retention: the earliest one in each block, and how many ended jobs are kept. Also the job that ended
//! last.
//!
//! A member of a parent that is kept counts nowhere: it is deleted with its parent.

use std::collections::BTreeMap;

use protocol::JobId;
use rusqlite::{Connection, OptionalExtension};

use super::cache::{EndKey, WriteCache};
use super::{Failure, WriteResult};
use crate::store::sqlite::blocks::BLOCK_SHIFT;
use crate::store::sqlite::failures::FailedJob;
use crate::store::sqlite::run_on;

/// A job that ended, with the row of its definition and the code of its state.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedJob {
    pub(super) job: i64,
    pub(super) definition: i64,
    pub(super) state: i64,
    pub(super) ended_at: i64,
}

/// Good or bad ends of a definition in one commit.
#[derive(Default)]
struct Total {
    count: i64,
    /// Time and job of the last one.
    last: (i64, i64),
}

/// True if the job failed, expired or was lost.
pub(super) const fn is_bad(state: i64) -> bool {
    matches!(state, 7 | 9 | 10)
}

/// Counts jobs that have ended, after the rows of members are written. Returns those that failed, expired or were lost.
pub(super) fn add(
    connection: &Connection,
    cache: &mut WriteCache,
    ended: &[EndedJob],
) -> Result<Vec<FailedJob>, Failure> {
    let mut failed = Vec::new();
    let mut totals: BTreeMap<(i64, bool), Total> = BTreeMap::new();
    let mut oldest: BTreeMap<EndKey, i64> = BTreeMap::new();
    for end in ended {
        if run_on::is_member(connection, JobId(end.job.cast_unsigned()))? {
            continue;
        }
        let name = name_of(connection, cache, end.definition)?;
        if is_bad(end.state) {
            failed.push(FailedJob { job: end.job, name });
        }
        let total = totals.entry((name, is_bad(end.state))).or_default();
        total.count += 1;
        total.last = total.last.max((end.ended_at, end.job));
        let key = (name, is_bad(end.state), end.job >> BLOCK_SHIFT);
        if cache.definition_ends.get(&key).is_none_or(|known| *known > end.ended_at) {
            oldest.entry(key).and_modify(|at| *at = end.ended_at.min(*at)).or_insert(end.ended_at);
        }
    }
    for ((name, is_bad), Total { count, last: (last_end, last_job) }) in totals {
        connection
            .prepare_cached(
                "INSERT INTO definition_totals (name, is_bad, ended, last_end, last_job) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT DO UPDATE SET ended = ended + ?3,
                     last_job = CASE WHEN last_end IS NULL OR (?4, ?5) > (last_end, last_job) THEN ?5 ELSE last_job END,
                     last_end = max(coalesce(last_end, ?4), ?4)",
            )?
            .execute((name, is_bad, count, last_end, last_job))?;
    }
    for (key, at) in oldest {
        let (name, is_bad, block) = key;
        connection
            .prepare_cached(
                "INSERT INTO definition_ends (name, is_bad, block, oldest_end) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET oldest_end = min(coalesce(oldest_end, ?4), ?4)",
            )?
            .execute((name, is_bad, block, at))?;
        cache.definition_ends.insert(key, at);
    }
    Ok(failed)
}

/// Counts jobs that are deleted; none of them is a member of a parent that is kept.
pub(super) fn subtract(
    connection: &Connection,
    cache: &mut WriteCache,
    ends: impl Iterator<Item = (i64, i64)>,
) -> WriteResult {
    let mut totals: BTreeMap<(i64, bool), i64> = BTreeMap::new();
    for (definition, state) in ends {
        let name = name_of(connection, cache, definition)?;
        *totals.entry((name, is_bad(state))).or_default() += 1;
    }
    for ((name, is_bad), count) in totals {
        let left: Option<i64> = connection
            .prepare_cached(
                "UPDATE definition_totals SET ended = ended - ?3 WHERE name = ?1 AND is_bad = ?2 RETURNING ended",
            )?
            .query_row((name, is_bad, count), |row| row.get(0))
            .optional()?;
        if left.is_some_and(|left| left <= 0) {
            connection
                .prepare_cached("DELETE FROM definition_totals WHERE name = ?1 AND is_bad = ?2")?
                .execute((name, is_bad))?;
        }
    }
    Ok(())
}

/// The first row with the name of this definition.
fn name_of(connection: &Connection, cache: &mut WriteCache, definition: i64) -> rusqlite::Result<i64> {
    if let Some(name) = cache.names.get(&definition) {
        return Ok(*name);
    }
    let name = connection
        .prepare_cached(
            "SELECT (SELECT min(id) FROM definitions f WHERE f.name = d.name) FROM definitions d WHERE id = ?1",
        )?
        .query_row([definition], |row| row.get(0))?;
    cache.names.insert(definition, name);
    Ok(name)
}
