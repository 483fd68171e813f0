//! The store on SQLite: one file, one writer connection, a pool of readers.
//!
//! Live jobs are rows of `jobs`, each with its latest attempt inside; a job that ends moves to `ended`. What a group does to one job
//! is folded into one write, and each write says what the row must have been before.
//!
//! Durability: write-ahead log with `synchronous=FULL`, so a commit is synced when it returns. No memory map: an I/O error must come
//! as an error, not as a signal.

mod access;
mod archive;
mod batches;
mod blocks;
mod checkpointer;
mod codes;
mod connections;
pub mod copy;
mod definition_changes;
mod deliveries;
mod dependencies;
mod expectations;
mod failures;
mod faults;
mod gpus;
mod hooks;
mod installation;
mod interventions;
mod json_column;
mod keys;
mod limits;
mod list;
mod load;
mod member_counts;
mod migrate;
mod notes;
mod notifications;
mod param_rows;
mod pauses;
mod pending_batch;
mod positions;
mod predecessor_ends;
mod record;
mod repeatable;
mod reserve;
mod rows;
mod run_on;
mod schedules;
mod slots;
mod unique;
pub mod upgrade;
mod upkeep;
mod usage_column;
mod wal;
mod wal_state;
mod write;

use std::path::PathBuf;
use std::sync::Arc;

use protocol::Epoch;
use rusqlite::Connection;

pub use archive::SqliteArchive;

use super::directory::DataDirectory;
use super::{
    CommitError, DefinitionRemoval, Group, LoadError, LoadItem, Loaded, RecordChange, Removed,
    RetentionCutoffs, Store,
};
use crate::rfc3339::Time;
use checkpointer::Checkpointer;
use connections::{make_private, refuse_unsafe_library, set_up_writer};
use write::WriteCache;

/// The write side. See [`open`].
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    directory: Arc<DataDirectory>,
    known: WriteCache,
    upkeep: upkeep::Upkeep,
    /// The term that this store was loaded under, as long as it may close the file in good order.
    loaded: Option<Epoch>,
}

/// Opens the store in this directory, making it if there is none. Both sides keep the directory taken.
///
/// # Errors
/// The file is damaged, is not ours, is newer than this build, or cannot be written: each named with what to do.
pub fn open(directory: &Arc<DataDirectory>) -> Result<(SqliteStore, SqliteArchive), LoadError> {
    refuse_unsafe_library(rusqlite::version_number())?;
    reserve::make_room(directory.path());
    let file = directory.database();
    let failed = |error| faults::of_load(&file, error);
    make_private(&file);
    let mut connection = Connection::open(&file).map_err(failed)?;
    upgrade::migrate_with_copy(&mut connection, &file)?;
    set_up_writer(&connection).map_err(failed)?;
    upkeep::move_log(&connection).map_err(failed)?;
    let archive = SqliteArchive::open(&file, Arc::clone(directory))?;
    let checkpointer = Checkpointer::start(&file, archive.file())?;
    let log = wal::WalKeeper::new(checkpointer, archive.pool());
    let store = SqliteStore {
        connection,
        directory: Arc::clone(directory),
        known: WriteCache::default(),
        upkeep: upkeep::Upkeep::new(directory.path(), log),
        loaded: None,
    };
    Ok((store, archive))
}

/// A store in a temporary directory, and its read side.
#[cfg(test)]
pub(crate) fn temporary() -> (SqliteStore, Arc<SqliteArchive>) {
    let (store, archive) = open(&DataDirectory::temporary()).unwrap();
    (store, Arc::new(archive))
}

impl Store for SqliteStore {
    fn load(&mut self, visit: &mut dyn FnMut(LoadItem<'_>)) -> Result<Loaded, LoadError> {
        let file = self.file();
        let removed = pending_batch::remove_unfinished(&mut self.connection)
            .map_err(|error| faults::of_load(&file, error))?;
        if removed > 0 {
            tracing::info!(jobs = removed, "removed what was made of a batch that nobody was promised");
        }
        let (loaded, notes) =
            load::load(&mut self.connection, visit).map_err(|error| error.into_load(&file))?;
        if let Some(restored) = notes.restored {
            tracing::warn!(
                backup_of = %Time(restored.backup_of),
                last_job = restored.last_job.0,
                "this store was restored from a backup: jobs accepted after it are not known here, and what ended after it may run again"
            );
        }
        if notes.crashed {
            upkeep::check_in_background(file);
        }
        // The removal may have deleted cached rows.
        self.known.forget();
        self.loaded = Some(loaded.epoch);
        Ok(loaded)
    }

    fn commit(&mut self, group: &Group) -> Result<(), CommitError> {
        let mut result = write::commit(&self.connection, &mut self.known, group);
        if result.as_ref().is_err_and(faults::is_full) && self.upkeep.reserve.release() {
            result = write::commit(&self.connection, &mut self.known, group);
        }
        if result.is_ok() {
            self.upkeep.committed(&self.connection, group.changes.len())?;
        }
        if matches!(result, Err(CommitError::Fatal(_))) {
            // The next start reads what the disk holds.
            self.loaded = None;
        }
        result
    }

    fn remove(&mut self, epoch: Epoch, cutoffs: &RetentionCutoffs) -> Result<Removed, CommitError> {
        let removed = write::remove(&self.connection, &mut self.known, epoch, cutoffs)?;
        self.upkeep.committed(&self.connection, usize::try_from(removed.jobs).unwrap_or(usize::MAX))?;
        Ok(removed)
    }

    fn remove_by_definition(
        &mut self,
        epoch: Epoch,
        removal: &DefinitionRemoval,
    ) -> Result<Removed, CommitError> {
        let removed = write::remove_by_definition(&self.connection, &mut self.known, epoch, removal)?;
        self.upkeep.committed(&self.connection, usize::try_from(removed.jobs).unwrap_or(usize::MAX))?;
        Ok(removed)
    }

    // The reserve is for the reports of workers: a change of a record is refused on a full disk, and its caller tries again or is told.
    fn change_record(&mut self, epoch: Epoch, change: &RecordChange) -> Result<(), CommitError> {
        write::change_record(&self.connection, &mut self.known, epoch, change)?;
        self.upkeep.committed(&self.connection, 1)
    }

    fn manage_space(&mut self) -> Result<(), CommitError> {
        self.upkeep.manage_space(&self.connection)
    }

    fn idle(&mut self) -> Result<(), CommitError> {
        self.upkeep.idle(&self.connection)
    }
}

impl SqliteStore {
    fn file(&self) -> PathBuf {
        self.directory.database()
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // If the disk failed, the next start reads what it holds from the log.
        if let (Some(epoch), Ok(())) = (self.loaded, self.upkeep.wal.wait_idle()) {
            upkeep::close(&self.connection, epoch);
        }
    }
}

#[cfg(test)]
mod tests;
