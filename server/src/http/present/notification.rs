//! Fills the JSON of notifications and of their targets.

use crate::http::present::shapes::{self, Time};
use crate::notifications::delivery::Delivery;
use crate::notifications::target::Target;
use crate::store::{NotificationRow, NotificationState};

/// The JSON of a target: its URL and secrets are not shown.
pub(crate) fn target(target: &Target) -> shapes::NotifyTarget {
    shapes::NotifyTarget {
        kind: target.kind().name().into(),
        host: target.host(),
        on: target.on.iter().map(|occasion| occasion.name().into()).collect(),
        period_ms: shapes::millis(target.period),
        signed: target.is_signed(),
        output_lines: target.output_lines,
    }
}

/// The JSON of a notification.
pub(crate) fn notification(row: NotificationRow, delivery: &Delivery) -> shapes::Notification {
    let is_waiting = row.state == NotificationState::Waiting;
    let due_at = is_waiting.then(|| Time(delivery.next_try(&row)));
    shapes::Notification {
        id: row.id.0,
        definition: row.definition.to_string(),
        kind: row.kind.name().into(),
        host: row.host,
        occasion: row.occasion.name().into(),
        count: row.count,
        first_at: Time(row.first_at),
        last_at: Time(row.last_at),
        job: row.job.map(|job| job.0),
        batch: row.batch.map(|first| first.0),
        state: row.state.name().into(),
        tries: row.tries,
        tried_at: row.tried_at.map(Time),
        due_at,
        error: row.error,
    }
}
