//! Taking a backup. It is made beside its place and moved there when it is whole, so a name never stands for half of one.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, RenameFlags, flock};
use rustix::io::Errno;

use super::files::{self, copy, describe, make_private, sync_names};
use super::{BackupError, FileEntry, LOGS, Manifest, STORE, io};
use crate::clock;
use crate::rfc3339::Time;
use crate::store::LoadError;
use crate::store::sqlite::copy::{self as store, CopyError};

/// Takes a backup of the store in the data directory `data` into the new directory `to`, and reads the copy through. A server may be
/// at work there. With `force` a backup that is at `to` already is replaced; it stays whole until the new one is.
///
/// # Errors
/// There is no store that this build can read, `to` is taken, or a file operation failed; nothing is left behind at `to`.
pub fn take(data: &Path, to: &Path, force: bool) -> Result<Manifest, BackupError> {
    let database = data.join(STORE);
    if !database.exists() {
        let text = format!("there is no store in {}", data.display());
        return Err(LoadError::Unusable(text).into());
    }
    let place = Target::find(to, force)?;
    copy_into(data, &database, &place).map_err(|error| place.fault(error))
}

fn copy_into(data: &Path, database: &Path, place: &Target) -> Result<Manifest, BackupError> {
    let draft = Draft::begin(place.draft())?;
    let made_at = Time(clock::now().utc);
    let copied = draft.path.join(STORE);
    let identity = store::copy(database, &copied).map_err(|error| match error {
        CopyError::Source(error) => error.into(),
        CopyError::Target(error) if store::is_full(&*error) => {
            BackupError::TargetFull { to: place.to.clone() }
        }
        CopyError::Target(source) => BackupError::Target { to: place.to.clone(), source },
    })?;
    let mut files = vec![describe(STORE, &copied).map_err(io("read", &copied))?];
    files.extend(copy_output(&data.join(LOGS), &draft.path.join(LOGS))?);
    let seen = store::examine(&copied)?;
    if seen != identity {
        let text = format!("the copy at {} is not what was copied", copied.display());
        return Err(LoadError::Unusable(text).into());
    }
    let manifest = Manifest::new(made_at, identity, files);
    manifest.write(&draft.path)?;
    draft.finish(place)?;
    Ok(manifest)
}

/// The directory that a backup will have.
struct Target {
    /// Its path, as the caller named it.
    to: PathBuf,
    parent: PathBuf,
    name: String,
    /// True if a backup is there that will be replaced.
    is_taken: bool,
}

impl Target {
    fn find(to: &Path, force: bool) -> Result<Self, BackupError> {
        let name = to.file_name().and_then(|name| name.to_str());
        let Some(name) = name.map(str::to_owned) else {
            let text = format!("{} has no name for a backup: name a new directory", to.display());
            return Err(BackupError::Occupied(text));
        };
        let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(|error| not_written(to, io("make", parent)(error)))?;
        let is_taken = to.symlink_metadata().is_ok();
        if is_taken && Manifest::read(to).is_err() {
            let text = format!("{} exists and is no backup: name a new directory", to.display());
            return Err(BackupError::Occupied(text));
        }
        if is_taken && !force {
            let text = format!(
                "{} has a backup already: name a new directory, or replace it with --force",
                to.display()
            );
            return Err(BackupError::Occupied(text));
        }
        Ok(Self { to: to.to_owned(), parent: parent.to_owned(), name, is_taken })
    }

    /// The error with the path that the caller named, if it is about a file of the backup.
    fn fault(&self, error: BackupError) -> BackupError {
        match &error {
            BackupError::Io { path, .. }
                if *path == self.parent
                    || [self.draft(), self.path(), self.aside()].iter().any(|own| path.starts_with(own)) =>
            {
                not_written(&self.to, error)
            }
            _ => error,
        }
    }

    fn path(&self) -> PathBuf {
        self.parent.join(&self.name)
    }

    fn draft(&self) -> PathBuf {
        self.parent.join(format!("{}.unfinished", self.name))
    }

    /// The path at which the replaced backup is for a moment if the file system cannot exchange two names.
    fn aside(&self) -> PathBuf {
        self.parent.join(format!("{}.replaced", self.name))
    }
}

/// The error of a file operation on the backup, as one of its target `to`.
fn not_written(to: &Path, error: BackupError) -> BackupError {
    let to = to.to_owned();
    match &error {
        BackupError::Io { source, .. }
            if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
        {
            BackupError::TargetFull { to }
        }
        _ => BackupError::Target { to, source: error.into() },
    }
}

/// A backup in the making; gone again if it is not finished.
struct Draft {
    path: PathBuf,
    /// True once it is at its place, so that its first path is not its own any more.
    is_moved: bool,
    marker: PathBuf,
    // Held, not read: tells an unfinished backup that somebody works at from one that nobody will finish.
    _lock: File,
}

/// In every draft.
const MARKER: &str = "unfinished";

impl Draft {
    fn begin(path: PathBuf) -> Result<Self, BackupError> {
        let marker = path.join(MARKER);
        if path.exists() {
            Self::clear(&path, &marker)?;
        }
        make_private(&path).map_err(io("make", &path))?;
        let lock = File::create_new(&marker).map_err(io("make", &marker))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| io("lock", &marker)(error.into()))?;
        Ok(Self { path, is_moved: false, marker, _lock: lock })
    }

    /// Removes what another backup left behind when it was ended: a draft, or a backup that has been replaced.
    fn clear(path: &Path, marker: &Path) -> Result<(), BackupError> {
        let lock = File::open(marker).ok();
        if lock.is_none() && Manifest::read(path).is_err() && !is_empty(path) {
            let text = format!("{} is in the way, and is no unfinished backup: move it away", path.display());
            return Err(BackupError::Occupied(text));
        }
        if lock.is_some_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err()) {
            let text = format!("another backup is being made at {}: wait for it", path.display());
            return Err(BackupError::Occupied(text));
        }
        remove(path).map_err(io("remove", path))
    }

    fn finish(mut self, place: &Target) -> Result<(), BackupError> {
        let (path, to) = (&self.path, place.path());
        fs::remove_file(&self.marker).map_err(io("remove", &self.marker))?;
        sync_names(path).map_err(io("sync", path))?;
        let replaced = if place.is_taken {
            Some(replace(path, &to, &place.aside(), exchange)?)
        } else {
            fs::rename(path, &to).map_err(io("make", &to))?;
            None
        };
        self.is_moved = true;
        sync_names(&place.parent).map_err(io("sync", &place.parent))?;
        // The new backup is complete, and the next one removes what is left of this one.
        let _ = replaced.map(|path| remove(&path));
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_moved {
            let _ = remove(&self.path);
        }
    }
}

/// Removes a draft or a backup. The files that tell it to be one go last: if the process is ended meanwhile, the next backup removes the rest.
fn remove(path: &Path) -> std::io::Result<()> {
    if path.symlink_metadata()?.is_symlink() {
        // The backup that it leads to is another one.
        return fs::remove_file(path);
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if [MARKER, Manifest::NAME].iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    fs::remove_dir_all(path)
}

fn is_empty(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// Puts the draft in the place of the backup at `to`. Returns the path at which the replaced backup is now.
fn replace(
    draft: &Path,
    to: &Path,
    aside: &Path,
    exchange: impl Fn(&Path, &Path) -> Result<(), Errno>,
) -> Result<PathBuf, BackupError> {
    match exchange(draft, to) {
        // One step: at no moment is there no backup.
        Ok(()) => return Ok(draft.to_owned()),
        // NFS and many FUSE file systems cannot exchange two names.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        Err(error) => return Err(io("replace", to)(error.into())),
    }
    if Manifest::read(aside).is_ok() {
        // A backup that was ended right here has left it behind.
        remove(aside).map_err(io("remove", aside))?;
    }
    fs::rename(to, aside).map_err(io("move away", to))?;
    if let Err(error) = fs::rename(draft, to) {
        // The new one is removed, so the old one has to come back.
        fs::rename(aside, to).map_err(io("move back", aside))?;
        return Err(io("replace", to)(error));
    }
    Ok(aside.to_owned())
}

fn exchange(one: &Path, other: &Path) -> Result<(), Errno> {
    let here = rustix::fs::CWD;
    rustix::fs::renameat_with(here, one, here, other, RenameFlags::EXCHANGE)
}

/// Copies all segments that there are now, the oldest first.
fn copy_output(from: &Path, to: &Path) -> Result<Vec<FileEntry>, BackupError> {
    make_private(to).map_err(io("make", to))?;
    let mut names = segments(from).map_err(io("list", from))?;
    names.sort_unstable();
    let last = names.last().cloned();
    let mut copied = Vec::new();
    for segment in names {
        copied.extend(copy_if_there(from, to, &format!("{segment}.seg"))?);
        // The last one may just have been sealed, but is copied as it is at this moment: its index would say too much.
        if Some(&segment) != last.as_ref() {
            copied.extend(copy_if_there(from, to, &format!("{segment}.idx"))?);
        }
    }
    sync_names(to).map_err(io("sync", to))?;
    Ok(copied)
}

/// A segment may be deleted at any time, and an index may be missing: it is made again from its segment.
fn copy_if_there(from: &Path, to: &Path, name: &str) -> Result<Option<FileEntry>, BackupError> {
    let (source, target) = (from.join(name), to.join(name));
    if !source.exists() {
        return Ok(None);
    }
    match copy(&format!("{LOGS}/{name}"), &source, &target) {
        Ok(entry) => Ok(Some(entry)),
        Err(files::CopyError::Read(error)) if error.kind() == ErrorKind::NotFound && !source.exists() => {
            Ok(None)
        }
        Err(error) => Err(error.of(&source, &target)),
    }
}

fn segments(directory: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(names),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_suffix(".seg")).map(str::to_owned));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory_with(path: PathBuf, text: &str) -> PathBuf {
        fs::create_dir(&path).unwrap();
        fs::write(path.join("text"), text).unwrap();
        path
    }

    fn text_at(path: &Path) -> Option<String> {
        fs::read_to_string(path.join("text")).ok()
    }

    #[test]
    fn backup_is_replaced_on_a_file_system_that_cannot_exchange_names() {
        for error in [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP] {
            let directory = tempfile::tempdir().unwrap();
            let (draft, to) = (directory.path().join("b.unfinished"), directory.path().join("b"));
            let aside = directory.path().join("b.replaced");
            directory_with(draft.clone(), "new");
            directory_with(to.clone(), "old");
            let replaced = replace(&draft, &to, &aside, |_, _| Err(error)).unwrap();
            assert_eq!((text_at(&to).as_deref(), text_at(&replaced).as_deref()), (Some("new"), Some("old")));
            assert!(!draft.exists());
        }
    }

    #[test]
    fn replaced_backup_comes_back_if_the_new_one_cannot_be_moved() {
        let directory = tempfile::tempdir().unwrap();
        let to = directory_with(directory.path().join("b"), "old");
        let (draft, aside) = (directory.path().join("b.unfinished"), directory.path().join("b.replaced"));
        replace(&draft, &to, &aside, |_, _| Err(Errno::INVAL)).unwrap_err();
        assert_eq!((text_at(&to).as_deref(), aside.exists()), (Some("old"), false));
        let untouched = replace(&draft, &to, &aside, |_, _| Err(Errno::ACCESS));
        assert_eq!((untouched.is_err(), text_at(&to).as_deref()), (true, Some("old")));
    }

    #[test]
    fn draft_that_was_removed_in_part_does_not_block_the_next_backup() {
        let directory = tempfile::tempdir().unwrap();
        let place = Target::find(&directory.path().join("b"), false).unwrap();
        // The process was ended just before its last step.
        fs::create_dir(place.draft()).unwrap();
        drop(Draft::begin(place.draft()).unwrap());
        assert!(!place.draft().exists());
    }

    #[test]
    fn link_to_a_backup_is_replaced_and_what_it_leads_to_stays() {
        let directory = tempfile::tempdir().unwrap();
        let backup = directory_with(directory.path().join("monday"), "kept");
        let link = directory.path().join("latest");
        std::os::unix::fs::symlink(&backup, &link).unwrap();
        remove(&link).unwrap();
        assert_eq!((text_at(&backup).as_deref(), link.symlink_metadata().is_err()), (Some("kept"), true));
    }

    #[test]
    fn moved_draft_leaves_its_first_path_to_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let place = Target::find(&directory.path().join("b"), false).unwrap();
        let mut draft = Draft::begin(place.draft()).unwrap();
        fs::rename(&draft.path, place.path()).unwrap();
        draft.is_moved = true;
        let next = Draft::begin(place.draft()).unwrap();
        drop(draft);
        assert!(next.path.exists());
        drop(next);
        assert!(!place.draft().exists(), "an unfinished draft is removed");
    }
}
