//! Notifications: written in the transaction of their occasion. `deliveries` has the changes by their delivery.

mod of_batches;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::{JobId, Timestamp};
use rusqlite::types::FromSqlError;
use rusqlite::{Connection, OptionalExtension, Row, params};
use scheduler::expectations::ExpectationRow;
use scheduler::step::Change;

use super::archive::SqliteArchive;
use super::run_on;
use crate::notifications::occasion::Occasion;
use crate::notifications::target_key::{TargetKey, TargetKind};
use crate::store::{
    Group, NotificationArchive, NotificationFilter, NotificationId, NotificationRow, NotificationState,
    NotifyRules, ReadError, UnsentGroup,
};

/// Delivered and failed notifications that are kept: a month of one each five minutes.
const ENDED_ROWS_MAX: i64 = 10_000;

/// Failing targets that are listed: more than a person reads.
const FAILING_TARGETS_MAX: i64 = 500;

/// No message waits for longer than the longest period: one that does was written by a clock that was ahead, and is due.
const DUE_MS_MAX: i64 = 32 * 24 * 3_600 * 1_000;

/// Writes the notifications about the ends of a group, after its jobs.
pub(super) fn write_ends(connection: &Connection, group: &Group) -> rusqlite::Result<()> {
    if group.notify.0.is_empty() {
        return Ok(());
    }
    // An operator who releases the job of an unreachable worker quarantines and frees it at once.
    let freed: BTreeSet<JobId> = group
        .changes
        .iter()
        .filter_map(|change| match change {
            Change::QuarantineReleased { job } => Some(*job),
            _ => None,
        })
        .collect();
    let mut expectations: BTreeMap<&str, &ExpectationRow> = BTreeMap::new();
    for change in &group.changes {
        let (job, state, at) = match change {
            Change::Ended(ended) => (ended.job, ended.state, ended.at),
            Change::AttemptClosed { job, .. } if freed.contains(job) => continue,
            Change::AttemptClosed { job, state, closed, .. } => (*job, *state, closed.ended_at),
            Change::BatchEnded { first, state, at, .. } => {
                of_batches::write_end(connection, &group.notify, *first, *state, *at)?;
                continue;
            }
            Change::Expectation(row) => {
                expectations.insert(&*row.definition, row);
                continue;
            }
            _ => continue,
        };
        let Some(occasion) = Occasion::of_state(state) else { continue };
        // Its parent's end tells of it; a member in quarantine waits for a person.
        if occasion != Occasion::Quarantined && run_on::is_member(connection, job)? {
            continue;
        }
        let Some(definition) = definition_of(connection, job)? else { continue };
        write(connection, &group.notify, &definition, occasion, Some(job), at)?;
        if occasion == Occasion::Quarantined || !group.notify.0.contains_key(definition.as_str()) {
            continue;
        }
        if occasion != Occasion::Succeeded {
            expect_recovery(connection, &definition)?;
        } else if is_recovery(connection, &definition, expectations.get(definition.as_str()).copied())? {
            connection
                .prepare_cached("DELETE FROM failing_definitions WHERE definition = ?1")?
                .execute([&definition])?;
            send_held_back(connection, &definition, at)?;
            write(connection, &group.notify, &definition, Occasion::Recovered, Some(job), at)?;
        }
    }
    Ok(())
}

/// A success is a recovery if something went wrong before, and nothing that is expected is missed any more: neither right after this success
/// (`changed`, if this group has changed the expectation by then), nor at the end of the group, whose row is stored already.
fn is_recovery(
    connection: &Connection,
    definition: &str,
    changed: Option<&ExpectationRow>,
) -> rusqlite::Result<bool> {
    let is_failing = connection
        .prepare_cached("SELECT 1 FROM failing_definitions WHERE definition = ?1")?
        .exists([definition])?;
    if !is_failing || changed.is_some_and(|row| !row.is_met()) {
        return Ok(false);
    }
    let missed = "SELECT 1 FROM expectations WHERE definition = ?1
                  AND (stale_since IS NOT NULL OR slow_job IS NOT NULL)";
    Ok(!connection.prepare_cached(missed)?.exists([definition])?)
}

/// The next success of this definition is a recovery.
fn expect_recovery(connection: &Connection, definition: &str) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT INTO failing_definitions VALUES (?1) ON CONFLICT DO NOTHING")?
        .execute([definition])
        .map(drop)
}

/// Makes the messages about what has gone wrong due that wait for the end of a period. A recovery is sent after them.
fn send_held_back(connection: &Connection, definition: &str, at: Timestamp) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE notifications SET due_at = min(due_at, ?2)
             WHERE definition = ?1 AND occasion IN ('failed', 'lost', 'late', 'stale')
                 AND state = 'waiting' AND tries = 0",
        )?
        .execute((definition, at.0))
        .map(drop)
}

/// Writes the notifications about an expectation that is missed now, before its row is replaced.
pub(super) fn write_missed(
    connection: &Connection,
    rules: &NotifyRules,
    row: &ExpectationRow,
    at: Timestamp,
) -> rusqlite::Result<()> {
    if row.is_met() || !rules.0.contains_key(&row.definition) {
        return Ok(());
    }
    let before: Option<(Option<i64>, Option<i64>)> = connection
        .prepare_cached("SELECT stale_since, slow_job FROM expectations WHERE definition = ?1")?
        .query_row([&*row.definition], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let (stale_since, slow_job) = before.unwrap_or_default();
    if row.stale_since.is_some_and(|since| stale_since != Some(since.0)) {
        write(connection, rules, &row.definition, Occasion::Stale, None, at)?;
        expect_recovery(connection, &row.definition)?;
    }
    if let Some(slow) = row.slow.filter(|slow| slow_job != Some(slow.job.0.cast_signed())) {
        write(connection, rules, &row.definition, Occasion::Late, Some(slow.job), at)?;
        expect_recovery(connection, &row.definition)?;
    }
    Ok(())
}

fn definition_of(connection: &Connection, job: JobId) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached(
            "SELECT definitions.name FROM all_jobs JOIN definitions ON definitions.id = all_jobs.definition
             WHERE all_jobs.id = ?1",
        )?
        .query_row([job.0.cast_signed()], |row| row.get(0))
        .optional()
}

/// Counts an occasion in the open message of each target, or begins one.
fn write(
    connection: &Connection,
    rules: &NotifyRules,
    definition: &str,
    occasion: Occasion,
    job: Option<JobId>,
    at: Timestamp,
) -> rusqlite::Result<()> {
    for rule in rules.0.get(definition).into_iter().flatten().filter(|rule| rule.on.contains(occasion)) {
        let key = params![definition, rule.target.0, occasion.name()];
        let opened_at: Option<i64> = connection
            .prepare_cached(
                "SELECT opens_at FROM notifications WHERE definition = ?1 AND target = ?2 AND occasion = ?3
                 ORDER BY id DESC LIMIT 1",
            )?
            .query_row(key, |row| row.get(0))
            .optional()?;
        // A clock that was ahead must not silence the target until that time comes again.
        let latest = at.0.saturating_add(rule.period_ms);
        let opens_at =
            opened_at.map_or(at.0, |opened| opened.saturating_add(rule.period_ms).clamp(at.0, latest));
        connection
            .prepare_cached(
                "INSERT INTO notifications (message, definition, target, kind, host, occasion, count, first_at, last_at,
                     job, state, opens_at, due_at, tries)
                 VALUES (lower(hex(randomblob(16))), ?1, ?2, ?3, ?4, ?5, 1, ?6, ?6, ?7, 'waiting', ?8, ?8, 0)
                 ON CONFLICT (definition, target, occasion) WHERE state = 'waiting' AND tries = 0 AND batch IS NULL
                 DO UPDATE SET count = count + 1, last_at = ?6, job = ?7",
            )?
            .execute(params![
                definition,
                rule.target.0,
                rule.kind.name(),
                rule.host,
                occasion.name(),
                at.0,
                job.map(|job| job.0.cast_signed()),
                opens_at,
            ])?;
        prune(connection)?;
    }
    Ok(())
}

/// Deletes the oldest of too many ended notifications: two for each new one, so that there are never more for long.
fn prune(connection: &Connection) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "DELETE FROM notifications WHERE id IN (
                 SELECT id FROM notifications WHERE state <> 'waiting'
                     AND id <= (SELECT max(id) FROM notifications) - ?1 ORDER BY id LIMIT 2)",
        )?
        .execute([ENDED_ROWS_MAX])
        .map(drop)
}

/// Added to the numbers of messages that were tried, so that they come after the others.
const TRIED: i64 = 1 << 60;

const COLUMNS: &str = "id, definition, target, kind, host, occasion, count, first_at, last_at, job, state, opens_at, \
                       due_at, tries, tried_at, error, message, give_up_at, batch";

impl NotificationArchive for SqliteArchive {
    fn due_notifications(&self, now: Timestamp) -> Result<Vec<NotificationRow>, ReadError> {
        // A message that was not sent yet waits for an earlier one about the same, so that occasions are counted while a target is away; that of a
        // batch does not, as each has its own. A recovery waits for those about what went wrong before its last time, so that it is told last. Otherwise messages that were not sent
        // yet come first: many old ones that a target refuses do not delay the news.
        self.read(|connection| {
            connection
                .prepare_cached(&format!(
                    "SELECT {COLUMNS} FROM notifications WHERE id IN (
                         SELECT min((tries > 0) * {TRIED} + id) % {TRIED} FROM notifications AS due WHERE state = 'waiting'
                             AND (due_at <= ?1 OR due_at > ?2)
                             AND (tries > 0 OR batch IS NOT NULL OR NOT EXISTS (SELECT 1 FROM notifications AS earlier
                                 WHERE earlier.definition = due.definition AND earlier.target = due.target
                                     AND (earlier.occasion = due.occasion AND earlier.id < due.id
                                         OR due.occasion = 'recovered' AND earlier.first_at <= due.last_at
                                             AND earlier.occasion IN ('failed', 'lost', 'late', 'stale'))
                                     AND earlier.state = 'waiting'))
                         GROUP BY target)"
                ))?
                .query_map((now.0, now.0.saturating_add(DUE_MS_MAX)), notification)?
                .collect()
        })
    }

    fn failing_targets(&self) -> Result<Vec<NotificationRow>, ReadError> {
        // A first try under way has no result yet. With max() SQLite takes the other columns from the row that has the maximum.
        self.read(|connection| {
            connection
                .prepare_cached(&format!(
                    "SELECT * FROM (
                         SELECT {COLUMNS}, max(tried_at) AS last_try FROM notifications
                         WHERE tried_at IS NOT NULL AND (state = 'delivered' OR error IS NOT NULL) GROUP BY target)
                     WHERE state <> 'delivered' ORDER BY last_try DESC LIMIT ?1"
                ))?
                .query_map([FAILING_TARGETS_MAX], notification)?
                .collect()
        })
    }

    fn unsent_notifications(&self) -> Result<Vec<UnsentGroup>, ReadError> {
        self.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT definition, target, state, count(*) FROM notifications WHERE state <> 'delivered'
                     GROUP BY definition, target, state",
                )?
                .query_map([], |row| {
                    let state: String = row.get(2)?;
                    Ok(UnsentGroup {
                        definition: row.get(0)?,
                        target: TargetKey(row.get(1)?),
                        state: NotificationState::find(&state).ok_or(FromSqlError::InvalidType)?,
                        count: row.get::<_, i64>(3)?.cast_unsigned(),
                    })
                })?
                .collect()
        })
    }

    fn notification(&self, id: NotificationId) -> Result<Option<NotificationRow>, ReadError> {
        self.read(|connection| {
            connection
                .prepare_cached(&format!("SELECT {COLUMNS} FROM notifications WHERE id = ?1"))?
                .query_row([id.0.cast_signed()], notification)
                .optional()
        })
    }

    fn notifications(&self, filter: &NotificationFilter) -> Result<Vec<NotificationRow>, ReadError> {
        let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
        let before = filter.before.map_or(i64::MAX, u64::cast_signed);
        let state = filter.state.map(NotificationState::name);
        self.read(|connection| {
            connection
                .prepare_cached(&format!(
                    "SELECT {COLUMNS} FROM notifications WHERE id < ?1 AND (?2 IS NULL OR definition = ?2)
                         AND (?3 IS NULL OR state = ?3) ORDER BY id DESC LIMIT ?4"
                ))?
                .query_map(params![before, filter.definition, state, limit], notification)?
                .collect()
        })
    }
}

fn notification(row: &Row<'_>) -> rusqlite::Result<NotificationRow> {
    let name = |index| row.get::<_, String>(index);
    let time = |index| row.get::<_, i64>(index).map(Timestamp);
    let id = |index| {
        let id: Option<i64> = row.get(index)?;
        Ok::<_, rusqlite::Error>(id.map(|id| JobId(id.cast_unsigned())))
    };
    Ok(NotificationRow {
        id: NotificationId(row.get::<_, i64>(0)?.cast_unsigned()),
        definition: row.get::<_, Arc<str>>(1)?,
        target: TargetKey(name(2)?),
        kind: TargetKind::find(&name(3)?).ok_or(FromSqlError::InvalidType)?,
        host: name(4)?,
        occasion: Occasion::find(&name(5)?).ok_or(FromSqlError::InvalidType)?,
        count: row.get::<_, i64>(6)?.cast_unsigned(),
        first_at: time(7)?,
        last_at: time(8)?,
        job: id(9)?,
        batch: id(18)?,
        state: NotificationState::find(&name(10)?).ok_or(FromSqlError::InvalidType)?,
        opens_at: time(11)?,
        due_at: time(12)?,
        tries: row.get(13)?,
        tried_at: row.get::<_, Option<i64>>(14)?.map(Timestamp),
        error: row.get(15)?,
        message: name(16)?,
        give_up_at: row.get::<_, Option<i64>>(17)?.map(Timestamp),
    })
}
