//! Removes a directory with all that a job left in it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirEntry, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat, renameat};
use rustix::io::Errno;

/// Removes a directory with its content, also if a job took away the right to write a directory in it, or nested directories so deep that a
/// recursion over them would exhaust the stack. A missing one is success.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    let remove = || {
        unless_written_meanwhile(|| {
            Tree { top: openat(CWD, path, DIRECTORY, Mode::empty())?, waiting: Vec::new(), moved: 0 }
                .flatten();
            fs::remove_dir_all(path)
        })
    };
    match remove() {
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

/// A directory that is about to be removed.
struct Tree {
    top: OwnedFd,
    /// Directories at the top that were not looked into yet.
    waiting: Vec<OsString>,
    /// Directories that were moved to the top.
    moved: u64,
}

impl Tree {
    /// Gives the owner all rights on all directories, and moves those that lie deeper than [`DEPTH_MAX`] to the top. A link is never followed,
    /// also if one takes the place of a directory meanwhile: a descriptor stays with the directory that was opened. A directory that cannot
    /// be opened or changed is left as it is: its removal will give the reason.
    fn flatten(mut self) {
        self.waiting = make_writable(&self.top);
        while let Some(name) = self.waiting.pop() {
            if let Ok(child) = openat(&self.top, name, DIRECTORY, Mode::empty()) {
                self.flatten_below(&child, 1);
            }
        }
    }

    fn flatten_below(&mut self, directory: &OwnedFd, depth: u32) {
        for name in make_writable(directory) {
            let Ok(child) = openat(directory, &name, DIRECTORY, Mode::empty()) else { continue };
            if depth < DEPTH_MAX {
                self.flatten_below(&child, depth + 1);
            } else {
                // A directory that moves is written, too: its parent is another one.
                make_writable(&child);
                self.move_to_top(directory, &name);
            }
        }
    }

    /// An empty directory of the new name is replaced; it would be removed anyway. With any other entry of that name, the next one is tried.
    fn move_to_top(&mut self, from: &OwnedFd, name: &OsStr) {
        loop {
            let new = OsString::from(format!("deep-{}", self.moved));
            self.moved += 1;
            match renameat(from, name, &self.top, &new) {
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                Err(_) => return,
                Ok(()) => return self.waiting.push(new),
            }
        }
    }
}

/// Gives the owner all rights on a directory. Returns the names of the directories in it, as far as they can be read.
fn make_writable(directory: &OwnedFd) -> Vec<OsString> {
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let mode = fs::metadata(&path).map_or(OWNER, |it| it.permissions().mode());
    if mode & OWNER != OWNER {
        // If it fails, so does the removal.
        let _ = fs::set_permissions(&path, Permissions::from_mode(mode & 0o7777 | OWNER));
    }
    directories_in(Path::new(&path)).unwrap_or_default()
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

/// More than directories of programs have. Each level takes a descriptor and some stack of those that look into it and remove it.
const DEPTH_MAX: u32 = 64;

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
    fn directories_of_any_depth_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).expect("made");
        // Neither this file nor this directory may keep others from the top.
        fs::write(tree.join("deep-0"), "").expect("written");
        fs::create_dir_all(tree.join("deep-1/full")).expect("made");
        let mut deepest = openat(CWD, &tree, DIRECTORY, Mode::empty()).expect("opened");
        // So deep that a recursion would need more stack and more descriptors than a thread has.
        for _ in 0..20_000 {
            rustix::fs::mkdirat(&deepest, "d", Mode::RWXU).expect("made");
            deepest = openat(&deepest, "d", DIRECTORY, Mode::empty()).expect("opened");
        }
        let removed = std::thread::Builder::new().stack_size(512 << 10).spawn({
            let tree = tree.clone();
            move || remove_tree(&tree)
        });
        removed.expect("a thread").join().expect("no overflow").expect("removed");
        assert!(!tree.exists());
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
