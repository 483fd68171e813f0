//! `longshore definitions`, `reload`: what can be run, and reading it again.

use reqwest::Method;
use serde::Deserialize as _;
use serde_json::Value;

use crate::api::{self, Api};
use crate::screen::{self, Format};
use crate::{Asking, view, words};

/// List the job definitions, or show one as the server has resolved it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore definitions
  longshore definitions resize")]
pub(crate) struct Flags {
    #[command(flatten)]
    asking: Asking,
    /// Only this one, in full.
    #[arg(value_name = "NAME", value_parser = crate::run::job_name)]
    name: Option<String>,
    /// Only those with this tag.
    #[arg(long, value_name = "TAG", conflicts_with = "name")]
    tag: Option<String>,
}

/// Let the server read its jobs.yaml again; a file with faults changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore validate jobs.yaml && longshore reload")]
pub(crate) struct ReloadFlags {
    #[command(flatten)]
    asking: Asking,
}

/// Lets the server read jobs.yaml again.
pub(crate) async fn reload(flags: ReloadFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.asking.door)?;
    let json = api.json(api.request(Method::POST, &["api", "definitions", "reload"])).await?;
    if flags.asking.format == Format::Json {
        return screen::json(&json);
    }
    let reloaded: view::Reloaded = api::read(&api, &json)?;
    for warning in &reloaded.warnings {
        screen::note(&format!("warning: {warning}"));
    }
    screen::line(&screen::visible(&reloaded.shown()))
}

/// Shows definitions.
pub(crate) async fn definitions(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.asking.door)?;
    let path: &[&str] = match &flags.name {
        Some(name) => &["api", "definitions", name],
        None => &["api", "definitions"],
    };
    let json = api.json(api.fetch(path).query(&flags.tag.as_ref().map(|tag| [("tag", tag)]))).await?;
    if flags.asking.format == Format::Json {
        return screen::json(&json);
    }
    match flags.name {
        Some(_) => in_full(&json),
        None => {
            let definitions: Vec<view::Definition> = api::read(&api, &json)?;
            screen::table(&view::Definition::HEADING, definitions.iter().map(view::Definition::row).collect())
        }
    }
}

/// Every key of a definition, a line each.
fn in_full(json: &Value) -> anyhow::Result<()> {
    let keys = || json.as_object().into_iter().flatten().map(|(key, _)| name_of(key));
    let width = keys().map(str::len).max().unwrap_or_default();
    for (key, value) in json.as_object().into_iter().flatten() {
        let text = in_words(key, value);
        screen::line(&format!("{:<width$} {}", screen::visible(name_of(key)), screen::visible(&text)))?;
    }
    Ok(())
}

/// A value as people write it.
fn in_words(key: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(ms) if key.ends_with("_ms") => crate::duration::show(ms.as_i64().unwrap_or(i64::MAX)),
        Value::Number(milli) if key.ends_with("_milli") => {
            milli.as_f64().map(|milli| milli / 1_000.0).unwrap_or_default().to_string()
        }
        Value::Array(list) if list.iter().all(Value::is_string) => {
            let list: Vec<String> = list.iter().filter_map(Value::as_str).map(str::to_owned).collect();
            words::in_shell(&list)
        }
        Value::Array(list) => {
            let between = if list.iter().any(Value::is_object) { "; " } else { " " };
            list.iter().map(|entry| in_words(key, entry)).collect::<Vec<_>>().join(between)
        }
        Value::Object(parts) => {
            match (view::Job::deserialize(value), parts.get("count"), parts.get("text")) {
                (Ok(job), ..) => format!("job {}, {}", job.id, job.shown_end()),
                (_, Some(count), Some(Value::String(why))) => format!("{count}: {why}"),
                _ => parts
                    .iter()
                    .map(|(key, value)| format!("{} {}", name_of(key), in_words(key, value)))
                    .collect::<Vec<_>>()
                    .join(", "),
            }
        }
        other => other.to_string(),
    }
}

/// A key without its unit, which is written behind the value.
fn name_of(key: &str) -> &str {
    key.strip_suffix("_ms").or_else(|| key.strip_suffix("_milli")).unwrap_or(key)
}
