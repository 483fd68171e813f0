//! The output files of an attempt. Another process writes them and may outlive this one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use protocol::report::{OutputLengths, Stream};
use rustix::fs::{FlockOperation, flock};

use super::{AttemptDir, Error, io_error_at};

impl Error {
    /// The underlying system error, if there is one.
    pub(crate) fn into_io(self) -> io::Error {
        match self {
            Self::Io { source, .. } => source,
            other => io::Error::other(other),
        }
    }
}

impl AttemptDir {
    /// Opens an output file for appending.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn output(&self, stream: Stream) -> Result<File, Error> {
        let path = self.path.join(stream.name());
        OpenOptions::new().append(true).create(true).mode(0o600).open(&path).map_err(io_error_at(&path))
    }

    /// Opens the standard output for a program that is about to be started and locks it. The lock lasts as long as the program lives, so
    /// the program is noticed even if its starter dies before it recorded the process id.
    ///
    /// # Errors
    /// The file cannot be opened, or a running program holds the lock.
    pub fn claim_output(&self) -> Result<File, Error> {
        let file = self.output(Stream::Stdout)?;
        let path = self.path.join(Stream::Stdout.name());
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| io_error_at(&path)(error.into()))?;
        Ok(file)
    }

    /// `true` while a program holds the lock of the output, and also if that cannot be determined.
    #[must_use]
    pub fn is_being_written(&self) -> bool {
        match self.reader(Stream::Stdout) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
            Err(Error::Io { source, .. }) => source.kind() != io::ErrorKind::NotFound,
            Err(_) => true,
        }
    }

    /// Opens an output file for reading and for freeing its blocks.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn reader(&self, stream: Stream) -> Result<File, Error> {
        let path = self.path.join(stream.name());
        OpenOptions::new().read(true).write(true).open(&path).map_err(io_error_at(&path))
    }

    /// Truncates the outputs to these lengths. The caller knows that no program writes them and that no byte beyond was sent.
    ///
    /// # Errors
    /// The files cannot be changed.
    pub fn cut_output(&self, to: OutputLengths) -> Result<(), Error> {
        let now = self.try_lengths()?;
        for (stream, to, now) in
            [(Stream::Stdout, to.stdout, now.stdout), (Stream::Stderr, to.stderr, now.stderr)]
        {
            if to < now {
                self.reader(stream)?.set_len(to).map_err(io_error_at(&self.path.join(stream.name())))?;
            }
        }
        Ok(())
    }

    /// Lengths of the output files, freed parts included. A file that cannot be examined counts as empty.
    #[must_use]
    pub fn lengths(&self) -> OutputLengths {
        let [stdout, stderr] = [Stream::Stdout, Stream::Stderr].map(|it| self.length(it).unwrap_or(0));
        OutputLengths { stdout, stderr }
    }

    /// Lengths of the output files for an end, after which no output is sent. A missing file is empty.
    ///
    /// # Errors
    /// A file cannot be examined.
    pub fn try_lengths(&self) -> Result<OutputLengths, Error> {
        Ok(OutputLengths { stdout: self.length(Stream::Stdout)?, stderr: self.length(Stream::Stderr)? })
    }

    fn length(&self, stream: Stream) -> Result<u64, Error> {
        let path = self.path.join(stream.name());
        match fs::metadata(&path) {
            Ok(file) => Ok(file.size()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(io_error_at(&path)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_that_cannot_be_examined_is_not_empty() {
        let directory = tempfile::tempdir().expect("a directory");
        let dir = AttemptDir::at(directory.path());
        assert_eq!(dir.try_lengths().ok(), Some(OutputLengths::default()), "there is no output yet");
        fs::write(directory.path().join(Stream::Stdout.name()), "abc").expect("written");
        assert_eq!(dir.try_lengths().ok(), Some(OutputLengths { stdout: 3, stderr: 0 }));
        let stderr = Stream::Stderr.name();
        std::os::unix::fs::symlink(stderr, directory.path().join(stderr)).expect("a link to itself");
        assert!(dir.try_lengths().is_err());
        assert_eq!(dir.lengths(), OutputLengths { stdout: 3, stderr: 0 });
    }
}
