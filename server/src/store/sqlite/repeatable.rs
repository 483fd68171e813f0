//! The members of a batch that a retry of it may repeat, and the latest attempts of members. Many are read at once: for most of them one query says
//! that there is nothing in the other tables.

use std::collections::BTreeSet;

use protocol::JobId;
use rusqlite::{Connection, OptionalExtension};
use scheduler::job::State;
use scheduler::pending_batch::stored_bytes;

use super::archive::SqliteArchive;
use super::dependencies::{self, latest_of_chain, number};
use super::{batches, positions, record, rows, run_on};
use crate::positions::Positions;
use crate::store::{
    BatchFailures, BatchRow, JobRow, MemberArchive, MemberData, ReadError, RepeatableJob, UnsuccessfulMember,
    UnsuccessfulMembers,
};

impl MemberArchive for SqliteArchive {
    fn batch_with_key(&self, key: &str) -> Result<Option<JobId>, ReadError> {
        self.read(|connection| batches::holder_of_key(connection, key))
    }

    fn batch_failures(&self, first: JobId, limit: usize) -> Result<BatchFailures, ReadError> {
        self.read(|connection| batches::failures(connection, first, limit))
    }

    fn waiting_members(&self, batch: &BatchRow, limit: usize) -> Result<Vec<JobId>, ReadError> {
        self.read(|connection| batches::waiting_members(connection, batch, limit))
    }

    fn unknown_position(&self, batch: &BatchRow, positions: &[Positions]) -> Result<Option<u32>, ReadError> {
        self.read(|connection| positions::unknown(connection, batch.first, batch.count, positions))
    }

    fn last_retry(&self, job: JobId) -> Result<Option<(JobId, State)>, ReadError> {
        self.read(|connection| latest_of_chain(connection, job))
    }

    fn unsuccessful_members(
        &self,
        batch: JobId,
        before: Option<JobId>,
        limit: usize,
        data: MemberData,
    ) -> Result<UnsuccessfulMembers, ReadError> {
        self.read(|connection| unsuccessful_members(connection, batch, before, limit, data))
    }

    fn latest_attempts(&self, members: Vec<JobRow>) -> Result<Vec<JobRow>, ReadError> {
        self.read(|connection| latest_attempts(connection, members))
    }
}

/// The newest members below `before`, at most `limit`.
pub(super) fn unsuccessful_members(
    connection: &Connection,
    batch: JobId,
    before: Option<JobId>,
    limit: usize,
    data: MemberData,
) -> rusqlite::Result<UnsuccessfulMembers> {
    let before = before.map_or(i64::MAX, number);
    let bound = i64::try_from(limit).unwrap_or(i64::MAX);
    let found: Vec<(JobRow, i64)> = connection
        .prepare_cached(&members_sql())?
        .query_map((number(batch), before, bound), rows::job)?
        .collect::<rusqlite::Result<_>>()?;
    let Some(((newest, _), (oldest, _))) = found.first().zip(found.last()) else {
        return Ok(UnsuccessfulMembers::default());
    };
    let others = OtherTables::of(connection, (number(oldest.job), number(newest.job)))?;
    let mut last = Some(oldest.job).filter(|_| found.len() == limit);
    let (mut members, mut bytes) = (Vec::with_capacity(found.len()), 0);
    for (row, flags) in found {
        let member = row.job;
        let retry = match others.retried.contains(&member) {
            true => latest_of_chain(connection, member)?,
            false => None,
        };
        let standing = match retry {
            None => Some((row, flags)),
            Some((retry, _)) => one(connection, retry)?,
        };
        let Some((mut row, flags)) = standing else { continue };
        rows::add_details(connection, &mut row, flags)?;
        let job = row.job;
        let is_itself = job == member;
        if !is_itself || others.in_sets.contains(&job) {
            row.run_on_role = run_on::run_on_role(connection, job)?;
        }
        let after = match !is_itself || others.dependent.contains(&job) {
            true => dependencies::of(connection, job, usize::MAX)?,
            false => Vec::new(),
        };
        let cancelled_by = match row.state == State::Cancelled {
            true => cancel_requests(connection, job)?,
            false => Vec::new(),
        };
        let details = match data {
            // Members of a parent have the details of their parent, and no bit for them.
            MemberData::Whole => rows::details(connection, job)?.unwrap_or_default(),
            MemberData::WithoutOverrides => Default::default(),
        };
        bytes += stored_bytes(&details);
        let job = RepeatableJob { row, overrides: details.overrides, params: details.params.given };
        members.push(UnsuccessfulMember { member, job, after, cancelled_by });
        if bytes >= BYTES_MAX {
            last = Some(member);
            break;
        }
    }
    Ok(UnsuccessfulMembers { members, last })
}

/// The last of the retries of each of these members, or the member itself, with the position of the member.
pub(super) fn latest_attempts(
    connection: &Connection,
    members: Vec<JobRow>,
) -> rusqlite::Result<Vec<JobRow>> {
    let numbers = || members.iter().map(|row| number(row.job));
    let Some(range) = numbers().min().zip(numbers().max()) else { return Ok(members) };
    let retried = jobs_within(connection, RETRIED, range)?;
    let mut latest = Vec::with_capacity(members.len());
    for member in members {
        let retry = match retried.contains(&member.job) {
            true => latest_of_chain(connection, member.job)?,
            false => None,
        };
        let found = retry.map(|(retry, _)| one(connection, retry)).transpose()?.flatten();
        let Some((mut row, flags)) = found else {
            latest.push(member);
            continue;
        };
        rows::add_details(connection, &mut row, flags)?;
        record::complete(connection, &mut row)?;
        row.position = member.position;
        latest.push(row);
    }
    Ok(latest)
}

/// The jobs of a slice that have rows in other tables: usually few, or none.
struct OtherTables {
    retried: BTreeSet<JobId>,
    /// Parents and members of jobs on several workers.
    in_sets: BTreeSet<JobId>,
    dependent: BTreeSet<JobId>,
}

impl OtherTables {
    fn of(connection: &Connection, range: (i64, i64)) -> rusqlite::Result<Self> {
        let jobs = |sql| jobs_within(connection, sql, range);
        Ok(Self {
            retried: jobs(RETRIED)?,
            in_sets: jobs(run_on::IN_SETS)?,
            dependent: jobs(dependencies::DEPENDENT)?,
        })
    }
}

/// The jobs that a query finds between its two parameters.
fn jobs_within(connection: &Connection, sql: &str, range: (i64, i64)) -> rusqlite::Result<BTreeSet<JobId>> {
    let mut statement = connection.prepare_cached(sql)?;
    let jobs = statement.query_map(range, |row| Ok(JobId(row.get::<_, i64>(0)?.cast_unsigned())))?;
    jobs.collect()
}

/// A job in whichever state, if it is kept.
fn one(connection: &Connection, job: JobId) -> rusqlite::Result<Option<(JobRow, i64)>> {
    let sql = format!("SELECT {} FROM all_jobs j {} WHERE j.id = ?1", rows::JOB_COLUMNS, rows::JOB_JOINS);
    let found = connection.prepare_cached(&sql)?.query_row([number(job)], rows::job).optional()?;
    let shown = |(row, flags): (JobRow, i64)| {
        let state = run_on::shown_state(connection, row.job, row.state)?;
        Ok((JobRow { state, ..row }, flags))
    };
    found.map(shown).transpose()
}

/// Those who asked for the cancel of a job.
fn cancel_requests(connection: &Connection, job: JobId) -> rusqlite::Result<Vec<String>> {
    let mut statement =
        connection.prepare_cached("SELECT text FROM notes WHERE job = ?1 AND kind = 1 ORDER BY id")?;
    let found = statement.query_map([number(job)], |row| row.get::<_, Option<String>>(0))?;
    found.map(|by| Ok(by?.unwrap_or_default())).collect()
}

/// Ended members that have not succeeded, by the numbers of the batch: an index by state would be read for all batches.
pub(super) fn members_sql() -> String {
    format!(
        "SELECT {} FROM ended j NOT INDEXED {}
         WHERE j.id >= ?1 AND j.id < min(?2, ?1 + (SELECT count FROM batches WHERE batches.id = ?1))
             AND j.batch = ?1 AND j.state IN (7, 8, 9, 10)
         ORDER BY j.id DESC LIMIT ?3",
        rows::JOB_COLUMNS,
        rows::JOB_JOINS
    )
}

pub(super) const RETRIED: &str = "SELECT retry_of FROM jobs WHERE retry_of BETWEEN ?1 AND ?2
    UNION SELECT retry_of FROM ended WHERE retry_of BETWEEN ?1 AND ?2";

/// Bytes of inputs, parameters, environment, arguments and labels after which a slice ends.
const BYTES_MAX: usize = 4 << 20;
