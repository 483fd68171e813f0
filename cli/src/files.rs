//! Files that a verb writes.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Mode of a file that only its owner can read.
pub(crate) const PRIVATE: u32 = 0o600;
/// Mode of a file that everybody can read.
pub(crate) const PUBLIC: u32 = 0o644;

/// Writes a file whole: a reader sees the old content or the new one, never with another mode.
///
/// # Errors
/// The file cannot be written; the old one is as it was.
pub(crate) fn replace(path: &Path, content: &str, mode: u32) -> anyhow::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = PathBuf::from(draft);
    let write = || {
        // A draft of a run that was killed may have another mode.
        match std::fs::remove_file(&draft) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&draft)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&draft, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
