//! `longshore plan`: the changes that a reload of a jobs file, or of a directory of them, would make.

use std::path::{Path, PathBuf};

use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;
use server::config::jobs_file::{self, JobsText, NamedText};
use server::http::present::shapes::{JobsFile, JobsFiles, KeyChange, Plan, PlannedDefinition};

use crate::api::{self, Api};
use crate::args::CommonArgs;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::records;
use crate::screen;
use crate::validate;

/// Show what a reload of a jobs file, or of a directory of them, would change. Changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore plan
  longshore plan jobs.d                     the *.yaml and *.yml of a directory
  sed s/1.4/1.5/ jobs.yaml | longshore plan -
  longshore plan jobs.yaml --exit-code      exit code 2 if there are changes, 1 if the plan failed
  longshore plan -o json | jq -r .current_revision

The server parses the files as its reload would. Files of env_file are those of the server.")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// The jobs file, or a directory of them; - is standard input.
    #[arg(value_name = "PATH", default_value = "jobs.yaml")]
    file: PathBuf,
    /// Exit with 0 without changes, 2 with changes, 1 after an error.
    #[arg(long)]
    exit_code: bool,
}

/// Prints the changes.
pub(crate) async fn plan(flags: Flags) -> anyhow::Result<()> {
    let has_exit_code = flags.exit_code;
    let planned = ask(&flags).await;
    let is_changed = planned.as_ref().is_ok_and(|(plan, _)| has_changes(plan));
    let printed = planned.and_then(|(plan, json)| print_plan(&flags, &plan, &json));
    match printed {
        Ok(()) if is_changed && has_exit_code => Err(Failure::silent(Exit::Container(CHANGES)).into()),
        Err(mut error) => {
            if has_exit_code && let Some(failure) = error.downcast_mut::<Failure>() {
                failure.exit = match failure.exit {
                    // The reader of the output has gone, which changes nothing about the plan.
                    Exit::OutputClosed if is_changed => Exit::Container(CHANGES),
                    Exit::OutputClosed => Exit::OutputClosed,
                    // Other codes, such as 2, mean something else here.
                    _ => Exit::Failed,
                };
            }
            Err(error)
        }
        Ok(()) => Ok(()),
    }
}

/// Asks the server what would change.
async fn ask(flags: &Flags) -> anyhow::Result<(Plan, Value)> {
    let (content_type, body) = read(&flags.file)?;
    let api = Api::new(&flags.common.server_args)?;
    let request = api.request(Method::POST, &["api", "definitions", "plan"]);
    let answer = api.json(request.header(CONTENT_TYPE, content_type).body(body)).await;
    let json = answer.map_err(|error| with_file_name(error, &flags.file))?;
    Ok((api::parse(&api, &json)?, json))
}

/// The body of the request with its content type: the text of a file, or those of a directory.
fn read(path: &Path) -> anyhow::Result<(&'static str, String)> {
    if !path.is_dir() {
        return Ok(("application/yaml", files::read_jobs_file(path)?));
    }
    let files = match jobs_file::read_text(path).map_err(|faults| validate::refuse(&faults))? {
        JobsText::Directory(files) => files,
        // It was replaced since.
        JobsText::File(text) => return Ok(("application/yaml", text)),
    };
    let files = files.into_iter().map(|NamedText { name, text }| JobsFile { name, text }).collect();
    Ok(("application/json", serde_json::to_string(&JobsFiles { files })?))
}

pub(crate) fn has_changes(plan: &Plan) -> bool {
    !(plan.added.is_empty() && plan.removed.is_empty() && plan.changed.is_empty())
}

fn print_plan(flags: &Flags, plan: &Plan, json: &Value) -> anyhow::Result<()> {
    if records::print(flags.common.format, json, "revision")? {
        return Ok(());
    }
    print_changes(plan, &flags.file)?;
    for line in totals(plan) {
        screen::line(&screen::visible(&line))?;
    }
    Ok(())
}

/// Prints the warnings of the file and its changes.
pub(crate) fn print_changes(plan: &Plan, file: &Path) -> anyhow::Result<()> {
    for warning in &plan.warnings {
        screen::note(&format!("warning: {}", rename(warning, file)));
    }
    for line in lines(plan) {
        screen::line(&screen::visible(&line))?;
    }
    Ok(())
}

/// The server reports faults under the name of its own file; people look for them in theirs.
pub(crate) fn with_file_name(error: anyhow::Error, file: &Path) -> anyhow::Error {
    match error.downcast::<Failure>() {
        Ok(failure) => failure.map_faults(|fault| rename(&fault, file)).into(),
        Err(error) => error,
    }
}

/// Names `file`, or the file in that directory, in place of the file in a position `NAME:LINE:COLUMN`, if the text begins with one.
fn rename(text: &str, file: &Path) -> String {
    let rest = text.split_once(':').map(|(_, rest)| rest);
    let has_line = |rest: &&str| {
        let line = rest.split_once(':').map_or("", |(line, _)| line);
        !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit())
    };
    match rest.filter(has_line) {
        Some(_) if file.is_dir() => file.join(text).display().to_string(),
        Some(rest) => format!("{}:{rest}", files::name_of_input(file)),
        None if file.is_dir() => text.to_owned(),
        None => rename_whole(text, file),
    }
}

/// Likewise for a fault of the whole file, which has no line.
fn rename_whole(text: &str, file: &Path) -> String {
    let rest = text.split_once(": ").filter(|(name, _)| name.ends_with(".yaml") || name.ends_with(".yml"));
    rest.map_or_else(|| text.to_owned(), |(_, rest)| format!("{}: {rest}", files::name_of_input(file)))
}

fn lines(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    for added in &plan.added {
        lines.push(format!("+ {}", added.name));
        lines.extend(facts(added, ""));
    }
    for removed in &plan.removed {
        lines.push(format!("- {}", removed.name));
        lines.extend(if plan.cancels_removed { cancelled(removed) } else { facts(removed, "") });
    }
    for changed in &plan.changed {
        lines.push(format!("~ {}", changed.definition.name));
        lines.extend(changed.keys.iter().map(|key| format!("    {}", key_line(key))));
        let has_marks = changed.keys.iter().any(|key| key.at_once);
        lines.extend(facts(&changed.definition, if has_marks { ", but for (*)" } else { "" }));
    }
    if plan.changed.iter().flat_map(|changed| &changed.keys).any(|key| key.at_once) {
        lines.push(
            "(*) acts at once, also on jobs that were made before; other keys hold for new jobs".to_owned(),
        );
    }
    lines
}

/// The numbers of changes.
pub(crate) fn counts(plan: &Plan) -> String {
    let Plan { added, removed, changed, unchanged, .. } = plan;
    let [added, removed, changed] = [added.len(), removed.len(), changed.len()];
    format!("{added} added, {removed} removed, {changed} changed, {unchanged} unchanged")
}

fn totals(plan: &Plan) -> Vec<String> {
    let mut lines = vec![format!("{}; present revision {}", counts(plan), plan.current_revision)];
    if has_changes(plan) {
        let Plan { current_revision, revision, .. } = plan;
        lines.push(format!(
            "new revision {revision}; to load exactly this: longshore reload --expect {current_revision} --expect-new {revision}, or longshore deploy FILE --expect {current_revision}"
        ));
    }
    lines
}

fn key_line(change: &KeyChange) -> String {
    let mark = if change.at_once { " (*)" } else { "" };
    if change.hidden {
        return format!("{}: changed (values are not shown){mark}", change.key);
    }
    let [old, new] =
        [&change.old, &change.new].map(|value| KeyChange::value_in_words(&change.key, value.as_ref()));
    format!("{}: {old} -> {new}{mark}", change.key)
}

/// The waiting jobs of a removed definition, on a server that cancels them.
fn cancelled(definition: &PlannedDefinition) -> Vec<String> {
    let waiting = definition.queued + definition.scheduled;
    let line = || format!("    {} will be cancelled", screen::counted(waiting, "waiting job"));
    (waiting > 0).then(line).into_iter().collect()
}

fn facts(definition: &PlannedDefinition, exception: &str) -> Vec<String> {
    let mut facts = Vec::new();
    if !definition.next.is_empty() {
        let next: Vec<String> = definition.next.iter().map(ToString::to_string).collect();
        facts.push(format!("    next: {}", next.join(", ")));
    }
    let waiting = definition.queued + definition.scheduled;
    if waiting > 0 {
        facts.push(format!("    waiting jobs that keep their revision{exception}: {waiting}"));
    }
    facts.extend(definition.unmet.iter().map(|rule| format!("    no connected worker has {rule}")));
    facts
}

/// As `terraform plan -detailed-exitcode`.
const CHANGES: u8 = 2;
