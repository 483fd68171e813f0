//! Messages about the ends of batches: one for each end, with the transaction of the last member.

use protocol::JobId;
use scheduler::batches::{BatchOptions, NewBatch};
use scheduler::step::{AddedJob, Ended};

use super::*;
use crate::notifications::occasion::Occasion;
use crate::notifications::target_key::{TargetKey, TargetKind};
use crate::store::{
    NotificationArchive as _, NotificationChange, NotificationFilter, NotificationRow, NotifyRule,
    NotifyRules, RecordChange,
};

/// A store whose definition has a target for the ends of batches.
struct Stage {
    store: SqliteStore,
    archive: SqliteArchive,
    loaded: Loaded,
    groups: u64,
    _data_dir: TestDataDir,
}

impl Stage {
    fn new() -> Self {
        let data_dir = TestDataDir::new();
        let (mut store, archive) = data_dir.open();
        let loaded = store.load(&mut |_| {}).unwrap();
        Self { store, archive, loaded, groups: 0, _data_dir: data_dir }
    }

    fn group(&self, number: u64, changes: Vec<Change>, at: i64) -> Group {
        let rule = NotifyRule {
            target: TargetKey("t1".to_owned()),
            kind: TargetKind::Slack,
            host: "hooks.example".to_owned(),
            on: Occasion::ALL.into_iter().filter(|occasion| occasion.is_about_batch()).collect(),
            period_ms: 300_000,
        };
        let notify = Arc::new(NotifyRules([("resize".into(), vec![rule])].into()));
        let mut group = Group { notify, at: Timestamp(at), ..group(&self.loaded, number, changes) };
        let other = StoredDefinition { revision: OTHER, name: "other".into(), entry: "{}".into() };
        group.definitions.push(Arc::new(other));
        group
    }

    fn commit(&mut self, changes: Vec<Change>, at: i64) {
        self.groups += 1;
        let group = self.group(self.groups, changes, at);
        self.store.commit(&group).unwrap();
    }

    /// The end of a batch of one job.
    fn batch_of_one(&mut self, first: u64, state: State, at: i64) {
        self.commit(vec![new_batch(first, 1), member(first, first)], at);
        self.commit(vec![ended(first, state, at), batch_ended(first, 1, state, at)], at);
    }

    fn change(&mut self, change: NotificationChange) {
        self.store.change_record(self.loaded.epoch, &RecordChange::Notification(change)).unwrap();
    }

    /// All messages, the oldest first.
    fn all(&self) -> Vec<NotificationRow> {
        let filter = NotificationFilter { limit: 500, ..NotificationFilter::default() };
        let mut rows = self.archive.notifications(&filter).unwrap();
        rows.reverse();
        rows
    }

    fn due(&self, now: i64) -> Vec<u64> {
        self.archive.due_notifications(Timestamp(now)).unwrap().iter().map(|row| row.id.0).collect()
    }
}

fn new_batch(first: u64, count: u32) -> Change {
    retried_batch(first, count, None)
}

fn retried_batch(first: u64, count: u32, retry_of: Option<u64>) -> Change {
    let options = BatchOptions { retry_of: retry_of.map(JobId), ..BatchOptions::default() };
    Change::BatchAdded(NewBatch { first: JobId(first), count, options, created_at: Timestamp(1) })
}

fn member(number: u64, first: u64) -> Change {
    let Change::Added(job) = added(number) else { unreachable!("it adds a job") };
    Change::Added(AddedJob { batch: Some(JobId(first)), ..job })
}

/// A member whose definition has no targets.
fn of_other_definition(number: u64, first: u64) -> Change {
    let Change::Added(job) = member(number, first) else { unreachable!("it adds a job") };
    Change::Added(AddedJob { revision: OTHER, ..job })
}

const OTHER: Revision = Revision(2);

fn ended(job: u64, state: State, at: i64) -> Change {
    let (job, at) = (JobId(job), Timestamp(at));
    Change::Ended(Ended { job, state, at, reason: String::new(), closed: None, confirmed: true })
}

fn batch_ended(first: u64, count: u32, state: State, at: i64) -> Change {
    Change::BatchEnded { first: JobId(first), count, failed: 0, state, at: Timestamp(at) }
}

#[test]
fn the_last_member_writes_one_message_and_a_repeated_group_no_second() {
    let mut stage = Stage::new();
    stage.commit(vec![new_batch(1, 3), member(1, 1), member(2, 1), member(3, 1)], 1_000);
    stage.commit(vec![ended(1, State::Failed, 2_000), ended(2, State::Succeeded, 2_000)], 2_000);
    assert_eq!(stage.all(), []);
    let last = vec![ended(3, State::Failed, 3_000), batch_ended(1, 3, State::Failed, 3_000)];
    stage.commit(last.clone(), 3_000);
    let again = stage.group(stage.groups, last, 3_000);
    stage.store.commit(&again).unwrap();
    let rows = stage.all();
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.occasion, row.batch, row.job), (Occasion::BatchFailed, Some(JobId(1)), None));
    assert_eq!((row.count, row.opens_at, &*row.definition), (1, Timestamp(3_000), "resize"));
    assert_eq!(stage.due(3_000), [1]);
}

#[test]
fn each_batch_has_a_message_of_its_own_at_once_also_a_cancelled_one() {
    let mut stage = Stage::new();
    stage.batch_of_one(1, State::Failed, 1_000);
    stage.batch_of_one(2, State::Cancelled, 1_001);
    stage.batch_of_one(3, State::Failed, 1_002);
    stage.batch_of_one(4, State::Succeeded, 1_003);
    let ends: Vec<_> = stage.all().iter().map(|row| (row.occasion, row.batch, row.count)).collect();
    let end = |first, occasion| (occasion, Some(JobId(first)), 1);
    let expected = [
        end(1, Occasion::BatchFailed),
        end(2, Occasion::BatchCancelled),
        end(3, Occasion::BatchFailed),
        end(4, Occasion::BatchSucceeded),
    ];
    assert_eq!(ends, expected);
    // The target refuses the first one: the others do not wait for it.
    let id = stage.all()[0].id;
    stage.change(NotificationChange::Try { id, at: Timestamp(2_000), due_at: LATER, give_up_at: LATER });
    stage.change(NotificationChange::TryFailed(id, "no".to_owned(), LATER));
    assert_eq!(stage.due(2_000), [2]);
}

#[test]
fn the_targets_that_heard_of_a_batch_hear_of_its_retries() {
    let mut stage = Stage::new();
    stage.commit(vec![new_batch(1, 2), member(1, 1), of_other_definition(2, 1)], 1_000);
    let ends = [ended(1, State::Succeeded, 2_000), ended(2, State::Failed, 2_000)];
    stage.commit([&ends[..], &[batch_ended(1, 2, State::Failed, 2_000)]].concat(), 2_000);
    for (first, retry_of) in [(3, 1), (4, 3)] {
        stage.commit(vec![retried_batch(first, 1, Some(retry_of)), of_other_definition(first, first)], 3_000);
        let end = [ended(first, State::Succeeded, 4_000), batch_ended(first, 1, State::Succeeded, 4_000)];
        stage.commit(end.to_vec(), 4_000);
    }
    let told: Vec<_> =
        stage.all().iter().map(|row| (row.definition.to_string(), row.occasion, row.batch)).collect();
    let end = |first, occasion| ("resize".to_owned(), occasion, Some(JobId(first)));
    let succeeded = Occasion::BatchSucceeded;
    assert_eq!(told, [end(1, Occasion::BatchFailed), end(3, succeeded), end(4, succeeded)]);
}

#[test]
fn a_hundred_messages_that_were_not_sent_are_followed_by_counts() {
    let mut stage = Stage::new();
    for first in 1..=103 {
        stage.batch_of_one(first, State::Failed, 1_000);
    }
    let rows = stage.all();
    let last = rows.last().unwrap();
    assert_eq!((rows.len(), last.count, last.batch), (100, 4, Some(JobId(103))));
}

#[test]
fn ends_are_not_counted_in_a_message_that_was_tried_and_a_target_that_is_away_gets_one_more_an_hour() {
    let mut stage = Stage::new();
    for first in 1..=100 {
        stage.batch_of_one(first, State::Failed, 1_000);
    }
    // Each of them is on its way, or was refused.
    for row in stage.all() {
        let (id, at) = (row.id, Timestamp(2_000));
        stage.change(NotificationChange::Try { id, at, due_at: LATER, give_up_at: LATER });
    }
    for first in 101..=103 {
        stage.batch_of_one(first, State::Failed, 3_000);
    }
    let rows = stage.all();
    assert!(rows[..100].iter().all(|row| row.count == 1), "{rows:?}");
    let [gathered] = &rows[100..] else { panic!("{rows:?}") };
    assert_eq!(
        (gathered.count, gathered.batch, gathered.opens_at),
        (3, Some(JobId(103)), Timestamp(3_603_000))
    );
    assert_eq!(stage.due(3_602_999), [] as [u64; 0]);
    assert_eq!(stage.due(3_603_000), [101]);
}

const LATER: Timestamp = Timestamp(9_000_000);
