//! A store of every older schema, with jobs in it, opens in this version: live jobs go on, ended ones can be read with all their attempts.

mod pauses;

use scheduler::limits::keys::JobKeys;

use super::*;
use crate::store::FailureStatus;

/// The rows of a store that the first schema can hold.
const CONTENT: &str = include_str!("older/content.sql");

#[test]
fn a_store_of_every_older_schema_opens_with_all_its_jobs() {
    for version in 1..=migrate::newest() {
        let data_dir = TestDataDir::new();
        let mut shell = data_dir.sql();
        migrate::migrate_to(&mut shell, &data_dir.file(), version);
        shell.execute_batch(CONTENT).unwrap_or_else(|error| panic!("schema {version}: {error}"));
        drop(shell);

        let (mut store, archive) = data_dir.open();
        let mut live = Vec::new();
        let loaded = store.load(&mut live_jobs(|job| live.push((job.job.0, job.state)))).unwrap();
        live.sort_unstable_by_key(|(job, _)| *job);
        assert_eq!(live, [(3, State::Running), (4, State::Queued)], "schema {version}");
        assert_eq!(
            (loaded.cluster.0, loaded.last_job.0, loaded.last_fence.0),
            (77, 4, 13),
            "schema {version}"
        );
        assert_eq!(loaded.workers.len(), 1, "schema {version}");

        assert_eq!(list(&archive), [4, 3, 2, 1], "schema {version}");
        let job = |id| archive.job(protocol::JobId(id)).unwrap().unwrap();
        let succeeded = job(1);
        let attempt = succeeded.row.attempt.as_ref().unwrap();
        assert_eq!((succeeded.row.state, succeeded.row.priority, attempt.fence.0), (State::Succeeded, 5, 11));
        assert_eq!(attempt.result.as_deref(), Some("{\"rows\":3}"));
        assert_eq!((succeeded.past.len(), succeeded.past[0].exit_code), (1, Some(7)));
        assert_eq!(
            (succeeded.past[0].message.as_str(), &*succeeded.past[0].worker_name),
            ("exit code 7", "anna")
        );
        assert_eq!((job(2).row.state, job(2).row.reason.as_str()), (State::Failed, "exit code 3"));
        assert_eq!(succeeded.row.submitted_by, None, "schema {version}: nobody knows");
        // Nobody knows whether a failure of the past was dealt with.
        assert_eq!(job(2).row.failure, FailureStatus::None, "schema {version}");
        assert!(archive.unresolved().unwrap().is_empty(), "schema {version}");
        let waiting = job(4);
        assert_eq!(waiting.row.labels, [("team".to_owned(), "press".to_owned())]);
        assert_eq!(
            (waiting.overrides.args, waiting.overrides.input.as_deref()),
            (vec!["--fast".to_owned()], Some("an input"))
        );

        // It goes on: the next group follows the last one, and its job is a new one.
        let Change::Added(new) = added(5) else { unreachable!("it is one") };
        let new = Change::Added(AddedJob { submitted_by: Some("ann".into()), ..new });
        let next = Group { number: GroupNo(loaded.group.0 + 1), ..group(&loaded, 0, vec![new]) };
        store.commit(&next).unwrap();
        assert_eq!(list(&archive), [5, 4, 3, 2, 1], "schema {version}");
        assert_eq!(job(5).row.submitted_by.as_deref(), Some("ann"), "schema {version}");
    }
}

#[test]
fn keys_of_limits_stay_with_their_jobs_also_of_an_older_store() {
    let data_dir = TestDataDir::new();
    let mut shell = data_dir.sql();
    migrate::migrate_to(&mut shell, &data_dir.file(), migrate::before("keys_without_trigger"));
    shell.execute_batch(CONTENT).unwrap();
    shell.execute_batch("INSERT INTO job_keys (job, concurrency) VALUES (4, 'acme')").unwrap();
    drop(shell);

    let (mut store, archive) = data_dir.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    let keys = Some(Box::new(JobKeys { concurrency: Some("acme".into()), ..JobKeys::default() }));
    let Change::Added(job) = added(5) else { unreachable!("it is one") };
    let new = Change::Added(AddedJob { keys, ..job });
    let first = Group { number: GroupNo(loaded.group.0 + 1), ..group(&loaded, 0, vec![new]) };
    store.commit(&first).unwrap();
    drop((store, archive));
    let (mut store, _archive) = data_dir.open();
    let mut keys = Vec::new();
    store.load(&mut live_jobs(|job| keys.push((job.job.0, job.keys)))).unwrap();
    let acme = |job: &&(u64, Option<Box<JobKeys>>)| {
        job.1.as_ref().is_some_and(|keys| keys.concurrency.as_deref() == Some("acme"))
    };
    assert_eq!(keys.iter().filter(acme).map(|(job, _)| *job).collect::<Vec<_>>(), [4, 5]);
}
