//! Loss of power at any moment: whatever was acknowledged is there afterwards, whole groups only, and the store goes on.
//!
//! A store is written through a disk that records; then the disk is made as it could be just before and just after each sync, and at
//! other moments, and opened as any start opens it. It must hold the same as a store that never crashed and was given the same changes
//! one at a time: so this also shows that folding a group changes nothing.
//!
//! `LONGSHORE_CRASHES=10000 cargo test -p longshore-server --lib power` is the long form; it prints its seed, and `LONGSHORE_SEED` repeats it.

mod faults;
mod workload;

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use baddisk::{Disk, Event, Image, Loss, Recording, Rng};
use protocol::JobId;
use scheduler::fleet::row::WorkerRow;
use scheduler::input::KeyHolder;

use super::super::wal::WalBounds;
use super::*;
use crate::store::{JobRecord, LiveJob, live_jobs};
use workload::Workload;

/// So small that the log is moved into the file, and begun anew, every few groups.
const SMALL: WalBounds = WalBounds { step: 8, long: 40, rest: 20, most: 400 };
/// Lives of the server within one recording, and groups in each of them.
const LIVES: u64 = 2;
const GROUPS: u64 = 30;

/// The groups that a server committed, and the recording of its disk.
struct Story {
    recording: Recording,
    past: JobHistory,
    /// The expected store after this number of groups, once a crash has asked for it.
    expected: RefCell<HashMap<u64, Rc<Expected>>>,
}

/// The groups that were committed, and the workload after each; index 0 is before the first group.
#[derive(Clone)]
struct JobHistory {
    groups: Vec<Arc<Group>>,
    workloads: Vec<Workload>,
}

impl JobHistory {
    fn none() -> Self {
        Self { groups: Vec::new(), workloads: vec![Workload::default()] }
    }

    fn until(&self, group: u64) -> Self {
        let count = usize::try_from(group).unwrap();
        Self { groups: self.groups[..count].to_vec(), workloads: self.workloads[..=count].to_vec() }
    }
}

/// All that a store is asked for after a crash.
#[derive(Debug, PartialEq)]
struct Expected {
    live: Vec<LiveJob>,
    counters: (JobId, Fence, WorkerId),
    workers: Vec<WorkerRow>,
    jobs: Vec<Option<JobRecord>>,
    keys: Vec<Option<KeyHolder>>,
}

impl Expected {
    fn of(loaded: &Loaded, live: Vec<LiveJob>, archive: &SqliteArchive) -> Self {
        let jobs = (1..=loaded.last_job.0).map(|job| archive.job(JobId(job)).unwrap()).collect();
        let keys = Workload::keys_of(loaded.last_job).map(|key| archive.key(&key).unwrap().0).collect();
        let counters = (loaded.last_job, loaded.last_fence, loaded.last_worker);
        Self { live, counters, workers: loaded.workers.clone(), jobs, keys }
    }
}

/// The result of these groups in a store that never crashed and was given every change as a group of its own.
fn reference(groups: &[Arc<Group>]) -> Expected {
    let (mut store, archive) = open(&DataDirectory::temporary()).unwrap();
    // Nothing here has to survive.
    store.connection.pragma_update(None, "synchronous", "off").unwrap();
    let epoch = store.load(&mut |_| {}).unwrap().epoch;
    let mut number = GroupNo(0);
    for group in groups {
        for change in &group.changes {
            number.0 += 1;
            let (definitions, changes) = (group.definitions.clone(), vec![change.clone()]);
            store
                .commit(&Group { epoch, number, at: group.at, definitions, changes, ..Group::default() })
                .unwrap();
        }
    }
    let mut live = Vec::new();
    let loaded = store.load(&mut live_jobs(|job| live.push(job))).unwrap();
    Expected::of(&loaded, live, &archive)
}

/// A store is made, or found as a crash has left it; written, closed in good order, and written again.
fn tell(rng: &mut Rng, synchronous: &str, found: &Image, mut past: JobHistory) -> Story {
    let data_dir = data_dir_of(found);
    let disk = Disk::at(data_dir.0.path()).unwrap();
    // The files that were found are on the disk: they must survive as well.
    disk.acknowledge(past.groups.len() as u64);
    for _ in 0..LIVES {
        let (mut store, _archive) = data_dir.open();
        store.upkeep.wal.bounds = SMALL;
        store.connection.pragma_update(None, "synchronous", synchronous).unwrap();
        let loaded = store.load(&mut |_| {}).unwrap();
        for _ in 0..GROUPS {
            let mut workload = past.workloads.last().cloned().unwrap_or_default();
            let group = workload.group(loaded.epoch, GroupNo(past.groups.len() as u64 + 1), rng);
            store.commit(&group).unwrap();
            disk.acknowledge(group.number.0);
            past.groups.push(Arc::new(group));
            past.workloads.push(workload);
            if rng.chance(10) {
                store.upkeep.wal.idle(&store.connection).unwrap();
            }
        }
    }
    Story { recording: disk.recording(), past, expected: RefCell::default() }
}

/// A data directory with these files in it.
fn data_dir_of(image: &Image) -> TestDataDir {
    // In memory, where there is such a place: what is real about this disk is what was recorded of it.
    let memory = Path::new("/dev/shm");
    let data_dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let data_dir = TestDataDir(data_dir.unwrap());
    // A reserve would only cost time here.
    fs::write(data_dir.0.path().join("ballast"), "").unwrap();
    image.write_to(data_dir.0.path()).unwrap();
    data_dir
}

impl Story {
    fn expected(&self, groups: u64) -> Rc<Expected> {
        let mut known = self.expected.borrow_mut();
        known.entry(groups).or_insert_with(|| Rc::new(reference(&self.past.until(groups).groups))).clone()
    }

    /// Just before and just after each sync, and a few moments between; in any order.
    fn moments(&self, rng: &mut Rng) -> Vec<usize> {
        let events = self.recording.events();
        let is_sync = |event: &Event| matches!(event, Event::Synced(_) | Event::NamesSynced);
        // Events before the first acknowledgement only recreate the files that were found.
        let begin = events.iter().position(|event| matches!(event, Event::Acknowledged(_))).unwrap();
        let mut moments = Vec::new();
        for (at, event) in events.iter().enumerate().skip(begin + 1) {
            if is_sync(event) {
                moments.extend([at, at + 1]);
            } else if rng.chance(5) {
                moments.push(at);
            }
        }
        for left in (1..moments.len()).rev() {
            moments.swap(left, usize::try_from(rng.below(left as u64 + 1)).unwrap());
        }
        moments
    }

    /// Loses power at this moment. What is there afterwards, and how many acknowledged groups it has, and how many it lacks.
    fn crash(&self, moment: usize, loss: Loss, rng: &mut Rng) -> (Image, u64, u64) {
        let told = self.recording.acknowledged_before(moment).unwrap_or(0);
        let image = self.recording.crash(moment, loss, rng);
        let data_dir = data_dir_of(&image);
        let (mut store, archive) = data_dir.open();
        let mut live = Vec::new();
        let loaded = store.load(&mut live_jobs(|job| live.push(job))).unwrap();
        let held = loaded.group.0;
        assert!(held <= told + 1, "group {held} is here, of which nobody was told yet");
        assert_eq!(Expected::of(&loaded, live, &archive), *self.expected(held));
        let next = Group { epoch: loaded.epoch, number: GroupNo(held + 1), ..Group::default() };
        store.commit(&next).expect("it goes on");
        drop((store, archive));
        let whole: String = data_dir.sql().query_row("PRAGMA quick_check", [], |row| row.get(0)).unwrap();
        assert_eq!(whole, "ok");
        (image, held, told.saturating_sub(held))
    }
}

/// Crashes as often as is wanted. How many times something was lost that had been acknowledged.
fn crashes(wanted: usize, synchronous: &str, losses: &[Loss]) -> usize {
    let seed = seed();
    println!("{wanted} crashes, synchronous={synchronous}; repeat with LONGSHORE_SEED={seed}");
    let mut rng = Rng::new(seed);
    let (mut done, mut harmful) = (0, 0);
    let (mut found, mut past) = (Image::default(), JobHistory::none());
    while done < wanted {
        let story = tell(&mut rng, synchronous, &found, past);
        (found, past) = (Image::default(), JobHistory::none());
        for moment in story.moments(&mut rng).into_iter().take(wanted - done) {
            let loss = losses[usize::try_from(rng.below(losses.len() as u64)).unwrap()];
            let (image, held, lost) = story.crash(moment, loss, &mut rng);
            harmful += usize::from(lost > 0);
            done += 1;
            // Every other story goes on from what some crash has left of the one before.
            if held > 0 && rng.chance(1) {
                (found, past) = (image, story.past.until(held));
            }
        }
    }
    println!("{done} crashes, {harmful} of them lost something that was acknowledged");
    harmful
}

#[test]
fn power_loss_loses_no_acknowledged_group() {
    let wanted = std::env::var("LONGSHORE_CRASHES").map_or(300, |crashes| crashes.parse().unwrap());
    assert_eq!(crashes(wanted, "full", &[Loss::All, Loss::Chance, Loss::Chance, Loss::Nothing]), 0);
}

#[test]
fn power_test_detects_a_missing_sync() {
    assert!((0..10).any(|_| crashes(60, "normal", &[Loss::All]) > 0));
}

#[test]
fn power_test_detects_unsynced_names() {
    assert!((0..10).any(|_| crashes(60, "full", &[Loss::AllAndNames]) > 0));
}

fn seed() -> u64 {
    let given = std::env::var("LONGSHORE_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        since_1970.as_secs() ^ (u64::from(since_1970.subsec_nanos()) << 32)
    })
}
