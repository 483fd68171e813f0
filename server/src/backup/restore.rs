//! Restoring: a backup takes the place of the store in a data directory that no server has.
//!
//! Everything is made ready in `restoring` within the data directory, checked there, and moved to its place last. As long as
//! `restoring` is there no server starts: a restore that was broken off is seen, and done again.

use std::fs;
use std::path::{Path, PathBuf};

use protocol::Timestamp;

use super::files::{copy, copy_owner, make_private, sync_names};
use super::{BackupError, LOGS, Manifest, STORE, io};
use crate::clock;
use crate::rfc3339::Time;
use crate::store::directory::DataDirectory;
use crate::store::file_names::{FAILED_BACKUP, LAST_BACKUP, RESTORING};
use crate::store::sqlite::copy::{self as store, Identity};

/// The result of a restore.
#[derive(Clone, Debug)]
pub struct Restored {
    /// Of what.
    pub manifest: Manifest,
    /// The identity of the restored store.
    pub identity: Identity,
    /// The directory that now holds the store that was replaced.
    pub aside: Option<PathBuf>,
    /// Why nobody knows which numbers the store has given that was there before.
    pub unread: Option<String>,
}

/// Puts the backup `from` into the data directory `data`, so that the next start goes on from it. With `replace`, a store that is
/// there already is moved aside within the directory; nothing of it is deleted. No number is given again that it has given, nor one that
/// was given after an earlier restore of the same backup: as far as that store tells, or else the time that has passed since.
///
/// # Errors
/// A server has the directory, there is a store in it, or other things and no store, the backup is damaged or newer than this build, or a file operation
/// failed. If anything was moved by then, doing it again finishes it.
pub fn restore(from: &Path, data: &Path, replace: bool) -> Result<Restored, BackupError> {
    let manifest = Manifest::read(from)?;
    let lock = data.join("lock");
    let (has_directory, has_lock) = (data.exists(), lock.exists());
    let directory = DataDirectory::take_for_restore(data)?;
    let result = restore_locked(from, manifest, data, replace);
    if result.is_err() && !has_lock && !data.join(RESTORING).exists() {
        // Nothing of it is needed to do the restore again.
        let _ = fs::remove_file(lock);
        if !has_directory {
            let _ = fs::remove_dir(data);
        }
    }
    drop(directory);
    result
}

/// As [`restore`]; the caller holds the lock of the data directory.
fn restore_locked(
    from: &Path,
    manifest: Manifest,
    data: &Path,
    replace: bool,
) -> Result<Restored, BackupError> {
    let existing = existing_parts(data);
    if !existing.is_empty() && !replace {
        let text = format!(
            "{} has a store: choose another directory, or move it aside with --replace (nothing of it is deleted)",
            data.display()
        );
        return Err(BackupError::Occupied(text));
    }
    let (present, unread) = match data.join(STORE) {
        store if !store.exists() => (None, None),
        store => store::identity(&store)
            .map_or_else(|error| (None, Some(error.to_string())), |it| (Some(it), None)),
    };
    // Reading a store may leave files beside it.
    let existing = existing_parts(data);
    let draft = data.join(RESTORING);
    let was_broken_off = draft.exists();
    let now = clock::now().utc;
    let identity = prepare(from, &manifest, &draft, now, present.as_ref()).inspect_err(|_| {
        if !was_broken_off {
            // The store that was there is unchanged: it may be started again.
            let _ = fs::remove_dir_all(&draft);
        }
    })?;
    let lock = data.join("lock");
    for ours in [&draft, &lock] {
        copy_owner(data, ours).map_err(io("give away", ours))?;
    }
    sync_names(data).map_err(io("sync", data))?;
    // The records are of the store that was there. They go first: if the restore is broken off, the parts after them are moved the next time.
    let records = [LAST_BACKUP, FAILED_BACKUP].into_iter().filter(|record| data.join(record).exists());
    let replaced: Vec<&str> = records.chain(existing).collect();
    let aside = if replaced.is_empty() { None } else { Some(move_aside(data, &replaced, now)?) };
    move_in(data, &draft)?;
    Ok(Restored { manifest, identity, aside, unread })
}

/// The parts of a store.
const PARTS: [&str; 4] = [STORE, "longshore.db-wal", "longshore.db-shm", LOGS];

fn existing_parts(data: &Path) -> Vec<&'static str> {
    PARTS.into_iter().filter(|part| data.join(part).symlink_metadata().is_ok()).collect()
}

/// Copies the backup, proves that it is what it was, and makes it fit to be gone on with.
fn prepare(
    from: &Path,
    manifest: &Manifest,
    draft: &Path,
    now: Timestamp,
    present: Option<&Identity>,
) -> Result<Identity, BackupError> {
    let logs = draft.join(LOGS);
    for directory in [draft, &logs] {
        if directory.exists() {
            fs::remove_dir_all(directory).map_err(io("remove", directory))?;
        }
        make_private(directory).map_err(io("make", directory))?;
    }
    for file in &manifest.files {
        let source = from.join(&file.name);
        let target = draft.join(&file.name);
        let copied = copy(&file.name, &source, &target).map_err(|error| error.of(&source, &target))?;
        if copied != *file {
            return Err(BackupError::Damaged(format!(
                "{} is not what it was when the backup was made: its size or its SHA-256 differs",
                source.display()
            )));
        }
    }
    let database = draft.join(STORE);
    store::examine(&database)?;
    let Time(made_at) = manifest.made_at;
    let identity = store::go_on_from(&database, made_at, now, present)?;
    for directory in [&logs, draft] {
        sync_names(directory).map_err(io("sync", directory))?;
    }
    Ok(identity)
}

/// Moves a store into a directory of its own, beside the new one.
fn move_aside(data: &Path, parts: &[&str], now: Timestamp) -> Result<PathBuf, BackupError> {
    let name = format!("replaced-{}", Time(now)).replace(':', "-");
    let aside = data.join(name);
    make_private(&aside).map_err(io("make", &aside))?;
    copy_owner(data, &aside).map_err(io("give away", &aside))?;
    for part in parts {
        let (from, to) = (data.join(part), aside.join(part));
        fs::rename(&from, &to).map_err(io("move", &from))?;
    }
    for directory in [&aside, data] {
        sync_names(directory).map_err(io("sync", directory))?;
    }
    Ok(aside)
}

fn move_in(data: &Path, draft: &Path) -> Result<(), BackupError> {
    for part in [LOGS, STORE] {
        let from = draft.join(part);
        fs::rename(&from, data.join(part)).map_err(io("move", &from))?;
    }
    sync_names(data).map_err(io("sync", data))?;
    fs::remove_dir(draft).map_err(io("remove", draft))?;
    sync_names(data).map_err(io("sync", data))
}
