//! Decides if a directory may become a data directory: it is empty, or holds only files of a server, a restore or a backup.
//!
//! A first start that was killed leaves `lock`, then the database and what SQLite has beside it, then `logs`: each alone is ours. A
//! directory in which the database was lost, or moved aside, is ours too: a restore must be able to go there.

use std::fs;
use std::io;
use std::path::Path;

use super::file_names::{ADMIN_TOKEN, DATABASE, FAILED_BACKUP, LAST_BACKUP, RESTORING};
use crate::storage;

/// Lists files in a directory that do not belong to Longshore, a few names at most. Empty: the directory may be taken.
pub(super) fn list(directory: &Path) -> io::Result<Vec<String>> {
    // A directory with a store is accepted with other files beside it; opening checks the store itself. While a restore goes on
    // there may be none.
    if [DATABASE, RESTORING].iter().any(|name| directory.join(name).symlink_metadata().is_ok()) {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !is_ours(&name) && !is_backup(&entry.path()) {
            found.push(name);
        }
    }
    found.sort_unstable();
    let more = found.len().saturating_sub(NAMES_MAX);
    found.truncate(NAMES_MAX);
    if more > 0 {
        found.push(format!("{more} more"));
    }
    Ok(found)
}

/// True if a server, a restore or SQLite makes files with this name.
pub(super) fn is_ours(name: &str) -> bool {
    name == DATABASE
        || OURS.contains(&name)
        || OUR_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// Backups may be made within the data directory, or in a directory for them: in a container it is the only volume.
fn is_backup(entry: &Path) -> bool {
    let is_one = |path: &Path| ["backup.json", "unfinished"].iter().any(|file| path.join(file).is_file());
    let mut within = fs::read_dir(entry).into_iter().flatten().flatten().map(|it| it.path()).peekable();
    is_one(entry) || (within.peek().is_some() && within.all(|path| is_one(&path)))
}

/// `lost+found` is the file system's: a disk of its own has it. Before a restore the first administrator's token may be put back.
const OURS: [&str; 5] = ["lock", "logs", storage::RESERVE, "lost+found", ADMIN_TOKEN];
/// Files of SQLite beside the database, stores that a restore replaced, copies before an upgrade, reports of refused groups, the
/// accepted jobs file, and the records of the last complete and the last failed backup with their drafts.
const OUR_BEGINNINGS: [&str; 7] = [
    "longshore.db-",
    "replaced-",
    "refused-group-",
    "refused-inputs.",
    "accepted-jobs.",
    LAST_BACKUP,
    FAILED_BACKUP,
];

/// Enough to know which directory it is.
const NAMES_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn with(names: &[&str]) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for name in names {
            let path = place.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        place
    }

    #[test]
    fn a_directory_is_taken_if_it_is_empty_or_ours_at_any_moment_of_a_first_start() {
        for names in [
            &[][..],
            &["lost+found/x"],
            &["lock"],
            &["lock", "longshore.db"],
            &["admin.token"],
            &["lock", "longshore.db-wal", "longshore.db-shm", "logs/1.seg"],
            &["lock", "restoring/x", "replaced-2026-11-20/longshore.db"],
            &["last-backup.json", "failed-backup.json"],
            &["refused-inputs.txt", "ballast", "refused-group-7.txt", "accepted-jobs.json"],
            &["backup-2026-11-20/backup.json", "next.unfinished/unfinished"],
            &["lock", "backups/2026-11-20/backup.json", "backups/2026-11-21/backup.json"],
            // A server is at home here already.
            &["longshore.db", "notes.txt"],
            &["restoring/x", "notes.txt"],
        ] {
            assert!(list(with(names).path()).unwrap().is_empty(), "{names:?}");
        }
    }

    #[test]
    fn foreign_files_are_named_a_few_at_most() {
        let place = with(&["lock", "passwd", "group", "hosts", "fstab", "motd", "ssh/keys"]);
        assert_eq!(list(place.path()).unwrap(), ["fstab", "group", "hosts", "motd", "2 more"]);
        assert_eq!(list(with(&[".gitkeep"]).path()).unwrap(), [".gitkeep"]);
    }
}
