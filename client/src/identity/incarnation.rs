//! The number of the worker's starts, on disk.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

use super::{IdentityError, io_error, replace};

/// Stores the number of this start. The text always has the same length: on a full disk it is written over the old one, because only a
/// running worker frees the room that the output of its jobs takes.
pub(super) fn store(path: &Path, incarnation: u64) -> Result<(), IdentityError> {
    let text = format!("{incarnation:>WIDTH$}");
    match replace(path, text.as_bytes()) {
        Err(IdentityError::Io { cause, .. }) if is_full(&cause) => {
            overwrite(path, text.as_bytes()).map_err(|cause| io_error(path, cause))
        }
        stored => stored,
    }
}

/// Writes over a text of the same length, which takes no room. Another length is refused: a crash in the middle could leave another number.
fn overwrite(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    if file.metadata()?.len() != bytes.len() as u64 {
        return Err(io::ErrorKind::StorageFull.into());
    }
    file.write_all(bytes)?;
    file.sync_all()
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Digits of the largest number.
const WIDTH: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_text_of_the_same_length_is_written_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("incarnation");
        store(&path, 9).expect("stored");
        overwrite(&path, format!("{:>WIDTH$}", 10).as_bytes()).expect("it takes no room");
        assert_eq!(std::fs::read_to_string(&path).expect("read").trim(), "10");
        // As an earlier version wrote it.
        std::fs::write(&path, "9").expect("written");
        assert!(is_full(&overwrite(&path, b"10").expect_err("a crash could leave 1")));
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "9");
    }
}
