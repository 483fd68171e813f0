//! Facts about workers that the store keeps beside what the scheduler needs, and cordons that end by themselves.

use scheduler::fleet::row::WorkerRow;
use scheduler::origin::Intervention;

use super::*;
use crate::store::conformance::harness::worker;
use crate::store::{AccessArchive as _, RecordChange};

#[test]
fn the_end_of_a_cordon_is_kept_until_it_has_come() {
    let data_dir = TestDataDir::new();
    let Change::Worker(row) = worker(1, "w") else { unreachable!("it is one") };
    let until = Intervention { until: Some(Timestamp(9)), ..Timestamp(6).into() };
    let with_end = WorkerRow { cordon: Some(until), ..row.clone() };
    let over = WorkerRow { cordoned: false, cordon: None, ..row };
    let ended = Change::CordonEnded { row: over.clone(), until: Timestamp(9) };
    let mut number = 0;
    for (change, expected) in [(Change::Worker(with_end.clone()), with_end), (ended, over)] {
        let (mut store, _archive) = data_dir.open();
        let loaded = store.load(&mut live_jobs(|_| {})).unwrap();
        number += 1;
        store.commit(&group(&loaded, number, vec![change])).unwrap();
        drop((store, _archive));
        let (mut store, _archive) = data_dir.open();
        assert_eq!(store.load(&mut live_jobs(|_| {})).unwrap().workers, [expected]);
    }
}

#[test]
fn a_worker_is_lost_until_it_says_hello_again_or_is_forgotten() {
    let data_dir = TestDataDir::new();
    let (mut store, archive) = data_dir.open();
    let loaded = store.load(&mut live_jobs(|_| {})).unwrap();
    store.commit(&group(&loaded, 1, vec![worker(1, "one"), worker(2, "two"), worker(3, "three")])).unwrap();
    let Change::Worker(row) = worker(1, "one") else { unreachable!("it is one") };
    let lost_at = Timestamp(row.seen_at.0 + 5);
    let lost = [1, 2].map(|id| (WorkerId(id), lost_at)).to_vec();
    store.change_record(loaded.epoch, &RecordChange::WorkersLost(lost.clone())).unwrap();
    assert_eq!(archive.lost_workers().unwrap(), lost);
    // An operator changes the second one, and the first one is back.
    let back = Change::Worker(WorkerRow { seen_at: lost_at, ..row });
    store.commit(&group(&loaded, 2, vec![worker(2, "two"), back])).unwrap();
    assert_eq!(archive.lost_workers().unwrap(), lost[1..]);
    store.commit(&group(&loaded, 3, vec![Change::WorkerForgotten(WorkerId(2))])).unwrap();
    assert_eq!(archive.lost_workers().unwrap(), []);
}
