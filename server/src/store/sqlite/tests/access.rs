//! Tokens and the audit log in the store.

use scheduler::fleet::row::WorkerRow;
use scheduler::ids::JoinTokenId;

use super::*;
use crate::auth::actor::Scope;
use crate::auth::role::Role;
use crate::store::conformance::harness::worker;
use crate::store::{
    AccessArchive, AccessChange, AuditFilter, AuditLimits, AuditRow, RecordChange, TokenId, TokenRow,
};

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
        object: None,
        detail: None,
    }
}

fn join_token(id: u64) -> TokenRow {
    TokenRow {
        id: TokenId(id),
        name: "join".into(),
        hash: [7; 32],
        role: Role::Worker,
        scope: Scope::default(),
        created_at: Timestamp(1),
        created_by: String::new(),
        expires_at: None,
        last_used_at: None,
        revoked_at: None,
        uses: Some(2),
        labels: vec![("zone".to_owned(), "eu".to_owned())],
        joined: 0,
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
    let data_dir = TestDataDir::new();
    let (mut store, archive) = data_dir.open();
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
    let data_dir = TestDataDir::new();
    let (mut store, archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    let limits = |since| AuditLimits { since: Timestamp(since), rows_max: 100 };
    add(&mut store, &loaded, 0..4, limits(0));
    add(&mut store, &loaded, 10..11, limits(3));
    assert_eq!(times(&archive), [10, 3, 2], "twice as many are deleted as are added");
    add(&mut store, &loaded, 11..12, limits(3));
    assert_eq!(times(&archive), [11, 10, 3]);
}

#[test]
fn rows_from_before_the_details_are_read_and_later_ones_are_found_by_them() {
    let data_dir = TestDataDir::new();
    let mut shell = data_dir.sql();
    migrate::migrate_to(&mut shell, &data_dir.file(), migrate::before("audit_details"));
    let earlier = "INSERT INTO audit (since, until, count, method, target, status, request_id)
        VALUES (1, 1, 1, 'POST', '/api/tokens', 201, 'a')";
    shell.execute_batch(earlier).unwrap();
    drop(shell);
    let (mut store, archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    let object = |name: &str| Some(format!("token {name}"));
    let rows = vec![
        AuditRow { object: object("ci"), detail: Some("role viewer".to_owned()), ..row(2) },
        AuditRow { object: object("other"), detail: Some("role admin".to_owned()), ..row(3) },
    ];
    let limits = AuditLimits { since: Timestamp(0), rows_max: 100 };
    let change = RecordChange::Access(AccessChange::Audit(rows, limits));
    store.change_record(loaded.epoch, &change).unwrap();
    let found = |about: &str| -> Vec<(i64, Option<String>)> {
        let filter = AuditFilter { about: Some(about.to_owned()), limit: 10, ..AuditFilter::default() };
        archive.audit(&filter).unwrap().into_iter().map(|row| (row.to.0, row.object)).collect()
    };
    assert_eq!(times(&archive), [3, 2, 1]);
    assert_eq!(found("token ci"), [(2, object("ci"))]);
    assert_eq!(found("admin"), [(3, object("other"))]);
}

#[test]
fn workers_that_join_by_a_token_are_counted_once_in_the_commit_that_adds_them() {
    let data_dir = TestDataDir::new();
    let (mut store, archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    let token = join_token(3);
    let add = RecordChange::Access(AccessChange::AddToken(Box::new(token.clone())));
    store.change_record(loaded.epoch, &add).unwrap();
    assert_eq!(archive.tokens().unwrap(), std::slice::from_ref(&token));
    let joined = |number| {
        let Change::Worker(row) = worker(number, "w") else { unreachable!("it is one") };
        Change::Worker(WorkerRow { join_token: Some(JoinTokenId(3)), ..row })
    };
    let mut commit = |number, changes| {
        let group = group(&loaded, number, changes);
        store.commit(&group).unwrap();
        // Its result may have been unknown.
        store.commit(&group).unwrap();
        archive.tokens().unwrap()[0].joined
    };
    assert_eq!(commit(1, vec![joined(1), joined(1), worker(2, "other")]), 1);
    assert_eq!(commit(2, vec![joined(1), joined(4)]), 2);
    assert_eq!(commit(3, vec![Change::WorkerForgotten(WorkerId(1))]), 2, "a use does not come back");
}

#[test]
fn numbers_of_forgotten_tokens_are_not_given_again() {
    let data_dir = TestDataDir::new();
    let (mut store, archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    let mut change = |change| store.change_record(loaded.epoch, &RecordChange::Access(change)).unwrap();
    for id in 1..=4 {
        change(AccessChange::AddToken(Box::new(join_token(id))));
        change(AccessChange::RevokeToken(TokenId(id), Timestamp(id.cast_signed())));
    }
    let Change::Worker(row) = worker(1, "w") else { unreachable!("it is one") };
    let joined = Change::Worker(WorkerRow { join_token: Some(JoinTokenId(2)), ..row });
    store.commit(&group(&loaded, 1, vec![joined])).unwrap();
    let mut forget_before = |time| {
        let change = RecordChange::Access(AccessChange::ForgetTokens(Timestamp(time)));
        store.change_record(loaded.epoch, &change).unwrap();
        archive.tokens().unwrap().iter().map(|row| row.id.0).collect::<Vec<_>>()
    };
    assert_eq!(forget_before(3), [2, 3, 4], "a worker has joined by the second one");
    assert_eq!(forget_before(100), [2, 4], "the last one tells the number of the next");
}
