//! Files that are left in a data directory after something went wrong or was done by an operator. `longshore doctor` counts them, and
//! maintenance deletes them when they are old.
//!
//! | files | left by | deleted after |
//! |---|---|---|
//! | `replaced-*` | `longshore restore --replace` | 30 days |
//! | `refused-group-*.txt` | a group that the store refused | 30 days |
//! | `*.draft`, `logs/*.idx-draft`, `*.unfinished` | a process that was killed while it wrote them | 1 day |

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::Timestamp;

/// The kind of a leftover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeftoverKind {
    /// A store that a restore has replaced.
    ReplacedStore,
    /// The report of a refused group.
    RefusedGroup,
    /// A file that was not finished.
    Draft,
}

/// A file or directory that is left over.
#[derive(Clone, Debug)]
pub(crate) struct Leftover {
    pub(crate) kind: LeftoverKind,
    pub(crate) path: PathBuf,
    /// The time of its last change.
    pub(crate) changed: Timestamp,
}

impl Leftover {
    /// Its size, with everything in it.
    pub(crate) fn bytes(&self) -> u64 {
        bytes(&self.path)
    }
}

/// Lists the leftovers in a data directory.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn find(data: &Path) -> io::Result<Vec<Leftover>> {
    let mut found = Vec::new();
    for (directory, is_logs) in [(data.to_owned(), false), (data.join("logs"), true)] {
        let entries = match fs::read_dir(&directory) {
            Err(error) if is_logs && error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let Some(kind) = name.to_str().and_then(|name| kind(name, is_logs)) else { continue };
            // Another process may have deleted it meanwhile.
            let Ok(changed) = entry.metadata().and_then(|metadata| metadata.modified()) else { continue };
            found.push(Leftover { kind, path: entry.path(), changed: timestamp(changed) });
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

fn kind(name: &str, is_logs: bool) -> Option<LeftoverKind> {
    match name {
        _ if is_logs => name.ends_with(".idx-draft").then_some(LeftoverKind::Draft),
        _ if name.starts_with("replaced-") => Some(LeftoverKind::ReplacedStore),
        _ if name.starts_with("refused-group-") => Some(LeftoverKind::RefusedGroup),
        _ if name.ends_with(".unfinished") => Some(LeftoverKind::Draft),
        _ if name.ends_with(".draft") && DRAFTS_OF.iter().any(|file| name.starts_with(file)) => {
            Some(LeftoverKind::Draft)
        }
        _ => None,
    }
}

/// Deletes leftovers that are old at this time, and returns how many that were. A file that cannot be deleted is logged and left.
pub(super) fn remove_old(data: &Path, now: Timestamp) -> usize {
    let found = find(data).unwrap_or_else(|error| {
        tracing::warn!(%error, directory = %data.display(), "cannot list leftovers");
        Vec::new()
    });
    let is_old = |leftover: &&Leftover| now.since(leftover.changed) >= kept_for(leftover.kind);
    let mut removed = 0;
    for leftover in found.iter().filter(is_old) {
        let path = &leftover.path;
        let result = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        match result {
            Ok(()) => {
                tracing::info!(path = %path.display(), "deleted an old leftover");
                removed += 1;
            }
            Err(error) => tracing::warn!(%error, path = %path.display(), "cannot delete an old leftover"),
        }
    }
    removed
}

const fn kept_for(kind: LeftoverKind) -> Duration {
    match kind {
        LeftoverKind::ReplacedStore | LeftoverKind::RefusedGroup => Duration::from_secs(30 * DAY),
        // No process writes a draft for so long.
        LeftoverKind::Draft => Duration::from_secs(DAY),
    }
}

const DAY: u64 = 86_400;

fn bytes(path: &Path) -> u64 {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => {
            fs::read_dir(path).into_iter().flatten().flatten().map(|entry| bytes(&entry.path())).sum()
        }
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    }
}

/// Beginnings of the names of files that are replaced as a whole.
const DRAFTS_OF: [&str; 4] = ["accepted-jobs", "admin", "longshore.db", "refused-inputs"];

fn timestamp(time: SystemTime) -> Timestamp {
    let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_leftovers_are_deleted_and_everything_else_stays() {
        let data = tempfile::tempdir().unwrap();
        let leftovers = [
            "logs/0000000001.idx-draft",
            "next.unfinished/unfinished",
            "refused-group-7.txt",
            "refused-inputs.draft",
            "accepted-jobs.draft",
            "replaced-2026-01-01/longshore.db",
        ];
        let others =
            ["longshore.db", "longshore.db-wal", "refused-inputs.txt", "notes.draft", "logs/0000000001.idx"];
        for name in leftovers.iter().chain(&others) {
            let path = data.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "text").unwrap();
        }
        let found = find(data.path()).unwrap();
        assert_eq!(found.len(), 6, "{found:?}");
        assert!(found.iter().all(|it| it.bytes() == 4), "{found:?}");
        let now = timestamp(SystemTime::now());
        let days = |days: u64| now + Duration::from_secs(days * DAY);
        assert_eq!(remove_old(data.path(), now), 0);
        assert_eq!(remove_old(data.path(), days(2)), 4, "the drafts");
        assert_eq!(remove_old(data.path(), days(31)), 2);
        assert!(others.iter().all(|name| data.path().join(name).exists()));
    }
}
