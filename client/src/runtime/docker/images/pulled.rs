//! The images that this worker has pulled, with the time of their last use: the only ones that the clean-up may remove.
//!
//! They are remembered over restarts in `images.json` of the state directory, written at each pull and, for later uses, every few minutes.
//! A crash forgets the uses since then. A file that is lost or damaged only means that images stay.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error_chain::error_chain;
use crate::identity;
use crate::runtime::blocking::spawn_io;

/// The record of pulled images.
pub(in crate::runtime::docker) struct PulledImages {
    path: PathBuf,
    records: Mutex<Records>,
    /// Orders the writes of the file.
    file: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Records {
    images: BTreeMap<String, PulledRecord>,
    is_changed: bool,
}

/// One image, by its id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::runtime::docker) struct PulledRecord {
    /// The names under which it was pulled, as [`familiar`] writes them.
    pub(in crate::runtime::docker) names: BTreeSet<String>,
    /// Its last use, milliseconds since 1970.
    used: i64,
}

impl PulledRecord {
    /// Its last pull, or the last start or end of a job that used it.
    pub(in crate::runtime::docker) const fn used(&self) -> Timestamp {
        Timestamp(self.used)
    }
}

impl PulledImages {
    /// Reads the record of an earlier process. A file that cannot be read is logged, and replaced at the next pull.
    pub(in crate::runtime::docker) fn open(state_dir: &Path) -> Self {
        let path = state_dir.join(FILE);
        let read = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error.to_string()),
        };
        let images = read.unwrap_or_else(|error| {
            tracing::warn!(file = %path.display(), error, "cannot read which images this worker has pulled; the clean-up leaves them alone until they are pulled again");
            BTreeMap::new()
        });
        let records = Mutex::new(Records { images, is_changed: false });
        Self { path, records, file: tokio::sync::Mutex::default() }
    }

    /// Records a pull. Beyond the limit the least recently used image is forgotten, and stays on the disk.
    pub(in crate::runtime::docker) fn add(&self, id: &str, name: &str, now: Timestamp) {
        let name = familiar(name);
        let mut records = self.records();
        // A name belongs to the image that was pulled last.
        for (other, record) in &mut records.images {
            if other != id {
                record.names.remove(&name);
            }
        }
        let record = records
            .images
            .entry(id.to_owned())
            .or_insert_with(|| PulledRecord { names: BTreeSet::new(), used: now.0 });
        record.used = now.0;
        if record.names.len() >= NAMES_MAX && !record.names.contains(&name) {
            // Forgets the first name by alphabet. The clean-up leaves an image alone while it has a tag that is not recorded, so this image
            // may stay on the disk.
            record.names.pop_first();
        }
        record.names.insert(name);
        if records.images.len() > IMAGES_MAX {
            let others = records.images.iter().filter(|(other, _)| *other != id);
            let oldest = others.min_by_key(|(_, record)| record.used).map(|(oldest, _)| oldest.clone());
            oldest.and_then(|oldest| records.images.remove(&oldest));
        }
        records.is_changed = true;
    }

    /// Records a use, if this worker has pulled the image.
    pub(in crate::runtime::docker) fn touch(&self, id: &str, now: Timestamp) {
        let mut records = self.records();
        if let Some(record) = records.images.get_mut(id) {
            record.used = now.0;
            records.is_changed = true;
        }
    }

    /// Records a use of the image that was pulled under this name.
    pub(in crate::runtime::docker) fn touch_name(&self, name: &str, now: Timestamp) {
        let name = familiar(name);
        let mut records = self.records();
        if let Some(record) = records.images.values_mut().find(|record| record.names.contains(&name)) {
            record.used = now.0;
            records.is_changed = true;
        }
    }

    /// The image is gone.
    pub(in crate::runtime::docker) fn remove(&self, id: &str) {
        let mut records = self.records();
        records.is_changed |= records.images.remove(id).is_some();
    }

    pub(in crate::runtime::docker) fn all(&self) -> BTreeMap<String, PulledRecord> {
        self.records().images.clone()
    }

    /// Writes the file if something has changed. A failure is logged, and tried again with the next write.
    pub(in crate::runtime::docker) async fn save(&self) {
        let _turn = self.file.lock().await;
        let bytes = {
            let mut records = self.records();
            if !std::mem::take(&mut records.is_changed) {
                return;
            }
            serde_json::to_vec(&records.images).unwrap_or_default()
        };
        let path = self.path.clone();
        let write = move || identity::replace(&path, &bytes).map_err(std::io::Error::other);
        if let Err(error) = spawn_io(write).await {
            self.records().is_changed = true;
            let error = error_chain(&error);
            tracing::warn!(file = %self.path.display(), error, "cannot record which images this worker has pulled; after a restart the clean-up may leave some alone");
        }
    }

    /// Writes uses from time to time, for ever.
    pub(in crate::runtime::docker) async fn save_uses(&self) {
        loop {
            tokio::time::sleep(SAVE_EVERY).await;
            self.save().await;
        }
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name as Docker lists it: without its default registry, and with a tag.
pub(in crate::runtime::docker) fn familiar(name: &str) -> String {
    let prefixes = ["index.docker.io/", "docker.io/"];
    let short = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    let short = short.strip_prefix("library/").unwrap_or(short);
    let last = short.rsplit('/').next().unwrap_or_default();
    if last.contains([':', '@']) { short.to_owned() } else { format!("{short}:latest") }
}

const FILE: &str = "images.json";

/// About 200 bytes each. An engine rarely has more.
const IMAGES_MAX: usize = 2048;

/// Tags of one image; rarely more than three.
const NAMES_MAX: usize = 16;

/// A write per start would cost a sync each. The order of uses needs no more than this.
const SAVE_EVERY: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(pulled: &PulledImages) -> Vec<(String, i64)> {
        pulled.all().into_iter().map(|(id, record)| (id, record.used)).collect()
    }

    #[tokio::test]
    async fn pulls_and_uses_survive_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let pulled = PulledImages::open(dir.path());
        pulled.add("a", "app", Timestamp(1));
        pulled.add("b", "docker.io/library/busybox:1", Timestamp(2));
        pulled.touch("a", Timestamp(5));
        pulled.touch_name("busybox:1", Timestamp(6));
        pulled.touch("foreign", Timestamp(7));
        pulled.touch_name("foreign", Timestamp(7));
        pulled.save().await;

        let again = PulledImages::open(dir.path());
        assert_eq!(ids(&again), [("a".to_owned(), 5), ("b".to_owned(), 6)]);
        again.remove("a");
        again.save().await;
        assert_eq!(ids(&PulledImages::open(dir.path())), [("b".to_owned(), 6)]);
    }

    #[tokio::test]
    async fn a_damaged_record_forgets_images_and_is_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join(FILE), "{").expect("written");
        let pulled = PulledImages::open(dir.path());
        assert_eq!(ids(&pulled), []);
        pulled.add("a", "app", Timestamp(1));
        pulled.save().await;
        assert_eq!(ids(&PulledImages::open(dir.path())), [("a".to_owned(), 1)]);
    }

    #[test]
    fn a_tag_belongs_to_the_image_that_was_pulled_last() {
        let dir = tempfile::tempdir().expect("a directory");
        let pulled = PulledImages::open(dir.path());
        pulled.add("a", "app:latest", Timestamp(1));
        pulled.add("a", "app:1", Timestamp(1));
        pulled.add("b", "app", Timestamp(2));
        let names = |id: &str| pulled.all()[id].names.iter().cloned().collect::<Vec<_>>();
        assert_eq!((names("a"), names("b")), (vec!["app:1".to_owned()], vec!["app:latest".to_owned()]));
    }

    #[test]
    fn the_record_is_bounded() {
        let dir = tempfile::tempdir().expect("a directory");
        let pulled = PulledImages::open(dir.path());
        for n in 0..=i64::try_from(IMAGES_MAX).expect("a count") {
            pulled.add(&format!("id{n}"), "app", Timestamp(n));
        }
        assert_eq!(pulled.all().len(), IMAGES_MAX);
        assert!(!pulled.all().contains_key("id0"));
        for n in 0..=NAMES_MAX {
            pulled.add("id5", &format!("app:{n}"), Timestamp(1));
        }
        assert_eq!(pulled.all()["id5"].names.len(), NAMES_MAX);
    }

    #[test]
    fn the_name_of_the_last_pull_is_recorded_although_there_are_too_many() {
        let dir = tempfile::tempdir().expect("a directory");
        let pulled = PulledImages::open(dir.path());
        for n in 0..NAMES_MAX {
            pulled.add("a", &format!("app:{n}"), Timestamp(1));
        }
        pulled.add("a", "aa:1", Timestamp(1));
        let names = pulled.all()["a"].names.clone();
        assert!(names.len() == NAMES_MAX && names.contains("aa:1"), "{names:?}");
        pulled.add("a", "aa:1", Timestamp(2));
        assert_eq!(pulled.all()["a"].names, names);
    }

    #[test]
    fn names_are_compared_as_docker_lists_them() {
        for (name, listed) in [
            ("busybox", "busybox:latest"),
            ("docker.io/library/busybox", "busybox:latest"),
            ("docker.io/acme/app:2", "acme/app:2"),
            ("localhost:5000/app", "localhost:5000/app:latest"),
            ("app@sha256:abc", "app@sha256:abc"),
        ] {
            assert_eq!(familiar(name), listed);
        }
    }
}
