//! Deletes ended jobs with all that belongs to them. The steps of retention choose the jobs.
//!
//! A parent and its members are one unit: the members are deleted with their parent, wherever their rows are, and never before it. Until
//! then a retry of a member finds what its parent was given, and no worker gets a second member.

use std::collections::BTreeMap;

use protocol::JobId;
use rusqlite::{Connection, params};

use super::{Failure, InstallationCounters, WriteCache, WriteResult, definition_ends, workers};
use crate::store::sqlite::blocks::{BLOCK_SHIFT, SEEN_REQUESTER, last_of};
use crate::store::sqlite::positions::TOLD_BY_NUMBER;
use crate::store::sqlite::rows::{self, HAS_LABELS, HAS_NARROWING, HAS_OVERRIDES};
use crate::store::sqlite::{dependencies, failures, hooks, run_on, slots};

/// An ended job that retention may delete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) job: i64,
    pub(super) ended_at: i64,
    pub(super) attempts: i64,
    /// Bit flags: `HAS_LABELS` and its like.
    pub(super) detail_flags: i64,
    pub(super) definition: i64,
    pub(super) state: i64,
}

impl Candidate {
    /// The columns that [`Candidate::read`] takes.
    pub(super) const COLUMNS: &'static str =
        "ended.id, ended.ended_at, ended.attempts, ended.details, ended.definition, ended.state";

    pub(super) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            job: row.get(0)?,
            ended_at: row.get(1)?,
            attempts: row.get(2)?,
            detail_flags: row.get(3)?,
            definition: row.get(4)?,
            state: row.get(5)?,
        })
    }
}

/// Ended jobs of one block that retention may delete.
pub(super) struct Candidates {
    pub(super) jobs: Vec<Candidate>,
    /// The parents of the block, in order; they need not be among `jobs`.
    parents: Vec<i64>,
}

/// How much the deletion of one job deletes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    /// The job and its members.
    pub(super) jobs: usize,
    /// Their attempts; a job without one counts as one.
    pub(super) rows: usize,
}

impl Candidates {
    pub(super) fn new(connection: &Connection, block: i64, jobs: Vec<Candidate>) -> rusqlite::Result<Self> {
        let parents = jobs_of(connection, block, PARENTS)?;
        Ok(Self { jobs, parents })
    }

    /// How much the deletion of this job deletes.
    pub(super) fn size(&self, connection: &Connection, job: &Candidate) -> rusqlite::Result<Size> {
        let own = usize::try_from(job.attempts).unwrap_or(usize::MAX).max(1);
        if self.parents.binary_search(&job.job).is_err() {
            return Ok(Size { jobs: 1, rows: own });
        }
        let (members, rows): (i64, i64) = connection
            .prepare_cached(
                "SELECT count(*), coalesce(sum(max(attempts, 1)), 0) FROM members JOIN ended ON ended.id = members.job
                 WHERE members.parent = ?1",
            )?
            .query_row([job.job], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let count = |count: i64| usize::try_from(count).unwrap_or(usize::MAX);
        Ok(Size { jobs: count(members).saturating_add(1), rows: own.saturating_add(count(rows)) })
    }

    /// Deletes these jobs of the block, and the members of those that are parents. Returns how many jobs were deleted. A trigger refuses to
    /// delete jobs that ended later than `deletes_until`, so that is set first.
    pub(super) fn delete(
        &self,
        connection: &Connection,
        cache: &mut WriteCache,
        counters: &InstallationCounters,
        block: i64,
        doomed: &[Candidate],
    ) -> Result<usize, Failure> {
        if doomed.is_empty() {
            return Ok(0);
        }
        let mut members: BTreeMap<i64, Vec<Candidate>> = BTreeMap::new();
        for job in doomed.iter().filter(|job| self.parents.binary_search(&job.job).is_ok()) {
            let sql = format!(
                "SELECT {} FROM members JOIN ended ON ended.id = members.job WHERE members.parent = ?1",
                Candidate::COLUMNS
            );
            let mut statement = connection.prepare_cached(&sql)?;
            for member in statement.query_map([job.job], Candidate::read)? {
                let member = member?;
                members.entry(member.job >> BLOCK_SHIFT).or_default().push(member);
            }
        }
        let all = || members.values().flatten().chain(doomed);
        let latest = all().map(|job| job.ended_at).max();
        let count = all().count();
        connection.prepare_cached("UPDATE installation SET deletes_until = ?1")?.execute([latest])?;
        for (block, jobs) in &members {
            delete_rows(connection, *block, jobs)?;
        }
        delete_rows(connection, block, doomed)?;
        connection
            .prepare_cached("UPDATE installation SET deletes_until = NULL, ended = ended - ?1")?
            .execute([i64::try_from(count).unwrap_or(i64::MAX)])?;
        definition_ends::subtract(connection, cache, doomed.iter().map(|job| (job.definition, job.state)))?;
        for other in members.keys().filter(|other| **other != block) {
            forget_if_empty(connection, cache, counters, *other)?;
        }
        Ok(count)
    }
}

/// Deletes the rows of these jobs of a block, without those of members.
fn delete_rows(connection: &Connection, block: i64, doomed: &[Candidate]) -> WriteResult {
    let noted = jobs_of(connection, block, NOTED)?;
    let hooked = jobs_of(connection, block, HOOKED)?;
    let dependent = jobs_of(connection, block, dependencies::DEPENDENT)?;
    let in_sets = jobs_of(connection, block, run_on::IN_SETS)?;
    let told = jobs_of(connection, block, TOLD_BY_NUMBER)?;
    let carried = jobs_of(connection, block, slots::CARRIED)?;
    let mut ended = connection.prepare_cached("DELETE FROM ended WHERE id = ?1")?;
    for candidate in doomed {
        let job = candidate.job;
        ended.execute([job])?;
        if candidate.attempts > 1 {
            connection.prepare_cached("DELETE FROM past_attempts WHERE job = ?1")?.execute([job])?;
        }
        if candidate.detail_flags & (HAS_LABELS | HAS_OVERRIDES | HAS_NARROWING) != 0 {
            delete_details(connection, job, candidate.detail_flags & HAS_LABELS != 0)?;
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
        if told.binary_search(&job).is_ok() {
            connection.prepare_cached("DELETE FROM told_positions WHERE job = ?1")?.execute([job])?;
        }
        if carried.binary_search(&job).is_ok() {
            connection.prepare_cached("DELETE FROM carried_slots WHERE job = ?1")?.execute([job])?;
        }
        if dependent.binary_search(&job).is_ok() {
            connection.prepare_cached("DELETE FROM dependencies WHERE job = ?1")?.execute([job])?;
        }
    }
    let failed = doomed.iter().filter(|candidate| definition_ends::is_bad(candidate.state));
    failures::remove(connection, failed.map(|candidate| candidate.job))?;
    Ok(())
}

/// The jobs of a block that a query finds between its two parameters.
pub(super) fn jobs_of(connection: &Connection, block: i64, query: &str) -> rusqlite::Result<Vec<i64>> {
    connection
        .prepare_cached(query)?
        .query_map((block << BLOCK_SHIFT, last_of(block)), |row| row.get(0))?
        .collect()
}

const PARENTS: &str = "SELECT job FROM parents WHERE job BETWEEN ?1 AND ?2 ORDER BY job";

/// Jobs that have notes, or had too many: few.
const NOTED: &str = "SELECT job FROM notes WHERE job BETWEEN ?1 AND ?2
    UNION SELECT job FROM left_out WHERE job BETWEEN ?1 AND ?2 ORDER BY job";

/// Jobs that have hooks, or that a hook made.
const HOOKED: &str = "SELECT parent FROM hooks WHERE parent BETWEEN ?1 AND ?2
    UNION SELECT job FROM hooks WHERE job BETWEEN ?1 AND ?2 ORDER BY 1";

fn delete_details(connection: &Connection, job: i64, has_labels: bool) -> WriteResult {
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
pub(super) fn forget_if_empty(
    connection: &Connection,
    cache: &mut WriteCache,
    counters: &InstallationCounters,
    block: i64,
) -> WriteResult {
    if counters.last_job < last_of(block) {
        return Ok(());
    }
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
        let forgotten = connection
            .prepare_cached(
                "DELETE FROM submitters WHERE NOT EXISTS (SELECT 1 FROM seen WHERE kind = ?1 AND which = submitters.id)",
            )?
            .execute([SEEN_REQUESTER])?;
        if forgotten > 0 {
            // Another name may get the same number.
            cache.requester_ids.clear();
        }
        connection.prepare_cached("DELETE FROM blocks WHERE block = ?1")?.execute([block])?;
        connection.prepare_cached("DELETE FROM definition_ends WHERE block = ?1")?.execute([block])?;
        cache.ends.remove(&block);
        cache.definition_ends.retain(|(_, _, known), _| *known != block);
    }
    Ok(())
}
