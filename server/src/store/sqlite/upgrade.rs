//! Steps around a migration of an older store: a copy of the file beside it first, and the space of deleted rows afterwards.
//!
//! The copy is `longshore.db-before-schema-<n>`, one ordinary SQLite file. An operator can go back to the earlier version with it. The
//! first start that finds nothing to migrate deletes it: by then the new version has run and was stopped.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::connections::make_private;
use super::{copy, faults, migrate};
use crate::store::LoadError;

/// Migrates an older store after it was copied; deletes the copy of an earlier upgrade if there is nothing to migrate.
pub(super) fn migrate_with_copy(connection: &mut Connection, file: &Path) -> Result<(), LoadError> {
    let version = migrate::version(connection, file)?;
    if version == migrate::newest() {
        remove_copies(file);
    } else if version > 0 {
        copy_before(file)?;
    }
    migrate::migrate(connection, file)?;
    if version > 0
        && let Err(error) = enable_shrinking(connection)
    {
        tracing::warn!(%error, "the store cannot be rewritten to shrink later; it works as before");
    }
    Ok(())
}

/// The effect of the next start of this build on a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradePlan {
    /// The schema of the file.
    pub schema: usize,
    /// The schema of this build.
    pub newest: usize,
    /// The names of the migrations between the two, in order.
    pub migrations: Vec<&'static str>,
    /// Free bytes that the copy before the migration needs; zero without a migration, or if an earlier start has made the copy.
    pub copy_bytes: u64,
}

/// Plans the upgrade of a store, and changes nothing. A server may be using the file.
///
/// # Errors
/// It is not ours, is newer than this build, was made by another build, or cannot be read.
pub fn plan(file: &Path) -> Result<UpgradePlan, LoadError> {
    let connection = open_unchanged(file).map_err(|error| faults::of_load(file, error))?;
    let schema = migrate::version(&connection, file)?;
    let newest = migrate::newest();
    let needs_copy = (1..newest).contains(&schema) && !copy_of(file, newest).exists();
    let log = file.with_extension("db-wal");
    let bytes = |file: &Path| fs::metadata(file).map_or(0, |found| found.len());
    let copy_bytes = if needs_copy { bytes(file) + bytes(&log) } else { 0 };
    Ok(UpgradePlan { schema, newest, migrations: migrate::missing(schema).collect(), copy_bytes })
}

/// Opens a file for reading. Without a log beside it nobody writes it, and SQLite needs no files of its own either.
fn open_unchanged(file: &Path) -> rusqlite::Result<Connection> {
    let log = fs::metadata(file.with_extension("db-wal")).map_or(0, |log| log.len());
    if log > 0 {
        return Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY);
    }
    let escaped = percent_encoded(file);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(format!("file:{escaped}?immutable=1"), flags)
}

/// A path as a part of a URI.
fn percent_encoded(file: &Path) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-".contains(byte);
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(file.as_os_str());
    bytes
        .iter()
        .map(|byte| if plain(byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// The copy that is made before a migration to this schema.
fn copy_of(file: &Path, schema: usize) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!("{PREFIX}{schema}"));
    name.into()
}

fn copy_before(file: &Path) -> Result<(), LoadError> {
    let to = copy_of(file, migrate::newest());
    let draft = to.with_extension("draft");
    let failed = |error| LoadError::Io(Box::new(error));
    if to.exists() {
        // An earlier start made it, and its migration failed: the file is still as it was.
        return Ok(());
    }
    remove_if_there(&draft).map_err(failed)?;
    make_private(&draft);
    copy::copy(file, &draft).map_err(|error| {
        LoadError::Unusable(format!(
            "cannot copy {} to {} before its upgrade: {error}; make room for a second copy, or move the data directory to a larger disk, and start again",
            file.display(),
            to.display()
        ))
    })?;
    fs::rename(&draft, &to).map_err(failed)?;
    tracing::info!(copy = %to.display(), "copied the store before its upgrade; the next start deletes the copy");
    Ok(())
}

fn remove_copies(file: &Path) {
    let (Some(directory), Some(name)) = (file.parent(), file.file_name().and_then(|name| name.to_str()))
    else {
        return;
    };
    let prefix = format!("{name}{PREFIX}");
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)) {
            match fs::remove_file(entry.path()) {
                Ok(()) => {
                    tracing::info!(copy = %entry.path().display(), "deleted the copy made before the last upgrade")
                }
                Err(error) => {
                    tracing::warn!(%error, copy = %entry.path().display(), "cannot delete the copy made before the last upgrade")
                }
            }
        }
    }
}

fn remove_if_there(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Rewrites a small file of an earlier version so that it can shrink later. A large one would take too long at a start: it stays as it is
/// until an operator stops the server and runs `VACUUM` with `auto_vacuum` set.
fn enable_shrinking(connection: &Connection) -> rusqlite::Result<()> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    if pragma("auto_vacuum")? != 0 || pragma("page_count")? > REWRITE_PAGES_MAX {
        return Ok(());
    }
    connection.pragma_update(None, "auto_vacuum", "incremental")?;
    connection.execute_batch("VACUUM")
}

const PREFIX: &str = "-before-schema-";

/// 64 MiB: rewritten in about a second.
const REWRITE_PAGES_MAX: i64 = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    fn open(file: &Path) -> Connection {
        Connection::open(file).unwrap()
    }

    #[test]
    fn older_store_is_copied_before_its_upgrade_and_the_copy_goes_with_the_next_start() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("longshore.db");
        let mut connection = open(&file);
        let older = migrate::newest() - 1;
        migrate::migrate_to(&mut connection, &file, older);
        migrate_with_copy(&mut connection, &file).unwrap();
        let copy = copy_of(&file, migrate::newest());
        assert_eq!(migrate::version(&open(&copy), &copy).unwrap(), older, "as it was");
        assert_eq!(migrate::version(&connection, &file).unwrap(), migrate::newest());
        drop(connection);
        migrate_with_copy(&mut open(&file), &file).unwrap();
        assert!(!copy.exists());
    }

    /// Names, lengths and times of all files.
    fn files(directory: &Path) -> Vec<(std::ffi::OsString, u64, std::time::SystemTime)> {
        let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
        let facts = |entry: fs::DirEntry| {
            let found = entry.metadata().unwrap();
            (entry.file_name(), found.len(), found.modified().unwrap())
        };
        let mut files: Vec<_> = entries.map(facts).collect();
        files.sort();
        files
    }

    #[test]
    fn plan_names_the_steps_and_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        // A character that is not plain in a URI.
        let directory = directory.path().join("a ?#%");
        fs::create_dir(&directory).unwrap();
        let file = directory.join("longshore.db");
        let mut connection = open(&file);
        connection.pragma_update(None, "journal_mode", "wal").unwrap();
        migrate::migrate_to(&mut connection, &file, migrate::newest() - 2);
        let with_log = plan(&file).unwrap();
        assert_eq!(with_log.migrations.len(), 2, "the log of an open store is read: {with_log:?}");
        drop(connection);
        let before = files(&directory);
        assert_eq!(before.len(), 1, "{before:?}");
        let planned = plan(&file).unwrap();
        assert_eq!(files(&directory), before);
        assert_eq!((planned.schema, planned.newest), (migrate::newest() - 2, migrate::newest()));
        assert_eq!(planned.copy_bytes, before[0].1);
        let names: Vec<&str> = migrate::missing(planned.schema).collect();
        assert_eq!(planned.migrations, names);
        migrate_with_copy(&mut open(&file), &file).unwrap();
        let planned = plan(&file).unwrap();
        assert_eq!((planned.migrations.len(), planned.copy_bytes), (0, 0));
    }

    #[test]
    fn plan_refuses_a_newer_store() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("longshore.db");
        let mut connection = open(&file);
        migrate_with_copy(&mut connection, &file).unwrap();
        let newer = i64::try_from(migrate::newest()).unwrap() + 1;
        connection.pragma_update(None, "user_version", newer).unwrap();
        drop(connection);
        let refusal = plan(&file).unwrap_err().to_string();
        assert!(refusal.contains("written by a newer Longshore"), "{refusal}");
    }

    #[test]
    fn new_store_needs_no_copy() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("longshore.db");
        migrate_with_copy(&mut open(&file), &file).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn older_small_store_can_shrink_after_its_upgrade() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("longshore.db");
        let mut connection = open(&file);
        migrate::migrate_to(&mut connection, &file, migrate::newest() - 1);
        connection.execute_batch("PRAGMA auto_vacuum = none; VACUUM").unwrap();
        migrate_with_copy(&mut connection, &file).unwrap();
        let mode: i64 = connection.pragma_query_value(None, "auto_vacuum", |row| row.get(0)).unwrap();
        assert_eq!(mode, 2, "incremental");
    }
}
