//! The pages of lists: their size, and the link to the next one.

use axum::http::Uri;

use crate::excerpt::excerpt;
use crate::http::middleware::code::Code;
use crate::http::middleware::problem::Problem;
use crate::http::state::AppState;
use crate::store::JOBS_MAX;

/// Reads `limit`, the size of a page.
///
/// # Errors
/// `invalid_limit`.
pub(crate) fn limit(text: &str) -> Result<usize, Problem> {
    text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit)).ok_or_else(|| {
        Problem::new(Code::InvalidLimit, format!("\"{}\" is not within 1 to {LIMIT_MAX}", excerpt(text)))
            .field("?limit")
    })
}

/// The `Link` value of the next page of a list: the same query after the last entry shown.
pub(crate) fn next_page(state: &AppState, list: &str, uri: &Uri, cursor: &str) -> String {
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
