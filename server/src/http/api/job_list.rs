//! Lists of jobs, newest first: pages that a query asks for, and slices that fit a filter.

use protocol::JobId;

use crate::http::middleware::problem::Problem;
use crate::http::present::shapes;
use crate::http::request::cursor;
use crate::http::request::job_filter;
use crate::http::request::paging::{Page, limit};
use crate::http::request::query::Query;
use crate::http::state::AppState;
use crate::store::{Archive, JobFilter, JobRow, ReadError};

/// The part of jobs beside their rows that a list has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Results {
    /// No more than each list shows.
    LeftOut,
    /// Their parameters, results, and positions in their batches.
    Shown,
}

impl Results {
    /// Reads `results` of a query.
    ///
    /// # Errors
    /// `invalid_query`.
    pub(crate) fn of(query: &mut Query) -> Result<Self, Problem> {
        Ok(if query.switch("results")? { Self::Shown } else { Self::LeftOut })
    }
}

/// Reads the page of jobs that a query asks for, for the dashboard.
///
/// # Errors
/// Those of [`listed_page`].
pub(crate) async fn page(state: &AppState, query: Query) -> Result<Page<shapes::Job>, Problem> {
    let Page { entries, next } = read_page(state, query, Results::LeftOut).await?;
    Ok(Page { entries: entries.into_iter().map(|listed| listed.job).collect(), next })
}

/// Reads the page of jobs that a query asks for.
///
/// # Errors
/// Those of [`job_filter::read`], `invalid_query`, `invalid_limit`, and those of a read.
pub(crate) async fn listed_page(
    state: &AppState,
    mut query: Query,
) -> Result<Page<shapes::ListedJob>, Problem> {
    let results = Results::of(&mut query)?;
    read_page(state, query, results).await
}

async fn read_page(
    state: &AppState,
    mut query: Query,
    results: Results,
) -> Result<Page<shapes::ListedJob>, Problem> {
    let filter = job_filter::read(state, &mut query).await?;
    let limit = query.text("limit")?.as_deref().map_or(Ok(LIMIT), limit)?;
    query.finish()?;
    let Slice { jobs, last } = slice(state, filter, limit, results).await?;
    Ok(Page { entries: jobs, next: last.map(cursor::write) })
}

/// Jobs that follow each other in a list.
pub(crate) struct Slice {
    pub(crate) jobs: Vec<shapes::ListedJob>,
    /// The last of them, if there are more after it.
    pub(crate) last: Option<JobId>,
}

/// Reads the first jobs that fit a filter, at most `limit`. With results they are fewer if their results and parameters are long.
///
/// # Errors
/// Those of a read.
pub(crate) async fn slice(
    state: &AppState,
    filter: JobFilter,
    limit: usize,
    results: Results,
) -> Result<Slice, Problem> {
    match results {
        Results::LeftOut => {
            let (rows, last) = state.read(move |archive| rows(archive, filter, limit)).await?;
            let presenter = state.presenter();
            let listed = |row| shapes::ListedJob { job: presenter.job(row), ..shapes::ListedJob::default() };
            Ok(Slice { jobs: rows.into_iter().map(listed).collect(), last })
        }
        Results::Shown => slice_with_results(state, filter, limit).await,
    }
}

/// Reads a slice in small steps, until it has enough jobs or bytes.
async fn slice_with_results(state: &AppState, mut filter: JobFilter, limit: usize) -> Result<Slice, Problem> {
    let (mut jobs, mut bytes) = (Vec::new(), 0);
    loop {
        let (step, filter_of_step) = (STEP.min(limit - jobs.len()), filter.clone());
        let read = move |archive: &dyn Archive| {
            let (rows, last) = rows(archive, filter_of_step, step)?;
            let ids: Vec<JobId> = rows.iter().map(|row| row.job).collect();
            Ok((rows, archive.given_params(&ids)?, last))
        };
        let (rows, given, last) = state.read(read).await?;
        let presenter = state.presenter();
        for (row, given) in rows.into_iter().zip(&given) {
            let listed = presenter.with_result(row, given);
            bytes += added_bytes(&listed);
            jobs.push(listed);
        }
        if last.is_none() || jobs.len() == limit || bytes >= RESULTS_BYTES_MAX {
            return Ok(Slice { jobs, last });
        }
        filter.before = last;
    }
}

/// The first rows that fit a filter, at most `limit`; and the last of them, if there are more after it.
fn rows(
    archive: &dyn Archive,
    mut filter: JobFilter,
    limit: usize,
) -> Result<(Vec<JobRow>, Option<JobId>), ReadError> {
    // One extra row shows whether there are more.
    filter.limit = limit + 1;
    let mut rows = archive.jobs(&filter)?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let last = rows.last().filter(|_| more).map(|row| row.job);
    Ok((rows, last))
}

/// Bytes of the JSON of result and parameters.
fn added_bytes(job: &shapes::ListedJob) -> usize {
    let values = job.params.values().chain(&job.result);
    values.map(|value| value.to_string().len()).sum()
}

/// Default page size.
const LIMIT: usize = 100;

/// Jobs that are read at once with their results: a result has 64 KiB at most, so a step has a few megabytes.
const STEP: usize = 32;

/// Bytes of results and parameters after which a page or slice ends.
const RESULTS_BYTES_MAX: usize = 4 << 20;
