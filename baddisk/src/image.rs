//! Makes the files that a loss of power leaves behind, from a recording, for any moment of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::recording::{Event, FileNo};
use crate::{Recording, Rng};

/// The fate of writes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All of it is lost: the disk wrote nothing that it was not made to write.
    All,
    /// Nothing is lost, as if only the process had ended.
    Nothing,
    /// For each sector, each cut and each name chance decides. A sector can be half written, and a part of a file that was never
    /// written holds what lay there before.
    Chance,
    /// As `All`, and syncing a directory has no effect either: a test that relies on unsynced names fails.
    AllAndNames,
}

/// The files of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image(BTreeMap<String, Vec<u8>>);

impl Image {
    /// Writes the files into an empty directory.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn write_to(&self, directory: &Path) -> std::io::Result<()> {
        self.0.iter().try_for_each(|(name, bytes)| std::fs::write(directory.join(name), bytes))
    }
}

impl Recording {
    /// Files that the disk could hold if the power failed just before the event with this index.
    #[must_use]
    pub fn crash(&self, event_index: usize, loss: Loss, rng: &mut Rng) -> Image {
        let mut disk = Replay::default();
        for event in &self.events[..event_index] {
            disk.take(event, loss);
        }
        let mut image = Image::default();
        for file in disk.names(loss, rng) {
            let bytes = disk.files.get(&file).map(|it| it.survivors(loss, rng)).unwrap_or_default();
            image.0.insert(self.names[file].clone(), bytes);
        }
        image
    }
}

/// The disk and what is on its way to it.
#[derive(Default)]
struct Replay {
    files: BTreeMap<FileNo, Content>,
    /// Names that are on the disk.
    durable: Vec<FileNo>,
    /// Names that were made (true) or deleted since.
    fresh: Vec<(FileNo, bool)>,
}

#[derive(Default)]
struct Content {
    synced: Vec<u8>,
    unsynced: Vec<Change>,
}

enum Change {
    Write(u64, Arc<[u8]>),
    Resize(u64),
}

impl Replay {
    fn take(&mut self, event: &Event, loss: Loss) {
        match event {
            Event::Created(file) => self.fresh.push((*file, true)),
            Event::Deleted(file) => self.fresh.push((*file, false)),
            Event::Wrote { file, at, bytes } => {
                self.content(*file).unsynced.push(Change::Write(*at, bytes.clone()))
            }
            Event::Resized { file, length } => self.content(*file).unsynced.push(Change::Resize(*length)),
            Event::Synced(file) => self.content(*file).sync(),
            Event::SyncFailed(file) => self.content(*file).unsynced.clear(),
            Event::NamesSynced if loss == Loss::AllAndNames => {}
            Event::NamesSynced => {
                for (file, is_made) in std::mem::take(&mut self.fresh) {
                    name(&mut self.durable, file, is_made);
                }
            }
            Event::Acknowledged(_) => {}
        }
    }

    fn content(&mut self, file: FileNo) -> &mut Content {
        self.files.entry(file).or_default()
    }

    /// The files that have a name. A file that was made anew takes the place of its namesake.
    fn names(&self, loss: Loss, rng: &mut Rng) -> Vec<FileNo> {
        let mut names = self.durable.clone();
        for (file, is_made) in &self.fresh {
            let survives = match loss {
                Loss::All | Loss::AllAndNames => false,
                Loss::Nothing => true,
                Loss::Chance => rng.chance(50),
            };
            if survives {
                name(&mut names, *file, *is_made);
            }
        }
        names
    }
}

fn name(names: &mut Vec<FileNo>, file: FileNo, is_made: bool) {
    names.retain(|known| *known != file);
    if is_made {
        names.push(file);
    }
}

impl Content {
    fn sync(&mut self) {
        for change in std::mem::take(&mut self.unsynced) {
            change.apply(&mut self.synced);
        }
    }

    fn survivors(&self, loss: Loss, rng: &mut Rng) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        match loss {
            Loss::All | Loss::AllAndNames => {}
            Loss::Nothing => self.unsynced.iter().for_each(|change| change.apply(&mut bytes)),
            Loss::Chance => {
                let percent = [5, 50, 95][usize::try_from(rng.below(3)).unwrap_or(0)];
                let filler = if rng.chance(25) { rng.below(256) as u8 } else { 0 };
                self.unsynced
                    .iter()
                    .for_each(|change| change.apply_in_part(&mut bytes, percent, filler, rng));
            }
        }
        bytes
    }
}

/// Bytes that a disk writes at once.
const SECTOR: usize = 512;

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Write(at, bytes) => put(to, index(*at), bytes, 0),
            Self::Resize(length) => to.resize(index(*length), 0),
        }
    }

    fn apply_in_part(&self, to: &mut Vec<u8>, percent: u64, filler: u8, rng: &mut Rng) {
        match self {
            Self::Resize(_) if rng.chance(percent) => self.apply(to),
            Self::Resize(_) => {}
            Self::Write(at, bytes) => {
                let mut done = 0;
                while done < bytes.len() {
                    let at = index(*at) + done;
                    let length = (SECTOR - at % SECTOR).min(bytes.len() - done);
                    let torn = rng.chance(2);
                    if torn || rng.chance(percent) {
                        let kept = if torn { index(rng.below(length as u64)) } else { length };
                        put(to, at, &bytes[done..done + kept], filler);
                    }
                    done += length;
                }
            }
        }
    }
}

/// Writes bytes into a file. What lies between its end and them was never written.
fn put(to: &mut Vec<u8>, at: usize, bytes: &[u8], filler: u8) {
    if to.len() < at + bytes.len() {
        to.resize(at + bytes.len(), filler);
    }
    to[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Files of tests are far smaller than memory.
fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrote(at: u64, text: &str) -> Event {
        Event::Wrote { file: 0, at, bytes: text.as_bytes().into() }
    }

    fn image(events: &[Event], loss: Loss, seed: u64) -> Option<String> {
        let mut recording = Recording::default();
        recording.open("file");
        recording.events.extend_from_slice(events);
        let image = recording.crash(recording.events.len(), loss, &mut Rng::new(seed));
        image.0.get("file").map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    #[test]
    fn only_synced_writes_survive_for_certain() {
        let events = [
            Event::NamesSynced,
            wrote(0, "abc"),
            Event::Synced(0),
            wrote(2, "xyz"),
            Event::Resized { file: 0, length: 1 },
        ];
        assert_eq!(image(&events, Loss::All, 0).unwrap(), "abc");
        assert_eq!(image(&events, Loss::Nothing, 0).unwrap(), "a");
        let seen: std::collections::BTreeSet<String> =
            (0..200).map(|seed| image(&events, Loss::Chance, seed).unwrap()).collect();
        for possible in ["abc", "a", "abxyz"] {
            assert!(seen.contains(possible), "{seen:?}");
        }
        assert!(seen.len() > 3, "writes can be torn: {seen:?}");
    }

    #[test]
    fn a_name_survives_for_certain_only_if_its_directory_was_synced() {
        let events = [wrote(0, "abc"), Event::Synced(0)];
        assert_eq!(image(&events, Loss::All, 0), None);
        let named = [&events[..], &[Event::NamesSynced]].concat();
        assert_eq!(image(&named, Loss::All, 0).unwrap(), "abc");
        assert_eq!(image(&named, Loss::AllAndNames, 0), None);
        let deleted = [&named[..], &[Event::Deleted(0)]].concat();
        assert_eq!(image(&deleted, Loss::All, 0).unwrap(), "abc");
        assert_eq!(image(&deleted, Loss::Nothing, 0), None);
    }

    #[test]
    fn writes_before_a_failed_sync_are_not_saved_by_the_next_one() {
        let events = [Event::NamesSynced, wrote(0, "abc"), Event::SyncFailed(0), Event::Synced(0)];
        assert_eq!(image(&events, Loss::All, 0).unwrap(), "");
        assert_eq!(image(&events, Loss::Nothing, 0).unwrap(), "");
    }
}
