//! Lists of unresolved failures: each filter walks only what may fit it, and finds what a walk over all of them finds.

use protocol::JobId;

use super::*;

type AddFilter = fn(&mut JobFilter);

/// Says whether a job fits.
type Fits = fn(u64) -> bool;

/// Of 20,000 ended jobs in five blocks each second has failed. Nobody has dealt with the failures of the blocks 0, 2 and 3, and with few in 4.
fn fill(shell: &Connection) {
    shell
        .execute_batch(
            "INSERT INTO definitions (id, revision, name, entry)
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 23)
             SELECT i + 1, unhex(format('%032x', i)), format('d%02d', i), '{}' FROM n;
             INSERT INTO submitters (id, name) VALUES (1, 'ann'), (2, 'bob');
             CREATE TABLE every AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
             SELECT i, iif(i >> 12 = 2, 23, 1 + i / 2 % 22) AS definition, iif(i >> 12 = 3 AND i % 100 = 0, 2, 1) AS submitter FROM n;
             INSERT INTO ended (id, definition, state, priority, created_at, due_at, details, attempts, ended_at, confirmed, submitter)
             SELECT i, definition, iif(i % 2, 6, 7), 0, i, 1, 0, 0, i, 0, submitter FROM every;
             INSERT INTO unresolved (job, name)
             SELECT i, definition FROM every WHERE i % 2 = 0 AND (i >> 12 IN (0, 2, 3) OR i >> 12 = 4 AND i % 300 = 0);
             INSERT INTO labels (name, value, job) SELECT 'team', 'blue', i FROM every WHERE i % 3 = 0 AND i >> 12 <> 3;
             INSERT INTO labels (name, value, job) SELECT 'team', 'red', i FROM every WHERE i IN (40, 41, 12400, 19800);
             INSERT INTO fires (definition, schedule, first_slot, last_slot, count, exact, verdict, reason, job, at)
             SELECT 'd00', 'nightly', i, i, 1, 1, 'fired', NULL, i, i FROM every WHERE i % 70 = 0;
             INSERT INTO blocks (block, oldest, newest, newest_end, oldest_end)
             SELECT i >> 12, min(i), max(i), max(i), min(i) FROM every GROUP BY i >> 12;
             INSERT INTO seen (kind, which, block) SELECT DISTINCT 1, definition, i >> 12 FROM every;
             INSERT INTO seen (kind, which, block) SELECT DISTINCT 3, submitter, i >> 12 FROM every;",
        )
        .unwrap();
}

fn names(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|number| format!("d{number:02}")).collect()
}

#[test]
fn filters_leave_out_blocks_and_tags_lead_where_failures_are_many() {
    let data_dir = TestDataDir::new();
    let (_store, _archive) = data_dir.open();
    let shell = data_dir.sql();
    fill(&shell);
    let (blocks, tags, failures) = ((true, false), (false, true), (false, false));
    let walks: &[(&str, AddFilter, (bool, bool))] = &[
        ("all", |_| {}, failures),
        ("name", |it| it.name = Some("d22".into()), failures),
        ("few names", |it| it.names = names(0..3), failures),
        ("many names", |it| it.names = names(0..22), blocks),
        ("requester", |it| it.submitted_by = Some("bob".into()), blocks),
        (
            "requester and name",
            |it| (it.submitted_by, it.name) = (Some("bob".into()), Some("d22".into())),
            blocks,
        ),
        ("end", |it| it.ended_since = Some(Timestamp(19_000)), blocks),
        ("name and end", |it| (it.ended_since, it.name) = (Some(Timestamp(9)), Some("d22".into())), blocks),
        ("worker", |it| it.worker = Some(WorkerId(1)), blocks),
        ("label", |it| it.label = Some(("team".into(), "red".into())), tags),
        ("schedule", |it| it.schedule = Some("nightly".into()), tags),
    ];
    for (what, add, expected) in walks {
        let mut filter = JobFilter { unresolved: true, ..JobFilter::default() };
        add(&mut filter);
        let found = list::walks_of_unresolved(&shell, &filter);
        assert!(found.iter().all(|walk| walk == expected), "{what}: {found:?}");
        for plan in list::plans(&shell, &filter) {
            let plan = plan.join("; ");
            let is_by_index = !["SCAN j ", "SCAN u ", "SCAN tag "].iter().any(|scan| plan.contains(scan));
            assert!(is_by_index && !plan.contains("TEMP B-TREE"), "{what}: {plan}");
        }
    }
    let label = Some(("team".to_owned(), "red".to_owned()));
    let labelled = JobFilter { unresolved: true, label, ..JobFilter::default() };
    let leading: Vec<_> = list::plans(&shell, &labelled).iter().map(|plan| plan[0].clone()).collect();
    assert!(leading[0].contains("SEARCH u ") && leading[1].contains("SEARCH tag "), "{leading:?}");
    // The few that are left are fewer than the labels may be.
    shell.execute_batch("DELETE FROM unresolved WHERE job < 16384").unwrap();
    assert_eq!(list::walks_of_unresolved(&shell, &labelled), [failures]);
}

#[test]
fn each_filter_finds_the_unresolved_failures_that_fit_it() {
    let data_dir = TestDataDir::new();
    let (_store, archive) = data_dir.open();
    fill(&data_dir.sql());
    let is_unresolved = |job: u64| {
        job.is_multiple_of(2)
            && ([0, 2, 3].contains(&(job >> 12)) || job >> 12 == 4 && job.is_multiple_of(300))
    };
    let filters: &[(&str, AddFilter, Fits)] = &[
        ("all", |_| {}, |_| true),
        (
            "requester",
            |it| it.submitted_by = Some("bob".into()),
            |job| job >> 12 == 3 && job.is_multiple_of(100),
        ),
        ("many names", |it| it.names = names(0..22), |job| job >> 12 != 2),
        ("other names", |it| it.names = [names(22..24), names(30..46)].concat(), |job| job >> 12 == 2),
        ("end", |it| it.ended_until = Some(Timestamp(9_000)), |job| job < 9_000),
        (
            "label",
            |it| it.label = Some(("team".into(), "blue".into())),
            |job| job.is_multiple_of(3) && job >> 12 != 3,
        ),
        (
            "rare label",
            |it| it.label = Some(("team".into(), "red".into())),
            |job| [40, 12_400, 19_800].contains(&job),
        ),
        ("no label", |it| it.label = Some(("team".into(), "green".into())), |_| false),
        ("schedule", |it| it.schedule = Some("nightly".into()), |job| job.is_multiple_of(70)),
        ("cursor", |it| it.before = Some(JobId(13_000)), |job| job < 13_000),
    ];
    for (what, add, fits) in filters {
        for limit in [7, 500] {
            let mut filter = JobFilter { unresolved: true, limit, ..JobFilter::default() };
            add(&mut filter);
            let found: Vec<u64> = archive.jobs(&filter).unwrap().iter().map(|row| row.job.0).collect();
            let all = (1..=20_000).rev().filter(|job| is_unresolved(*job) && fits(*job));
            assert_eq!(found, all.take(limit).collect::<Vec<u64>>(), "{what}");
        }
    }
}

#[test]
fn the_keys_of_a_request_are_found_by_their_beginning() {
    let data_dir = TestDataDir::new();
    let (_store, archive) = data_dir.open();
    let keys = "('r:7'), ('r:é'), ('r'), ('s:1'), ('r;1'), ('R:7'), ('r%:7')";
    let sql = format!(
        "INSERT INTO keys (key, job, count, digest, at) SELECT column1, 1, 1, zeroblob(16), 1 FROM (VALUES {keys})"
    );
    data_dir.sql().execute_batch(&sql).unwrap();
    assert_eq!(archive.keys_with("r:").unwrap(), ["r:7", "r:é"]);
    assert!(archive.keys_with("q:").unwrap().is_empty());
}
