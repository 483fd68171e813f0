//! Image clean-up: decides which images a worker removes to make room on its engine's disk.
//!
//! It begins when the use of the disk reaches the high watermark, and goes on until the use is at the low one: least recently used first,
//! one image at a time, because only the disk tells how much a removal has freed. The client lists the images and removes them.

use core::time::Duration;

use protocol::Timestamp;

/// Shares of the disk in percent: clean-up begins at `high` and ends at `low`, which is smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    high: u8,
    low: u8,
}

impl Watermarks {
    /// `None` unless `low` is below `high`, and `high` is at most 100.
    #[must_use]
    pub fn new(high: u8, low: u8) -> Option<Self> {
        (low < high && high <= 100).then_some(Self { high, low })
    }

    /// The share at which clean-up begins, in percent.
    #[must_use]
    pub const fn high(self) -> u8 {
        self.high
    }

    /// The share at which clean-up ends, in percent.
    #[must_use]
    pub const fn low(self) -> u8 {
        self.low
    }
}

/// The use of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskUse {
    /// Bytes in use.
    pub used: u64,
    /// Bytes in use, and those that are free for everybody.
    pub usable: u64,
}

impl DiskUse {
    /// The share in use, in percent, rounded down. An empty file system has none.
    #[must_use]
    pub fn percent(self) -> u8 {
        let percent = (u128::from(self.used) * 100).checked_div(u128::from(self.usable)).unwrap_or(0);
        u8::try_from(percent).unwrap_or(u8::MAX)
    }

    fn reaches(self, percent: u8) -> bool {
        u128::from(self.used) * 100 >= u128::from(self.usable) * u128::from(percent)
    }

    fn exceeds(self, percent: u8) -> bool {
        u128::from(self.used) * 100 > u128::from(self.usable) * u128::from(percent)
    }
}

/// An image that this worker has pulled, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PulledImage {
    /// Its last pull, or the last start or end of a job that used it.
    pub used: Timestamp,
    /// It stays for a reason that the client has found, such as a container.
    pub is_held: bool,
}

/// The state of the clean-up.
#[derive(Debug)]
pub struct ImageGc {
    watermarks: Watermarks,
    min_age: Duration,
    is_cleaning: bool,
}

impl ImageGc {
    /// An idle clean-up. Images that were used within `min_age` stay.
    #[must_use]
    pub const fn new(watermarks: Watermarks, min_age: Duration) -> Self {
        Self { watermarks, min_age, is_cleaning: false }
    }

    /// Returns `true` if the disk needs room: it has reached the high watermark, and not yet come down to the low one.
    pub fn needs_room(&mut self, disk: DiskUse) -> bool {
        if disk.usable == 0 {
            self.is_cleaning = false;
        } else if self.is_cleaning {
            self.is_cleaning = disk.exceeds(self.watermarks.low);
        } else {
            self.is_cleaning = disk.reaches(self.watermarks.high);
        }
        self.is_cleaning
    }

    /// The index of the image to remove next. `None` ends the clean-up until the disk reaches the high watermark again.
    pub fn next(&mut self, now: Timestamp, images: &[PulledImage]) -> Option<usize> {
        let may_go =
            |image: &PulledImage| self.is_cleaning && !image.is_held && now.since(image.used) >= self.min_age;
        let candidates = images.iter().enumerate().filter(|(_, image)| may_go(image));
        let oldest = candidates.min_by_key(|(index, image)| (image.used, *index)).map(|(index, _)| index);
        self.is_cleaning = oldest.is_some();
        oldest
    }
}

/// The least time since its last use after which an image may go.
pub const MIN_AGE: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn gc(high: u8, low: u8) -> ImageGc {
        ImageGc::new(Watermarks::new(high, low).expect("watermarks"), MIN_AGE)
    }

    const fn disk(used: u64) -> DiskUse {
        DiskUse { used, usable: 100 }
    }

    fn image(minutes: u64) -> PulledImage {
        PulledImage { used: NOW - Duration::from_secs(60 * minutes), is_held: false }
    }

    #[test]
    fn clean_up_begins_at_the_high_watermark_and_ends_at_the_low_one() {
        let mut gc = gc(85, 70);
        let steps = [(84, false), (71, false), (85, true), (84, true), (71, true), (70, false), (84, false)];
        for (used, needs_room) in steps {
            assert_eq!(gc.needs_room(disk(used)), needs_room, "{used}");
        }
        assert!(!gc.needs_room(DiskUse { used: 0, usable: 0 }), "a disk that says nothing is not full");
    }

    #[test]
    fn the_least_recently_used_image_goes_first() {
        let mut gc = gc(85, 70);
        assert_eq!(gc.next(NOW, &[image(500)]), None, "there is room");
        assert!(gc.needs_room(disk(90)));
        assert_eq!(gc.next(NOW, &[image(70), image(500), image(90)]), Some(1));
    }

    #[test]
    fn images_that_are_held_or_younger_than_an_hour_stay() {
        let mut gc = gc(85, 70);
        let held = PulledImage { is_held: true, ..image(900) };
        let set_back = PulledImage { used: NOW + Duration::from_secs(900), is_held: false };
        assert!(gc.needs_room(disk(90)));
        assert_eq!(gc.next(NOW, &[held.clone(), image(59), set_back.clone(), image(60)]), Some(3));
        assert_eq!(gc.next(NOW, &[held, image(59), set_back]), None);
        assert!(!gc.needs_room(disk(84)), "nothing was left: it waits for the high watermark again");
        assert!(gc.needs_room(disk(85)));
    }

    #[test]
    fn watermarks_are_in_order() {
        let percents = |high, low| Watermarks::new(high, low).map(|it| (it.high(), it.low()));
        assert_eq!(percents(85, 70), Some((85, 70)));
        assert_eq!(percents(100, 0), Some((100, 0)));
        assert_eq!((percents(70, 85), percents(70, 70), percents(101, 70)), (None, None, None));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// A clean-up of a simulated disk, compared with the rules.
        #[test]
        fn a_clean_up_removes_no_more_and_no_other_than_it_must(
            images in prop::collection::vec((0_u64..200, any::<bool>(), 0_u64..50), 0..12),
            others in 0_u64..400,
            usable in 1_u64..900,
            (low, high) in (0_u8..100).prop_flat_map(|low| (Just(low), low + 1..=100)),
        ) {
            let mut left: Vec<(PulledImage, u64)> = images
                .iter()
                .map(|&(minutes, is_held, bytes)| (PulledImage { is_held, ..image(minutes) }, bytes))
                .collect();
            let use_of = |left: &[(PulledImage, u64)]| {
                let used = others + left.iter().map(|(_, bytes)| bytes).sum::<u64>();
                DiskUse { used, usable: used.max(usable) }
            };
            let may_go = |image: &PulledImage| !image.is_held && image.used <= NOW - MIN_AGE;
            let mut gc = gc(high, low);
            let began = use_of(&left).reaches(high);
            let mut removed = 0;
            while gc.needs_room(use_of(&left)) {
                prop_assert!(began && use_of(&left).exceeds(low));
                let states: Vec<PulledImage> = left.iter().map(|(image, _)| image.clone()).collect();
                let Some(index) = gc.next(NOW, &states) else { break };
                let (image, _) = left.remove(index);
                prop_assert!(may_go(&image));
                prop_assert!(left.iter().all(|(other, _)| !may_go(other) || other.used >= image.used));
                removed += 1;
            }
            prop_assert!(removed <= images.len());
            // It stops only for one of the two reasons.
            let is_done = !use_of(&left).exceeds(low) || !left.iter().any(|(image, _)| may_go(image));
            prop_assert!(is_done || (!began && removed == 0));
        }
    }
}
