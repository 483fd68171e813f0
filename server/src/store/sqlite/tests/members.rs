//! Members of batches by their positions, and those that a retry of a batch reads.

use protocol::JobId;
use protocol::container::Overrides;
use scheduler::batches::{BatchMember, BatchOptions, NewBatch};
use scheduler::details::JobDetails;
use scheduler::step::{Ended, Note};

use super::*;
use crate::positions::Positions;
use crate::store::sqlite::dependencies::DEPENDENT;
use crate::store::sqlite::positions::{TOLD_BY_NUMBER, TOLD_BY_POSITION};
use crate::store::sqlite::repeatable::{RETRIED, members_sql};
use crate::store::{MemberArchive as _, MemberData, UnsuccessfulMember};

fn new_batch(first: u64, count: u32, retry_of: Option<u64>) -> Change {
    let options = BatchOptions { retry_of: retry_of.map(JobId), ..BatchOptions::default() };
    Change::BatchAdded(NewBatch { first: JobId(first), count, options, created_at: Timestamp(1) })
}

fn member(number: u64, first: u64) -> Change {
    let Change::Added(job) = added(number) else { unreachable!("it adds a job") };
    Change::Added(AddedJob { batch: Some(JobId(first)), ..job })
}

/// A job that repeats another one, a member of the batch 1; itself a member of a batch or not.
fn repetition(number: u64, batch: Option<u64>, of: u64) -> Change {
    let Change::Added(job) = added(number) else { unreachable!("it adds a job") };
    let index = u32::try_from(of - 1).unwrap();
    let environment = BatchMember { batch: JobId(1), index, size: 6 }.variables();
    let overrides = Overrides { environment, ..Overrides::default() };
    let details = Some(JobDetails { overrides, ..JobDetails::default() }.into());
    Change::Added(AddedJob { batch: batch.map(JobId), retry_of: Some(JobId(of)), details, ..job })
}

fn ended(job: u64, state: State, reason: &str) -> Change {
    let (job, at) = (JobId(job), Timestamp(2));
    Change::Ended(Ended { job, state, at, reason: reason.to_owned(), closed: None, confirmed: true })
}

/// Batch 1 of six jobs, of which the third and the fifth are repeated by batch 7.
fn repeated(store: &mut SqliteStore) -> Loaded {
    let loaded = store.load(&mut |_| {}).unwrap();
    let mut changes = vec![new_batch(1, 6, None)];
    changes.extend((1..=6).map(|number| member(number, 1)));
    store.commit(&group(&loaded, 1, changes)).unwrap();
    let ends = vec![ended(3, State::Failed, "exit code 1"), ended(5, State::Failed, "exit code 1")];
    store.commit(&group(&loaded, 2, ends)).unwrap();
    let again = vec![new_batch(7, 2, Some(1)), repetition(7, Some(7), 3), repetition(8, Some(7), 5)];
    store.commit(&group(&loaded, 3, again)).unwrap();
    loaded
}

fn positions(text: &str) -> Vec<Positions> {
    Positions::read(text).unwrap()
}

/// The members of a batch with these positions, with the positions that lists show.
fn found(archive: &SqliteArchive, batch: u64, text: &str, limit: usize) -> Vec<(u64, u64)> {
    let (batch, positions) = (Some(JobId(batch)), positions(text));
    let filter = JobFilter { batch, positions, limit, ..JobFilter::default() };
    let rows = archive.jobs(&filter).unwrap();
    rows.iter().map(|row| (row.job.0, row.position.unwrap())).collect()
}

#[test]
fn members_are_found_by_their_positions_also_in_a_batch_that_repeats_others() {
    let data_dir = TestDataDir::new();
    let (mut store, archive) = data_dir.open();
    repeated(&mut store);
    assert_eq!(found(&archive, 1, "0", 9), [(1, 0)]);
    assert_eq!(found(&archive, 1, "4,1-2,2,0", 9), [(5, 4), (3, 2), (2, 1), (1, 0)]);
    assert_eq!(found(&archive, 1, "0-5", 2), [(6, 5), (5, 4)]);
    assert_eq!(found(&archive, 7, "2", 9), [(7, 2)], "the position that it was told");
    assert_eq!(found(&archive, 7, "0-5", 9), [(8, 4), (7, 2)]);
    assert_eq!(found(&archive, 7, "0-1,3", 9), [], "the positions of their numbers are not theirs");
    let unknown = |batch: u64, text: &str| {
        let batch = archive.batch(JobId(batch)).unwrap().unwrap();
        archive.unknown_position(&batch, &positions(text)).unwrap()
    };
    assert_eq!((unknown(1, "0-5,3"), unknown(1, "2,6"), unknown(1, "3-7")), (None, Some(6), Some(6)));
    assert_eq!((unknown(7, "2,4"), unknown(7, "2,0"), unknown(7, "0-9")), (None, Some(0), None));
}

#[test]
fn positions_are_found_by_an_index_and_go_with_their_jobs() {
    let data_dir = TestDataDir::new();
    let (mut store, archive) = data_dir.open();
    let loaded = repeated(&mut store);
    let shell = data_dir.sql();
    for (sql, index) in [
        (
            TOLD_BY_POSITION,
            "USING COVERING INDEX told_positions_by_batch (batch=? AND position>? AND position<?)",
        ),
        (TOLD_BY_NUMBER, "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        (RETRIED, "USING COVERING INDEX ended_by_retry (retry_of>? AND retry_of<?)"),
        (DEPENDENT, "USING PRIMARY KEY (job>? AND job<?)"),
        (&members_sql(), "SEARCH j USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
    ] {
        let mut statement = shell.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let values = rusqlite::params_from_iter((0..statement.parameter_count()).map(|_| 1));
        let steps: Vec<String> =
            statement.query_map(values, |row| row.get(3)).unwrap().collect::<rusqlite::Result<_>>().unwrap();
        let plan = steps.join("; ");
        assert!(plan.contains(index) && !plan.contains("SCAN j"), "{sql}: {plan}");
    }
    let ends = [1, 2, 4, 6, 7, 8].map(|job| ended(job, State::Succeeded, "")).to_vec();
    store.commit(&group(&loaded, 4, ends)).unwrap();
    store.remove(loaded.epoch, &remove::NOTHING).unwrap();
    let left: i64 = shell.query_row("SELECT count(*) FROM told_positions", [], |row| row.get(0)).unwrap();
    assert_eq!((left, archive.batch(JobId(7)).unwrap()), (0, None));
}

#[test]
fn positions_that_an_earlier_version_has_told_are_found() {
    let data_dir = TestDataDir::new();
    let mut shell = data_dir.sql();
    migrate::migrate_to(&mut shell, &data_dir.file(), migrate::before("told_positions"));
    shell
        .execute_batch(
            r#"INSERT INTO definitions (id, revision, name, entry) VALUES (1, zeroblob(16), 'resize', '{}');
             INSERT INTO batches (id, created_at, count, queued, retry_of) VALUES (7, 1, 2, 2, 1);
             INSERT INTO jobs (id, definition, state, priority, created_at, due_at, batch, retry_of)
             VALUES (7, 1, 2, 0, 1, 1, 7, 3), (8, 1, 2, 0, 1, 1, 7, 5), (9, 1, 2, 0, 1, 1, NULL, 4);
             INSERT INTO details (job, environment)
             VALUES (7, '[["A","1"],["LONGSHORE_BATCH","1"],["LONGSHORE_INDEX","2"]]'), (9, '[["LONGSHORE_INDEX","3"]]');"#,
        )
        .unwrap();
    drop(shell);
    let (_store, archive) = data_dir.open();
    let rows = |sql: &str| -> Vec<(i64, i64, i64)> {
        let shell = data_dir.sql();
        let mut statement = shell.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
        rows.collect::<rusqlite::Result<_>>().unwrap()
    };
    assert_eq!(rows("SELECT job, batch, position FROM told_positions"), [(7, 7, 2)]);
    assert_eq!(found(&archive, 7, "0-9", 9), [(8, 1), (7, 2)]);
}

#[test]
fn a_retry_reads_each_member_as_it_would_read_it_by_itself() {
    let data_dir = TestDataDir::new();
    let (mut store, archive) = data_dir.open();
    let loaded = repeated(&mut store);
    let cancel = |job| (Timestamp(2), Note::CancelRequested { by: format!("ann {job}") });
    let mut changes = vec![
        ended(1, State::Cancelled, "cancelled by ann"),
        ended(2, State::Succeeded, ""),
        ended(4, State::Expired, "late"),
        // The retry of the third one fails and is repeated by itself; the fifth one is gone on.
        ended(7, State::Failed, "exit code 1"),
        repetition(9, None, 7),
    ];
    let (at, note) = cancel(1);
    changes.insert(0, Change::Noted { job: JobId(1), at, note });
    store.commit(&group(&loaded, 4, changes)).unwrap();
    let read = |before: Option<u64>, limit, data| {
        let read = archive.unsuccessful_members(JobId(1), before.map(JobId), limit, data).unwrap();
        (read.members, read.last.map(|job| job.0))
    };
    let (members, last) = read(None, 10, MemberData::Whole);
    let standing: Vec<(u64, u64, State)> =
        members.iter().map(|it| (it.member.0, it.job.row.job.0, it.job.row.state)).collect();
    let expected =
        [(5, 8, State::Queued), (4, 4, State::Expired), (3, 9, State::Queued), (1, 1, State::Cancelled)];
    assert_eq!((standing.as_slice(), last), (&expected[..], None));
    for UnsuccessfulMember { job, after, cancelled_by, .. } in &members {
        let alone = archive.job(job.row.job).unwrap().unwrap();
        assert_eq!((&job.overrides, &job.params), (&alone.overrides, &alone.params));
        assert_eq!((&job.row.labels, &job.row.run_on_role), (&alone.row.labels, &alone.row.run_on_role));
        assert_eq!(*after, alone.after);
        let is_cancelled = job.row.state == State::Cancelled;
        assert_eq!(cancelled_by.as_slice(), if is_cancelled { vec!["ann 1".to_owned()] } else { vec![] });
    }
    let members_of_batch = |after: Option<u64>| {
        let (batch, after) = (Some(JobId(1)), after.map(JobId));
        archive.jobs(&JobFilter { batch, after, limit: 9, ..JobFilter::default() }).unwrap()
    };
    assert_eq!(members_of_batch(Some(4)).iter().map(|row| row.job.0).collect::<Vec<_>>(), [6, 5]);
    let latest = archive.latest_attempts(members_of_batch(None)).unwrap();
    let latest: Vec<_> = latest.iter().map(|row| (row.position.unwrap(), row.job.0)).collect();
    assert_eq!(latest, [(5, 6), (4, 8), (3, 4), (2, 9), (1, 2), (0, 1)]);
    let (first, last) = read(None, 2, MemberData::WithoutOverrides);
    assert_eq!((first.len(), last), (2, Some(4)));
    assert_eq!(first[0].job.overrides, Overrides::default());
    let (rest, last) = read(Some(4), 3, MemberData::Whole);
    assert_eq!((rest.as_slice(), last), (&members[2..], None));
}
