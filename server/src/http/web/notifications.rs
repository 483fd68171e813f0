//! `/notifications`: targets that fail, the messages to all targets, and the forms that send them now and try targets.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::{Request, State};
use axum::http::Uri;
use axum::response::Response;
use protocol::Timestamp;
use serde_json::json;

use super::actions::{field, request_for, split};
use super::format::{self, Moment};
use super::list_address::ListAddress;
use super::page::{Frame, render};
use crate::clock;
use crate::http::api::notifications;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{Notification, SentNotifications, TargetTest, Time};
use crate::http::request::path::Id;
use crate::http::request::query::encode;
use crate::http::state::AppState;
use crate::store::NotificationState;

/// A message as a row.
struct Row {
    message: Notification,
    tone: &'static str,
    last: Moment,
    tried: Option<Moment>,
    due: Option<Moment>,
    /// True if its time has come, but others to the same target go first.
    is_behind: bool,
    /// True if the sender may send a test to the targets of its definition.
    may_test: bool,
    /// True if it waits or was given up, and the sender may send it now.
    may_send: bool,
}

impl Row {
    fn of(frame: &Frame, message: Notification) -> Self {
        Self {
            tone: tone(&message),
            last: format::moment(message.last_at),
            tried: message.tried_at.map(format::moment),
            due: message.due_at.map(format::moment),
            is_behind: is_behind(message.due_at, clock::now().utc),
            may_test: may_test(frame, &message.definition),
            may_send: message.state != "delivered" && may_test(frame, &message.definition),
            message,
        }
    }
}

fn is_behind(due_at: Option<Time>, now: Timestamp) -> bool {
    due_at.is_some_and(|due| now.since(due.0) > TRY_WITHIN)
}

/// A message that is due is tried within this time, unless earlier ones to its target have failed.
const TRY_WITHIN: Duration = Duration::from_secs(5);

fn tone(message: &Notification) -> &'static str {
    match (&*message.state, &message.error) {
        ("delivered", _) => "good",
        ("failed", _) => "bad",
        (_, Some(_)) => "warn",
        (_, None) => "plain",
    }
}

fn may_test(frame: &Frame, definition: &str) -> bool {
    frame.may_operate() && frame.may_run(definition)
}

#[derive(Template)]
#[template(path = "notifications.html")]
struct NotificationsPage {
    frame: Frame,
    name: String,
    state: String,
    states: [&'static str; 3],
    /// The last try of each target that fails.
    failing: Vec<Row>,
    rows: Vec<Row>,
    /// The query of the next page.
    older: Option<String>,
    /// Definitions with targets that the sender may try, the first of them.
    testable: Vec<String>,
    /// True if a definition has a target.
    has_targets: bool,
    /// True if this page shows messages that the sender may send.
    has_unsent: bool,
    /// The state of the messages that a button sends all at once; absent if this page shows none that the sender may send.
    send_all: Option<&'static str>,
}

/// `GET /notifications`
pub(crate) async fn show(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    let address = ListAddress::of(&uri)?;
    let page = notifications::page(&state, address.query()).await?;
    let failing = notifications::failing(&state).await?;
    let frame = Frame::new(&state, "notifications", "Notifications");
    let definitions = state.services.catalogue.current();
    let with_targets = || definitions.iter().filter(|entry| !entry.notify.is_empty());
    let names = with_targets().map(|entry| &entry.definition.name).filter(|name| may_test(&frame, name));
    let rows: Vec<Row> = page.entries.into_iter().map(|message| Row::of(&frame, message)).collect();
    let state = address.value("state");
    let to_send = if state == "failed" { "failed" } else { "waiting" };
    let has_some = rows.iter().any(|row| row.may_send && row.message.state == to_send);
    render(&NotificationsPage {
        name: address.value("name"),
        state,
        has_unsent: rows.iter().any(|row| row.may_send),
        send_all: has_some.then_some(to_send),
        states: NotificationState::ALL.map(NotificationState::name),
        failing: failing.into_iter().map(|message| Row::of(&frame, message)).collect(),
        rows,
        older: address.next_page(page.next.as_deref()),
        testable: names.take(TESTABLE_MAX).cloned().collect(),
        has_targets: with_targets().next().is_some(),
        frame,
    })
}

#[derive(Template)]
#[template(path = "notification_test.html")]
struct TestPage {
    frame: Frame,
    definition: String,
    results: Vec<TargetTest>,
}

/// `POST /notifications/test`: sends a test to each target of the definition, and shows which of them took it.
pub(crate) async fn test(State(state): State<Arc<AppState>>, request: Request) -> Result<Response, Problem> {
    let (shell, fields) = split(request).await?;
    let definition = field(&fields, "definition").trim().to_owned();
    let asked = request_for(&shell, "", Some(&json!({ "definition": definition })));
    let results = notifications::test(State(Arc::clone(&state)), asked).await?.0;
    let frame = Frame::new(&state, "notifications", format!("Test of the targets of {definition}"));
    render(&TestPage { frame, definition, results })
}

#[derive(Template)]
#[template(path = "notification_sent.html")]
struct SentPage {
    frame: Frame,
    row: Row,
}

/// `POST /notifications/{id}/send`: sends a message now, and shows whether its target took it.
pub(crate) async fn send(
    State(state): State<Arc<AppState>>,
    id: Id,
    request: Request,
) -> Result<Response, Problem> {
    let (shell, _) = split(request).await?;
    let asked = request_for(&shell, "", None);
    let sent = notifications::send(State(Arc::clone(&state)), id, asked).await?.0;
    let frame = Frame::new(&state, "notifications", format!("Message {} about {}", sent.id, sent.definition));
    let row = Row::of(&frame, sent);
    render(&SentPage { frame, row })
}

#[derive(Template)]
#[template(path = "notifications_sent.html")]
struct AllSentPage {
    frame: Frame,
    sent: SentNotifications,
}

/// `POST /notifications/send`: sends all messages of a state, of one definition with the field `name`.
pub(crate) async fn send_all(
    State(state): State<Arc<AppState>>,
    request: Request,
) -> Result<Response, Problem> {
    let (shell, fields) = split(request).await?;
    let filters = ["name", "state"].map(|name| (name, field(&fields, name)));
    let query = encode(filters.into_iter().filter(|(_, value)| !value.is_empty()));
    let asked = request_for(&shell, &query, None);
    let sent = notifications::send_all(State(Arc::clone(&state)), asked).await?.0;
    let frame = Frame::new(&state, "notifications", "Messages are sent");
    render(&AllSentPage { frame, sent })
}

/// Names that the field of a test suggests. Others can be typed.
const TESTABLE_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_whose_time_has_long_come_waits_behind_others() {
        let is_behind =
            |due_at: Option<i64>| is_behind(due_at.map(|at| Time(Timestamp(at))), Timestamp(600_000));
        assert!(is_behind(Some(300_000)));
        assert!(!is_behind(Some(599_000)) && !is_behind(Some(900_000)) && !is_behind(None));
    }
}
