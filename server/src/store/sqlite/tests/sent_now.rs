//! Notifications in the store that are sent before their next try: their receiver works again, or somebody asked for it.

use super::notifications::{DAY, Stage, receiver};
use super::*;
use crate::notifications::target_key::{TargetKey, TargetKind};
use crate::store::{
    NotificationArchive as _, NotificationChange, NotificationId, NotificationState, UnsentGroup,
    WorkingReceiver,
};

/// When messages that fail at 20,000 are sent again.
const LATER: i64 = 620_000;

/// A stage with a failure and a loss, whose messages both failed once.
fn two_that_failed() -> Stage {
    let mut stage = Stage::new();
    stage.end(State::Failed, 10_000);
    stage.end(State::Lost, 10_000);
    for row in stage.all() {
        stage.fail(&row, 20_000);
    }
    assert_eq!(stage.due(30_000), [0; 0]);
    stage
}

fn due_times(stage: &Stage) -> Vec<i64> {
    stage.all().iter().map(|row| row.due_at.0).collect()
}

#[test]
fn a_receiver_that_takes_a_message_gets_the_others_that_failed_at_once() {
    let mut stage = two_that_failed();
    // It is counted until its period is over.
    stage.end(State::Failed, 10_100);
    let (first, second) = (stage.all()[0].id, stage.all()[1].id);
    stage.change(NotificationChange::Delivered(first, receiver(30_000, Vec::new())));
    let all = stage.all();
    assert_eq!(all[0].state, NotificationState::Delivered);
    assert_eq!(due_times(&stage)[1], 30_000);
    assert_eq!((all[2].tries, all[2].due_at), (0, all[2].opens_at), "it was not sent yet");
    assert_eq!(stage.due(30_000), [3], "one at a time, and the news first");
    stage.deliver(all[2].id);
    assert_eq!(stage.due(30_000), [second.0]);
}

#[test]
fn a_test_that_was_taken_makes_due_what_failed_apart_from_what_the_receiver_refuses() {
    let mut stage = two_that_failed();
    let refused = stage.all()[0].id;
    stage.change(NotificationChange::ReceiverWorks(receiver(30_000, vec![refused])));
    assert_eq!(due_times(&stage), [LATER, 30_000]);
    let other = WorkingReceiver { target: TargetKey("t2".to_owned()), ..receiver(40_000, Vec::new()) };
    stage.change(NotificationChange::ReceiverWorks(other));
    assert_eq!(due_times(&stage), [LATER, 30_000], "another target is another receiver");
}

#[test]
fn a_mail_server_that_takes_a_mail_gets_those_to_all_mailboxes() {
    let mut stage = two_that_failed();
    stage.store.connection.execute_batch("UPDATE notifications SET kind = 'email' WHERE id = 2").unwrap();
    let mail_server = WorkingReceiver {
        kind: TargetKind::Email,
        target: TargetKey("another mailbox".to_owned()),
        ..receiver(30_000, Vec::new())
    };
    stage.change(NotificationChange::ReceiverWorks(mail_server));
    assert_eq!(due_times(&stage), [LATER, 30_000]);
}

#[test]
fn a_try_that_was_asked_for_gives_a_message_another_day() {
    let mut stage = two_that_failed();
    let [given_up, waiting] = [stage.all()[0].id, stage.all()[1].id];
    stage.change(NotificationChange::GivenUp(given_up, "no".to_owned()));
    let before: Vec<_> = stage.all().into_iter().map(|row| row.message).collect();
    for id in [given_up, waiting] {
        let (at, due_at, give_up_at) = (Timestamp(5 * DAY), Timestamp(5 * DAY + 10), Timestamp(6 * DAY));
        stage.change(NotificationChange::RequestedTry { id, at, due_at, give_up_at });
    }
    for row in stage.all() {
        assert_eq!((row.state, row.tries), (NotificationState::Waiting, 2));
        assert_eq!((row.tried_at, row.give_up_at), (Some(Timestamp(5 * DAY)), Some(Timestamp(6 * DAY))));
    }
    assert_eq!(stage.all().into_iter().map(|row| row.message).collect::<Vec<_>>(), before, "the same ids");
    stage.deliver(waiting);
    let (at, due_at, give_up_at) = (Timestamp(7 * DAY), Timestamp(7 * DAY), Timestamp(8 * DAY));
    stage.change(NotificationChange::RequestedTry { id: waiting, at, due_at, give_up_at });
    assert_eq!((stage.all()[1].state, stage.all()[1].tries), (NotificationState::Delivered, 2));
}

#[test]
fn all_messages_of_a_group_are_made_due_also_beside_one_that_counts() {
    let mut stage = two_that_failed();
    let id = stage.all()[0].id;
    stage.change(NotificationChange::Delivered(id, receiver(20_000, vec![stage.all()[1].id])));
    // Given up untried, because jobs.yaml had no such target for a while.
    stage.end(State::Failed, 40_000);
    let untried = stage.all()[2].id;
    stage.change(NotificationChange::GivenUp(untried, "no target".to_owned()));
    stage.end(State::Failed, 40_100);
    let groups = stage.archive.unsent_notifications().unwrap();
    let group = |state, count| UnsentGroup {
        definition: "resize".into(),
        target: TargetKey("t1".to_owned()),
        state,
        count,
    };
    let (waiting, failed) = (group(NotificationState::Waiting, 2), group(NotificationState::Failed, 1));
    let mut sorted = groups.clone();
    sorted.sort_by_key(|group| group.count);
    assert_eq!(sorted, [failed.clone(), waiting]);
    stage.change(NotificationChange::MakeDue(vec![failed], Timestamp(40_200)));
    let rows: Vec<_> = stage.all().iter().map(|row| (row.id.0, row.state, row.due_at.0)).collect();
    let waiting = |id, due_at| (id, NotificationState::Waiting, due_at);
    let delivered = (1, NotificationState::Delivered, LATER);
    assert_eq!(rows, [delivered, waiting(2, LATER), waiting(3, 40_200), waiting(4, 41_000)]);
    stage.change(NotificationChange::MakeDue(groups, Timestamp(40_300)));
    assert_eq!(due_times(&stage)[1..], [40_300, 40_200, 40_300]);
    assert_eq!(stage.due(40_300), [2], "one at a time");
    stage.deliver(NotificationId(2));
    assert_eq!(stage.due(40_300), [3], "the older one about the same first");
}
