//! `longshore reschedule`: changes the start or the priority of a job that waits.

use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::api::{self, Api};
use crate::args::CommonArgs;
use crate::failure::Failure;
use crate::job_refs::{self, JobRef};
use crate::overrides::delay;
use crate::records;
use crate::screen;
use crate::view::JobView as _;
use crate::{local_time, view};

/// Change the start or the priority of a job that waits.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("start").args(["at", "delay", "now"]),
    group = clap::ArgGroup::new("values").args(["at", "delay", "now", "priority"]).multiple(true).required(true),
    after_help = "Examples:
  longshore reschedule 12 --delay 10m                    start it in ten minutes
  longshore reschedule 12 --at 18:30                     start it at half past six by the clock here
  longshore reschedule 12 --at 2026-03-01T09:30:00Z      start it at an instant
  longshore reschedule 12 --now --priority 50            let it start before the others

A job that a worker has already cannot be changed."
)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// Id of the job, or a member of a batch by its index, as `1064[3]`; in quotes, because shells expand brackets.
    #[arg(value_name = "ID", value_parser = job_refs::parse_one)]
    id: JobRef,
    /// Start it no earlier than this time: 18:30 (the next one), "2026-03-01 18:30", or with its zone 2026-03-01T18:30:00Z.
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// The zone of a time that names none, such as Europe/Berlin [default: that of this machine].
    #[arg(long, value_name = "ZONE", requires = "at")]
    timezone: Option<String>,
    /// Start it no earlier than this long from now: 250ms, 90s, 1h30m.
    #[arg(long, value_name = "DURATION", value_parser = delay)]
    delay: Option<String>,
    /// Start it as soon as a worker has room.
    #[arg(long)]
    now: bool,
    /// Higher goes first, −100 to 100.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i8).range(-100..=100))]
    priority: Option<i8>,
}

/// Changes the job.
pub(crate) async fn reschedule(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let body = body(&flags)?;
    let id = flags.id.id(&api).await?;
    let request = api.request(Method::PATCH, &["api", "jobs", &id.to_string()]).json(&body);
    let answer = api.json(request).await?;
    if records::print(flags.common.format, &answer, "id")? {
        return Ok(());
    }
    let job: view::Job = api::parse(&api, &answer)?;
    let due = answer.get("due_at").and_then(Value::as_str).unwrap_or_default();
    screen::line(&format!("job {} is {}, due {due}", job.id, job.state_text()))
}

fn body(flags: &Flags) -> Result<Map<String, Value>, Failure> {
    let at = flags.at.as_deref().map(|at| local_time::instant("--at", at, flags.timezone.as_deref()));
    let at = at.transpose()?;
    if let Some(at) = &at {
        at.tell();
    }
    let delay = if flags.now { Some("0s") } else { flags.delay.as_deref() };
    let values = [
        ("run_at", at.map(|at| json!(at.utc))),
        ("delay", delay.map(|delay| json!(delay))),
        ("priority", flags.priority.map(|priority| json!(priority))),
    ];
    Ok(values.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect())
}
