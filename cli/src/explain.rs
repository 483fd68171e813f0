//! `longshore explain`: shows why a job is not running, and for each worker why it does not take the job.

use crate::api::{Api, parse};
use crate::args::CommonArgs;
use crate::duration;
use crate::records;
use crate::screen;
use crate::view::{Explanation, Verdict, in_words};

/// Show why a job is not running, and what prevents each worker from taking it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore explain 12
  longshore explain 12 -o json | jq -r '.workers[] | select(.verdict == \"able\") | .worker.name'")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// Id of the job.
    #[arg(value_name = "ID", value_parser = crate::jobs::parse_job_id)]
    id: u64,
}

/// Explains a job.
pub(crate) async fn explain(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let json = api.json(api.get(&["api", "jobs", &flags.id.to_string(), "explain"])).await?;
    if records::print_list(flags.common.format, &json, "workers", "worker")? {
        return Ok(());
    }
    let explanation: Explanation = parse(&api, &json)?;
    let why = format!(
        "job {} ({}) is {}: {}",
        flags.id, explanation.name, explanation.state, explanation.reason.text
    );
    screen::line(&screen::visible(&why))?;
    for line in wait_lines(&explanation) {
        screen::line(&screen::visible(&line))?;
    }
    if explanation.workers.is_empty() {
        return Ok(());
    }
    screen::line("")?;
    let row = |verdict: &Verdict| {
        vec![
            verdict.worker.id.to_string(),
            verdict.worker.name.clone(),
            in_words(&verdict.verdict),
            verdict.text.to_string(),
        ]
    };
    screen::table(&[">ID", "WORKER", "VERDICT", "WHY"], explanation.workers.iter().map(row).collect())
}

/// The position of a waiting job in its lane, and the estimate of its wait.
fn wait_lines(explanation: &Explanation) -> Vec<String> {
    let position = explanation.position_in_words().map(|position| format!("position {position}"));
    let estimate = explanation.estimate.as_ref().map(|estimate| {
        let wait = duration::show(i64::try_from(estimate.wait_ms).unwrap_or(i64::MAX));
        format!("starts in about {wait}, if {}", estimate.text)
    });
    position.into_iter().chain(estimate).collect()
}
