//! Loss of power at any moment: whatever was acknowledged is there afterwards, whole groups only, and the store goes on.
//!
//! A store is written through a disk that records; then the disk is made as it could be just before and just after each sync, and at
//! other moments, and opened as any start opens it. What it holds is held against a store in memory that was given the same groups.
//!
//! `LONGSHORE_CRASHES=10000 cargo test -p longshore-server --lib power` is the long form; it prints its seed, and `LONGSHORE_SEED` repeats it.

mod faults;
mod workload;

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use baddisk::{Dice, Disk, Event, Image, Loss, Recording};
use protocol::JobId;

use super::super::log::Bounds;
use super::*;
use crate::store::memory::MemoryStore;
use workload::Workload;

/// So small that the log is moved into the file, and begun anew, every few groups.
const SMALL: Bounds = Bounds { step: 8, long: 40, rest: 20, most: 400 };
/// Lives of the server within one recording, and groups in each of them.
const LIVES: u64 = 2;
const GROUPS: u64 = 30;

/// What a server did, and what its disk saw of it.
struct Story {
    recording: Recording,
    past: Past,
}

/// What was committed, and what there was to go on with after each group; before the first, nothing.
#[derive(Clone)]
struct Past {
    groups: Vec<Arc<Group>>,
    workloads: Vec<Workload>,
}

impl Past {
    fn none() -> Self {
        Self { groups: Vec::new(), workloads: vec![Workload::default()] }
    }

    fn until(&self, group: u64) -> Self {
        let count = usize::try_from(group).unwrap();
        Self { groups: self.groups[..count].to_vec(), workloads: self.workloads[..=count].to_vec() }
    }
}

/// A store is made, or found as a crash has left it; written, closed in good order, and written again.
fn tell(dice: &mut Dice, synchronous: &str, found: &Image, mut past: Past) -> Story {
    let place = place_of(found);
    let disk = Disk::at(place.0.path()).unwrap();
    // What was found is on the disk: it must survive as well.
    disk.tell(past.groups.len() as u64);
    for _ in 0..LIVES {
        let (mut store, _archive) = place.open();
        store.upkeep.log.bounds = SMALL;
        store.connection.pragma_update(None, "synchronous", synchronous).unwrap();
        let loaded = store.load(&mut |_| {}).unwrap();
        for _ in 0..GROUPS {
            let mut workload = past.workloads.last().cloned().unwrap_or_default();
            let group = workload.group(loaded.epoch, GroupNo(past.groups.len() as u64 + 1), dice);
            store.commit(&group).unwrap();
            disk.tell(group.number.0);
            past.groups.push(Arc::new(group));
            past.workloads.push(workload);
            if dice.chance(10) {
                store.upkeep.log.idle(&store.connection).unwrap();
            }
        }
    }
    Story { recording: disk.recording(), past }
}

/// A data directory with these files in it.
fn place_of(image: &Image) -> Place {
    // In memory, where there is such a place: what is real about this disk is what was recorded of it.
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let place = Place(place.unwrap());
    // A reserve would only cost time here.
    fs::write(place.0.path().join("ballast"), "").unwrap();
    image.write_to(place.0.path()).unwrap();
    place
}

impl Story {
    /// Just before and just after each sync, and a few moments between; in any order.
    fn moments(&self, dice: &mut Dice) -> Vec<usize> {
        let events = self.recording.events();
        let is_sync = |event: &Event| matches!(event, Event::Synced(_) | Event::NamesSynced);
        // What was found there was there before the story.
        let begin = events.iter().position(|event| matches!(event, Event::Told(_))).unwrap();
        let mut moments = Vec::new();
        for (at, event) in events.iter().enumerate().skip(begin + 1) {
            if is_sync(event) {
                moments.extend([at, at + 1]);
            } else if dice.chance(5) {
                moments.push(at);
            }
        }
        for left in (1..moments.len()).rev() {
            moments.swap(left, usize::try_from(dice.below(left as u64 + 1)).unwrap());
        }
        moments
    }

    /// Loses power at this moment. What is there afterwards, and how many acknowledged groups it has, and how many it lacks.
    fn crash(&self, moment: usize, loss: Loss, dice: &mut Dice) -> (Image, u64, u64) {
        let told = self.recording.told_before(moment).unwrap_or(0);
        let image = self.recording.crash(moment, loss, dice);
        let place = place_of(&image);
        let (mut store, archive) = place.open();
        let mut live = Vec::new();
        let loaded = store.load(&mut |job| live.push(job)).unwrap();
        let held = loaded.group.0;
        assert!(held <= told + 1, "group {held} is here, of which nobody was told yet");
        self.compare(held, &loaded, &live, &archive);
        let next = Group { epoch: loaded.epoch, number: GroupNo(held + 1), ..Group::default() };
        store.commit(&next).expect("it goes on");
        drop((store, archive));
        let whole: String = place.sql().query_row("PRAGMA quick_check", [], |row| row.get(0)).unwrap();
        assert_eq!(whole, "ok");
        (image, held, told.saturating_sub(held))
    }

    /// A store in memory that was given the first groups is the same.
    fn compare(&self, held: u64, loaded: &Loaded, live: &[LiveJob], archive: &SqliteArchive) {
        let mut model = MemoryStore::new();
        let epoch = model.load(&mut |_| {}).unwrap().epoch;
        let past = self.past.until(held);
        for group in &past.groups {
            let (number, at) = (group.number, group.at);
            let (definitions, changes) = (group.definitions.clone(), group.changes.clone());
            model.commit(&Group { epoch, number, at, definitions, changes }).unwrap();
        }
        let mut expected = Vec::new();
        let model_loaded = model.load(&mut |job| expected.push(job)).unwrap();
        assert_eq!(live, expected);
        let counters = |it: &Loaded| (it.group, it.last_job, it.last_fence, it.last_worker);
        assert_eq!(counters(loaded), counters(&model_loaded));
        assert_eq!(loaded.workers, model_loaded.workers);
        for job in (1..=loaded.last_job.0).map(JobId) {
            assert_eq!(archive.job(job).unwrap(), model.job(job).unwrap());
        }
        for key in self.past.groups.iter().flat_map(|group| Workload::keys(group)) {
            assert_eq!(archive.key(key).unwrap(), model.key(key).unwrap());
        }
    }
}

/// Crashes as often as is wanted. How many times something was lost that had been acknowledged.
fn crashes(wanted: usize, synchronous: &str, losses: &[Loss]) -> usize {
    let seed = seed();
    println!("{wanted} crashes, synchronous={synchronous}; repeat with LONGSHORE_SEED={seed}");
    let mut dice = Dice::new(seed);
    let (mut done, mut harmful) = (0, 0);
    let (mut found, mut past) = (Image::default(), Past::none());
    while done < wanted {
        let story = tell(&mut dice, synchronous, &found, past);
        (found, past) = (Image::default(), Past::none());
        for moment in story.moments(&mut dice).into_iter().take(wanted - done) {
            let loss = losses[usize::try_from(dice.below(losses.len() as u64)).unwrap()];
            let (image, held, lost) = story.crash(moment, loss, &mut dice);
            harmful += usize::from(lost > 0);
            done += 1;
            // Every other story goes on from what some crash has left of the one before.
            if held > 0 && dice.chance(1) {
                (found, past) = (image, story.past.until(held));
            }
        }
    }
    println!("{done} crashes, {harmful} of them lost something that was acknowledged");
    harmful
}

#[test]
fn nothing_acknowledged_is_lost_with_the_power_whatever_becomes_of_the_rest() {
    let wanted = std::env::var("LONGSHORE_CRASHES").map_or(300, |crashes| crashes.parse().unwrap());
    assert_eq!(crashes(wanted, "full", &[Loss::All, Loss::Chance, Loss::Chance, Loss::Nothing]), 0);
}

#[test]
fn the_test_would_see_a_loss_without_a_sync_for_each_commit() {
    assert!((0..10).any(|_| crashes(60, "normal", &[Loss::All]) > 0));
}

#[test]
fn the_test_would_see_a_loss_if_names_were_not_synced() {
    assert!((0..10).any(|_| crashes(60, "full", &[Loss::AllAndNames]) > 0));
}

fn seed() -> u64 {
    let given = std::env::var("LONGSHORE_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        since_1970.as_secs() ^ (u64::from(since_1970.subsec_nanos()) << 32)
    })
}
