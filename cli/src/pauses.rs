//! `longshore pause`, `resume` and `pauses`: jobs and schedules of a definition, of a group, or of the whole server, and the members of a batch.

use reqwest::Method;
use serde_json::{Value, json};
use server::http::present::shapes::{Pause, PauseResult};

use crate::api::{self, Api};
use crate::args::CommonArgs;
use crate::end_args::EndArgs;
use crate::failure::{Exit, Failure};
use crate::records;
use crate::screen::{self, Format};

/// The jobs and schedules to pause or resume.
#[derive(Debug, clap::Args)]
struct TargetArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// The definition, or a batch as batch:ID.
    #[arg(value_name = "NAME", value_parser = parse_name, add = crate::completions::definitions())]
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

impl TargetArgs {
    /// The path of the request.
    ///
    /// # Errors
    /// Nothing is named.
    fn path<'a>(&'a self, verb: &'a str) -> Result<Vec<&'a str>, Failure> {
        Ok(match &self.name {
            Some(_) if self.batch().is_some() && self.schedule.is_some() => {
                return Err(Failure::new(Exit::Usage, "a batch has no schedules: leave --schedule out"));
            }
            Some(name) => match self.batch() {
                Some(batch) => vec!["api", "batches", batch, verb],
                None => vec!["api", "definitions", name, verb],
            },
            None if self.schedules => vec!["api", "schedules", verb],
            None if self.all || self.group.is_some() => vec!["api", verb],
            None => {
                let text = format!(
                    "{verb} what? Give the name of a definition, batch:ID, --group GROUP, --schedules or --all"
                );
                return Err(Failure::new(Exit::Usage, text));
            }
        })
    }

    /// The number of the batch, if the target is one.
    fn batch(&self) -> Option<&str> {
        self.name.as_deref()?.strip_prefix(BATCH)
    }
}

/// Stands before the number of a batch. No definition has a colon in its name.
const BATCH: &str = "batch:";

/// Parses the name of a definition, or `batch:12`.
fn parse_name(text: &str) -> Result<String, String> {
    match text.strip_prefix(BATCH) {
        Some(id) => crate::batches::parse_id(id).map(|id| format!("{BATCH}{id}")),
        None => crate::args::parse_definition_name(text),
    }
}

/// Let jobs wait and schedules skip their slots until they are resumed, or until a time; what runs goes on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore pause report
  longshore pause report --schedule monday
  longshore pause --group db-main --for 2h
  longshore pause batch:17 --reason 'the input is wrong'
  longshore pause report --until 'monday 06:00'
  longshore pause report --until '2026-12-01 06:00' --timezone Europe/Berlin
  longshore pause --all --reason 'the database moves'")]
pub(crate) struct PauseFlags {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    end: EndArgs,
    /// Why; kept with your name and the time, and shown wherever the pause is. A later pause of the same replaces the end, the name and the reason, also by none.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Let paused jobs start and paused schedules fire again. Skipped slots are not made up for.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore resume report
  longshore resume --group db-main
  longshore resume batch:17
  longshore resume --all")]
pub(crate) struct ResumeFlags {
    #[command(flatten)]
    target: TargetArgs,
}

/// List what is paused: since when, until when, by whom and why.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore pauses
  longshore pauses -o json")]
pub(crate) struct ListFlags {
    #[command(flatten)]
    common: CommonArgs,
}

/// Lists pauses.
pub(crate) async fn list(flags: ListFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let json = api.json(api.get(&["api", "pauses"])).await?;
    if flags.common.format != Format::Name && records::print(flags.common.format, &json, "of")? {
        return Ok(());
    }
    let pauses: Vec<Pause> = api::parse(&api, &json)?;
    if flags.common.format == Format::Name {
        return pauses.iter().try_for_each(|pause| screen::line(&screen::visible(&argument_for(pause))));
    }
    let row = |pause: &Pause| {
        vec![
            pause.words(),
            pause.since.map(|at| at.to_string()).unwrap_or_default(),
            pause.until.map(|at| at.to_string()).unwrap_or_default(),
            pause.by.clone().unwrap_or_default(),
            pause.reason.clone().unwrap_or_default(),
        ]
    };
    screen::table(&["PAUSE OF", "SINCE", "UNTIL", "BY", "REASON"], pauses.iter().map(row).collect())
}

/// The words of `longshore resume` that end a pause.
fn argument_for(pause: &Pause) -> String {
    let name = pause.name.as_deref().unwrap_or_default();
    match (&*pause.of, &pause.schedule) {
        ("server", _) => "--all".to_owned(),
        ("schedules", _) => "--schedules".to_owned(),
        ("group", _) => format!("--group {name}"),
        ("batch", _) => format!("{BATCH}{}", pause.batch.unwrap_or_default()),
        (_, Some(schedule)) => format!("{name} --schedule {schedule}"),
        _ => name.to_owned(),
    }
}

/// Pauses jobs and schedules.
pub(crate) async fn pause(flags: PauseFlags) -> anyhow::Result<()> {
    let PauseFlags { target, end, reason } = flags;
    target.path("pause")?;
    let end = end.read()?;
    let done = format!("paused{}", end.words());
    perform(target, end.body(reason), "pause", &done).await
}

/// Resumes jobs and schedules.
pub(crate) async fn resume(flags: ResumeFlags) -> anyhow::Result<()> {
    perform(flags.target, None, "resume", "resumed").await
}

async fn perform(target: TargetArgs, body: Option<Value>, verb: &str, done: &str) -> anyhow::Result<()> {
    let api = Api::new(&target.common.server_args)?;
    let path = target.path(verb)?;
    let chosen = target.schedule.as_ref().map(|id| ("schedule", id));
    let chosen = chosen.or(target.group.as_ref().map(|group| ("group", group)));
    let request = api.request(Method::POST, &path).query(&chosen.map(|pair| [pair]));
    let request = request.header("prefer", "return=representation");
    let request = match &body {
        Some(body) => request.json(body),
        None => request,
    };
    let answer = api.send(request).await?;
    let is_changed = !answer.headers().contains_key(UNCHANGED);
    // A server of an earlier version does not know the preference.
    let result = match answer.headers().contains_key("preference-applied") {
        true => {
            let json = answer.bytes().await.map_err(|error| api.unreachable(&error))?;
            api::parse(&api, &serde_json::from_slice(&json).unwrap_or_default())?
        }
        false => PauseResult { changed: is_changed, ..PauseResult::default() },
    };
    if print_record(&target, verb, &result)? {
        return Ok(());
    }
    let what = target.words();
    let was = if target.is_one() { "was" } else { "were" };
    let done = match (result.changed, verb) {
        (true, _) => done.to_owned(),
        (false, "pause") => format!("{was} {done} already"),
        (false, _) => format!("{was} not paused"),
    };
    screen::line(&screen::visible(&format!("{what} {done}")))?;
    if let (true, Some(former)) = (result.changed && verb == "pause", &result.former) {
        let since = former.since.map(|since| format!(" since {since}")).unwrap_or_default();
        screen::note(&format!(
            "{what} {was} paused{since}{}; the new pause replaces that",
            former.end_and_why()
        ));
    }
    note_others(&what, &target, &result.others);
    Ok(())
}

/// The header of the answer if nothing had to be done.
const UNCHANGED: &str = "pause-unchanged";

impl TargetArgs {
    /// As people read it.
    fn words(&self) -> String {
        if let Some(batch) = self.batch() {
            return format!("batch {batch}");
        }
        match (&self.name, &self.schedule, &self.group) {
            (Some(name), Some(id), _) => format!("{name}/{id}"),
            (Some(name), None, _) => name.clone(),
            (None, _, Some(group)) => format!("group {group}"),
            (None, _, None) if self.schedules => "all schedules".to_owned(),
            (None, _, None) => "all jobs and schedules".to_owned(),
        }
    }

    const fn is_one(&self) -> bool {
        self.name.is_some() || self.group.is_some()
    }

    /// A pause of the other target holds back all of this one, and not only some of its jobs or schedules.
    fn is_within(&self, other: &Pause) -> bool {
        match &*other.of {
            "server" => true,
            "schedules" => self.schedules || self.schedule.is_some(),
            "group" => self.name.is_some(),
            "definition" => self.schedule.is_some() || self.batch().is_some(),
            _ => false,
        }
    }
}

/// Prints the record of a format for programs. Returns false for a format for people.
fn print_record(target: &TargetArgs, verb: &str, result: &PauseResult) -> anyhow::Result<bool> {
    let state = if verb == "pause" { "paused" } else { "resumed" };
    // After a resume: the pause that it has ended.
    let pause = result.pause.as_ref().or(result.former.as_ref());
    let replaced = result.former.as_ref().filter(|_| result.changed && verb == "pause");
    let shown = json!({
        "name": target.name,
        "schedule": target.schedule,
        "group": target.group,
        "batch": target.batch().and_then(|batch| batch.parse::<u64>().ok()),
        "state": state,
        "changed": result.changed,
        "since": pause.and_then(|it| it.since),
        "until": pause.and_then(|it| it.until),
        "by": pause.and_then(|it| it.by.as_ref()),
        "reason": pause.and_then(|it| it.reason.as_ref()),
        "replaced": replaced,
        "others": result.others,
    });
    let format = target.common.format;
    // The server and all schedules have no name that a command takes.
    let key = if target.group.is_some() { "group" } else { "name" };
    Ok((format == Format::Name && !target.is_one()) || records::print(format, &shown, key)?)
}

/// Says which other pauses still hold back what was resumed, or a part of it.
fn note_others(what: &str, target: &TargetArgs, others: &[Pause]) {
    let (whole, parts): (Vec<&Pause>, Vec<&Pause>) = others.iter().partition(|it| target.is_within(it));
    for pause in whole {
        let are = if pause.of == "schedules" { "are" } else { "is" };
        let waits = if target.is_one() { "waits" } else { "wait" };
        screen::note(&format!("{what} still {waits}: {} {are} paused{}", pause.words(), pause.why()));
    }
    for pause in parts.iter().take(OTHERS_SHOWN) {
        screen::note(&format!("still paused: {}{}", pause.words(), pause.why()));
    }
    if let Some(more) = parts.len().checked_sub(OTHERS_SHOWN).filter(|more| *more > 0) {
        screen::note(&format!("still paused: {more} more; GET /api/pauses lists them"));
    }
}

/// Pauses of parts that are named.
const OTHERS_SHOWN: usize = 10;
