//! Operations on all jobs that filters select: counted first, confirmed, and sent to the server in as many requests as it takes.

mod acknowledge;
mod batch_cancel;

use std::io::IsTerminal as _;
use std::pin::pin;

use reqwest::Method;
use reqwest::header::HeaderValue;
use serde_json::Value;
use server::http::present::shapes::{RetriedBefore, RetryMade};

use crate::api::{self, Api};
use crate::args::CommonArgs;
use crate::failure::{self, Exit, Failure};
use crate::job_refs::{self, JobRef};
use crate::jobs;
use crate::records;
use crate::screen::{self, Format};
pub(crate) use acknowledge::acknowledge_all;
pub(crate) use batch_cancel::{cancel_batch, cancel_batch_if_confirmed};

/// The jobs of an operation: ids, or filters instead of them.
#[derive(Debug, clap::Args)]
pub(crate) struct Selection {
    /// Ids of the jobs; `1064[3]`, `1064[3-9]` and `1064[3,7]` are members of batch 1064 by their index. Quote them: shells expand brackets.
    #[arg(value_name = "ID", value_parser = job_refs::parse_several)]
    pub(crate) ids: Vec<JobRef>,
    /// Of the batch whose first job this is, all jobs that the operation is for.
    #[arg(long, value_name = "ID", conflicts_with = "ids", value_parser = jobs::parse_job_id)]
    pub(crate) batch: Option<u64>,
    #[command(flatten)]
    filters: jobs::Filters,
    /// Do not ask before the operation on the jobs that the filters select.
    #[arg(short = 'y', long)]
    pub(crate) yes: bool,
}

impl Selection {
    /// True if the filters select jobs by a label.
    pub(crate) fn has_label(&self) -> bool {
        self.filters.has_label()
    }

    /// The query that selects the jobs; `None` if ids are given.
    pub(crate) fn query(&self) -> Result<Option<Vec<(&'static str, String)>>, Failure> {
        let mut query = self.filters.query();
        query.extend(self.batch.map(|batch| ("batch", batch.to_string())));
        match (self.ids.is_empty(), query.is_empty()) {
            (false, true) => Ok(None),
            (true, false) => Ok(Some(query)),
            (false, false) => Err(Failure::new(Exit::Usage, "ids and filters exclude each other")),
            (true, true) => {
                Err(Failure::new(Exit::Usage, "which jobs? give their ids, or filters such as --name")
                    .hint("'longshore ls' lists the jobs with the same filters"))
            }
        }
    }
}

/// Applies an operation to all jobs of a query, in as many requests as it takes.
pub(crate) async fn apply_to_all(
    api: &Api,
    common: &CommonArgs,
    operation: Operation<'_>,
    query: &[(&'static str, String)],
    yes: bool,
) -> anyhow::Result<()> {
    let path = ["api", "jobs", operation.verb];
    apply(api, common, (&path, operation), ("the filters select", query), yes).await
}

/// An operation on many jobs.
#[derive(Clone, Copy)]
pub(crate) struct Operation<'a> {
    /// As the API and this program name it.
    pub(crate) verb: &'a str,
    /// The idempotency key of an earlier command that is continued.
    pub(crate) key: Option<&'a str>,
    /// The body of each request that changes something.
    pub(crate) body: Option<&'a Value>,
}

async fn apply(
    api: &Api,
    common: &CommonArgs,
    (path, operation): (&[&str], Operation<'_>),
    (selects, query): (&str, &[(&'static str, String)]),
    yes: bool,
) -> anyhow::Result<()> {
    let Operation { verb, key, body } = operation;
    let key = api::idempotency_key(key)?;
    if !yes {
        let counted = count_all(api, path, query).await?;
        if counted.matched == 0 {
            // A job that matches from now on was not counted, so nobody was asked about it.
            return counted.print(verb, common.format);
        }
        if verb == "retry" && counted.matched > ORDERED_MAX && !common.format.is_json() {
            screen::note(UNORDERED);
        }
        confirm(verb, selects, counted.matched)?;
    }
    let (mut total, ended_by) = send_all(api, path, query, &key, body).await;
    total.refusals.truncate(REFUSALS_SHOWN);
    if total.matched > 0 || matches!(ended_by, EndedBy::LastJob) {
        total.print(verb, common.format)?;
    }
    ended_by.note_open_request(common.format, "ls");
    // With JSON, standard error has the document of the error only.
    let is_continued = verb == "retry" && !common.format.is_json() && ended_by.may_have_left_jobs(&total);
    if let (true, Ok(key)) = (is_continued, key.to_str()) {
        screen::note(&format!(
            "longshore: to continue, repeat the command with --key {key}: no job is retried twice, and none that this command has made; other jobs that the filters select by then are retried"
        ));
    }
    if common.format == Format::Name && verb == "retry" && total.unlisted() > 0 && total.refused == 0 {
        exit(ended_by, 0)?;
        return Err(Failure::silent(Exit::Failed).into());
    }
    exit(ended_by, total.refused)
}

/// Ends the program after an operation that was interrupted, or failed, or was refused for some jobs.
fn exit(ended_by: EndedBy, refused: u64) -> anyhow::Result<()> {
    match (ended_by, refused) {
        (EndedBy::Error(error), _) => Err(error),
        (EndedBy::Interrupt, _) => Err(Failure::silent(Exit::Interrupted).into()),
        (EndedBy::LastJob, 0) => Ok(()),
        (EndedBy::LastJob, _) => Err(Failure::silent(Exit::Conflict).into()),
    }
}

/// The event that ended the requests of an operation.
#[derive(Debug)]
enum EndedBy {
    /// The last job.
    LastJob,
    /// Ctrl-C.
    Interrupt,
    /// A request that failed.
    Error(anyhow::Error),
}

impl EndedBy {
    /// Says after Ctrl-C that the server may go on with the request that it has not answered. With JSON, standard error has the document of
    /// the error only.
    fn note_open_request(&self, format: Format, shows: &str) {
        if matches!(self, Self::Interrupt) && !format.is_json() {
            screen::note(&format!(
                "longshore: interrupted: the server may carry out the request that it has not answered; 'longshore {shows}' shows the states"
            ));
        }
    }

    /// True if the server may have done a part of the operation only.
    fn may_have_left_jobs(&self, total: &BulkResult) -> bool {
        match self {
            Self::LastJob => false,
            Self::Interrupt => true,
            // The server may have done a part of a request that it did not answer.
            Self::Error(error) => {
                total.matched > 0 || matches!(failure::exit_of(error), Exit::Unavailable | Exit::Failed)
            }
        }
    }
}

/// Sends the requests of an operation, as many as it takes. Returns the sum of the answers.
async fn send_all(
    api: &Api,
    path: &[&str],
    query: &[(&'static str, String)],
    key: &HeaderValue,
    body: Option<&Value>,
) -> (BulkResult, EndedBy) {
    let (mut total, mut cursor) = (BulkResult::default(), None::<String>);
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    loop {
        let request = api.request(Method::POST, path).query(query).header("idempotency-key", key);
        let request = request.query(&cursor.take().map(|cursor| [("cursor", cursor)]));
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        let answer = tokio::select! {
            answer = api.json(request) => answer.and_then(|answer| api::parse(api, &answer)),
            _ = &mut interrupt => return (total, EndedBy::Interrupt),
        };
        match answer {
            Ok(answer) => cursor = total.add(answer),
            Err(error) => return (total, EndedBy::Error(error)),
        }
        if cursor.is_none() {
            return (total, EndedBy::LastJob);
        }
    }
}

/// The number of jobs that a query selects.
pub(crate) async fn count(api: &Api, path: &[&str], query: &[(&'static str, String)]) -> anyhow::Result<u64> {
    Ok(count_all(api, path, query).await?.matched)
}

/// The jobs that a query selects, and those that are left to earlier retries.
async fn count_all(api: &Api, path: &[&str], query: &[(&'static str, String)]) -> anyhow::Result<BulkResult> {
    let (mut total, mut cursor) = (BulkResult::default(), None::<String>);
    loop {
        let request = api.request(Method::POST, path).query(query).query(&[("dry_run", "1")]);
        let answer = api.json(request.query(&cursor.map(|cursor| [("cursor", cursor)]))).await?;
        cursor = total.add(api::parse(api, &answer)?);
        if cursor.is_none() {
            return Ok(total);
        }
    }
}

/// Asks on a terminal before an operation on many jobs.
fn confirm(verb: &str, selects: &str, count: u64) -> anyhow::Result<()> {
    ask(verb, selects, &screen::counted(count, "job"))
}

/// As [`confirm`], for other things than jobs: `counted` is their number with the noun.
pub(crate) fn ask(verb: &str, selects: &str, counted: &str) -> anyhow::Result<()> {
    if !std::io::stdin().is_terminal() {
        let text = format!("{selects} {counted}; to {verb} them without a question, add --yes");
        return Err(Failure::new(Exit::Usage, text).into());
    }
    screen::note(&format!("{verb} {counted}? [y/N]"));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::new(Exit::Failed, "nothing was changed").into()),
    }
}

/// The server's answer to a bulk request, and the sum of several.
#[derive(Debug, Default, serde::Deserialize, serde::Serialize)]
#[serde(default)]
pub(crate) struct BulkResult {
    pub(crate) matched: u64,
    done: u64,
    stopping: u64,
    pub(crate) refused: u64,
    refusals: Vec<Refusal>,
    pub(crate) jobs: Vec<u64>,
    /// Of a retry: false if the newest jobs were retried first, because they were too many to go by their slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    ordered: Option<bool>,
    /// Of a retry: which job was retried as which, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    retries: Vec<RetryMade>,
    /// Of a retry: jobs beside `matched` that are left to earlier retries.
    #[serde(skip_serializing_if = "is_zero")]
    retried_before: u64,
    /// The first of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<RetriedBefore>,
    #[serde(skip_serializing)]
    next: Option<String>,
}

#[derive(Debug, serde::Deserialize, serde::Serialize)]
struct Refusal {
    job: u64,
    code: String,
    detail: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl BulkResult {
    /// Adds a further answer; returns the cursor of the next request.
    pub(crate) fn add(&mut self, other: Self) -> Option<String> {
        self.matched += other.matched;
        self.done += other.done;
        self.stopping += other.stopping;
        self.refused += other.refused;
        self.refusals.extend(other.refusals);
        self.jobs.extend(other.jobs);
        self.ordered = match (self.ordered, other.ordered) {
            (Some(before), Some(now)) => Some(before && now),
            (before, now) => before.or(now),
        };
        self.retries.extend(other.retries);
        self.retried_before += other.retried_before;
        self.left_out.extend(other.left_out);
        other.next
    }

    /// The number of retries that are done, and whose new jobs the server has not listed.
    pub(crate) fn unlisted(&self) -> u64 {
        self.done.saturating_sub(self.jobs.len() as u64)
    }

    pub(crate) fn print(&self, verb: &str, format: Format) -> anyhow::Result<()> {
        let is_name = format == Format::Name;
        if !is_name && records::print(format, &serde_json::to_value(self)?, "jobs")? {
            return Ok(());
        }
        self.note_refusals();
        for RetriedBefore { job, retry, state } in self.left_out.iter().take(REFUSALS_SHOWN) {
            screen::note(&format!("longshore: job {job} was retried before: job {retry} is {state}"));
        }
        if !is_name {
            let made = |it: &RetryMade| screen::line(&format!("job {} tries job {} again", it.made, it.job));
            self.retries.iter().try_for_each(made)?;
            screen::line(&self.summary(verb))?;
        } else {
            self.jobs.iter().try_for_each(|job| screen::line(&job.to_string()))?;
            screen::note(&format!("longshore: {}", self.summary(verb)));
        }
        if self.ordered == Some(false) {
            screen::note(UNORDERED);
        }
        if verb == "retry" && self.unlisted() > 0 {
            screen::note(&format!(
                "longshore: the server has not told the ids for {} of them: an answer lists at most 1,000 new jobs, and none where an \
                 earlier job has the unique key; 'longshore ls' shows the jobs",
                self.unlisted()
            ));
        }
        Ok(())
    }

    /// Notes the refusals that the server has shown.
    pub(crate) fn note_refusals(&self) {
        for Refusal { job, detail, .. } in &self.refusals {
            screen::note(&format!("longshore: job {job}: {detail}"));
        }
    }

    fn summary(&self, verb: &str) -> String {
        let done = match verb {
            "cancel" => "cancelled",
            "retry" => "retried",
            "acknowledge" => "acknowledged",
            "unacknowledge" => "no longer acknowledged",
            _ => "released",
        };
        let mut parts = vec![format!("{} {done}", self.done)];
        if self.stopping > 0 {
            parts.push(format!("{} being stopped", self.stopping));
        }
        if self.refused > 0 {
            parts.push(format!("{} refused", self.refused));
        }
        let before = match self.retried_before {
            0 => String::new(),
            count => format!("; {} beside them retried before", screen::counted(count, "job")),
        };
        format!("{} of {} jobs{before}", parts.join(", "), self.matched)
    }
}

/// The most jobs that the server retries in the order of their slots.
const ORDERED_MAX: u64 = 10_000;

const UNORDERED: &str = "longshore: the selection is too large to be retried in the order of the slots: the newest jobs come first; to keep the \
    order, select fewer jobs at a time with --since and --until";

/// Refusals that are shown of all requests; the server shows as many of each.
const REFUSALS_SHOWN: usize = 20;
