//! `longshore run`: make a job, and if wanted stay with it until it has ended.

use std::time::Duration;

use reqwest::Method;
use reqwest::header::HeaderValue;
use serde_json::{Map, Value, json};

use crate::api::{Api, Made, read};
use crate::failure::{Exit, Failure};
use crate::logs::{self, Following};
use crate::screen::{self, Format};
use crate::{Asking, duration, view};

/// Make a job; with --follow see its output, with --wait only its end.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore run resize                            make a job and return at once
  longshore run resize --follow -- --size 640     see its output; exit as it does
  longshore run report --wait=10m -e MONTH=3      wait, but not for ever
  longshore run bill --key bill-2026-03           the same key makes no second job for a week

With --follow and --wait the exit code is the container's; 1 if it ended without one (cancelled, lost, …).
Ctrl-C leaves the job alone: end it with 'longshore cancel'.")]
pub(crate) struct Flags {
    #[command(flatten)]
    asking: Asking,
    /// The definition to run.
    #[arg(value_name = "NAME", value_parser = job_name)]
    name: String,
    /// A variable for the container; without a value it is taken from the environment here. May be repeated.
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]", value_parser = variable)]
    environment: Vec<(String, String)>,
    /// A label for the job, to find it by. May be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    label: Vec<(String, String)>,
    /// Higher goes first, −100 to 100; instead of the definition's.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i8).range(-100..=100))]
    priority: Option<i8>,
    /// How long an attempt may run (90s, 1h30m, none); instead of the definition's.
    #[arg(long, value_name = "DURATION", value_parser = timeout)]
    timeout: Option<String>,
    /// Make no second job if one was made with this key [default: a new one, for sending the request again].
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Fail if no connected worker could run it now.
    #[arg(long)]
    require_worker: bool,
    /// Show its output as it comes, and exit as it does.
    #[arg(short = 'f', long, conflicts_with = "wait")]
    follow: bool,
    /// Wait until it has ended, at most this long, and exit as it does.
    #[arg(short = 'w', long, value_name = "DURATION", num_args = 0..=1, require_equals = true, value_parser = duration::parse)]
    wait: Option<Option<Duration>>,
    /// Print nothing but the job's id.
    #[arg(short = 'q', long, conflicts_with_all = ["follow", "wait"])]
    quiet: bool,
    /// Words to append to the definition's command.
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
}

/// Makes the job, and stays with it as long as wanted.
pub(crate) async fn run(flags: Flags) -> anyhow::Result<()> {
    if flags.follow && flags.asking.format == Format::Json {
        return Err(Failure::new(Exit::Usage, "--follow shows the output as it is, not as JSON")
            .hint("use --wait -o json")
            .into());
    }
    let api = Api::new(&flags.asking.door)?;
    let made = submit(&api, &flags).await?;
    let job: view::Job = read(&api, &made.json)?;
    // Whoever gives no key has made it by an earlier try of this very call.
    if flags.key.is_some() {
        made.tell_replay(&job);
    }
    if let Some(warning) = &job.warning {
        screen::note(&format!("warning: {}", warning.text));
    }
    if !flags.follow && flags.wait.is_none() {
        return told(&flags, &job, &made.json);
    }
    screen::note(&format!("longshore: job {} is {}", job.id, job.shown_state()));
    let ended = tokio::select! {
        ended = stay(&api, &flags, job.id) => ended?,
        _ = tokio::signal::ctrl_c() => {
            screen::note(&format!("longshore: job {id} goes on; see it with 'longshore logs -f {id}', end it with 'longshore cancel {id}'", id = job.id));
            return Err(Failure::silent(Exit::Interrupted).into());
        }
    };
    if flags.asking.format == Format::Json {
        screen::json(&ended)?;
    }
    let job: view::Job = read(&api, &ended)?;
    screen::note(&format!("longshore: job {} {}", job.id, job.shown_end()));
    exit_as(&job)
}

/// Reads the name of a definition well enough for it to be a part of an address.
pub(crate) fn job_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text == "." || text == ".." {
        return Err("that is no name of a definition; 'longshore definitions' lists them".to_owned());
    }
    Ok(text.to_owned())
}

async fn submit(api: &Api, flags: &Flags) -> anyhow::Result<Made> {
    let mut request = api.request(Method::POST, &["api", "jobs", &flags.name]);
    if flags.require_worker {
        request = request.query(&[("require_worker", "1")]);
    }
    let body = body(flags);
    api.make(if body.is_empty() { request } else { request.json(&body) }, &key(flags.key.as_deref())?).await
}

/// The key that was given, or one that nobody has used: so a request that got no answer can be sent again.
pub(crate) fn key(given: Option<&str>) -> Result<HeaderValue, Failure> {
    let new = || format!("longshore-{:032x}", rand::random::<u128>());
    let key = given.map_or_else(new, str::to_owned);
    HeaderValue::try_from(key)
        .map_err(|_| Failure::new(Exit::Usage, "--key must be visible ASCII characters"))
}

/// What the job adds to its definition.
fn body(flags: &Flags) -> Map<String, Value> {
    let object = |pairs: &[(String, String)]| {
        Value::Object(
            pairs.iter().map(|(name, value)| (name.clone(), Value::String(value.clone()))).collect(),
        )
    };
    let parts = [
        ("environment", (!flags.environment.is_empty()).then(|| object(&flags.environment))),
        ("labels", (!flags.label.is_empty()).then(|| object(&flags.label))),
        ("args", (!flags.args.is_empty()).then(|| json!(flags.args))),
        ("priority", flags.priority.map(|priority| json!(priority))),
        ("timeout", flags.timeout.as_ref().map(|timeout| json!(timeout))),
    ];
    parts.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// Says that the job was made, for those who do not stay.
fn told(flags: &Flags, job: &view::Job, json: &Value) -> anyhow::Result<()> {
    if flags.asking.format == Format::Json {
        return screen::json(json);
    }
    if flags.quiet {
        return screen::line(&job.id.to_string());
    }
    screen::line(&format!("job {} is {}; {}", job.id, job.shown_state(), follow_it(job.id)))
}

/// How to go on with a job that was made.
pub(crate) fn follow_it(id: u64) -> String {
    format!("follow it with: longshore logs -f {id}")
}

impl Made {
    /// Says that nothing new was made, if so.
    pub(crate) fn tell_replay(&self, job: &view::Job) {
        if self.is_replayed {
            screen::note(&format!("longshore: this key made job {} before; there is no second one", job.id));
        }
    }
}

/// Stays until the job has ended; its last JSON.
async fn stay(api: &Api, flags: &Flags, id: u64) -> anyhow::Result<Value> {
    if flags.follow {
        return logs::follow(api, &Following::everything(id)).await;
    }
    let end = logs::until_ended(api, id);
    match flags.wait.flatten() {
        None => end.await,
        Some(patience) => tokio::time::timeout(patience, end).await.unwrap_or_else(|_| {
            Err(Failure::new(Exit::Failed, format!("job {id} has not ended after {patience:?}, and goes on"))
                .hint(format!("see 'longshore show {id}'"))
                .into())
        }),
    }
}

/// Ends as the container did.
fn exit_as(job: &view::Job) -> anyhow::Result<()> {
    if job.state == "succeeded" {
        return Ok(());
    }
    let code = job.exit_code.and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0);
    Err(Failure::silent(code.map_or(Exit::Failed, Exit::Container)).into())
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some(("", _)) => Err("the name is missing".to_owned()),
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => match std::env::var(text) {
            Ok(value) => Ok((text.to_owned(), value)),
            Err(std::env::VarError::NotPresent) => Err("not set here; write NAME=VALUE".to_owned()),
            Err(std::env::VarError::NotUnicode(_)) => Err("its value here is not UTF-8".to_owned()),
        },
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it KEY=VALUE".to_owned()),
    }
}

/// The server reads it again; here only what cannot be right is refused.
fn timeout(text: &str) -> Result<String, String> {
    if text != "none" {
        duration::parse(text).map_err(|why| format!("{why}, or none"))?;
    }
    Ok(text.to_owned())
}
