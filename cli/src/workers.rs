//! `longshore workers` and the verbs that change a worker: `label`, `slots`, `reset-worker`, `forget`, `stop-unmanaged`. Those that keep jobs
//! from workers are in `drain`.

mod drain;
mod hidden;

use std::collections::BTreeMap;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::api::{self, Api};
use crate::args::CommonArgs;
use crate::failure::{Exit, Failure};
use crate::records;
use crate::screen::{self, Format};
use crate::view::{self, WorkerView as _};

pub(crate) use self::drain::{CordonFlags, DrainFlags, UncordonFlags, cordon, drain, uncordon};

/// List workers that are connected or still have jobs, or show one.
///
/// With a worker's name or id, everything known about it is shown.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore workers
  longshore workers --all -o json
  longshore workers anna                 one worker, with load, free disk and Docker engine")]
pub(crate) struct ListFlags {
    #[command(flatten)]
    common: CommonArgs,
    /// Also list disconnected workers without jobs.
    #[arg(long, conflicts_with = "worker")]
    all: bool,
    /// Show only this worker: its name or id; id:2 if a name looks like an id.
    #[arg(value_name = "WORKER", add = crate::completions::workers())]
    worker: Option<String>,
}

/// The worker to change.
#[derive(Debug, clap::Args)]
struct TargetArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Name or id of the worker; id:2 if a name looks like an id.
    #[arg(value_name = "WORKER", add = crate::completions::workers())]
    worker: String,
}

/// Set labels of a worker over its own ones; kept when it is started again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore label anna zone=b rack=7
  longshore label anna rack-            remove the label; the worker's own value applies again")]
pub(crate) struct LabelFlags {
    #[command(flatten)]
    target: TargetArgs,
    /// KEY=VALUE sets a label, KEY- removes one that was set.
    #[arg(required = true, value_name = "LABEL", value_parser = label_change)]
    labels: Vec<LabelChange>,
}

/// The name of a label, and its new value; `None` removes it.
type LabelChange = (String, Option<String>);

/// Change how many jobs a worker runs at once; kept when it is started again.
///
/// Running jobs continue. To stop new jobs, cordon the worker.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longshore slots anna 8")]
pub(crate) struct SlotsFlags {
    #[command(flatten)]
    target: TargetArgs,
    /// The number of slots, instead of the worker's own setting; 0 means the maximum, 10,000.
    #[arg(value_parser = crate::args::slots)]
    slots: u32,
}

/// Send jobs to a suspect worker again, and end all its exclusions.
///
/// A worker becomes suspect when it fails to start jobs of three definitions in a row. It gets one job after a pause, and all when that starts.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longshore reset-worker anna        after its disk was cleaned up")]
pub(crate) struct ResetFlags {
    #[command(flatten)]
    target: TargetArgs,
}

/// Remove a worker that will not come back from the list.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longshore forget anna        (to use its state directory again, start it with --rejoin)")]
pub(crate) struct ForgetFlags {
    #[command(flatten)]
    target: TargetArgs,
}

/// Revoke a worker: its connection ends, and its secret is refused from now on.
///
/// Its jobs are handed on as those of a silent worker. With --rejoin and a valid join token the machine joins as a new worker.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longshore worker revoke anna        (the workers of a join token: longshore token revoke NAME --workers)")]
pub(crate) struct RevokeFlags {
    #[command(flatten)]
    target: TargetArgs,
}

/// Stop attempts of a worker that this server did not assign, as after a restored backup.
///
/// Such attempts go on until an operator stops them. They get SIGTERM, and are killed after their grace period.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore stop-unmanaged anna          all of them; 'longshore workers -o json' lists them
  longshore stop-unmanaged anna 12#30    one: attempt 30, of job 12")]
pub(crate) struct StopUnmanagedFlags {
    #[command(flatten)]
    target: TargetArgs,
    /// Only this attempt, as listed in 'unmanaged' of the worker.
    #[arg(value_name = "JOB#FENCE", value_parser = attempt)]
    attempt: Option<(u64, u64)>,
}

/// Lists workers, or shows one.
pub(crate) async fn list(flags: ListFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    if let Some(wanted) = &flags.worker {
        return show(&api, wanted, flags.common.format).await;
    }
    let json = fetch(&api, flags.all).await?;
    if records::print(flags.common.format, &json, "name")? {
        return Ok(());
    }
    let workers: Vec<view::Worker> = api::parse(&api, &json)?;
    let now = jiff::Timestamp::now();
    if flags.common.format == Format::Wide {
        let rows = workers.iter().map(|worker| worker.wide_row(now)).collect();
        screen::table(&view::Worker::wide_heading(), rows)?;
    } else {
        screen::table(&view::Worker::HEADING, workers.iter().map(|worker| worker.row(now)).collect())?;
    }
    print_warnings(&workers);
    print_reasons(&workers);
    if workers.is_empty() {
        screen::note("no worker is connected; start one with: longshore worker --server ADDRESS");
    }
    if !flags.all {
        hidden::note(&api, &workers).await;
    }
    Ok(())
}

async fn show(api: &Api, wanted: &str, format: Format) -> anyhow::Result<()> {
    let known = find(api, wanted).await?;
    let json = api.json(api.get(&["api", "workers", &known.id.to_string()])).await?;
    if records::print(format, &json, "name")? {
        return Ok(());
    }
    let worker: view::Worker = api::parse(api, &json)?;
    screen::fields(&worker.fields())?;
    print_warnings(&[worker]);
    Ok(())
}

/// Warns about conditions that an operator has to resolve.
fn print_warnings(workers: &[view::Worker]) {
    for worker in workers.iter().filter(|worker| !worker.unmanaged.is_empty()) {
        screen::note(&format!(
            "warning: {} has {} attempts that this server did not assign; they continue until an operator stops them; list them with: longshore workers -o json; stop them with: longshore stop-unmanaged {0}",
            worker.name,
            worker.unmanaged.len()
        ));
    }
    for worker in workers {
        if let Some(suspicion) = &worker.suspect {
            screen::note(&format!(
                "warning: {} is suspect: {}; look at its jobs with 'longshore ls'; send it jobs again with: longshore reset-worker {0}",
                worker.name, suspicion.cause
            ));
        }
    }
    for worker in workers.iter().filter(|worker| !worker.copies.is_empty()) {
        screen::note(&format!(
            "warning: several processes use the identity of {}, from {}: one state directory is a copy of the other. All of them are refused \
             until only one is left; stop the copy and remove its state directory",
            worker.name,
            worker.copies.join(" and ")
        ));
    }
}

/// Prints the reasons of cordons and drains below the table, which has no room for them.
fn print_reasons(workers: &[view::Worker]) {
    let with_reason = |worker: &view::Worker| {
        let cordon = worker.cordon.as_ref().filter(|cordon| cordon.reason.is_some())?;
        Some(format!("{} is {} {}", worker.name, worker.cordon_text(), cordon.words()))
    };
    let reasons: Vec<String> = workers.iter().filter_map(with_reason).collect();
    let left_out = reasons.len().saturating_sub(REASONS_MAX);
    for reason in reasons.iter().take(REASONS_MAX) {
        screen::note(reason);
    }
    if left_out > 0 {
        screen::note(&format!("{left_out} more have a reason; see them with: longshore workers -o json"));
    }
}

/// Reasons that are printed below a table of workers.
const REASONS_MAX: usize = 10;

/// Changes the labels of a worker.
pub(crate) async fn label(flags: LabelFlags) -> anyhow::Result<()> {
    let labels: BTreeMap<&str, Option<&str>> =
        flags.labels.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
    change(&flags.target, &json!({ "labels": labels }), |worker| {
        let shown = view::pairs(&worker.labels);
        if shown.is_empty() { "has no labels".to_owned() } else { format!("has the labels {shown}") }
    })
    .await
}

/// Changes how many jobs a worker runs at once.
pub(crate) async fn slots(flags: SlotsFlags) -> anyhow::Result<()> {
    change(&flags.target, &json!({ "slots": flags.slots }), |worker| match worker.slots {
        1 => "runs one job at a time".to_owned(),
        slots => format!("runs {slots} jobs at once"),
    })
    .await
}

/// Resets the circuit breaker of a worker.
pub(crate) async fn reset(flags: ResetFlags) -> anyhow::Result<()> {
    post_operation(&flags.target, "reset", &[], "is trusted again and takes jobs").await
}

/// Forgets a worker.
pub(crate) async fn forget(flags: ForgetFlags) -> anyhow::Result<()> {
    post_operation(&flags.target, "forget", &[], "is forgotten").await
}

/// Revokes a worker.
pub(crate) async fn revoke(flags: RevokeFlags) -> anyhow::Result<()> {
    post_operation(&flags.target, "revoke", &[], "is revoked").await
}

/// Stops unmanaged attempts.
pub(crate) async fn stop_unmanaged(flags: StopUnmanagedFlags) -> anyhow::Result<()> {
    let which = flags.attempt.map(|(job, fence)| [("job", job.to_string()), ("fence", fence.to_string())]);
    let query: Vec<(&str, &str)> =
        which.iter().flatten().map(|(name, number)| (*name, number.as_str())).collect();
    post_operation(&flags.target, "stop-unmanaged", &query, "stops its unmanaged attempts").await
}

/// Sends a PATCH for a worker, and prints the effect.
async fn change(
    target: &TargetArgs,
    patch: &serde_json::Value,
    effect: impl FnOnce(&view::Worker) -> String,
) -> anyhow::Result<()> {
    let api = Api::new(&target.common.server_args)?;
    let known = find(&api, &target.worker).await?;
    let path = ["api", "workers", &known.id.to_string()];
    let json = api.json(api.request(Method::PATCH, &path).json(patch)).await?;
    if records::print(target.common.format, &json, "name")? {
        return Ok(());
    }
    let worker: view::Worker = api::parse(&api, &json)?;
    tell(&worker, &effect(&worker))
}

async fn post_operation(
    target: &TargetArgs,
    verb: &str,
    query: &[(&str, &str)],
    effect: &str,
) -> anyhow::Result<()> {
    let api = Api::new(&target.common.server_args)?;
    let known = find(&api, &target.worker).await?;
    let path = ["api", "workers", &known.id.to_string(), verb];
    let response = api.send(api.request(Method::POST, &path).query(query)).await?;
    if response.status() == StatusCode::NO_CONTENT {
        // A forgotten worker has no JSON.
        return if target.common.format.is_text() { tell(&known, effect) } else { Ok(()) };
    }
    let json: Value = api.decode(response).await?;
    if records::print(target.common.format, &json, "name")? {
        return Ok(());
    }
    tell(&api::parse(&api, &json)?, effect)
}

/// Prints the effect on a worker, with its name and id.
fn tell(worker: &view::Worker, effect: &str) -> anyhow::Result<()> {
    screen::line(&format!(
        "worker {} (id {}) {}",
        screen::visible(&worker.name),
        worker.id,
        screen::visible(effect)
    ))
}

/// Finds a worker by name or id. A name may be a number: an ambiguous value is an error, and `id:2` is always the id.
async fn find(api: &Api, wanted: &str) -> anyhow::Result<view::Worker> {
    let workers: Vec<view::Worker> = api::parse(api, &fetch(api, true).await?)?;
    Ok(find_among(&workers, wanted)?)
}

fn find_among(workers: &[view::Worker], wanted: &str) -> Result<view::Worker, Failure> {
    let number = wanted.strip_prefix("id:").unwrap_or(wanted).parse::<u64>().ok();
    let meant: Vec<&view::Worker> =
        workers.iter().filter(|worker| Some(worker.id) == number || worker.name == wanted).collect();
    match meant.as_slice() {
        [worker] => Ok((*worker).clone()),
        [] => {
            let text = match number {
                Some(number) => format!("no worker has the id {number}, and none is called {wanted:?}"),
                None => format!("no worker is called {wanted:?}"),
            };
            Err(Failure::new(Exit::NotFound, text).hint("'longshore workers --all' lists them"))
        }
        [first, ..] => {
            let shown: Vec<String> =
                meant.iter().map(|worker| format!("{:?} (id {})", worker.name, worker.id)).collect();
            let text = format!("{wanted:?} matches several workers: {}", shown.join(" and "));
            Err(Failure::new(Exit::Conflict, text).hint(format!("give the id as id:{}", first.id)))
        }
    }
}

fn label_change(text: &str) -> Result<LabelChange, String> {
    match (text.split_once('='), text.strip_suffix('-')) {
        (Some((name, value)), _) if !name.is_empty() => Ok((name.to_owned(), Some(value.to_owned()))),
        (None, Some(name)) if !name.is_empty() => Ok((name.to_owned(), None)),
        _ => Err("a label is written KEY=VALUE, or KEY- to remove it".to_owned()),
    }
}

/// Parses `12#30`: job 12, attempt with fence 30.
fn attempt(text: &str) -> Result<(u64, u64), String> {
    let numbers =
        text.split_once('#').and_then(|(job, fence)| Some((job.parse().ok()?, fence.parse().ok()?)));
    numbers.ok_or_else(|| "write the job and the fence of its attempt, as in 12#30".to_owned())
}

async fn fetch(api: &Api, all: bool) -> anyhow::Result<Value> {
    let request = api.get(&["api", "workers"]);
    api.json(if all { request.query(&[("all", "1")]) } else { request }).await
}
