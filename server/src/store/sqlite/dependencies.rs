//! Rows of dependencies: which job waits for the end of which other one, or of which batch.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use protocol::JobId;
use rusqlite::types::{FromSqlError, FromSqlResult};
use rusqlite::{Connection, OptionalExtension, Row, params};
use scheduler::dependencies::{LiveDependency, PredecessorId, RequiredEnd, SKIPPED};
use scheduler::job::State;
use scheduler::step::Change;

use super::{batches, codes, run_on};
use crate::store::{DependencyRecord, Pipeline, PipelineJob, RETRIES_FOLLOWED};

/// Writes a dependency, the end of the job that is waited for, or that a job waits for no others any more. Other changes are none of these.
pub(super) fn write(connection: &Connection, change: &Change) -> rusqlite::Result<()> {
    match change {
        Change::Dependency(row) => {
            let ended = row.ended.map(codes::of_state);
            // An end that is not the required one stays open until the job is cancelled for it: the server may stop before that.
            let waits = row.ended.is_none_or(|state| !row.requires.is_met_by(state));
            connection
                .prepare_cached(
                    "INSERT INTO dependencies (job, predecessor, requires, ended, waits) VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT DO UPDATE SET ended = ?4, waits = ?5",
                )?
                .execute(params![number(row.job), number_of(row.on), of_requires(row.requires), ended, waits])?;
        }
        Change::DependenciesDropped { job, is_skipped } => {
            if *is_skipped {
                connection
                    .prepare_cached(
                        "UPDATE batches SET skipped = skipped + 1 WHERE id = (SELECT batch FROM ended WHERE ended.id = ?1)",
                    )?
                    .execute([number(*job)])?;
            }
            connection
                .prepare_cached("UPDATE dependencies SET waits = 0 WHERE job = ?1 AND waits = 1")?
                .execute([number(*job)])?;
        }
        _ => {}
    }
    Ok(())
}

/// Dependencies that are not decided, with the present states of what is waited for.
pub(super) fn open(connection: &Connection) -> rusqlite::Result<Vec<LiveDependency>> {
    let mut statement = connection.prepare(
        "SELECT job, predecessor, requires, ended FROM dependencies WHERE waits = 1 ORDER BY job, predecessor",
    )?;
    let found = statement.query_map([], |row| {
        Ok(LiveDependency {
            job: job(row, 0)?,
            on: predecessor(row, 1)?,
            requires: requires(row.get(2)?)?,
            state: state(row, 3)?,
            is_skipped: false,
        })
    })?;
    let mut open: Vec<LiveDependency> = found.collect::<rusqlite::Result<_>>()?;
    let mut known = BTreeMap::new();
    for row in &mut open {
        let (state, is_skipped) = match known.get(&row.on) {
            Some(facts) => *facts,
            None => {
                let facts = match row.on {
                    PredecessorId::Job(on) => summary(connection, on)?.map(|it| (it.state, it.is_skipped)),
                    PredecessorId::Batch(first) => {
                        batches::facts(connection, first)?.map(|(_, state)| (state.as_job(), false))
                    }
                };
                let facts = facts.unzip();
                *known.entry(row.on).or_insert(facts)
            }
        };
        row.state = row.state.or(state);
        row.is_skipped = is_skipped.unwrap_or(false);
    }
    Ok(open)
}

/// The first job that this one waits for, else the first batch.
pub(super) fn first_open(connection: &Connection, job: JobId) -> rusqlite::Result<Option<PredecessorId>> {
    connection
        .prepare_cached(&format!(
            "SELECT predecessor FROM dependencies WHERE job = ?1 AND waits = 1 {JOBS_FIRST} LIMIT 1"
        ))?
        .query_row([number(job)], |row| predecessor(row, 0))
        .optional()
}

/// Jobs by number, then batches by number.
pub(super) const JOBS_FIRST: &str = "ORDER BY predecessor < 0, abs(predecessor)";

/// The jobs and batches that this one waits for, or waited for: at most `limit`.
pub(super) fn of(
    connection: &Connection,
    job: JobId,
    limit: usize,
) -> rusqlite::Result<Vec<DependencyRecord>> {
    let sql =
        format!("SELECT predecessor, requires, ended FROM dependencies WHERE job = ?1 {JOBS_FIRST} LIMIT ?2");
    let mut records = records(connection, &sql, number(job), limit)?;
    for record in &mut records {
        if let Some((name, state)) = name_and_state(connection, record.other)? {
            (record.name, record.state) = (name, Some(state));
        }
    }
    Ok(records)
}

/// The jobs that wait, or waited, for this job or batch: at most `limit`. Those that are still being made are left out.
pub(super) fn dependents(
    connection: &Connection,
    on: PredecessorId,
    limit: usize,
) -> rusqlite::Result<Vec<DependencyRecord>> {
    let sql = "SELECT job, requires, NULL FROM dependencies WHERE predecessor = ?1 ORDER BY job LIMIT ?2";
    let mut dependents = Vec::new();
    for record in records(connection, sql, number_of(on), limit)? {
        if let Some((name, state)) = name_and_state(connection, record.other)? {
            dependents.push(DependencyRecord { name, state: Some(state), ..record });
        }
    }
    Ok(dependents)
}

/// Rows without what the other job tells. A join with `all_jobs` would read all jobs: SQLite looks into that view by a given number only.
fn records(
    connection: &Connection,
    sql: &str,
    of: i64,
    limit: usize,
) -> rusqlite::Result<Vec<DependencyRecord>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_map((of, limit), |row| {
        Ok(DependencyRecord {
            other: predecessor(row, 0)?,
            name: String::new(),
            requires: requires(row.get(1)?)?,
            state: state(row, 2)?,
        })
    })?;
    found.collect()
}

/// The results of the jobs that this one came after: the last `limit`, in the order of the jobs' numbers.
pub(super) fn results(connection: &Connection, job: JobId, limit: usize) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare_cached(
        "SELECT ended.result FROM dependencies CROSS JOIN ended ON ended.id = dependencies.predecessor
         WHERE dependencies.job = ?1 AND ended.result IS NOT NULL ORDER BY dependencies.predecessor DESC LIMIT ?2",
    )?;
    let found =
        statement.query_map((number(job), i64::try_from(limit).unwrap_or(i64::MAX)), |row| row.get(0))?;
    let mut results: Vec<String> = found.collect::<rusqlite::Result<_>>()?;
    results.reverse();
    Ok(results)
}

/// All jobs that are connected with this one by dependencies, those next to it first, at most `limit`. The members of batches that they come
/// after are no part of it.
pub(super) fn pipeline(connection: &Connection, start: JobId, limit: usize) -> rusqlite::Result<Pipeline> {
    let mut seen = BTreeSet::from([start]);
    let mut next = VecDeque::from([start]);
    let mut jobs = BTreeMap::new();
    let (mut is_whole, mut links_left) = (true, LINKS_MAX);
    while let Some(job) = next.pop_front() {
        let Some(JobSummary { definition, state, retry_of, batch, .. }) = summary(connection, job)? else {
            continue;
        };
        let after = of(connection, job, links_left)?;
        let dependents = dependents(connection, PredecessorId::Job(job), links_left)?;
        links_left = links_left.saturating_sub(after.len().max(dependents.len()));
        if links_left == 0 {
            is_whole = false;
            next.clear();
        }
        for near in after.iter().chain(&dependents).filter_map(|it| it.other.job()) {
            if seen.contains(&near) {
                continue;
            }
            if seen.len() == limit || links_left == 0 {
                is_whole = false;
                break;
            }
            seen.insert(near);
            next.push_back(near);
        }
        jobs.insert(job, PipelineJob { job, definition, state, retry_of, batch, after });
    }
    Ok(Pipeline { jobs: jobs.into_values().collect(), is_whole })
}

/// The latest retry of a job, and its state.
pub(super) fn latest_retry(connection: &Connection, job: JobId) -> rusqlite::Result<Option<(JobId, State)>> {
    let latest = connection
        .prepare_cached("SELECT id, state FROM all_jobs WHERE retry_of = ?1 ORDER BY id DESC LIMIT 1")?
        .query_row([number(job)], |row| Ok((self::job(row, 0)?, codes::state(row.get(1)?)?)))
        .optional()?;
    let shown = |(retry, state)| Ok((retry, run_on::shown_state(connection, retry, state)?));
    latest.map(shown).transpose()
}

/// The last of the retries of a job and of its retries, with its state.
pub(super) fn latest_of_chain(
    connection: &Connection,
    job: JobId,
) -> rusqlite::Result<Option<(JobId, State)>> {
    let mut last = None;
    for _ in 0..RETRIES_FOLLOWED {
        let latest = last.map_or(job, |(job, _)| job);
        let Some(next) = latest_retry(connection, latest)? else { break };
        last = Some(next);
    }
    Ok(last)
}

/// The jobs between two numbers that wait, or waited, for others, in order.
pub(super) const DEPENDENT: &str =
    "SELECT DISTINCT job FROM dependencies WHERE job BETWEEN ?1 AND ?2 ORDER BY job";

/// Dependencies that one answer reads.
const LINKS_MAX: usize = 10_000;

/// The definitions and states of these jobs, without those that are not kept.
pub(super) fn states(
    connection: &Connection,
    ids: &[JobId],
) -> rusqlite::Result<Vec<(JobId, String, State)>> {
    let state = |id: &JobId| Ok(summary(connection, *id)?.map(|it| (*id, it.definition, it.state)));
    ids.iter().map(state).filter_map(Result::transpose).collect()
}

/// The facts about a job that its pipeline shows.
pub(super) struct JobSummary {
    pub(super) definition: String,
    pub(super) state: State,
    pub(super) retry_of: Option<JobId>,
    batch: Option<JobId>,
    is_skipped: bool,
}

pub(super) fn summary(connection: &Connection, job: JobId) -> rusqlite::Result<Option<JobSummary>> {
    connection
        .prepare_cached(
            "SELECT d.name, j.state, j.retry_of, j.reason, j.batch
             FROM all_jobs j JOIN definitions d ON d.id = j.definition WHERE j.id = ?1",
        )?
        .query_row([number(job)], |row| {
            let retry_of = row.get::<_, Option<i64>>(2)?.map(|of| JobId(of.cast_unsigned()));
            let state = run_on::shown_state(connection, job, codes::state(row.get(1)?)?)?;
            let reason = row.get_ref(3)?.as_str_or_null()?.unwrap_or_default();
            let is_skipped = state == State::Cancelled && reason.starts_with(SKIPPED);
            let batch = row.get::<_, Option<i64>>(4)?.map(|first| JobId(first.cast_unsigned()));
            Ok(JobSummary { definition: row.get(0)?, state, retry_of, batch, is_skipped })
        })
        .optional()
}

/// The definition of a job, or the name of a batch, with the state; none if it is not kept.
fn name_and_state(connection: &Connection, of: PredecessorId) -> rusqlite::Result<Option<(String, State)>> {
    Ok(match of {
        PredecessorId::Job(job) => summary(connection, job)?.map(|it| (it.definition, it.state)),
        PredecessorId::Batch(first) => {
            batches::facts(connection, first)?.map(|(name, state)| (name.unwrap_or_default(), state.as_job()))
        }
    })
}

/// A batch is stored as the negative number of its first job.
const fn number_of(on: PredecessorId) -> i64 {
    match on {
        PredecessorId::Job(job) => number(job),
        PredecessorId::Batch(first) => -number(first),
    }
}

pub(super) fn predecessor(row: &Row<'_>, column: usize) -> rusqlite::Result<PredecessorId> {
    let number: i64 = row.get(column)?;
    let job = JobId(number.unsigned_abs());
    Ok(if number < 0 { PredecessorId::Batch(job) } else { PredecessorId::Job(job) })
}

pub(super) const fn number(job: JobId) -> i64 {
    job.0.cast_signed()
}

fn job(row: &Row<'_>, column: usize) -> rusqlite::Result<JobId> {
    Ok(JobId(row.get::<_, i64>(column)?.cast_unsigned()))
}

pub(super) fn state(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<State>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(codes::state).transpose()?)
}

const fn of_requires(requires: RequiredEnd) -> i64 {
    match requires {
        RequiredEnd::Success => 0,
        RequiredEnd::Failure => 1,
        RequiredEnd::Any => 2,
        RequiredEnd::NoSuccess => 3,
    }
}

fn requires(code: i64) -> FromSqlResult<RequiredEnd> {
    let found = RequiredEnd::ALL.into_iter().find(|known| of_requires(*known) == code);
    found.ok_or(FromSqlError::OutOfRange(code))
}
