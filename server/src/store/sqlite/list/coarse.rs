//! The coarse indexes by which a list skips blocks of jobs.

use rusqlite::{Connection, OptionalExtension};
use scheduler::job::State;

use super::names::NameSet;
use super::parts::{Part, has_closed_attempt, has_end};
use crate::store::JobFilter;
use crate::store::sqlite::blocks::{BLOCK_SHIFT, SEEN_NAME, SEEN_REQUESTER, SEEN_WORKER};

/// A coarse index that finds the blocks with matching jobs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Blocks<'n> {
    /// Blocks with this entry in `seen`: its kind, and the definition or worker.
    Seen(i64, i64),
    /// Blocks with both of these entries in `seen`.
    Both((i64, i64), (i64, i64)),
    /// Blocks with any of these names.
    AnyName(&'n NameSet),
    /// Blocks whose ends reach into the span of the filter.
    Ends,
}

/// The index of blocks by which this part can be searched, if one helps.
pub(super) fn blocks_of<'n>(
    connection: &Connection,
    filter: &JobFilter,
    names: Option<&'n NameSet>,
    part: Part,
) -> rusqlite::Result<Option<Blocks<'n>>> {
    let has_index = match part {
        // Parents with a member that runs and jobs in backoff are few.
        Part::RunningParents | Part::Backoff => true,
        // Unresolved failures have an index by name. Without acknowledgements there may be millions, and few of them fit the rest.
        Part::Unresolved => filter.name.is_some() && filter.submitted_by.is_none() && !has_end(filter),
        // A definition may succeed with such a code each time: the names and workers of others leave out its blocks.
        Part::SucceededNonZero => false,
        // Jobs of such a state may be millions, and few of them from one requester.
        Part::Unsuccessful(_) | Part::Live(Some(_)) if filter.submitted_by.is_some() => false,
        // Jobs of such a state may be millions, and few of them may have one of these names. By outcome or exit code they are few.
        Part::Unsuccessful(_) => names.is_none() || has_closed_attempt(filter),
        Part::Live(Some(state)) => state != State::Queued && (names.is_none() || has_closed_attempt(filter)),
        Part::Live(None) | Part::Ended | Part::Succeeded => false,
    };
    if filter.label.is_some()
        || filter.schedule.is_some()
        || filter.batch.is_some()
        || filter.parent.is_some()
        || has_index
    {
        return Ok(None);
    }
    let seen = seen(connection, filter)?;
    if let Some(name) = &filter.submitted_by {
        let of_requester = (SEEN_REQUESTER, requester_id(connection, name)?.unwrap_or(0));
        return Ok(Some(match seen {
            Some(other) => Blocks::Both(of_requester, other),
            None => Blocks::Seen(of_requester.0, of_requester.1),
        }));
    }
    if let Some((kind, which)) = seen {
        return Ok(Some(Blocks::Seen(kind, which)));
    }
    if has_end(filter) {
        return Ok(Some(Blocks::Ends));
    }
    // Many names are in most blocks: the filters above leave out more.
    Ok(names.map(Blocks::AnyName))
}

/// The number of a requester's name; none if no job that is kept has it.
pub(super) fn requester_id(connection: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    let mut statement = connection.prepare_cached("SELECT id FROM submitters WHERE name = ?1")?;
    statement.query_row([name], |row| row.get(0)).optional()
}

/// The entry in `seen` of the definition or the worker of a filter.
fn seen(connection: &Connection, filter: &JobFilter) -> rusqlite::Result<Option<(i64, i64)>> {
    if let Some(name) = &filter.name {
        let sql = "SELECT min(id) FROM definitions WHERE name = ?1";
        let first: Option<i64> = connection.prepare_cached(sql)?.query_row([name], |row| row.get(0))?;
        // A name that no job ever had is seen nowhere.
        return Ok(Some((SEEN_NAME, first.unwrap_or(0))));
    }
    if let Some(revision) = filter.revision {
        let sql = "SELECT min(same.id) FROM definitions d JOIN definitions same ON same.name = d.name WHERE d.revision = ?1";
        let bytes = revision.0.to_be_bytes();
        let first: Option<i64> = connection.prepare_cached(sql)?.query_row([bytes], |row| row.get(0))?;
        return Ok(Some((SEEN_NAME, first.unwrap_or(0))));
    }
    Ok(filter.worker.map(|worker| (SEEN_WORKER, worker.0.cast_signed())))
}

/// The newest block up to this one with this entry in `seen`.
fn newest_seen(
    connection: &Connection,
    (kind, which): (i64, i64),
    highest: i64,
) -> rusqlite::Result<Option<i64>> {
    let sql =
        "SELECT block FROM seen WHERE kind = ?1 AND which = ?2 AND block <= ?3 ORDER BY block DESC LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_row((kind, which, highest), |row| row.get(0)).optional()
}

const SEEN_WITH_END: &str = "SELECT seen.block FROM seen CROSS JOIN blocks ON blocks.block = seen.block
    WHERE kind = ?1 AND which = ?2 AND seen.block <= ?3 AND newest_end >= ?4 ORDER BY seen.block DESC LIMIT 1";

/// The newest block up to this one with this entry in `seen` and with a job that ended at this time or later.
fn newest_seen_with_end(
    connection: &Connection,
    (kind, which): (i64, i64),
    highest: i64,
    since: i64,
) -> rusqlite::Result<Option<i64>> {
    let mut statement = connection.prepare_cached(SEEN_WITH_END)?;
    statement.query_row((kind, which, highest, since), |row| row.get(0)).optional()
}

impl Blocks<'_> {
    /// The newest block up to this job that can have matching jobs.
    pub(super) fn newest_up_to(
        self,
        connection: &Connection,
        filter: &JobFilter,
        highest: i64,
    ) -> rusqlite::Result<Option<i64>> {
        let highest = highest >> BLOCK_SHIFT;
        match self {
            Self::Seen(kind, which) => match filter.ended_since {
                None => newest_seen(connection, (kind, which), highest),
                Some(since) => newest_seen_with_end(connection, (kind, which), highest, since.0),
            },
            Self::Both(one, other) => {
                let mut highest = highest;
                loop {
                    let Some(block) = newest_seen(connection, one, highest)? else { return Ok(None) };
                    match newest_seen(connection, other, block)? {
                        Some(common) if common < block => highest = common,
                        found => return Ok(found),
                    }
                }
            }
            Self::AnyName(names) => names.newest_up_to(connection, highest),
            Self::Ends => {
                let since = filter.ended_since.map_or(i64::MIN, |since| since.0);
                let until = filter.ended_until.map_or(i64::MAX, |until| until.0);
                // A row for each 4,096 jobs: few, even if none of them matches. `oldest_end` leaves out jobs that retention has to keep;
                // no job ends before the first one of its block was accepted, unless a clock was set back.
                let sql = "SELECT block FROM blocks WHERE block <= ?1 AND newest_end >= ?2
                           AND min(oldest, coalesce(oldest_end, oldest)) < ?3 ORDER BY block DESC LIMIT 1";
                let mut statement = connection.prepare_cached(sql)?;
                statement.query_row((highest, since, until), |row| row.get(0)).optional()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SEEN_WITH_END;
    use crate::store::directory::DataDirectory;
    use crate::store::sqlite::connections::open_reader;
    use crate::store::sqlite::open;

    #[test]
    fn blocks_of_a_definition_with_late_ends_are_found_by_index() {
        let directory = DataDirectory::temporary();
        let _store = open(&directory).unwrap();
        let reader = open_reader(&directory.database()).unwrap();
        let mut statement = reader.prepare(&format!("EXPLAIN QUERY PLAN {SEEN_WITH_END}")).unwrap();
        let steps = statement.query_map((1, 1, 1, 1), |row| row.get::<_, String>(3)).unwrap();
        let plan = steps.collect::<rusqlite::Result<Vec<_>>>().unwrap().join("; ");
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{plan}");
    }
}
