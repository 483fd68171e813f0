//! A start: raises the epoch and hands out what has not ended.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use protocol::report::Outcome;
use protocol::{AttemptNo, ClusterId, Epoch, Fence, JobId, Revision, SessionId, Timestamp, Token, WorkerId};
use rusqlite::types::FromSqlError;
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior};
use scheduler::ids::GroupNo;
use scheduler::job::LastPlacement;
use scheduler::schedules::LiveSchedules;

use super::{
    batches, codes, dependencies, expectations, faults, gpus, limits, rows, run_on, schedules, unique,
};
use crate::store::{
    JobOrigin, LiveAttempt, LiveJob, LoadError, LoadItem, Loaded, StoredDefinition, Unconfirmed, directory,
};

/// A failure while loading.
#[derive(Debug)]
pub(super) enum Failure {
    Sql(rusqlite::Error),
    Invalid(String),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<FromSqlError> for Failure {
    fn from(error: FromSqlError) -> Self {
        Self::Sql(error.into())
    }
}

impl Failure {
    pub(super) fn into_load(self, file: &Path) -> LoadError {
        match self {
            Self::Sql(error) => faults::of_load(file, error),
            Self::Invalid(what) => LoadError::Unusable(format!(
                "{} is damaged: {what}; restore it from a backup",
                file.display()
            )),
        }
    }
}

/// Facts about the store that the server logs at its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StartupNotes {
    /// The machine crashed while it was open.
    pub(super) crashed: bool,
    /// This is its first start after a restore.
    pub(super) restored: Option<RestoreInfo>,
}

/// A restore, as the store remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RestoreInfo {
    /// When the backup was made.
    pub(super) backup_of: Timestamp,
    /// The last job that was in it.
    pub(super) last_job: JobId,
}

/// Loads everything, under the next epoch.
pub(super) fn load(
    connection: &mut Connection,
    visit: &mut dyn FnMut(LoadItem<'_>),
) -> Result<(Loaded, StartupNotes), Failure> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let boot = directory::boot();
    let (mut loaded, crashed) = transaction.query_row("SELECT * FROM installation", [], |row| {
        let crashed = !row.get::<_, bool>("clean")? && row.get::<_, String>("boot")? != boot;
        Ok((installation(row)?, crashed))
    })?;
    let notes = StartupNotes { crashed, restored: restored(&transaction, loaded.epoch)? };
    loaded.epoch = Epoch(loaded.epoch.0 + 1);
    forget_revisions(&transaction, REVISIONS_KEPT)?;
    let mut definitions = definitions(&transaction)?;
    let of_unconfirmed;
    (loaded.unconfirmed, of_unconfirmed) = unconfirmed(&transaction, &definitions)?;
    loaded.workers = rows::workers(&transaction)?;
    loaded.schedules = schedules::load(&transaction)?;
    loaded.expectations = expectations::load(&transaction)?;
    loaded.rates = limits::rates(&transaction)?;
    loaded.unique = unique::load(&transaction)?;
    loaded.dependencies = dependencies::open(&transaction)?;
    loaded.batches = batches::live(&transaction)?;
    loaded.parents = run_on::live(&transaction)?;
    visit(LoadItem::Base(&loaded));
    for id in of_unconfirmed {
        hand_out(&mut definitions, id, visit);
    }
    live_jobs(&transaction, &mut definitions, visit)?;
    transaction.execute(
        "UPDATE installation SET epoch = ?1, boot = ?2, clean = 0",
        (loaded.epoch.0.cast_signed(), boot),
    )?;
    transaction.commit()?;
    Ok((loaded, notes))
}

/// Definitions by their row's id, and whether each was handed out.
type Definitions = HashMap<i64, (StoredDefinition, bool)>;

/// Hands out a definition, once. None if there is no such row.
fn hand_out(definitions: &mut Definitions, id: i64, visit: &mut dyn FnMut(LoadItem<'_>)) -> Option<Revision> {
    let (definition, is_handed_out) = definitions.get_mut(&id)?;
    if !std::mem::replace(is_handed_out, true) {
        visit(LoadItem::Definition(definition));
    }
    Some(definition.revision)
}

/// Hands out the live jobs row by row.
fn live_jobs(
    connection: &Connection,
    definitions: &mut Definitions,
    visit: &mut dyn FnMut(LoadItem<'_>),
) -> Result<(), Failure> {
    let restored_in = last_restore(connection)?;
    let mut gpus = gpus::load(connection)?;
    let mut statement = connection.prepare(include_str!("queries/load_jobs.sql"))?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let Some(revision) = hand_out(definitions, row.get(1)?, visit) else {
            return Err(Failure::Invalid(format!("job {} refers to no definition", row.get::<_, i64>(0)?)));
        };
        let mut live = live_job(row, revision, restored_in)?;
        let was_lost = row.get::<_, bool>(20)?;
        let lost = if was_lost { lost_attempts(connection, live.job)? } else { Vec::new() };
        let batch = row.get::<_, Option<i64>>(23)?.map(|first| JobId(first.cast_unsigned()));
        let origin = JobOrigin { created_at: Timestamp(row.get(22)?), batch };
        live.gpus = gpus.remove(&live.job).unwrap_or_default();
        if row.get::<_, i64>(6)? & rows::HAS_NARROWING != 0 {
            live.narrowing = rows::narrowing(connection, live.job)?;
        }
        visit(LoadItem::Job(LiveJob { lost, ..live }, origin));
    }
    Ok(())
}

/// Forgets revisions that no job was made with, if there are more than this number altogether: each edit of jobs.yaml leaves some behind. Only here,
/// where nobody can be about to make a job of one; those in jobs.yaml come back with the first group.
fn forget_revisions(connection: &Connection, kept: i64) -> rusqlite::Result<()> {
    let count: i64 = connection.query_row("SELECT count(*) FROM definitions", [], |row| row.get(0))?;
    if count <= kept {
        return Ok(());
    }
    // The first revision of a name stands for it in the coarse index.
    let forgotten = connection.execute(
        "DELETE FROM definitions WHERE id NOT IN (SELECT definition FROM jobs) AND id NOT IN (SELECT definition FROM ended)
         AND id NOT IN (SELECT which FROM seen WHERE kind = 1)",
        [],
    )?;
    tracing::info!(forgotten, of = count, "forgot revisions of definitions that no job was made with");
    Ok(())
}

/// Some megabytes. Looking reads every ended job once: a second for some millions of them.
const REVISIONS_KEPT: i64 = 4_096;

fn restored(connection: &Connection, epoch: Epoch) -> rusqlite::Result<Option<RestoreInfo>> {
    connection
        .query_row(
            "SELECT backup_of, after FROM gaps WHERE backup_of IS NOT NULL AND epoch = ?1",
            [epoch.0.cast_signed()],
            |row| {
                let (backup_of, last_job) = (Timestamp(row.get(0)?), row.get::<_, i64>(1)?);
                Ok(RestoreInfo { backup_of, last_job: JobId(last_job.cast_unsigned()) })
            },
        )
        .optional()
}

/// The term that the last restore went up to: sessions of earlier epochs began before the backup. 0 if there was none.
pub(super) fn last_restore(connection: &Connection) -> rusqlite::Result<Epoch> {
    let sql = "SELECT coalesce(max(epoch), 0) FROM gaps WHERE backup_of IS NOT NULL";
    connection.query_row(sql, [], |row| Ok(Epoch(row.get::<_, i64>(0)?.cast_unsigned())))
}

/// A session has the term in its upper half.
const fn term_of(session: SessionId) -> Epoch {
    Epoch(session.0 >> 32)
}

fn installation(row: &Row<'_>) -> rusqlite::Result<Loaded> {
    let number = |name: &str| row.get::<_, i64>(name).map(i64::cast_unsigned);
    Ok(Loaded {
        dependencies: Vec::new(),
        epoch: Epoch(number("epoch")?),
        cluster: ClusterId(row.get("cluster")?),
        group: GroupNo(number("committed")?),
        last_job: JobId(number("last_job")?),
        last_fence: Fence(number("last_fence")?),
        last_worker: WorkerId(number("last_worker")?),
        workers: Vec::new(),
        unconfirmed: Vec::new(),
        schedules: LiveSchedules::default(),
        expectations: Vec::new(),
        rates: Vec::new(),
        unique: Vec::new(),
        batches: Vec::new(),
        parents: Vec::new(),
        last_retention_time: row.get::<_, Option<i64>>("retention_by")?.map(Timestamp),
    })
}

fn definitions(connection: &Connection) -> Result<Definitions, Failure> {
    let mut statement = connection.prepare("SELECT id, revision, name, entry FROM definitions")?;
    let found = statement.query_map([], |row| Ok((row.get(0)?, (rows::definition(row, 1)?, false))))?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

/// The unconfirmed attempts, and the rows of their definitions.
fn unconfirmed(
    connection: &Connection,
    definitions: &Definitions,
) -> Result<(Vec<Unconfirmed>, Vec<i64>), Failure> {
    let mut gpus = gpus::load(connection)?;
    let mut statement = connection.prepare(include_str!("queries/unconfirmed.sql"))?;
    let mut found = statement.query([])?;
    let (mut list, mut used) = (Vec::new(), Vec::new());
    while let Some(row) = found.next()? {
        let number = |index: usize| row.get::<_, i64>(index).map(i64::cast_unsigned);
        let token =
            Token { job: JobId(number(0)?), fence: Fence(number(1)?), nonce: protocol::Nonce(number(2)?) };
        let id = row.get(4)?;
        if let Some((definition, _)) = definitions.get(&id) {
            used.push(id);
            let gpus =
                gpus.get_mut(&token.job).and_then(|held| held.remove(&token.fence)).unwrap_or_default();
            list.push(Unconfirmed {
                token,
                worker: WorkerId(number(3)?),
                revision: definition.revision,
                gpus,
            });
        }
    }
    Ok((list, used))
}

/// Attempts of a job that were lost, and of which nobody has told since that their containers are gone.
fn lost_attempts(connection: &Connection, job: JobId) -> rusqlite::Result<Vec<(Token, WorkerId)>> {
    let mut statement = connection.prepare_cached(include_str!("queries/lost_attempts.sql"))?;
    let lost = |row: &Row<'_>| {
        let number = |index: usize| row.get::<_, i64>(index).map(i64::cast_unsigned);
        let token = Token { job, fence: Fence(number(0)?), nonce: protocol::Nonce(number(1)?) };
        Ok((token, WorkerId(number(2)?)))
    };
    statement.query_map([job.0.cast_signed()], lost)?.collect()
}

fn live_job(row: &Row<'_>, revision: Revision, restored_in: Epoch) -> Result<LiveJob, Failure> {
    let number = |index: usize| row.get::<_, i64>(index).map(i64::cast_unsigned);
    let instant = |index: usize| row.get::<_, i64>(index).map(Timestamp);
    let job = JobId(number(0)?);
    let state = codes::state(row.get(2)?)?;
    let has_attempt = row.get_ref(10)? != rusqlite::types::ValueRef::Null;
    let token = || -> Result<Token, Failure> {
        Ok(Token { job, fence: Fence(number(10)?), nonce: protocol::Nonce(number(11)?) })
    };
    let outcome = row.get::<_, Option<i64>>(17)?.map(codes::outcome).transpose()?;
    let attempt =
        if has_attempt && matches!(state, scheduler::job::State::Assigned | scheduler::job::State::Running) {
            Some(LiveAttempt {
                token: token()?,
                worker: WorkerId(number(12)?),
                session: SessionId(number(13)?),
                assigned_at: instant(14)?,
                started_at: row.get::<_, Option<i64>>(15)?.map(Timestamp),
                stopping: row.get::<_, Option<i64>>(16)?.map(codes::stop).transpose()?,
                cancelled_by: row.get(29)?,
                from_backup: term_of(SessionId(number(13)?)) < restored_in,
            })
        } else {
            None
        };
    let earlier = row.get::<_, Option<i64>>(19)?.map(codes::outcome).transpose()?;
    let last = match (outcome, earlier) {
        (Some(outcome), _) if outcome != Outcome::Released => {
            LastPlacement::after(WorkerId(number(12)?), outcome)
        }
        (_, Some(earlier)) => LastPlacement::after(WorkerId(number(18)?), earlier),
        (_, None) => None,
    };
    Ok(LiveJob {
        job,
        revision,
        state,
        priority: row.get(3)?,
        due_at: instant(4)?,
        expires_at: row.get::<_, Option<i64>>(24)?.map(Timestamp),
        timeout: row.get::<_, Option<i64>>(5)?.map(rows::timeout),
        has_overrides: row.get::<_, i64>(6)? & rows::HAS_OVERRIDES != 0,
        narrowing: None,
        keys: limits::keys(row, 25)?,
        job_failures: row.get(7)?,
        oom_kills: row.get(21)?,
        losses: rows::losses(row, 8)?,
        attempts: AttemptNo(row.get(9)?),
        has_started: row.get(27)?,
        hook_depth: row.get::<_, Option<u8>>(28)?.unwrap_or_default(),
        last,
        lost: Vec::new(),
        gpus: BTreeMap::new(),
        attempt,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::migrate;

    #[test]
    fn revisions_that_no_job_was_made_with_are_forgotten_once_they_are_many() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate::migrate(&mut connection, Path::new("longshore.db")).unwrap();
        // 1 to 4 are of one name: 1 stands for it in the index, 2 has an ended job, 3 a waiting one, 4 none. 5 and 6 are of names without jobs.
        for id in 1..=6 {
            let name = if id <= 4 { "resize".to_owned() } else { format!("other-{id}") };
            let sql =
                "INSERT INTO definitions (id, revision, name, entry) VALUES (?1, randomblob(16), ?2, '')";
            connection.execute(sql, (id, name)).unwrap();
        }
        connection
            .execute_batch(
                "INSERT INTO seen (kind, which, block) VALUES (1, 1, 0), (2, 5, 0);
                 INSERT INTO jobs (id, definition, state, priority, created_at, due_at) VALUES (8, 3, 2, 0, 0, 0);
                 INSERT INTO ended (id, definition, state, priority, created_at, due_at, details, attempts, ended_at, confirmed)
                 VALUES (7, 2, 8, 0, 0, 0, 0, 0, 0, 1);",
            )
            .unwrap();
        let left = |connection: &Connection| -> String {
            connection
                .query_row(
                    "SELECT group_concat(id) FROM (SELECT id FROM definitions ORDER BY id)",
                    [],
                    |row| row.get(0),
                )
                .unwrap()
        };
        forget_revisions(&connection, 6).unwrap();
        assert_eq!(left(&connection), "1,2,3,4,5,6");
        forget_revisions(&connection, 5).unwrap();
        assert_eq!(left(&connection), "1,2,3");
    }
}
