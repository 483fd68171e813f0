//! Copies of the store: made from the file that a server may be writing at this moment, examined, and made fit to be gone on with.
//!
//! A copy is of one commit: a read transaction holds its pages in place while they are copied in small steps. The server goes on; the
//! log of its database grows by what it commits meanwhile.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use protocol::{ClusterId, Epoch, Fence, JobId, Timestamp, WorkerId};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};
use scheduler::ids::GroupNo;

use super::connections::{make_private, open_reader};
use super::{faults, migrate, schedules};
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
/// How much further for each second since the backup, where nobody knows who has gone on from it: as many as a server gives in that
/// time, so that restoring the same backup once more does not give the same numbers again.
const NUMBERS_A_SECOND: u64 = 1 << 17;
/// Likewise of starts.
const STARTS_A_SECOND: u64 = 1 << 6;

/// Pages of 4 KiB in a step: short enough that a server on the same disk hardly notices it.
const STEP_PAGES: i32 = 256;
/// How long to wait for a file that somebody holds.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// The side on which a copy failed.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The store cannot be read.
    #[error(transparent)]
    Source(#[from] LoadError),
    /// The copy cannot be written.
    #[error("cannot write the copy: {0}")]
    Target(Box<dyn std::error::Error + Send + Sync>),
}

/// True if a copy cannot be written because there is no room for it.
pub fn is_full(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    let of_sqlite = error.downcast_ref().and_then(rusqlite::Error::sqlite_error_code);
    let of_file = error.downcast_ref().map(std::io::Error::kind);
    of_sqlite == Some(ErrorCode::DiskFull)
        || matches!(of_file, Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
}

/// Copies the store at `from`, as it is at one commit, into the new file `to`, and syncs it.
///
/// # Errors
/// `from` is no store that this build can read, or one of the two files cannot be used.
pub fn copy(from: &Path, to: &Path) -> Result<Identity, CopyError> {
    let failed = |error| CopyError::Source(faults::of_load(from, error));
    let unwritten = |error| CopyError::Target(Box::new(error));
    let source = open_reader(from).map_err(failed)?;
    let snapshot = source.unchecked_transaction().map_err(failed)?;
    // The first read decides which commit is seen from here on.
    let identity = identify(&snapshot, from)?;
    make_private(to);
    let mut copy = Connection::open(to).map_err(unwritten)?;
    prepare(&copy).map_err(unwritten)?;
    copy_pages(&snapshot, &mut copy).map_err(|error| match is_of_target(&error) {
        true => unwritten(error),
        false => LoadError::Io(Box::new(error)).into(),
    })?;
    drop(snapshot);
    // One file is easier to keep than a file with a log beside it.
    copy.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(())).map_err(unwritten)?;
    drop(copy);
    File::open(to).and_then(|file| file.sync_all()).map_err(|error| CopyError::Target(Box::new(error)))?;
    Ok(identity)
}

/// The source is only read, so a write that failed is one of the copy.
fn is_of_target(error: &rusqlite::Error) -> bool {
    let Some(error) = error.sqlite_error() else { return false };
    matches!(error.code, ErrorCode::DiskFull | ErrorCode::ReadOnly | ErrorCode::CannotOpen)
        || [ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_TRUNCATE]
            .contains(&error.extended_code)
}

/// Whatever goes wrong, an unfinished copy is thrown away: nothing has to be undone in it.
fn prepare(copy: &Connection) -> rusqlite::Result<()> {
    copy.pragma_update_and_check(None, "journal_mode", "off", |_| Ok(()))?;
    copy.pragma_update(None, "synchronous", "off")
}

fn copy_pages(source: &Connection, copy: &mut Connection) -> rusqlite::Result<()> {
    let backup = Backup::new(source, copy)?;
    let mut waited = Duration::ZERO;
    loop {
        let begun = Instant::now();
        match backup.step(STEP_PAGES)? {
            StepResult::Done => return Ok(()),
            StepResult::Busy | StepResult::Locked if waited < WAIT_TIMEOUT => {
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
    let code = ffi::Error::new(ffi::SQLITE_BUSY);
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

/// Reads the identity of a store that no server writes, without checking its pages.
///
/// # Errors
/// It is damaged, is not ours, is newer than this build, or cannot be read.
pub fn identity(file: &Path) -> Result<Identity, LoadError> {
    let connection = open_reader(file).map_err(|error| faults::of_load(file, error))?;
    identify(&connection, file)
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

impl Identity {
    /// True if this store may have given every number that `earlier` has given, and more.
    fn has_gone_on_from(&self, earlier: &Self) -> bool {
        self.cluster == earlier.cluster
            && self.epoch >= earlier.epoch
            && self.last_job >= earlier.last_job
            && self.last_fence >= earlier.last_fence
            && self.last_worker >= earlier.last_worker
    }

    /// Moves all counters beyond what a store that went on from this one, of this age, has given: beyond `present` if that is such a
    /// one, else beyond all that can have been given in that time.
    fn go_beyond(&mut self, present: Option<&Self>, age: Duration) {
        let present = present.filter(|present| present.has_gone_on_from(self));
        let unseen = if present.is_some() { 0 } else { age.as_secs() };
        let numbers = NUMBERS_LEFT_OUT.saturating_add(unseen.saturating_mul(NUMBERS_A_SECOND));
        let starts = STARTS_LEFT_OUT.saturating_add(unseen.saturating_mul(STARTS_A_SECOND));
        let from = *present.unwrap_or(self);
        let beyond = |last: u64, by: u64| last.saturating_add(by).min(i64::MAX.cast_unsigned());
        self.last_job = JobId(beyond(from.last_job.0, numbers));
        self.last_fence = Fence(beyond(from.last_fence.0, numbers));
        self.last_worker = WorkerId(beyond(from.last_worker.0, starts));
        self.epoch = Epoch(beyond(from.epoch.0, starts));
    }
}

/// Makes a copy from `made_at` fit to be gone on with: brings it to the schema of this build, raises its epoch, and leaves out all
/// numbers that may have been given since, by the store whose place it takes (`present`) or, if there is none that has gone on from
/// it, by anyone. What it says of itself then.
///
/// # Errors
/// It is damaged, is not ours, is newer than this build, or cannot be written.
pub fn go_on_from(
    file: &Path,
    made_at: Timestamp,
    now: Timestamp,
    present: Option<&Identity>,
) -> Result<Identity, LoadError> {
    let failed = |error| faults::of_load(file, error);
    let mut connection = Connection::open(file).map_err(failed)?;
    migrate::migrate(&mut connection, file)?;
    let mut next = identify(&connection, file)?;
    next.go_beyond(present, Duration::from_millis(now.0.saturating_sub(made_at.0).try_into().unwrap_or(0)));
    let (epoch, last_job) = (next.epoch.0.cast_signed(), next.last_job.0.cast_signed());
    let transaction = connection.transaction().map_err(failed)?;
    transaction
        .execute(
            "INSERT INTO gaps (after, until, at, backup_of, epoch)
             SELECT last_job, ?1, ?2, ?3, ?4 FROM installation",
            (last_job, now.0, made_at.0, epoch),
        )
        .map_err(failed)?;
    transaction
        .execute(
            "UPDATE installation SET epoch = ?1, last_job = ?2, last_fence = ?3, last_worker = ?4, boot = '', clean = 1",
            (epoch, last_job, next.last_fence.0.cast_signed(), next.last_worker.0.cast_signed()),
        )
        .map_err(failed)?;
    schedules::go_on_at(&transaction, now).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    identify(&connection, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn identity(cluster: u32, given: u64) -> Identity {
        Identity {
            schema: 1,
            cluster: ClusterId(cluster),
            epoch: Epoch(given),
            group: GroupNo(given),
            last_job: JobId(given),
            last_fence: Fence(given),
            last_worker: WorkerId(given),
            live_jobs: 0,
        }
    }

    /// Jobs, fences, workers, epochs.
    fn beyond(mut backup: Identity, present: Option<Identity>, age: Duration) -> [u64; 4] {
        backup.go_beyond(present.as_ref(), age);
        [backup.last_job.0, backup.last_fence.0, backup.last_worker.0, backup.epoch.0]
    }

    #[test]
    fn numbers_go_on_beyond_those_of_the_store_that_is_replaced() {
        let (numbers, starts) = (NUMBERS_LEFT_OUT, STARTS_LEFT_OUT);
        let present = identity(1, 20_000_000);
        let expected = [20_000_000 + numbers, 20_000_000 + numbers, 20_000_000 + starts, 20_000_000 + starts];
        assert_eq!(beyond(identity(1, 5), Some(present), DAY), expected, "however old the backup is");
    }

    #[test]
    fn a_later_restore_skips_more_ids_if_the_successor_is_unknown() {
        let first = beyond(identity(1, 5), None, DAY);
        let given_meanwhile = 1_000 * 60;
        let second = beyond(identity(1, 5), None, DAY + Duration::from_secs(60));
        assert!(second[0] > first[0] + given_meanwhile && second[1] > first[1] + given_meanwhile);
        assert!(second[2] > first[2] + 60 && second[3] > first[3] + 60, "{first:?}, {second:?}");
        for other in [identity(2, 20_000_000), identity(1, 4)] {
            assert_eq!(beyond(identity(1, 5), Some(other), DAY), first, "{other:?} is no successor of it");
        }
    }

    #[test]
    fn no_number_leaves_what_a_store_can_hold() {
        let last = i64::MAX.cast_unsigned();
        assert_eq!(beyond(identity(1, last - 5), None, Duration::MAX), [last; 4]);
    }
}
