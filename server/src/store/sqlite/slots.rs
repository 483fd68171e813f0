//! The jobs of slots: how they and their retries ended, and the slots that retries carry on.
//!
//! A retry has no row in the ledger, because a slot has one job there. Its row in `carried_slots` puts it into lists of the jobs of a schedule,
//! and names the job of the ledger.

use protocol::{JobId, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use super::archive::SqliteArchive;
use super::dependencies::number;
use super::{codes, run_on, schedules};
use crate::store::{FIRES_SEARCHED, FailedFires, FireFilter, ReadError, SlotArchive, SlotEnd, SlotJob};

impl SlotArchive for SqliteArchive {
    fn slot_ends(&self, jobs: &[JobId]) -> Result<Vec<SlotEnd>, ReadError> {
        self.read(|connection| jobs.iter().map(|job| end(connection, *job)).collect())
    }

    fn slots(&self, jobs: &[JobId]) -> Result<Vec<Option<Timestamp>>, ReadError> {
        let slot = |connection: &Connection, job| {
            let is_retry: Option<bool> = connection
                .prepare_cached("SELECT retry_of IS NOT NULL FROM all_jobs WHERE id = ?1")?
                .query_row([number(job)], |row| row.get(0))
                .optional()?;
            let Some(is_retry) = is_retry else { return Ok(None) };
            Ok(schedules::slot(connection, job, is_retry)?.map(|slot| slot.at))
        };
        self.read(|connection| jobs.iter().map(|job| slot(connection, *job)).collect())
    }

    fn failed_fires(
        &self,
        definition: &str,
        filter: &FireFilter,
        limit: usize,
    ) -> Result<FailedFires, ReadError> {
        self.read(|connection| failed(connection, definition, filter, limit))
    }
}

/// Stores the slot that a retry carries on, if the job that it retries is one of a slot. The variables do not tell that: a job that was run as
/// its schedule would have run it has the same ones.
pub(super) fn carry(connection: &Connection, job: i64, retried: i64) -> rusqlite::Result<()> {
    connection.prepare_cached(CARRY)?.execute((job, retried))?;
    Ok(())
}

const CARRY: &str = "INSERT INTO carried_slots (job, root, definition, schedule)
     SELECT ?1, job, definition, schedule FROM fires WHERE job = ?2 AND reason IS NULL
     UNION ALL SELECT ?1, root, definition, schedule FROM carried_slots WHERE job = ?2 LIMIT 1";

/// Jobs of a block that carry slots on.
pub(super) const CARRIED: &str = "SELECT job FROM carried_slots WHERE job BETWEEN ?1 AND ?2 ORDER BY job";

fn end(connection: &Connection, job: JobId) -> rusqlite::Result<SlotEnd> {
    let own = slot_job(connection, job)?;
    let retry = last_retry(connection, job)?;
    let is_unresolved = match retry.or(own) {
        Some(last) if last.state.is_failure() => connection
            .prepare_cached("SELECT 1 FROM unresolved WHERE job = ?1")?
            .exists([number(last.job)])?,
        _ => false,
    };
    Ok(SlotEnd { own, retry, is_unresolved })
}

/// The newest retry of the job of a slot, or of its retries. Retries in a batch that is still being made are skipped.
fn last_retry(connection: &Connection, root: JobId) -> rusqlite::Result<Option<SlotJob>> {
    let mut statement = connection.prepare_cached(RETRIES)?;
    let mut rows = statement.query((number(root), RETRIES_READ))?;
    while let Some(row) = rows.next()? {
        let retry = JobId(row.get::<_, i64>(0)?.cast_unsigned());
        if let Some(found) = slot_job(connection, retry)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

const RETRIES: &str = "SELECT job FROM carried_slots WHERE root = ?1 ORDER BY job DESC LIMIT ?2";

/// Rows that are read for one job until one is visible.
const RETRIES_READ: i64 = 100;

fn slot_job(connection: &Connection, job: JobId) -> rusqlite::Result<Option<SlotJob>> {
    let found = connection
        .prepare_cached("SELECT state, outcome, exit_code FROM all_jobs WHERE id = ?1")?
        .query_row([number(job)], |row| {
            let outcome = row.get::<_, Option<i64>>(1)?.map(codes::outcome).transpose()?;
            Ok(SlotJob { job, state: codes::state(row.get(0)?)?, outcome, exit_code: row.get(2)? })
        })
        .optional()?;
    let shown =
        |found: SlotJob| Ok(SlotJob { state: run_on::shown_state(connection, job, found.state)?, ..found });
    found.map(shown).transpose()
}

fn failed(
    connection: &Connection,
    definition: &str,
    filter: &FireFilter,
    limit: usize,
) -> rusqlite::Result<FailedFires> {
    if !connection.prepare_cached(HAS_UNRESOLVED)?.exists([definition])? {
        return Ok(FailedFires::default());
    }
    let before = schedules::id_below(filter);
    let lowest: Option<i64> = connection
        .prepare_cached(LOWEST_SEARCHED)?
        .query_row((definition, before, FIRES_SEARCHED), |row| row.get(0))
        .optional()?;
    let FireFilter { schedule, since, until, .. } = filter;
    let (since, until) = (since.map_or(i64::MIN, |it| it.0), until.map_or(i64::MAX, |it| it.0));
    let mut rows = Vec::new();
    let mut statement = connection.prepare_cached(FAILED)?;
    let range = (lowest.unwrap_or(0), before);
    for record in
        statement.query_map((definition, range.0, range.1, schedule, since, until), schedules::fire)?
    {
        let record = record?;
        let searched = Some(record.id);
        rows.push(record);
        if rows.len() >= limit {
            return Ok(FailedFires { rows, searched });
        }
    }
    Ok(FailedFires { rows, searched: lowest.map(i64::cast_unsigned) })
}

const HAS_UNRESOLVED: &str =
    "SELECT 1 FROM unresolved WHERE name = (SELECT min(id) FROM definitions WHERE name = ?1)";

/// The last of the rows that one read searches, if there are that many.
const LOWEST_SEARCHED: &str =
    "SELECT id FROM fires WHERE definition = ?1 AND id < ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3 - 1";

/// Rows whose last job is unresolved: a few looks into indexes for each row, however often its job was retried.
const FAILED: &str =
    "SELECT id, definition, schedule, first_slot, last_slot, count, exact, verdict, reason, job, at FROM fires
     WHERE definition = ?1 AND id BETWEEN ?2 AND ?3 - 1 AND (?4 IS NULL OR schedule = ?4) AND last_slot >= ?5 AND first_slot < ?6
         AND reason IS NULL AND EXISTS (SELECT 1 FROM unresolved WHERE unresolved.job =
             coalesce((SELECT max(c.job) FROM carried_slots c WHERE c.root = fires.job), fires.job))
     ORDER BY id DESC";

#[cfg(test)]
mod tests {
    use super::{CARRIED, CARRY, FAILED, HAS_UNRESOLVED, LOWEST_SEARCHED, RETRIES};
    use crate::store::directory::DataDirectory;
    use crate::store::sqlite::connections::open_reader;
    use crate::store::sqlite::open;

    #[test]
    fn failed_slots_are_searched_by_indexes() {
        let directory = DataDirectory::temporary();
        let _store = open(&directory).unwrap();
        let reader = open_reader(&directory.database()).unwrap();
        for sql in [HAS_UNRESOLVED, LOWEST_SEARCHED, FAILED, CARRY, CARRIED, RETRIES] {
            let mut statement = reader.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let values = vec![1; statement.parameter_count()];
            let steps = statement
                .query_map(rusqlite::params_from_iter(values), |row| row.get::<_, String>(3))
                .unwrap();
            let plan = steps.collect::<rusqlite::Result<Vec<_>>>().unwrap().join("; ");
            assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{plan}");
        }
    }
}
