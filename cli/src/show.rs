//! `longshore show`: one job with its attempts and everything that happened to it.

use crate::api::{Api, read};
use crate::screen::{self, Format};
use crate::{Asking, view, words};

/// Show one job: its attempts, and everything that happened to it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore show 12
  longshore show 12 -o json | jq .attempts")]
pub(crate) struct Flags {
    #[command(flatten)]
    asking: Asking,
    /// Which job.
    #[arg(value_name = "ID", value_parser = crate::jobs::number)]
    id: u64,
}

/// Shows a job.
pub(crate) async fn show(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.asking.door)?;
    let json = api.json(api.fetch(&["api", "jobs", &flags.id.to_string()])).await?;
    if flags.asking.format == Format::Json {
        return screen::json(&json);
    }
    let job: view::Job = read(&api, &json)?;
    let story: view::Story = read(&api, &json)?;
    facts(&job, &story)?;
    if !story.attempts.is_empty() {
        screen::line("")?;
        screen::table(
            &[">ATTEMPT", "WORKER", "OUTCOME", ">EXIT", ">RAN", "CONTAINER", "WHY"],
            attempts(&job, &story),
        )?;
    }
    if !story.timeline.is_empty() {
        screen::line("")?;
        screen::table(&["AT", "EVENT", ">ATTEMPT", "WORKER", ""], timeline(&story))?;
    }
    if story.late_reports_left_out > 0 {
        screen::line(&format!("and {} more late reports", story.late_reports_left_out))?;
    }
    Ok(())
}

/// What there is to know in a word or two, a line each.
fn facts(job: &view::Job, story: &view::Story) -> anyhow::Result<()> {
    let optional = |number: Option<u64>| number.map(|id| id.to_string()).unwrap_or_default();
    let state = if job.has_ended() { job.shown_end() } else { job.shown_state() };
    // How it ended tells why, but for an exit code.
    let why = Some(job.why()).filter(|why| !state.contains(why.as_str())).unwrap_or_default();
    let doubt =
        if job.is_in_doubt() { "no: its container may still run, until its worker is back" } else { "" };
    let facts = [
        ("job", job.id.to_string()),
        ("name", job.name.clone()),
        ("state", state),
        ("why", why),
        ("confirmed", doubt.to_owned()),
        ("cancel", story.cancel.as_deref().map(cancel_in_words).unwrap_or_default()),
        ("revision", story.revision.clone()),
        ("priority", story.priority.to_string()),
        ("accepted", job.created_at.clone()),
        ("started", job.started_at.clone().unwrap_or_default()),
        ("ended", job.ended_at.clone().unwrap_or_default()),
        ("timeout", story.timeout.as_ref().map(timeout_in_words).unwrap_or_default()),
        ("args", words::in_shell(&story.args)),
        ("environment", story.environment.join(" ")),
        ("labels", view::pairs(&story.labels)),
        ("batch", optional(story.batch)),
        ("retry of", optional(story.retry_of) + if story.retry_of_removed { ", removed since" } else { "" }),
        ("result", story.result.as_ref().map(ToString::to_string).unwrap_or_default()),
    ];
    screen::facts(&facts)
}

fn timeout_in_words(timeout: &serde_json::Value) -> String {
    match (timeout.as_i64(), timeout.as_str()) {
        (Some(ms), _) => crate::duration::show(ms),
        (_, word) => word.unwrap_or_default().to_owned(),
    }
}

fn cancel_in_words(word: &str) -> String {
    match word {
        "too_late" => "too late: what ended it had come first".to_owned(),
        other => view::in_words(other),
    }
}

fn attempts(job: &view::Job, story: &view::Story) -> Vec<Vec<String>> {
    let row = |attempt: &view::Attempt| {
        // The one that has not ended is what the job is doing.
        let outcome = attempt.outcome.as_deref().map_or_else(|| job.shown_state(), view::in_words);
        vec![
            attempt.number.to_string(),
            attempt.worker.shown(),
            outcome,
            attempt.exit_code.map(|code| code.to_string()).unwrap_or_default(),
            attempt.ran_ms.map(crate::duration::show).unwrap_or_default(),
            // Docker shows as many of a container's 64 digits.
            attempt.container.chars().take(12).collect(),
            attempt.message.clone(),
        ]
    };
    story.attempts.iter().map(row).collect()
}

fn timeline(story: &view::Story) -> Vec<Vec<String>> {
    let row = |event: &view::Event| {
        vec![
            event.at.clone(),
            view::in_words(&event.event),
            event.attempt.map(|number| number.to_string()).unwrap_or_default(),
            event.worker.as_ref().map(view::WorkerRef::shown).unwrap_or_default(),
            event.text.clone(),
        ]
    };
    story.timeline.iter().map(row).collect()
}
