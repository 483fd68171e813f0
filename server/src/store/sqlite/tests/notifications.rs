//! Notifications in the store: written with the end of a job, grouped, tried, and given up.

use protocol::JobId;
use protocol::report::Outcome;
use scheduler::expectations::{ExpectationRow, SlowRun};
use scheduler::step::Ended;

use super::*;
use crate::notifications::occasion::{Occasion, Occasions};
use crate::notifications::target_key::{TargetKey, TargetKind};
use crate::store::conformance::harness;
use crate::store::{
    NotificationArchive, NotificationChange, NotificationFilter, NotificationId, NotificationRow, NotifyRule,
    NotifyRules, RecordChange, WorkingReceiver,
};

const PERIOD: i64 = 1_000;
pub(super) const DAY: i64 = 24 * 3_600 * 1_000;

/// A store whose definition has one target.
pub(super) struct Stage {
    pub(super) store: SqliteStore,
    pub(super) archive: SqliteArchive,
    loaded: Loaded,
    groups: u64,
    _data_dir: TestDataDir,
}

impl Stage {
    pub(super) fn new() -> Self {
        let data_dir = TestDataDir::new();
        let (mut store, archive) = data_dir.open();
        let loaded = store.load(&mut |_| {}).unwrap();
        Self { store, archive, loaded, groups: 0, _data_dir: data_dir }
    }

    /// A job is accepted and ends at this time.
    pub(super) fn end(&mut self, state: State, at: i64) {
        let number = self.groups + 1;
        let job = protocol::JobId(number);
        let ended =
            Ended { job, state, at: Timestamp(at), reason: String::new(), closed: None, confirmed: true };
        self.commit(vec![added(number), Change::Ended(ended)], at);
    }

    /// The expectation of the definition changes.
    pub(super) fn expect(&mut self, stale_since: Option<i64>, slow: Option<SlowRun>, at: i64) {
        let row = ExpectationRow {
            definition: "resize".into(),
            awaited_since: None,
            stale_since: stale_since.map(Timestamp),
            slow,
        };
        self.commit(vec![Change::Expectation(row)], at);
    }

    pub(super) fn commit(&mut self, changes: Vec<Change>, at: i64) {
        self.groups += 1;
        let rule = NotifyRule {
            target: TargetKey("t1".to_owned()),
            kind: TargetKind::Slack,
            host: "hooks.example".to_owned(),
            on: Occasions::standard(),
            period_ms: PERIOD,
        };
        let notify = Arc::new(NotifyRules([("resize".into(), vec![rule])].into()));
        let group = Group { notify, at: Timestamp(at), ..group(&self.loaded, self.groups, changes) };
        self.store.commit(&group).unwrap();
    }

    pub(super) fn change(&mut self, change: NotificationChange) {
        self.store.change_record(self.loaded.epoch, &RecordChange::Notification(change)).unwrap();
    }

    /// Makes a try that fails, and is made again ten minutes later.
    pub(super) fn fail(&mut self, row: &NotificationRow, at: i64) {
        let (at, due_at, give_up_at) = (Timestamp(at), Timestamp(at + 600_000), Timestamp(at + DAY));
        self.change(NotificationChange::Try { id: row.id, at, due_at, give_up_at });
        self.change(NotificationChange::TryFailed(row.id, "no".to_owned(), due_at));
    }

    /// The target takes a message, and gets no other earlier for that.
    pub(super) fn deliver(&mut self, id: NotificationId) {
        let except = self.all().iter().map(|row| row.id).collect();
        self.change(NotificationChange::Delivered(id, receiver(0, except)));
    }

    /// All messages, the oldest first.
    pub(super) fn all(&self) -> Vec<NotificationRow> {
        let filter = NotificationFilter { limit: 100, ..NotificationFilter::default() };
        let mut rows = self.archive.notifications(&filter).unwrap();
        rows.reverse();
        rows
    }

    pub(super) fn due(&self, now: i64) -> Vec<u64> {
        self.archive.due_notifications(Timestamp(now)).unwrap().iter().map(|row| row.id.0).collect()
    }
}

pub(super) fn receiver(at: i64, except: Vec<NotificationId>) -> WorkingReceiver {
    WorkingReceiver { kind: TargetKind::Slack, target: TargetKey("t1".to_owned()), at: Timestamp(at), except }
}

#[test]
fn further_failures_are_counted_behind_the_first_message_while_a_target_is_away() {
    let mut stage = Stage::new();
    stage.end(State::Failed, 10_000);
    assert_eq!(stage.due(10_000), [1]);
    let first = stage.all().remove(0);
    stage.fail(&first, 10_000);
    for at in [10_100, 10_200, 30_000] {
        stage.end(State::Failed, at);
    }
    let rows = stage.all();
    let counts: Vec<_> = rows.iter().map(|row| (row.count, row.opens_at.0, row.tries)).collect();
    assert_eq!(counts, [(1, 10_000, 1), (3, 11_000, 0)]);
    assert_eq!(stage.due(40_000), [0; 0], "the second waits for the first");
    assert_eq!(stage.due(610_000), [1]);
    stage.deliver(first.id);
    assert_eq!(stage.due(610_000), [2]);
}

#[test]
fn a_message_is_given_up_a_day_after_its_own_first_try() {
    let mut stage = Stage::new();
    stage.end(State::Failed, 10_000);
    let row = stage.all().remove(0);
    stage.fail(&row, 10_000 + 3 * DAY);
    stage.fail(&row, 20_000 + 3 * DAY);
    assert_eq!(stage.all()[0].give_up_at, Some(Timestamp(10_000 + 4 * DAY)));
}

#[test]
fn a_clock_that_was_ahead_silences_no_target() {
    let mut stage = Stage::new();
    stage.end(State::Failed, 10_000 + 400 * DAY);
    assert_eq!(stage.due(20_000), [1], "a due time beyond the longest period is no due time");
    let row = stage.all().remove(0);
    stage.deliver(row.id);
    stage.end(State::Failed, 20_000);
    assert_eq!(stage.all()[1].opens_at, Timestamp(20_000 + PERIOD));
}

#[test]
fn a_success_after_a_failure_is_a_recovery_and_a_cancel_is_nothing() {
    let mut stage = Stage::new();
    for (state, at) in [
        (State::Succeeded, 1_000),
        (State::Failed, 2_000),
        (State::Cancelled, 3_000),
        (State::Succeeded, 4_000),
        (State::Succeeded, 5_000),
    ] {
        stage.end(state, at);
    }
    let occasions: Vec<_> = stage.all().iter().map(|row| (row.occasion, row.last_at.0)).collect();
    assert_eq!(occasions, [(Occasion::Failed, 2_000), (Occasion::Recovered, 4_000)]);
}

#[test]
fn a_recovery_is_told_after_the_failures_before_it() {
    let mut stage = Stage::new();
    stage.end(State::Failed, 10_000);
    stage.deliver(stage.all()[0].id);
    stage.end(State::Failed, 10_100);
    assert_eq!(stage.due(10_100), [0; 0], "it is held back for the period");
    stage.end(State::Succeeded, 10_200);
    assert_eq!(stage.due(10_200), [2], "the failure first, and at once");
    let failure = stage.all().remove(1);
    stage.fail(&failure, 10_200);
    assert_eq!(stage.due(10_300), [0; 0], "the recovery waits while the failure is sent again");
    stage.deliver(failure.id);
    assert_eq!(stage.due(10_300), [3]);
}

#[test]
fn a_success_ends_what_was_told_of_an_expectation() {
    let mut stage = Stage::new();
    stage.end(State::Succeeded, 1_000);
    let told = |stage: &Stage| stage.all().iter().map(|row| row.occasion).collect::<Vec<_>>();
    assert_eq!(told(&stage), [], "nothing has gone wrong");
    stage.expect(Some(2_000), None, 2_000);
    assert_eq!(stage.due(2_000), [1]);
    let stale = stage.all().remove(0);
    stage.fail(&stale, 2_000);
    stage.expect(None, None, 3_000);
    stage.end(State::Succeeded, 3_000);
    assert_eq!(told(&stage), [Occasion::Stale, Occasion::Recovered]);
    assert_eq!(stage.due(3_000), [0; 0], "the recovery waits for the message before it");
    stage.deliver(stale.id);
    assert_eq!(stage.due(3_000), [2]);
    stage.deliver(stage.all()[1].id);

    stage.expect(None, Some(SlowRun { job: protocol::JobId(9), since: Timestamp(10_000) }), 10_000);
    stage.end(State::Succeeded, 11_000);
    let all = [Occasion::Stale, Occasion::Recovered, Occasion::Late, Occasion::Recovered];
    assert_eq!(told(&stage), all[..3], "it is still slow");
    stage.expect(None, None, 12_000);
    stage.end(State::Succeeded, 12_000);
    stage.end(State::Succeeded, 13_000);
    assert_eq!(told(&stage), all, "the next success is none");
}

#[test]
fn each_slow_run_is_told_and_none_of_them_is_a_recovery() {
    let mut stage = Stage::new();
    for (night, job) in [(1, 1), (2, 2)] {
        let slow = SlowRun { job: protocol::JobId(job), since: Timestamp(DAY) };
        stage.expect(None, Some(slow), night * DAY);
        stage.end(State::Succeeded, night * DAY + 1);
        let last = stage.all().pop().expect("a message");
        stage.deliver(last.id);
    }
    let told: Vec<_> = stage.all().iter().map(|row| (row.occasion, row.job)).collect();
    let late = |job| (Occasion::Late, Some(protocol::JobId(job)));
    assert_eq!(told, [late(1), late(2)]);
}

#[test]
fn release_of_an_unreachable_attempt_tells_nobody_of_a_quarantine() {
    let quarantined = |job| harness::waiting(harness::closed(job, job, Outcome::Lost), State::Quarantined);
    let mut stage = Stage::new();
    stage.commit(vec![added(1), harness::assigned(1, 1)], 6_000);
    stage.commit(vec![quarantined(1), Change::QuarantineReleased { job: JobId(1) }], 7_000);
    assert_eq!(stage.all(), []);
    stage.commit(vec![added(2), harness::assigned(2, 2)], 8_000);
    stage.commit(vec![quarantined(2)], 9_000);
    assert_eq!(stage.all().len(), 1);
}

#[test]
fn a_recovery_that_is_counted_is_told_after_the_failures_before_it() {
    let mut stage = Stage::new();
    stage.end(State::Failed, 10_000);
    stage.deliver(stage.all()[0].id);
    for (state, at) in [(State::Succeeded, 10_100), (State::Failed, 10_200), (State::Succeeded, 10_300)] {
        stage.end(state, at);
    }
    let rows: Vec<_> = stage.all().iter().map(|row| (row.occasion, row.count)).collect();
    assert_eq!(rows, [(Occasion::Failed, 1), (Occasion::Recovered, 2), (Occasion::Failed, 1)]);
    let (recovery, failure) = (stage.all()[1].id, stage.all()[2].id);
    assert_eq!(stage.due(10_300), [failure.0]);
    stage.deliver(failure);
    assert_eq!(stage.due(10_300), [recovery.0]);
}

#[test]
fn messages_have_ids_that_no_other_message_ever_has() {
    let ids = || {
        let mut stage = Stage::new();
        stage.end(State::Failed, 1_000);
        stage.all().remove(0).message
    };
    let (one, other) = (ids(), ids());
    assert!(one.len() == 32 && one != other, "{one} {other}");
}

#[test]
fn a_target_fails_until_its_last_try_is_taken() {
    let mut stage = Stage::new();
    let failing = |stage: &Stage| {
        let rows = stage.archive.failing_targets().unwrap();
        rows.into_iter().map(|row| (row.id.0, row.error.unwrap())).collect::<Vec<_>>()
    };
    stage.end(State::Failed, 10_000);
    let first = stage.all().remove(0);
    let (at, due_at, give_up_at) = (Timestamp(10_000), Timestamp(20_000), Timestamp(10_000 + DAY));
    stage.change(NotificationChange::Try { id: first.id, at, due_at, give_up_at });
    assert_eq!(failing(&stage), [], "the first try has no result yet");
    stage.change(NotificationChange::TryFailed(first.id, "no".to_owned(), due_at));
    assert_eq!(failing(&stage), [(1, "no".to_owned())]);
    stage.change(NotificationChange::GivenUp(first.id, "never".to_owned()));
    assert_eq!(failing(&stage), [(1, "never".to_owned())], "a message that was given up failed as well");
    stage.end(State::Failed, 30_000);
    let second = stage.all().remove(1);
    let (at, due_at) = (Timestamp(30_000), Timestamp(40_000));
    stage.change(NotificationChange::Try { id: second.id, at, due_at, give_up_at });
    assert_eq!(failing(&stage), [(1, "never".to_owned())], "a try under way changes nothing");
    stage.deliver(second.id);
    assert_eq!(failing(&stage), []);
}

#[test]
fn messages_that_wait_for_long_do_not_keep_ended_ones() {
    let mut stage = Stage::new();
    // Two that wait, and after them as many ended ones as are kept.
    stage
        .store
        .connection
        .execute_batch(
            "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 10002)
             INSERT INTO notifications (message, definition, target, kind, host, occasion, count, first_at, last_at,
                 state, opens_at, due_at, tries)
             SELECT 'm' || n, 'other' || n, 't', 'slack', 'h', 'failed', 1, 0, 0,
                 iif(n <= 2, 'waiting', 'delivered'), 0, 0, 1 FROM numbers",
        )
        .unwrap();
    let oldest = |stage: &Stage| {
        let filter = NotificationFilter { before: Some(6), limit: 10, ..NotificationFilter::default() };
        let rows = stage.archive.notifications(&filter).unwrap();
        rows.iter().rev().map(|row| row.id.0).collect::<Vec<_>>()
    };
    assert_eq!(oldest(&stage), [1, 2, 3, 4, 5]);
    for (at, left) in [(10_000, &[1, 2, 4, 5][..]), (20_000, &[1, 2, 5])] {
        let row = stage.all().pop().unwrap();
        stage.deliver(row.id);
        stage.end(State::Failed, at);
        assert_eq!(oldest(&stage), left);
    }
}
