//! `/api/notifications`: lists notifications, sends them now, and tries targets.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::Uri;
use axum::response::Response;
use protocol::JobId;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::auth::actor::Actor;
use crate::auth::audit::note;
use crate::excerpt::excerpt;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::detached::run_detached;
use crate::http::middleware::problem::Problem;
use crate::http::present::notification::{notification, target};
use crate::http::present::shapes;
use crate::http::request::body;
use crate::http::request::paging::{Page, limit};
use crate::http::request::path::Id;
use crate::http::request::query::Query;
use crate::http::request::{cursor, definition};
use crate::http::state::AppState;
use crate::notifications::delivery::{MadeDue, TestResult};
use crate::notifications::requests::SendRefusal;
use crate::store::{NotificationFilter, NotificationId, NotificationState};

/// The body of `POST /api/notifications/test`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TestRequest {
    /// The name of the definition whose targets get a message.
    definition: String,
}

/// `GET /api/notifications`
pub(crate) async fn list(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    Ok(page(&state, Query::of(&uri)?).await?.into_answer(&state, "notifications", &uri))
}

/// Reads the page that a query asks for. With `failing=1` it is the last try of each target that did not take it.
///
/// # Errors
/// `invalid_query`, `invalid_cursor`, `invalid_limit`, `invalid_state`, and those of a read.
pub(crate) async fn page(state: &AppState, mut query: Query) -> Result<Page<shapes::Notification>, Problem> {
    if query.switch("failing")? {
        query.finish()?;
        return Ok(Page { entries: failing(state).await?, next: None });
    }
    let before = query.text("cursor")?.as_deref().map(cursor::read).transpose()?;
    let limit = query.text("limit")?.as_deref().map_or(Ok(LIMIT), limit)?;
    let filter = NotificationFilter {
        definition: query.text("name")?,
        state: query.text("state")?.as_deref().map(read_state).transpose()?,
        before: before.map(|JobId(id)| id),
        // One extra row shows whether there is a next page.
        limit: limit + 1,
    };
    query.finish()?;
    let archive = Arc::clone(&state.services.notifications.archive);
    let mut rows = state.block(move || Ok(archive.notifications(&filter)?)).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| cursor::write(JobId(row.id.0)));
    let delivery = &state.services.notifications;
    Ok(Page { entries: rows.into_iter().map(|row| notification(row, delivery)).collect(), next })
}

/// The last try of each target that did not take its message, newest first. Targets that jobs.yaml has no more are left out.
///
/// # Errors
/// Those of a read.
pub(crate) async fn failing(state: &AppState) -> Result<Vec<shapes::Notification>, Problem> {
    let delivery = Arc::clone(&state.services.notifications);
    let rows = state.block(move || Ok(delivery.failing()?)).await?;
    let delivery = &state.services.notifications;
    Ok(rows.into_iter().map(|row| notification(row, delivery)).collect())
}

/// `POST /api/notifications/{id}/send`: waits for the try, and answers with the message as it is then.
pub(crate) async fn send(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
    request: Request,
) -> Result<Json<shapes::Notification>, Problem> {
    state.check_not_draining()?;
    body::none(request.into_body()).await?;
    let id = NotificationId(id);
    note::object(format!("notification {}", id.0));
    let delivery = Arc::clone(&state.services.notifications);
    let found = state.block(move || Ok(delivery.find(id)?)).await?;
    let row = found.ok_or(SendRefusal::Unknown(id))?;
    let (definition, kind, host) = (&row.definition, row.kind.name(), &row.host);
    note::object(format!("notification {} (definition {definition}, {kind} {host})", id.0));
    Actor::current().check_scope(definition)?;
    let row = state.services.notifications.send_now(row).await?;
    note::detail(row.error.clone().unwrap_or_else(|| row.state.name().to_owned()));
    Ok(Json(notification(row, &state.services.notifications)))
}

/// `POST /api/notifications/send`: messages that wait or were given up are due now.
pub(crate) async fn send_all(
    State(state): State<Arc<AppState>>,
    request: Request,
) -> Result<Json<shapes::SentNotifications>, Problem> {
    state.check_not_draining()?;
    let mut query = Query::of(request.uri())?;
    let name = query.text("name")?;
    let chosen = query.text("state")?.as_deref().map(read_unsent_state).transpose()?;
    query.finish()?;
    body::none(request.into_body()).await?;
    note::object(match &name {
        Some(name) => format!("notifications about {name}"),
        None => "notifications".to_owned(),
    });
    let archive = Arc::clone(&state.services.notifications.archive);
    let mut groups = state.block(move || Ok(archive.unsent_notifications()?)).await?;
    groups.retain(|group| name.as_deref().is_none_or(|name| *group.definition == *name));
    groups.retain(|group| chosen.is_none_or(|chosen| group.state == chosen));
    let actor = Actor::current();
    let (groups, others): (Vec<_>, Vec<_>) =
        groups.into_iter().partition(|group| actor.scope.includes(&group.definition));
    let delivery = Arc::clone(&state.services.notifications);
    let made_due = run_detached(async move { Ok(delivery.make_due(groups).await?) }).await?;
    let MadeDue { waiting, failed, without_target } = made_due;
    note::detail(format!("{waiting} waiting, {failed} failed"));
    let out_of_scope = others.iter().map(|group| group.count).sum();
    Ok(Json(shapes::SentNotifications { waiting, failed, without_target, out_of_scope }))
}

/// `POST /api/notifications/test`
pub(crate) async fn test(
    State(state): State<Arc<AppState>>,
    request: Request,
) -> Result<Json<Vec<shapes::TargetTest>>, Problem> {
    let (parts, body) = request.into_parts();
    let TestRequest { definition } = body::json(&parts.headers, body).await?;
    note::object(format!("definition {definition}"));
    Actor::current().check_scope(&definition)?;
    let definitions = state.services.catalogue.current();
    let entry = definition::find(&definitions, &definition)?;
    let results = state.services.notifications.test(entry).await;
    let result = |tested: TestResult| shapes::TargetTest {
        target: target(&tested.target),
        error: tested.error.map(|error| error.to_string()),
    };
    Ok(Json(results.into_iter().map(result).collect()))
}

fn read_unsent_state(text: &str) -> Result<NotificationState, Problem> {
    match read_state(text)? {
        NotificationState::Delivered => {
            let detail = "a delivered notification is not sent again";
            Err(Problem::new(ProblemCode::InvalidState, detail).field("?state").hint("use waiting or failed"))
        }
        unsent => Ok(unsent),
    }
}

impl From<SendRefusal> for Problem {
    fn from(refusal: SendRefusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            SendRefusal::Unknown(_) => {
                Self::new(ProblemCode::UnknownNotification, detail).hint("GET /api/notifications lists them")
            }
            SendRefusal::Delivered(_) => Self::new(ProblemCode::AlreadyDelivered, detail)
                .hint("POST /api/notifications/test tries the targets of a definition"),
            SendRefusal::NoTarget(_) => Self::new(ProblemCode::TargetRemoved, detail)
                .hint("its URL or address was changed in jobs.yaml, or it was removed"),
            SendRefusal::TooMany => Self::new(ProblemCode::Busy, detail).retry_after(5),
            SendRefusal::Leaving => Self::new(ProblemCode::Draining, detail)
                .hint("try again in some seconds, when the server runs again")
                .retry_after(5),
            SendRefusal::Unreadable(error) => Self::unreadable(error),
            SendRefusal::NotRecorded => Self::new(ProblemCode::StoreUnavailable, detail).retry_after(10),
        }
    }
}

fn read_state(text: &str) -> Result<NotificationState, Problem> {
    NotificationState::find(text).ok_or_else(|| {
        let all = NotificationState::ALL.map(NotificationState::name).join(", ");
        Problem::new(ProblemCode::InvalidState, format!("there is no state \"{}\"", excerpt(text)))
            .field("?state")
            .hint(format!("the states are {all}"))
    })
}

/// Default page size.
const LIMIT: usize = 100;
