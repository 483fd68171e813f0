//! Operations on all jobs that filters select: counted first, confirmed, and sent to the server in as many requests as it takes.

use std::io::IsTerminal as _;
use std::pin::pin;

use reqwest::Method;

use crate::api::{self, Api};
use crate::args::CommonArgs;
use crate::failure::{Exit, Failure};
use crate::jobs;
use crate::records;
use crate::screen::{self, Format};

/// Filters that select jobs instead of ids.
#[derive(Debug, clap::Args)]
pub(crate) struct Selection {
    #[command(flatten)]
    filters: jobs::Filters,
    /// Do not ask before the operation on the jobs that the filters select.
    #[arg(short = 'y', long)]
    pub(crate) yes: bool,
}

impl Selection {
    /// The query that selects the jobs; `None` if ids are given.
    pub(crate) fn query(
        &self,
        ids: &[u64],
        batch: Option<u64>,
    ) -> Result<Option<Vec<(&'static str, String)>>, Failure> {
        let mut query = self.filters.query();
        query.extend(batch.map(|batch| ("batch", batch.to_string())));
        match (ids.is_empty(), query.is_empty()) {
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
    verb: &str,
    query: &[(&'static str, String)],
    yes: bool,
) -> anyhow::Result<()> {
    apply(api, common, (&["api", "jobs", verb], verb), ("the filters select", query), yes).await
}

/// Applies an operation to the members of a batch.
pub(crate) async fn apply_to_batch(
    api: &Api,
    common: &CommonArgs,
    path: &[&str],
    verb: &str,
    yes: bool,
) -> anyhow::Result<()> {
    apply(api, common, (path, verb), ("the batch has", &[]), yes).await
}

async fn apply(
    api: &Api,
    common: &CommonArgs,
    (path, verb): (&[&str], &str),
    (selects, query): (&str, &[(&'static str, String)]),
    yes: bool,
) -> anyhow::Result<()> {
    if !yes {
        match count(api, path, query).await? {
            0 => {}
            count => confirm(verb, selects, count)?,
        }
    }
    let key = api::idempotency_key(None)?;
    let (mut total, mut cursor) = (BulkResult::default(), None::<String>);
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    loop {
        let request = api.request(Method::POST, path).query(query).header("idempotency-key", &key);
        let request = request.query(&cursor.take().map(|cursor| [("cursor", cursor)]));
        let answer = tokio::select! {
            answer = api.json(request) => answer?,
            _ = &mut interrupt => {
                total.print(verb, common.format)?;
                return Err(Failure::silent(Exit::Interrupted).into());
            }
        };
        cursor = total.add(api::parse(api, &answer)?);
        if cursor.is_none() {
            break;
        }
    }
    total.print(verb, common.format)?;
    if total.refused > 0 { Err(Failure::silent(Exit::Conflict).into()) } else { Ok(()) }
}

/// The number of jobs that a query selects.
async fn count(api: &Api, path: &[&str], query: &[(&'static str, String)]) -> anyhow::Result<u64> {
    let (mut matched, mut cursor) = (0, None::<String>);
    loop {
        let request = api.request(Method::POST, path).query(query).query(&[("dry_run", "1")]);
        let answer = api.json(request.query(&cursor.map(|cursor| [("cursor", cursor)]))).await?;
        let counted: BulkResult = api::parse(api, &answer)?;
        matched += counted.matched;
        cursor = counted.next;
        if cursor.is_none() {
            return Ok(matched);
        }
    }
}

/// Asks on a terminal before an operation on many jobs.
fn confirm(verb: &str, selects: &str, count: u64) -> anyhow::Result<()> {
    let jobs = if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") };
    if !std::io::stdin().is_terminal() {
        let text = format!("{selects} {jobs}; to {verb} them without a question, add --yes");
        return Err(Failure::new(Exit::Usage, text).into());
    }
    screen::note(&format!("{verb} {jobs}? [y/N]"));
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
struct BulkResult {
    matched: u64,
    done: u64,
    stopping: u64,
    refused: u64,
    refusals: Vec<Refusal>,
    jobs: Vec<u64>,
    #[serde(skip_serializing)]
    next: Option<String>,
}

#[derive(Debug, serde::Deserialize, serde::Serialize)]
struct Refusal {
    job: u64,
    code: String,
    detail: String,
}

impl BulkResult {
    /// Adds a further answer; returns the cursor of the next request.
    fn add(&mut self, other: Self) -> Option<String> {
        self.matched += other.matched;
        self.done += other.done;
        self.stopping += other.stopping;
        self.refused += other.refused;
        self.refusals.extend(other.refusals.into_iter().take(REFUSALS_SHOWN - self.refusals.len()));
        self.jobs.extend(other.jobs);
        other.next
    }

    fn print(&self, verb: &str, format: Format) -> anyhow::Result<()> {
        if format == Format::Name {
            return self.jobs.iter().try_for_each(|job| screen::line(&job.to_string()));
        }
        if records::print(format, &serde_json::to_value(self)?, "jobs")? {
            return Ok(());
        }
        for Refusal { job, detail, .. } in &self.refusals {
            screen::note(&format!("longshore: job {job}: {detail}"));
        }
        screen::line(&self.summary(verb))
    }

    fn summary(&self, verb: &str) -> String {
        let done = match verb {
            "cancel" => "cancelled",
            "retry" => "retried",
            _ => "released",
        };
        let mut parts = vec![format!("{} {done}", self.done)];
        if self.stopping > 0 {
            parts.push(format!("{} being stopped", self.stopping));
        }
        if self.refused > 0 {
            parts.push(format!("{} refused", self.refused));
        }
        format!("{} of {} jobs", parts.join(", "), self.matched)
    }
}

/// Refusals that are shown; the server shows as many of each request.
const REFUSALS_SHOWN: usize = 20;
