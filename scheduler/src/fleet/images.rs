//! Workers that are known to have an image, because a container of it has started there. The choice of a worker prefers them among equals.
//!
//! For each image the last few workers are known, so that a decision looks at a handful of them and not at all that have it. Nobody reports
//! what a worker removes: a job pulls an image that its worker has removed. After a restart of the server nothing is known.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::WorkerId;

/// Images by worker, and workers by image.
#[derive(Debug, Default)]
pub struct ImageHolders {
    /// Number of the last use of any image; uses are numbered from 1.
    last: u64,
    /// The workers of each image with the number of their last use of it, by this number. No list is empty.
    by_image: BTreeMap<Arc<str>, Vec<(u64, WorkerId)>>,
    /// The images of each worker by the number of its last use of them. No map is empty.
    by_worker: BTreeMap<WorkerId, BTreeMap<u64, Arc<str>>>,
}

impl ImageHolders {
    /// Records that a container of this image has started on this worker.
    pub fn record(&mut self, worker: WorkerId, image: &str) {
        let image =
            self.by_image.get_key_value(image).map_or_else(|| image.into(), |(known, _)| known.clone());
        self.forget(worker, &image);
        self.last += 1;
        let holders = self.by_image.entry(image.clone()).or_default();
        holders.push((self.last, worker));
        let oldest = (holders.len() > HOLDERS_MAX).then(|| holders[0].1);
        if let Some(oldest) = oldest {
            self.forget(oldest, &image);
        }
        let images = self.by_worker.entry(worker).or_default();
        images.insert(self.last, image);
        let oldest = (images.len() > IMAGES_MAX).then(|| images.values().next().cloned()).flatten();
        if let Some(oldest) = oldest {
            self.forget(worker, &oldest);
        }
    }

    /// The workers that have used this image last, each with the number of its last use; the latest stands last.
    #[must_use]
    pub fn of(&self, image: &str) -> &[(u64, WorkerId)] {
        self.by_image.get(image).map_or(&[], Vec::as_slice)
    }

    /// Forgets a worker with all of its images.
    pub fn remove(&mut self, worker: WorkerId) {
        for image in self.by_worker.remove(&worker).into_iter().flatten().map(|(_, image)| image) {
            self.remove_holder(worker, &image);
        }
    }

    /// Both orders have the same pairs, within their limits. For the audit.
    #[must_use]
    pub fn are_consistent(&self) -> bool {
        let by_worker = |worker, number, image: &Arc<str>| {
            self.by_worker.get(&worker).and_then(|images| images.get(&number)) == Some(image)
        };
        let count: usize = self.by_worker.values().map(BTreeMap::len).sum();
        count == self.by_image.values().map(Vec::len).sum::<usize>()
            && self.by_worker.values().all(|images| (1..=IMAGES_MAX).contains(&images.len()))
            && self.by_image.iter().all(|(image, holders)| {
                (1..=HOLDERS_MAX).contains(&holders.len())
                    && holders.is_sorted()
                    && holders.iter().all(|(number, worker)| by_worker(*worker, *number, image))
            })
    }

    fn forget(&mut self, worker: WorkerId, image: &Arc<str>) {
        if let Some(number) = self.remove_holder(worker, image)
            && let Some(images) = self.by_worker.get_mut(&worker)
        {
            images.remove(&number);
            if images.is_empty() {
                self.by_worker.remove(&worker);
            }
        }
    }

    /// Removes a worker from those of an image; returns the number of its use.
    fn remove_holder(&mut self, worker: WorkerId, image: &Arc<str>) -> Option<u64> {
        let holders = self.by_image.get_mut(image)?;
        let at = holders.iter().position(|(_, holder)| *holder == worker);
        let number = at.map(|at| holders.remove(at).0);
        if holders.is_empty() {
            self.by_image.remove(image);
        }
        number
    }
}

/// The most workers that are known for an image. Each decision may look at all of them.
pub const HOLDERS_MAX: usize = 8;

/// The most images that are known of a worker, some 100 bytes each.
pub const IMAGES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    fn of(images: &ImageHolders, image: &str) -> Vec<u64> {
        images.of(image).iter().map(|(_, worker)| worker.0).collect()
    }

    #[test]
    fn the_last_workers_of_an_image_are_known() {
        let mut images = ImageHolders::default();
        for worker in (1..=9).chain([4]) {
            images.record(WorkerId(worker), "app");
        }
        assert_eq!(of(&images, "app"), [2, 3, 5, 6, 7, 8, 9, 4]);
        assert_eq!(of(&images, "other"), [0; 0]);
        assert!(images.are_consistent());
    }

    #[test]
    fn the_last_images_of_a_worker_are_known_until_it_is_forgotten() {
        let mut images = ImageHolders::default();
        for n in 0..IMAGES_MAX {
            images.record(WorkerId(1), &format!("app:{n}"));
        }
        images.record(WorkerId(1), "app:0");
        images.record(WorkerId(2), "app:2");
        images.record(WorkerId(1), "new");
        assert_eq!(
            (of(&images, "app:0"), of(&images, "app:1"), of(&images, "new")),
            ([1].into(), [].into(), [1].into())
        );
        assert!(images.are_consistent());
        images.remove(WorkerId(1));
        assert_eq!((of(&images, "app:2"), of(&images, "new")), ([2].into(), [].into()));
        assert!(images.are_consistent());
    }
}
