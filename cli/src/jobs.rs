//! `longshore ls`: many jobs in a table, or their numbers only.

use reqwest::header::LINK;
use serde_json::Value;

use crate::api::{self, Api};
use crate::screen::{self, Format};
use crate::{Asking, duration, view};

/// List jobs, newest first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore ls --state failed --state lost     what went wrong
  longshore ls --name resize -n 5              the last five of a definition
  longshore ls --since 1h                      what was accepted within the last hour
  longshore ls --label customer=7 -o json      for programs
  longshore cancel $(longshore ls -q --name resize --state queued)")]
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
    #[arg(long, value_name = "ID", value_parser = number)]
    batch: Option<u64>,
    /// Only jobs accepted at or after this instant (RFC 3339), or so long ago at most (90s, 1h30m, 7d).
    #[arg(long, value_name = "TIME", value_parser = instant)]
    since: Option<String>,
    /// Only jobs accepted before this instant (RFC 3339), or longer ago than this.
    #[arg(long, value_name = "TIME", value_parser = instant)]
    until: Option<String>,
    /// How many at most.
    #[arg(short = 'n', long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=LIMIT_MAX.into()))]
    limit: u32,
    /// Print nothing but the jobs' ids, a line each; as JSON, an array of them.
    #[arg(short = 'q', long)]
    quiet: bool,
}

/// Lists jobs.
pub(crate) async fn list(flags: ListFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.asking.door)?;
    let (jobs, more) = gather(&api, &query(&flags), flags.limit as usize).await?;
    if more {
        screen::note(&format!(
            "longshore: these are the newest {}, and there are more: see them with -n {}, or name what you look for",
            jobs.len(),
            (jobs.len() * 10).min(LIMIT_MAX as usize)
        ));
    }
    match (flags.quiet, flags.asking.format) {
        (true, Format::Table) => {
            return jobs.iter().try_for_each(|job| screen::line(&id(&api, job)?.to_string()));
        }
        (true, Format::Json) => {
            let ids = jobs.iter().map(|job| Ok(id(&api, job)?.into()));
            return screen::json(&Value::Array(ids.collect::<anyhow::Result<_>>()?));
        }
        (false, Format::Json) => return screen::json(&Value::Array(jobs)),
        (false, Format::Table) => {}
    }
    let now = jiff::Timestamp::now();
    let rows = jobs
        .iter()
        .map(|job| Ok(api::read::<view::Job>(&api, job)?.row(now)))
        .collect::<anyhow::Result<_>>()?;
    screen::table(&view::Job::HEADING, rows)
}

/// Reads the number of a job from a command line.
pub(crate) fn number(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "a job's id is a whole number from 1; 'longshore ls' lists them".to_owned())
}

/// The number of a job.
pub(crate) fn id(api: &Api, job: &Value) -> anyhow::Result<u64> {
    job.get("id").and_then(Value::as_u64).ok_or_else(|| api.stranger().into())
}

/// Pages through the list, newest first, until there are enough; and whether there are more.
pub(crate) async fn gather(
    api: &Api,
    query: &[(&'static str, String)],
    enough: usize,
) -> anyhow::Result<(Vec<Value>, bool)> {
    let mut jobs: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let wanted = (enough - jobs.len()).min(PAGE_MAX);
        let mut request = api.fetch(&["api", "jobs"]).query(query).query(&[("limit", wanted)]);
        if let Some(cursor) = &cursor {
            request = request.query(&[("cursor", cursor)]);
        }
        let response = api.send(request).await?;
        cursor = response.headers().get(LINK).and_then(|link| next_cursor(link.to_str().ok()?));
        jobs.extend(api.decode::<Vec<Value>>(response).await?);
        let more = cursor.is_some() || jobs.len() > enough;
        jobs.truncate(enough);
        if cursor.is_none() || jobs.len() == enough {
            return Ok((jobs, more));
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

/// An instant as it is, or so long ago.
fn instant(text: &str) -> Result<String, String> {
    if text.parse::<jiff::Timestamp>().is_ok() {
        return Ok(text.to_owned());
    }
    let ago = duration::parse(text).map_err(|why| {
        format!("write an instant with its zone, such as 2026-03-01T09:30:00Z, or how long ago; {why}")
    })?;
    let then = jiff::Timestamp::now().checked_sub(ago).map_err(|error| error.to_string())?;
    Ok(format!("{then:.3}"))
}

/// The cursor in a `Link` header's `rel="next"`, if there is a next page.
fn next_cursor(link: &str) -> Option<String> {
    let next = link.split(',').find(|part| part.contains("rel=\"next\""))?;
    let target = next.split_once('<')?.1.split_once('>')?.0;
    // The target may be relative; any base will do to read its query.
    let url = reqwest::Url::parse("http://base/").ok()?.join(target).ok()?;
    url.query_pairs().find(|(key, _)| key == "cursor").map(|(_, value)| value.into_owned())
}

/// The server's own limit of a page.
const PAGE_MAX: usize = 500;

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
