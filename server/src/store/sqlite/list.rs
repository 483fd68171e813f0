//! Lists of jobs, newest first.
//!
//! A query is split into parts by table: live jobs, ended jobs by their partial indexes, and the other ended jobs (module `parts`).
//! Ended jobs are read backwards from the cursor; by definition, worker or requester, only in blocks that have any of it. By label or schedule
//! (module `tag`), live jobs and unresolved failures are searched only in blocks that have any, because labels of ended jobs may be millions.
//! Each part gives at most a page; the newest of all make the page. Many names are one search together (module `names`).

mod coarse;
mod last;
mod names;
mod parts;
mod scheduled;
mod sql;
mod tag;

use protocol::JobId;
use rusqlite::{Connection, OptionalExtension, params_from_iter};
use scheduler::job::State;

use super::blocks::{BLOCK_SHIFT, last_of};
use super::pending_batch::{self, Range};
use super::{codes, positions, record, rows};
use crate::store::{JOBS_MAX, JobFilter, JobRow};
use coarse::{Blocks, blocks_of};
pub(super) use last::last_ended;
use names::NameSet;
use parts::{Part, parts, singles};
#[cfg(test)]
pub(super) use scheduled::SQL as SCHEDULED_SQL;
pub(super) use scheduled::scheduled_jobs;
use tag::{SlotJobs, Tag};

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
        for slot_jobs in SlotJobs::of(&single) {
            // Once the page is full, only newer jobs change it.
            let oldest = found.last().filter(|_| found.len() == limit).map(|row| row.job);
            found.extend(page(connection, &single, *slot_jobs, names.as_ref(), oldest)?);
            found.sort_unstable_by_key(|row| std::cmp::Reverse(row.job));
            found.truncate(limit);
        }
    }
    Ok(found)
}

/// The newest jobs of one of the searches, of those after this one.
fn page(
    connection: &Connection,
    filter: &JobFilter,
    slot_jobs: SlotJobs,
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
    let visible = visible(connection, filter, range)?;
    let mut found = Vec::new();
    for part in parts(filter) {
        let mut query = Query { connection, filter, slot_jobs, names, part, limit };
        let blocks = blocks_of(connection, filter, names, part)?;
        for range in &visible {
            if query.limit == 0 {
                break;
            }
            let before = found.len();
            match (blocks, query.tag(), part) {
                (Some(blocks), ..) => query.by_blocks(blocks, *range, &mut found)?,
                (None, Some(tag), Part::Live(_) | Part::RunningParents | Part::Unresolved) => {
                    query.by_tag(tag, *range, &mut found)?
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

/// The numbers of a range that may be shown, and have the positions of the filter; the highest come first.
fn visible(connection: &Connection, filter: &JobFilter, range: Range) -> rusqlite::Result<Vec<Range>> {
    let hidden = pending_batch::ranges(connection)?;
    let numbers = match filter.batch.filter(|_| !filter.positions.is_empty()) {
        Some(batch) => positions::numbers(connection, batch, &filter.positions, range)?,
        None => vec![range],
    };
    Ok(numbers.into_iter().flat_map(|range| pending_batch::without(&hidden, range)).collect())
}

/// The lowest and the highest number that the filter leaves; nothing if it is empty.
fn range(connection: &Connection, filter: &JobFilter) -> rusqlite::Result<Option<Range>> {
    let (mut lowest, mut highest) = (1, i64::MAX);
    if let Some(JobId(before)) = filter.before {
        highest = highest.min(i64::try_from(before).unwrap_or(i64::MAX).saturating_sub(1));
    }
    if let Some(JobId(after)) = filter.after {
        lowest = lowest.max(i64::try_from(after).unwrap_or(i64::MAX).saturating_add(1));
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
    slot_jobs: SlotJobs,
    /// The names of the filter, if they are many.
    names: Option<&'q NameSet>,
    part: Part,
    limit: usize,
}

impl<'q> Query<'q> {
    fn tag(&self) -> Option<Tag<'q>> {
        Tag::of(self.filter, self.slot_jobs)
    }

    /// Reads block by block, the newest first; both `seen` and the table itself say where the next one is that can matter.
    fn by_blocks(
        &self,
        blocks: Blocks<'_>,
        (lowest, mut highest): Range,
        found: &mut Vec<(JobRow, i64)>,
    ) -> rusqlite::Result<()> {
        let mut wanted = self.limit;
        while let Some(block) = blocks.newest_up_to(self.connection, self.filter, highest)? {
            let range = (lowest.max(block << BLOCK_SHIFT), highest.min(last_of(block)));
            let Some(newest) = self.newest_up_to(range.1)?.filter(|newest| *newest >= lowest) else {
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

    /// Reads block by block, the newest first, and only blocks in which there are both jobs of this part and such a tag.
    fn by_tag(
        &self,
        tag: Tag<'_>,
        (lowest, mut highest): Range,
        found: &mut Vec<(JobRow, i64)>,
    ) -> rusqlite::Result<()> {
        let mut wanted = self.limit;
        while wanted > 0
            && let Some(job) = self.newest_up_to(highest)?.filter(|job| *job >= lowest)
            && let Some(newest) = tag.newest_up_to(self.connection, job)?
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
    fn newest_up_to(&self, highest: i64) -> rusqlite::Result<Option<i64>> {
        let key = if self.part == Part::Unresolved { "job" } else { "id" };
        let (table, condition) = match self.part {
            Part::Live(Some(state)) if state != State::Queued => {
                ("jobs", format!("AND state = {} AND state <> 2", codes::of_state(state)))
            }
            Part::Live(_) | Part::RunningParents | Part::Backoff => ("jobs", String::new()),
            Part::Unsuccessful(state) => {
                ("ended", format!("AND state = {} AND state <> 6", codes::of_state(state)))
            }
            Part::Ended | Part::Succeeded | Part::SucceededNonZero => ("ended", String::new()),
            Part::Unresolved => ("unresolved", String::new()),
        };
        let sql =
            format!("SELECT {key} FROM {table} WHERE {key} <= ?1 {condition} ORDER BY {key} DESC LIMIT 1");
        self.connection.prepare_cached(&sql)?.query_row([highest], |row| row.get(0)).optional()
    }

    fn within(&self, (lowest, highest): Range, limit: usize) -> rusqlite::Result<Vec<(JobRow, i64)>> {
        let leads = self.leads((lowest, highest))?;
        let (sql, values) = self.sql((lowest, highest), limit, leads);
        self.connection.prepare_cached(&sql)?.query_map(params_from_iter(values), rows::job)?.collect()
    }

    /// The table to walk among these numbers.
    fn leads(&self, range: Range) -> rusqlite::Result<Leads> {
        let is_led_by_jobs = match (self.tag(), self.part) {
            (None, _) | (Some(_), Part::Backoff) => true,
            (Some(_), Part::Live(_) | Part::RunningParents) => self.has_few(
                "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE id BETWEEN ?1 AND ?2 LIMIT ?3)",
                range,
            )?,
            (Some(_), Part::Unresolved) => self.has_few(
                "SELECT count(*) FROM (SELECT 1 FROM unresolved WHERE job BETWEEN ?1 AND ?2 LIMIT ?3)",
                range,
            )?,
            (Some(_), _) => false,
        };
        Ok(if is_led_by_jobs { Leads::Jobs } else { Leads::Tags })
    }

    /// True if it is cheaper to read the jobs of a block that this statement counts than its tags.
    fn has_few(&self, sql: &str, (lowest, highest): Range) -> rusqlite::Result<bool> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let counted: i64 = statement.query_row((lowest, highest, FEW + 1), |row| row.get(0))?;
        Ok(counted <= FEW)
    }
}

/// Of the 4,096 jobs of a block: to look one up in the labels costs as much as to walk over some of those.
const FEW: i64 = 256;

/// The blocks that each search of a filter for unresolved failures goes by, if any, and if the tag leads among all jobs.
#[cfg(test)]
pub(super) fn walks_of_unresolved(connection: &Connection, filter: &JobFilter) -> Vec<(bool, bool)> {
    let names = NameSet::of(connection, filter).unwrap();
    let walk = |single: &JobFilter| {
        let part = Part::Unresolved;
        let slot_jobs = SlotJobs::Fired;
        let query = Query { connection, filter: single, slot_jobs, names: names.as_ref(), part, limit: 100 };
        let has_blocks = blocks_of(connection, single, names.as_ref(), part).unwrap().is_some();
        (has_blocks, matches!(query.leads((1, i64::MAX)).unwrap(), Leads::Tags))
    };
    singles(filter).iter().map(walk).collect()
}

/// How SQLite would read each part of each search.
#[cfg(test)]
pub(super) fn plans(connection: &Connection, filter: &JobFilter) -> Vec<Vec<String>> {
    let names = NameSet::of(connection, filter).unwrap();
    let explain = |filter: &JobFilter, slot_jobs, part, leads| {
        let query = Query { connection, filter, slot_jobs, names: names.as_ref(), part, limit: 100 };
        let (sql, values) = query.sql((1, 1_000), 100, leads);
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps = statement.query_map(params_from_iter(values), |row| row.get(3)).unwrap();
        steps.collect::<rusqlite::Result<_>>().unwrap()
    };
    let mut plans = Vec::new();
    for single in singles(filter) {
        for slot_jobs in SlotJobs::of(&single) {
            for part in parts(&single) {
                plans.extend(
                    [Leads::Jobs, Leads::Tags].map(|leads| explain(&single, *slot_jobs, part, leads)),
                );
            }
        }
    }
    plans
}
