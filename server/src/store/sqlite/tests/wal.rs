//! The log is moved into the file, beside the writer where it can be, and does not grow for ever.

use std::time::{Duration, Instant};

use super::super::wal::{WalBounds, restart_wal};
use super::*;

/// So small that a few groups reach them.
const SMALL: WalBounds = WalBounds { step: 8, long: 40, rest: 20, most: 400 };
const PAGE: u64 = 4_096;
/// Far above what any group here appends.
const GROUP_PAGES: u64 = 100;

fn log_bytes(data_dir: &TestDataDir) -> u64 {
    fs::metadata(data_dir.0.path().join("longshore.db-wal")).unwrap().len()
}

/// A store, and a way to commit group after group of a hundred new jobs each.
fn writing(data_dir: &TestDataDir) -> (SqliteStore, SqliteArchive, impl FnMut(&mut SqliteStore) + use<>) {
    let (mut store, archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    store.upkeep.wal.bounds = SMALL;
    let mut number = 0;
    let commit = move |store: &mut SqliteStore| {
        let jobs = (number * 100 + 1..=number * 100 + 100).map(added).collect();
        number += 1;
        store.commit(&group(&loaded, number, jobs)).unwrap();
    };
    (store, archive, commit)
}

#[test]
fn a_log_is_begun_anew_once_no_reader_needs_it() {
    let data_dir = TestDataDir::new();
    let (mut store, archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    let restart_wal =
        |store: &SqliteStore| restart_wal(&store.connection, "RESTART", Duration::ZERO).unwrap();
    store.commit(&group(&loaded, 1, (1..2_000).map(added).collect())).unwrap();
    let before = log_bytes(&data_dir);
    let reader = data_dir.sql();
    reader.execute_batch("BEGIN; SELECT count(*) FROM jobs").unwrap();
    assert!(!restart_wal(&store));
    store.commit(&group(&loaded, 2, vec![added(2_000)])).unwrap();
    assert!(log_bytes(&data_dir) > before, "this reader still needs the log");
    let before = log_bytes(&data_dir);
    reader.execute_batch("COMMIT").unwrap();
    assert!(restart_wal(&store));
    store.commit(&group(&loaded, 3, vec![added(2_001)])).unwrap();
    assert_eq!(log_bytes(&data_dir), before, "the log was begun anew");
    assert_eq!(list(&archive)[0], 2_001);
}

#[test]
fn under_load_without_a_pause_the_log_stays_within_its_bounds() {
    let data_dir = TestDataDir::new();
    let (mut store, archive, mut commit) = writing(&data_dir);
    for _ in 0..300 {
        commit(&mut store);
        assert!(log_bytes(&data_dir) <= (2 * SMALL.most.cast_unsigned() + GROUP_PAGES) * PAGE);
    }
    let after = data_dir.crash();
    drop((store, archive));
    let (_, archive) = after.open();
    assert_eq!(list(&archive)[0], 30_000);
    let whole: String = after.sql().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok");
}

#[test]
fn a_reader_that_stays_makes_the_log_longer_only_until_it_leaves() {
    let data_dir = TestDataDir::new();
    let (mut store, _archive, mut commit) = writing(&data_dir);
    commit(&mut store);
    let reader = data_dir.sql();
    reader.execute_batch("BEGIN; SELECT count(*) FROM jobs").unwrap();
    while log_bytes(&data_dir) < (SMALL.most.cast_unsigned() + 2 * GROUP_PAGES) * PAGE {
        commit(&mut store);
    }
    reader.execute_batch("COMMIT").unwrap();
    let pages =
        |store: &SqliteStore| super::super::wal_state::WalState::of(&store.connection, "NOOP").unwrap().pages;
    let until = Instant::now() + Duration::from_secs(20);
    while pages(&store) >= SMALL.most {
        assert!(Instant::now() < until, "the log was not begun anew");
        commit(&mut store);
    }
}

#[test]
fn reads_that_had_to_wait_for_the_log_go_on() {
    let data_dir = TestDataDir::new();
    let (mut store, archive, mut commit) = writing(&data_dir);
    commit(&mut store);
    archive.pool().pause();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| list(&archive).len());
        archive.pool().resume();
        assert_eq!(reading.join().unwrap(), 100);
    });
    archive.pool().pause();
    assert_eq!(list(&archive).len(), 100, "nobody waits for ever");
}

#[test]
fn an_idle_store_gives_the_space_of_its_log_back() {
    let data_dir = TestDataDir::new();
    let (mut store, _archive, mut commit) = writing(&data_dir);
    store.upkeep.wal.bounds = WalBounds::default();
    for _ in 0..20 {
        commit(&mut store);
    }
    assert!(log_bytes(&data_dir) > 0);
    let until = Instant::now() + Duration::from_secs(20);
    while log_bytes(&data_dir) > 0 {
        assert!(Instant::now() < until, "the log is still there");
        store.idle().unwrap();
        std::thread::yield_now();
    }
}
