//! The recording of everything that happened to the files of a directory, in order.

use std::path::Path;
use std::sync::Arc;

/// The index of a file in [`Recording::names`]. A file that is created again after its deletion gets a new index.
pub(crate) type FileNo = usize;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A file was created.
    Created(FileNo),
    /// Bytes were written into a file, which grows if it has to.
    Wrote {
        /// The file's number in the recording.
        file: FileNo,
        /// Offset of the first byte.
        at: u64,
        /// Its content.
        bytes: Arc<[u8]>,
    },
    /// A file was shortened, or made longer with zeros.
    Resized {
        /// The file's number in the recording.
        file: FileNo,
        /// Its length from then on.
        length: u64,
    },
    /// All earlier writes to a file are on the disk.
    Synced(FileNo),
    /// A sync failed, and the kernel has dropped all earlier unsynced writes to the file.
    SyncFailed(FileNo),
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

    /// The number of the last commit that was acknowledged before the event with this index.
    #[must_use]
    pub fn acknowledged_before(&self, event_index: usize) -> Option<u64> {
        self.events[..event_index].iter().rev().find_map(|event| match event {
            Event::Acknowledged(number) => Some(*number),
            _ => None,
        })
    }

    /// A recording that begins with the files of a directory, as if they had been created and synced.
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

    /// The file with this name. If there is none, it is created.
    pub(crate) fn open(&mut self, name: &str) -> FileNo {
        if let Some(file) = self.find(name) {
            return file;
        }
        self.names.push(name.to_owned());
        self.present.push(true);
        let file = self.names.len() - 1;
        self.add(Event::Created(file));
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
