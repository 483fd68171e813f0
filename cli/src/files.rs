//! Files that a verb writes.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use server::config::jobs_file::FILE_BYTES_MAX;

use crate::failure::{Exit, Failure};

/// Mode of a file that only its owner can read.
pub(crate) const PRIVATE: u32 = 0o600;
/// Mode of a file that everybody can read.
pub(crate) const PUBLIC: u32 = 0o644;

/// Writes a file whole: a reader sees the old content or the new one, never with another mode.
///
/// # Errors
/// The file cannot be written; the old one is as it was.
pub(crate) fn replace(path: &Path, content: &str, mode: u32) -> anyhow::Result<()> {
    Draft::create(path, mode)?.finish(content)
}

/// A file that is being written beside the one that it will replace. Dropped unfinished, it is removed.
#[derive(Debug)]
pub(crate) struct Draft<'p> {
    path: &'p Path,
    draft: PathBuf,
    file: File,
}

impl<'p> Draft<'p> {
    /// Creates the draft, empty: then the file can be written, as far as anybody can know.
    ///
    /// # Errors
    /// It cannot be created.
    pub(crate) fn create(path: &'p Path, mode: u32) -> anyhow::Result<Self> {
        let mut draft = path.as_os_str().to_owned();
        draft.push(".new");
        let draft = PathBuf::from(draft);
        let create = || {
            // A draft of a run that was killed may have another mode.
            match std::fs::remove_file(&draft) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            OpenOptions::new().write(true).create_new(true).mode(mode).open(&draft)
        };
        let file = create().with_context(|| cannot_write(path))?;
        Ok(Self { path, draft, file })
    }

    /// Writes the content, and replaces the file.
    ///
    /// # Errors
    /// It cannot be written; the old file is as it was.
    pub(crate) fn finish(mut self, content: &str) -> anyhow::Result<()> {
        let mut write = || {
            self.file.write_all(content.as_bytes())?;
            self.file.sync_all()?;
            std::fs::rename(&self.draft, self.path)
        };
        write().with_context(|| cannot_write(self.path))
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // A finished one has its final name.
        drop(std::fs::remove_file(&self.draft));
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// True for `-`.
pub(crate) fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// The name of an input for messages: `standard input` for `-`.
pub(crate) fn name_of_input(file: &Path) -> String {
    if is_stdin(file) { "standard input".to_owned() } else { file.display().to_string() }
}

/// Reads the text of a jobs file, or of standard input for `-`, as the server reads it.
///
/// # Errors
/// It cannot be read, is larger than a jobs file may be, or is not UTF-8.
pub(crate) fn read_jobs_file(file: &Path) -> Result<String, Failure> {
    read_input(file, FILE_BYTES_MAX as u64)
}

/// Reads a text from a file, or from standard input for `-`.
///
/// # Errors
/// It cannot be read, has more bytes, or is not UTF-8.
pub(crate) fn read_input(file: &Path, bytes_max: u64) -> Result<String, Failure> {
    let refuse = |why: String| Failure::new(Exit::Usage, format!("{}: {why}", name_of_input(file)));
    let mut bytes = Vec::new();
    // One byte more shows that there are too many.
    let read = match is_stdin(file) {
        true => std::io::stdin().take(bytes_max + 1).read_to_end(&mut bytes),
        false => File::open(file).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes)),
    };
    read.map_err(|error| Failure::new(Exit::Usage, format!("cannot read {}: {error}", name_of_input(file))))?;
    if bytes.len() as u64 > bytes_max {
        return Err(refuse(format!("file_too_large: it is larger than {bytes_max} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        refuse(format!("not_utf8: it is not UTF-8 at byte offset {offset}; save it as UTF-8"))
    })
}
