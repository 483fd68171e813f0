//! `longshore definitions` and `reload`: lists the job definitions and makes the server read jobs.yaml again.

use reqwest::Method;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::api::{self, Api};
use crate::args::CommonArgs;
use crate::quoting;
use crate::records;
use crate::screen::{self, Format};
use crate::view::{self, DefinitionView, JobView as _, ReloadedView as _};

/// List the job definitions with their last end and next slot, or show one with all defaults filled in.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore definitions
  longshore definitions resize")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// Show only this definition, with all keys.
    #[arg(value_name = "NAME", value_parser = crate::args::parse_definition_name, add = crate::completions::definitions())]
    name: Option<String>,
    /// List only definitions with this tag.
    #[arg(long, value_name = "TAG", conflicts_with = "name")]
    tag: Option<String>,
}

/// Make the server read jobs.yaml again. A file with errors changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore validate jobs.yaml && longshore reload
  longshore reload --expect 8230dfc31a74e134241c862845388210
  longshore reload --reason 'merge request 41'

longshore plan prints the command that loads what it has shown, and nothing else.")]
pub(crate) struct ReloadFlags {
    #[command(flatten)]
    common: CommonArgs,
    /// Reload only if the present definitions have this revision, which the last reload printed.
    #[arg(long, value_name = "REVISION")]
    expect: Option<String>,
    /// Reload only if the definitions of the server's file have this revision, which longshore plan prints.
    #[arg(long, value_name = "REVISION")]
    expect_new: Option<String>,
    /// Why, such as a commit or a merge request: 1 to 300 characters in one line, which longshore changes shows with your name.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Makes the server read jobs.yaml again.
pub(crate) async fn reload(flags: ReloadFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let request = api.request(Method::POST, &["api", "definitions", "reload"]);
    let expected = [("expect", flags.expect), ("expect_new", flags.expect_new)];
    let expected = expected.into_iter().filter_map(|(name, revision)| Some((name, revision?)));
    let request = request.query(&expected.collect::<Vec<_>>());
    let request = match &flags.reason {
        Some(reason) => request.json(&json!({ "reason": reason })),
        None => request,
    };
    let json = api.json(request).await?;
    if records::print(flags.common.format, &json, "revision")? {
        return Ok(());
    }
    let reloaded: view::Reloaded = api::parse(&api, &json)?;
    for warning in &reloaded.warnings {
        screen::note(&format!("warning: {warning}"));
    }
    screen::line(&screen::visible(&reloaded.summary()))
}

/// Shows definitions.
pub(crate) async fn definitions(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let request = match &flags.name {
        Some(name) => api.get(&["api", "definitions", name]),
        None => api.get(&LIST).query(&[LAST_ENDED]).query(&flags.tag.as_ref().map(|tag| [("tag", tag)])),
    };
    let json = api.json(request).await?;
    if records::print(flags.common.format, &json, "name")? {
        return Ok(());
    }
    match flags.name {
        Some(_) => {
            in_full(&json)?;
            let Some(params) = json.get("params") else { return Ok(()) };
            screen::line("")?;
            print_params(&api::parse::<Vec<view::Param>>(&api, params)?)
        }
        None => {
            let definitions: Vec<view::Definition> = api::parse(&api, &json)?;
            let (definitions, now) = (definitions.iter(), jiff::Timestamp::now());
            match flags.common.format {
                Format::Wide => screen::table(
                    &view::Definition::wide_heading(),
                    definitions.map(|it| it.wide_row(now)).collect(),
                ),
                _ => screen::table(&view::Definition::HEADING, definitions.map(|it| it.row(now)).collect()),
            }
        }
    }
}

/// The path of the list of definitions.
pub(crate) const LIST: [&str; 2] = ["api", "definitions"];
/// The parameter of the list for the job of each definition that ended last.
pub(crate) const LAST_ENDED: (&str, &str) = ("last_ended", "1");

/// Prints parameters as a table.
pub(crate) fn print_params(params: &[view::Param]) -> anyhow::Result<()> {
    let row = |param: &view::Param| {
        let absent = match &param.default {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None if param.required => "(required)".to_owned(),
            None => String::new(),
        };
        let secret = if param.secret { "secret; " } else { "" };
        let about = param.description.clone().unwrap_or_default();
        vec![param.name.clone(), absent, format!("{secret}{}", param.allowed), about]
    };
    screen::table(&["PARAMETER", "DEFAULT", "VALUE", "DESCRIPTION"], params.iter().map(row).collect())
}

/// Prints every key of a definition but its parameters, a line each.
fn in_full(json: &Value) -> anyhow::Result<()> {
    let shown = || json.as_object().into_iter().flatten().filter(|(key, _)| *key != "params");
    let keys = || shown().map(|(key, _)| name_of(key));
    let width = keys().map(str::len).max().unwrap_or_default();
    for (key, value) in shown() {
        let text = in_words(key, value);
        screen::line(&format!("{:<width$} {}", screen::visible(name_of(key)), screen::visible(&text)))?;
    }
    Ok(())
}

/// Formats a value for people.
fn in_words(key: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(ms) if key.ends_with("_ms") => crate::duration::show(ms.as_i64().unwrap_or(i64::MAX)),
        Value::Number(milli) if key.ends_with("_milli") => {
            milli.as_f64().map(|milli| milli / 1_000.0).unwrap_or_default().to_string()
        }
        Value::Array(list) if list.iter().all(Value::is_string) => {
            let list: Vec<String> = list.iter().filter_map(Value::as_str).map(str::to_owned).collect();
            quoting::shell_join(&list)
        }
        Value::Array(list) => {
            let between = if list.iter().any(Value::is_object) { "; " } else { " " };
            list.iter().map(|entry| in_words(key, entry)).collect::<Vec<_>>().join(between)
        }
        Value::Object(parts) => {
            match (view::Job::deserialize(value), parts.get("count"), parts.get("text")) {
                (Ok(job), ..) => format!("job {}, {}", job.id, job.end_text()),
                (_, Some(count), Some(Value::String(why))) => format!("{count}: {why}"),
                _ => parts
                    .iter()
                    .map(|(key, value)| format!("{} {}", name_of(key), in_words(key, value)))
                    .collect::<Vec<_>>()
                    .join(", "),
            }
        }
        Value::Null => "none".to_owned(),
        other => other.to_string(),
    }
}

/// Removes the unit from a key; the formatted value shows it.
fn name_of(key: &str) -> &str {
    key.strip_suffix("_ms").or_else(|| key.strip_suffix("_milli")).unwrap_or(key)
}
