//! What happened to the files of a directory, in order.

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
        /// Which file.
        file: FileNo,
        /// Where in it.
        at: u64,
        /// What.
        bytes: Arc<[u8]>,
    },
    /// A file was cut, or made longer with zeros.
    Cut {
        /// Which file.
        file: FileNo,
        /// Its length from then on.
        length: u64,
    },
    /// What had been written to a file until then is on the disk.
    Synced(FileNo),
    /// What had been written to a file until then was to be synced, and is lost: the system has forgotten it.
    Failed(FileNo),
    /// A file lost its name.
    Deleted(FileNo),
    /// Which names there are is on the disk.
    NamesSynced,
    /// Somebody was told something.
    Told(u64),
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub(crate) events: Vec<Event>,
    /// The name of each file.
    pub(crate) names: Vec<String>,
    /// Whether it still has it.
    present: Vec<bool>,
}

impl Recording {
    /// What happened, in order.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// What the last one was told before this moment.
    #[must_use]
    pub fn told_before(&self, moment: usize) -> Option<u64> {
        self.events[..moment].iter().rev().find_map(|event| match event {
            Event::Told(what) => Some(*what),
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
