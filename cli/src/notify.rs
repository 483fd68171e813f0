//! `longshore notify`: lists notifications, sends them now, and tries the targets of a definition.

use jiff::Timestamp;
use serde_json::{Value, json};
use server::http::present::shapes::SentNotifications;

use crate::api::{Api, parse};
use crate::args::CommonArgs;
use crate::error_output;
use crate::failure::{self, Exit, Failure};
use crate::records;
use crate::screen::{self, counted};
use crate::view::{self, Notification, TargetTest};

/// List notifications about jobs, send them now, or send a test message to a definition's targets.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore notify ls --name nightly --state failed
  longshore notify test nightly
  longshore notify send 12            a message that waits or was given up, now
  longshore notify send --all         after a receiver was away

The key `notify` of a definition in jobs.yaml names who is told.")]
pub(crate) struct Flags {
    #[command(subcommand)]
    verb: NotifyVerb,
}

#[derive(Debug, clap::Subcommand)]
enum NotifyVerb {
    Ls(ListFlags),
    Send(SendFlags),
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
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
}

/// Send messages now that wait for their next try, or were given up.
///
/// A message keeps the id by which its target knows it. One that was given up is tried for another day if its target does not take it now.
/// With ids, the command waits for the answers, and exits with 1 if a target did not take its message.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore notify ls --state failed
  longshore notify send 12 13
  longshore notify send --all --state waiting")]
struct SendFlags {
    #[command(flatten)]
    common: CommonArgs,
    /// Ids of the messages.
    #[arg(value_name = "ID", value_parser = parse_id, required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<u64>,
    /// All messages that wait, also for the end of a period, and all that were given up (state failed). Those to one target are sent one
    /// after another; the command does not wait for that.
    #[arg(long)]
    all: bool,
    /// With --all: only those about this definition.
    #[arg(long, value_name = "NAME", requires = "all", add = crate::completions::definitions())]
    name: Option<String>,
    /// With --all: only those in this state, waiting or failed.
    #[arg(long, value_name = "STATE", requires = "all")]
    state: Option<String>,
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
        NotifyVerb::Send(flags) if flags.all => send_all(flags).await,
        NotifyVerb::Send(flags) => send(flags).await,
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
            entry.id.to_string(),
            view::since(entry.last_at, now),
            entry.definition.clone(),
            entry.occasion.to_string(),
            entry.count.to_string(),
            format!("{} {}", entry.kind, entry.host),
            entry.state.to_string(),
            entry.tries.to_string(),
            next_try(entry, now),
            entry.error.clone().unwrap_or_default(),
        ]
    };
    screen::table(
        &[
            ">ID",
            ">AGO",
            "DEFINITION",
            "OCCASION",
            ">TIMES",
            "TARGET",
            "STATE",
            ">TRIES",
            "NEXT TRY",
            "ERROR",
        ],
        entries.iter().map(row).collect(),
    )
}

/// The time until the next try of a message that waits; empty for others.
fn next_try(entry: &Notification, now: Timestamp) -> String {
    match entry.due_at {
        Some(due) if due.0.0 <= now.as_millisecond() => "now".to_owned(),
        Some(due) => format!("in {}", view::until(due, now)),
        None => String::new(),
    }
}

/// Sends messages by id; goes on after one that is refused.
async fn send(flags: SendFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let format = flags.common.format;
    let (mut answers, mut refusal, mut not_taken) = (Vec::new(), None, 0_u32);
    for id in &flags.ids {
        let path = ["api", "notifications", &id.to_string(), "send"];
        let json = match api.json(api.request(reqwest::Method::POST, &path)).await {
            Ok(json) => json,
            Err(error) => {
                error_output::report(&error, format);
                refusal = refusal.or(Some(failure::exit_of(&error)));
                continue;
            }
        };
        let sent: Notification = parse(&api, &json)?;
        not_taken += u32::from(sent.state != "delivered");
        if format.is_text() {
            screen::line(&screen::visible(&result_of(&sent)))?;
        }
        answers.push(json);
    }
    records::print(format, &Value::Array(answers), "id")?;
    match (refusal, not_taken) {
        (Some(exit), _) => Err(Failure::silent(exit).into()),
        (None, 0) => Ok(()),
        (None, count) => {
            let text = format!("{} not taken", counted(count, "message"));
            Err(Failure::new(Exit::Failed, text).into())
        }
    }
}

/// The result of a try in words.
fn result_of(sent: &Notification) -> String {
    let Notification { id, kind, host, .. } = sent;
    let error = sent.error.as_deref().unwrap_or("not taken");
    match (&*sent.state, sent.due_at) {
        ("delivered", _) => format!("notification {id} was delivered to {kind} {host}"),
        (_, Some(_)) => {
            format!(
                "notification {id} to {kind} {host}: {error}; next try {}",
                next_try(sent, Timestamp::now())
            )
        }
        (_, None) => format!("notification {id} to {kind} {host}: {error}; it was given up"),
    }
}

async fn send_all(flags: SendFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let mut request = api.request(reqwest::Method::POST, &["api", "notifications", "send"]);
    for (name, value) in [("name", &flags.name), ("state", &flags.state)] {
        if let Some(value) = value {
            request = request.query(&[(name, value)]);
        }
    }
    records::refuse_records(flags.common.format)?;
    let json = api.json(request).await?;
    if records::print(flags.common.format, &json, "waiting")? {
        return Ok(());
    }
    let SentNotifications { waiting, failed, without_target, out_of_scope } = parse(&api, &json)?;
    let sent = counted(waiting + failed, "message");
    let verb = if waiting + failed == 1 { "is" } else { "are" };
    screen::line(&format!("{sent} {verb} sent now: {waiting} waiting, {failed} failed before"))?;
    for (count, reason) in [
        (without_target, "jobs.yaml does not name the target any more"),
        (out_of_scope, "the token is not for the definition"),
    ] {
        if count > 0 {
            screen::note(&format!("{} left out: {reason}", counted(count, "message")));
        }
    }
    Ok(())
}

fn parse_id(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "an id is a whole number from 1; 'longshore notify ls' lists them".to_owned())
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
