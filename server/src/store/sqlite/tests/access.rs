//! Tokens and the audit log in the store.

use super::*;
use crate::store::{AccessArchive, AccessChange, AuditFilter, AuditLimits, AuditRow, RecordChange};

fn row(at: i64) -> AuditRow {
    AuditRow {
        id: 0,
        from: Timestamp(at),
        to: Timestamp(at),
        count: 1,
        token: None,
        role: None,
        address: None,
        method: "POST".to_owned(),
        target: "/api/jobs/resize".to_owned(),
        status: 201,
        problem: None,
        request_id: String::new(),
    }
}

/// Adds a row for each of these times, in one commit.
fn add(store: &mut SqliteStore, loaded: &Loaded, times: impl Iterator<Item = i64>, limits: AuditLimits) {
    let rows = times.map(row).collect();
    let change = RecordChange::Access(AccessChange::Audit(rows, limits));
    store.change_record(loaded.epoch, &change).unwrap();
}

/// The times of the rows, the latest first.
fn times(archive: &SqliteArchive) -> Vec<i64> {
    let rows = archive.audit(&AuditFilter { limit: 1_000, ..AuditFilter::default() }).unwrap();
    rows.iter().map(|row| row.to.0).collect()
}

#[test]
fn the_audit_log_stays_within_its_limits_however_fast_it_grows() {
    let place = Place::new();
    let (mut store, archive) = place.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    let limits = AuditLimits { since: Timestamp(0), rows_max: 10 };
    for group in 0..20 {
        add(&mut store, &loaded, group * 7..group * 7 + 7, limits);
        assert!(times(&archive).len() <= 17, "at most the limit and one commit more");
    }
    assert_eq!(times(&archive), (130..140).rev().collect::<Vec<_>>());
}

#[test]
fn old_rows_of_the_audit_log_are_deleted_as_new_ones_come() {
    let place = Place::new();
    let (mut store, archive) = place.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    let limits = |since| AuditLimits { since: Timestamp(since), rows_max: 100 };
    add(&mut store, &loaded, 0..4, limits(0));
    add(&mut store, &loaded, 10..11, limits(3));
    assert_eq!(times(&archive), [10, 3, 2], "twice as many are deleted as are added");
    add(&mut store, &loaded, 11..12, limits(3));
    assert_eq!(times(&archive), [11, 10, 3]);
}
