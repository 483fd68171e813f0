//! `longshore pause` and `resume`: jobs and schedules of a definition, of a group, or of the whole server.

use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::api::{self, Api};
use crate::args::CommonArgs;
use crate::failure::{Exit, Failure};
use crate::records;
use crate::screen::{self, Format};
use crate::view;

/// The jobs and schedules to pause or resume.
#[derive(Debug, clap::Args)]
struct TargetArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// The definition.
    #[arg(value_name = "NAME", value_parser = crate::args::parse_definition_name, add = crate::completions::definitions())]
    name: Option<String>,
    /// Only the schedule with this id; jobs go on.
    #[arg(long, value_name = "ID", requires = "name")]
    schedule: Option<String>,
    /// The definitions whose concurrency names this group.
    #[arg(long, value_name = "GROUP", conflicts_with = "name")]
    group: Option<String>,
    /// The schedules of all definitions; jobs go on.
    #[arg(long, conflicts_with_all = ["name", "group"])]
    schedules: bool,
    /// Everything: the jobs and schedules of all definitions.
    #[arg(long, conflicts_with_all = ["name", "group", "schedules"])]
    all: bool,
}

/// Let jobs wait and schedules skip their slots until they are resumed, or until a time; what runs goes on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore pause report
  longshore pause report --schedule monday
  longshore pause --group db-main --for 2h
  longshore pause report --until 2026-12-01T06:00Z
  longshore pause --all --reason 'the database moves'")]
pub(crate) struct PauseFlags {
    #[command(flatten)]
    target: TargetArgs,
    /// The pause ends by itself after this time: 90s, 2h or 3d, at most 366d. Without an end it lasts until the resume.
    #[arg(long = "for", value_name = "DURATION", conflicts_with = "until")]
    lasts: Option<String>,
    /// The pause ends by itself at this time (RFC 3339, with its zone), within 366 days.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Why; kept with your name and the time, and shown wherever the pause is. A later pause of the same replaces the end, and the reason if it has one.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Let paused jobs start and paused schedules fire again. Skipped slots are not made up for.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore resume report
  longshore resume --group db-main
  longshore resume --all")]
pub(crate) struct ResumeFlags {
    #[command(flatten)]
    target: TargetArgs,
}

/// Pauses jobs and schedules.
pub(crate) async fn pause(flags: PauseFlags) -> anyhow::Result<()> {
    let PauseFlags { target, lasts, until, reason } = flags;
    let done = match (&lasts, &until) {
        (Some(lasts), _) => format!("paused for {lasts}"),
        (None, Some(until)) => format!("paused until {until}"),
        (None, None) => "paused".to_owned(),
    };
    let given = [("for", lasts), ("until", until), ("reason", reason)];
    let body: Map<String, Value> =
        given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))).collect();
    let body = (!body.is_empty()).then_some(Value::Object(body));
    perform(target, body, "pause", &screen::visible(&done)).await
}

/// Resumes jobs and schedules.
pub(crate) async fn resume(flags: ResumeFlags) -> anyhow::Result<()> {
    perform(flags.target, None, "resume", "resumed").await
}

async fn perform(target: TargetArgs, body: Option<Value>, verb: &str, done: &str) -> anyhow::Result<()> {
    let api = Api::new(&target.common.server_args)?;
    let path: Vec<&str> = match &target.name {
        Some(name) => vec!["api", "definitions", name, verb],
        None if target.schedules => vec!["api", "schedules", verb],
        None if target.all || target.group.is_some() => vec!["api", verb],
        None => {
            let text =
                format!("{verb} what? Give the name of a definition, --group GROUP, --schedules or --all");
            return Err(Failure::new(Exit::Usage, text).into());
        }
    };
    let chosen = target.schedule.as_ref().map(|id| ("schedule", id));
    let chosen = chosen.or(target.group.as_ref().map(|group| ("group", group)));
    let request = api.request(Method::POST, &path).query(&chosen.map(|pair| [pair]));
    let request = match &body {
        Some(body) => request.json(body),
        None => request,
    };
    let answer = api.send(request).await?;
    let is_changed = !answer.headers().contains_key(UNCHANGED);
    let (name, id, group) = (target.name.as_deref(), target.schedule.as_deref(), target.group.as_deref());
    let state = if verb == "pause" { "paused" } else { "resumed" };
    let shown =
        json!({ "name": name, "schedule": id, "group": group, "state": state, "changed": is_changed });
    // The server and all schedules have no name that a command takes.
    let key = if group.is_some() { "group" } else { "name" };
    let has_name = name.is_some() || group.is_some();
    if (target.common.format == Format::Name && !has_name)
        || records::print(target.common.format, &shown, key)?
    {
        return Ok(());
    }
    let what = match (name, id, group) {
        (Some(name), Some(id), _) => format!("{name}/{id}"),
        (Some(name), None, _) => name.to_owned(),
        (None, _, Some(group)) => format!("group {group}"),
        (None, _, None) if target.schedules => "all schedules".to_owned(),
        (None, _, None) => "all jobs and schedules".to_owned(),
    };
    let was = if name.is_some() || group.is_some() { "was" } else { "were" };
    let done = match (is_changed, verb) {
        (true, _) => done.to_owned(),
        (false, "pause") => format!("{was} {done} already"),
        (false, _) => format!("{was} not paused"),
    };
    screen::line(&format!("{} {done}", screen::visible(&what)))?;
    match name {
        Some(name) if id.is_none() && verb == "resume" => warn_of_others(&api, name).await,
        _ => Ok(()),
    }
}

/// The header of the answer if nothing had to be done.
const UNCHANGED: &str = "pause-unchanged";

/// Says what else keeps the jobs of a definition from their starts. It may have left jobs.yaml.
async fn warn_of_others(api: &Api, name: &str) -> anyhow::Result<()> {
    let Ok(json) = api.json(api.get(&["api", "definitions", name])).await else { return Ok(()) };
    let definition: view::Definition = api::parse(api, &json)?;
    for pause in &definition.pauses {
        screen::note(&format!("{name} still waits: {} is paused{}", pause.words(), pause.why()));
    }
    Ok(())
}
