//! `longshore ls`, `cancel`, `release`, `retry`: many jobs in a table, and the things one does to a job.

use reqwest::Method;
use reqwest::header::LINK;
use serde_json::Value;

use crate::api::{self, Api};
use crate::screen::{self, Format};
use crate::{Asking, failure, run, view};

/// List jobs, newest first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore ls --state failed --state lost     what went wrong
  longshore ls --name resize -n 5              the last five of a definition
  longshore ls --label customer=7 -o json      for programs")]
pub(crate) struct ListFlags {
    #[command(flatten)]
    asking: Asking,
    /// Only jobs in this state; may be repeated.
    #[arg(long, value_name = "STATE")]
    state: Vec<String>,
    /// Only jobs of this definition.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only jobs whose latest attempt is or was on this worker (id or name).
    #[arg(long, value_name = "WORKER")]
    worker: Option<String>,
    /// Only jobs with this label.
    #[arg(long, value_name = "KEY=VALUE")]
    label: Option<String>,
    /// Only jobs of the batch whose first job this is.
    #[arg(long, value_name = "ID")]
    batch: Option<u64>,
    /// Only jobs accepted at or after this instant (RFC 3339).
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only jobs accepted before this instant (RFC 3339).
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// How many at most.
    #[arg(short = 'n', long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,
}

/// End jobs: at once if they wait, else by stopping their containers.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore cancel 12
  longshore cancel 12 13 14")]
pub(crate) struct CancelFlags {
    #[command(flatten)]
    asking: Asking,
    /// Which jobs.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<u64>,
}

/// Let jobs go on that wait for a person.
///
/// A quarantined job is queued again. An attempt whose worker is unreachable, or cannot reach its Docker, is given up: it is not
/// believed any more, and the job gets another one. The old container may still run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore ls --state quarantined
  longshore release 12")]
pub(crate) struct ReleaseFlags {
    #[command(flatten)]
    asking: Asking,
    /// Which jobs.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<u64>,
}

/// Make a new job like one that has ended.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore retry 12
  longshore logs -f \"$(longshore retry 12 -o json | jq .id)\"")]
pub(crate) struct RetryFlags {
    #[command(flatten)]
    asking: Asking,
    /// Which job.
    #[arg(value_name = "ID")]
    id: u64,
    /// Make no second job if one was made with this key [default: a new one, for sending the request again].
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

/// Lists jobs.
pub(crate) async fn list(flags: ListFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.asking.door)?;
    let jobs = gather(&api, &flags).await?;
    if flags.asking.format == Format::Json {
        return screen::json(&Value::Array(jobs));
    }
    let now = jiff::Timestamp::now();
    let rows = jobs
        .iter()
        .map(|job| Ok(api::read::<view::Job>(&api, job)?.row(now)))
        .collect::<anyhow::Result<_>>()?;
    screen::table(&view::Job::HEADING, rows)
}

/// Cancels jobs, one after the other; tells of each, and goes on after one that cannot be cancelled.
pub(crate) async fn cancel(flags: CancelFlags) -> anyhow::Result<()> {
    each(&flags.asking, &flags.ids, "cancel", |job| {
        if job.has_ended() { "is cancelled" } else { "is being stopped" }
    })
    .await
}

/// Releases jobs, one after the other; tells of each, and goes on after one that cannot be released.
pub(crate) async fn release(flags: ReleaseFlags) -> anyhow::Result<()> {
    // What was being cancelled ends by it.
    each(&flags.asking, &flags.ids, "release", |job| if job.has_ended() { "is cancelled" } else { "goes on" })
        .await
}

/// Wants the same of each job.
async fn each(
    asking: &Asking,
    ids: &[u64],
    verb: &str,
    outcome: impl Fn(&view::Job) -> &'static str,
) -> anyhow::Result<()> {
    let api = Api::new(&asking.door)?;
    let mut answers = Vec::new();
    let mut refused = None;
    for id in ids {
        let request = api.request(Method::POST, &["api", "jobs", &id.to_string(), verb]);
        match api.json(request).await {
            Ok(job) => answers.push(job),
            Err(error) => refused = keep_first(refused, error.context(format!("job {id}"))),
        }
    }
    if asking.format == Format::Json {
        screen::json(&Value::Array(answers))?;
    } else {
        for job in &answers {
            let job: view::Job = api::read(&api, job)?;
            screen::line(&format!("job {} {}", job.id, outcome(&job)))?;
        }
    }
    refused.map_or(Ok(()), Err)
}

/// Makes a new job like an ended one.
pub(crate) async fn retry(flags: RetryFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.asking.door)?;
    let request = api.request(Method::POST, &["api", "jobs", &flags.id.to_string(), "retry"]);
    let job = api.make(request, &run::key(flags.key.as_deref())?).await?;
    if flags.asking.format == Format::Json {
        return screen::json(&job);
    }
    let job: view::Job = api::read(&api, &job)?;
    screen::line(&format!(
        "job {} tries job {} again; follow it with: longshore logs -f {}",
        job.id, flags.id, job.id
    ))
}

/// Pages through the list until there are enough.
async fn gather(api: &Api, flags: &ListFlags) -> anyhow::Result<Vec<Value>> {
    let query = query(flags);
    let mut jobs: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let wanted = (flags.limit as usize - jobs.len()).min(PAGE_MAX);
        let mut request = api.fetch(&["api", "jobs"]).query(&query).query(&[("limit", wanted)]);
        if let Some(cursor) = &cursor {
            request = request.query(&[("cursor", cursor)]);
        }
        let response = api.send(request).await?;
        cursor = response.headers().get(LINK).and_then(|link| next_cursor(link.to_str().ok()?));
        jobs.extend(api.decode::<Vec<Value>>(response).await?);
        jobs.truncate(flags.limit as usize);
        if cursor.is_none() || jobs.len() >= flags.limit as usize {
            return Ok(jobs);
        }
    }
}

/// The filters, as the server takes them.
fn query(flags: &ListFlags) -> Vec<(&'static str, String)> {
    let filters = [
        ("state", (!flags.state.is_empty()).then(|| flags.state.join(","))),
        ("name", flags.name.clone()),
        ("worker", flags.worker.clone()),
        ("label", flags.label.clone()),
        ("batch", flags.batch.map(|id| id.to_string())),
        ("since", flags.since.clone()),
        ("until", flags.until.clone()),
    ];
    filters.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

/// The cursor in a `Link` header's `rel="next"`, if there is a next page.
fn next_cursor(link: &str) -> Option<String> {
    let next = link.split(',').find(|part| part.contains("rel=\"next\""))?;
    let target = next.split_once('<')?.1.split_once('>')?.0;
    // The target may be relative; any base will do to read its query.
    let url = reqwest::Url::parse("http://base/").ok()?.join(target).ok()?;
    url.query_pairs().find(|(key, _)| key == "cursor").map(|(_, value)| value.into_owned())
}

/// Tells of every error but the first, which becomes the end of the verb.
fn keep_first(first: Option<anyhow::Error>, next: anyhow::Error) -> Option<anyhow::Error> {
    match first {
        None => Some(next),
        Some(first) => {
            // The first one decides how the program ends; of this one it is only told.
            let _ = failure::report(&next);
            Some(first)
        }
    }
}

/// The server's own limit of a page.
const PAGE_MAX: usize = 500;

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
