//! `longshore show`: one job with its attempts and its timeline.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::api::{Api, parse};
use crate::args::CommonArgs;
use crate::job_refs::{self, JobRef};
use crate::records;
use crate::screen;
use crate::view::{
    self, Attempt, Dependency, Event, FullJob, Hook, JobView as _, Members, Parent, Timeout,
    WorkerRefView as _,
};
use crate::{duration, quoting};

/// Show one job with its attempts and its timeline.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore show 12
  longshore show '1064[3]'          the member with the index 3 of batch 1064
  longshore show 12 -o json | jq .attempts")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// Id of the job, or a member of a batch by its index, as `1064[3]`; in quotes, because shells expand brackets.
    #[arg(value_name = "ID", value_parser = job_refs::parse_one)]
    id: JobRef,
}

/// Shows a job.
pub(crate) async fn show(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let id = flags.id.id(&api).await?;
    let json = api.json(api.get(&["api", "jobs", &id.to_string()])).await?;
    if records::print(flags.common.format, &json, "id")? {
        return Ok(());
    }
    let details: FullJob = parse(&api, &json)?;
    print_facts(&details)?;
    if !details.attempts.is_empty() {
        screen::line("")?;
        screen::table(
            &[">ATTEMPT", "WORKER", "OUTCOME", ">EXIT", ">RAN", "CONTAINER", "WHY"],
            attempts(&details),
        )?;
    }
    for attempt in &details.attempts {
        if let Some(cut) = attempt.output.and_then(|output| output.cut_in_words()) {
            screen::line(&format!("output of attempt {} {cut}", attempt.number))?;
        }
    }
    let used = resources(&details);
    if !used.is_empty() {
        screen::line("")?;
        screen::table(&[">ATTEMPT", ">CPU", ">MEMORY", ">RECEIVED", ">SENT", ">READ", ">WRITTEN"], used)?;
    }
    if !details.timeline.is_empty() {
        screen::line("")?;
        screen::table(&["AT", "EVENT", ">ATTEMPT", "WORKER", ""], timeline(&details))?;
    }
    if details.late_reports_left_out.unwrap_or_default() > 0 {
        screen::line(&format!(
            "and {} more late reports",
            details.late_reports_left_out.unwrap_or_default()
        ))?;
    }
    Ok(())
}

/// Prints the short facts of a job, a line each.
fn print_facts(details: &FullJob) -> anyhow::Result<()> {
    let job = &details.job;
    let optional = |number: Option<u64>| number.map(|id| id.to_string()).unwrap_or_default();
    let state = if job.has_ended() { job.end_text() } else { job.state_text() };
    // The end usually contains the reason.
    let why = Some(job.reason_text_at(jiff::Timestamp::now()))
        .filter(|why| !state.contains(why.as_str()))
        .unwrap_or_default();
    let unconfirmed =
        if job.is_unconfirmed() { "no: the container may still run until its worker reconnects" } else { "" };
    let attention = if job.unresolved { "unresolved: not retried, and not acknowledged" } else { "" };
    let facts = [
        ("job", job.id.to_string()),
        ("name", job.name.clone()),
        ("state", state),
        ("why", why),
        ("attention", attention.to_owned()),
        ("acknowledged", job.acknowledged.as_ref().map(|it| it.words()).unwrap_or_default()),
        ("confirmed", unconfirmed.to_owned()),
        ("cancel", details.cancel.as_deref().map(cancel_in_words).unwrap_or_default()),
        ("revision", job.revision.clone()),
        ("priority", job.priority.to_string()),
        ("asks for", job.asks_for_in_words()),
        ("accepted", job.created_at.to_string()),
        ("made by", view::optional(job.submitted_by.as_ref())),
        ("schedule", view::optional(job.schedule.as_ref())),
        ("slot", view::optional(job.scheduled_at.as_ref())),
        ("parent's slot", view::optional(details.parent_scheduled_at.as_ref())),
        ("started", view::optional(job.started_at.as_ref())),
        ("ended", view::optional(job.ended_at.as_ref())),
        ("timeout", job.timeout.map(timeout_in_words).unwrap_or_default()),
        ("params", params_in_words(&details.params)),
        ("args", quoting::shell_join(&details.args)),
        (
            "input",
            details.input.as_ref().map(|input| view::shortened(&input.to_string(), 80)).unwrap_or_default(),
        ),
        ("environment", details.environment.join(" ")),
        ("labels", view::pairs(&job.labels)),
        ("batch", optional(job.batch)),
        ("index", optional(details.index)),
        ("member of", optional(job.member_of)),
        (
            "members",
            job.members.as_ref().map(|members| members_in_words(job.id, members)).unwrap_or_default(),
        ),
        ("retry of", optional(job.retry_of) + if details.retry_of_removed { ", removed since" } else { "" }),
        ("retried as", retried_as_in_words(details)),
        ("parent", details.parent.as_ref().map(parent_in_words).unwrap_or_default()),
        ("hooks", details.hooks.iter().map(hook_in_words).collect::<Vec<_>>().join("; ")),
        ("after", dependencies_in_words(&details.after)),
        ("before", dependencies_in_words(&details.dependents)),
        ("result", details.result.as_ref().map(ToString::to_string).unwrap_or_default()),
    ];
    screen::fields(&facts)
}

/// The retry of a job and how it stands; empty if there is none.
fn retried_as_in_words(details: &FullJob) -> String {
    let state = details.retried_as_state.as_deref().map(|state| format!(" ({state})")).unwrap_or_default();
    details.retried_as.map(|retry| format!("{retry}{state}")).unwrap_or_default()
}

fn members_in_words(job: u64, members: &Members) -> String {
    let kinds = [
        (members.live, "live"),
        (members.succeeded, "succeeded"),
        (members.failed, "failed"),
        (members.cancelled, "cancelled"),
        (members.expired, "expired"),
        (members.lost, "lost"),
    ];
    let counts = kinds.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, name)| format!("{count} {name}")).collect();
    let so_far = if members.complete { "" } else { " so far" };
    format!("{}{so_far}: {}; longshore ls --member-of {job} lists them", members.total, counts.join(", "))
}

fn parent_in_words(parent: &Parent) -> String {
    format!("job {} ({})", parent.job, parent.hook)
}

pub(crate) fn dependencies_in_words(dependencies: &[Dependency]) -> String {
    let text = |it: &Dependency| {
        let state = it.state.as_deref().map_or_else(|| "removed since".to_owned(), view::in_words);
        let outcome = if it.outcome == "succeeded" { String::new() } else { format!(" if {}", it.outcome) };
        match (it.job, it.batch) {
            (_, Some(batch)) => format!("batch {batch}{outcome} ({state})"),
            (job, None) => format!("job {}{outcome} ({state})", job.unwrap_or_default()),
        }
    };
    dependencies.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn hook_in_words(hook: &Hook) -> String {
    let result = match (hook.job, &hook.left_out) {
        (Some(job), _) => format!("job {job}, {}", hook.state.as_deref().unwrap_or("removed since")),
        (None, Some(reason)) => format!("left out, {}", reason.text),
        (None, None) => "left out".to_owned(),
    };
    format!("{} {}: {result}", hook.hook, hook.name)
}

fn params_in_words(params: &BTreeMap<String, Value>) -> String {
    let pair = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name}={text}"),
        other => format!("{name}={other}"),
    };
    quoting::shell_join(&params.iter().map(pair).collect::<Vec<_>>())
}

fn timeout_in_words(timeout: Timeout) -> String {
    match timeout {
        Timeout::After(time) => duration::show(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)),
        Timeout::Never => "none".to_owned(),
    }
}

fn cancel_in_words(word: &str) -> String {
    match word {
        "too_late" => "too late: the job had ended before".to_owned(),
        other => view::in_words(other),
    }
}

/// The resources of attempts that were measured; an unknown figure is empty.
fn resources(details: &FullJob) -> Vec<Vec<String>> {
    let bytes = |figure: Option<u64>| figure.map(screen::size).unwrap_or_default();
    let row = |attempt: &Attempt| {
        let usage = attempt.usage?;
        Some(vec![
            attempt.number.to_string(),
            view::running_time(usage.cpu_ms),
            bytes(usage.memory_peak_bytes),
            bytes(usage.network_received_bytes),
            bytes(usage.network_sent_bytes),
            bytes(usage.disk_read_bytes),
            bytes(usage.disk_written_bytes),
        ])
    };
    details.attempts.iter().filter_map(row).collect()
}

fn attempts(details: &FullJob) -> Vec<Vec<String>> {
    let row = |attempt: &Attempt| {
        // The attempt that has not ended has the state of the job.
        let outcome = attempt.outcome.as_deref().map_or_else(|| details.job.state_text(), view::in_words);
        vec![
            attempt.number.to_string(),
            attempt.worker.label(),
            outcome,
            attempt.exit_code.map(|code| code.to_string()).unwrap_or_default(),
            view::running_time(attempt.ran_ms),
            // Docker prints 12 of the 64 digits, too.
            attempt.container.chars().take(12).collect(),
            attempt.message.clone(),
        ]
    };
    details.attempts.iter().map(row).collect()
}

fn timeline(details: &FullJob) -> Vec<Vec<String>> {
    let row = |event: &Event| {
        vec![
            event.at.to_string(),
            view::in_words(&event.event),
            event.attempt.map(|number| number.to_string()).unwrap_or_default(),
            event.worker.as_ref().map(|worker| worker.label()).unwrap_or_default(),
            event.text.clone(),
        ]
    };
    details.timeline.iter().map(row).collect()
}
