//! Slots of schedules after a restore: those that may have fired before it fire no second time.

use scheduler::schedule::ScheduleId;
use scheduler::schedule::catch_up::SlotCount;
use scheduler::schedules::{FireVerdict, MissReason, ScheduleRow};

use super::*;
use crate::store::FireFilter;

#[tokio::test]
async fn no_slot_that_may_have_fired_since_a_backup_fires_again_after_a_restore() {
    let stage = Stage::new();
    let mut server = Server::start(&stage.data());
    let slot = Timestamp(clock::now().utc.0 - 60_000);
    server.commit(vec![Change::Schedule(ScheduleRow {
        definition: "resize".into(),
        schedule: ScheduleId::named("minutely"),
        cursor: slot,
        fingerprint: 1,
        removed_at: None,
        last_fire: None,
    })]);
    let backup = stage.at("backup");
    take(&stage.data(), &backup, false).unwrap();
    let before = clock::now().utc;
    restore(&backup, &stage.at("other"), false).unwrap();
    let server = Server::start(&stage.at("other"));
    let row = &server.loaded.schedules.rows[0];
    assert!(row.cursor >= before, "the next slot is later than the restore: {row:?}");
    let fires = server.archive.fires("resize", &FireFilter::default(), 10).unwrap();
    let rows: Vec<_> = fires.iter().map(|it| (it.row.from, it.row.to, it.row.verdict)).collect();
    assert_eq!(rows, [(Timestamp(slot.0 + 1), row.cursor, FireVerdict::Missed(MissReason::Restored))]);
    assert_eq!(fires[0].row.count, SlotCount { count: 0, exact: false });
}

#[tokio::test]
async fn no_slot_of_a_schedule_that_came_after_the_backup_is_backfilled_after_a_restore() {
    let (stage, backup) = Stage::backed_up().await;
    restore(&backup, &stage.data(), true).unwrap();
    let restored_at = clock::now().utc;
    let mut server = Server::start(&stage.data());
    let key = ("resize".into(), ScheduleId::named("later"));
    server.commit(vec![Change::Schedule(ScheduleRow {
        definition: key.0,
        schedule: key.1,
        cursor: restored_at,
        fingerprint: 1,
        removed_at: None,
        last_fire: None,
    })]);
    let range = (Timestamp(0), restored_at);
    let (reading, _) = server.archive.ledger("resize", "later", range, 10).unwrap();
    let until = reading.forgotten_until.unwrap();
    assert!(until.0 + 60_000 > restored_at.0, "the lost store may have had it, and fired: {reading:?}");
}
