//! Copying so that it is known what was copied, and that it will still be there after a power failure.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::{BackupError, FileEntry};

/// Read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The side on which the copy of a file failed.
#[derive(Debug)]
pub(super) enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

impl CopyError {
    /// The error with the path of the file that failed.
    pub(super) fn of(self, from: &Path, to: &Path) -> BackupError {
        match self {
            Self::Read(error) => super::io("copy", from)(error),
            Self::Write(error) => super::io("write", to)(error),
        }
    }
}

/// Copies a file as long as it is now into a new one, and syncs that. Says what was copied, under this name.
pub(super) fn copy(name: &str, from: &Path, to: &Path) -> Result<FileEntry, CopyError> {
    let source = File::open(from).map_err(CopyError::Read)?;
    let length = source.metadata().map_err(CopyError::Read)?.len();
    let target = File::options().write(true).create_new(true).mode(0o600).open(to);
    let mut target = target.map_err(CopyError::Write)?;
    let entry = digest(name, source.take(length), CopyError::Read, |chunk| {
        target.write_all(chunk).map_err(CopyError::Write)
    })?;
    target.sync_all().map_err(CopyError::Write)?;
    Ok(entry)
}

/// Describes a file under this name.
pub(super) fn describe(name: &str, file: &Path) -> io::Result<FileEntry> {
    digest(name, File::open(file)?, |error| error, |_| Ok(()))
}

fn digest<E>(
    name: &str,
    mut from: impl Read,
    unreadable: impl FnOnce(io::Error) -> E,
    mut each: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<FileEntry, E> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let (mut bytes, mut sum) = (0, Sha256::new());
    loop {
        let read = match from.read(&mut chunk) {
            Ok(read) => read,
            Err(error) => return Err(unreadable(error)),
        };
        if read == 0 {
            return Ok(FileEntry { name: name.to_owned(), bytes, sha256: HEXLOWER.encode(&sum.finalize()) });
        }
        sum.update(&chunk[..read]);
        each(&chunk[..read])?;
        bytes += read as u64;
    }
}

/// Makes a directory that nobody else can look into: there are secrets in environments and output.
pub(super) fn make_private(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(directory)
}

/// So that the names in a directory survive what their files survive.
pub(super) fn sync_names(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Gives a file or a whole directory to the owner of `like`: an operator restores as root, and the server reads as another user.
pub(super) fn copy_owner(like: &Path, path: &Path) -> io::Result<()> {
    let owner = fs::metadata(like)?;
    let metadata = fs::symlink_metadata(path)?;
    if (metadata.uid(), metadata.gid()) != (owner.uid(), owner.gid()) {
        match std::os::unix::fs::lchown(path, Some(owner.uid()), Some(owner.gid())) {
            // Not root: the files are the right user's, who is in no such group. Nothing of a store is for groups.
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied && metadata.uid() == owner.uid() => {}
            given => given?,
        }
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            copy_owner(like, &entry?.path())?;
        }
    }
    Ok(())
}
