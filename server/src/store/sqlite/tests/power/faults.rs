//! A disk that fails: each of the first writes and syncs in turn. Whatever was acknowledged is there at the next start, and a full disk is
//! waited out.

use baddisk::Fault;

use super::*;

/// Each of the first writes or syncs, up to this number, fails once, in a story of its own.
const CALLS: u64 = 40;
/// Enough to come to the last of them.
const GROUPS: u64 = 60;

/// The result of a server whose disk began to fail after this number of calls.
struct Struck {
    story: Story,
    /// How often a group had to be tried again because there was no room.
    waited: u32,
    failed: bool,
}

fn strike(fault: Fault, after: u64, rng: &mut Rng) -> Struck {
    let data_dir = data_dir_of(&Image::default());
    let disk = Disk::at(data_dir.0.path()).unwrap();
    let mut past = JobHistory::none();
    let (mut store, archive) = data_dir.open();
    store.upkeep.wal.bounds = SMALL;
    let loaded = store.load(&mut |_| {}).unwrap();
    disk.acknowledge(0);
    disk.fail(fault, after);
    let (mut waited, mut failed) = (0, false);
    while !failed && past.groups.len() < GROUPS as usize {
        let mut workload = past.workloads.last().cloned().unwrap_or_default();
        let group = Arc::new(workload.group(loaded.epoch, GroupNo(past.groups.len() as u64 + 1), rng));
        past.groups.push(group.clone());
        past.workloads.push(workload);
        match store.commit(&group).and_then(|()| store.upkeep.wal.idle(&store.connection).map(drop)) {
            Ok(()) => disk.acknowledge(group.number.0),
            Err(CommitError::Unavailable(_)) => {
                waited += 1;
                disk.clear_fault();
                store.commit(&group).expect("there is room again");
                disk.acknowledge(group.number.0);
            }
            Err(CommitError::Fatal(_)) => failed = true,
            Err(other) => panic!("{other}"),
        }
    }
    // Nobody mends the disk of a process that ends.
    drop((store, archive));
    Struck {
        story: Story { recording: disk.recording(), past, expected: RefCell::default() },
        waited,
        failed,
    }
}

impl Struck {
    /// Whatever the disk kept of what was not synced.
    fn has_lost_nothing(&self, rng: &mut Rng) {
        let end = self.story.recording.events().len();
        for loss in [Loss::All, Loss::Chance, Loss::Nothing] {
            let (_, _, lost) = self.story.crash(end, loss, rng);
            assert_eq!(lost, 0, "{loss:?}");
        }
    }
}

#[test]
fn a_sync_or_a_write_that_fails_is_never_tried_again_and_loses_nothing_that_was_told() {
    let mut rng = Rng::new(seed());
    for fault in [Fault::Syncs, Fault::Writes] {
        for after in 0..CALLS {
            let struck = strike(fault, after, &mut rng);
            assert!(struck.failed && struck.waited == 0, "{fault:?} after {after}");
            struck.has_lost_nothing(&mut rng);
        }
    }
}

#[test]
fn a_full_disk_is_waited_out_and_loses_nothing_that_was_told() {
    let mut rng = Rng::new(seed());
    let mut waited = 0;
    for after in 0..CALLS {
        let struck = strike(Fault::Full, after, &mut rng);
        assert!(!struck.failed, "after {after}");
        waited += struck.waited;
        struck.has_lost_nothing(&mut rng);
    }
    assert!(waited > 0, "the disk was never full for a commit");
}
