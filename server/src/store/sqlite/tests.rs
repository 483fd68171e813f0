//! Tests of the SQLite store itself: schema, file, recovery. The promises of every store are in the conformance suite.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use protocol::{Fence, Nonce, Revision, SessionId, Timestamp, Token, WorkerId};
use rusqlite::Connection;
use scheduler::ids::GroupNo;
use scheduler::job::State;
use scheduler::step::{AddedJob, Assigned, Change};
use tempfile::TempDir;

use super::*;
use crate::store::conformance::{Backend, conforms};
use crate::store::{Archive, JobFilter, StoredDefinition, live_jobs};

mod access;
mod definition_changes;
mod ends_of_batches;
mod lists;
mod members;
mod notifications;
mod older;
mod pending_batch;
mod power;
mod remove;
mod sent_now;
mod slots;
mod unresolved;
mod wal;
mod workers;

/// A data directory that goes with its test.
struct TestDataDir(TempDir);

impl TestDataDir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn open(&self) -> (SqliteStore, SqliteArchive) {
        open(&Arc::new(DataDirectory::take(self.0.path()).unwrap())).unwrap()
    }

    fn refusal(&self) -> String {
        open(&Arc::new(DataDirectory::take(self.0.path()).unwrap())).unwrap_err().to_string()
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("longshore.db")
    }

    /// A shell on the file.
    fn sql(&self) -> Connection {
        let shell = Connection::open(self.file()).unwrap();
        connections::keep_plans(&shell).unwrap();
        shell
    }

    /// A copy of the files as they are on disk now, as if the machine had stopped.
    fn crash(&self) -> Self {
        let other = Self::new();
        for name in ["longshore.db", "longshore.db-wal"] {
            fs::copy(self.0.path().join(name), other.0.path().join(name)).unwrap();
        }
        other
    }
}

impl Backend for TestDataDir {
    fn open(&mut self) -> (Box<dyn Store>, Box<dyn Archive>) {
        let (store, archive) = Self::open(self);
        (Box::new(store), Box::new(archive))
    }
}

conforms!(TestDataDir::new());

fn group(loaded: &Loaded, number: u64, changes: Vec<Change>) -> Group {
    let definition = StoredDefinition { revision: Revision(1), name: "resize".into(), entry: "{}".into() };
    Group {
        epoch: loaded.epoch,
        number: GroupNo(number),
        at: Timestamp(0),
        definitions: vec![Arc::new(definition)],
        changes,
        ..Group::default()
    }
}

fn added(job: u64) -> Change {
    Change::Added(AddedJob {
        job: protocol::JobId(job),
        revision: Revision(1),
        state: State::Queued,
        priority: 0,
        created_at: Timestamp(1),
        due_at: Timestamp(1),
        timeout: None,
        batch: None,
        retry_of: None,
        submitted_by: None,
        narrowing: None,
        keys: None,
        details: None,
    })
}

fn assigned(job: u64) -> Change {
    let (token, number, at) = (
        Token { job: protocol::JobId(job), fence: Fence(job), nonce: Nonce(job) },
        protocol::AttemptNo(1),
        Timestamp(1),
    );
    let (worker, session, gpus) = (WorkerId(1), SessionId(1), Vec::new());
    Change::Assigned(Assigned { token, number, worker, session, at, gpus })
}

fn cancelled(job: u64) -> Change {
    Change::Ended(scheduler::step::Ended {
        job: protocol::JobId(job),
        state: State::Cancelled,
        at: Timestamp(2),
        reason: String::new(),
        closed: None,
        confirmed: false,
    })
}

fn list(archive: &SqliteArchive) -> Vec<u64> {
    let filter = JobFilter { limit: 500, ..JobFilter::default() };
    archive.jobs(&filter).unwrap().iter().map(|row| row.job.0).collect()
}

#[test]
fn an_ended_job_is_immutable_even_for_raw_sql() {
    let data_dir = TestDataDir::new();
    let (mut store, _archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    store.commit(&group(&loaded, 1, vec![added(1), cancelled(1)])).unwrap();
    let shell = data_dir.sql();
    let refusal = shell.execute("UPDATE ended SET state = 7", []).unwrap_err().to_string();
    assert_eq!(refusal, "an ended job never changes");
    let columns: Vec<String> = shell
        .prepare("SELECT name FROM pragma_table_info('ended') WHERE name <> 'confirmed'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    for column in columns {
        assert!(shell.execute(&format!("UPDATE ended SET {column} = {column}"), []).is_err(), "{column}");
    }
    shell.execute("UPDATE ended SET confirmed = 1", []).expect("the one exception");
    for again in [0, 1] {
        assert!(
            shell.execute(&format!("UPDATE ended SET confirmed = {again}"), []).is_err(),
            "once, for good"
        );
    }
}

#[test]
fn the_schema_refuses_a_running_job_without_worker_or_session() {
    let data_dir = TestDataDir::new();
    let (mut store, _archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    store.commit(&group(&loaded, 1, vec![added(1), added(2), assigned(2)])).unwrap();
    let shell = data_dir.sql();
    for sql in [
        "UPDATE jobs SET state = 3 WHERE id = 1",
        "UPDATE jobs SET state = 4 WHERE id = 2",
        "UPDATE jobs SET worker = NULL WHERE id = 2",
        "UPDATE jobs SET session = NULL WHERE id = 2",
        "UPDATE jobs SET state = 2 WHERE id = 2",
        "UPDATE jobs SET state = 6 WHERE id = 1",
    ] {
        let refusal = shell.execute(sql, []).unwrap_err().to_string();
        assert!(refusal.starts_with("CHECK constraint failed"), "{sql}: {refusal}");
    }
}

#[test]
fn committed_groups_survive_a_crash_and_uncommitted_rows_do_not() {
    let data_dir = TestDataDir::new();
    let (mut store, _archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    store.commit(&group(&loaded, 1, vec![added(1), added(2)])).unwrap();
    // In the middle of the next group: everything is written but not committed.
    store.connection.execute_batch("PRAGMA cache_spill = 1; PRAGMA cache_size = 1; BEGIN IMMEDIATE").unwrap();
    store.connection.execute("UPDATE jobs SET priority = 99", []).unwrap();
    store.connection.execute("DELETE FROM jobs WHERE id = 2", []).unwrap();
    let after = data_dir.crash();
    let (mut store, archive) = after.open();
    let mut live = Vec::new();
    let loaded = store.load(&mut live_jobs(|job| live.push((job.job.0, job.priority)))).unwrap();
    assert_eq!((live, loaded.group), (vec![(1, 0), (2, 0)], GroupNo(1)));
    assert_eq!(list(&archive), [2, 1]);
}

#[test]
fn a_torn_log_gives_a_whole_number_of_groups() {
    let data_dir = TestDataDir::new();
    let (mut store, _archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    for number in 1..=20 {
        store.commit(&group(&loaded, number, vec![added(2 * number), added(2 * number + 1)])).unwrap();
    }
    let log = data_dir.0.path().join("longshore.db-wal");
    let length = fs::metadata(&log).unwrap().len();
    for cut in (0..length).step_by(1_777) {
        let after = data_dir.crash();
        let torn = fs::File::options().write(true).open(after.0.path().join("longshore.db-wal")).unwrap();
        torn.set_len(length - cut).unwrap();
        let Ok((mut store, archive)) = open(&Arc::new(DataDirectory::take(after.0.path()).unwrap())) else {
            panic!("a torn log is no damage")
        };
        let mut live = 0;
        let loaded = store.load(&mut live_jobs(|_| live += 1)).unwrap();
        assert_eq!(live, loaded.group.0 * 2, "cut by {cut}");
        assert_eq!(list(&archive).len() as u64, live);
    }
}

#[test]
fn files_that_are_not_ours_are_refused_by_name() {
    let data_dir = TestDataDir::new();
    fs::write(
        data_dir.file(),
        "these are somebody's notes, long enough to be taken for a header of a database file".repeat(50),
    )
    .unwrap();
    let refusal = data_dir.refusal();
    assert!(refusal.contains("longshore.db is not a Longshore store"), "{refusal}");
    let data_dir = TestDataDir::new();
    data_dir.sql().execute_batch("CREATE TABLE theirs (id INTEGER)").unwrap();
    let refusal = data_dir.refusal();
    assert!(refusal.contains("is an SQLite database, but not a Longshore store"), "{refusal}");
}

#[test]
fn a_damaged_store_is_named() {
    let data_dir = TestDataDir::new();
    drop(data_dir.open());
    let file = fs::File::options().write(true).open(data_dir.file()).unwrap();
    // The page of the schema, after the header.
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xFF; 2_000], 100).unwrap();
    let refusal = data_dir.refusal();
    assert!(refusal.contains("longshore.db is damaged"), "{refusal}");
}

#[test]
fn an_orderly_end_is_told_from_a_crash() {
    let data_dir = TestDataDir::new();
    let clean = |data_dir: &TestDataDir| {
        data_dir.sql().query_row("SELECT clean FROM installation", [], |row| row.get::<_, bool>(0))
    };
    let (mut store, archive) = data_dir.open();
    store.load(&mut |_| {}).unwrap();
    assert!(!clean(&data_dir).unwrap());
    drop((store, archive));
    assert!(clean(&data_dir).unwrap());
    assert!(!data_dir.0.path().join("longshore.db-wal").exists(), "the log was moved into the file");
}

#[test]
fn a_full_disk_can_be_tried_again_and_uses_the_reserve_first() {
    let data_dir = TestDataDir::new();
    let (mut store, archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    store.commit(&group(&loaded, 1, vec![added(1)])).unwrap();
    let pages: i64 = store.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    store.connection.pragma_update(None, "max_page_count", pages).unwrap();
    let big = group(&loaded, 2, (2..2_000).map(added).collect());
    let reserve = data_dir.0.path().join("ballast");
    assert!(reserve.exists());
    assert!(matches!(store.commit(&big), Err(CommitError::Unavailable(_))));
    assert!(!reserve.exists());
    assert_eq!(list(&archive), [1]);
    store.connection.pragma_update(None, "max_page_count", 1_000_000).unwrap();
    store.commit(&big).unwrap();
    assert_eq!(list(&archive)[0], 1_999);
}

#[test]
fn write_cache_is_rolled_back_with_a_failed_commit() {
    let data_dir = TestDataDir::new();
    let (mut store, _archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    let first = group(&loaded, 1, (1..2_000).map(added).collect());
    let limit = |pages: i64| store.connection.pragma_update(None, "max_page_count", pages).unwrap();
    let pages: i64 = store.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    let mut known = WriteCache::default();
    limit(pages);
    let full = write::commit(&store.connection, &mut known, &first).unwrap_err();
    assert!(faults::is_full(&full), "{full}");
    limit(1_000_000);
    write::commit(&store.connection, &mut known, &first).unwrap();
    let seen: i64 = data_dir.sql().query_row("SELECT count(*) FROM seen", [], |row| row.get(0)).unwrap();
    assert_eq!(seen, 1, "lists by name find the block of these jobs");
}

#[test]
fn facts_that_were_forgotten_are_read_again() {
    let data_dir = TestDataDir::new();
    let (mut store, archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    let mut cache = WriteCache::default();
    for job in 1..4 {
        write::commit(&store.connection, &mut cache, &group(&loaded, job, vec![added(job)])).unwrap();
        cache.forget();
    }
    let count = |table: &str| -> i64 {
        let query = format!("SELECT count(*) FROM {table}");
        data_dir.sql().query_row(&query, [], |row| row.get(0)).unwrap()
    };
    assert_eq!((count("definitions"), count("seen"), list(&archive).len()), (1, 1, 3));
}

#[test]
fn a_store_that_somebody_else_holds_keeps_its_reserve() {
    let data_dir = TestDataDir::new();
    let (mut store, _archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    let ballast = data_dir.0.path().join("ballast");
    fs::write(&ballast, "").unwrap();
    let shell = data_dir.sql();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    store.connection.busy_timeout(Duration::ZERO).unwrap();
    let first = group(&loaded, 1, vec![added(1)]);
    assert!(matches!(store.commit(&first), Err(CommitError::Unavailable(_))));
    assert!(ballast.exists());
    shell.execute_batch("ROLLBACK").unwrap();
    store.commit(&first).unwrap();
}

#[test]
fn live_states_other_than_queued_are_read_by_their_index() {
    let data_dir = TestDataDir::new();
    let (mut store, archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    store.commit(&group(&loaded, 1, vec![added(1), added(2), added(3), assigned(2)])).unwrap();
    let shell = data_dir.sql();
    for name in [None, Some("resize".to_owned())] {
        for state in [State::Scheduled, State::Assigned, State::Running, State::Quarantined] {
            let filter =
                JobFilter { states: vec![state], name: name.clone(), limit: 10, ..JobFilter::default() };
            let plan = list::plans(&shell, &filter)[0].join("; ");
            assert!(plan.contains("jobs_by_state"), "{state:?}: {plan}");
            let found: Vec<u64> = archive.jobs(&filter).unwrap().iter().map(|row| row.job.0).collect();
            assert_eq!(found, if state == State::Assigned { vec![2] } else { vec![] }, "{state:?}");
        }
    }
}

#[test]
fn idle_store_gives_the_space_of_deleted_rows_back() {
    let data_dir = TestDataDir::new();
    let (store, _archive) = data_dir.open();
    let pages =
        || store.connection.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0)).unwrap();
    store
        .connection
        .execute_batch(
            "CREATE TABLE bulk (text BLOB);
             INSERT INTO bulk WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6000)
             SELECT zeroblob(4000) FROM n;
             DROP TABLE bulk;",
        )
        .unwrap();
    let before = pages();
    assert!(before > 6_000);
    for _ in 0..10 {
        upkeep::shrink(&store.connection).unwrap();
    }
    let after = pages();
    assert!(after < before - 1_000, "{before} pages, then {after}");
    assert!(after > 4_096, "some free pages stay for new jobs");
}

#[test]
fn row_of_a_forgotten_worker_stays_as_long_as_a_job_has_an_attempt_on_it() {
    let data_dir = TestDataDir::new();
    let (mut store, archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    let join = |number| crate::store::conformance::harness::worker(number, "w");
    let forget = |number| Change::WorkerForgotten(WorkerId(number));
    store.commit(&group(&loaded, 1, vec![join(1), join(2), added(1), assigned(1)])).unwrap();
    assert_eq!(archive.worker(WorkerId(2)).unwrap().map(|row| row.worker), Some(WorkerId(2)));
    store.commit(&group(&loaded, 2, vec![forget(1), forget(2)])).unwrap();
    assert_eq!(archive.worker(WorkerId(1)).unwrap(), None);
    let rows = || -> String {
        data_dir.sql().query_row("SELECT group_concat(id) FROM workers", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(rows(), "1", "job 1 shows the name of worker 1");
}
