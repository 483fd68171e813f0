//! The checks of the schedule rows find what a restore or a wrong scheduler does to them.

use protocol::Revision;
use scheduler::details::JobDetails;
use scheduler::job::State;

use super::*;

const SLOT: Timestamp = Timestamp(1_000);

fn rule() -> Schedule {
    Schedule::new("d", Some("first"), Rule::every("1s").expect("a good rule"), Zone::utc())
}

fn begun() -> Schedules {
    let mut schedules = Schedules::default();
    schedules.take(
        &Change::Schedule(ScheduleRow {
            definition: "d".into(),
            schedule: ScheduleId::named("first"),
            cursor: Timestamp(500),
            fingerprint: rule().fingerprint(),
            removed_at: None,
            last_fire: None,
        }),
        &[],
    );
    schedules
}

fn fire(schedules: &mut Schedules, job: u64) {
    let details = JobDetails { overrides: rule().overrides_at(SLOT), ..JobDetails::default() };
    let added = AddedJob {
        job: JobId(job),
        revision: Revision(1),
        state: State::Queued,
        priority: 0,
        created_at: SLOT,
        due_at: SLOT,
        timeout: None,
        batch: None,
        retry_of: None,
        submitted_by: None,
        narrowing: None,
        keys: None,
        details: Some(Box::new(details)),
    };
    schedules.check_job(&added, "d");
}

#[test]
fn a_slot_that_fired_after_the_backup_is_remembered_over_a_restore() {
    let mut present = begun();
    fire(&mut present, 1);
    let mut restored = begun();
    restored.go_on(&present, Timestamp(2_000));
    assert_eq!(restored.take_violation(), None);
    fire(&mut restored, 2);
    let (rule, what) = restored.take_violation().expect("a second job of the slot");
    assert!(rule.starts_with("promise 4") && what.contains("and another one"), "{rule}: {what}");
}

#[test]
fn a_slot_that_is_to_come_after_a_restore_may_fire_again() {
    let mut present = begun();
    fire(&mut present, 1);
    let mut restored = begun();
    // The clock was set back before the restore.
    restored.go_on(&present, Timestamp(SLOT.0 - 1));
    fire(&mut restored, 2);
    assert_eq!(restored.take_violation(), None);
}

#[test]
fn a_restore_decides_all_slots_up_to_its_own_time() {
    let mut restored = begun();
    restored.go_on(&begun(), Timestamp(2_000));
    let reading = restored.reading(&"d".into(), &ScheduleId::named("first"));
    let until = Some(Timestamp(2_000));
    assert_eq!((reading.decided_until, reading.forgotten_until), (until, until));
}
