//! A start: raises the epoch and hands out what has not ended.

use std::collections::HashMap;
use std::path::Path;

use protocol::{AttemptNo, ClusterId, Epoch, Fence, JobId, Revision, SessionId, Timestamp, Token, WorkerId};
use rusqlite::types::FromSqlError;
use rusqlite::{Connection, Row, TransactionBehavior};
use scheduler::input::GroupNo;

use super::{codes, faults, rows};
use crate::store::{LiveAttempt, LiveJob, LoadError, Loaded, StoredDefinition, directory};

/// What went wrong while loading.
#[derive(Debug)]
pub(super) enum Failure {
    Sql(rusqlite::Error),
    Senseless(String),
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
            Self::Senseless(what) => LoadError::Unusable(format!(
                "{} is damaged: {what}; restore it from a backup",
                file.display()
            )),
        }
    }
}

/// The second value: whether the machine crashed while the store was open.
pub(super) fn load(
    connection: &mut Connection,
    visit: &mut dyn FnMut(LiveJob),
) -> Result<(Loaded, bool), Failure> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let boot = directory::boot();
    let (mut loaded, crashed) = transaction.query_row("SELECT * FROM installation", [], |row| {
        let crashed = !row.get::<_, bool>("clean")? && row.get::<_, String>("boot")? != boot;
        Ok((installation(row)?, crashed))
    })?;
    loaded.epoch = Epoch(loaded.epoch.0 + 1);
    let mut definitions = definitions(&transaction)?;
    let mut statement = transaction.prepare(include_str!("queries/load_jobs.sql"))?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let of: i64 = row.get(1)?;
        let Some((definition, used)) = definitions.get_mut(&of) else {
            return Err(Failure::Senseless(format!("job {} refers to no definition", row.get::<_, i64>(0)?)));
        };
        *used = true;
        visit(live_job(row, definition.revision)?);
    }
    drop(found);
    drop(statement);
    loaded.definitions =
        definitions.into_values().filter(|(_, used)| *used).map(|(definition, _)| definition).collect();
    loaded.definitions.sort_by(|one, other| (&one.name, one.revision).cmp(&(&other.name, other.revision)));
    loaded.workers = rows::workers(&transaction)?;
    transaction.execute(
        "UPDATE installation SET epoch = ?1, boot = ?2, clean = 0",
        (loaded.epoch.0.cast_signed(), boot),
    )?;
    transaction.commit()?;
    Ok((loaded, crashed))
}

fn installation(row: &Row<'_>) -> rusqlite::Result<Loaded> {
    let number = |name: &str| row.get::<_, i64>(name).map(i64::cast_unsigned);
    Ok(Loaded {
        epoch: Epoch(number("epoch")?),
        cluster: ClusterId(row.get("cluster")?),
        group: GroupNo(number("committed")?),
        last_job: JobId(number("last_job")?),
        last_fence: Fence(number("last_fence")?),
        last_worker: WorkerId(number("last_worker")?),
        workers: Vec::new(),
        definitions: Vec::new(),
    })
}

fn definitions(connection: &Connection) -> Result<HashMap<i64, (StoredDefinition, bool)>, Failure> {
    let mut statement = connection.prepare("SELECT id, revision, name, entry FROM definitions")?;
    let found = statement.query_map([], |row| Ok((row.get(0)?, (rows::definition(row, 1)?, false))))?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

fn live_job(row: &Row<'_>, revision: Revision) -> Result<LiveJob, Failure> {
    let number = |index: usize| row.get::<_, i64>(index).map(i64::cast_unsigned);
    let instant = |index: usize| row.get::<_, i64>(index).map(Timestamp);
    let job = JobId(number(0)?);
    let state = codes::state(row.get(2)?)?;
    let has_attempt = row.get_ref(10)? != rusqlite::types::ValueRef::Null;
    let attempt =
        if has_attempt && matches!(state, scheduler::job::State::Assigned | scheduler::job::State::Running) {
            Some(LiveAttempt {
                token: Token { job, fence: Fence(number(10)?), nonce: protocol::Nonce(number(11)?) },
                worker: WorkerId(number(12)?),
                session: SessionId(number(13)?),
                assigned_at: instant(14)?,
                started_at: row.get::<_, Option<i64>>(15)?.map(Timestamp),
                stopping: row.get::<_, Option<i64>>(16)?.map(codes::stop).transpose()?,
            })
        } else {
            None
        };
    Ok(LiveJob {
        job,
        revision,
        state,
        priority: row.get(3)?,
        due_at: instant(4)?,
        timeout: rows::timeout(row.get(5)?),
        has_body: row.get::<_, i64>(6)? & rows::HAS_BODY != 0,
        own_failures: row.get(7)?,
        losses: rows::losses(row, 8)?,
        attempts: AttemptNo(row.get(9)?),
        last_worker: if has_attempt { Some(WorkerId(number(12)?)) } else { None },
        attempt,
    })
}
