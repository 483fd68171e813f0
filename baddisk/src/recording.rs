//! The recording of everything that happened to the files of a directory, in order.

use std::path::Path;
use std::sync::Arc;

/// A file, for as long as it has its name: one that is made again is another.
pub(crate) type FileNo = usize;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A file was made.
    Made(FileNo),
    /// Bytes were written into a file, which grows if it has to.
    Wrote {
        /// The file's number in the recording.
        file: FileNo,
        /// Offset of the first byte.
        at: u64,
        /// Its content.
        bytes: Arc<[u8]>,
    },
    /// A file was cut, or made longer with zeros.
    Cut {
        /// The file's number in the recording.
        file: FileNo,
        /// Its length from then on.
        length: u64,
    },
    /// All earlier writes to a file are on the disk.
    Synced(FileNo),
    /// A sync failed, and the kernel has dropped all earlier unsynced writes to the file.
    Failed(FileNo),
    /// A file lost its name.
    Deleted(FileNo),
    /// The directory was synced: its names are on the disk.
    NamesSynced,
    /// A commit was acknowledged, by its number.
    Acknowledged(u64),
}

/// A recording of one directory.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub(crate) events: Vec<Event>,
    /// The name of each file.
    pub(crate) names: Vec<String>,
    /// True while the file still has its name.
    present: Vec<bool>,
}

impl Recording {
    /// All events, in order.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The number that was acknowledged last before this moment.
    #[must_use]
    pub fn acknowledged_before(&self, moment: usize) -> Option<u64> {
        self.events[..moment].iter().rev().find_map(|event| match event {
            Event::Acknowledged(what) => Some(*what),
            _ => None,
        })
    }

    /// Of what lies in a directory, as if it had been made and synced.
    pub(crate) fn of(directory: &Path) -> std::io::Result<Self> {
        let mut recording = Self::default();
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            if let (Some(name), true) = (entry.file_name().to_str(), entry.file_type()?.is_file()) {
                let file = recording.open(name);
                let bytes = std::fs::read(entry.path())?.into();
                recording.events.extend([Event::Wrote { file, at: 0, bytes }, Event::Synced(file)]);
            }
        }
        recording.add(Event::NamesSynced);
        Ok(recording)
    }

    pub(crate) fn add(&mut self, event: Event) {
        self.events.push(event);
    }

    /// The file with this name; it was just made if there was none.
    pub(crate) fn open(&mut self, name: &str) -> FileNo {
        if let Some(file) = self.find(name) {
            return file;
        }
        self.names.push(name.to_owned());
        self.present.push(true);
        let file = self.names.len() - 1;
        self.add(Event::Made(file));
        file
    }

    pub(crate) fn delete(&mut self, name: &str) {
        if let Some(file) = self.find(name) {
            self.present[file] = false;
            self.add(Event::Deleted(file));
        }
    }

    fn find(&self, name: &str) -> Option<FileNo> {
        (0..self.names.len()).rev().find(|file| self.present[*file] && self.names[*file] == name)
    }
}
