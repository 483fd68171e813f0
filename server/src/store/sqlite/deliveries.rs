//! Notifications as their delivery changes them: tried, taken, given up, sent now.

use protocol::Timestamp;
use rusqlite::{Connection, params};

use crate::notifications::target_key::TargetKind;
use crate::store::{NotificationChange, NotificationState, UnsentGroup, WorkingReceiver};

/// Applies a change of the delivery within a transaction.
pub(super) fn change(connection: &Connection, change: &NotificationChange) -> rusqlite::Result<()> {
    match change {
        NotificationChange::Try { id, at, due_at, give_up_at } => connection
            .prepare_cached(
                "UPDATE notifications SET tries = tries + 1, tried_at = ?2, due_at = ?3,
                     give_up_at = coalesce(give_up_at, ?4)
                 WHERE id = ?1 AND state = 'waiting'",
            )?
            .execute((id.0.cast_signed(), at.0, due_at.0, give_up_at.0)),
        NotificationChange::RequestedTry { id, at, due_at, give_up_at } => connection
            .prepare_cached(
                "UPDATE notifications SET state = 'waiting', tries = tries + 1, tried_at = ?2, due_at = ?3, give_up_at = ?4
                 WHERE id = ?1 AND state <> 'delivered'",
            )?
            .execute((id.0.cast_signed(), at.0, due_at.0, give_up_at.0)),
        NotificationChange::Delivered(id, receiver) => {
            connection
                .prepare_cached("UPDATE notifications SET state = 'delivered', error = NULL WHERE id = ?1")?
                .execute([id.0.cast_signed()])?;
            return retry_at_once(connection, receiver);
        }
        NotificationChange::ReceiverWorks(receiver) => return retry_at_once(connection, receiver),
        NotificationChange::TryFailed(id, error, due_at) => connection
            .prepare_cached("UPDATE notifications SET error = ?2, due_at = ?3 WHERE id = ?1")?
            .execute((id.0.cast_signed(), error, due_at.0)),
        NotificationChange::GivenUp(id, error) => connection
            .prepare_cached("UPDATE notifications SET state = 'failed', error = ?2 WHERE id = ?1")?
            .execute((id.0.cast_signed(), error)),
        NotificationChange::MakeDue(groups, at) => {
            return groups.iter().try_for_each(|group| make_due(connection, group, *at));
        }
    }
    .map(drop)
}

/// Makes the messages due that failed before. Those that were not sent yet wait for the end of their period.
fn retry_at_once(connection: &Connection, receiver: &WorkingReceiver) -> rusqlite::Result<()> {
    let WorkingReceiver { kind, target, at, except } = receiver;
    let ids: Vec<String> = except.iter().map(|id| id.0.to_string()).collect();
    let except = format!("[{}]", ids.join(","));
    let is_of_receiver = match kind {
        TargetKind::Email => "kind = ?1",
        TargetKind::Webhook | TargetKind::Slack => "target = ?1",
    };
    let key = if *kind == TargetKind::Email { kind.name() } else { target.0.as_str() };
    connection
        .prepare_cached(&format!(
            "UPDATE notifications SET due_at = ?2
             WHERE {is_of_receiver} AND state = 'waiting' AND tries > 0 AND due_at > ?2
                 AND id NOT IN (SELECT value FROM json_each(?3))"
        ))?
        .execute(params![key, at.0, except])
        .map(drop)
}

/// Makes the messages of a group due. One that was given up untried counts as tried, or it would be a second open message.
fn make_due(connection: &Connection, group: &UnsentGroup, at: Timestamp) -> rusqlite::Result<()> {
    let UnsentGroup { definition, target, state, .. } = group;
    let change = match state {
        NotificationState::Waiting => "due_at = min(due_at, ?3)",
        NotificationState::Failed => "state = 'waiting', due_at = ?3, tries = max(tries, 1)",
        NotificationState::Delivered => return Ok(()),
    };
    connection
        .prepare_cached(&format!(
            "UPDATE notifications SET {change}, give_up_at = NULL
             WHERE definition = ?1 AND target = ?2 AND state = ?4"
        ))?
        .execute(params![definition, target.0, at.0, state.name()])
        .map(drop)
}
