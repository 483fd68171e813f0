//! `longshore notify`: lists notifications, and tries the targets of a definition.

use jiff::Timestamp;
use serde_json::json;

use crate::api::{Api, parse};
use crate::args::CommonArgs;
use crate::failure::{Exit, Failure};
use crate::records;
use crate::screen;
use crate::view::{self, Notification, TargetTest};

/// List notifications about jobs, or send a test message to a definition's targets.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore notify ls --name nightly --state failed
  longshore notify test nightly

The key `notify` of a definition in jobs.yaml names who is told.")]
pub(crate) struct Flags {
    #[command(subcommand)]
    verb: NotifyVerb,
}

#[derive(Debug, clap::Subcommand)]
enum NotifyVerb {
    Ls(ListFlags),
    Test(TestFlags),
}

/// List notifications, the newest first.
#[derive(Debug, clap::Args)]
struct ListFlags {
    #[command(flatten)]
    common: CommonArgs,
    /// Only those about this definition.
    #[arg(long, value_name = "NAME", add = crate::completions::definitions())]
    name: Option<String>,
    /// Only those in this state: waiting, delivered or failed.
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// How many; 1 to 500.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
}

/// Send a message to each target of a definition, and say which of them took it.
///
/// Exit code 1 if one did not take it, or if the definition has no target.
#[derive(Debug, clap::Args)]
struct TestFlags {
    #[command(flatten)]
    common: CommonArgs,
    /// Name of the definition.
    #[arg(value_name = "NAME", add = crate::completions::definitions())]
    name: String,
}

/// Runs a verb.
pub(crate) async fn notify(flags: Flags) -> anyhow::Result<()> {
    match flags.verb {
        NotifyVerb::Ls(flags) => list(flags).await,
        NotifyVerb::Test(flags) => test(flags).await,
    }
}

async fn list(flags: ListFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let mut request = api.get(&["api", "notifications"]).query(&[("limit", flags.limit)]);
    for (name, value) in [("name", &flags.name), ("state", &flags.state)] {
        if let Some(value) = value {
            request = request.query(&[(name, value)]);
        }
    }
    let json = api.json(request).await?;
    if records::print(flags.common.format, &json, "id")? {
        return Ok(());
    }
    let entries: Vec<Notification> = parse(&api, &json)?;
    let now = Timestamp::now();
    let row = |entry: &Notification| {
        vec![
            view::since(entry.last_at, now),
            entry.definition.clone(),
            entry.occasion.to_string(),
            entry.count.to_string(),
            format!("{} {}", entry.kind, entry.host),
            entry.state.to_string(),
            entry.tries.to_string(),
            entry.error.clone().unwrap_or_default(),
        ]
    };
    screen::table(
        &[">AGO", "DEFINITION", "OCCASION", ">TIMES", "TARGET", "STATE", ">TRIES", "ERROR"],
        entries.iter().map(row).collect(),
    )
}

async fn test(flags: TestFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let body = json!({ "definition": flags.name });
    let path = ["api", "notifications", "test"];
    let json = api.json(api.request(reqwest::Method::POST, &path).json(&body)).await?;
    let results: Vec<TargetTest> = parse(&api, &json)?;
    if records::print(flags.common.format, &json, "host")? {
        // All is printed.
    } else if !results.is_empty() {
        let row = |result: &TargetTest| {
            let answer = result.error.clone().unwrap_or_else(|| "took the message".to_owned());
            vec![result.target.kind.to_string(), result.target.host.clone(), answer]
        };
        screen::table(&["KIND", "HOST", "RESULT"], results.iter().map(row).collect())?;
    }
    if results.is_empty() {
        let text = format!("{} has no targets", screen::visible(&flags.name));
        return Err(Failure::new(Exit::Failed, text).hint("add `notify` to it in jobs.yaml").into());
    }
    match results.iter().filter(|result| result.error.is_some()).count() {
        0 => Ok(()),
        failed => {
            let text = format!("{failed} of {} targets did not take the message", results.len());
            Err(Failure::new(Exit::Failed, text).into())
        }
    }
}
