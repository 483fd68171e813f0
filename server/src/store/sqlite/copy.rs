//! Copies of the store: made from the file that a server may be writing at this moment, examined, and made fit to be gone on with.
//!
//! A copy is of one commit: a read transaction holds its pages in place while they are copied in small steps. The server goes on; the
//! log of its database grows by what it commits meanwhile.

use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use protocol::{ClusterId, Epoch, Fence, JobId, Timestamp, WorkerId};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use scheduler::input::GroupNo;

use super::{faults, migrate, open_reader};
use crate::store::LoadError;

/// Whose store a file is, and how far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// How many migrations were applied.
    pub schema: usize,
    /// The installation.
    pub cluster: ClusterId,
    /// The term of the server that wrote last.
    pub epoch: Epoch,
    /// The last commit.
    pub group: GroupNo,
    /// The highest job number ever given.
    pub last_job: JobId,
    /// The highest fence ever given.
    pub last_fence: Fence,
    /// The highest worker number ever given.
    pub last_worker: WorkerId,
    /// How many jobs had not ended.
    pub live_jobs: u64,
}

/// How far the numbers of jobs and fences are moved on: more than any server gives between a backup and the day it is needed.
pub const NUMBERS_LEFT_OUT: u64 = 1 << 24;
/// How far the epoch and the numbers of workers are moved on: each counts starts, of the server or of new workers.
pub const STARTS_LEFT_OUT: u64 = 1 << 16;

/// Pages of 4 KiB in a step: short enough that a server on the same disk hardly notices it.
const STEP_PAGES: i32 = 256;
/// How long to wait for a file that somebody holds.
const PATIENCE: Duration = Duration::from_secs(10);
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// Copies the store at `from`, as it is at one commit, into the new file `to`, and syncs it.
///
/// # Errors
/// `from` is no store that this build can read, or one of the two files cannot be used.
pub fn copy(from: &Path, to: &Path) -> Result<Identity, LoadError> {
    let failed = |error| faults::of_load(from, error);
    let source = open_reader(from).map_err(failed)?;
    let snapshot = source.unchecked_transaction().map_err(failed)?;
    // The first read decides which commit is seen from here on.
    let identity = identify(&snapshot, from)?;
    let mut copy = Connection::open(to).map_err(|error| faults::of_load(to, error))?;
    copy_pages(&snapshot, &mut copy).map_err(|error| LoadError::Io(Box::new(error)))?;
    drop(snapshot);
    // One file is easier to keep than a file with a log beside it.
    copy.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(()))
        .map_err(|error| faults::of_load(to, error))?;
    drop(copy);
    File::open(to).and_then(|file| file.sync_all()).map_err(|error| LoadError::Io(Box::new(error)))?;
    Ok(identity)
}

fn copy_pages(source: &Connection, copy: &mut Connection) -> rusqlite::Result<()> {
    // Whatever goes wrong, an unfinished copy is thrown away: nothing has to be undone in it.
    copy.pragma_update_and_check(None, "journal_mode", "off", |_| Ok(()))?;
    copy.pragma_update(None, "synchronous", "off")?;
    let backup = Backup::new(source, copy)?;
    let mut waited = Duration::ZERO;
    loop {
        let begun = Instant::now();
        match backup.step(STEP_PAGES)? {
            StepResult::Done => return Ok(()),
            StepResult::Busy | StepResult::Locked if waited < PATIENCE => {
                waited += RETRY_AFTER;
                thread::sleep(RETRY_AFTER);
            }
            // At most every other moment: the disk belongs to the server.
            StepResult::More => thread::sleep(begun.elapsed()),
            _ => return Err(busy()),
        }
    }
}

fn busy() -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
    rusqlite::Error::SqliteFailure(code, Some("somebody else holds the file".to_owned()))
}

/// Reads a store through and through, without changing anything beside or in it.
///
/// # Errors
/// It is damaged, is not ours, is newer than this build, or cannot be read.
pub fn examine(file: &Path) -> Result<Identity, LoadError> {
    let failed = |error| faults::of_load(file, error);
    let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    let identity = identify(&connection, file)?;
    let verdict: String =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(failed)?;
    if verdict == "ok" {
        Ok(identity)
    } else {
        Err(LoadError::Unusable(format!("{} is damaged: {verdict}", file.display())))
    }
}

fn identify(connection: &Connection, file: &Path) -> Result<Identity, LoadError> {
    let failed = |error| faults::of_load(file, error);
    let schema = migrate::version(connection, file)?;
    if schema == 0 {
        return Err(LoadError::Unusable(format!("{} is empty: there is no store in it", file.display())));
    }
    let number = |row: &rusqlite::Row<'_>, name: &str| row.get::<_, i64>(name).map(i64::cast_unsigned);
    connection
        .query_row("SELECT *, (SELECT count(*) FROM jobs) AS live FROM installation", [], |row| {
            Ok(Identity {
                schema,
                cluster: ClusterId(row.get("cluster")?),
                epoch: Epoch(number(row, "epoch")?),
                group: GroupNo(number(row, "committed")?),
                last_job: JobId(number(row, "last_job")?),
                last_fence: Fence(number(row, "last_fence")?),
                last_worker: WorkerId(number(row, "last_worker")?),
                live_jobs: number(row, "live")?,
            })
        })
        .map_err(failed)
}

/// Makes a copy from `made_at` fit to be gone on with: brings it to the schema of this build, raises its epoch, and leaves out all
/// numbers that may have been given since. What it says of itself then.
///
/// # Errors
/// It is damaged, is not ours, is newer than this build, or cannot be written.
pub fn go_on_from(file: &Path, made_at: Timestamp, now: Timestamp) -> Result<Identity, LoadError> {
    let failed = |error| faults::of_load(file, error);
    let mut connection = Connection::open(file).map_err(failed)?;
    migrate::migrate(&mut connection, file)?;
    let transaction = connection.transaction().map_err(failed)?;
    let numbers = NUMBERS_LEFT_OUT.cast_signed();
    transaction
        .execute(
            "INSERT INTO gaps (after, until, at, backup_of, epoch)
             SELECT last_job, last_job + ?1, ?2, ?3, epoch + ?4 FROM installation",
            (numbers, now.0, made_at.0, STARTS_LEFT_OUT.cast_signed()),
        )
        .map_err(failed)?;
    transaction
        .execute(
            "UPDATE installation SET epoch = epoch + ?2, last_job = last_job + ?1, last_fence = last_fence + ?1,
                 last_worker = last_worker + ?2, boot = '', clean = 1",
            (numbers, STARTS_LEFT_OUT.cast_signed()),
        )
        .map_err(failed)?;
    transaction.commit().map_err(failed)?;
    identify(&connection, file)
}
