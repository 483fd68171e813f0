//! Large batches: what a crash leaves of them, and what other steps must leave alone.

use protocol::JobId;
use scheduler::details::JobDetails;
use scheduler::limits::keys::JobKeys;

use super::*;

#[test]
fn a_long_batch_that_was_not_finished_leaves_nothing_behind() {
    let data_dir = TestDataDir::new();
    let (mut store, archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    let (first, last) = (JobId(1), JobId(30_000));
    let member = |number: u64| {
        let Change::Added(job) = added(number) else { unreachable!("it is one") };
        let labels = vec![("team".into(), "\"blue\"".into()), ("n".into(), (number % 7).to_string())];
        let details = JobDetails { labels, ..Default::default() };
        let keys = Some(Box::new(JobKeys { concurrency: Some("acme".into()), ..JobKeys::default() }));
        Change::Added(AddedJob { details: Some(details.into()), keys, ..job })
    };
    let made: Vec<Change> = (1..=25_000).map(member).collect();
    store.commit(&group(&loaded, 1, [vec![Change::PendingBatch { first, last }], made].concat())).unwrap();
    store.commit(&group(&loaded, 2, vec![added(30_001)])).unwrap();
    drop((store, archive));
    let (mut store, archive) = data_dir.open();
    let mut live = Vec::new();
    store.load(&mut live_jobs(|job| live.push(job.job.0))).unwrap();
    assert_eq!((live, list(&archive)), (vec![30_001], vec![30_001]));
    for table in ["forming", "details", "labels"] {
        let left = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        assert_eq!(
            data_dir.sql().query_row(&format!("SELECT count(*) FROM {table}"), [], left).unwrap(),
            0,
            "{table}"
        );
    }
}

#[test]
fn one_job_is_found_by_its_number_and_labels_by_their_jobs() {
    let data_dir = TestDataDir::new();
    drop(data_dir.open());
    let shell = data_dir.sql();
    for sql in [
        "SELECT * FROM all_jobs WHERE id = ?1",
        "SELECT 1 FROM all_attempts WHERE job = ?1 AND fence = ?2",
        include_str!("../queries/unlabel.sql"),
    ] {
        let mut statement = shell.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let values = rusqlite::params_from_iter((0..statement.parameter_count()).map(|_| 1));
        let steps: Vec<String> =
            statement.query_map(values, |row| row.get(3)).unwrap().collect::<rusqlite::Result<_>>().unwrap();
        for table in ["jobs", "ended", "past_attempts", "details", "labels", "forming"] {
            assert!(!steps.contains(&format!("SCAN {table}")), "{sql}: {steps:#?}");
        }
    }
}

#[test]
fn retention_leaves_the_place_of_members_that_are_still_to_come() {
    let data_dir = TestDataDir::new();
    let (mut store, archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    let forming = Change::PendingBatch { first: JobId(1), last: JobId(5_000) };
    let members = |numbers: std::ops::RangeInclusive<u64>| numbers.map(added).collect::<Vec<_>>();
    store.commit(&group(&loaded, 1, [vec![forming], members(1..=4_000)].concat())).unwrap();
    // Others come and go in the block where the last members are still to come.
    let numbers = 5_001..=9_000;
    store.commit(&group(&loaded, 2, numbers.clone().map(added).collect())).unwrap();
    store.commit(&group(&loaded, 3, numbers.map(cancelled).collect())).unwrap();
    while store.remove(loaded.epoch, &remove::NOTHING).unwrap().more {}
    let formed = Change::BatchCompleted { first: JobId(1) };
    store.commit(&group(&loaded, 4, [members(4_001..=5_000), vec![formed]].concat())).unwrap();
    let filter = JobFilter { name: Some("resize".into()), limit: 1, ..JobFilter::default() };
    assert_eq!(archive.jobs(&filter).unwrap()[0].job, JobId(5_000));
}
