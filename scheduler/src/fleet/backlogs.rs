//! How much of which priority sits in backlogs, over all workers: so that whoever waits knows whether it goes before any of that.

use alloc::collections::BTreeMap;

use crate::ready::Place;

/// So many attempts of each priority; none is zero.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Backlogs(BTreeMap<i8, usize>);

impl Backlogs {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(super) fn add(&mut self, place: Place) {
        *self.0.entry(place.priority()).or_default() += 1;
    }

    pub(super) fn remove(&mut self, place: Place) {
        if let Some(count) = self.0.get_mut(&place.priority()) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&place.priority());
            }
        }
    }

    pub(super) fn lowest(&self) -> Option<i8> {
        self.0.first_key_value().map(|(priority, _)| *priority)
    }
}

impl<'p> FromIterator<&'p Place> for Backlogs {
    fn from_iter<T: IntoIterator<Item = &'p Place>>(places: T) -> Self {
        let mut all = Self::new();
        places.into_iter().for_each(|place| all.add(*place));
        all
    }
}
