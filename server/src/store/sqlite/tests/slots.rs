//! Slots with the ends of their jobs, and the slots that retries carry on.

use protocol::JobId;
use protocol::container::Overrides;
use scheduler::details::JobDetails;
use scheduler::step::Ended;

use super::*;
use crate::store::{FIRES_SEARCHED, FailedFires, FireFilter, SlotArchive as _, SlotEnd};

/// A store with jobs 1 to 9 of slots 1 to 9 and their retries from 11 on, and a shell on its file.
fn filled(data_dir: &TestDataDir) -> ((SqliteStore, SqliteArchive), Connection) {
    let (open, shell) = (data_dir.open(), data_dir.sql());
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
             INSERT INTO carried_slots (job, root, definition, schedule)
             VALUES (13, 3, 'resize', 'nightly'), (14, 4, 'resize', 'nightly'), (15, 4, 'resize', 'nightly'), (16, 6, 'resize', 'nightly');
             INSERT INTO unresolved (job, name) VALUES (2, 1), (8, 1), (15, 1), (16, 1);
             INSERT INTO fires (id, definition, schedule, first_slot, last_slot, count, exact, verdict, reason, job, at)
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8)
             SELECT i, 'resize', iif(i = 8, 'hourly', 'nightly'), i, i, 1, 1, 'fired', NULL, i, i FROM n;
             INSERT INTO fires (id, definition, schedule, first_slot, last_slot, count, exact, verdict, reason, job, at)
             VALUES (9, 'resize', 'nightly', 9, 9, 1, 1, 'skipped', 'overlap', 2, 9);",
        )
        .unwrap();
    (open, shell)
}

fn ids(found: &FailedFires) -> Vec<u64> {
    found.rows.iter().map(|record| record.id).collect()
}

#[test]
fn a_slot_has_the_end_of_its_job_and_that_of_the_last_retry() {
    let data_dir = TestDataDir::new();
    let ((_store, archive), _shell) = filled(&data_dir);
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
    let ((_store, archive), shell) = filled(&data_dir);
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
    let ((_store, archive), shell) = filled(&data_dir);
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
    let ((_store, archive), shell) = filled(&data_dir);
    shell
        .execute_batch(
            "INSERT INTO labels (name, value, job) VALUES ('team', 'blue', 4), ('team', 'blue', 14), ('team', 'blue', 8);",
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
    // Job 3 is of the ledger, and 7, 9 and 11 are its chain of retries. Job 4 was in the way of a slot. Job 5 was run as its schedule would
    // have run it: it has the variables of a slot, and so has its retry.
    shell
        .execute_batch(
            r#"INSERT INTO definitions (id, revision, name, entry) VALUES (1, zeroblob(16), 'resize', '{}');
             INSERT INTO fires (id, definition, schedule, first_slot, last_slot, count, exact, verdict, reason, job, at)
             VALUES (1, 'resize', 'nightly', 1772330400000, 1772330400000, 1, 1, 'fired', NULL, 3, 1),
                    (2, 'resize', 'nightly', 1772416800000, 1772416800000, 1, 1, 'skipped', 'overlap', 4, 1);
             INSERT INTO ended (id, definition, state, priority, created_at, due_at, details, attempts, fence, nonce, worker,
                 assigned_at, outcome, exit_code, stdout_bytes, stderr_bytes, closed_at, ended_at, confirmed, retry_of)
             VALUES (7, 1, 7, 0, 1, 1, 0, 1, 7, 1, 1, 1, 2, 1, 0, 0, 2, 2, 0, 3);
             INSERT INTO jobs (id, definition, state, priority, created_at, due_at, retry_of)
             VALUES (9, 1, 2, 0, 1, 1, 7), (11, 1, 2, 0, 1, 1, 9), (8, 1, 2, 0, 1, 1, NULL), (10, 1, 2, 0, 1, 1, 4), (12, 1, 2, 0, 1, 1, 5);
             INSERT INTO details (job, environment)
             SELECT value, '[["LONGSHORE_SCHEDULED_AT","2026-03-01T02:00:00.000Z"],["LONGSHORE_SCHEDULE_ID","nightly"]]'
             FROM json_each('[7,8,9,11,12]');"#,
        )
        .unwrap();
    drop(shell);
    let (_store, archive) = data_dir.open();
    let nightly = JobFilter { schedule: Some("nightly".to_owned()), limit: 9, ..JobFilter::default() };
    let rows = archive.jobs(&nightly).unwrap();
    assert_eq!(rows.iter().map(|row| row.job.0).collect::<Vec<_>>(), [11, 9, 7], "of {rows:?}");
    assert_eq!(archive.slot_ends(&[JobId(3)]).unwrap()[0].retry.map(|retry| retry.job), Some(JobId(11)));
}

#[test]
fn a_slot_is_failed_by_its_last_retry_also_if_a_retry_before_that_was_deleted() {
    let data_dir = TestDataDir::new();
    let ((_store, archive), shell) = filled(&data_dir);
    // Job 20 has failed and was retried as 21, and that as 22. Retention has deleted 21.
    shell
        .execute_batch(
            "INSERT INTO every VALUES (20, 7, NULL), (22, 7, 21);
             INSERT INTO ended (id, definition, state, priority, created_at, due_at, details, attempts, fence, nonce, worker,
                 assigned_at, outcome, exit_code, stdout_bytes, stderr_bytes, closed_at, ended_at, confirmed, retry_of)
             SELECT i, 1, state, 0, 1, 1, 0, 1, i, 1, 1, 1, 2, 1, 0, 0, 2, 2, 0, retry_of FROM every WHERE i >= 20;
             INSERT INTO unresolved (job, name) VALUES (22, 1);
             INSERT INTO carried_slots (job, root, definition, schedule) VALUES (22, 20, 'resize', 'nightly');
             INSERT INTO fires (id, definition, schedule, first_slot, last_slot, count, exact, verdict, reason, job, at)
             VALUES (20, 'resize', 'nightly', 20, 20, 1, 1, 'fired', NULL, 20, 20);",
        )
        .unwrap();
    let end = archive.slot_ends(&[JobId(20)]).unwrap()[0];
    assert_eq!(end.own.map(|own| own.job), Some(JobId(20)));
    assert_eq!((end.retry.map(|retry| retry.job), end.is_unresolved), (Some(JobId(22)), true));
    assert_eq!(ids(&archive.failed_fires("resize", &FireFilter::default(), 9).unwrap()), [20, 8, 6, 4, 2]);
}

/// A job that retries another one, with or without the variables of a slot.
fn retry(job: u64, of: u64, has_variables: bool) -> Change {
    let variables =
        [("LONGSHORE_SCHEDULED_AT", "2026-03-01T02:00:00.000Z"), ("LONGSHORE_SCHEDULE_ID", "nightly")];
    let environment = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let overrides = Overrides { environment, ..Overrides::default() };
    let details = has_variables.then(|| Box::new(JobDetails { overrides, ..JobDetails::default() }));
    let Change::Added(added) = added(job) else { unreachable!("it adds a job") };
    Change::Added(AddedJob { retry_of: Some(JobId(of)), details, ..added })
}

#[test]
fn retries_carry_the_slot_of_the_ledger_and_not_that_of_variables_until_they_are_deleted() {
    let data_dir = TestDataDir::new();
    let (mut store, archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    // Job 1 is of the ledger; 2 was run as its schedule would have run it.
    store.commit(&group(&loaded, 1, vec![added(1), added(2)])).unwrap();
    let shell = data_dir.sql();
    shell
        .execute_batch(
            "INSERT INTO fires (id, definition, schedule, first_slot, last_slot, count, exact, verdict, reason, job, at)
             VALUES (1, 'resize', 'nightly', 1772330400000, 1772330400000, 1, 1, 'fired', NULL, 1, 1)",
        )
        .unwrap();
    let retries = vec![retry(3, 1, true), retry(4, 2, true), retry(5, 3, false), retry(6, 4, true)];
    store.commit(&group(&loaded, 2, retries)).unwrap();
    let carried = || -> Vec<(u64, u64, String)> {
        let mut statement =
            shell.prepare("SELECT job, root, schedule FROM carried_slots ORDER BY job").unwrap();
        let rows = statement.query_map([], |row| {
            Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?.cast_unsigned(), row.get(2)?))
        });
        rows.unwrap().collect::<rusqlite::Result<_>>().unwrap()
    };
    assert_eq!(carried(), [(3, 1, "nightly".to_owned()), (5, 1, "nightly".to_owned())]);
    assert_eq!(
        archive.slots(&[1, 3, 9].map(JobId)).unwrap(),
        [Some(1_772_330_400_000), Some(1_772_330_400_000), None].map(|at| at.map(Timestamp))
    );
    let ended = |job| {
        let (job, at, state) = (JobId(job), Timestamp(2), State::Succeeded);
        Change::Ended(Ended { job, state, at, reason: String::new(), closed: None, confirmed: true })
    };
    store.commit(&group(&loaded, 3, (1..=6).map(ended).collect())).unwrap();
    store.remove(loaded.epoch, &remove::NOTHING).unwrap();
    assert_eq!((carried(), archive.job(JobId(3)).unwrap()), (Vec::new(), None));
}
