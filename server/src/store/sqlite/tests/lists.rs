//! Lists with any two filters are read by an index.

use protocol::report::Outcome;
use protocol::{JobId, Revision, Timestamp};

use super::*;
use crate::positions::Positions;

/// A store with one job, and a shell on its file.
fn with_one_job(data_dir: &TestDataDir) -> ((SqliteStore, SqliteArchive), Connection) {
    let (mut store, archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    store.commit(&group(&loaded, 1, vec![added(1)])).unwrap();
    ((store, archive), data_dir.sql())
}

#[test]
fn every_pair_of_filters_is_answered_by_an_index() {
    let data_dir = TestDataDir::new();
    let (_open, shell) = with_one_job(&data_dir);
    for (first, add_first) in FILTERS {
        for (second, add_second) in FILTERS {
            let mut filter = JobFilter::default();
            add_first(&mut filter);
            add_second(&mut filter);
            for plan in list::plans(&shell, &filter) {
                let plan = plan.join("; ");
                assert!(
                    !plan.contains("SCAN") && !plan.contains("CO-ROUTINE"),
                    "{first} and {second}: {plan}"
                );
            }
        }
    }
}

#[test]
fn outcomes_and_exit_codes_are_searched_by_their_own_indexes() {
    let data_dir = TestDataDir::new();
    let (_open, shell) = with_one_job(&data_dir);
    let outcome = JobFilter { outcomes: vec![Outcome::OomKilled], ..JobFilter::default() };
    let exit_code = JobFilter { exit_code: Some(77), ..JobFilter::default() };
    for (filter, index) in [(outcome, "by_outcome"), (exit_code, "by_exit_code")] {
        for state in
            [None, Some(State::Scheduled), Some(State::Queued), Some(State::Failed), Some(State::Succeeded)]
        {
            let filter = JobFilter { states: state.into_iter().collect(), ..filter.clone() };
            for plan in list::plans(&shell, &filter) {
                let plan = plan.join("; ");
                assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{state:?} {index}: {plan}");
            }
        }
    }
}

#[test]
fn unresolved_failures_and_jobs_in_backoff_have_indexes_of_their_own() {
    let data_dir = TestDataDir::new();
    let (_open, shell) = with_one_job(&data_dir);
    let name = Some("resize".to_owned());
    let unresolved = JobFilter { unresolved: true, ..JobFilter::default() };
    for (filter, index) in [
        (unresolved.clone(), "SEARCH u USING INTEGER PRIMARY KEY"),
        (JobFilter { name: name.clone(), ..unresolved }, "INDEX unresolved_by_name"),
        (JobFilter { backoff: true, ..JobFilter::default() }, "jobs_in_backoff"),
        (JobFilter { backoff: true, name, ..JobFilter::default() }, "jobs_in_backoff"),
    ] {
        for plan in list::plans(&shell, &filter) {
            let plan = plan.join("; ");
            assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{index}: {plan}");
        }
    }
}

#[test]
fn lists_by_several_outcomes_are_in_order_and_name_no_job_twice() {
    let data_dir = TestDataDir::new();
    let (_store, archive) = data_dir.open();
    let shell = data_dir.sql();
    shell
        .execute_batch(
            "INSERT INTO definitions (id, revision, name, entry) VALUES (1, zeroblob(16), 'resize', '{}');
             INSERT INTO ended (id, definition, state, priority, created_at, due_at, details, attempts, fence, nonce, worker,
                 assigned_at, outcome, exit_code, stdout_bytes, stderr_bytes, closed_at, ended_at, confirmed)
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6)
             SELECT i, 1, 7, 0, 1, 1, 0, 1, i, 1, 1, 1, 2 + i % 3, 77, 0, 0, 2, 2, 0 FROM n;
             INSERT INTO jobs (id, definition, state, priority, created_at, due_at, fence, nonce, worker, assigned_at, outcome,
                 exit_code, stdout_bytes, stderr_bytes, closed_at)
             VALUES (7, 1, 1, 0, 1, 1, 7, 1, 1, 1, 2, 77, 0, 0, 2), (8, 1, 2, 0, 1, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);",
        )
        .unwrap();
    let numbers = |filter: JobFilter| -> Vec<u64> {
        archive.jobs(&filter).unwrap().iter().map(|row| row.job.0).collect()
    };
    let filter =
        |outcomes: &[Outcome]| JobFilter { outcomes: outcomes.to_vec(), limit: 4, ..JobFilter::default() };
    assert_eq!(numbers(filter(&[Outcome::Failed])), [7, 6, 3]);
    assert_eq!(numbers(filter(&[Outcome::TimedOut, Outcome::Failed, Outcome::Failed])), [7, 6, 5, 3]);
    let exit_code = |code, limit| JobFilter { exit_code: Some(code), limit, ..JobFilter::default() };
    assert_eq!(numbers(exit_code(77, 3)), [7, 6, 5]);
    assert!(numbers(exit_code(78, 3)).is_empty());
    shell
        .execute_batch(
            "INSERT INTO ended (id, definition, state, priority, created_at, due_at, details, attempts, fence, nonce, worker,
                 assigned_at, outcome, exit_code, stdout_bytes, stderr_bytes, closed_at, ended_at, confirmed)
             VALUES (9, 1, 6, 0, 1, 1, 0, 1, 9, 1, 1, 1, 1, 24, 0, 0, 2, 2, 0), (10, 1, 6, 0, 1, 1, 0, 1, 10, 1, 1, 1, 1, 0, 0, 0, 2, 2, 0),
                    (11, 1, 7, 0, 1, 1, 0, 1, 11, 1, 1, 1, 2, 24, 0, 0, 2, 2, 0), (12, 1, 6, 0, 1, 1, 0, 1, 12, 1, 1, 1, 1, 24, 0, 0, 2, 2, 0);",
        )
        .unwrap();
    assert_eq!(numbers(exit_code(24, 2)), [12, 11], "a success may have another exit code than 0");
    assert_eq!(numbers(exit_code(24, 3)), [12, 11, 9]);
    let succeeded = JobFilter { states: vec![State::Succeeded], ..exit_code(24, 3) };
    assert_eq!(numbers(succeeded.clone()), [12, 9]);
    assert!(numbers(JobFilter { outcomes: vec![Outcome::Failed], ..succeeded }).is_empty());
}

#[test]
fn jobs_of_a_schedule_are_found_by_its_rows_in_the_ledger() {
    let data_dir = TestDataDir::new();
    let (_store, archive) = data_dir.open();
    let shell = data_dir.sql();
    // Jobs 1 to 9,000 of two definitions have ended; each tenth was made by a schedule. The live jobs are 9,001 to 9,003.
    shell
        .execute_batch(
            "INSERT INTO definitions (id, revision, name, entry)
             VALUES (1, zeroblob(16), 'resize', '{}'), (2, x'00000000000000000000000000000001', 'mail', '{}');
             INSERT INTO ended (id, definition, state, priority, created_at, due_at, details, attempts, ended_at, confirmed)
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)
             SELECT i, 1 + i % 2, 6, 0, 1, 1, 0, 0, 2, 0 FROM n;
             INSERT INTO jobs (id, definition, state, priority, created_at, due_at)
             VALUES (9001, 1, 2, 0, 1, 1), (9002, 2, 2, 0, 1, 1), (9003, 1, 2, 0, 1, 1);
             INSERT INTO labels (name, value, job) VALUES ('team', 'blue', 10), ('team', 'blue', 25), ('team', 'blue', 11);
             INSERT INTO fires (definition, schedule, first_slot, last_slot, count, exact, verdict, reason, job, at)
             WITH RECURSIVE n(i) AS (SELECT 5 UNION ALL SELECT i + 5 FROM n WHERE i < 9000)
             SELECT iif(i % 2, 'mail', 'resize'), 'nightly', i, i, 1, 1, 'fired', NULL, i, i FROM n;
             INSERT INTO fires (definition, schedule, first_slot, last_slot, count, exact, verdict, reason, job, at)
             VALUES ('resize', 'nightly', 9001, 9001, 1, 1, 'skipped', 'overlap', 9001, 1),
                    ('resize', 'hourly', 9003, 9003, 1, 1, 'fired', NULL, 9003, 1),
                    ('mail', 'nightly', 9002, 9002, 1, 1, 'fired', NULL, 9002, 1);",
        )
        .unwrap();
    let numbers = |filter: JobFilter| -> Vec<u64> {
        archive.jobs(&filter).unwrap().iter().map(|row| row.job.0).collect()
    };
    let nightly = JobFilter { schedule: Some("nightly".to_owned()), limit: 3, ..JobFilter::default() };
    assert_eq!(numbers(nightly.clone()), [9_002, 9_000, 8_995]);
    let resize = JobFilter { name: Some("resize".to_owned()), ..nightly.clone() };
    assert_eq!(numbers(resize.clone()), [9_000, 8_990, 8_980]);
    assert!(numbers(JobFilter { states: vec![State::Queued], ..resize }).is_empty());
    assert_eq!(numbers(JobFilter { states: vec![State::Queued], ..nightly.clone() }), [9_002]);
    assert_eq!(numbers(JobFilter { before: Some(JobId(11)), ..nightly.clone() }), [10, 5]);
    let blue = JobFilter { label: Some(("team".to_owned(), "blue".to_owned())), ..nightly.clone() };
    assert_eq!(numbers(blue), [25, 10]);
    assert_eq!(numbers(JobFilter { schedule: Some("hourly".to_owned()), ..nightly.clone() }), [9_003]);
    assert!(numbers(JobFilter { schedule: Some("weekly".to_owned()), ..nightly }).is_empty());
}

/// With a look at the walk itself: 20,000 ended jobs in five blocks, and one requester in two of them.
#[test]
fn jobs_of_a_requester_are_read_in_the_blocks_that_have_any() {
    let data_dir = TestDataDir::new();
    let (_store, archive) = data_dir.open();
    let shell = data_dir.sql();
    shell
        .execute_batch(
            "INSERT INTO definitions (id, revision, name, entry)
             VALUES (1, zeroblob(16), 'resize', '{}'), (2, x'00000000000000000000000000000001', 'mail', '{}');
             INSERT INTO submitters (id, name) VALUES (1, 'ann'), (2, 'bob'), (3, 'eve');
             CREATE TABLE every AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
             SELECT i, iif(i >> 12 IN (1, 3) AND i % 500 = 0, 2, 1) AS submitter, iif(i >> 12 = 3, 2, 1) AS definition FROM n;
             INSERT INTO ended (id, definition, state, priority, created_at, due_at, details, attempts, ended_at, confirmed, submitter)
             SELECT i, definition, iif(i % 3, 6, 7), 0, 1, 1, 0, 0, 2, 0, submitter FROM every WHERE i % 1000;
             INSERT INTO jobs (id, definition, state, priority, created_at, due_at, submitter)
             SELECT i, definition, iif(i % 2000, 2, 1), 0, 1, 1, submitter FROM every WHERE i % 1000 = 0;
             INSERT INTO seen (kind, which, block) SELECT DISTINCT 3, submitter, i >> 12 FROM every;
             INSERT INTO seen (kind, which, block) SELECT DISTINCT 1, definition, i >> 12 FROM every;",
        )
        .unwrap();
    let numbers = |filter: &JobFilter| -> Vec<u64> {
        archive.jobs(filter).unwrap().iter().map(|row| row.job.0).collect()
    };
    let of =
        |name: &str| JobFilter { submitted_by: Some(name.to_owned()), limit: 500, ..JobFilter::default() };
    let all: Vec<u64> = (1..=20_000).rev().filter(|i| [1, 3].contains(&(i >> 12)) && i % 500 == 0).collect();
    assert_eq!(numbers(&of("bob")), all);
    let is = |filter: JobFilter, fits: fn(u64) -> bool| {
        let expected: Vec<u64> = all.iter().copied().filter(|job| fits(*job)).collect();
        assert_eq!(numbers(&filter), expected, "{filter:?}");
        assert!(numbers(&JobFilter { submitted_by: Some("eve".to_owned()), ..filter.clone() }).is_empty());
        assert!(numbers(&JobFilter { submitted_by: Some("zoe".to_owned()), ..filter }).is_empty());
    };
    is(JobFilter { name: Some("mail".to_owned()), ..of("bob") }, |job| job >> 12 == 3);
    is(JobFilter { name: Some("resize".to_owned()), ..of("bob") }, |job| job >> 12 == 1);
    is(JobFilter { states: vec![State::Failed], ..of("bob") }, |job| job % 3 == 0 && job % 1000 != 0);
    is(JobFilter { states: vec![State::Succeeded], ..of("bob") }, |job| job % 3 != 0 && job % 1000 != 0);
    is(JobFilter { states: vec![State::Queued], ..of("bob") }, |job| job % 1000 == 0 && job % 2000 != 0);
    is(JobFilter { states: vec![State::Scheduled], ..of("bob") }, |job| job % 2000 == 0);
    is(JobFilter { before: Some(JobId(8_000)), ..of("bob") }, |job| job < 8_000);
}

#[test]
fn many_names_are_one_search_that_finds_what_a_search_for_each_name_finds() {
    let data_dir = TestDataDir::new();
    let (_store, archive) = data_dir.open();
    let shell = data_dir.sql();
    // Each of 24 names has two revisions. Of jobs 1 to 18,000 the first 12,000 have ended, except each 40th. The block from 8,192 has only
    // jobs of the last three names.
    shell
        .execute_batch(
            "INSERT INTO definitions (id, revision, name, entry)
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 47)
             SELECT i + 1, unhex(format('%032x', i)), format('d%02d', i % 24), '{}' FROM n;
             CREATE TABLE draw AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 18000)
             SELECT i, (i * 2654435761 >> 7) & 1023 AS random FROM n;
             CREATE TABLE every AS SELECT i, iif(i >> 12 = 2, 22 + random % 3, 1 + random % 48) AS definition,
                 iif(random & 1, 1, 5) AS live, 7 + random % 4 AS bad FROM draw;
             INSERT INTO ended (id, definition, state, priority, created_at, due_at, details, attempts, ended_at, confirmed)
             SELECT i, definition, iif(i % 3, 6, bad), 0, i, 1, 0, 0, 2, 0 FROM every WHERE i <= 12000 AND i % 40 <> 0;
             INSERT INTO jobs (id, definition, state, priority, created_at, due_at)
             SELECT i, definition, iif(i % 5, 2, live), 0, i, 1 FROM every WHERE i > 12000 OR i % 40 = 0;
             INSERT INTO labels (name, value, job) SELECT 'team', 'blue', i FROM every WHERE i % 7 = 0;
             INSERT INTO blocks (block, oldest, newest, newest_end, oldest_end)
             SELECT i >> 12, min(i), max(i), 2, 2 FROM every GROUP BY i >> 12;
             INSERT INTO seen (kind, which, block) SELECT DISTINCT 1, (definition - 1) % 24 + 1, i >> 12 FROM every;",
        )
        .unwrap();
    let name = |number: usize| format!("d{number:02}");
    let patterns: [Vec<String>; 3] = [
        (0..24).map(name).collect(),
        (0..18).map(name).collect(),
        // Jobs have only the first two names.
        (22..42).map(|number| if number < 24 { name(number) } else { format!("e{number}") }).collect(),
    ];
    let states: &[&[State]] = &[
        &[],
        &[State::Queued],
        &[State::Scheduled],
        &[State::Running, State::Quarantined, State::Failed],
        &[State::Succeeded],
        &[State::Cancelled],
    ];
    let conditions: &[AddFilter] = &[
        |_| {},
        |it| it.label = Some(("team".to_owned(), "blue".to_owned())),
        |it| it.since = Some(Timestamp(7_000)),
        |it| it.ended_since = Some(Timestamp(2)),
    ];
    for (names, states, condition, before) in patterns.iter().flat_map(|names| {
        states.iter().flat_map(move |states| {
            conditions.iter().flat_map(move |condition| {
                [None, Some(JobId(19_990)), Some(JobId(9_001))]
                    .map(|before| (names, states, condition, before))
            })
        })
    }) {
        let mut filter = JobFilter { states: states.to_vec(), before, limit: 60, ..JobFilter::default() };
        condition(&mut filter);
        let mut expected = Vec::new();
        for name in names {
            expected.extend(archive.jobs(&JobFilter { name: Some(name.clone()), ..filter.clone() }).unwrap());
        }
        expected.sort_unstable_by_key(|row| std::cmp::Reverse(row.job));
        expected.truncate(60);
        let together = JobFilter { names: names.clone(), ..filter.clone() };
        assert!(archive.jobs(&together).unwrap() == expected, "{together:?}");
        let plans = list::plans(&shell, &together);
        assert_eq!(plans.len(), list::plans(&shell, &filter).len(), "no search for each name: {together:?}");
        for plan in plans {
            let plan = plan.join("; ");
            assert!(!plan.contains("SCAN j ") && !plan.contains("TEMP B-TREE"), "{together:?}: {plan}");
        }
    }
}

type AddFilter = fn(&mut JobFilter);

const FILTERS: &[(&str, AddFilter)] = &[
    ("state=scheduled", |it| it.states.push(State::Scheduled)),
    ("state=queued", |it| it.states.push(State::Queued)),
    ("state=running", |it| it.states.push(State::Running)),
    ("state=succeeded", |it| it.states.push(State::Succeeded)),
    ("state=failed", |it| it.states.push(State::Failed)),
    ("name", |it| it.name = Some("resize".to_owned())),
    ("revision", |it| it.revision = Some(Revision(1))),
    ("outcome=failed", |it| it.outcomes.push(Outcome::Failed)),
    ("outcome=succeeded", |it| it.outcomes.push(Outcome::Succeeded)),
    ("exit_code=0", |it| it.exit_code = Some(0)),
    ("exit_code=3", |it| it.exit_code = Some(3)),
    ("ended_since", |it| it.ended_since = Some(Timestamp(1))),
    ("ended_until", |it| it.ended_until = Some(Timestamp(1))),
    ("text", |it| it.text = Some("disk".to_owned())),
    ("worker", |it| it.worker = Some(WorkerId(1))),
    ("label", |it| it.label = Some(("team".to_owned(), "blue".to_owned()))),
    ("schedule", |it| it.schedule = Some("nightly".to_owned())),
    ("submitted_by", |it| it.submitted_by = Some("ann".to_owned())),
    ("batch", |it| it.batch = Some(JobId(1))),
    ("index", |it| {
        it.batch = Some(JobId(1));
        it.positions = vec![Positions { first: 0, last: 9 }];
    }),
    ("accepted_since", |it| it.since = Some(Timestamp(1))),
    ("accepted_until", |it| it.until = Some(Timestamp(i64::MAX))),
    ("unresolved", |it| it.unresolved = true),
    ("backoff", |it| it.backoff = true),
    ("cursor", |it| it.before = Some(JobId(10))),
];

#[test]
fn lists_are_read_by_index_and_in_order() {
    let data_dir = TestDataDir::new();
    let (_open, shell) = with_one_job(&data_dir);
    let name = Some("resize".to_owned());
    let label = Some(("team".to_owned(), "blue".to_owned()));
    let schedule = Some("nightly".to_owned());
    let states = |states: &[State]| JobFilter { states: states.to_vec(), ..JobFilter::default() };
    for filter in [
        JobFilter::default(),
        JobFilter { name: name.clone(), ..JobFilter::default() },
        JobFilter { worker: Some(WorkerId(1)), ..JobFilter::default() },
        JobFilter { label: label.clone(), ..JobFilter::default() },
        JobFilter { label, ..states(&[State::Succeeded]) },
        JobFilter { schedule: schedule.clone(), ..JobFilter::default() },
        JobFilter { schedule: schedule.clone(), name: name.clone(), ..JobFilter::default() },
        JobFilter { schedule, ..states(&[State::Running, State::Succeeded]) },
        states(&[State::Queued]),
        states(&[State::Running]),
        states(&[State::Assigned, State::Scheduled]),
        states(&[State::Succeeded]),
        states(&[State::Failed]),
        JobFilter { unresolved: true, ..JobFilter::default() },
        JobFilter { backoff: true, ..JobFilter::default() },
        JobFilter { unresolved: true, name: name.clone(), ..JobFilter::default() },
        JobFilter { unresolved: true, name: name.clone(), ..states(&[State::Failed, State::Lost]) },
        JobFilter { name, ..states(&[State::Failed]) },
    ] {
        for plan in list::plans(&shell, &filter) {
            let plan = plan.join("; ");
            assert!(!plan.contains("SCAN") && !plan.contains("CO-ROUTINE"), "{plan}");
            let may_sort = filter.name.is_some() && filter.states == [State::Failed] && !filter.unresolved;
            assert!(may_sort || !plan.contains("TEMP B-TREE"), "{plan}");
        }
    }
}

#[test]
fn the_last_end_is_read_by_its_number_and_members_do_not_count_beside_their_parent() {
    let data_dir = TestDataDir::new();
    let (_store, archive) = data_dir.open();
    let shell = data_dir.sql();
    shell
        .execute_batch(
            "INSERT INTO definitions VALUES (1, zeroblob(16), 'resize', '{}');
             INSERT INTO seen (kind, which, block) VALUES (1, 1, 0);
             INSERT INTO ended (id, definition, state, priority, created_at, due_at, details, attempts, ended_at, confirmed)
             VALUES (1, 1, 6, 0, 1, 1, 0, 0, 70, 0), (2, 1, 6, 0, 1, 1, 0, 0, 70, 0), (3, 1, 6, 0, 1, 1, 0, 0, 60, 0);
             INSERT INTO blocks (block, oldest, newest, oldest_end, newest_end) VALUES (0, 1, 1, 60, 70);
             INSERT INTO parents VALUES (1, NULL, NULL, 1, NULL, NULL, 0, 0, 0, 0, 0, 0);
             INSERT INTO members VALUES (2, 1, NULL);
             INSERT INTO definition_totals (name, is_bad, ended) VALUES (1, 0, 2);",
        )
        .unwrap();
    let last = || archive.last_ended("resize").unwrap().map(|row| row.job.0);
    assert_eq!(last(), Some(1), "the parent of the member that ended with it");
    // The bad job was deleted, and the good one ended after it: the others are not searched, and may say anything.
    shell
        .execute_batch(
            "UPDATE definition_totals SET last_job = 3, last_end = 60;
             INSERT INTO definition_totals (name, is_bad, ended, last_end, last_job) VALUES (1, 1, 1, 60, 9);",
        )
        .unwrap();
    assert_eq!(last(), Some(3));
    shell.execute("UPDATE definition_totals SET last_end = 61 WHERE is_bad = 1", []).unwrap();
    assert_eq!(last(), Some(1), "a bad job that is left may have ended later");
}

#[test]
fn scheduled_jobs_are_counted_by_index() {
    let data_dir = TestDataDir::new();
    drop(data_dir.open());
    let shell = data_dir.sql();
    let mut statement = shell.prepare(&format!("EXPLAIN QUERY PLAN {}", list::SCHEDULED_SQL)).unwrap();
    let steps = statement.query_map((1, i64::MAX), |row| row.get::<_, String>(3)).unwrap();
    let steps: Vec<String> = steps.map(Result::unwrap).collect();
    assert!(steps.iter().any(|step| step.contains("jobs_by_state")), "{steps:?}");
}
