//! Lists of jobs, newest first.
//!
//! A query is split into parts by table: live jobs, ended jobs by their partial indexes, and the other ended jobs (module `parts`).
//! Ended jobs are read backwards from the cursor; by definition, worker or requester, only in blocks that have any of it. By label or schedule
//! (module `tag`), live jobs are searched only in blocks that have any, because labels of ended jobs may be millions. Each part gives at most
//! a page; the newest of all make the page. Many names are one search together (module `names`).

mod coarse;
mod last;
mod names;
mod parts;
mod scheduled;
mod tag;

use protocol::JobId;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params_from_iter};
use scheduler::job::State;

use super::blocks::{BLOCK_SHIFT, last_of};
use super::pending_batch::{self, Range};
use super::{codes, record, rows};
use crate::store::{JOBS_MAX, JobFilter, JobRow};
use coarse::{Blocks, blocks_of};
pub(super) use last::last_ended;
use names::NameSet;
use parts::{Part, has_closed_attempt, parts, singles};
#[cfg(test)]
pub(super) use scheduled::SQL as SCHEDULED_SQL;
pub(super) use scheduled::scheduled_jobs;
use tag::Tag;

/// Members of a batch follow its first job: one request makes at most this many.
const BATCH_MAX: i64 = 100_000;

pub(super) fn jobs(connection: &Connection, filter: &JobFilter) -> rusqlite::Result<Vec<JobRow>> {
    // One search for each outcome, and for each of a few names: so each is answered by an index. No job is found by two of them.
    let limit = filter.limit.min(JOBS_MAX);
    let names = NameSet::of(connection, filter)?;
    if let Some(name) = &filter.submitted_by
        && coarse::requester_id(connection, name)?.is_none()
    {
        // Nobody of this name ever made a job.
        return Ok(Vec::new());
    }
    let mut found: Vec<JobRow> = Vec::new();
    for single in singles(filter) {
        // Once the page is full, only newer jobs change it.
        let oldest = found.last().filter(|_| found.len() == limit).map(|row| row.job);
        found.extend(page(connection, &single, names.as_ref(), oldest)?);
        found.sort_unstable_by_key(|row| std::cmp::Reverse(row.job));
        found.truncate(limit);
    }
    Ok(found)
}

/// The newest jobs of one of the searches, of those after this one.
fn page(
    connection: &Connection,
    filter: &JobFilter,
    names: Option<&NameSet>,
    after: Option<JobId>,
) -> rusqlite::Result<Vec<JobRow>> {
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
        let mut query = Query { connection, filter, names, part, limit };
        let blocks = blocks_of(connection, filter, names, part)?;
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

/// The table that is walked for a query by tag; the other one is looked up row by row.
#[derive(Clone, Copy, Debug)]
enum Leads {
    Jobs,
    Tags,
}

struct Query<'q> {
    connection: &'q Connection,
    filter: &'q JobFilter,
    /// The names of the filter, if they are many.
    names: Option<&'q NameSet>,
    part: Part,
    limit: usize,
}

impl Query<'_> {
    /// Reads block by block, the newest first; both `seen` and the table itself say where the next one is that can matter.
    fn by_blocks(
        &self,
        blocks: Blocks<'_>,
        (lowest, mut highest): Range,
        found: &mut Vec<(JobRow, i64)>,
    ) -> rusqlite::Result<()> {
        let mut wanted = self.limit;
        while let Some(block) = blocks.newest_below(self.connection, self.filter, highest)? {
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

    /// The newest job of this part up to this one, whatever else the filter says.
    fn newest_below(&self, highest: i64) -> rusqlite::Result<Option<i64>> {
        let (table, condition) = match self.part {
            Part::Live(Some(state)) if state != State::Queued => {
                ("jobs", format!("AND state = {} AND state <> 2", codes::of_state(state)))
            }
            Part::Live(_) | Part::RunningParents => ("jobs", String::new()),
            Part::Unsuccessful(state) => {
                ("ended", format!("AND state = {} AND state <> 6", codes::of_state(state)))
            }
            Part::Ended | Part::Succeeded | Part::SucceededNonZero => ("ended", String::new()),
        };
        let sql = format!("SELECT id FROM {table} WHERE id <= ?1 {condition} ORDER BY id DESC LIMIT 1");
        self.connection.prepare_cached(&sql)?.query_row([highest], |row| row.get(0)).optional()
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
            Part::SucceededNonZero => sql += " AND j.state = 6 AND j.exit_code <> 0",
            Part::Unsuccessful(state) => {
                sql += &format!(" AND j.state = ?{} AND j.state <> 6", bind(codes::of_state(state).into()));
            }
        }
        if let Some(name) = &self.filter.name {
            let name = bind(name.clone().into());
            sql += &format!(" AND j.definition IN (SELECT id FROM definitions WHERE name = ?{name})");
        }
        if let Some(names) = self.names {
            let names = bind(names.definitions.clone().into());
            // `+`: each job of the walk is looked up in the list. By an index, all jobs of these definitions would be read and sorted.
            sql += &format!(" AND +j.definition IN (SELECT value FROM json_each(?{names}))");
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
        if let Some(name) = &self.filter.submitted_by {
            let name = bind(name.clone().into());
            // `+`: looked up once, and no reason to read jobs in another order.
            sql += &format!(" AND +j.submitter = (SELECT id FROM submitters WHERE name = ?{name})");
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
            Part::Ended | Part::Succeeded | Part::SucceededNonZero | Part::Unsuccessful(_) => "ended",
        }
    }
}

/// Of the 4,096 jobs of a block: to look one up in the labels costs as much as to walk over some of those.
const FEW_LIVE: i64 = 256;

/// How SQLite would read each part of each search.
#[cfg(test)]
pub(super) fn plans(connection: &Connection, filter: &JobFilter) -> Vec<Vec<String>> {
    let names = NameSet::of(connection, filter).unwrap();
    let explain = |filter: &JobFilter, part, leads| {
        let query = Query { connection, filter, names: names.as_ref(), part, limit: 100 };
        let (sql, values) = query.sql((1, 1_000), 100, leads);
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps = statement.query_map(params_from_iter(values), |row| row.get(3)).unwrap();
        steps.collect::<rusqlite::Result<_>>().unwrap()
    };
    let mut plans = Vec::new();
    for single in singles(filter) {
        for part in parts(&single) {
            plans.extend([Leads::Jobs, Leads::Tags].map(|leads| explain(&single, part, leads)));
        }
    }
    plans
}
