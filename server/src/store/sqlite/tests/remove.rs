//! Retention finds what is due by index, leaves nothing behind, and alone may delete what has ended.

use super::*;
use crate::store::{DefinitionCutoffs, DefinitionRemoval, Removed, RetentionCutoffs};

/// Nothing but what lives is kept.
pub(super) const NOTHING: RetentionCutoffs = RetentionCutoffs {
    ended_since: Timestamp(i64::MAX),
    ended_max: 0,
    keyed_since: Timestamp(i64::MAX),
    late_since: Timestamp(i64::MAX),
    rows_max: 500,
    by: None,
};

fn count(shell: &Connection, table: &str) -> i64 {
    shell.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

fn remove_all(store: &mut SqliteStore, loaded: &Loaded) -> u64 {
    let mut jobs = 0;
    loop {
        let removed = store.remove(loaded.epoch, &NOTHING).unwrap();
        jobs += removed.jobs;
        if !removed.more {
            return jobs;
        }
    }
}

#[test]
fn nothing_is_left_of_what_was_removed_and_its_pages_are_used_again() {
    let data_dir = TestDataDir::new();
    let (mut store, _archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    let shell = data_dir.sql();
    let pages = |shell: &Connection| shell.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0));
    let mut sizes = Vec::new();
    for round in 0..4 {
        // Exactly two blocks each time, but for the first one, which begins with job 1.
        let jobs = (round * 8_192).max(1)..(round + 1) * 8_192;
        let labelled = |job: u64| {
            let Change::Added(added) = added(job) else { unreachable!("it is one") };
            let labels = vec![("n".to_owned(), job.to_string())];
            let details = scheduler::details::JobDetails { labels, ..Default::default() };
            Change::Added(AddedJob { details: Some(Box::new(details)), ..added })
        };
        store.commit(&group(&loaded, 2 * round + 1, jobs.clone().map(labelled).collect())).unwrap();
        store.commit(&group(&loaded, 2 * round + 2, jobs.clone().map(cancelled).collect())).unwrap();
        assert_eq!(remove_all(&mut store, &loaded), jobs.end - jobs.start);
        for table in
            ["jobs", "ended", "labels", "details", "seen", "blocks", "definition_ends", "definition_totals"]
        {
            assert_eq!(count(&shell, table), 0, "{table}");
        }
        sizes.push(pages(&shell).unwrap());
    }
    // Four rounds need no more room than one, give or take what upper pages need.
    assert!(sizes[3] <= sizes[0] + sizes[0] / 10, "{sizes:?}");
}

#[test]
fn raw_sql_deletes_neither_an_ended_job_nor_a_past_attempt() {
    let data_dir = TestDataDir::new();
    let (mut store, _archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    store.commit(&group(&loaded, 1, vec![added(1), cancelled(1)])).unwrap();
    let shell = data_dir.sql();
    let refusal = shell.execute("DELETE FROM ended", []).unwrap_err().to_string();
    assert_eq!(refusal, "an ended job is deleted by retention only");
    shell
        .execute(
            "INSERT INTO past_attempts (job, number, fence, nonce, worker, assigned_at, outcome, closed_at, stdout_bytes,
             stderr_bytes) VALUES (1, 1, 1, 1, 1, 1, 1, 1, 1, 1)",
            [],
        )
        .unwrap();
    let refusal = shell.execute("DELETE FROM past_attempts", []).unwrap_err().to_string();
    assert_eq!(refusal, "a past attempt is deleted with its job only");
    let open: Option<i64> =
        shell.query_row("SELECT deletes_until FROM installation", [], |row| row.get(0)).unwrap();
    assert_eq!(open, None);
}

#[test]
fn what_is_due_is_found_by_index() {
    let data_dir = TestDataDir::new();
    drop(data_dir.open());
    let shell = data_dir.sql();
    for sql in [
        "SELECT block, oldest_end FROM blocks WHERE oldest_end IS NOT NULL ORDER BY oldest_end LIMIT 1",
        "DELETE FROM keys WHERE key IN (SELECT key FROM keys WHERE at < 1 ORDER BY at LIMIT 2)",
        "DELETE FROM notes WHERE id IN (SELECT id FROM notes WHERE kind = 2 AND at < 1 ORDER BY at LIMIT 2)",
        "DELETE FROM seen WHERE block = 1",
        "DELETE FROM definition_ends WHERE block = 1",
        "SELECT oldest_end, block FROM definition_ends
         WHERE name = 1 AND is_bad = 1 AND oldest_end IS NOT NULL ORDER BY oldest_end LIMIT 2",
        "SELECT sum(held) FROM definition_ends INDEXED BY definition_ends_held WHERE name = 1 AND is_bad BETWEEN 0 AND 1 AND held > 0",
        "SELECT block FROM definition_ends INDEXED BY definition_ends_held WHERE name = 1 AND is_bad BETWEEN 0 AND 1 AND held > 0 AND looked_at < 1 LIMIT 1",
        "SELECT min(id) FROM definitions WHERE name = 'a'",
    ] {
        let mut statement = shell.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps: Vec<String> =
            statement.query_map([], |row| row.get(3)).unwrap().collect::<rusqlite::Result<_>>().unwrap();
        let plan = steps.join("; ");
        assert!(plan.contains("INDEX") && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
        // Reading the blocks in the order of an index is no scan of anything.
        assert!(!plan.contains("SCAN") || plan.contains("blocks_by_oldest_end"), "{sql}: {plan}");
    }
}

/// Ended jobs of an earlier version are counted by definition, whatever the revision; members of a parent that is kept are not.
#[test]
fn a_store_without_rules_of_definitions_is_brought_up_to_date() {
    let data_dir = TestDataDir::new();
    {
        let mut shell = data_dir.sql();
        migrate::migrate_to(&mut shell, &data_dir.file(), migrate::before("definition_ends"));
        shell
            .execute_batch(
                "INSERT INTO definitions VALUES (1, zeroblob(16), 'resize', '{}'), (2, x'00000000000000000000000000000001', 'resize', '{}');
                 INSERT INTO blocks (block, oldest, newest, oldest_end, newest_end) VALUES (0, 1, 1, 50, 60000), (1, 1, 1, 80, 60000);
                 INSERT INTO ended (id, definition, state, priority, created_at, due_at, details, attempts, ended_at, confirmed)
                 VALUES (1, 1, 6, 0, 1, 1, 0, 0, 70, 0), (2, 2, 7, 0, 1, 1, 0, 0, 60, 0), (3, 2, 6, 0, 1, 1, 0, 0, 50, 0),
                        (4, 1, 6, 0, 1, 1, 0, 0, 50, 0), (4096, 1, 6, 0, 1, 1, 0, 0, 80, 0);
                 INSERT INTO parents VALUES (1, NULL, NULL, 1, NULL, NULL, 0, 0, 0, 0, 0, 0);
                 INSERT INTO members VALUES (3, 1, NULL), (4, 99, NULL);
                 UPDATE installation SET last_job = 4096, ended = 5;",
            )
            .unwrap();
    }
    let (mut store, archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    let last = "SELECT group_concat(last_job) FROM (SELECT last_job FROM definition_totals ORDER BY is_bad)";
    let last: String = data_dir.sql().query_row(last, [], |row| row.get(0)).unwrap();
    assert_eq!(last, "4096,2", "the last good end and the last bad one");
    let rule = DefinitionCutoffs {
        definition: "resize".into(),
        ended_since: Timestamp(i64::MIN),
        ended_max: Some(2),
        failed_since: None,
    };
    let removal = DefinitionRemoval {
        definitions: [rule].into(),
        kept_since: Timestamp(i64::MAX),
        now: Timestamp(0),
        rows_max: 500,
    };
    while store.remove_by_definition(loaded.epoch, &removal).unwrap().more {}
    // Jobs 4 and 2 ended first; 3 goes with its parent.
    assert_eq!(list(&archive), [4_096, 3, 1]);
    let sum: i64 =
        data_dir.sql().query_row("SELECT sum(ended) FROM definition_totals", [], |row| row.get(0)).unwrap();
    assert_eq!(sum, 2);
}

#[test]
fn a_store_without_retention_is_brought_up_to_date() {
    let data_dir = TestDataDir::new();
    {
        let mut shell = data_dir.sql();
        migrate::migrate_to(&mut shell, &data_dir.file(), 3);
        shell
            .execute_batch(
                "INSERT INTO definitions VALUES (1, zeroblob(16), 'resize', '{}');
                 INSERT INTO blocks VALUES (0, 1, 1), (1, 1, 1);
                 INSERT INTO ended (id, definition, state, priority, created_at, due_at, details, attempts, ended_at, confirmed)
                 VALUES (1, 1, 6, 0, 1, 1, 0, 0, 70, 0), (2, 1, 6, 0, 1, 1, 0, 0, 60, 0), (4096, 1, 6, 0, 1, 1, 0, 0, 80, 0);
                 UPDATE installation SET last_job = 4096;",
            )
            .unwrap();
    }
    let (mut store, archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    let cutoffs = RetentionCutoffs { ended_since: Timestamp(0), ended_max: 1, ..NOTHING };
    let mut removed = Removed { more: true, ..Removed::default() };
    while removed.more {
        removed = store.remove(loaded.epoch, &cutoffs).unwrap();
    }
    assert_eq!(list(&archive), [4_096]);
}
