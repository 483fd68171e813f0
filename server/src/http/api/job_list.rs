//! Lists of jobs, newest first: pages that a query asks for, and slices that fit a filter.

use protocol::JobId;

use crate::http::middleware::problem::Problem;
use crate::http::present::shapes;
use crate::http::request::cursor;
use crate::http::request::job_filter;
use crate::http::request::paging::limit;
use crate::http::request::query::Query;
use crate::http::state::AppState;
use crate::store::JobFilter;

/// A page of jobs, newest first.
pub(crate) struct Page {
    pub(crate) jobs: Vec<shapes::Job>,
    /// The `cursor` of the next page, if there is one.
    pub(crate) next: Option<String>,
}

/// Reads the page of jobs that a query asks for.
///
/// # Errors
/// Those of [`job_filter::read`], `invalid_limit`, and those of a read.
pub(crate) async fn page(state: &AppState, mut query: Query) -> Result<Page, Problem> {
    let filter = job_filter::read(state, &mut query).await?;
    let limit = query.text("limit")?.as_deref().map_or(Ok(LIMIT), limit)?;
    query.finish()?;
    let Slice { jobs, last } = slice(state, filter, limit).await?;
    Ok(Page { jobs, next: last.map(cursor::write) })
}

/// Jobs that follow each other in a list.
pub(crate) struct Slice {
    pub(crate) jobs: Vec<shapes::Job>,
    /// The last of them, if there are more behind it.
    pub(crate) last: Option<JobId>,
}

/// Reads the first jobs that fit a filter, at most `limit`.
///
/// # Errors
/// Those of a read.
pub(crate) async fn slice(state: &AppState, mut filter: JobFilter, limit: usize) -> Result<Slice, Problem> {
    // One extra row shows whether there are more.
    filter.limit = limit + 1;
    let mut rows = state.read(move |archive| archive.jobs(&filter)).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let last = rows.last().filter(|_| more).map(|row| row.job);
    let presenter = state.presenter();
    Ok(Slice { jobs: rows.into_iter().map(|row| presenter.job(row)).collect(), last })
}

/// Default page size.
const LIMIT: usize = 100;
