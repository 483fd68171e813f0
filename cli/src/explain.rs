//! `longshore explain`: why a job is where it is, and what each worker has against taking it.

use serde::Deserialize;

use crate::Asking;
use crate::api::{Api, read};
use crate::screen::{self, Format};
use crate::view::{Reason, WorkerRef, in_words};

/// Say why a job is not running, and what keeps each worker from it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore explain 12
  longshore explain 12 -o json | jq -r '.workers[] | select(.verdict == \"able\") | .worker.name'")]
pub(crate) struct Flags {
    #[command(flatten)]
    asking: Asking,
    /// Which job.
    #[arg(value_name = "ID", value_parser = crate::jobs::number)]
    id: u64,
}

/// What is told about a job.
#[derive(Debug, Deserialize)]
struct Explanation {
    name: String,
    state: String,
    reason: Reason,
    workers: Vec<Verdict>,
}

/// What one worker could do for it.
#[derive(Debug, Deserialize)]
struct Verdict {
    worker: WorkerRef,
    verdict: String,
    text: String,
}

/// Explains a job.
pub(crate) async fn explain(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.asking.door)?;
    let json = api.json(api.fetch(&["api", "jobs", &flags.id.to_string(), "explain"])).await?;
    if flags.asking.format == Format::Json {
        return screen::json(&json);
    }
    let told: Explanation = read(&api, &json)?;
    let why = format!("job {} ({}) is {}: {}", flags.id, told.name, told.state, told.reason.text);
    screen::line(&screen::visible(&why))?;
    if told.workers.is_empty() {
        return Ok(());
    }
    screen::line("")?;
    let row = |it: &Verdict| {
        vec![it.worker.id.to_string(), it.worker.name.clone(), in_words(&it.verdict), it.text.clone()]
    };
    screen::table(&[">ID", "WORKER", "VERDICT", "WHY"], told.workers.iter().map(row).collect())
}
