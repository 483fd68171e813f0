//! Rows of dependencies: which job waits for the end of which other one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use protocol::JobId;
use rusqlite::types::{FromSqlError, FromSqlResult};
use rusqlite::{Connection, OptionalExtension, Row, params};
use scheduler::dependencies::{LiveDependency, RequiredEnd, SKIPPED};
use scheduler::job::State;
use scheduler::step::Change;

use super::{codes, run_on};
use crate::store::{DependencyRecord, PREDECESSORS_BYTES_MAX, Pipeline, PipelineJob};

/// Writes a dependency, the end of the job that is waited for, or that a job waits for no others any more. Other changes are none of these.
pub(super) fn write(connection: &Connection, change: &Change) -> rusqlite::Result<()> {
    match change {
        Change::Dependency(row) => {
            let ended = row.ended.map(codes::of_state);
            // An end that is not the required one stays open until the job is cancelled for it: the server may stop before that.
            let waits = row.ended.is_none_or(|state| !row.requires.is_met_by(state));
            connection
                .prepare_cached(
                    "INSERT INTO dependencies (job, on_job, requires, ended, waits) VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT DO UPDATE SET ended = ?4, waits = ?5",
                )?
                .execute(params![number(row.job), number(row.on), of_requires(row.requires), ended, waits])?;
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

/// Dependencies that are not decided, with the present states of the jobs that are waited for.
pub(super) fn open(connection: &Connection) -> rusqlite::Result<Vec<LiveDependency>> {
    let mut statement = connection.prepare(
        "SELECT job, on_job, requires, ended FROM dependencies WHERE waits = 1 ORDER BY job, on_job",
    )?;
    let found = statement.query_map([], |row| {
        Ok(LiveDependency {
            job: job(row, 0)?,
            on: job(row, 1)?,
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
                let facts = summary(connection, row.on)?.map(|it| (it.state, it.is_skipped)).unzip();
                *known.entry(row.on).or_insert(facts)
            }
        };
        row.state = row.state.or(state);
        row.is_skipped = is_skipped.unwrap_or(false);
    }
    Ok(open)
}

/// The first job that this one waits for.
pub(super) fn first_open(connection: &Connection, job: JobId) -> rusqlite::Result<Option<JobId>> {
    connection
        .prepare_cached(
            "SELECT on_job FROM dependencies WHERE job = ?1 AND waits = 1 ORDER BY on_job LIMIT 1",
        )?
        .query_row([number(job)], |row| self::job(row, 0))
        .optional()
}

/// The jobs that this one waits for, or waited for: at most `limit`.
pub(super) fn of(
    connection: &Connection,
    job: JobId,
    limit: usize,
) -> rusqlite::Result<Vec<DependencyRecord>> {
    let sql = "SELECT on_job, requires, ended FROM dependencies WHERE job = ?1 ORDER BY on_job LIMIT ?2";
    let mut records = records(connection, sql, job, limit)?;
    for record in &mut records {
        if let Some(JobSummary { definition, state, .. }) = summary(connection, record.job)? {
            (record.definition, record.state) = (definition, Some(state));
        }
    }
    Ok(records)
}

/// The jobs that wait, or waited, for this one: at most `limit`. Those that are still being made are left out.
pub(super) fn dependents(
    connection: &Connection,
    job: JobId,
    limit: usize,
) -> rusqlite::Result<Vec<DependencyRecord>> {
    let sql = "SELECT job, requires, NULL FROM dependencies WHERE on_job = ?1 ORDER BY job LIMIT ?2";
    let mut dependents = Vec::new();
    for record in records(connection, sql, job, limit)? {
        if let Some(JobSummary { definition, state, .. }) = summary(connection, record.job)? {
            dependents.push(DependencyRecord { definition, state: Some(state), ..record });
        }
    }
    Ok(dependents)
}

/// Rows without what the other job tells. A join with `all_jobs` would read all jobs: SQLite looks into that view by a given number only.
fn records(
    connection: &Connection,
    sql: &str,
    job: JobId,
    limit: usize,
) -> rusqlite::Result<Vec<DependencyRecord>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_map((number(job), limit), |row| {
        Ok(DependencyRecord {
            job: self::job(row, 0)?,
            definition: String::new(),
            requires: requires(row.get(1)?)?,
            state: state(row, 2)?,
        })
    })?;
    found.collect()
}

/// The results of the jobs that this one came after: the last so many, in the order of the jobs' numbers.
pub(super) fn results(connection: &Connection, job: JobId, limit: usize) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare_cached(
        "SELECT ended.result FROM dependencies CROSS JOIN ended ON ended.id = dependencies.on_job
         WHERE dependencies.job = ?1 AND ended.result IS NOT NULL ORDER BY dependencies.on_job DESC LIMIT ?2",
    )?;
    let found =
        statement.query_map((number(job), i64::try_from(limit).unwrap_or(i64::MAX)), |row| row.get(0))?;
    let mut results: Vec<String> = found.collect::<rusqlite::Result<_>>()?;
    results.reverse();
    Ok(results)
}

/// The ends of the jobs that this one came after, as JSON in one line for its variable; none if it came after no job. A member of a job on
/// several workers came after what its parent came after. Results are left out where they do not fit, and the last jobs if even they do not.
pub(super) fn ends(connection: &Connection, job: JobId) -> rusqlite::Result<Option<String>> {
    let mut statement = connection.prepare_cached(
        "SELECT on_job, ended FROM dependencies
         WHERE job = coalesce((SELECT parent FROM members WHERE members.job = ?1), ?1) AND ended IS NOT NULL
         ORDER BY on_job",
    )?;
    let ended = statement.query_map([number(job)], |row| Ok((self::job(row, 0)?, state(row, 1)?)))?;
    let ended: Vec<(JobId, Option<State>)> = ended.collect::<rusqlite::Result<_>>()?;
    let mut found = Vec::with_capacity(ended.len());
    for (on, state) in ended {
        let name = summary(connection, on)?.map(|it| it.definition).unwrap_or_default();
        let last: Option<(Option<i32>, Option<String>)> = connection
            .prepare_cached("SELECT exit_code, result FROM all_jobs WHERE id = ?1")?
            .query_row([number(on)], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let (exit_code, result) = last.unwrap_or_default();
        let state = state.map_or("", State::name);
        let end = PredecessorEnd { job: on.0, name, state, exit_code, ..PredecessorEnd::default() };
        found.push((end, result));
    }
    Ok((!found.is_empty()).then(|| ends_in_one_line(found)))
}

fn ends_in_one_line(found: Vec<(PredecessorEnd, Option<String>)>) -> String {
    let mut left = PREDECESSORS_BYTES_MAX - "[]".len();
    let mut fits = |text: &str| {
        let rest = left.checked_sub(text.len() + ",".len());
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let mut ends = Vec::with_capacity(found.len());
    for (mut end, result) in found {
        let without = PredecessorEnd { result_left_out: result.is_some(), ..end.clone() };
        let without = serde_json::to_string(&without).unwrap_or_default();
        // As the job wrote it, it may have line breaks.
        end.result = result.and_then(|text| serde_json::from_str(&text).ok());
        let with = serde_json::to_string(&end).unwrap_or_default();
        if fits(&with) {
            ends.push(with);
        } else if fits(&without) {
            ends.push(without);
        } else {
            break;
        }
    }
    format!("[{}]", ends.join(","))
}

/// The end of a job, as one that comes after it is told.
#[derive(Clone, Default, serde::Serialize)]
struct PredecessorEnd {
    job: u64,
    name: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<serde_json::Value>,
    /// It left one, for which there was no room.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    result_left_out: bool,
}

/// All jobs that are connected with this one by dependencies, those next to it first, at most `limit`.
pub(super) fn pipeline(connection: &Connection, start: JobId, limit: usize) -> rusqlite::Result<Pipeline> {
    let mut seen = BTreeSet::from([start]);
    let mut next = VecDeque::from([start]);
    let mut jobs = BTreeMap::new();
    let (mut is_whole, mut links_left) = (true, LINKS_MAX);
    while let Some(job) = next.pop_front() {
        let Some(JobSummary { definition, state, retry_of, .. }) = summary(connection, job)? else {
            continue;
        };
        let after = of(connection, job, links_left)?;
        let dependents = dependents(connection, job, links_left)?;
        links_left = links_left.saturating_sub(after.len().max(dependents.len()));
        if links_left == 0 {
            is_whole = false;
            next.clear();
        }
        for near in after.iter().chain(&dependents) {
            if seen.contains(&near.job) {
                continue;
            }
            if seen.len() == limit || links_left == 0 {
                is_whole = false;
                break;
            }
            seen.insert(near.job);
            next.push_back(near.job);
        }
        jobs.insert(job, PipelineJob { job, definition, state, retry_of, after });
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

/// Dependencies that one answer reads.
const LINKS_MAX: usize = 10_000;

/// The facts about a job that its pipeline shows.
pub(super) struct JobSummary {
    pub(super) definition: String,
    pub(super) state: State,
    pub(super) retry_of: Option<JobId>,
    is_skipped: bool,
}

pub(super) fn summary(connection: &Connection, job: JobId) -> rusqlite::Result<Option<JobSummary>> {
    connection
        .prepare_cached(
            "SELECT d.name, j.state, j.retry_of, j.reason
             FROM all_jobs j JOIN definitions d ON d.id = j.definition WHERE j.id = ?1",
        )?
        .query_row([number(job)], |row| {
            let retry_of = row.get::<_, Option<i64>>(2)?.map(|of| JobId(of.cast_unsigned()));
            let state = run_on::shown_state(connection, job, codes::state(row.get(1)?)?)?;
            let reason = row.get_ref(3)?.as_str_or_null()?.unwrap_or_default();
            let is_skipped = state == State::Cancelled && reason.starts_with(SKIPPED);
            Ok(JobSummary { definition: row.get(0)?, state, retry_of, is_skipped })
        })
        .optional()
}

const fn number(job: JobId) -> i64 {
    job.0.cast_signed()
}

fn job(row: &Row<'_>, column: usize) -> rusqlite::Result<JobId> {
    Ok(JobId(row.get::<_, i64>(column)?.cast_unsigned()))
}

fn state(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<State>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn end(job: u64, result: Option<String>) -> (PredecessorEnd, Option<String>) {
        (
            PredecessorEnd {
                job,
                name: "extract".into(),
                state: "succeeded",
                exit_code: Some(0),
                ..PredecessorEnd::default()
            },
            result,
        )
    }

    #[test]
    fn ends_are_one_line_and_leave_out_what_does_not_fit() {
        let long = format!("\"{}\"", "x".repeat(PREDECESSORS_BYTES_MAX));
        let line = ends_in_one_line(vec![
            end(1, Some(long)),
            end(2, Some("{\n \"rows\": 3\n}".into())),
            end(3, None),
        ]);
        assert!(!line.contains('\n'), "{line}");
        let ends: Vec<serde_json::Value> = serde_json::from_str(&line).unwrap();
        assert_eq!(
            ends.iter().map(|end| end["result"].clone()).collect::<Vec<_>>(),
            [serde_json::Value::Null, serde_json::json!({"rows": 3}), serde_json::Value::Null,]
        );
        assert_eq!(
            ends.iter().map(|end| end["result_left_out"] == true).collect::<Vec<_>>(),
            [true, false, false]
        );
        let many = ends_in_one_line((1..=1_000).map(|job| end(job, None)).collect());
        assert!(many.len() <= PREDECESSORS_BYTES_MAX, "{}", many.len());
    }
}
