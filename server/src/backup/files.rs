//! Copying so that it is known what was copied, and that it will still be there after a power failure.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::FileEntry;

/// Read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Copies a file as long as it is now into a new one, and syncs that. Says what was copied, under this name.
pub(super) fn copy(name: &str, from: &Path, to: &Path) -> io::Result<FileEntry> {
    let source = File::open(from)?;
    let length = source.metadata()?.len();
    let mut target = File::options().write(true).create_new(true).mode(0o600).open(to)?;
    let entry = digest(name, source.take(length), |chunk| target.write_all(chunk))?;
    target.sync_all()?;
    Ok(entry)
}

/// Describes a file under this name.
pub(super) fn describe(name: &str, file: &Path) -> io::Result<FileEntry> {
    digest(name, File::open(file)?, |_| Ok(()))
}

fn digest(
    name: &str,
    mut from: impl Read,
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<FileEntry> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let (mut bytes, mut sum) = (0, Sha256::new());
    loop {
        let read = from.read(&mut chunk)?;
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
