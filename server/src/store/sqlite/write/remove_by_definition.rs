//! A step of retention by the rules that definitions have for their own jobs.
//!
//! `definition_ends` tells the earliest end in each block of 4,096 jobs, so what is due is found without looking at the rest. The blocks of a
//! definition are merged in the order of their ends: the newest jobs that a rule keeps are the newest ones of all blocks.
//!
//! A job that something refers to is held: it stays whatever the rule says, and still counts among the jobs that ended before others. Its
//! block is looked at again after an hour, which spares everything that may release a job a word about it.

use protocol::{Epoch, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use super::deletion::{self, Candidate, Candidates};
use super::{Failure, InstallationCounters, WriteCache, begin, definition_ends, finish_transaction};
use crate::store::sqlite::blocks::{BLOCK_SHIFT, last_of};
use crate::store::{CommitError, DefinitionCutoffs, DefinitionRemoval, Removed};

/// See [`crate::store::Store::remove_by_definition`]. Whatever the result, `cache` is true of the database afterwards.
pub(in crate::store::sqlite) fn remove_by_definition(
    connection: &Connection,
    cache: &mut WriteCache,
    epoch: Epoch,
    removal: &DefinitionRemoval,
) -> Result<Removed, CommitError> {
    let result = in_transaction(connection, cache, epoch, removal);
    finish_transaction(connection, cache, epoch, result)
}

fn in_transaction(
    connection: &Connection,
    cache: &mut WriteCache,
    epoch: Epoch,
    removal: &DefinitionRemoval,
) -> Result<Removed, Failure> {
    let counters = begin(connection, epoch)?;
    let mut step = Step { removal, counters: &counters, jobs: 0, rows: 0, visits: 0 };
    let mut more = false;
    'rules: for rule in removal.definitions.iter() {
        let name: Option<i64> = connection
            .prepare_cached("SELECT min(id) FROM definitions WHERE name = ?1")?
            .query_row([&*rule.definition], |row| row.get(0))?;
        let Some(name) = name else { continue };
        for ends in EndGroup::of(rule, name, removal.kept_since) {
            while let Some(block) = ends.next_block(connection, removal.now)? {
                if !step.has_room() || !step.visit(connection, cache, &ends, block)? {
                    more = true;
                    break 'rules;
                }
            }
        }
    }
    connection.prepare_cached("COMMIT")?.execute([])?;
    Ok(Removed { jobs: step.jobs as u64, more, ..Removed::default() })
}

/// Jobs of a definition that one limit is for.
struct EndGroup {
    name: i64,
    /// Good ends, bad ends, or both.
    is_bad: (bool, bool),
    ended_since: i64,
    kept_since: i64,
    ended_max: Option<i64>,
}

/// A block to be looked at.
struct Visit {
    block: i64,
    /// Jobs in it beyond those that are kept, the earliest ones, held ones counted.
    surplus: i64,
    /// The earliest end in another block.
    bound: i64,
}

/// Jobs that are more than are kept.
#[derive(Clone, Copy, Default)]
struct Surplus {
    /// Those that may be deleted.
    of_all: i64,
    /// Jobs of one block beyond those that are kept, held ones counted.
    in_block: i64,
}

impl EndGroup {
    fn of(rule: &DefinitionCutoffs, name: i64, kept_since: Timestamp) -> impl Iterator<Item = Self> {
        let ended_max = rule.ended_max.map(|max| i64::try_from(max).unwrap_or(i64::MAX));
        let group = |is_bad, since: Timestamp, ended_max| Self {
            name,
            is_bad,
            ended_since: since.min(kept_since).0,
            kept_since: kept_since.0,
            ended_max,
        };
        let (first, second) = match rule.failed_since {
            None => (group((false, true), rule.ended_since, ended_max), None),
            Some(since) => {
                (group((false, false), rule.ended_since, ended_max), Some(group((true, true), since, None)))
            }
        };
        [Some(first), second].into_iter().flatten()
    }

    /// The block with the earliest end, if a job in it may be due; else one with held jobs that was not looked at for long.
    fn next_block(&self, connection: &Connection, now: Timestamp) -> rusqlite::Result<Option<Visit>> {
        let mut oldest: Vec<(i64, i64)> = Vec::new();
        for is_bad in [false, true] {
            if self.has(is_bad) {
                oldest.extend(self.oldest(connection, is_bad)?);
            }
        }
        oldest.sort_unstable();
        let bound = |block| oldest.iter().find(|(_, other)| *other != block).map_or(i64::MAX, |(at, _)| *at);
        if let Some((at, block)) = oldest.first().copied() {
            let surplus = self.surplus(connection, block)?;
            if at < self.ended_since || (surplus.of_all > 0 && at < self.kept_since) {
                return Ok(Some(Visit { block, surplus: surplus.in_block, bound: bound(block) }));
            }
        }
        let held: Option<i64> = connection
            .prepare_cached(
                "SELECT block FROM definition_ends INDEXED BY definition_ends_held
                 WHERE name = ?1 AND is_bad BETWEEN ?2 AND ?3 AND held > 0 AND looked_at < ?4 LIMIT 1",
            )?
            .query_row((self.name, self.is_bad.0, self.is_bad.1, now.0 - HELD_AGAIN_MS), |row| row.get(0))
            .optional()?;
        let Some(block) = held else { return Ok(None) };
        let surplus = self.surplus(connection, block)?.in_block;
        Ok(Some(Visit { block, surplus, bound: bound(block) }))
    }

    fn has(&self, is_bad: bool) -> bool {
        (self.is_bad.0..=self.is_bad.1).contains(&is_bad)
    }

    /// The two blocks with the earliest ends.
    fn oldest(&self, connection: &Connection, is_bad: bool) -> rusqlite::Result<Vec<(i64, i64)>> {
        connection
            .prepare_cached(
                "SELECT oldest_end, block FROM definition_ends
                 WHERE name = ?1 AND is_bad = ?2 AND oldest_end IS NOT NULL ORDER BY oldest_end LIMIT 2",
            )?
            .query_map((self.name, is_bad), |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect()
    }

    /// How many jobs are more than are kept, without those that are held: these ended before the others and stay.
    fn surplus(&self, connection: &Connection, block: i64) -> rusqlite::Result<Surplus> {
        let Some(max) = self.ended_max else { return Ok(Surplus::default()) };
        let total: i64 = connection
            .prepare_cached(
                "SELECT coalesce(sum(ended), 0) FROM definition_totals WHERE name = ?1 AND is_bad BETWEEN ?2 AND ?3",
            )?
            .query_row((self.name, self.is_bad.0, self.is_bad.1), |row| row.get(0))?;
        if total <= max {
            return Ok(Surplus::default());
        }
        let (held, held_here): (i64, i64) = connection
            .prepare_cached(
                "SELECT coalesce(sum(held), 0), coalesce(sum(iif(block = ?4, held, 0)), 0)
                 FROM definition_ends INDEXED BY definition_ends_held
                 WHERE name = ?1 AND is_bad BETWEEN ?2 AND ?3 AND held > 0",
            )?
            .query_row((self.name, self.is_bad.0, self.is_bad.1, block), |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        let surplus = total - max - held;
        Ok(Surplus { of_all: surplus.max(0), in_block: (surplus + held_here).max(0) })
    }

    /// The ended jobs of a block, those that ended longest ago first, without members of parents that are kept.
    fn candidates(&self, connection: &Connection, block: i64) -> rusqlite::Result<Candidates> {
        let sql = format!(
            "SELECT {} FROM ended WHERE id BETWEEN ?1 AND ?2
             AND definition IN (SELECT id FROM definitions WHERE name = (SELECT name FROM definitions WHERE id = ?3))
             AND (state IN (7, 9, 10)) BETWEEN ?4 AND ?5
             AND id NOT IN (SELECT m.job FROM members m JOIN parents p ON p.job = m.parent WHERE m.job BETWEEN ?1 AND ?2)
             ORDER BY ended_at, id",
            Candidate::COLUMNS
        );
        let range = (block << BLOCK_SHIFT, last_of(block));
        let jobs = connection
            .prepare_cached(&sql)?
            .query_map((range.0, range.1, self.name, self.is_bad.0, self.is_bad.1), Candidate::read)?
            .collect::<rusqlite::Result<_>>()?;
        Candidates::new(connection, block, jobs)
    }
}

/// The work of one step.
struct Step<'r> {
    removal: &'r DefinitionRemoval,
    counters: &'r InstallationCounters,
    jobs: usize,
    rows: usize,
    visits: usize,
}

impl Step<'_> {
    fn has_room(&self) -> bool {
        self.visits < VISITS_MAX && self.rows < self.removal.rows_max
    }

    /// Deletes what is due in a block, and writes down what is due next in it. Returns false if this step has no room for it.
    fn visit(
        &mut self,
        connection: &Connection,
        cache: &mut WriteCache,
        ends: &EndGroup,
        visit: Visit,
    ) -> Result<bool, Failure> {
        self.visits += 1;
        let block = visit.block;
        let candidates = ends.candidates(connection, block)?;
        let held = deletion::jobs_of(connection, block, HELD)?;
        let mut doomed: Vec<Candidate> = Vec::new();
        let mut left = [BlockRow::default(); 2];
        let mut is_over = false;
        let mut has_room = true;
        for (before, job) in (0_i64..).zip(&candidates.jobs) {
            let row = &mut left[usize::from(definition_ends::is_bad(job.state))];
            if held.binary_search(&job.job).is_ok() {
                // Those that ended later are counted once this block is looked at again.
                row.held += i64::from(row.oldest_end.is_none());
                continue;
            }
            let is_surplus =
                before < visit.surplus && job.ended_at < ends.kept_since && job.ended_at <= visit.bound;
            is_over |= job.ended_at >= ends.ended_since && !is_surplus;
            if !is_over {
                let size = candidates.size(connection, job)?;
                // One with very many attempts or members goes alone.
                if self.rows == 0 || self.rows.saturating_add(size.rows) <= self.removal.rows_max {
                    self.rows = self.rows.saturating_add(size.rows);
                    doomed.push(*job);
                    continue;
                }
                (is_over, has_room) = (true, false);
            }
            row.oldest_end.get_or_insert(job.ended_at);
        }
        self.jobs += candidates.delete(connection, cache, self.counters, block, &doomed)?;
        for (is_bad, row) in [false, true].into_iter().zip(left) {
            if ends.has(is_bad) {
                row.write(connection, (ends.name, is_bad, block), self.removal.now)?;
                cache.definition_ends.remove(&(ends.name, is_bad, block));
            }
        }
        if !doomed.is_empty() {
            deletion::forget_if_empty(connection, cache, self.counters, block)?;
        }
        Ok(has_room)
    }
}

/// The rest of a block.
#[derive(Clone, Copy, Default)]
struct BlockRow {
    oldest_end: Option<i64>,
    held: i64,
}

impl BlockRow {
    fn write(
        self,
        connection: &Connection,
        key: super::cache::EndKey,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        let (name, is_bad, block) = key;
        if self.oldest_end.is_none() && self.held == 0 {
            connection
                .prepare_cached("DELETE FROM definition_ends WHERE name = ?1 AND is_bad = ?2 AND block = ?3")?
                .execute((name, is_bad, block))?;
            return Ok(());
        }
        connection
            .prepare_cached(
                "UPDATE definition_ends SET oldest_end = ?4, held = ?5, looked_at = ?6
                 WHERE name = ?1 AND is_bad = ?2 AND block = ?3",
            )?
            .execute((name, is_bad, block, self.oldest_end, self.held, now.0))?;
        Ok(())
    }
}

/// The ended jobs of a block that something refers to: they keep a unique key, are members of a batch that has not ended, or a job that has
/// not ended waited for them or for their batch. The `+` keeps SQLite from making an index over all ended jobs for one query.
const HELD: &str = "SELECT job FROM unique_keys WHERE job BETWEEN ?1 AND ?2
    UNION SELECT e.id FROM batches b CROSS JOIN ended e ON +e.batch = b.id
        WHERE b.ended_at IS NULL AND b.id <= ?2 AND b.id + b.count > ?1
        AND e.id BETWEEN max(?1, b.id) AND min(?2, b.id + b.count - 1)
    UNION SELECT d.predecessor FROM dependencies d CROSS JOIN jobs j ON j.id = d.job WHERE d.predecessor BETWEEN ?1 AND ?2
    UNION SELECT e.id FROM (
            SELECT DISTINCT -d.predecessor AS batch FROM dependencies d CROSS JOIN jobs j ON j.id = d.job
            WHERE d.predecessor BETWEEN -?2 AND -1
        ) w CROSS JOIN batches b ON b.id = w.batch CROSS JOIN ended e ON +e.batch = b.id
        WHERE b.id + b.count > ?1 AND e.id BETWEEN max(?1, b.id) AND min(?2, b.id + b.count - 1)
    UNION SELECT m.parent FROM members m CROSS JOIN dependencies d ON d.predecessor = m.job CROSS JOIN jobs j ON j.id = d.job
        WHERE m.parent BETWEEN ?1 AND ?2
    ORDER BY 1";

/// Blocks that one step looks at: each costs up to two milliseconds.
const VISITS_MAX: usize = 8;
/// After this time a block with held jobs is looked at again.
const HELD_AGAIN_MS: i64 = 3_600_000;

#[cfg(test)]
mod tests {
    use super::HELD;
    use crate::store::sqlite::temporary;

    #[test]
    fn no_index_is_made_to_find_held_jobs() {
        let (store, _archive) = temporary();
        let mut statement = store.connection.prepare(&format!("EXPLAIN QUERY PLAN {HELD}")).unwrap();
        let steps = statement.query_map((0, 4_095), |row| row.get::<_, String>(3)).unwrap();
        let plan = steps.collect::<rusqlite::Result<Vec<_>>>().unwrap().join("; ");
        assert!(!plan.contains("AUTOMATIC") && !plan.contains("SCAN e"), "{plan}");
    }
}
