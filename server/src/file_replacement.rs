//! Replacement of a small file in the data directory as a whole.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Replaces the file by one that only its owner can read. After a crash it has either its old or its new content. The new one is
/// on the disk when this returns. Blocks on the disk.
///
/// # Errors
/// The file has its old content. A draft beside it may be left; maintenance deletes it.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("draft");
    if let Err(error) = fs::remove_file(&draft)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    // Made anew, so that nobody else has ever had it open.
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}
