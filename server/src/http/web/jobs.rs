//! `/jobs`: the list with its filters, and the search field.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use scheduler::job::State as JobState;

use super::format::{self, Moment};
use super::list_address::{FilterFault, ListAddress};
use super::page::{Frame, render, see_other};
use crate::clock;
use crate::http::api::job_export::{ExportFormat, export};
use crate::http::api::job_list;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{Job, ListedJob, Time};
use crate::http::request::job_filter;
use crate::http::request::paging::Page;
use crate::http::request::query::{Query, encode};
use crate::http::state::AppState;

/// A job as a row of a table.
pub(crate) struct Row {
    pub(crate) job: Job,
    /// Its position in its batch, in a list of one batch.
    pub(crate) index: Option<u64>,
    pub(crate) tone: &'static str,
    pub(crate) created: Moment,
    pub(crate) ended: Option<Moment>,
    /// The running time, so far or whole.
    pub(crate) ran: String,
    /// Why it waits, or how it ended.
    pub(crate) why: String,
}

impl Row {
    pub(crate) fn of(job: Job) -> Self {
        let why = match &job.pending_reason {
            Some(reason) => reason.text.to_string(),
            None => job.long_start_in_words(clock::now().utc.0).unwrap_or_else(|| job.reason.clone()),
        };
        Self {
            tone: format::tone(&job.state),
            created: format::moment(job.created_at),
            ended: job.ended_at.map(format::moment),
            ran: ran(&job),
            why,
            index: None,
            job,
        }
    }

    /// A job of a list, with its position in a list of one batch.
    pub(crate) fn listed(listed: ListedJob) -> Self {
        Self { index: listed.index, ..Self::of(listed.job) }
    }
}

/// The running time of the latest container: measured, or so far.
fn ran(job: &Job) -> String {
    match (job.ran_ms, job.started_at) {
        (Some(ms), _) => format::span_ms(ms),
        (None, Some(Time(started))) if job.running => format::span(crate::clock::now().utc.since(started)),
        _ => String::new(),
    }
}

/// The fields of the filter form, as they were sent.
struct Filter {
    state: String,
    name: String,
    worker: String,
    label: String,
    text: String,
    since: String,
    until: String,
    /// Filters of links, for which the form has no field. It keeps them.
    others: Vec<(String, String)>,
    fault: Option<FilterFault>,
}

impl Filter {
    fn of(address: &ListAddress) -> Self {
        let is_other = |(name, _): &(&str, &str)| job_filter::NAMES.contains(name) && !FIELDS.contains(name);
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Self {
            state: address.value("state"),
            name: address.value("name"),
            worker: address.value("worker"),
            label: address.value("label"),
            text: address.value("text"),
            since: address.value("since"),
            until: address.value("until"),
            others: address.pairs().filter(is_other).map(owned).collect(),
            fault: None,
        }
    }

    /// True for the field that was refused.
    fn is_wrong(&self, field: &str) -> bool {
        self.fault.as_ref().is_some_and(|fault| fault.is_of(field))
    }

    fn may_show_live(&self) -> bool {
        self.may_show(|state| !state.has_ended())
    }

    fn may_show_failures(&self) -> bool {
        self.may_show(JobState::is_failure)
    }

    fn may_show_ended(&self) -> bool {
        self.may_show(JobState::has_ended)
    }

    /// Jobs that an operator can release may be among those that are shown.
    fn may_show_held(&self) -> bool {
        self.may_show(|state| matches!(state, JobState::Assigned | JobState::Running | JobState::Quarantined))
    }

    /// False if the filter by states, or that of unresolved failures, leaves out all jobs that fit.
    fn may_show(&self, fits: impl Fn(JobState) -> bool) -> bool {
        if self.others.iter().any(|(name, _)| name == "unresolved") {
            return JobState::ALL.into_iter().any(|state| state.is_failure() && fits(state));
        }
        let named = |name: &str| JobState::ALL.into_iter().find(|state| state.name() == name);
        self.state.is_empty() || self.state.split(',').filter_map(named).any(fits)
    }

    /// The filters without a field, in words; empty if there are none.
    fn others_in_words(&self) -> String {
        let has_ended_since = self.others.iter().any(|(name, _)| name == "ended_since");
        let words = self.others.iter().map(|(name, value)| match name.as_str() {
            "batch" => format!("of the batch {value}"),
            "index" => format!("with the index {value}"),
            "member_of" => format!("that are members of job {value}"),
            "schedule" => format!("of the schedule {value}"),
            "submitted_by" => format!("made by {value}"),
            "revision" => format!("of the revision {value}"),
            "outcome" => format!("with the outcome {value}"),
            "exit_code" => format!("with the exit code {value}"),
            "ended_since" => format!("that ended from {value}"),
            "ended_until" if has_ended_since => format!("until {value}"),
            "ended_until" => format!("that ended until {value}"),
            "unresolved" => "that have failed and that nobody has dealt with".to_owned(),
            "backoff" => "that wait for their next attempt".to_owned(),
            "accepted_since" => format!("accepted from {value}"),
            _ => format!("accepted until {value}"),
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

/// The filters for which the form has a field.
const FIELDS: [&str; 7] = ["state", "name", "worker", "label", "text", "since", "until"];

/// The states of jobs that have ended, as a value of the filter `state`.
pub(super) const ENDED_STATES: &str = "succeeded,failed,cancelled,expired,lost";

#[derive(Template)]
#[template(path = "jobs.html")]
struct JobsPage {
    frame: Frame,
    filter: Filter,
    states: [&'static str; 10],
    rows: Vec<Row>,
    /// The query of the next page.
    older: Option<String>,
    /// True if the sender may act on all jobs that are shown.
    may_act: bool,
    /// The query that selects these jobs, without the page; empty if all jobs are shown.
    selection: String,
}

/// `GET /jobs`
pub(crate) async fn show(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    let address = ListAddress::of(&uri)?;
    let refusal = match job_list::page(&state, address.query()).await {
        Ok(page) => return render(&page_of(&state, &address, page)),
        Err(problem) => problem,
    };
    let Some(fault) = FilterFault::of(&refusal) else { return Err(refusal) };
    // People type a part of a name. Links and the API have whole names.
    if refusal.code() == ProblemCode::UnknownName
        && let Some(pattern) = job_filter::pattern_of_part(&state, &address.value("name")).await?
    {
        let query = address.replaced("name", &pattern);
        return Ok(see_other(&state.services.base_path, &format!("/jobs?{query}")));
    }
    let mut page = page_of(&state, &address, Page { entries: Vec::new(), next: None });
    page.filter.fault = Some(fault);
    Ok(refusal.shown_by(render(&page)?))
}

fn page_of(state: &AppState, address: &ListAddress, page: Page<ListedJob>) -> JobsPage {
    let frame = Frame::new(state, "jobs", "Jobs");
    JobsPage {
        may_act: frame.may_run_all(page.entries.iter().map(|it| it.job.name.as_str())),
        frame,
        filter: Filter::of(address),
        states: JobState::ALL.map(JobState::name),
        rows: page.entries.into_iter().map(Row::listed).collect(),
        older: address.next_page(page.next.as_deref()),
        selection: address.selection(),
    }
}

/// The first page of a list of jobs.
pub(super) async fn first_page(state: &AppState, pairs: &[(&str, &str)]) -> Result<Vec<Job>, Problem> {
    let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let page = job_list::page(state, Query::new(pairs.collect())).await?;
    Ok(page.entries.into_iter().map(|listed| listed.job).collect())
}

/// `GET /jobs.csv`: what a link can ask for, since it has no `Accept` of its own.
pub(crate) async fn csv(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    export(&state, ListAddress::of(&uri)?.query(), ExportFormat::Csv).await
}

/// `GET /jobs.ndjson`
pub(crate) async fn ndjson(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    export(&state, ListAddress::of(&uri)?.query(), ExportFormat::Ndjson).await
}

/// `GET /search?q=`: a job by number, members of a batch by their positions (`12[3]`), a definition or worker by name, else jobs by the text of
/// their reason.
pub(crate) async fn search(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    let mut query = Query::of(&uri)?;
    let text = query.text("q")?.unwrap_or_default().trim().to_owned();
    query.finish()?;
    let base = &state.services.base_path;
    if text.is_empty() {
        return Ok(see_other(base, "/jobs"));
    }
    if text.parse::<u64>().is_ok_and(|id| id > 0) {
        return Ok(see_other(base, &format!("/jobs/{text}")));
    }
    if let Some((batch, index)) = text.strip_suffix(']').and_then(|text| text.split_once('['))
        && batch.parse::<u64>().is_ok_and(|id| id > 0)
    {
        return Ok(see_other(base, &format!("/jobs?{}", encode([("batch", batch), ("index", index)]))));
    }
    if state.services.catalogue.current().find(&text).is_some() {
        return Ok(see_other(base, &format!("/definitions/{text}")));
    }
    let snapshot = state.services.engine.snapshot();
    if let Some(worker) = snapshot.workers.iter().find(|worker| *worker.name == *text) {
        return Ok(see_other(base, &format!("/workers/{}", worker.id)));
    }
    Ok(see_other(base, &format!("/jobs?{}", encode([("text", text.as_str())]))))
}

#[cfg(test)]
mod tests {
    use super::{ENDED_STATES, JobState};

    #[test]
    fn the_states_of_ended_jobs_are_those_of_the_scheduler() {
        assert_eq!(ENDED_STATES, JobState::ENDED.map(JobState::name).join(","));
    }
}
