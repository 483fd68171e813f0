//! Lists of jobs, newest first.
//!
//! What is asked for is split by where it is found: live jobs in their own table, bad ends through their partial indexes, the rest
//! in history. History is read backwards from the cursor; where a definition or a worker is asked for, only in blocks that have
//! any of it. By label, live jobs are looked for only in blocks that have any, since labels of ended jobs may be millions. Each part
//! gives at most a page, and the page is made of their newest.

use protocol::JobId;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params_from_iter};
use scheduler::job::State;

use super::forming::{self, Range};
use super::write::{BLOCK_SHIFT, SEEN_NAME, SEEN_WORKER, last_of};
use super::{codes, rows};
use crate::store::{JOBS_MAX, JobFilter, JobRow, LAST_AMONG};

/// Members of a batch follow its first job: one request makes at most this many.
const BATCH_MAX: i64 = 100_000;

pub(super) fn jobs(connection: &Connection, filter: &JobFilter) -> rusqlite::Result<Vec<JobRow>> {
    let limit = filter.limit.min(JOBS_MAX);
    let Some(range) = range(connection, filter)? else { return Ok(Vec::new()) };
    let visible = forming::without(&forming::ranges(connection)?, range);
    let mut found = Vec::new();
    for part in parts(filter) {
        let mut query = Query { connection, filter, part, limit };
        let blocks = blocks_of(connection, filter, part)?;
        for range in &visible {
            if query.limit == 0 {
                break;
            }
            let before = found.len();
            match (blocks, &filter.label, part) {
                (Some(blocks), ..) => query.by_blocks(blocks, *range, &mut found)?,
                (None, Some(label), Part::Live(_)) => query.live_by_label(label, *range, &mut found)?,
                (None, ..) => found.extend(query.within(*range, query.limit)?),
            }
            query.limit -= found.len() - before;
        }
    }
    found.sort_unstable_by_key(|(row, _)| std::cmp::Reverse(row.job));
    found.truncate(limit);
    for (row, labelled) in &mut found {
        if *labelled {
            row.labels = rows::labels(connection, row.job)?;
        }
    }
    Ok(found.into_iter().map(|(row, _)| row).collect())
}

/// The job of a definition that ended last, among the newest of those that have ended.
pub(super) fn last_ended(connection: &Connection, definition: &str) -> rusqlite::Result<Option<JobRow>> {
    let states = State::ALL.into_iter().filter(|state| state.has_ended()).collect();
    let filter =
        JobFilter { states, name: Some(definition.to_owned()), limit: LAST_AMONG, ..JobFilter::default() };
    Ok(jobs(connection, &filter)?.into_iter().max_by_key(|row| (row.ended_at, row.job)))
}

/// Where a part of the answer is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Among those that have not ended: all, or those with this state.
    Live(Option<State>),
    /// Among those that have ended.
    Ended,
    /// Among those that succeeded.
    Succeeded,
    /// Among those that ended in this other state.
    Badly(State),
}

fn parts(filter: &JobFilter) -> Vec<Part> {
    if filter.states.is_empty() {
        return vec![Part::Live(None), Part::Ended];
    }
    let mut states = filter.states.clone();
    states.sort_unstable();
    states.dedup();
    let part = |state: State| match state {
        State::Succeeded => Part::Succeeded,
        state if state.has_ended() => Part::Badly(state),
        state => Part::Live(Some(state)),
    };
    states.into_iter().map(part).collect()
}

/// The lowest and the highest number that the filter leaves; nothing if it is empty.
fn range(connection: &Connection, filter: &JobFilter) -> rusqlite::Result<Option<Range>> {
    let (mut lowest, mut highest) = (1, i64::MAX);
    if let Some(JobId(before)) = filter.before {
        highest = highest.min(i64::try_from(before).unwrap_or(i64::MAX).saturating_sub(1));
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

/// What `seen` has to say about this part of the question, if it helps.
fn blocks_of(
    connection: &Connection,
    filter: &JobFilter,
    part: Part,
) -> rusqlite::Result<Option<(i64, i64)>> {
    if filter.label.is_some() || filter.batch.is_some() || matches!(part, Part::Badly(_)) {
        return Ok(None);
    }
    if let Some(name) = &filter.name {
        let sql = "SELECT min(id) FROM definitions WHERE name = ?1";
        let first: Option<i64> = connection.prepare_cached(sql)?.query_row([name], |row| row.get(0))?;
        // A name that no job ever had is seen nowhere.
        return Ok(Some((SEEN_NAME, first.unwrap_or(0))));
    }
    Ok(filter.worker.map(|worker| (SEEN_WORKER, worker.0.cast_signed())))
}

/// Which table is walked, where a label is asked for; the other one is looked into row by row.
#[derive(Clone, Copy, Debug)]
enum Leads {
    Jobs,
    Labels,
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
        (kind, which): (i64, i64),
        (lowest, mut highest): Range,
        found: &mut Vec<(JobRow, bool)>,
    ) -> rusqlite::Result<()> {
        let mut wanted = self.limit;
        while let Some(block) = self.seen_below(kind, which, highest)? {
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

    /// Reads block by block, the newest first, and only blocks in which there are both live jobs and such a label.
    fn live_by_label(
        &self,
        (name, value): &(String, String),
        (lowest, mut highest): Range,
        found: &mut Vec<(JobRow, bool)>,
    ) -> rusqlite::Result<()> {
        let sql = "SELECT max(job) FROM labels WHERE name = ?1 AND value = ?2 AND job <= ?3";
        let mut labelled = self.connection.prepare_cached(sql)?;
        let mut wanted = self.limit;
        while wanted > 0
            && let Some(live) = self.newest_below(highest)?.filter(|live| *live >= lowest)
            && let Some(newest) =
                labelled.query_row((name, value, live), |row| row.get::<_, Option<i64>>(0))?
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

    fn seen_below(&self, kind: i64, which: i64, highest: i64) -> rusqlite::Result<Option<i64>> {
        let sql = "SELECT block FROM seen WHERE kind = ?1 AND which = ?2 AND block <= ?3 ORDER BY block DESC LIMIT 1";
        let mut statement = self.connection.prepare_cached(sql)?;
        statement.query_row((kind, which, highest >> BLOCK_SHIFT), |row| row.get(0)).optional()
    }

    fn newest_below(&self, highest: i64) -> rusqlite::Result<Option<i64>> {
        let sql = match self.part {
            Part::Live(_) => "SELECT max(id) FROM jobs WHERE id <= ?1",
            Part::Ended | Part::Succeeded | Part::Badly(_) => "SELECT max(id) FROM ended WHERE id <= ?1",
        };
        self.connection.prepare_cached(sql)?.query_row([highest], |row| row.get(0))
    }

    fn within(&self, (lowest, highest): Range, limit: usize) -> rusqlite::Result<Vec<(JobRow, bool)>> {
        let leads = match (&self.filter.label, self.part) {
            (Some(_), Part::Live(_)) if self.has_few_live((lowest, highest))? => Leads::Jobs,
            (Some(_), _) => Leads::Labels,
            (None, _) => Leads::Jobs,
        };
        let (sql, values) = self.sql((lowest, highest), limit, leads);
        self.connection.prepare_cached(&sql)?.query_map(params_from_iter(values), rows::job)?.collect()
    }

    /// Whether it is cheaper to look at the live jobs of a block than at its labels.
    fn has_few_live(&self, (lowest, highest): Range) -> rusqlite::Result<bool> {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE id BETWEEN ?1 AND ?2 LIMIT ?3)";
        let mut statement = self.connection.prepare_cached(sql)?;
        let live: i64 = statement.query_row((lowest, highest, FEW_LIVE + 1), |row| row.get(0))?;
        Ok(live <= FEW_LIVE)
    }

    /// The text has only fixed words in it; all that was asked for is bound.
    fn sql(&self, (lowest, highest): Range, limit: usize, leads: Leads) -> (String, Vec<Value>) {
        let mut sql = format!("SELECT {} FROM ", rows::JOB_COLUMNS);
        let mut values: Vec<Value> = vec![lowest.into(), highest.into()];
        let mut bind = |value: Value| {
            values.push(value);
            values.len()
        };
        let (source, joins) = (self.source(), rows::JOB_JOINS);
        let key = if let Some((name, value)) = &self.filter.label {
            let (name, value) = (bind(name.clone().into()), bind(value.clone().into()));
            let (pair, key) = match leads {
                Leads::Labels => (format!("labels l CROSS JOIN {source} j"), "l.job"),
                Leads::Jobs => (format!("{source} j CROSS JOIN labels l"), "j.id"),
            };
            sql += &format!(
                "{pair} ON j.id = l.job {joins} WHERE l.name = ?{name} AND l.value = ?{value} AND {key}"
            );
            key
        } else {
            sql += &format!("{source} j {joins} WHERE j.id");
            "j.id"
        };
        sql += " BETWEEN ?1 AND ?2";
        match self.part {
            Part::Live(None) | Part::Ended => {}
            Part::Live(Some(state)) => {
                sql += &format!(" AND j.state = ?{}", bind(codes::of_state(state).into()))
            }
            Part::Succeeded => sql += " AND j.state = 6",
            // The second condition is what makes the partial indexes eligible.
            Part::Badly(state) => {
                sql += &format!(" AND j.state = ?{} AND j.state <> 6", bind(codes::of_state(state).into()));
            }
        }
        if let Some(name) = &self.filter.name {
            let name = bind(name.clone().into());
            sql += &format!(" AND j.definition IN (SELECT id FROM definitions WHERE name = ?{name})");
        }
        if let Some(worker) = self.filter.worker {
            sql += &format!(" AND j.worker = ?{}", bind(worker.0.cast_signed().into()));
        }
        if let Some(batch) = self.filter.batch {
            sql += &format!(" AND j.batch = ?{}", bind(batch.0.cast_signed().into()));
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
            Part::Live(_) => "(SELECT *, NULL AS ended_at, NULL AS reason, 0 AS confirmed FROM jobs)",
            Part::Ended | Part::Succeeded | Part::Badly(_) => "ended",
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
    let both = |part| [(part, Leads::Jobs), (part, Leads::Labels)];
    parts(filter).into_iter().flat_map(both).map(explain).collect()
}
