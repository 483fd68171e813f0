//! The pages of lists: their size, their answers, and the link to the next one.

use axum::Json;
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::excerpt::excerpt;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::state::AppState;
use crate::store::JOBS_MAX;

/// A page of a list, newest first.
pub(crate) struct Page<E> {
    pub(crate) entries: Vec<E>,
    /// The `cursor` of the next page, if there is one.
    pub(crate) next: Option<String>,
}

impl<E: Serialize> Page<E> {
    /// The answer with this page of a list, whose path below `/api` is `list`.
    pub(crate) fn into_answer(self, state: &AppState, list: &str, uri: &Uri) -> Response {
        let link = self.next.map(|cursor| next_page(state, list, uri, &cursor));
        let mut response = Json(self.entries).into_response();
        if let Some(link) = link.and_then(|link| HeaderValue::try_from(link).ok()) {
            response.headers_mut().insert(header::LINK, link);
        }
        response
    }
}

/// Reads `limit`, the size of a page.
///
/// # Errors
/// `invalid_limit`.
pub(crate) fn limit(text: &str) -> Result<usize, Problem> {
    text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit)).ok_or_else(|| {
        Problem::new(
            ProblemCode::InvalidLimit,
            format!("\"{}\" is not within 1 to {LIMIT_MAX}", excerpt(text)),
        )
        .field("?limit")
    })
}

/// The `Link` value of the next page of a list: the same query after the last entry shown.
fn next_page(state: &AppState, list: &str, uri: &Uri, cursor: &str) -> String {
    let mut query: Vec<String> = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty() && !pair.starts_with("cursor="))
        .map(|pair| pair.replace('<', "%3C").replace('>', "%3E").replace('"', "%22"))
        .collect();
    query.push(format!("cursor={cursor}"));
    format!("<{}/api/{list}?{}>; rel=\"next\"", state.services.base_path, query.join("&"))
}

/// Largest page size.
pub(crate) const LIMIT_MAX: usize = JOBS_MAX - 1;
