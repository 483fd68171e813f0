//! `longshore ls`: lists jobs in a table, only their ids, or as records for other programs.

mod watch;

use reqwest::Method;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue, LINK};
use serde_json::Value;
use server::positions::Positions;

use crate::api::{self, Api};
use crate::args::CommonArgs;
use crate::failure::{Exit, Failure};
use crate::screen::{self, Format};
use crate::utf8::Utf8Stream;
use crate::view;
use crate::view::JobView as _;

/// List jobs, newest first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore ls --state failed --state lost     failed and lost jobs
  longshore ls --unresolved --ended-since 3d   failures that nobody has dealt with
  longshore ls --name resize -n 5              the last five jobs of a definition
  longshore ls --since 1h                      jobs of the last hour
  longshore ls --label customer=7 -o json      for programs
  longshore ls --since 30d -o csv > jobs.csv   for a spreadsheet
  longshore ls --schedule nightly -n 5         jobs that a schedule has made
  longshore ls --by ci --since 1d              jobs that the token ci has made
  longshore ls --outcome oom_killed --ended-since 1d
  longshore ls -q --name 'resize-*'            the ids of all of them
  longshore ls --watch --state running         again at each change, until Ctrl-C")]
pub(crate) struct ListFlags {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    filters: Filters,
    /// Only jobs of the batch whose first job this is.
    #[arg(long, value_name = "ID", value_parser = parse_job_id)]
    batch: Option<u64>,
    /// Only the members of the batch with this index: 3, 3-9 or 3,7.
    #[arg(long, value_name = "INDEX", requires = "batch", value_parser = parse_positions)]
    index: Option<String>,
    /// Only members of this job, which runs on several workers.
    #[arg(long, value_name = "ID", value_parser = parse_job_id)]
    member_of: Option<u64>,
    /// Only jobs that run this revision of their definition.
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    /// How many at most [default: 20; with --quiet and as name, CSV and NDJSON all].
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=LIMIT_MAX.into()))]
    limit: Option<u32>,
    /// Print nothing but the jobs' ids, a line each; as JSON, an array of them.
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Show the list again at each change, until Ctrl-C.
    #[arg(short = 'W', long, conflicts_with = "quiet")]
    watch: bool,
}

/// Filters that select jobs.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Filters {
    /// Only jobs in this state; may be repeated.
    #[arg(long, value_name = "STATE")]
    state: Vec<String>,
    /// Only jobs of this definition; * stands for any text; may be repeated.
    #[arg(long, value_name = "NAME", add = crate::completions::definitions())]
    name: Vec<String>,
    /// Only jobs whose latest attempt is or was on this worker (id or name).
    #[arg(long, value_name = "WORKER", add = crate::completions::workers())]
    worker: Option<String>,
    /// Only jobs that the schedule with this id has made, and their retries.
    #[arg(long, value_name = "ID")]
    schedule: Option<String>,
    /// Only jobs that the holder of this token, or proxy:USER, has made.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Only jobs with this label.
    #[arg(long, value_name = "KEY=VALUE")]
    label: Option<String>,
    /// Only jobs whose latest attempt had this outcome; may be repeated.
    #[arg(long, value_name = "OUTCOME")]
    outcome: Vec<String>,
    /// Only jobs whose latest attempt had this exit code.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    exit_code: Option<i32>,
    /// Only ended jobs with this text in their reason.
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Only failures that nobody has dealt with: not retried, and not acknowledged (longshore ack).
    #[arg(long)]
    unresolved: bool,
    /// Only jobs that wait for their next attempt, after one that failed.
    #[arg(long)]
    backoff: bool,
    /// Only jobs accepted at or after this instant (RFC 3339), from this date on (UTC), or so long ago at most (90s, 1h30m, 7d).
    #[arg(long, value_name = "TIME", value_parser = crate::run::date_or_instant_or_ago)]
    since: Option<String>,
    /// Only jobs accepted before this time (RFC 3339), until this date (UTC), or longer ago than this.
    #[arg(long, value_name = "TIME", value_parser = crate::run::date_or_instant_or_ago)]
    until: Option<String>,
    /// Only jobs that ended at or after this instant, or so long ago at most.
    #[arg(long, value_name = "TIME", value_parser = crate::run::date_or_instant_or_ago)]
    ended_since: Option<String>,
    /// Only jobs that ended before this instant, or longer ago than this.
    #[arg(long, value_name = "TIME", value_parser = crate::run::date_or_instant_or_ago)]
    ended_until: Option<String>,
}

impl Filters {
    /// True if they select jobs by a label.
    pub(crate) const fn has_label(&self) -> bool {
        self.label.is_some()
    }

    /// The filters as query parameters of the server.
    pub(crate) fn query(&self) -> Vec<(&'static str, String)> {
        let several = |values: &[String]| (!values.is_empty()).then(|| values.join(","));
        let filters = [
            ("state", several(&self.state)),
            ("name", several(&self.name)),
            ("worker", self.worker.clone()),
            ("schedule", self.schedule.clone()),
            ("submitted_by", self.by.clone()),
            ("label", self.label.clone()),
            ("outcome", several(&self.outcome)),
            ("exit_code", self.exit_code.map(|code| code.to_string())),
            ("text", self.text.clone()),
            ("unresolved", self.unresolved.then(|| "1".to_owned())),
            ("backoff", self.backoff.then(|| "1".to_owned())),
            ("since", self.since.clone()),
            ("until", self.until.clone()),
            ("ended_since", self.ended_since.clone()),
            ("ended_until", self.ended_until.clone()),
        ];
        filters.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

/// Lists jobs.
pub(crate) async fn list(flags: ListFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    if flags.watch {
        return watch::watch(&api, &flags).await;
    }
    match flags.common.format {
        Format::Csv => return export_list(&api, &flags, "text/csv").await,
        Format::Ndjson => return export_list(&api, &flags, "application/x-ndjson").await,
        _ => {}
    }
    let is_quiet = flags.quiet || flags.common.format == Format::Name;
    let limit = flags.limit.unwrap_or(if is_quiet { LIMIT_MAX } else { LIMIT });
    let (jobs, more) = fetch_jobs(&api, &query(&flags), limit as usize).await?;
    if more {
        screen::note(&format!(
            "longshore: {}; there are more: use -n {} or a filter",
            match jobs.len() {
                1 => "this is the newest job".to_owned(),
                count => format!("these are the newest {count} jobs"),
            },
            (jobs.len() * 10).min(LIMIT_MAX as usize)
        ));
    }
    match (is_quiet, flags.common.format) {
        (true, Format::Json) => {
            let ids = jobs.iter().map(|job| Ok(job_id(&api, job)?.into()));
            screen::json(&Value::Array(ids.collect::<anyhow::Result<_>>()?))
        }
        (true, _) => jobs.iter().try_for_each(|job| screen::line(&job_id(&api, job)?.to_string())),
        (false, Format::Json) => screen::json(&Value::Array(jobs)),
        (false, format) => {
            let (heading, rows) = table(&api, &jobs, &flags, format)?;
            screen::table(&heading, rows)
        }
    }
}

/// Heading and rows of a table of jobs.
fn table(
    api: &Api,
    jobs: &[Value],
    flags: &ListFlags,
    format: Format,
) -> anyhow::Result<(Vec<&'static str>, Vec<Vec<String>>)> {
    let now = jiff::Timestamp::now();
    let indexes = jobs.iter().map(|job| view::optional(job.get("index").and_then(Value::as_u64).as_ref()));
    let indexes: Vec<String> = indexes.collect();
    let jobs =
        jobs.iter().map(|job| api::parse::<view::Job>(api, job)).collect::<anyhow::Result<Vec<_>>>()?;
    let (mut heading, mut rows): (_, Vec<_>) = if format == Format::Wide {
        (view::Job::wide_heading(), jobs.iter().map(|job| job.wide_row(now)).collect())
    } else {
        (view::Job::HEADING.to_vec(), jobs.iter().map(|job| job.row(now)).collect())
    };
    if flags.batch.is_some() {
        // Beside the id. A position means little among jobs of several batches.
        heading.insert(1, ">INDEX");
        rows.iter_mut().zip(indexes).for_each(|(row, index)| row.insert(1, index));
    }
    Ok((heading, rows))
}

/// Prints all jobs that fit as the server sends them.
async fn export_list(api: &Api, flags: &ListFlags, kind: &str) -> anyhow::Result<()> {
    if flags.quiet {
        let text = "--quiet prints ids, which are no records";
        return Err(Failure::new(Exit::Usage, text).hint("use it without -o csv and -o ndjson").into());
    }
    let limit = flags.limit.map(|limit| ("limit", limit.to_string()));
    let query: Vec<_> = query(flags).into_iter().chain(limit).collect();
    export(api, &query, kind).await
}

/// Prints all jobs of a query as the server sends them.
///
/// # Errors
/// The server refused the request, or the list broke off.
pub(crate) async fn export(api: &Api, query: &[(&'static str, String)], kind: &str) -> anyhow::Result<()> {
    let request = api.request(Method::GET, &["api", "jobs"]).header(ACCEPT, kind);
    let mut response = api.send(request.query(query)).await?;
    let given = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if !given.starts_with(kind.as_bytes()) {
        return Err(api.unexpected_response().into());
    }
    let mut text = Utf8Stream::default();
    loop {
        match response.chunk().await {
            Ok(Some(bytes)) => screen::records(&bytes, &mut text)?,
            Ok(None) => return Ok(()),
            Err(error) => {
                let text = format!("the list broke off: {}", api::root_cause(&error));
                let failure = Failure::new(Exit::Unavailable, text);
                return Err(failure.hint("it is incomplete; run the command again").into());
            }
        }
    }
}

/// Parses the id of a job.
pub(crate) fn parse_job_id(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "a job's id is a whole number from 1; 'longshore ls' lists them".to_owned())
}

/// Checks positions of members of a batch.
fn parse_positions(text: &str) -> Result<String, String> {
    Positions::read(text).map(|_| text.to_owned())
}

/// The id of a job in a list.
pub(crate) fn job_id(api: &Api, job: &Value) -> anyhow::Result<u64> {
    job.get("id").and_then(Value::as_u64).ok_or_else(|| api.unexpected_response().into())
}

/// Fetches pages, newest jobs first, up to `limit` jobs. The flag is true if there are more.
pub(crate) async fn fetch_jobs(
    api: &Api,
    query: &[(&'static str, String)],
    limit: usize,
) -> anyhow::Result<(Vec<Value>, bool)> {
    let mut jobs: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let wanted = (limit - jobs.len()).min(PAGE_MAX);
        let (page, next) = fetch_page(api, query, cursor, wanted).await?;
        cursor = next;
        jobs.extend(page);
        let more = cursor.is_some() || jobs.len() > limit;
        jobs.truncate(limit);
        if cursor.is_none() || jobs.len() == limit {
            return Ok((jobs, more));
        }
    }
}

/// Fetches a page of at most `limit` jobs after a cursor, and the cursor of the next page.
pub(crate) async fn fetch_page(
    api: &Api,
    query: &[(&'static str, String)],
    cursor: Option<String>,
    limit: usize,
) -> anyhow::Result<(Vec<Value>, Option<String>)> {
    let mut request = api.get(&["api", "jobs"]).query(query).query(&[("limit", limit)]);
    if let Some(cursor) = &cursor {
        request = request.query(&[("cursor", cursor)]);
    }
    send_page(api, request).await
}

/// Reads a page of a list. Returns it with the cursor of the next one, if there is one.
pub(crate) async fn send_page(
    api: &Api,
    request: reqwest::RequestBuilder,
) -> anyhow::Result<(Vec<Value>, Option<String>)> {
    let response = api.send(request).await?;
    let next = response.headers().get(LINK).and_then(|link| next_cursor(link.to_str().ok()?));
    Ok((api.decode(response).await?, next))
}

/// The filters, the batch and the parent as query parameters of the server.
fn query(flags: &ListFlags) -> Vec<(&'static str, String)> {
    let batch = flags.batch.map(|id| ("batch", id.to_string()));
    let index = flags.index.clone().map(|index| ("index", index));
    let parent = flags.member_of.map(|id| ("member_of", id.to_string()));
    let revision = flags.revision.clone().map(|revision| ("revision", revision));
    flags.filters.query().into_iter().chain(batch).chain(index).chain(parent).chain(revision).collect()
}

/// The cursor of the next page in a `Link` header.
fn next_cursor(link: &str) -> Option<String> {
    let next = link.split(',').find(|part| part.contains("rel=\"next\""))?;
    let target = next.split_once('<')?.1.split_once('>')?.0;
    // The URL may be relative; any base will do to parse its query.
    let url = reqwest::Url::parse("http://base/").ok()?.join(target).ok()?;
    url.query_pairs().find(|(key, _)| key == "cursor").map(|(_, value)| value.into_owned())
}

/// The largest page that the server allows.
const PAGE_MAX: usize = 500;

/// The jobs that one table shows if no number is given.
const LIMIT: u32 = 20;

/// The most jobs that one list shows.
const LIMIT_MAX: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_cursor_is_found_in_absolute_and_relative_links() {
        let relative = "</api/jobs?limit=2&cursor=a%2Bb>; rel=\"next\"";
        assert_eq!(next_cursor(relative).as_deref(), Some("a+b"));
        assert_eq!(
            next_cursor("<http://x/y?cursor=7>; rel=\"prev\", <http://x/y?cursor=9>; rel=\"next\"")
                .as_deref(),
            Some("9")
        );
        assert_eq!(next_cursor("</api/jobs>; rel=\"prev\""), None);
    }
}
