//! `longshore definitions`, `reload`: what can be run, and reading it again.

use reqwest::Method;
use serde_json::Value;

use crate::api::{self, Api};
use crate::screen::{self, Format};
use crate::{Asking, view};

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
    let keys = || json.as_object().into_iter().flatten().map(|(key, _)| key.trim_end_matches("_ms"));
    let width = keys().map(str::len).max().unwrap_or_default();
    for (key, value) in json.as_object().into_iter().flatten() {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Array(words) if words.iter().all(Value::is_string) => {
                words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
            }
            Value::Number(ms) if key.ends_with("_ms") => {
                crate::duration::show(ms.as_i64().unwrap_or(i64::MAX))
            }
            other => other.to_string(),
        };
        screen::line(&format!(
            "{:<width$} {}",
            screen::visible(key.trim_end_matches("_ms")),
            screen::visible(&text)
        ))?;
    }
    Ok(())
}
