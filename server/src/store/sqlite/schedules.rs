//! Schedules and the ledger of slots: rows ↔ meaning.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::{JobId, Timestamp};
use rusqlite::types::FromSqlError;
use rusqlite::{Connection, OptionalExtension, Row, params};
use scheduler::ids::GroupNo;
use scheduler::pauses::PauseTarget;
use scheduler::schedule::ScheduleId;
use scheduler::schedule::backfill::LedgerReading;
use scheduler::schedule::catch_up::SlotCount;
use scheduler::schedules::{FireRow, FireVerdict, LastFire, LiveSchedules, ScheduleRow};

use super::installation::last_commit;
use super::{expectations, json_column, pauses};
use crate::store::fold::ScheduleChange;
use crate::store::{FireFilter, FireRecord, JobSlot, ScheduleState, instant_for_followers, slot_in};

/// Why the ledger was not written.
pub(super) enum Refusal {
    /// By the database.
    Sql(rusqlite::Error),
    /// A slot has a row already.
    Decided(String),
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// Writes one change.
pub(super) fn write(connection: &Connection, change: &ScheduleChange<'_>) -> Result<(), Refusal> {
    match change {
        ScheduleChange::Put(row) => put(connection, row)?,
        ScheduleChange::Fire(row) => record(connection, row)?,
        ScheduleChange::Paused(target, pause) => pauses::put(connection, target, *pause)?,
        ScheduleChange::Expectation(row) => expectations::put(connection, row)?,
        ScheduleChange::ExpectationDropped(name) => expectations::drop_one(connection, name)?,
    }
    Ok(())
}

fn put(connection: &Connection, row: &ScheduleRow) -> rusqlite::Result<()> {
    let last = row.last_fire;
    connection
        .prepare_cached(
            "INSERT INTO schedules (definition, schedule, cursor, fingerprint, removed_at, last_slot, last_at, last_job, forgotten_until)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, (SELECT schedules_forgotten_until FROM installation))
             ON CONFLICT DO UPDATE SET cursor = ?3, fingerprint = ?4, removed_at = ?5, last_slot = ?6, last_at = ?7, last_job = ?8",
        )?
        .execute(params![
            &*row.definition,
            row.schedule.as_str(),
            row.cursor.0,
            row.fingerprint.cast_signed(),
            row.removed_at.map(|at| at.0),
            last.map(|last| last.slot.0),
            last.map(|last| last.at.0),
            last.map(|last| last.job.0.cast_signed()),
        ])?;
    Ok(())
}

/// Writes a row of the ledger, or lets one reach further.
fn record(connection: &Connection, row: &FireRow) -> Result<(), Refusal> {
    let key = (&*row.definition, row.schedule.as_str(), row.from.0);
    let before: Option<i64> = connection
        .prepare_cached(
            "SELECT last_slot FROM fires WHERE definition = ?1 AND schedule = ?2 AND first_slot < ?3
             AND verdict <> 'backfilled' ORDER BY first_slot DESC LIMIT 1",
        )?
        .query_row(key, |row| row.get(0))
        .optional()?;
    let is_backfilled = matches!(row.verdict, FireVerdict::Backfilled(_));
    let changed = if before.is_some_and(|last| last >= row.from.0) && !is_backfilled {
        0
    } else {
        connection
            .prepare_cached(
                "INSERT INTO fires (definition, schedule, first_slot, last_slot, count, exact, verdict, reason, job, at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
                 ON CONFLICT (definition, schedule, first_slot) WHERE reason IS NULL DO NOTHING
                 ON CONFLICT (definition, schedule, first_slot) WHERE verdict <> 'backfilled'
                 DO UPDATE SET last_slot = ?4, count = ?5, exact = ?6, at = ?10
                 WHERE reason IS NOT NULL AND last_slot <= ?4 AND verdict = ?7 AND reason IS ?8 AND job IS ?9",
            )?
            .execute(params![
                &*row.definition,
                row.schedule.as_str(),
                row.from.0,
                row.to.0,
                row.count.count.cast_signed(),
                row.count.exact,
                row.verdict.name(),
                row.verdict.reason(),
                row.verdict.job().map(|job| job.0.cast_signed()),
                row.at.0,
            ])?
    };
    if changed == 1 {
        return Ok(());
    }
    Err(Refusal::Decided(format!(
        "slot {} of schedule {}/{} was decided before",
        row.from.0, row.definition, row.schedule
    )))
}

/// Leaves out all slots up to the time of a restore, which may have fired in the store that is gone.
pub(super) fn go_on_at(connection: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    // A restore reads everything anyway, and is rare.
    for mut row in read(connection)?.rows {
        let Some(fire) = row.go_on_at(now) else { continue };
        match record(connection, &fire) {
            Err(Refusal::Sql(error)) => return Err(error),
            // The ledger reaches beyond the cursor. The cursor is what counts.
            Ok(()) | Err(Refusal::Decided(_)) => put(connection, &row)?,
        }
    }
    // Backfills since the backup are unknown, too, and so are schedules that it does not have.
    connection.execute("UPDATE schedules SET forgotten_until = ?1", [now.0])?;
    forget_until(connection, now.0)
}

/// Schedules whose rows are gone may have fired up to here. One that is seen again makes no job of these slots.
fn forget_until(connection: &Connection, latest: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE installation SET schedules_forgotten_until = max(coalesce(schedules_forgotten_until, ?1), ?1)",
        )?
        .execute([latest])?;
    Ok(())
}

/// All that a start needs.
pub(super) fn load(connection: &Connection) -> rusqlite::Result<LiveSchedules> {
    let ScheduleState { rows, paused } = read(connection)?;
    let mut statement = connection.prepare(
        "SELECT job, definition FROM fires WHERE reason IS NULL AND job IN (SELECT id FROM jobs) ORDER BY job",
    )?;
    let jobs = statement
        .query_map([], |row| Ok((job(row.get(0)?), Arc::from(row.get::<_, String>(1)?))))?
        .collect::<rusqlite::Result<_>>()?;
    Ok(LiveSchedules { rows, paused, jobs })
}

/// Every schedule ever seen, and what is paused.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<ScheduleState> {
    let mut statement = connection.prepare_cached(
        "SELECT definition, schedule, cursor, fingerprint, removed_at, last_slot, last_at, last_job FROM schedules
         ORDER BY definition, schedule",
    )?;
    let rows = statement.query_map([], schedule)?.collect::<rusqlite::Result<_>>()?;
    let paused = pauses::read(connection)?;
    Ok(ScheduleState { rows, paused })
}

fn schedule(row: &Row<'_>) -> rusqlite::Result<ScheduleRow> {
    let (slot, at): (Option<i64>, Option<i64>) = (row.get(5)?, row.get(6)?);
    let last_fire = match (slot, at, row.get::<_, Option<i64>>(7)?) {
        (Some(slot), Some(at), Some(number)) => {
            Some(LastFire { slot: Timestamp(slot), at: Timestamp(at), job: job(number) })
        }
        _ => None,
    };
    Ok(ScheduleRow {
        definition: row.get::<_, String>(0)?.into(),
        schedule: ScheduleId::named(&row.get::<_, String>(1)?),
        cursor: Timestamp(row.get(2)?),
        fingerprint: row.get::<_, i64>(3)?.cast_unsigned(),
        removed_at: row.get::<_, Option<i64>>(4)?.map(Timestamp),
        last_fire,
    })
}

/// Rows of the ledger of a definition, the newest first.
pub(super) fn fires(
    connection: &Connection,
    definition: &str,
    filter: &FireFilter,
    limit: usize,
) -> rusqlite::Result<Vec<FireRecord>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, definition, schedule, first_slot, last_slot, count, exact, verdict, reason, job, at FROM fires
         WHERE definition = ?1 AND id < ?2 AND (?3 IS NULL OR schedule = ?3) AND last_slot >= ?4 AND first_slot < ?5
         ORDER BY id DESC LIMIT ?6",
    )?;
    let FireFilter { schedule, since, until, .. } = filter;
    let before = id_below(filter);
    let (since, until) = (since.map_or(i64::MIN, |it| it.0), until.map_or(i64::MAX, |it| it.0));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    statement.query_map((definition, before, schedule, since, until, limit), fire)?.collect()
}

/// The rows of a filter have ids below this.
pub(super) fn id_below(filter: &FireFilter) -> i64 {
    filter.before.and_then(|before| i64::try_from(before).ok()).unwrap_or(i64::MAX)
}

/// Reads a row of the ledger, with the columns of [`fires`].
pub(super) fn fire(row: &Row<'_>) -> rusqlite::Result<FireRecord> {
    let (verdict, reason): (String, Option<String>) = (row.get(7)?, row.get(8)?);
    let verdict = FireVerdict::parse(&verdict, reason.as_deref(), row.get::<_, Option<i64>>(9)?.map(job))
        .ok_or(FromSqlError::InvalidType)?;
    Ok(FireRecord {
        id: row.get::<_, i64>(0)?.cast_unsigned(),
        row: FireRow {
            definition: row.get::<_, String>(1)?.into(),
            schedule: ScheduleId::named(&row.get::<_, String>(2)?),
            from: Timestamp(row.get(3)?),
            to: Timestamp(row.get(4)?),
            count: SlotCount { count: row.get::<_, i64>(5)?.cast_unsigned(), exact: row.get(6)? },
            verdict,
            at: Timestamp(row.get(10)?),
        },
    })
}

/// As [`ledger`], with the commit that it is as new as, at least.
pub(super) fn ledger_as_of(
    connection: &Connection,
    definition: &str,
    schedule: &str,
    range: (Timestamp, Timestamp),
    limit: usize,
) -> rusqlite::Result<(LedgerReading, GroupNo)> {
    let committed = last_commit(connection)?;
    Ok((ledger(connection, definition, schedule, range, limit)?, committed))
}

/// The known facts about the slots of a range.
fn ledger(
    connection: &Connection,
    definition: &str,
    schedule: &str,
    (from, to): (Timestamp, Timestamp),
    limit: usize,
) -> rusqlite::Result<LedgerReading> {
    let known = connection
        .prepare_cached(
            "SELECT cursor, forgotten_until FROM schedules WHERE definition = ?1 AND schedule = ?2",
        )?
        .query_row((definition, schedule), |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?)))
        .optional()?;
    let mut statement = connection.prepare_cached(
        "SELECT first_slot, job FROM fires WHERE definition = ?1 AND schedule = ?2 AND first_slot BETWEEN ?3 AND ?4
         AND reason IS NULL LIMIT ?5",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let fired = statement
        .query_map((definition, schedule, from.0, to.0, limit), |row| {
            Ok((Timestamp(row.get(0)?), job(row.get(1)?)))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let (decided_until, forgotten_until) = known.unzip();
    Ok(LedgerReading {
        decided_until: decided_until.map(Timestamp),
        forgotten_until: forgotten_until.flatten().map(Timestamp),
        fired,
    })
}

/// The slot of a job: the one that became it, or that it carries on as a retry.
pub(super) fn slot(connection: &Connection, job: JobId, is_retry: bool) -> rusqlite::Result<Option<JobSlot>> {
    if is_retry { carried_slot(connection, job) } else { slot_of(connection, job) }
}

/// The slot that became this job.
fn slot_of(connection: &Connection, job: JobId) -> rusqlite::Result<Option<JobSlot>> {
    connection
        .prepare_cached("SELECT schedule, first_slot FROM fires WHERE job = ?1 AND reason IS NULL")?
        .query_row([job.0.cast_signed()], |row| {
            Ok(JobSlot { schedule: row.get(0)?, at: Timestamp(row.get(1)?) })
        })
        .optional()
}

/// The slot that a retry carries on. Only a job of a schedule has a row in the ledger, so that no slot has two.
fn carried_slot(connection: &Connection, job: JobId) -> rusqlite::Result<Option<JobSlot>> {
    Ok(slot_in(&environment(connection, job)?))
}

/// The instant for the jobs that follow this one.
pub(super) fn for_followers(connection: &Connection, job: JobId) -> rusqlite::Result<Option<String>> {
    Ok(instant_for_followers(&environment(connection, job)?).map(str::to_owned))
}

/// The variables that a job has beside its definition; of a member, those of its parent.
fn environment(connection: &Connection, job: JobId) -> rusqlite::Result<Vec<(String, String)>> {
    let mut statement = connection.prepare_cached(
        "SELECT environment FROM details
         WHERE job = coalesce((SELECT parent FROM members WHERE members.job = ?1), ?1)",
    )?;
    let found = statement.query_row([job.0.cast_signed()], |row| json_column::read(row, 0)).optional()?;
    Ok(found.flatten().unwrap_or_default())
}

/// Deletes old rows. Those whose job has not ended stay. Up to the last slot of a deleted row nobody knows any more which slots fired.
pub(super) fn remove(connection: &Connection, since: Timestamp, limit: i64) -> rusqlite::Result<usize> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM fires WHERE id IN (
             SELECT id FROM fires f WHERE at < ?1
             AND (f.reason IS NOT NULL OR NOT EXISTS (SELECT 1 FROM all_jobs j WHERE j.id = f.job))
             ORDER BY at LIMIT ?2)
         RETURNING definition, schedule, last_slot",
    )?;
    let deleted = statement
        .query_map((since.0, limit), |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?
        .collect::<rusqlite::Result<Vec<((String, String), i64)>>>()?;
    let mut latest: BTreeMap<&(String, String), i64> = BTreeMap::new();
    for (key, slot) in &deleted {
        let last = latest.entry(key).or_insert(*slot);
        *last = (*last).max(*slot);
    }
    for ((definition, schedule), slot) in latest {
        connection
            .prepare_cached(
                "UPDATE schedules SET forgotten_until = max(coalesce(forgotten_until, ?3), ?3)
                 WHERE definition = ?1 AND schedule = ?2",
            )?
            .execute((definition, schedule, slot))?;
    }
    Ok(deleted.len())
}

/// Deletes schedules that left jobs.yaml before this instant and have no row in the ledger, with their pauses.
pub(super) fn forget(connection: &Connection, since: Timestamp, limit: i64) -> rusqlite::Result<usize> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM schedules WHERE (definition, schedule) IN (
             SELECT definition, schedule FROM schedules s WHERE removed_at < ?1
             AND NOT EXISTS (SELECT 1 FROM fires f WHERE f.definition = s.definition AND f.schedule = s.schedule)
             ORDER BY removed_at LIMIT ?2)
         RETURNING definition, schedule, max(cursor, coalesce(forgotten_until, cursor))",
    )?;
    let deleted = statement
        .query_map((since.0, limit), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<rusqlite::Result<Vec<(String, String, i64)>>>()?;
    for (definition, schedule, _) in &deleted {
        let schedule = ScheduleId::named(schedule);
        pauses::put(connection, &PauseTarget::Schedule(definition.as_str().into(), schedule), None)?;
    }
    if let Some((_, _, latest)) = deleted.iter().max_by_key(|(_, _, slot)| slot) {
        forget_until(connection, *latest)?;
    }
    Ok(deleted.len())
}

const fn job(number: i64) -> JobId {
    JobId(number.cast_unsigned())
}
