//! Removes a directory with all that a job left in it.

use std::ffi::OsString;
use std::fs::{self, DirEntry, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};

/// Removes a directory with its content, also if a job took away the right to write a directory in it. A missing one is success.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    let remove = || unless_written_meanwhile(|| fs::remove_dir_all(path));
    match remove() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            make_writable(openat(CWD, path, DIRECTORY, Mode::empty())?)?;
            remove()
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Removes again while a late writer, such as that of an attempt's usage, makes a file in a directory that was just emptied.
fn unless_written_meanwhile(mut remove: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    for _ in 1..REMOVAL_TRIES {
        match remove() {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            done => return done,
        }
    }
    remove()
}

/// A writer makes one or two files after an attempt has ended.
const REMOVAL_TRIES: u32 = 16;

/// Gives the owner all rights on a directory and on those below it. A link is never followed, also if one takes the place of a directory
/// meanwhile: the descriptor stays with the directory that was opened.
fn make_writable(directory: OwnedFd) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let mode = fs::metadata(&path)?.permissions().mode();
    if mode & OWNER != OWNER {
        fs::set_permissions(&path, Permissions::from_mode(mode & 0o7777 | OWNER))?;
    }
    for name in directories_in(Path::new(&path))? {
        make_writable(openat(&directory, name, DIRECTORY, Mode::empty())?)?;
    }
    Ok(())
}

fn directories_in(path: &Path) -> io::Result<Vec<OsString>> {
    let is_directory = |entry: &DirEntry| entry.file_type().is_ok_and(|it| it.is_dir());
    let entries = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
    Ok(entries.iter().filter(|entry| is_directory(entry)).map(DirEntry::file_name).collect())
}

/// The directory itself, without the right to read it.
const DIRECTORY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

const OWNER: u32 = 0o700;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::unprivileged::rerun_unprivileged;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
    }

    #[test]
    fn a_directory_that_was_written_meanwhile_is_removed_again() {
        let mut late_writes = 2;
        let removed = unless_written_meanwhile(|| {
            if late_writes == 0 {
                return Ok(());
            }
            late_writes -= 1;
            Err(io::ErrorKind::DirectoryNotEmpty.into())
        });
        assert!(removed.is_ok() && late_writes == 0);
        let (mut tries, full) = (0, io::ErrorKind::DirectoryNotEmpty);
        let stays = unless_written_meanwhile(|| {
            tries += 1;
            Err(full.into())
        });
        assert_eq!((stays.map_err(|it| it.kind()), tries), (Err(full), REMOVAL_TRIES));
    }

    #[test]
    fn what_a_job_made_read_only_is_removed_and_links_are_not_followed() {
        if rerun_unprivileged(
            "attempt_dir::removal::tests::what_a_job_made_read_only_is_removed_and_links_are_not_followed",
        ) {
            return;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let [tree, outside] = ["tree", "outside"].map(|name| dir.path().join(name));
        fs::create_dir_all(tree.join("read-only/hidden")).expect("made");
        fs::create_dir(&outside).expect("made");
        fs::write(outside.join("file"), "").expect("written");
        symlink(&outside, tree.join("read-only/hidden/link")).expect("a link");
        symlink(&outside, tree.join("link")).expect("a link");
        for (path, mode) in
            [(tree.join("read-only/hidden"), 0), (tree.join("read-only"), 0o555), (outside.clone(), 0o555)]
        {
            set_mode(&path, mode);
        }
        remove_tree(&tree).expect("removed");
        assert!(!tree.exists());
        assert_eq!(fs::metadata(&outside).expect("there").permissions().mode() & 0o777, 0o555);
        set_mode(&outside, 0o755);
        assert!(outside.join("file").exists());
    }
}
