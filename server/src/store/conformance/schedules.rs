//! Stories of schedules and of what became of their slots.

use protocol::{JobId, Timestamp};
use scheduler::expectations::{ExpectationRow, SlowRun};
use scheduler::job::State;
use scheduler::origin::{Intervention, Origin};
use scheduler::pauses::{PauseChange, PauseTarget};
use scheduler::schedule::ScheduleId;
use scheduler::schedule::catch_up::SlotCount;
use scheduler::schedules::{FireRow, FireVerdict, LastFire, MissReason, ScheduleRow, SkipReason};
use scheduler::step::Change;

use super::Backend;
use super::harness::*;
use crate::store::{FireFilter, JobSlot, RetentionCutoffs};

fn slots(from: i64, to: i64, verdict: FireVerdict) -> FireRow {
    FireRow {
        definition: "resize".into(),
        schedule: ScheduleId::named("nightly"),
        from: Timestamp(from),
        to: Timestamp(to),
        count: SlotCount { count: 1, exact: true },
        verdict,
        at: Timestamp(to + 5),
    }
}

fn schedule(cursor: i64) -> ScheduleRow {
    ScheduleRow {
        definition: "resize".into(),
        schedule: ScheduleId::named("nightly"),
        cursor: Timestamp(cursor),
        fingerprint: u64::MAX,
        removed_at: None,
        last_fire: None,
    }
}

const PAUSED: FireVerdict = FireVerdict::Skipped(SkipReason::Paused);

/// A pause whose requester and reason are known, or one of an older version.
fn pause_of(target: &PauseTarget) -> Intervention {
    let origin = match target {
        PauseTarget::Schedules => Origin::default(),
        _ => Origin { by: "anna".into(), reason: Some(format!("{target} is \"broken\"").into()) },
    };
    let until = matches!(target, PauseTarget::Group(_)).then_some(Timestamp(9));
    Intervention { since: Timestamp(7), until, origin }
}

pub(in crate::store) fn schedules_and_pauses_outlive_a_restart(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let one = PauseTarget::Schedule("resize".into(), ScheduleId::named("nightly"));
    // A group and a definition may have the same name.
    let all = [
        PauseTarget::Server,
        PauseTarget::Schedules,
        PauseTarget::Group("resize".into()),
        PauseTarget::Definition("resize".into()),
        one,
        PauseTarget::Batch(JobId(7)),
    ];
    let pause = |target: &PauseTarget| Change::Paused {
        target: target.clone(),
        pause: PauseChange::Set(pause_of(target)),
    };
    harness.commit(vec![Change::Schedule(schedule(10))]);
    // Each is replaced.
    let first = |target: &PauseTarget| Change::Paused {
        target: target.clone(),
        pause: PauseChange::Set(Intervention { until: Some(Timestamp(8)), ..Timestamp(7).into() }),
    };
    harness.commit(all.iter().map(first).collect());
    harness.commit(all.iter().map(pause).collect());
    let last_fire = Some(LastFire { slot: Timestamp(20), at: Timestamp(25), job: JobId(1) });
    let fired = ScheduleRow { last_fire, removed_at: Some(Timestamp(30)), ..schedule(20) };
    harness.commit(vec![
        Change::Schedule(fired.clone()),
        Change::Paused { target: PauseTarget::Server, pause: PauseChange::Ended(Timestamp(9)) },
    ]);
    let (loaded, _) = harness.restart();
    assert_eq!(loaded.schedules.rows, [fired]);
    let paused: Vec<PauseTarget> = loaded.schedules.paused.iter().map(|(target, _)| target.clone()).collect();
    assert_eq!(paused, all[1..]);
    assert!(loaded.schedules.paused.iter().all(|(target, pause)| *pause == pause_of(target)));
    let shown = harness.archive().schedules().unwrap();
    assert_eq!((shown.rows, shown.paused), (loaded.schedules.rows, loaded.schedules.paused));
}

pub(in crate::store) fn expectations_outlive_a_restart(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let row = |name: &str| ExpectationRow {
        definition: name.into(),
        awaited_since: Some(Timestamp(5)),
        stale_since: None,
        slow: None,
    };
    let slow = Some(SlowRun { job: JobId(7), since: Timestamp(9) });
    let worse = ExpectationRow { stale_since: Some(Timestamp(8)), slow, ..row("b") };
    let bare = ExpectationRow { awaited_since: None, ..row("c") };
    harness.commit(["a", "b", "d"].map(|name| Change::Expectation(row(name))).to_vec());
    harness.commit(vec![Change::Expectation(worse.clone()), Change::Expectation(bare.clone())]);
    harness.commit(vec![Change::ExpectationDropped { definition: "d".into() }]);
    assert_eq!(harness.restart().0.expectations, [row("a"), worse, bare]);
}

pub(in crate::store) fn jobs_of_schedules_are_known_until_they_have_ended(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let fired = |from, job| Change::Fire(slots(from, from, FireVerdict::Fired(JobId(job))));
    harness.commit(vec![added(1), fired(10, 1), added(2), fired(20, 2), added(3)]);
    assert_eq!(
        harness.restart().0.schedules.jobs,
        [(JobId(1), "resize".into()), (JobId(2), "resize".into())]
    );
    harness.commit(vec![ended_at(1, State::Cancelled, 50)]);
    assert_eq!(harness.restart().0.schedules.jobs, [(JobId(2), "resize".into())]);
    let slot = |job| harness.archive().job(JobId(job)).unwrap().unwrap().row.slot;
    assert_eq!(slot(1), Some(JobSlot { schedule: "nightly".into(), at: Timestamp(10) }));
    assert_eq!(slot(3), None);
}

pub(in crate::store) fn a_slot_is_decided_once(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![added(1), Change::Fire(slots(10, 10, FireVerdict::Fired(JobId(1))))]);
    harness.commit(vec![Change::Fire(slots(20, 30, PAUSED))]);
    harness.commit(vec![Change::Fire(slots(20, 40, PAUSED))]);
    harness.commit(vec![Change::Schedule(schedule(40))]);
    let again = |row| vec![Change::Fire(row)];
    for row in [
        slots(10, 10, FireVerdict::Fired(JobId(2))),
        slots(10, 20, PAUSED),
        slots(20, 50, FireVerdict::Missed(MissReason::Policy)),
        slots(20, 30, PAUSED),
        slots(35, 50, PAUSED),
    ] {
        harness.refused(again(row));
    }
    harness.commit(again(slots(50, 50, FireVerdict::Skipped(SkipReason::Overlap(JobId(1))))));
    let shown: Vec<_> = harness.archive().fires("resize", &FireFilter::default(), 10).unwrap();
    let rows: Vec<(i64, i64)> = shown.iter().map(|fire| (fire.row.from.0, fire.row.to.0)).collect();
    assert_eq!(rows, [(50, 50), (20, 40), (10, 10)]);
    let page = harness
        .archive()
        .fires("resize", &FireFilter { before: Some(shown[0].id), ..FireFilter::default() }, 1)
        .unwrap();
    assert_eq!(page, shown[1..2]);
    assert!(harness.archive().fires("other", &FireFilter::default(), 10).unwrap().is_empty());
    let slots_of = |filter: FireFilter| -> Vec<i64> {
        let found = harness.archive().fires("resize", &filter, 10).unwrap();
        found.iter().map(|fire| fire.row.from.0).collect()
    };
    let schedule = |id: &str| FireFilter { schedule: Some(id.to_owned()), ..FireFilter::default() };
    assert_eq!(slots_of(schedule("nightly")), [50, 20, 10]);
    assert!(slots_of(schedule("night")).is_empty());
    let between = |since, until| {
        slots_of(FireFilter {
            since: Some(Timestamp(since)),
            until: Some(Timestamp(until)),
            ..schedule("nightly")
        })
    };
    assert_eq!(between(10, 51), [50, 20, 10]);
    assert_eq!(between(11, 50), [20], "a row of several slots has one in the range");
    assert!(between(40, 20).is_empty());
    assert_eq!(between(40, 41), [20]);
    assert!(between(41, 50).is_empty());
}

pub(in crate::store) fn a_slot_becomes_one_job_by_a_backfill(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let backfilled = |slot, job| Change::Fire(slots(slot, slot, FireVerdict::Backfilled(JobId(job))));
    harness.commit(vec![
        Change::Schedule(schedule(5)),
        added(1),
        Change::Fire(slots(10, 10, FireVerdict::Fired(JobId(1)))),
    ]);
    harness.commit(vec![Change::Fire(slots(20, 30, PAUSED)), Change::Schedule(schedule(30))]);
    // The first slot of a row, one within it, and one before all of them.
    harness.commit(vec![
        added(2),
        added(3),
        added(4),
        backfilled(5, 2),
        backfilled(20, 3),
        backfilled(25, 4),
    ]);
    for slot in [5, 10, 20, 25] {
        harness.refused(vec![added(5), backfilled(slot, 5)]);
    }
    // The row goes on beside them.
    harness.commit(vec![Change::Fire(slots(20, 40, PAUSED)), Change::Schedule(schedule(40))]);
    harness.refused(vec![Change::Fire(slots(35, 50, PAUSED))]);
    let read = |harness: &Harness<'_>, from, to| {
        harness.archive().ledger("resize", "nightly", (Timestamp(from), Timestamp(to)), 10).unwrap().0
    };
    let all = read(&harness, 0, 100);
    let fired: Vec<(i64, u64)> = all.fired.iter().map(|(slot, job)| (slot.0, job.0)).collect();
    assert_eq!(fired, [(5, 2), (10, 1), (20, 3), (25, 4)]);
    assert_eq!((all.decided_until, all.forgotten_until), (Some(Timestamp(40)), None));
    assert_eq!(read(&harness, 21, 24).fired.len(), 0);
    let (loaded, _) = harness.restart();
    let jobs: Vec<u64> = loaded.schedules.jobs.iter().map(|(job, _)| job.0).collect();
    assert_eq!(jobs, [1, 2, 3, 4], "they are jobs of schedules");
    let row = harness.archive().job(JobId(4)).unwrap().unwrap().row;
    assert_eq!(row.slot, Some(JobSlot { schedule: "nightly".into(), at: Timestamp(25) }));
    // With the row of the pause goes the knowledge of what its slots became.
    harness.remove(RetentionCutoffs { ended_since: Timestamp(50), ..KEEP });
    assert_eq!(read(&harness, 0, 100).forgotten_until, Some(Timestamp(40)));
}

pub(in crate::store) fn a_removed_schedule_is_forgotten_with_the_last_row_of_its_ledger(
    backend: &mut dyn Backend,
) {
    let mut harness = Harness::new(backend);
    let one = PauseTarget::Schedule("resize".into(), ScheduleId::named("nightly"));
    let removed = |at| Change::Schedule(ScheduleRow { removed_at: Some(Timestamp(at)), ..schedule(40) });
    let other = ScheduleRow { definition: "mail".into(), ..schedule(70) };
    harness.commit(vec![
        Change::Schedule(schedule(40)),
        Change::Schedule(other.clone()),
        Change::Paused { target: one, pause: PauseChange::Set(Timestamp(7).into()) },
        added(1),
        Change::Fire(slots(40, 40, FireVerdict::Fired(JobId(1)))),
    ]);
    let by = |at| RetentionCutoffs { ended_since: Timestamp(at), ..KEEP };
    assert_eq!(harness.remove(by(100)).schedules, 0, "it is in jobs.yaml");
    harness.commit(vec![removed(50)]);
    assert_eq!(harness.remove(by(50)).schedules, 0, "it left just then");
    assert_eq!(harness.remove(by(100)).schedules, 0, "its job is kept, and so is the row of its slot");
    harness.commit(vec![ended_at(1, State::Cancelled, 60)]);
    while harness.remove(by(100)).more {}
    let (loaded, _) = harness.restart();
    assert_eq!((loaded.schedules.rows, loaded.schedules.paused), (vec![other], vec![]));
    // It comes back: nobody knows which of its slots fired.
    harness.commit(vec![Change::Schedule(schedule(200))]);
    let range = (Timestamp(0), Timestamp(300));
    let reading = harness.archive().ledger("resize", "nightly", range, 10).unwrap().0;
    assert_eq!(reading.forgotten_until, Some(Timestamp(40)));
}

pub(in crate::store) fn the_ledger_goes_by_age_and_keeps_rows_of_kept_jobs(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![added(1), Change::Fire(slots(10, 10, FireVerdict::Fired(JobId(1))))]);
    harness.commit(vec![
        Change::Fire(slots(20, 30, PAUSED)),
        Change::Fire(slots(40, 40, FireVerdict::Missed(MissReason::Limit))),
    ]);
    let removed = harness.remove(RetentionCutoffs { ended_since: Timestamp(45), ..KEEP });
    assert_eq!(removed.fires, 1);
    let left = harness.archive().fires("resize", &FireFilter::default(), 10).unwrap();
    let left: Vec<i64> = left.iter().map(|fire| fire.row.from.0).collect();
    assert_eq!(left, [40, 10]);
}
