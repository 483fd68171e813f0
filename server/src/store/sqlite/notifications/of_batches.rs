//! Messages about the ends of batches.

use protocol::{JobId, Timestamp};
use rusqlite::{Connection, params};
use scheduler::job::State;

use super::{definition_of, prune};
use crate::notifications::occasion::Occasion;
use crate::store::{NotifyRule, NotifyRules};

/// Messages about ends of batches that wait for one target. Further ends are counted in the last one that was not tried.
const WAITING_OF_BATCHES_MAX: i64 = 100;

/// Beyond that a new message gathers ends for so long before it is tried, so that a target that is away gets one more of them an hour.
const GATHERED_MS: i64 = 3_600 * 1_000;

/// Writes the messages about the end of a batch, to the targets of its definition. Each end has a message of its own, whatever the period, until
/// too many of them wait.
pub(super) fn write_end(
    connection: &Connection,
    rules: &NotifyRules,
    first: JobId,
    state: State,
    at: Timestamp,
) -> rusqlite::Result<()> {
    let Some(occasion) = Occasion::of_batch(state) else { return Ok(()) };
    let Some(definition) = definition_of_batch(connection, first)? else { return Ok(()) };
    let (batch, occasion_name) = (first.0.cast_signed(), occasion.name());
    for rule in
        rules.0.get(definition.as_str()).into_iter().flatten().filter(|rule| rule.on.contains(occasion))
    {
        let NotifyRule { target, kind, host, .. } = rule;
        // A message that was tried may be on its way, so its count is final.
        let (waiting, untried): (i64, Option<i64>) = connection
            .prepare_cached(
                "SELECT count(*), max(id) FILTER (WHERE tries = 0)
                 FROM notifications INDEXED BY notifications_waiting_of_batches
                 WHERE definition = ?1 AND target = ?2 AND occasion = ?3 AND state = 'waiting' AND batch IS NOT NULL",
            )?
            .query_row(params![definition, target.0, occasion_name], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let are_many = waiting >= WAITING_OF_BATCHES_MAX;
        if let Some(untried) = untried.filter(|_| are_many) {
            connection
                .prepare_cached(
                    "UPDATE notifications SET count = count + 1, last_at = ?2, batch = ?3 WHERE id = ?1",
                )?
                .execute(params![untried, at.0, batch])?;
            continue;
        }
        let opens_at = if are_many { at.0.saturating_add(GATHERED_MS) } else { at.0 };
        connection
            .prepare_cached(
                "INSERT INTO notifications (message, definition, target, kind, host, occasion, count, first_at, last_at,
                     batch, state, opens_at, due_at, tries)
                 VALUES (lower(hex(randomblob(16))), ?1, ?2, ?3, ?4, ?5, 1, ?6, ?6, ?7, 'waiting', ?8, ?8, 0)",
            )?
            .execute(params![definition, target.0, kind.name(), host, occasion_name, at.0, batch, opens_at])?;
        prune(connection)?;
    }
    Ok(())
}

/// The definition that gets the messages about a batch: that of its first member, whose row is kept while the batch lives. A batch that repeats
/// members of another one belongs to the definition of that one, if its first member is still kept, so that the targets
/// that heard of the failure hear of the repair, too.
fn definition_of_batch(connection: &Connection, first: JobId) -> rusqlite::Result<Option<String>> {
    let original: Option<i64> = connection
        .prepare_cached(
            "WITH RECURSIVE chain (id, repeats) AS (
                 SELECT id, retry_of FROM batches WHERE id = ?1
                 UNION SELECT earlier.id, earlier.retry_of FROM chain JOIN batches AS earlier ON earlier.id = chain.repeats
                 LIMIT 100)
             SELECT min(id) FROM chain",
        )?
        .query_row([first.0.cast_signed()], |row| row.get(0))?;
    let original = original.map(|id| JobId(id.cast_unsigned())).filter(|original| *original != first);
    if let Some(original) = original
        && let Some(definition) = definition_of(connection, original)?
    {
        return Ok(Some(definition));
    }
    definition_of(connection, first)
}
