//! Batches: rows ↔ meaning. `member_counts` changes the counts as the rows of the members change.

use protocol::report::Outcome;
use protocol::{JobId, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use scheduler::batches::{BatchLimits, LiveBatch, NewBatch};
use scheduler::limits::rules::OnDuplicate;

use super::{codes, positions, rows};
use crate::store::{BatchCounts, BatchFailures, BatchFilter, BatchRow, BatchState};

/// Writes a new batch. Its members are counted as they are added.
pub(super) fn add(connection: &Connection, batch: &NewBatch) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO batches (id, name, created_at, count, max_failures, concurrency, retry_of, unique_key, on_duplicate)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            batch.first.0.cast_signed(),
            batch.options.name,
            batch.created_at.0,
            batch.count,
            batch.options.max_failures,
            batch.options.concurrency,
            batch.options.retry_of.map(|of| of.0.cast_signed()),
            batch.options.unique.as_ref().map(|unique| &*unique.key),
            batch.options.unique.as_ref().map(|unique| unique.on_duplicate.name()),
        ])?;
    Ok(())
}

/// Writes the cancel of a whole batch. Returns false if there is no such batch, or it has ended.
pub(super) fn cancel(
    connection: &Connection,
    first: JobId,
    by: &str,
    at: Timestamp,
) -> rusqlite::Result<bool> {
    let changed = connection
        .prepare_cached(
            "UPDATE batches SET cancelled_by = ?2, cancelled_at = ?3 WHERE id = ?1 AND ended_at IS NULL",
        )?
        .execute((first.0.cast_signed(), by, at.0))?;
    Ok(changed == 1)
}

/// Writes that another batch has taken the unique key of one. Returns false if there is no such batch, or it has ended.
pub(super) fn replace(connection: &Connection, first: JobId, by: JobId) -> rusqlite::Result<bool> {
    let changed = connection
        .prepare_cached("UPDATE batches SET replaced_by = ?2 WHERE id = ?1 AND ended_at IS NULL")?
        .execute((first.0.cast_signed(), by.0.cast_signed()))?;
    Ok(changed == 1)
}

/// The batch that has a unique key: it has not ended, no other one has replaced it, and its members are made.
pub(super) fn holder_of_key(connection: &Connection, key: &str) -> rusqlite::Result<Option<JobId>> {
    connection
        .prepare_cached(&format!(
            "SELECT id FROM batches WHERE {VISIBLE} AND unique_key = ?1 AND ended_at IS NULL AND replaced_by IS NULL"
        ))?
        .query_row([key], |row| Ok(id(row.get(0)?)))
        .optional()
}

/// Writes the limits of a batch. Returns false if there is no such batch, or it has ended.
pub(super) fn change(connection: &Connection, first: JobId, limits: BatchLimits) -> rusqlite::Result<bool> {
    let changed = connection
        .prepare_cached(
            "UPDATE batches SET max_failures = ?2, concurrency = ?3 WHERE id = ?1 AND ended_at IS NULL",
        )?
        .execute((first.0.cast_signed(), limits.max_failures, limits.concurrency))?;
    Ok(changed == 1)
}

/// Writes the end of a batch. Returns false if members of it have not ended.
pub(super) fn end(connection: &Connection, first: JobId, at: Timestamp) -> rusqlite::Result<bool> {
    let changed = connection
        .prepare_cached("UPDATE batches SET ended_at = ?2 WHERE id = ?1 AND live = 0")?
        .execute((first.0.cast_signed(), at.0))?;
    Ok(changed == 1)
}

/// The batches with members that have not ended.
pub(super) fn live(connection: &Connection) -> rusqlite::Result<Vec<LiveBatch>> {
    let mut statement = connection.prepare(
        "SELECT id, count, live, failed + expired + lost, max_failures, concurrency, cancelled, skipped, cancelled_by,
             CASE WHEN replaced_by IS NULL THEN unique_key END
         FROM batches WHERE ended_at IS NULL",
    )?;
    let found = statement.query_map([], |row| {
        Ok(LiveBatch {
            first: id(row.get(0)?),
            count: row.get(1)?,
            live: row.get(2)?,
            failed: row.get(3)?,
            max_failures: row.get(4)?,
            concurrency: row.get(5)?,
            cancelled: row.get(6)?,
            skipped: row.get(7)?,
            cancelled_by: row.get::<_, Option<String>>(8)?.map(Into::into),
            unique_key: row.get::<_, Option<String>>(9)?.map(Into::into),
        })
    })?;
    found.collect()
}

/// One batch, unless its members are still being made.
pub(super) fn batch(connection: &Connection, first: JobId) -> rusqlite::Result<Option<BatchRow>> {
    connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM batches WHERE {VISIBLE} AND id = ?1"))?
        .query_row([first.0.cast_signed()], row)
        .optional()
}

/// The name and the state of a batch, unless its members are still being made.
pub(super) fn facts(
    connection: &Connection,
    first: JobId,
) -> rusqlite::Result<Option<(Option<String>, BatchState)>> {
    connection
        .prepare_cached(&format!("SELECT name, state FROM batches WHERE {VISIBLE} AND id = ?1"))?
        .query_row([first.0.cast_signed()], |row| Ok((row.get(0)?, named_state(row, 1)?)))
        .optional()
}

/// The states of these batches, without those that are not kept or are still being made.
pub(super) fn states(connection: &Connection, ids: &[JobId]) -> rusqlite::Result<Vec<(JobId, BatchState)>> {
    let state = |first: &JobId| Ok(facts(connection, *first)?.map(|(_, state)| (*first, state)));
    ids.iter().map(state).filter_map(Result::transpose).collect()
}

/// A page of batches, newest first.
pub(super) fn batches(connection: &Connection, filter: &BatchFilter) -> rusqlite::Result<Vec<BatchRow>> {
    let mut sql = format!("SELECT {COLUMNS} FROM batches WHERE {VISIBLE}");
    let mut values: Vec<Value> = Vec::new();
    let mut bind = |value: Value| {
        values.push(value);
        values.len()
    };
    if let Some(before) = filter.before {
        sql += &format!(" AND id < ?{}", bind(before.0.cast_signed().into()));
    }
    match filter.name.as_deref() {
        Some(pattern) if pattern.contains('*') => {
            // A star is the only sign with a meaning.
            let glob = pattern.replace('[', "[[]").replace('?', "[?]");
            sql += &format!(" AND name GLOB ?{}", bind(glob.into()));
        }
        Some(name) => sql += &format!(" AND name = ?{}", bind(name.to_owned().into())),
        None => {}
    }
    if let Some(key) = &filter.unique_key {
        sql += &format!(" AND unique_key = ?{}", bind(key.clone().into()));
    }
    if let Some(name) = &filter.submitted_by {
        sql += &format!(
            " AND {SUBMITTER} = (SELECT id FROM submitters WHERE name = ?{})",
            bind(name.clone().into())
        );
    }
    if let Some((name, value)) = &filter.label {
        let (name, value) = (bind(name.clone().into()), bind(value.clone().into()));
        sql += &format!(
            " AND EXISTS (SELECT 1 FROM labels WHERE labels.name = ?{name} AND labels.value = ?{value}
                AND labels.job BETWEEN batches.id AND batches.id + batches.count - 1)"
        );
    }
    if !filter.states.is_empty() {
        let states: Vec<String> =
            filter.states.iter().map(|state| format!("?{}", bind(state.name().to_owned().into()))).collect();
        sql += &format!(" AND state IN ({})", states.join(", "));
    }
    let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
    sql += &format!(" ORDER BY id DESC LIMIT ?{}", bind(limit.into()));
    connection.prepare_cached(&sql)?.query_map(params_from_iter(values), row)?.collect()
}

/// The members that failed, expired or were lost: the first ones in the order of their numbers, and all by outcome.
pub(super) fn failures(
    connection: &Connection,
    first: JobId,
    limit: usize,
) -> rusqlite::Result<BatchFailures> {
    let Some(row) = batch(connection, first)? else { return Ok(BatchFailures::default()) };
    let count = row.count;
    let (from, to) = (first.0.cast_signed(), (first.0 + u64::from(count)).cast_signed());
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    // One query for each state, so that the index returns its rows in the order of ids. `<> 6` repeats the condition of the index.
    let sql = format!(
        "SELECT {} FROM ended j INDEXED BY ended_badly_in_order {}
         WHERE j.state = ?1 AND j.state <> 6 AND j.id >= ?2 AND j.id < ?3 AND j.batch = ?2 ORDER BY j.id LIMIT ?4",
        rows::JOB_COLUMNS,
        rows::JOB_JOINS
    );
    let mut found = Vec::new();
    for state in [7_i64, 9, 10] {
        let mut statement = connection.prepare_cached(&sql)?;
        let jobs = statement.query_map((state, from, to, limit), |row| Ok(rows::job(row)?.0))?;
        found.extend(jobs.collect::<rusqlite::Result<Vec<_>>>()?);
    }
    found.sort_unstable_by_key(|row| row.job);
    found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    for row in &mut found {
        row.position = positions::of(connection, row)?;
    }
    let outcomes = match row.counts.failures() {
        few if few <= OUTCOMES_COUNTED_MAX => outcomes(connection, from, to)?,
        _ => Vec::new(),
    };
    Ok(BatchFailures { first: found, outcomes })
}

/// The first members that are scheduled, queued or quarantined, in order. Live jobs have a table of their own, so what has ended is not read.
pub(super) fn waiting_members(
    connection: &Connection,
    batch: &BatchRow,
    limit: usize,
) -> rusqlite::Result<Vec<JobId>> {
    let last = batch.first.0 + u64::from(batch.count.saturating_sub(1));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(
        "SELECT id FROM jobs WHERE id BETWEEN ?1 AND ?2 AND state IN (1, 2, 5) ORDER BY id LIMIT ?3",
    )?;
    let found = statement
        .query_map((batch.first.0.cast_signed(), last.cast_signed(), limit), |row| Ok(id(row.get(0)?)))?;
    found.collect()
}

/// The most failed members whose outcomes are counted: each one is read.
const OUTCOMES_COUNTED_MAX: u32 = 10_000;

/// The members that failed, expired or were lost, by the outcome of their last attempt, most first.
fn outcomes(connection: &Connection, from: i64, to: i64) -> rusqlite::Result<Vec<(Outcome, u32)>> {
    // As in `failures`, the index has the rows of a state in the order of ids.
    let sql = "SELECT outcome, count(*) FROM ended INDEXED BY ended_badly_in_order
         WHERE state IN (7, 9, 10) AND state <> 6 AND id >= ?1 AND id < ?2 AND batch = ?1 AND outcome IS NOT NULL
         GROUP BY outcome ORDER BY 2 DESC, 1";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_map((from, to), |row| Ok((codes::outcome(row.get(0)?)?, row.get(1)?)))?;
    found.collect()
}

const COLUMNS: &str = "id, name, created_at, count, max_failures, ended_at, state, removed, scheduled, queued, assigned, running, \
     quarantined, succeeded, failed, cancelled, expired, lost, skipped, concurrency, \
     (SELECT earlier.id FROM batches earlier WHERE earlier.id = batches.retry_of), \
     (SELECT max(later.id) FROM batches later WHERE later.retry_of = batches.id
         AND NOT EXISTS (SELECT 1 FROM forming WHERE first = later.id)), \
     (SELECT name FROM submitters WHERE id = coalesce( \
         (SELECT submitter FROM jobs WHERE jobs.id BETWEEN batches.id AND batches.id + count - 1 LIMIT 1), \
         (SELECT submitter FROM ended WHERE ended.id BETWEEN batches.id AND batches.id + count - 1 LIMIT 1))), \
     (SELECT name FROM definitions WHERE id = coalesce( \
         (SELECT definition FROM jobs WHERE jobs.id = batches.id), \
         (SELECT definition FROM ended WHERE ended.id BETWEEN batches.id AND batches.id + count - 1 \
             ORDER BY ended.id LIMIT 1), \
         (SELECT definition FROM jobs WHERE jobs.id BETWEEN batches.id AND batches.id + count - 1 \
             ORDER BY jobs.id LIMIT 1))), \
     (SELECT name FROM definitions WHERE id = coalesce( \
         (SELECT definition FROM jobs WHERE jobs.id = batches.id + count - 1), \
         (SELECT definition FROM ended WHERE ended.id BETWEEN batches.id AND batches.id + count - 1 \
             ORDER BY ended.id DESC LIMIT 1), \
         (SELECT definition FROM jobs WHERE jobs.id BETWEEN batches.id AND batches.id + count - 1 \
             ORDER BY jobs.id DESC LIMIT 1))), cancelled_by, cancelled_at, unique_key, on_duplicate, replaced_by";

/// The number of the requester of some member.
const SUBMITTER: &str = "coalesce( \
     (SELECT submitter FROM jobs WHERE jobs.id BETWEEN batches.id AND batches.id + batches.count - 1 LIMIT 1), \
     (SELECT submitter FROM ended WHERE ended.id BETWEEN batches.id AND batches.id + batches.count - 1 LIMIT 1))";

const VISIBLE: &str = "NOT EXISTS (SELECT 1 FROM forming WHERE first = batches.id)";

fn row(row: &Row<'_>) -> rusqlite::Result<BatchRow> {
    let (definition, last): (Option<String>, Option<String>) = (row.get(23)?, row.get(24)?);
    Ok(BatchRow {
        definitions_differ: last != definition,
        definition,
        first: id(row.get(0)?),
        name: row.get(1)?,
        created_at: Timestamp(row.get(2)?),
        count: row.get(3)?,
        max_failures: row.get(4)?,
        ended_at: row.get::<_, Option<i64>>(5)?.map(Timestamp),
        state: named_state(row, 6)?,
        removed: row.get(7)?,
        skipped: row.get(18)?,
        concurrency: row.get(19)?,
        retry_of: row.get::<_, Option<i64>>(20)?.map(id),
        retried_as: row.get::<_, Option<i64>>(21)?.map(id),
        submitted_by: row.get(22)?,
        cancelled_by: row.get(25)?,
        cancelled_at: row.get::<_, Option<i64>>(26)?.map(Timestamp),
        unique_key: row.get(27)?,
        on_duplicate: row.get::<_, Option<String>>(28)?.and_then(|name| OnDuplicate::named(&name)),
        replaced_by: row.get::<_, Option<i64>>(29)?.map(id),
        counts: BatchCounts {
            scheduled: row.get(8)?,
            queued: row.get(9)?,
            assigned: row.get(10)?,
            running: row.get(11)?,
            quarantined: row.get(12)?,
            succeeded: row.get(13)?,
            failed: row.get(14)?,
            cancelled: row.get(15)?,
            expired: row.get(16)?,
            lost: row.get(17)?,
        },
    })
}

fn named_state(row: &Row<'_>, column: usize) -> rusqlite::Result<BatchState> {
    // The schema makes no other names.
    Ok(BatchState::named(row.get_ref(column)?.as_str()?).unwrap_or(BatchState::Running))
}

const fn id(number: i64) -> JobId {
    JobId(number.cast_unsigned())
}
