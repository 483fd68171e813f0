//! The read side: a pool of read-only connections.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::container::Overrides;
use protocol::{Epoch, JobId, Revision, Timestamp, Token, WorkerId};
use rusqlite::{Connection, OptionalExtension};
use scheduler::dependencies::PredecessorId;
use scheduler::fleet::row::WorkerRow;
use scheduler::ids::GroupNo;
use scheduler::input::KeyHolder;
use scheduler::job::State;
use scheduler::schedule::backfill::LedgerReading;

use super::connections::open_reader;
use super::{
    batches, dependencies, failures, faults, keys, list, load, pending_batch, predecessor_ends, record, rows,
    run_on, schedules,
};
use crate::store::directory::DataDirectory;
use crate::store::{
    Archive, BatchFilter, BatchRow, BatchState, DependencyRecord, FailureStatus, FireFilter, FireRecord,
    GivenParams, HourlyEnds, JobFilter, JobRecord, JobRow, LoadError, MemberOnWorker, OutputLimits,
    PREDECESSORS_VARIABLE, Pipeline, ReadError, ScheduleState, StoredDefinition,
};

/// This many reads go on at once; more wait. Reads are short, and the machine's cores have other work.
const READERS: usize = 4;

/// Longest time that a read waits for the write-ahead log to restart; then it goes on, and the log grows.
const HELD_MAX: Duration = Duration::from_secs(2);

/// The read side. See [`super::open`].
#[derive(Debug)]
pub struct SqliteArchive {
    pool: Arc<Pool>,
    // Held, not read: the file is ours for as long as anyone reads it.
    _directory: Arc<DataDirectory>,
}

impl SqliteArchive {
    pub(super) fn open(file: &Path, directory: Arc<DataDirectory>) -> Result<Self, LoadError> {
        Ok(Self { pool: Arc::new(Pool::open(file)?), _directory: directory })
    }

    /// The pool of reading connections.
    pub(super) fn pool(&self) -> Arc<Pool> {
        Arc::clone(&self.pool)
    }

    /// A handle of the file itself.
    pub(super) fn file(&self) -> Arc<File> {
        Arc::clone(&self.pool.file)
    }

    /// Runs `read` within one snapshot of the file.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, ReadError> {
        let mut reader = PooledReader { connection: Some(self.pool.borrow()), pool: &self.pool };
        let Some(connection) = reader.connection.as_mut() else {
            return Err(rusqlite::Error::InvalidQuery.into());
        };
        let transaction = connection.transaction()?;
        let found = read(&transaction)?;
        transaction.commit()?;
        Ok(found)
    }
}

/// The connections that read. Each is used for one short transaction at a time: the log cannot be begun anew while one that began
/// earlier still needs it.
#[derive(Debug)]
pub(super) struct Pool {
    state: Mutex<PoolState>,
    changed: Condvar,
    /// A handle of the file beside those of SQLite. Closing it lets go of every lock that this process has on the file (that is how
    /// POSIX has it), so it goes when the last connection has gone.
    file: Arc<File>,
}

#[derive(Debug)]
struct PoolState {
    idle: Vec<Connection>,
    held: bool,
}

impl Pool {
    fn open(path: &Path) -> Result<Self, LoadError> {
        let file = File::open(path).map_err(|error| LoadError::Io(Box::new(error)))?;
        let readers = (0..READERS).map(|_| open_reader(path)).collect::<rusqlite::Result<_>>();
        let idle = readers.map_err(|error| faults::of_load(path, error))?;
        let state = Mutex::new(PoolState { idle, held: false });
        Ok(Self { state, changed: Condvar::new(), file: Arc::new(file) })
    }

    /// Lets no reads begin for a while.
    pub(super) fn pause(&self) {
        self.lock().held = true;
    }

    /// Lets reads begin again.
    pub(super) fn resume(&self) {
        if std::mem::take(&mut self.lock().held) {
            self.changed.notify_all();
        }
    }

    /// True if no read is under way.
    pub(super) fn all_idle(&self) -> bool {
        self.lock().idle.len() == READERS
    }

    fn borrow(&self) -> Connection {
        let must_wait = |state: &mut PoolState| state.held || state.idle.is_empty();
        let waited = self.changed.wait_timeout_while(self.lock(), HELD_MAX, must_wait);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        loop {
            if let Some(connection) = state.idle.pop() {
                return connection;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Comes back to the pool whatever happens to the read.
struct PooledReader<'a> {
    connection: Option<Connection>,
    pool: &'a Pool,
}

impl Drop for PooledReader<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.lock().idle.push(connection);
            // All: some wait for a connection, others only for leave to begin.
            self.pool.changed.notify_all();
        }
    }
}

impl Archive for SqliteArchive {
    fn job(&self, id: JobId) -> Result<Option<JobRecord>, ReadError> {
        self.read(|connection| record::record(connection, id))
    }

    fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobRow>, ReadError> {
        self.read(|connection| list::jobs(connection, filter))
    }

    fn batch(&self, first: JobId) -> Result<Option<BatchRow>, ReadError> {
        self.read(|connection| batches::batch(connection, first))
    }

    fn batches(&self, filter: &BatchFilter) -> Result<Vec<BatchRow>, ReadError> {
        self.read(|connection| batches::batches(connection, filter))
    }

    fn batch_dependents(&self, first: JobId, limit: usize) -> Result<Vec<DependencyRecord>, ReadError> {
        self.read(|connection| dependencies::dependents(connection, PredecessorId::Batch(first), limit))
    }

    fn batch_states(&self, ids: &[JobId]) -> Result<Vec<(JobId, BatchState)>, ReadError> {
        self.read(|connection| batches::states(connection, ids))
    }

    fn states(&self, ids: &[JobId]) -> Result<Vec<(JobId, String, State)>, ReadError> {
        self.read(|connection| dependencies::states(connection, ids))
    }

    fn instants_for_followers(&self, ids: &[JobId]) -> Result<Vec<(JobId, String)>, ReadError> {
        self.read(|connection| {
            let found =
                ids.iter().map(|id| Ok(schedules::for_followers(connection, *id)?.map(|at| (*id, at))));
            found.filter_map(Result::transpose).collect()
        })
    }

    fn pipeline(&self, job: JobId, limit: usize) -> Result<Pipeline, ReadError> {
        self.read(|connection| dependencies::pipeline(connection, job, limit))
    }

    fn retries(&self, ids: &[JobId]) -> Result<BTreeMap<JobId, (JobId, State)>, ReadError> {
        self.read(|connection| {
            let retry = |id: &JobId| dependencies::latest_retry(connection, *id).map(|it| Some((*id, it?)));
            ids.iter().filter_map(|id| retry(id).transpose()).collect()
        })
    }

    fn key(&self, key: &str) -> Result<(Option<KeyHolder>, GroupNo), ReadError> {
        self.read(|connection| keys::key(connection, key))
    }

    fn keys_with(&self, prefix: &str) -> Result<Vec<String>, ReadError> {
        self.read(|connection| keys::keys_with(connection, prefix))
    }

    fn members_on_workers(&self, parent: JobId, limit: usize) -> Result<Vec<MemberOnWorker>, ReadError> {
        self.read(|connection| run_on::members_on_workers(connection, parent, limit))
    }

    fn overrides(&self, ids: &[JobId]) -> Result<Vec<(JobId, Overrides)>, ReadError> {
        self.read(|connection| {
            let hidden = pending_batch::ranges(connection)?;
            let is_hidden = |id: &JobId| pending_batch::contain(&hidden, id.0.cast_signed());
            let mut bodies = Vec::with_capacity(ids.len());
            for id in ids.iter().filter(|id| !is_hidden(id)) {
                let body = rows::details(connection, *id)?.map(|details| details.effective_overrides());
                let ends = predecessor_ends::ends(connection, *id)?;
                if body.is_none() && ends.is_none() {
                    continue;
                }
                let mut body = body.unwrap_or_default();
                body.environment.extend(ends.map(|ends| (PREDECESSORS_VARIABLE.to_owned(), ends)));
                bodies.push((*id, body));
            }
            Ok(bodies)
        })
    }

    fn given_params(&self, ids: &[JobId]) -> Result<Vec<GivenParams>, ReadError> {
        self.read(|connection| ids.iter().map(|id| record::given_params(connection, *id)).collect())
    }

    fn attempts_of(&self, worker: WorkerId, tokens: &[Token]) -> Result<Vec<(Token, Revision)>, ReadError> {
        self.read(|connection| {
            let mut query = connection.prepare_cached(
                "SELECT d.revision FROM all_attempts a JOIN all_jobs j ON j.id = a.job JOIN definitions d ON d.id = j.definition
                 WHERE a.job = ?1 AND j.id = ?1 AND a.fence = ?2 AND a.nonce = ?3 AND a.worker = ?4",
            )?;
            let mut found = Vec::with_capacity(tokens.len());
            for token in tokens {
                let named = [token.job.0, token.fence.0, token.nonce.0, worker.0].map(u64::cast_signed);
                let revision = query.query_row(named, |row| row.get::<_, [u8; 16]>(0)).optional()?;
                found.extend(revision.map(|revision| (*token, Revision(u128::from_be_bytes(revision)))));
            }
            Ok(found)
        })
    }

    fn unknown_attempts(&self, tokens: &[Token]) -> Result<Vec<Token>, ReadError> {
        self.read(|connection| {
            let mut query = connection.prepare_cached(include_str!("queries/is_unknown_attempt.sql"))?;
            let mut found = Vec::new();
            for token in tokens {
                let named = [token.job.0, token.fence.0, token.nonce.0].map(u64::cast_signed);
                if query.query_row(named, |row| row.get(0))? {
                    found.push(*token);
                }
            }
            Ok(found)
        })
    }

    fn was_restored(&self) -> Result<bool, ReadError> {
        self.read(|connection| Ok(load::last_restore(connection)? > Epoch(0)))
    }

    fn definition(&self, revision: Revision) -> Result<Option<StoredDefinition>, ReadError> {
        self.read(|connection| {
            connection
                .prepare_cached("SELECT revision, name, entry FROM definitions WHERE revision = ?1")?
                .query_row([revision.0.to_be_bytes()], |row| rows::definition(row, 0))
                .optional()
        })
    }

    fn revisions(&self, name: &str, limit: usize) -> Result<Vec<StoredDefinition>, ReadError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read(|connection| {
            // The index by name has the rows of a name in the order of their ids.
            let sql =
                "SELECT revision, name, entry FROM definitions WHERE name = ?1 ORDER BY id DESC LIMIT ?2";
            let mut query = connection.prepare_cached(sql)?;
            query.query_map((name, limit), |row| rows::definition(row, 0))?.collect()
        })
    }

    fn definition_names(&self) -> Result<Vec<String>, ReadError> {
        self.read(|connection| {
            let sql = "SELECT DISTINCT name FROM definitions ORDER BY name";
            connection.prepare_cached(sql)?.query_map([], |row| row.get(0))?.collect()
        })
    }

    fn failures(&self, ids: &[JobId]) -> Result<Vec<FailureStatus>, ReadError> {
        self.read(|connection| ids.iter().map(|id| failures::status(connection, *id)).collect())
    }

    fn unresolved(&self) -> Result<BTreeMap<String, u64>, ReadError> {
        self.read(failures::totals)
    }

    fn scheduled_jobs(&self) -> Result<BTreeMap<String, u64>, ReadError> {
        self.read(list::scheduled_jobs)
    }

    fn workers(&self) -> Result<Vec<WorkerRow>, ReadError> {
        self.read(rows::workers)
    }

    fn worker(&self, id: WorkerId) -> Result<Option<WorkerRow>, ReadError> {
        self.read(|connection| rows::worker(connection, id))
    }

    fn worker_named(&self, name: &str) -> Result<Option<WorkerId>, ReadError> {
        self.read(|connection| {
            connection
                .prepare_cached("SELECT id FROM workers WHERE name = ?1 ORDER BY forgotten, id DESC LIMIT 1")?
                .query_row([name], |row| row.get(0))
                .optional()
                .map(|found| found.map(|id: i64| WorkerId(id.cast_unsigned())))
        })
    }

    fn first_with_output(&self, ids: &[JobId], limits: &OutputLimits) -> Result<Option<JobId>, ReadError> {
        self.read(|connection| {
            for id in ids {
                if record::has_output(connection, *id, limits)? {
                    return Ok(Some(*id));
                }
            }
            Ok(None)
        })
    }

    fn was_removed(&self, id: JobId) -> Result<bool, ReadError> {
        self.read(|connection| {
            connection
                .prepare_cached(include_str!("queries/was_removed.sql"))?
                .query_row([id.0.cast_signed()], |row| row.get(0))
        })
    }

    fn last_ended(&self, definition: &str) -> Result<Option<JobRow>, ReadError> {
        self.read(|connection| list::last_ended(connection, definition))
    }

    fn ends_by_hour(&self, since: Timestamp) -> Result<Vec<HourlyEnds>, ReadError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(include_str!("queries/ends_by_hour.sql"))?;
            let hours = statement.query_map([since.0], |row| {
                let (succeeded, failed) = (row.get::<_, i64>(1)?, row.get::<_, i64>(2)?);
                Ok(HourlyEnds {
                    hour: row.get(0)?,
                    succeeded: succeeded.cast_unsigned(),
                    failed: failed.cast_unsigned(),
                })
            })?;
            hours.collect()
        })
    }

    fn schedules(&self) -> Result<ScheduleState, ReadError> {
        self.read(schedules::read)
    }

    fn fires(
        &self,
        definition: &str,
        filter: &FireFilter,
        limit: usize,
    ) -> Result<Vec<FireRecord>, ReadError> {
        self.read(|connection| schedules::fires(connection, definition, filter, limit))
    }

    fn ledger(
        &self,
        definition: &str,
        schedule: &str,
        range: (Timestamp, Timestamp),
        limit: usize,
    ) -> Result<(LedgerReading, GroupNo), ReadError> {
        self.read(|connection| schedules::ledger_as_of(connection, definition, schedule, range, limit))
    }
}
