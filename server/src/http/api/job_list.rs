//! Lists of jobs, newest first: pages that a query asks for, and slices that fit a filter. Lists of one batch can begin with its first member, and
//! have the latest attempt in the place of each member.

use protocol::JobId;

use crate::http::middleware::problem::Problem;
use crate::http::present::shapes;
use crate::http::request::cursor;
use crate::http::request::job_filter;
use crate::http::request::paging::{Page, limit};
use crate::http::request::query::{Query, invalid_query};
use crate::http::state::AppState;
use crate::store::{Archive, GivenParams, JOBS_MAX, JobFilter, JobRow, ReadError};

/// The part of jobs beside their rows that a list has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Results {
    /// No more than each list shows, and in a list of one batch the positions.
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

/// The order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListOrder {
    /// The newest job first.
    Newest,
    /// The first member of a batch first.
    Oldest,
}

/// The jobs of a list of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// Those that fit the filter.
    Themselves,
    /// The last retry of each member, or the member itself without one; of these, those that fit the filter.
    LatestAttempts,
}

/// The form of a list, beside its filter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListForm {
    pub(crate) results: Results,
    pub(crate) order: ListOrder,
    pub(crate) listed: Listed,
}

impl ListForm {
    /// The newest jobs first, without results.
    pub(crate) const PLAIN: Self =
        Self { results: Results::LeftOut, order: ListOrder::Newest, listed: Listed::Themselves };

    /// Reads `results`, `order` and `latest` of a query.
    ///
    /// # Errors
    /// `invalid_query`.
    pub(crate) fn of(query: &mut Query) -> Result<Self, Problem> {
        let results = Results::of(query)?;
        let order = match query.text("order")?.as_deref() {
            None | Some("newest") => ListOrder::Newest,
            Some("oldest") => ListOrder::Oldest,
            Some(_) => return Err(invalid_query("order", "it is newest or oldest")),
        };
        let listed = if query.switch("latest")? { Listed::LatestAttempts } else { Listed::Themselves };
        Ok(Self { results, order, listed })
    }

    /// Checks that this filter can be listed so, and takes its cursor in this order.
    ///
    /// # Errors
    /// `invalid_query`.
    pub(crate) fn check(self, filter: &mut JobFilter) -> Result<(), Problem> {
        if self.order == ListOrder::Oldest {
            if filter.batch.is_none() {
                return Err(invalid_query(
                    "order",
                    "oldest is for the members of a batch, which batch names",
                ));
            }
            filter.after = filter.before.take();
        }
        if self.listed == Listed::LatestAttempts {
            let JobFilter { batch, positions, states, outcomes, before, after, .. } = filter.clone();
            let known =
                JobFilter { batch, positions, states, outcomes, before, after, ..JobFilter::default() };
            if batch.is_none() || known != *filter {
                return Err(invalid_query(
                    "latest",
                    "it is for batch, with index, state and outcome beside it",
                ));
            }
        }
        Ok(())
    }

    /// Lets the filter go on after this job.
    pub(crate) fn go_on(self, filter: &mut JobFilter, last: Option<JobId>) {
        match self.order {
            ListOrder::Newest => filter.before = last,
            ListOrder::Oldest => filter.after = last,
        }
    }
}

/// Reads the page of jobs that a query asks for, for the dashboard.
///
/// # Errors
/// Those of [`listed_page`].
pub(crate) async fn page(state: &AppState, query: Query) -> Result<Page<shapes::ListedJob>, Problem> {
    read_page(state, query, ListForm::PLAIN).await
}

/// Reads the page of jobs that a query asks for.
///
/// # Errors
/// Those of [`job_filter::read`], `invalid_query`, `invalid_limit`, and those of a read.
pub(crate) async fn listed_page(
    state: &AppState,
    mut query: Query,
) -> Result<Page<shapes::ListedJob>, Problem> {
    let form = ListForm::of(&mut query)?;
    read_page(state, query, form).await
}

async fn read_page(
    state: &AppState,
    mut query: Query,
    form: ListForm,
) -> Result<Page<shapes::ListedJob>, Problem> {
    let mut filter = job_filter::read(state, &mut query).await?;
    let limit = query.text("limit")?.as_deref().map_or(Ok(LIMIT), limit)?;
    query.finish()?;
    form.check(&mut filter)?;
    let Slice { jobs, last } = slice(state, filter, limit, form).await?;
    Ok(Page { entries: jobs, next: last.map(cursor::write) })
}

/// Jobs that follow each other in a list.
pub(crate) struct Slice {
    pub(crate) jobs: Vec<shapes::ListedJob>,
    /// The last of them, or the member that it stands for, if there are more after it.
    pub(crate) last: Option<JobId>,
}

/// Reads the first jobs that fit a filter, at most `limit`. With results they are fewer if their results and parameters are long, and of latest
/// attempts if few fit.
///
/// # Errors
/// Those of a read.
pub(crate) async fn slice(
    state: &AppState,
    mut filter: JobFilter,
    limit: usize,
    form: ListForm,
) -> Result<Slice, Problem> {
    let step_max = match form.results {
        Results::LeftOut => limit,
        Results::Shown => STEP,
    };
    let (mut jobs, mut bytes, mut read_members) = (Vec::new(), 0, 0);
    loop {
        let (step, filter_of_step) = (step_max.min(limit - jobs.len()), filter.clone());
        let read = move |archive: &dyn Archive| read_step(archive, &filter_of_step, step, form);
        let Step { rows, given, last } = state.read(read).await?;
        let presenter = state.presenter();
        for (row, given) in rows.into_iter().zip(given) {
            let listed = match given {
                Some(given) => presenter.with_result(row, &given),
                None if filter.batch.is_some() => presenter.member(row),
                None => shapes::ListedJob { job: presenter.job(row), ..shapes::ListedJob::default() },
            };
            bytes += added_bytes(&listed);
            jobs.push(listed);
        }
        read_members += step;
        let is_long = bytes >= RESULTS_BYTES_MAX || read_members >= READ_MAX;
        if last.is_none() || jobs.len() == limit || is_long {
            return Ok(Slice { jobs, last });
        }
        form.go_on(&mut filter, last);
    }
}

/// Jobs that are read at once.
struct Step {
    rows: Vec<JobRow>,
    /// The parameters of each, in a list with results.
    given: Vec<Option<GivenParams>>,
    /// The last job that was read, if there are more after it.
    last: Option<JobId>,
}

fn read_step(
    archive: &dyn Archive,
    filter: &JobFilter,
    limit: usize,
    form: ListForm,
) -> Result<Step, ReadError> {
    let of_members = match form.listed {
        Listed::Themselves => filter.clone(),
        // The filter is about the retries, not about the members.
        Listed::LatestAttempts => JobFilter { states: Vec::new(), outcomes: Vec::new(), ..filter.clone() },
    };
    let mut rows = match form.order {
        ListOrder::Newest => archive.jobs(&JobFilter { limit: limit + 1, ..of_members })?,
        ListOrder::Oldest => oldest_members(archive, of_members, limit + 1)?,
    };
    // One extra row shows whether there are more.
    let more = rows.len() > limit;
    rows.truncate(limit);
    let last = rows.last().filter(|_| more).map(|row| row.job);
    if form.listed == Listed::LatestAttempts {
        rows = archive.latest_attempts(rows)?;
        rows.retain(|row| has_state(row, filter));
    }
    let given = match form.results {
        Results::LeftOut => vec![None; rows.len()],
        Results::Shown => {
            let ids: Vec<JobId> = rows.iter().map(|row| row.job).collect();
            archive.given_params(&ids)?.into_iter().map(Some).collect()
        }
    };
    Ok(Step { rows, given, last })
}

/// The first members of a batch that fit, at most `limit`. The store has the newest jobs first, so it is asked for some numbers after the others.
fn oldest_members(archive: &dyn Archive, filter: JobFilter, limit: usize) -> Result<Vec<JobRow>, ReadError> {
    let Some(batch) = filter.batch.map(|first| archive.batch(first)).transpose()?.flatten() else {
        return Ok(Vec::new());
    };
    let end = batch.first.0 + u64::from(batch.count);
    let mut next = filter.after.map_or(batch.first.0, |after| after.0.saturating_add(1)).max(batch.first.0);
    let (mut rows, mut numbers) = (Vec::new(), limit);
    while next < end && rows.len() < limit {
        let until = end.min(next + numbers.clamp(1, JOBS_MAX) as u64);
        let (after, before) = (Some(JobId(next - 1)), Some(JobId(until)));
        let mut found = archive.jobs(&JobFilter { after, before, limit: JOBS_MAX, ..filter.clone() })?;
        found.reverse();
        rows.append(&mut found);
        // If few of the numbers fit, more are looked at together.
        (next, numbers) = (until, numbers * 2);
    }
    rows.truncate(limit);
    Ok(rows)
}

/// The job fits the states and outcomes of the filter.
fn has_state(row: &JobRow, filter: &JobFilter) -> bool {
    let outcome = row.attempt.as_ref().and_then(|attempt| attempt.outcome);
    (filter.states.is_empty() || filter.states.contains(&row.state))
        && (filter.outcomes.is_empty() || outcome.is_some_and(|it| filter.outcomes.contains(&it)))
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

/// Members that are read for a page of latest attempts; it ends after these even if few of them fit.
const READ_MAX: usize = 2_000;
