//! The read side: a pool of read-only connections.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use protocol::container::Body;
use protocol::{AttemptNo, JobId, Revision};
use rusqlite::{Connection, OptionalExtension};
use scheduler::input::{GroupNo, KeyHolder};
use scheduler::step::WorkerRow;

use super::{faults, list, open_reader, rows};
use crate::store::directory::DataDirectory;
use crate::store::{Archive, JobFilter, JobRecord, JobRow, LoadError, ReadError, StoredDefinition};

/// This many reads go on at once; more wait. Reads are short, and the machine's cores have other work.
const READERS: usize = 4;

/// The read side. See [`super::open`].
#[derive(Debug)]
pub struct SqliteArchive {
    idle: Mutex<Vec<Connection>>,
    returned: Condvar,
    // Held, not read: the file is ours for as long as anyone reads it.
    _directory: Arc<DataDirectory>,
}

impl SqliteArchive {
    pub(super) fn open(file: PathBuf, directory: Arc<DataDirectory>) -> Result<Self, LoadError> {
        let readers = (0..READERS).map(|_| open_reader(&file)).collect::<rusqlite::Result<_>>();
        let idle = readers.map_err(|error| faults::of_load(&file, error))?;
        Ok(Self { idle: Mutex::new(idle), returned: Condvar::new(), _directory: directory })
    }

    /// Runs `read` within one snapshot of the file.
    fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, ReadError> {
        let mut reader = Borrowed { connection: Some(self.borrow()), archive: self };
        let Some(connection) = reader.connection.as_mut() else {
            return Err(rusqlite::Error::InvalidQuery.into());
        };
        let transaction = connection.transaction()?;
        let found = read(&transaction)?;
        transaction.commit()?;
        Ok(found)
    }

    fn borrow(&self) -> Connection {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(connection) = idle.pop() {
                return connection;
            }
            idle = self.returned.wait(idle).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Comes back to the pool whatever happens to the read.
struct Borrowed<'a> {
    connection: Option<Connection>,
    archive: &'a SqliteArchive,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.archive.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            self.archive.returned.notify_one();
        }
    }
}

impl Archive for SqliteArchive {
    fn job(&self, id: JobId) -> Result<Option<JobRecord>, ReadError> {
        self.read(|connection| record(connection, id))
    }

    fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobRow>, ReadError> {
        self.read(|connection| list::jobs(connection, filter))
    }

    fn key(&self, key: &str) -> Result<(Option<KeyHolder>, GroupNo), ReadError> {
        self.read(|connection| {
            let committed: i64 = connection
                .prepare_cached("SELECT committed FROM installation")?
                .query_row([], |row| row.get(0))?;
            let holder = connection
                .prepare_cached("SELECT job, count, digest FROM keys WHERE key = ?1")?
                .query_row([key], |row| {
                    let (job, count, digest) = (row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?);
                    Ok(KeyHolder {
                        job: JobId(job.cast_unsigned()),
                        count,
                        digest: u128::from_be_bytes(digest),
                    })
                })
                .optional()?;
            Ok((holder, GroupNo(committed.cast_unsigned())))
        })
    }

    fn bodies(&self, ids: &[JobId]) -> Result<Vec<(JobId, Body)>, ReadError> {
        self.read(|connection| {
            let mut bodies = Vec::with_capacity(ids.len());
            for id in ids {
                bodies.extend(rows::body(connection, *id)?.map(|body| (*id, body)));
            }
            Ok(bodies)
        })
    }

    fn definition(&self, revision: Revision) -> Result<Option<StoredDefinition>, ReadError> {
        self.read(|connection| {
            connection
                .prepare_cached("SELECT revision, name, entry FROM definitions WHERE revision = ?1")?
                .query_row([revision.0.to_be_bytes()], |row| rows::definition(row, 0))
                .optional()
        })
    }

    fn workers(&self) -> Result<Vec<WorkerRow>, ReadError> {
        self.read(rows::workers)
    }

    fn last_ended(&self, definition: &str) -> Result<Option<JobRow>, ReadError> {
        self.read(|connection| list::last_ended(connection, definition))
    }
}

fn record(connection: &Connection, id: JobId) -> rusqlite::Result<Option<JobRecord>> {
    let number = id.0.cast_signed();
    let sql = format!("SELECT {} FROM all_jobs j {} WHERE j.id = ?1", rows::JOB_COLUMNS, rows::JOB_JOINS);
    let Some((mut row, labelled)) =
        connection.prepare_cached(&sql)?.query_row([number], rows::job).optional()?
    else {
        return Ok(None);
    };
    if labelled {
        row.labels = rows::labels(connection, id)?;
    }
    let sql = format!(
        "SELECT {} FROM past_attempts a LEFT JOIN workers w ON w.id = a.worker WHERE a.job = ?1 ORDER BY a.fence",
        rows::ATTEMPT_COLUMNS
    );
    let past = connection
        .prepare_cached(&sql)?
        .query_map([number], |row| rows::attempt(row, AttemptNo(row.get(0)?), 1))?
        .collect::<rusqlite::Result<_>>()?;
    let notes = connection
        .prepare_cached("SELECT at, kind, fence, nonce, worker, text FROM notes WHERE job = ?1 ORDER BY id")?
        .query_map([number], |row| rows::note(row, id))?
        .collect::<rusqlite::Result<_>>()?;
    let body = rows::body(connection, id)?.unwrap_or_default();
    Ok(Some(JobRecord { row, body, past, notes }))
}
