//! Lists of jobs, newest first.
//!
//! A query is split into parts by table: live jobs, ended jobs by their partial indexes, and the other ended jobs (module `parts`).
//! Ended jobs are read backwards from the cursor; by definition or worker, only in blocks that have any of it. By label or schedule
//! (module `tag`), live jobs are searched only in blocks that have any, because labels of ended jobs may be millions. Each part gives at most
//! a page; the newest of all make the page.

mod last;
mod parts;
mod scheduled;
mod tag;

use protocol::JobId;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params_from_iter};
use scheduler::job::State;

use super::blocks::{BLOCK_SHIFT, SEEN_NAME, SEEN_WORKER, last_of};
use super::pending_batch::{self, Range};
use super::{codes, record, rows};
use crate::store::{JOBS_MAX, JobFilter, JobRow};
pub(super) use last::last_ended;
use parts::{Part, has_closed_attempt, has_end, parts, singles};
#[cfg(test)]
pub(super) use scheduled::SQL as SCHEDULED_SQL;
pub(super) use scheduled::scheduled_jobs;
use tag::Tag;

/// Members of a batch follow its first job: one request makes at most this many.
const BATCH_MAX: i64 = 100_000;

pub(super) fn jobs(connection: &Connection, filter: &JobFilter) -> rusqlite::Result<Vec<JobRow>> {
    // One search for each name and outcome: so each is answered by an index. No job is found by two of them.
    let limit = filter.limit.min(JOBS_MAX);
    let mut found: Vec<JobRow> = Vec::new();
    for single in singles(filter) {
        // Once the page is full, only newer jobs change it: a pattern may stand for very many names.
        let oldest = found.last().filter(|_| found.len() == limit).map(|row| row.job);
        found.extend(page(connection, &single, oldest)?);
        found.sort_unstable_by_key(|row| std::cmp::Reverse(row.job));
        found.truncate(limit);
    }
    Ok(found)
}

/// The newest jobs of a filter with one name and one outcome at most, of those after this one.
fn page(connection: &Connection, filter: &JobFilter, after: Option<JobId>) -> rusqlite::Result<Vec<JobRow>> {
    let limit = filter.limit.min(JOBS_MAX);
    let Some((lowest, highest)) = range(connection, filter)? else { return Ok(Vec::new()) };
    let lowest = lowest.max(after.map_or(0, |job| job.0.cast_signed().saturating_add(1)));
    if lowest > highest {
        return Ok(Vec::new());
    }
    let range = (lowest, highest);
    let visible = pending_batch::without(&pending_batch::ranges(connection)?, range);
    let mut found = Vec::new();
    for part in parts(filter) {
        let mut query = Query { connection, filter, part, limit };
        let blocks = blocks_of(connection, filter, part)?;
        for range in &visible {
            if query.limit == 0 {
                break;
            }
            let before = found.len();
            match (blocks, Tag::of(filter), part) {
                (Some(blocks), ..) => query.by_blocks(blocks, *range, &mut found)?,
                (None, Some(tag), Part::Live(_) | Part::RunningParents) => {
                    query.live_by_tag(tag, *range, &mut found)?
                }
                (None, ..) => found.extend(query.within(*range, query.limit)?),
            }
            query.limit -= found.len() - before;
        }
    }
    found.sort_unstable_by_key(|(row, _)| std::cmp::Reverse(row.job));
    found.truncate(limit);
    for (row, flags) in &mut found {
        rows::add_details(connection, row, *flags)?;
        record::complete(connection, row)?;
    }
    Ok(found.into_iter().map(|(row, _)| row).collect())
}

/// The lowest and the highest number that the filter leaves; nothing if it is empty.
fn range(connection: &Connection, filter: &JobFilter) -> rusqlite::Result<Option<Range>> {
    let (mut lowest, mut highest) = (1, i64::MAX);
    if let Some(JobId(before)) = filter.before {
        highest = highest.min(i64::try_from(before).unwrap_or(i64::MAX).saturating_sub(1));
    }
    // Members have higher numbers than their parent.
    if let Some(JobId(parent)) = filter.parent {
        lowest = lowest.max(i64::try_from(parent).unwrap_or(i64::MAX));
    }
    if let Some(JobId(first)) = filter.batch {
        let first = i64::try_from(first).unwrap_or(i64::MAX);
        (lowest, highest) = (lowest.max(first), highest.min(first.saturating_add(BATCH_MAX)));
    }
    // The clock may have stepped back: a block tells the whole span in which its jobs were accepted.
    if let Some(since) = filter.since {
        let sql = "SELECT min(block) FROM blocks WHERE newest >= ?1";
        match connection.prepare_cached(sql)?.query_row([since.0], |row| row.get::<_, Option<i64>>(0))? {
            Some(block) => lowest = lowest.max(block << BLOCK_SHIFT),
            None => return Ok(None),
        }
    }
    if let Some(until) = filter.until {
        let sql = "SELECT max(block) FROM blocks WHERE oldest < ?1";
        match connection.prepare_cached(sql)?.query_row([until.0], |row| row.get::<_, Option<i64>>(0))? {
            Some(block) => highest = highest.min(last_of(block)),
            None => return Ok(None),
        }
    }
    Ok((lowest <= highest).then_some((lowest, highest)))
}

/// A coarse index that finds the blocks with matching jobs.
#[derive(Clone, Copy, Debug)]
enum Blocks {
    /// Blocks with this entry in `seen`: its kind, and the definition or worker.
    Seen(i64, i64),
    /// Blocks whose ends reach into the span of the filter.
    Ends,
}

/// The index of blocks by which this part can be searched, if one helps.
fn blocks_of(connection: &Connection, filter: &JobFilter, part: Part) -> rusqlite::Result<Option<Blocks>> {
    let has_index = match part {
        Part::Badly(_) | Part::SucceededOddly | Part::RunningParents => true,
        Part::Live(Some(state)) => state != State::Queued,
        Part::Live(None) | Part::Ended | Part::Succeeded => false,
    };
    if Tag::of(filter).is_some() || filter.batch.is_some() || filter.parent.is_some() || has_index {
        return Ok(None);
    }
    if let Some(name) = &filter.name {
        let sql = "SELECT min(id) FROM definitions WHERE name = ?1";
        let first: Option<i64> = connection.prepare_cached(sql)?.query_row([name], |row| row.get(0))?;
        // A name that no job ever had is seen nowhere.
        return Ok(Some(Blocks::Seen(SEEN_NAME, first.unwrap_or(0))));
    }
    if let Some(revision) = filter.revision {
        let sql = "SELECT min(same.id) FROM definitions d JOIN definitions same ON same.name = d.name WHERE d.revision = ?1";
        let bytes = revision.0.to_be_bytes();
        let first: Option<i64> = connection.prepare_cached(sql)?.query_row([bytes], |row| row.get(0))?;
        return Ok(Some(Blocks::Seen(SEEN_NAME, first.unwrap_or(0))));
    }
    if let Some(worker) = filter.worker {
        return Ok(Some(Blocks::Seen(SEEN_WORKER, worker.0.cast_signed())));
    }
    Ok(has_end(filter).then_some(Blocks::Ends))
}

/// The table that is walked for a query by tag; the other one is looked up row by row.
#[derive(Clone, Copy, Debug)]
enum Leads {
    Jobs,
    Tags,
}

struct Query<'q> {
    connection: &'q Connection,
    filter: &'q JobFilter,
    part: Part,
    limit: usize,
}

impl Query<'_> {
    /// Reads block by block, the newest first; both `seen` and the table itself say where the next one is that can matter.
    fn by_blocks(
        &self,
        blocks: Blocks,
        (lowest, mut highest): Range,
        found: &mut Vec<(JobRow, i64)>,
    ) -> rusqlite::Result<()> {
        let mut wanted = self.limit;
        while let Some(block) = self.next_block(blocks, highest)? {
            let range = (lowest.max(block << BLOCK_SHIFT), highest.min(last_of(block)));
            let Some(newest) = self.newest_below(range.1)?.filter(|newest| *newest >= lowest) else {
                return Ok(());
            };
            if newest < range.0 {
                highest = newest;
                continue;
            }
            let page = self.within(range, wanted)?;
            wanted -= page.len();
            found.extend(page);
            highest = range.0 - 1;
            if wanted == 0 || highest < lowest {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads block by block, the newest first, and only blocks in which there are both live jobs and such a tag.
    fn live_by_tag(
        &self,
        tag: Tag<'_>,
        (lowest, mut highest): Range,
        found: &mut Vec<(JobRow, i64)>,
    ) -> rusqlite::Result<()> {
        let mut wanted = self.limit;
        while wanted > 0
            && let Some(live) = self.newest_below(highest)?.filter(|live| *live >= lowest)
            && let Some(newest) = tag.newest_below(self.connection, live)?
            && newest >= lowest
        {
            let first = lowest.max(newest >> BLOCK_SHIFT << BLOCK_SHIFT);
            let page = self.within((first, newest), wanted)?;
            wanted -= page.len();
            found.extend(page);
            highest = first - 1;
        }
        Ok(())
    }

    /// The newest block up to this job that can have matching jobs.
    fn next_block(&self, blocks: Blocks, highest: i64) -> rusqlite::Result<Option<i64>> {
        let highest = highest >> BLOCK_SHIFT;
        match blocks {
            Blocks::Seen(kind, which) => {
                let sql = "SELECT block FROM seen WHERE kind = ?1 AND which = ?2 AND block <= ?3 ORDER BY block DESC LIMIT 1";
                let mut statement = self.connection.prepare_cached(sql)?;
                statement.query_row((kind, which, highest), |row| row.get(0)).optional()
            }
            Blocks::Ends => {
                let since = self.filter.ended_since.map_or(i64::MIN, |since| since.0);
                let until = self.filter.ended_until.map_or(i64::MAX, |until| until.0);
                // A row for each 4,096 jobs: few, even if none of them matches. `oldest_end` leaves out jobs that retention has to keep;
                // no job ends before the first one of its block was accepted, unless a clock was set back.
                let sql = "SELECT block FROM blocks WHERE block <= ?1 AND newest_end >= ?2
                           AND min(oldest, coalesce(oldest_end, oldest)) < ?3 ORDER BY block DESC LIMIT 1";
                let mut statement = self.connection.prepare_cached(sql)?;
                statement.query_row((highest, since, until), |row| row.get(0)).optional()
            }
        }
    }

    fn newest_below(&self, highest: i64) -> rusqlite::Result<Option<i64>> {
        let sql = match self.part {
            Part::Live(_) | Part::RunningParents => "SELECT max(id) FROM jobs WHERE id <= ?1",
            Part::Ended | Part::Succeeded | Part::SucceededOddly | Part::Badly(_) => {
                "SELECT max(id) FROM ended WHERE id <= ?1"
            }
        };
        self.connection.prepare_cached(sql)?.query_row([highest], |row| row.get(0))
    }

    fn within(&self, (lowest, highest): Range, limit: usize) -> rusqlite::Result<Vec<(JobRow, i64)>> {
        let leads = match (Tag::of(self.filter), self.part) {
            (Some(_), Part::Live(_) | Part::RunningParents) if self.has_few_live((lowest, highest))? => {
                Leads::Jobs
            }
            (Some(_), _) => Leads::Tags,
            (None, _) => Leads::Jobs,
        };
        let (sql, values) = self.sql((lowest, highest), limit, leads);
        self.connection.prepare_cached(&sql)?.query_map(params_from_iter(values), rows::job)?.collect()
    }

    /// True if it is cheaper to read the live jobs of a block than its tags.
    fn has_few_live(&self, (lowest, highest): Range) -> rusqlite::Result<bool> {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE id BETWEEN ?1 AND ?2 LIMIT ?3)";
        let mut statement = self.connection.prepare_cached(sql)?;
        let live: i64 = statement.query_row((lowest, highest, FEW_LIVE + 1), |row| row.get(0))?;
        Ok(live <= FEW_LIVE)
    }

    /// The SQL of a part. It consists of fixed text; all values of the request are bound.
    fn sql(&self, (lowest, highest): Range, limit: usize, leads: Leads) -> (String, Vec<Value>) {
        let mut sql = format!("SELECT {} FROM ", rows::JOB_COLUMNS);
        let mut values: Vec<Value> = vec![lowest.into(), highest.into()];
        let mut bind = |value: Value| {
            values.push(value);
            values.len()
        };
        let (source, joins) = (self.source(), rows::JOB_JOINS);
        let key = if let Some(tag) = Tag::of(self.filter) {
            let table = tag.table();
            let (pair, key) = match leads {
                Leads::Tags => (format!("{table} CROSS JOIN {source} j"), "tag.job"),
                Leads::Jobs => (format!("{source} j CROSS JOIN {table}"), "j.id"),
            };
            sql += &format!("{pair} ON j.id = tag.job {joins} WHERE {} AND {key}", tag.condition(&mut bind));
            key
        } else {
            sql += &format!("{source} j {joins} WHERE j.id");
            "j.id"
        };
        sql += " BETWEEN ?1 AND ?2";
        match self.part {
            Part::Live(None) | Part::Ended => {}
            Part::RunningParents => sql += " AND j.id IN (SELECT job FROM running_parents)",
            Part::Live(Some(State::Queued)) => {
                sql += " AND j.state = 2 AND j.id NOT IN (SELECT job FROM running_parents)";
            }
            // Jobs that wait for a retry are fewer than those with a state: `+` leaves out the index by state.
            Part::Live(Some(state)) if has_closed_attempt(self.filter) => {
                sql += &format!(" AND +j.state = ?{}", bind(codes::of_state(state).into()));
            }
            // The second condition makes the partial index eligible; likewise below.
            Part::Live(Some(state)) => {
                sql += &format!(" AND j.state = ?{} AND j.state <> 2", bind(codes::of_state(state).into()));
            }
            Part::Succeeded => sql += " AND j.state = 6",
            Part::SucceededOddly => sql += " AND j.state = 6 AND j.exit_code <> 0",
            Part::Badly(state) => {
                sql += &format!(" AND j.state = ?{} AND j.state <> 6", bind(codes::of_state(state).into()));
            }
        }
        if let Some(name) = &self.filter.name {
            let name = bind(name.clone().into());
            sql += &format!(" AND j.definition IN (SELECT id FROM definitions WHERE name = ?{name})");
        }
        if let (Some(schedule), Some(_)) = (&self.filter.schedule, &self.filter.label) {
            let schedule = bind(schedule.clone().into());
            sql += &format!(
                " AND EXISTS (SELECT 1 FROM fires f WHERE f.job = j.id AND f.reason IS NULL AND f.schedule = ?{schedule})"
            );
        }
        if let Some(revision) = self.filter.revision {
            let revision = bind(revision.0.to_be_bytes().to_vec().into());
            sql += &format!(" AND j.definition IN (SELECT id FROM definitions WHERE revision = ?{revision})");
        }
        // One at most, see `singles`.
        for outcome in &self.filter.outcomes {
            sql += &format!(" AND j.outcome = ?{}", bind(codes::of_outcome(*outcome).into()));
        }
        if let Some(code) = self.filter.exit_code {
            sql += &format!(" AND j.exit_code = ?{}", bind(i64::from(code).into()));
        }
        if let Some(since) = self.filter.ended_since {
            sql += &format!(" AND j.ended_at >= ?{}", bind(since.0.into()));
        }
        if let Some(until) = self.filter.ended_until {
            sql += &format!(" AND j.ended_at < ?{}", bind(until.0.into()));
        }
        if let Some(text) = &self.filter.text {
            let text = bind(text.to_ascii_lowercase().into());
            sql += &format!(" AND instr(lower(j.reason), ?{text}) > 0");
        }
        if let Some(worker) = self.filter.worker {
            sql += &format!(" AND j.worker = ?{}", bind(worker.0.cast_signed().into()));
        }
        if let Some(batch) = self.filter.batch {
            sql += &format!(" AND j.batch = ?{}", bind(batch.0.cast_signed().into()));
        }
        if let Some(parent) = self.filter.parent {
            let parent = bind(parent.0.cast_signed().into());
            sql += &format!(" AND j.id IN (SELECT job FROM members WHERE parent = ?{parent})");
        }
        if self.filter.without_members {
            sql += " AND NOT EXISTS (SELECT 1 FROM members m WHERE m.job = j.id)";
        }
        if let Some(since) = self.filter.since {
            sql += &format!(" AND j.created_at >= ?{}", bind(since.0.into()));
        }
        if let Some(until) = self.filter.until {
            sql += &format!(" AND j.created_at < ?{}", bind(until.0.into()));
        }
        let limit = bind(i64::try_from(limit).unwrap_or(i64::MAX).into());
        sql += &format!(" ORDER BY {key} DESC LIMIT ?{limit}");
        (sql, values)
    }

    const fn source(&self) -> &'static str {
        match self.part {
            Part::Live(_) | Part::RunningParents => {
                "(SELECT *, NULL AS ended_at, NULL AS reason, 0 AS confirmed FROM jobs)"
            }
            Part::Ended | Part::Succeeded | Part::SucceededOddly | Part::Badly(_) => "ended",
        }
    }
}

/// Of the 4,096 jobs of a block: to look one up in the labels costs as much as to walk over some of those.
const FEW_LIVE: i64 = 256;

/// How SQLite would read each part of the answer.
#[cfg(test)]
pub(super) fn plans(connection: &Connection, filter: &JobFilter) -> Vec<Vec<String>> {
    let explain = |(part, leads)| {
        let (sql, values) = Query { connection, filter, part, limit: 100 }.sql((1, 1_000), 100, leads);
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps = statement.query_map(params_from_iter(values), |row| row.get(3)).unwrap();
        steps.collect::<rusqlite::Result<_>>().unwrap()
    };
    let both = |part| [(part, Leads::Jobs), (part, Leads::Tags)];
    parts(filter).into_iter().flat_map(both).map(explain).collect()
}
