//! The files that a job exchanges with its requester: `input.json`, which it reads, and `result.json`, which it writes.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

use protocol::wire::RESULT_BYTES_MAX;
use worker::input::ResultFile;

use super::{AttemptDir, Error, io_error_at};

/// Paths on this machine of the files that a job exchanges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeFiles {
    /// The input; absent if the job has none.
    pub input: Option<PathBuf>,
    /// The file for its result: empty, and writable for every user, because a container may run as any.
    pub result: PathBuf,
}

impl AttemptDir {
    /// Writes the input, and makes an empty file for the result. Repeated before each start.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn prepare_exchange(&self, input: Option<&str>) -> Result<ExchangeFiles, Error> {
        let root = std::path::absolute(&self.path).map_err(io_error_at(&self.path))?;
        let write = |name: &str, content: &str, mode: u32| {
            let path = root.join(name);
            let file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&path);
            let written = file.and_then(|mut file| {
                file.write_all(content.as_bytes())?;
                // The creation mode is cut by the umask.
                file.set_permissions(Permissions::from_mode(mode))
            });
            written.map(|()| path.clone()).map_err(io_error_at(&path))
        };
        Ok(ExchangeFiles {
            input: input.map(|input| write(INPUT, input, 0o644)).transpose()?,
            result: write(RESULT, "", 0o666)?,
        })
    }

    /// The result that the job has left, without the values of its secrets. It is read once, after the end of the program.
    #[must_use]
    pub fn result(&self) -> ResultFile {
        let path = self.path.join(RESULT);
        // The program may have put a link or a pipe in its place.
        let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
        let opened = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(&path);
        match opened.and_then(|file| read(&file)) {
            Ok(content) => self.hide_secrets(check_result(&content)),
            Err(error) if error.kind() == ErrorKind::NotFound => ResultFile::Absent,
            Err(error) => ResultFile::Unusable(format!("it cannot be read: {error}")),
        }
    }

    /// Cuts the result file of a running job if it takes more than this on the disk. The rest is still too long for a result. Returns
    /// whether it was cut.
    ///
    /// # Errors
    /// The file cannot be cut.
    pub fn cut_result(&self, bytes_max: u64) -> std::io::Result<bool> {
        let path = self.path.join(RESULT);
        let is_too_large = |it: &fs::Metadata| it.is_file() && it.blocks() * BLOCK_BYTES > bytes_max;
        if !fs::symlink_metadata(&path).is_ok_and(|it| is_too_large(&it)) {
            return Ok(false);
        }
        let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
        let file = OpenOptions::new().write(true).custom_flags(flags.cast_signed()).open(&path)?;
        let is_same = is_too_large(&file.metadata()?);
        if is_same {
            file.set_len(RESULT_BYTES_MAX as u64 + 1)?;
        }
        Ok(is_same)
    }

    /// The file for the result was made.
    #[must_use]
    pub fn has_result_file(&self) -> bool {
        fs::symlink_metadata(self.path.join(RESULT)).is_ok()
    }
}

fn read(file: &File) -> std::io::Result<Vec<u8>> {
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no plain file"));
    }
    let mut content = Vec::new();
    file.take(RESULT_BYTES_MAX as u64 + 1).read_to_end(&mut content)?;
    Ok(content)
}

/// Checks the content of a result file; of a longer one the first bytes are enough. An empty file is no result.
pub(crate) fn check_result(content: &[u8]) -> ResultFile {
    if content.iter().all(u8::is_ascii_whitespace) {
        return ResultFile::Absent;
    }
    if content.len() > RESULT_BYTES_MAX {
        return ResultFile::Unusable(format!("it is larger than {RESULT_BYTES_MAX} bytes"));
    }
    let Ok(text) = std::str::from_utf8(content) else {
        return ResultFile::Unusable("it is not JSON, because it is not UTF-8".to_owned());
    };
    match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Ok(_) => ResultFile::Json(text.trim().to_owned()),
        // The error names the position and what was expected there, never the content.
        Err(error) => ResultFile::Unusable(format!("it is not JSON: {error}")),
    }
}

/// Names the file with the input to the program.
pub(crate) const INPUT_VARIABLE: &str = "LONGSHORE_INPUT";
/// Names the file for the result to the program.
pub(crate) const RESULT_VARIABLE: &str = "LONGSHORE_RESULT";

const INPUT: &str = "input.json";
const RESULT: &str = "result.json";

/// Unit of the system for the space that a file takes.
const BLOCK_BYTES: u64 = 512;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use protocol::secret::{SecretValue, SecretValues};
    use protocol::{Fence, JobId, Token};

    use super::*;
    use crate::secrets::SecretDirs;

    fn directory() -> (tempfile::TempDir, AttemptDir) {
        let directory = tempfile::tempdir().expect("a directory");
        let dir = AttemptDir::at(directory.path());
        (directory, dir)
    }

    #[test]
    fn a_result_file_that_grows_without_end_is_cut_and_is_no_result() {
        let (_kept, dir) = directory();
        let cut = || dir.cut_result(1 << 20).expect("it can be cut");
        assert!(!cut(), "there is no file");
        let path = dir.prepare_exchange(None).expect("a writable directory").result;
        let mut file = OpenOptions::new().write(true).open(&path).expect("writable");
        file.write_all(b"[1]").expect("written");
        assert!(!cut());
        for _ in 0..2 {
            // The program goes on to write where it was.
            file.write_all(&vec![b' '; 2 << 20]).expect("written");
            file.sync_all().expect("written");
            assert!(cut());
            assert_eq!(fs::metadata(&path).expect("there").len(), RESULT_BYTES_MAX as u64 + 1);
        }
        assert!(matches!(dir.result(), ResultFile::Unusable(_)));
        fs::remove_file(&path).expect("removed");
        let large = path.with_file_name("large");
        fs::write(&large, vec![0; 2 << 20]).expect("written");
        symlink(&large, &path).expect("a link");
        assert!(!cut(), "links are not followed");
        assert_eq!(fs::metadata(&large).expect("there").len(), 2 << 20);
    }

    #[test]
    fn what_the_job_wrote_is_its_result_if_it_is_json() {
        let (_kept, dir) = directory();
        assert_eq!(dir.result(), ResultFile::Absent, "nobody made the file");
        let files = dir.prepare_exchange(Some("{}")).expect("a writable directory");
        assert_eq!(fs::read_to_string(files.input.expect("an input")).expect("readable"), "{}");
        assert_eq!(fs::metadata(&files.result).expect("a file").mode() & 0o777, 0o666);
        assert_eq!(dir.result(), ResultFile::Absent, "an empty file is no result");
        let left = |content: &str| {
            fs::write(&files.result, content).expect("writable");
            dir.result()
        };
        assert_eq!(left(" {\"a\": 1}\n"), ResultFile::Json("{\"a\": 1}".to_owned()));
        assert!(matches!(left("{\"a\": 1"), ResultFile::Unusable(why) if why.contains("not JSON")));
        let long = format!("\"{}\"", "x".repeat(RESULT_BYTES_MAX));
        assert!(matches!(left(&long), ResultFile::Unusable(why) if why.contains("larger")));
        dir.prepare_exchange(None).expect("a writable directory");
        assert_eq!(dir.result(), ResultFile::Absent, "the next try begins anew");
    }

    #[test]
    fn the_secrets_of_an_attempt_are_masked_in_its_result() {
        let (kept, dir) = directory();
        let token = Token { job: JobId(7), fence: Fence(2), ..Token::default() };
        let tmpfs = SecretDirs::open(None, kept.path()).expect("/dev/shm");
        let values =
            SecretValues { masked: vec![SecretValue(b"hunter22".to_vec())], ..SecretValues::default() };
        tmpfs.write(token, &values).expect("written");
        dir.record_secrets(&tmpfs.path(token)).expect("recorded");
        let files = dir.prepare_exchange(None).expect("a writable directory");
        fs::write(&files.result, r#"{"copy":"hunter22"}"#).expect("writable");
        assert_eq!(dir.result(), ResultFile::Json(r#"{"copy":"********"}"#.to_owned()));
        crate::secrets::remove(tmpfs.root()).expect("removed");
        assert!(matches!(dir.result(), ResultFile::Unusable(why) if why.contains("secrets")));
    }

    #[test]
    fn a_link_or_a_pipe_is_no_result() {
        let (kept, dir) = directory();
        fs::write(kept.path().join("other"), "1").expect("writable");
        symlink(kept.path().join("other"), kept.path().join("result.json")).expect("a link");
        assert!(matches!(dir.result(), ResultFile::Unusable(_)));
        fs::remove_file(kept.path().join("result.json")).expect("a link");
        fs::create_dir(kept.path().join("result.json")).expect("a directory");
        assert!(matches!(dir.result(), ResultFile::Unusable(_)));
    }
}
