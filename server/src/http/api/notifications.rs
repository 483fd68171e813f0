//! `/api/notifications`: lists notifications, and tries targets.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use protocol::JobId;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::auth::actor::Actor;
use crate::auth::audit::note;
use crate::excerpt::excerpt;
use crate::http::middleware::code::Code;
use crate::http::middleware::problem::Problem;
use crate::http::present::notification::{notification, target};
use crate::http::present::shapes;
use crate::http::request::body;
use crate::http::request::paging::{limit, next_page};
use crate::http::request::query::Query;
use crate::http::request::{cursor, definition};
use crate::http::state::AppState;
use crate::store::{NotificationFilter, NotificationState};

/// The body of `POST /api/notifications/test`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TestRequest {
    /// The name of the definition whose targets get a message.
    definition: String,
}

/// `GET /api/notifications`
pub(crate) async fn list(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    let Page { entries, next } = page(&state, Query::of(&uri)?).await?;
    let link = next.map(|cursor| next_page(&state, "notifications", &uri, &cursor));
    let mut response = Json(entries).into_response();
    if let Some(link) = link.and_then(|link| HeaderValue::try_from(link).ok()) {
        response.headers_mut().insert(header::LINK, link);
    }
    Ok(response)
}

/// A page of notifications, newest first.
pub(crate) struct Page {
    pub(crate) entries: Vec<shapes::Notification>,
    /// The `cursor` of the next page, if there is one.
    pub(crate) next: Option<String>,
}

/// Reads the page that a query asks for. With `failing=1` it is the last try of each target that did not take it.
///
/// # Errors
/// `invalid_query`, `invalid_cursor`, `invalid_limit`, `invalid_state`, and those of a read.
pub(crate) async fn page(state: &AppState, mut query: Query) -> Result<Page, Problem> {
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
    Ok(Page { entries: rows.into_iter().map(notification).collect(), next })
}

/// The last try of each target that did not take its message, newest first. Targets that jobs.yaml has no more are left out.
///
/// # Errors
/// Those of a read.
pub(crate) async fn failing(state: &AppState) -> Result<Vec<shapes::Notification>, Problem> {
    let delivery = Arc::clone(&state.services.notifications);
    let rows = state.block(move || Ok(delivery.failing()?)).await?;
    Ok(rows.into_iter().map(notification).collect())
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
    let result = |tested: crate::notifications::delivery::TestResult| shapes::TargetTest {
        target: target(&tested.target),
        error: tested.error.map(|error| error.to_string()),
    };
    Ok(Json(results.into_iter().map(result).collect()))
}

fn read_state(text: &str) -> Result<NotificationState, Problem> {
    NotificationState::find(text).ok_or_else(|| {
        let all = NotificationState::ALL.map(NotificationState::name).join(", ");
        Problem::new(Code::InvalidState, format!("there is no state \"{}\"", excerpt(text)))
            .field("?state")
            .hint(format!("the states are {all}"))
    })
}

/// Default page size.
const LIMIT: usize = 100;
