//! Workers with room: how many there are, and their places in the lists of their classes. Those that are set aside are left out.

use super::classes::{Classes, Position};
use super::worker::{FULL, Worker};

/// Numbers of workers with room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RoomCounts {
    pub(super) all: usize,
    pub(super) with_free_slot: usize,
}

impl RoomCounts {
    /// The counts of workers in these positions.
    pub(super) fn of(positions: impl Iterator<Item = Position>) -> Self {
        positions.fold(Self::default(), |Self { all, with_free_slot }, position| Self {
            all: all + 1,
            with_free_slot: with_free_slot + usize::from(has_free_slot(position)),
        })
    }
}

const fn has_free_slot((load, ..): Position) -> bool {
    load < FULL
}

/// Counts a worker and lists it in its class, if it has room and is not set aside.
pub(super) fn index_worker(room: &mut RoomCounts, classes: &mut Classes, worker: &Worker) {
    let Some((position, class)) = worker.listing().zip(worker.class) else { return };
    room.all += 1;
    room.with_free_slot += usize::from(has_free_slot(position));
    classes.list_open(class, position, &worker.fitting);
}

/// Undoes [`index_worker`], before anything changes that it depends on.
pub(super) fn unindex_worker(room: &mut RoomCounts, classes: &mut Classes, worker: &Worker) {
    let Some((position, class)) = worker.listing().zip(worker.class) else { return };
    room.all -= 1;
    room.with_free_slot -= usize::from(has_free_slot(position));
    classes.unlist_open(class, position, &worker.fitting);
}
