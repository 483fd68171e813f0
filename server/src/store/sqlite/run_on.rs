//! Jobs on several workers: rows ↔ meaning.

use protocol::{JobId, Timestamp, WorkerId};
use rusqlite::{Connection, OptionalExtension, Row, params};
use scheduler::job::State;
use scheduler::run_on::{LiveParent, MemberPlan, MemberRow, ParentCounts, ParentRow, WorkerUse};

use super::{codes, json_column};
use crate::store::{MemberOnWorker, RunOnRole};

/// Writes the row of a parent, after those of the jobs, and that it runs.
pub(super) fn put_parent(connection: &Connection, row: &ParentRow) -> rusqlite::Result<()> {
    let (wanted, workers) = match &row.plan {
        MemberPlan::All => (None, None),
        MemberPlan::Count { members, except } => (Some(*members), ids(except)),
        MemberPlan::Workers(workers) => (None, Some(ids(workers).unwrap_or_else(|| "[]".to_owned()))),
    };
    let ParentCounts { total, succeeded, failed, cancelled, expired, lost } = row.counts;
    connection
        .prepare_cached(
            "INSERT INTO parents (job, wanted, workers, is_complete, started_at, cancelled_by, total, succeeded, failed, cancelled,
                 expired, lost)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
             ON CONFLICT DO UPDATE SET is_complete = ?4, started_at = ?5, cancelled_by = ?6, total = ?7, succeeded = ?8, failed = ?9,
                 cancelled = ?10, expired = ?11, lost = ?12",
        )?
        .execute(params![
            number(row.job),
            wanted,
            workers,
            row.is_complete,
            row.started_at.map(|at| at.0),
            row.cancelled_by,
            total,
            succeeded,
            failed,
            cancelled,
            expired,
            lost,
        ])?;
    if row.started_at.is_some() {
        for sql in [
            "INSERT INTO running_parents (job) SELECT id FROM jobs WHERE id = ?1 ON CONFLICT DO NOTHING",
            // Each end of a parent comes with its last row.
            "DELETE FROM running_parents WHERE job = ?1 AND NOT EXISTS (SELECT 1 FROM jobs WHERE id = ?1)",
        ] {
            connection.prepare_cached(sql)?.execute([number(row.job)])?;
        }
    }
    Ok(())
}

/// Writes that a job is a member.
pub(super) fn put_member(connection: &Connection, row: &MemberRow) -> rusqlite::Result<()> {
    connection.prepare_cached("INSERT INTO members (job, parent, worker) VALUES (?1, ?2, ?3)")?.execute(
        params![number(row.job), number(row.parent), row.pinned.map(|worker| worker.0.cast_signed())],
    )?;
    Ok(())
}

/// Writes that a member has been on a worker.
pub(super) fn put_use(connection: &Connection, of: &WorkerUse) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO used_workers (parent, worker, job) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        )?
        .execute([number(of.parent), of.worker.0.cast_signed(), number(of.member)])?;
    Ok(())
}

/// The parents that have not ended. Of their members those that have not ended, and all of them if some are still to be made.
pub(super) fn live(connection: &Connection) -> rusqlite::Result<Vec<LiveParent>> {
    let sql =
        format!("SELECT {PARENT_COLUMNS} FROM jobs CROSS JOIN parents p ON p.job = jobs.id ORDER BY p.job");
    let mut statement = connection.prepare(&sql)?;
    let rows: Vec<ParentRow> = statement.query_map([], parent)?.collect::<rusqlite::Result<_>>()?;
    let mut members = connection.prepare(
        "SELECT job, parent, worker FROM members m WHERE parent = ?1
         AND (?2 OR EXISTS (SELECT 1 FROM jobs WHERE jobs.id = m.job)) ORDER BY job",
    )?;
    let mut used =
        connection.prepare("SELECT worker, job FROM used_workers WHERE parent = ?1 ORDER BY worker")?;
    let mut live = Vec::with_capacity(rows.len());
    for row in rows {
        let id = number(row.job);
        let members = members.query_map((id, !row.is_complete), member)?.collect::<rusqlite::Result<_>>()?;
        let of = |found: &Row<'_>| {
            let (worker, member) = (WorkerId(unsigned(found, 0)?), JobId(unsigned(found, 1)?));
            Ok(WorkerUse { parent: row.job, worker, member })
        };
        let used = used.query_map([id], of)?.collect::<rusqlite::Result<_>>()?;
        live.push(LiveParent { row, members, used });
    }
    Ok(live)
}

/// The role of a job under `run_on`. A queued parent of which a member has started runs.
pub(super) fn run_on_role(connection: &Connection, job: JobId) -> rusqlite::Result<RunOnRole> {
    let member_row = connection
        .prepare_cached("SELECT job, parent, worker FROM members WHERE job = ?1")?
        .query_row([number(job)], member)
        .optional()?;
    if let Some(row) = member_row {
        return Ok(RunOnRole::Member(row));
    }
    let sql = format!("SELECT {PARENT_COLUMNS} FROM parents p WHERE job = ?1");
    let row = connection.prepare_cached(&sql)?.query_row([number(job)], parent).optional()?;
    Ok(row.map_or(RunOnRole::Alone, |row| RunOnRole::Parent(Box::new(row))))
}

/// The state of a job as people see it: a parent runs once a member has started, while its own row is queued.
pub(super) fn shown_state(connection: &Connection, job: JobId, stored: State) -> rusqlite::Result<State> {
    let is_running = stored == State::Queued
        && connection
            .prepare_cached("SELECT 1 FROM running_parents WHERE job = ?1")?
            .exists([number(job)])?;
    Ok(if is_running { State::Running } else { stored })
}

/// The job is a member.
pub(super) fn is_member(connection: &Connection, job: JobId) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM members WHERE job = ?1")?.exists([number(job)])
}

/// The members of a parent with their states and the workers that they were on last, or are pinned to: at most `limit`.
pub(super) fn members_on_workers(
    connection: &Connection,
    parent: JobId,
    limit: usize,
) -> rusqlite::Result<Vec<MemberOnWorker>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    connection
        .prepare_cached(
            "SELECT m.job, j.state, coalesce(m.worker, j.worker) FROM members m CROSS JOIN all_jobs j ON j.id = m.job
             WHERE m.parent = ?1 ORDER BY m.job LIMIT ?2",
        )?
        .query_map((number(parent), limit), |row| {
            let worker = row.get::<_, Option<i64>>(2)?.map(|id| WorkerId(id.cast_unsigned()));
            Ok(MemberOnWorker { job: JobId(unsigned(row, 0)?), state: codes::state(row.get(1)?)?, worker })
        })?
        .collect()
}

/// Deletes what belongs to an ended job.
pub(super) fn remove(connection: &Connection, job: i64) -> rusqlite::Result<()> {
    for sql in [
        "DELETE FROM parents WHERE job = ?1",
        "DELETE FROM used_workers WHERE parent = ?1",
        "DELETE FROM members WHERE job = ?1",
    ] {
        connection.prepare_cached(sql)?.execute([job])?;
    }
    Ok(())
}

/// The parents and members between two numbers, in order.
pub(super) const IN_SETS: &str = "SELECT job FROM parents WHERE job BETWEEN ?1 AND ?2
    UNION SELECT job FROM members WHERE job BETWEEN ?1 AND ?2 ORDER BY 1";

const PARENT_COLUMNS: &str = "p.job, p.wanted, p.workers, p.is_complete, p.started_at, p.cancelled_by, p.total, p.succeeded, \
     p.failed, p.cancelled, p.expired, p.lost";

fn parent(row: &Row<'_>) -> rusqlite::Result<ParentRow> {
    let workers: Option<Vec<u64>> = json_column::read(row, 2)?;
    let workers = workers.map(|ids| ids.into_iter().map(WorkerId).collect::<std::sync::Arc<[_]>>());
    let plan = match (row.get::<_, Option<u32>>(1)?, workers) {
        (Some(members), except) => MemberPlan::Count { members, except: except.unwrap_or_default() },
        (None, Some(workers)) => MemberPlan::Workers(workers),
        (None, None) => MemberPlan::All,
    };
    Ok(ParentRow {
        job: JobId(unsigned(row, 0)?),
        plan,
        is_complete: row.get(3)?,
        started_at: row.get::<_, Option<i64>>(4)?.map(Timestamp),
        cancelled_by: row.get(5)?,
        counts: ParentCounts {
            total: row.get(6)?,
            succeeded: row.get(7)?,
            failed: row.get(8)?,
            cancelled: row.get(9)?,
            expired: row.get(10)?,
            lost: row.get(11)?,
        },
    })
}

fn member(row: &Row<'_>) -> rusqlite::Result<MemberRow> {
    let pinned = row.get::<_, Option<i64>>(2)?.map(|worker| WorkerId(worker.cast_unsigned()));
    Ok(MemberRow { job: JobId(unsigned(row, 0)?), parent: JobId(unsigned(row, 1)?), pinned })
}

fn ids(workers: &[WorkerId]) -> Option<String> {
    let ids: Vec<u64> = workers.iter().map(|worker| worker.0).collect();
    json_column::code(&ids)
}

fn unsigned(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(index).map(i64::cast_unsigned)
}

const fn number(job: JobId) -> i64 {
    job.0.cast_signed()
}
