//! Slots with the ends of their jobs, and the slots that retries carry on.

use protocol::JobId;
use protocol::container::Overrides;
use scheduler::details::JobDetails;
use scheduler::step::Ended;

use super::*;
use crate::store::{FIRES_SEARCHED, FailedFires, FireFilter, SlotArchive as _, SlotEnd};

/// Jobs 1 to 9 of slots 1 to 9, and their retries from 11 on.
fn fill(shell: &Connection) {
    shell
        .execute_batch(
            "INSERT INTO definitions (id, revision, name, entry) VALUES (1, zeroblob(16), 'resize', '{}'),
                 (2, x'00000000000000000000000000000001', 'mail', '{}');
             CREATE TABLE every (i INTEGER, state INTEGER, retry_of INTEGER);
             -- 1 succeeded. 2 failed. 3 failed, its retry succeeded. 4 failed, so did its retry and the retry of that. 5 was acknowledged, or
             -- failed under an older version. 6 was deleted, its retry failed. 7 failed and was retried, and the retry was deleted. 8 expired.
             INSERT INTO every VALUES (1, 6, NULL), (2, 7, NULL), (3, 7, NULL), (4, 7, NULL), (5, 7, NULL), (7, 7, NULL), (8, 9, NULL),
                 (13, 6, 3), (14, 7, 4), (15, 7, 14), (16, 7, 6);
             INSERT INTO ended (id, definition, state, priority, created_at, due_at, details, attempts, fence, nonce, worker,
                 assigned_at, outcome, exit_code, stdout_bytes, stderr_bytes, closed_at, ended_at, confirmed, retry_of)
             SELECT i, 1, state, 0, 1, 1, 0, 1, i, 1, 1, 1, iif(state = 6, 1, 2), iif(state = 6, 0, i), 0, 0, 2, 2, 0, retry_of FROM every;
             INSERT INTO unresolved (job, name) VALUES (2, 1), (8, 1), (15, 1), (16, 1);
             INSERT INTO fires (id, definition, schedule, first_slot, last_slot, count, exact, verdict, reason, job, at)
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8)
             SELECT i, 'resize', iif(i = 8, 'hourly', 'nightly'), i, i, 1, 1, 'fired', NULL, i, i FROM n;
             INSERT INTO fires (id, definition, schedule, first_slot, last_slot, count, exact, verdict, reason, job, at)
             VALUES (9, 'resize', 'nightly', 9, 9, 1, 1, 'skipped', 'overlap', 2, 9);",
        )
        .unwrap();
}

fn ids(found: &FailedFires) -> Vec<u64> {
    found.rows.iter().map(|record| record.id).collect()
}

#[test]
fn a_slot_has_the_end_of_its_job_and_that_of_the_last_retry() {
    let data_dir = TestDataDir::new();
    let (_store, archive) = data_dir.open();
    fill(&data_dir.sql());
    let ends = archive.slot_ends(&[1, 3, 4, 5, 6].map(JobId)).unwrap();
    let job = |it: Option<crate::store::SlotJob>| it.map(|it| (it.job.0, it.state, it.exit_code));
    let shown = |end: &SlotEnd| (job(end.own), job(end.retry), end.is_unresolved);
    assert_eq!(shown(&ends[0]), (Some((1, State::Succeeded, Some(0))), None, false));
    let retried = Some((13, State::Succeeded, Some(0)));
    assert_eq!(shown(&ends[1]), (Some((3, State::Failed, Some(3))), retried, false));
    let last = Some((15, State::Failed, Some(15)));
    assert_eq!(shown(&ends[2]), (Some((4, State::Failed, Some(4))), last, true));
    assert_eq!(shown(&ends[3]), (Some((5, State::Failed, Some(5))), None, false));
    assert_eq!(shown(&ends[4]), (None, Some((16, State::Failed, Some(16))), true));
}

#[test]
fn a_slot_has_failed_if_nobody_has_dealt_with_its_last_job() {
    let data_dir = TestDataDir::new();
    let (_store, archive) = data_dir.open();
    let shell = data_dir.sql();
    fill(&shell);
    let failed = |filter: &FireFilter, limit| archive.failed_fires("resize", filter, limit).unwrap();
    let all = FireFilter::default();
    let found = failed(&all, 9);
    assert_eq!((ids(&found), found.searched), (vec![8, 6, 4, 2], None), "a deleted retry opens nothing: 7");
    let first = failed(&all, 2);
    assert_eq!((ids(&first), first.searched), (vec![8, 6], Some(6)));
    let rest = failed(&FireFilter { before: first.searched, ..all.clone() }, 2);
    assert_eq!((ids(&rest), rest.searched), (vec![4, 2], Some(2)));
    assert_eq!(ids(&failed(&FireFilter { schedule: Some("nightly".into()), ..all.clone() }, 9)), [6, 4, 2]);
    let some = FireFilter { since: Some(Timestamp(3)), until: Some(Timestamp(6)), ..all.clone() };
    assert_eq!(ids(&failed(&some, 9)), [4]);
    assert!(archive.failed_fires("mail", &all, 9).unwrap().rows.is_empty());
    shell.execute_batch("DELETE FROM unresolved WHERE job = 15").unwrap();
    assert_eq!(ids(&failed(&all, 9)), [8, 6, 2]);
}

#[test]
fn a_search_for_failed_slots_ends_after_some_rows_and_goes_on_from_there() {
    let data_dir = TestDataDir::new();
    let (_store, archive) = data_dir.open();
    let shell = data_dir.sql();
    fill(&shell);
    let more = i64::from(FIRES_SEARCHED) * 2;
    shell
        .execute(
            "INSERT INTO fires (id, definition, schedule, first_slot, last_slot, count, exact, verdict, reason, job, at)
             WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 9 + ?1)
             SELECT i, 'resize', 'nightly', i, i, 1, 1, 'fired', NULL, 100 + i, i FROM n",
            [more],
        )
        .unwrap();
    let (mut filter, mut found, mut reads) = (FireFilter::default(), Vec::new(), 0);
    loop {
        let slice = archive.failed_fires("resize", &filter, 100).unwrap();
        found.extend(ids(&slice));
        reads += 1;
        filter.before = slice.searched;
        if slice.searched.is_none() {
            break;
        }
    }
    assert_eq!((found, reads), (vec![8, 6, 4, 2], 3));
}

#[test]
fn lists_of_a_schedule_have_the_retries_of_its_jobs() {
    let data_dir = TestDataDir::new();
    let (_store, archive) = data_dir.open();
    let shell = data_dir.sql();
    fill(&shell);
    shell
        .execute_batch(
            "INSERT INTO carried_slots (job, definition, schedule)
             VALUES (13, 'resize', 'nightly'), (14, 'resize', 'nightly'), (15, 'resize', 'nightly'), (16, 'resize', 'nightly');
             INSERT INTO labels (name, value, job) VALUES ('team', 'blue', 4), ('team', 'blue', 14), ('team', 'blue', 8);",
        )
        .unwrap();
    let numbers = |filter: JobFilter| -> Vec<u64> {
        archive.jobs(&filter).unwrap().iter().map(|row| row.job.0).collect()
    };
    let nightly = JobFilter { schedule: Some("nightly".to_owned()), limit: 99, ..JobFilter::default() };
    assert_eq!(numbers(nightly.clone()), [16, 15, 14, 13, 7, 5, 4, 3, 2, 1]);
    assert_eq!(numbers(JobFilter { limit: 5, ..nightly.clone() }), [16, 15, 14, 13, 7]);
    let named = JobFilter { name: Some("resize".to_owned()), before: Some(JobId(15)), ..nightly.clone() };
    assert_eq!(numbers(JobFilter { limit: 3, ..named }), [14, 13, 7]);
    assert!(numbers(JobFilter { name: Some("mail".to_owned()), ..nightly.clone() }).is_empty());
    assert_eq!(numbers(JobFilter { states: vec![State::Succeeded], ..nightly.clone() }), [13, 1]);
    assert_eq!(numbers(JobFilter { unresolved: true, ..nightly.clone() }), [16, 15, 2]);
    let blue = JobFilter { label: Some(("team".to_owned(), "blue".to_owned())), ..nightly };
    assert_eq!(numbers(blue), [14, 4]);
}

#[test]
fn retries_that_an_earlier_version_has_made_carry_their_slots() {
    let data_dir = TestDataDir::new();
    let mut shell = data_dir.sql();
    migrate::migrate_to(&mut shell, &data_dir.file(), migrate::before("carried_slots"));
    shell
        .execute_batch(
            r#"INSERT INTO definitions (id, revision, name, entry) VALUES (1, zeroblob(16), 'resize', '{}');
             INSERT INTO jobs (id, definition, state, priority, created_at, due_at, retry_of)
             VALUES (7, 1, 2, 0, 1, 1, 3), (8, 1, 2, 0, 1, 1, NULL), (9, 1, 2, 0, 1, 1, 4);
             INSERT INTO details (job, environment)
             VALUES (7, '[["A","1"],["LONGSHORE_SCHEDULED_AT","2026-03-01T02:00:00.000Z"],["LONGSHORE_SCHEDULE_ID","nightly"]]'),
                    (8, '[["LONGSHORE_SCHEDULED_AT","2026-03-01T02:00:00.000Z"],["LONGSHORE_SCHEDULE_ID","nightly"]]'),
                    (9, '[["LONGSHORE_SCHEDULE_ID","nightly"]]');"#,
        )
        .unwrap();
    drop(shell);
    let (_store, archive) = data_dir.open();
    let nightly = JobFilter { schedule: Some("nightly".to_owned()), limit: 9, ..JobFilter::default() };
    let rows = archive.jobs(&nightly).unwrap();
    let found: Vec<_> =
        rows.iter().map(|row| (row.job.0, row.slot.as_ref().map(|it| &*it.schedule))).collect();
    assert_eq!(found, [(7, Some("nightly"))], "of {rows:?}");
}

#[test]
fn a_retry_that_is_deleted_carries_no_slot_any_more() {
    let data_dir = TestDataDir::new();
    let (mut store, archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    let variables =
        [("LONGSHORE_SCHEDULED_AT", "2026-03-01T02:00:00.000Z"), ("LONGSHORE_SCHEDULE_ID", "nightly")];
    let environment = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let overrides = Overrides { environment, ..Overrides::default() };
    let details = Some(Box::new(JobDetails { overrides, ..JobDetails::default() }));
    let Change::Added(job) = added(2) else { unreachable!("it adds a job") };
    let retry = Change::Added(AddedJob { retry_of: Some(JobId(1)), details, ..job });
    store.commit(&group(&loaded, 1, vec![added(1), retry])).unwrap();
    let carried = || -> i64 {
        data_dir.sql().query_row("SELECT count(*) FROM carried_slots", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(carried(), 1);
    assert_eq!(
        archive.slots(&[1, 2, 9].map(JobId)).unwrap(),
        [None, Some(Timestamp(1_772_330_400_000)), None]
    );
    let ended = |job| {
        let (job, at, state) = (JobId(job), Timestamp(2), State::Succeeded);
        Change::Ended(Ended { job, state, at, reason: String::new(), closed: None, confirmed: true })
    };
    store.commit(&group(&loaded, 2, vec![ended(1), ended(2)])).unwrap();
    store.remove(loaded.epoch, &remove::NOTHING).unwrap();
    assert_eq!((carried(), archive.job(JobId(2)).unwrap()), (0, None));
}
