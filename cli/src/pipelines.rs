//! `longshore pipeline`: shows jobs that come after one another, and repeats those that have not succeeded.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reqwest::Method;
use serde_json::Map;

use crate::api::{Api, parse};
use crate::args::CommonArgs;
use crate::batches;
use crate::duration;
use crate::job_refs::{self, JobRef};
use crate::jobs;
use crate::outage::{Awaited, Outage, until_answered};
use crate::records;
use crate::screen;
use crate::view::{Dependency, Pipeline, PipelineJob, in_words};

/// Show the jobs before and after a job, or run those again that have not succeeded.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore pipeline 12                the jobs that come before and after job 12, as a tree
  longshore pipeline 12 retry          run again what failed and what was left out after it, in the same order
  longshore pipeline 12 retry --wait   and wait for the end of all of them
  longshore pipeline 12 -o json | jq -r '.jobs[] | select(.state == \"failed\") | .id'

A pipeline is made by 'longshore run --after', by 'longshore submit', or by \"after\" in a request.")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// Id of one of its jobs, or a member of a batch by its index, as `1064[3]`; in quotes, because shells expand brackets.
    #[arg(value_name = "ID", value_parser = job_refs::parse_one)]
    id: JobRef,
    /// An operation on its jobs.
    #[arg(value_name = "OPERATION")]
    operation: Option<Operation>,
    /// For retry: use the current definitions, or the revisions that the jobs were made with.
    #[arg(long, value_name = "WHICH", default_value = "current", value_parser = ["current", "original"])]
    revision: String,
    /// For retry: wait until the new batch has ended, at most this long. Exit with 1 if it has not succeeded, with 124 if the time is up.
    #[arg(short = 'w', long, value_name = "DURATION", num_args = 0..=1, require_equals = true, requires = "operation", value_parser = duration::parse)]
    wait: Option<Option<Duration>>,
    /// For retry: print only the number of the new batch. With --wait only the exit code tells how it ended.
    #[arg(short = 'q', long, requires = "operation")]
    quiet: bool,
}

/// An operation on the jobs of a pipeline.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Operation {
    /// Run the jobs again that have not succeeded.
    Retry,
}

/// Shows a pipeline or repeats a part of it.
pub(crate) async fn pipeline(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let mut outage = flags.wait.map(Outage::before_first_answer);
    // An id alone needs no request, and is no answer of the server.
    let asked = outage.as_mut().filter(|_| flags.id.needs_request());
    let id = until_answered(asked, Awaited::Nothing, async || flags.id.id(&api).await).await?.to_string();
    if let Some(Operation::Retry) = flags.operation {
        let request = api.request(Method::POST, &["api", "jobs", &id, "pipeline", "retry"]);
        let request = request.query(&[("revision", &flags.revision)]);
        let output = batches::Output { format: flags.common.format, quiet: flags.quiet, wait: flags.wait };
        return batches::submit(&api, request, None, &output, outage).await;
    }
    let json = api.json(api.get(&["api", "jobs", &id, "pipeline"])).await?;
    if records::print_list(flags.common.format, &json, "jobs", "id")? {
        return Ok(());
    }
    let pipeline: Pipeline = parse(&api, &json)?;
    for line in tree(&pipeline.jobs) {
        screen::line(&screen::visible(&line))?;
    }
    if pipeline.truncated {
        screen::note("longshore: the pipeline has more jobs; ask with another job of it");
    }
    Ok(())
}

/// The jobs as a tree. Each is below the first job that it comes after; the other ones stand at the end of its line.
fn tree(jobs: &[PipelineJob]) -> Vec<String> {
    let known: BTreeSet<u64> = jobs.iter().map(|job| job.id).collect();
    let mut below: BTreeMap<Option<u64>, Vec<&PipelineJob>> = BTreeMap::new();
    for job in jobs {
        let first = job.after.iter().filter_map(|it| it.job).find(|on| known.contains(on));
        below.entry(first).or_default().push(job);
    }
    let mut lines = Vec::new();
    let mut open: Vec<(&PipelineJob, Option<u64>, String, &str)> = Vec::new();
    let roots = below.remove(&None).unwrap_or_default();
    open.extend(roots.into_iter().rev().map(|job| (job, None, String::new(), "")));
    while let Some((job, parent, indent, branch)) = open.pop() {
        lines.push(format!("{indent}{branch}{}", text_of(job, parent)));
        let indent = match branch {
            "" => String::new(),
            LAST => format!("{indent}   "),
            _ => format!("{indent}│  "),
        };
        let children = below.remove(&Some(job.id)).unwrap_or_default();
        let last = children.len().saturating_sub(1);
        let branches = children.into_iter().enumerate().rev();
        open.extend(
            branches.map(|(at, child)| {
                (child, Some(job.id), indent.clone(), if at == last { LAST } else { "├─ " })
            }),
        );
    }
    lines
}

const LAST: &str = "└─ ";

/// The line of a job that stands below the job `parent`, or at the left if no job that it comes after is known.
fn text_of(job: &PipelineJob, parent: Option<u64>) -> String {
    let mut text = format!("{} {} {}", job.id, job.name, in_words(&job.state));
    if let Some(of) = job.retry_of {
        text += &format!(", retry of {of}");
    }
    if let Some(retry) = job.retried_as {
        let state = job.retried_as_state.as_deref().map(in_words).unwrap_or_default();
        text += &format!(", retried as {retry} ({state})");
    }
    let special =
        |outcome: &str| if outcome == "succeeded" { String::new() } else { format!(" if {outcome}") };
    let (above, others): (Vec<_>, Vec<_>) =
        job.after.iter().partition(|it| it.job.is_some() && it.job == parent);
    for dependency in above {
        text += &special(&dependency.outcome);
    }
    let on = |it: &Dependency| match it.batch {
        Some(batch) => {
            let state = it.state.as_deref().map_or_else(|| "removed since".to_owned(), in_words);
            format!("batch {batch} ({state})")
        }
        None => it.job.map(|job| job.to_string()).unwrap_or_default(),
    };
    let others: Vec<String> = others.iter().map(|it| format!("{}{}", on(it), special(&it.outcome))).collect();
    if !others.is_empty() {
        let also = if parent.is_some() { "also " } else { "" };
        text += &format!(", {also}after {}", others.join(", "));
    }
    text
}

/// Reads `12`, `12:failed`, `batch:100` or `batch:100:ended` as an entry of `after`.
///
/// # Errors
/// A text for people.
pub(crate) fn parse_after(text: &str) -> Result<serde_json::Value, String> {
    let (kind, rest) = text.strip_prefix("batch:").map_or(("job", text), |rest| ("batch", rest));
    let (id, outcome) = rest.split_once(':').unwrap_or((rest, "succeeded"));
    let id = match kind {
        "batch" => batches::parse_id(id)
            .map_err(|_| "a batch is written batch:100; 'longshore batches' lists them".to_owned())?,
        _ => jobs::parse_job_id(id)?,
    };
    if !["succeeded", "failed", "not_succeeded", "ended"].contains(&outcome) {
        return Err("after the colon: succeeded, failed, not_succeeded or ended".to_owned());
    }
    let fields = [(kind.to_owned(), id.into()), ("outcome".to_owned(), outcome.into())];
    Ok(Map::from_iter(fields).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u64, name: &str, after: &[(u64, &'static str)]) -> PipelineJob {
        let on = |(job, outcome): &(u64, &'static str)| Dependency {
            job: Some(*job),
            outcome: (*outcome).into(),
            ..Dependency::default()
        };
        PipelineJob {
            id,
            name: name.into(),
            state: "queued".into(),
            after: after.iter().map(on).collect(),
            ..PipelineJob::default()
        }
    }

    #[test]
    fn a_job_is_shown_once_below_the_first_that_it_comes_after() {
        let jobs = [
            job(1, "fetch", &[]),
            job(2, "left", &[(1, "succeeded")]),
            job(3, "right", &[(1, "ended")]),
            job(4, "join", &[(2, "succeeded"), (3, "failed")]),
        ];
        let expected = [
            "1 fetch queued",
            "├─ 2 left queued",
            "│  └─ 4 join queued, also after 3 if failed",
            "└─ 3 right queued if ended",
        ];
        assert_eq!(tree(&jobs), expected);
    }

    #[test]
    fn jobs_that_are_not_in_the_answer_are_named_behind_it() {
        let jobs = [
            job(2, "left", &[]),
            job(3, "join", &[(1, "succeeded"), (2, "failed")]),
            job(4, "alone", &[(1, "ended")]),
        ];
        let expected =
            ["2 left queued", "└─ 3 join queued if failed, also after 1", "4 alone queued, after 1 if ended"];
        assert_eq!(tree(&jobs), expected);
    }

    #[test]
    fn a_batch_is_named_with_its_state() {
        let mut report = job(9, "report", &[(2, "succeeded")]);
        let ended = Dependency {
            batch: Some(3),
            outcome: "ended".into(),
            state: Some("running".into()),
            ..Dependency::default()
        };
        report.after.push(ended);
        let jobs = [job(2, "left", &[]), report];
        assert_eq!(
            tree(&jobs),
            ["2 left queued", "└─ 9 report queued, also after batch 3 (running) if ended"]
        );
    }

    #[test]
    fn an_entry_of_after_may_say_the_outcome() {
        assert_eq!(parse_after("12").unwrap(), serde_json::json!({"job": 12, "outcome": "succeeded"}));
        assert_eq!(parse_after("7:failed").unwrap()["outcome"], "failed");
        assert_eq!(parse_after("7:not_succeeded").unwrap()["outcome"], "not_succeeded");
        assert_eq!(parse_after("batch:7").unwrap(), serde_json::json!({"batch": 7, "outcome": "succeeded"}));
        assert_eq!(parse_after("batch:7:ended").unwrap()["outcome"], "ended");
        assert!(parse_after("batch:x").unwrap_err().contains("written batch:100"));
        assert!(parse_after("x").is_err() && parse_after("7:lost").is_err());
    }
}
