//! The files that an attempt's output goes to. Whoever writes them is not us, and may outlive us.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use protocol::report::{OutputLengths, Stream};
use rustix::fs::{FlockOperation, flock};

use super::{AttemptDir, Error, at};

impl Error {
    /// The system's own word for it, where it has one.
    pub(crate) fn into_io(self) -> io::Error {
        match self {
            Self::Io { source, .. } => source,
            other => io::Error::other(other),
        }
    }
}

impl AttemptDir {
    /// One of its outputs, to be appended to.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn output(&self, stream: Stream) -> Result<File, Error> {
        let path = self.path.join(stream.name());
        OpenOptions::new().append(true).create(true).mode(0o600).open(&path).map_err(at(&path))
    }

    /// The standard output, to be written by a program that is about to be started, and locked for as long as that lives: whoever
    /// starts it may die before it has written down which process that is.
    ///
    /// # Errors
    /// The file cannot be opened, or a program writes it already.
    pub fn claim_output(&self) -> Result<File, Error> {
        let file = self.output(Stream::Stdout)?;
        let path = self.path.join(Stream::Stdout.name());
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| at(&path)(error.into()))?;
        Ok(file)
    }

    /// Whether the program lives that was started to write the outputs; also as long as that cannot be told.
    #[must_use]
    pub fn is_being_written(&self) -> bool {
        match self.reader(Stream::Stdout) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
            Err(Error::Io { source, .. }) => source.kind() != io::ErrorKind::NotFound,
            Err(_) => true,
        }
    }

    /// One of its outputs, to be read and to be freed behind the reader.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn reader(&self, stream: Stream) -> Result<File, Error> {
        let path = self.path.join(stream.name());
        OpenOptions::new().read(true).write(true).open(&path).map_err(at(&path))
    }

    /// Takes back what was written after these lengths. Nobody may be writing, or have told of it.
    ///
    /// # Errors
    /// The files cannot be changed.
    pub fn cut_output(&self, to: OutputLengths) -> Result<(), Error> {
        let now = self.lengths();
        for (stream, to, now) in
            [(Stream::Stdout, to.stdout, now.stdout), (Stream::Stderr, to.stderr, now.stderr)]
        {
            if to < now {
                self.reader(stream)?.set_len(to).map_err(at(&self.path.join(stream.name())))?;
            }
        }
        Ok(())
    }

    /// How much is in the output files, freed parts included.
    #[must_use]
    pub fn lengths(&self) -> OutputLengths {
        let length = |stream: Stream| fs::metadata(self.path.join(stream.name())).map_or(0, |it| it.size());
        OutputLengths { stdout: length(Stream::Stdout), stderr: length(Stream::Stderr) }
    }
}
