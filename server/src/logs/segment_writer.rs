//! Writes to the active segment. In tests a simulated disk records the writes and loses what was not synced.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Writes into one segment.
pub(super) struct SegmentWriter {
    pub(super) file: Arc<File>,
    #[cfg(test)]
    pub(super) watched: Option<Watch>,
}

/// The simulated disk, and the file's number on it.
#[cfg(test)]
#[derive(Clone, Debug)]
pub(super) struct Watch {
    pub(super) disk: Arc<baddisk::Disk>,
    pub(super) file: usize,
}

impl SegmentWriter {
    /// Writes all of it. It is not on the disk before it was synced.
    pub(super) fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, at)?;
        #[cfg(test)]
        self.tell(|file| baddisk::Event::Wrote { file, at, bytes: bytes.into() });
        Ok(())
    }

    /// Brings everything that was written onto the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()?;
        #[cfg(test)]
        self.tell(baddisk::Event::Synced);
        Ok(())
    }

    /// Cuts off what is after `length`.
    pub(super) fn cut(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    #[cfg(test)]
    fn tell(&self, event: impl FnOnce(usize) -> baddisk::Event) {
        if let Some(watch) = &self.watched {
            watch.disk.note(event(watch.file));
        }
    }
}
