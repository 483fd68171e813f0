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
        let now = self.lengths();
        for (stream, to, now) in
            [(Stream::Stdout, to.stdout, now.stdout), (Stream::Stderr, to.stderr, now.stderr)]
        {
            if to < now {
                self.reader(stream)?.set_len(to).map_err(io_error_at(&self.path.join(stream.name())))?;
            }
        }
        Ok(())
    }

    /// Lengths of the output files, freed parts included.
    #[must_use]
    pub fn lengths(&self) -> OutputLengths {
        let length = |stream: Stream| fs::metadata(self.path.join(stream.name())).map_or(0, |it| it.size());
        OutputLengths { stdout: length(Stream::Stdout), stderr: length(Stream::Stderr) }
    }
}
